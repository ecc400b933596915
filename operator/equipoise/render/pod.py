"""The pod template of one variant. The two phases of a pool and shape differ in labels, phase flags and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from equipoise.api import labels
from equipoise.api.engine import EngineType, RouterType
from equipoise.api.identity import Variant
from equipoise.fleet.types import Pool
from equipoise.render.context import Context
from equipoise.render.drain import grace_seconds, pre_stop
from equipoise.render.engines import engine_parts
from equipoise.render.engines.base import HTTP_PORT, SIDECAR_ENGINE_PORT, EngineParts, environment
from equipoise.render.freeze import ENGINE, engine_container
from equipoise.render.merge import overlay_object
from equipoise.render.options import Problem, Refusal
from equipoise.render.partials import check_partial
from equipoise.render.probes import probes
from equipoise.render.weights import WeightSource, cache_mounts, cache_volumes, weight_source

SIDECAR: Final = "routing-sidecar"
CPUS_PER_GPU: Final = 1
"""Cores asked for per GPU, besides one for the API server: vLLM and SGLang run one busy process per GPU."""
MEMORY_GIB_PER_GPU: Final = 8
"""Main memory asked for per GPU. Small on purpose: the smallest nodes with one 24 GB GPU have 16 GiB."""


def pod_template(context: Context, variant: Variant) -> dict[str, Any]:
    """The template, with the user's partial templates laid over it and what routing depends on put back."""
    parts = engine_parts(context, variant)
    pool = context.pool(variant)
    sidecar = _sidecar(context, parts)
    weights = weight_source(context, variant)
    spec: dict[str, Any] = {
        "containers": [_engine(context, variant, parts, weights, pool, sidecar is not None)],
        "volumes": [*cache_volumes(), *weights.volumes],
        # Variables of Services (VLLM_PORT of a Service named vllm, for one) would be read by engines as settings.
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "tolerations": [{"key": pool.resource_name, "operator": "Exists", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [_spread(context)],
    }
    if sidecar is not None:
        spec["initContainers"] = [sidecar]
    template: dict[str, Any] = {"metadata": {"labels": context.pod_labels(variant)}, "spec": spec}
    if parts.annotations:
        template["metadata"]["annotations"] = dict(parts.annotations)
    custom = context.spec.engine.type is EngineType.CUSTOM
    for source, partial in _partials(context, variant):
        check_partial(source, partial, ENGINE, "" if custom else "spec.engine.args or spec.phases.<phase>.engineArgs")
        template = overlay_object(template, partial)
    return _put_back(template, context, variant, pool, parts)


def _engine(
    context: Context, variant: Variant, parts: EngineParts, weights: WeightSource, pool: Pool, behind_sidecar: bool
) -> dict[str, Any]:
    gpus = variant.shape.gpus_per_replica
    name, port = ("engine", SIDECAR_ENGINE_PORT) if behind_sidecar else ("http", HTTP_PORT)
    container: dict[str, Any] = {"name": ENGINE, "image": parts.image}
    if parts.command:
        container["command"] = list(parts.command)
    if parts.arguments:
        container["args"] = list(parts.arguments)
    return container | {
        "env": environment(context, parts.environment),
        "ports": [{"name": name, "containerPort": port}, *(dict(port) for port in parts.ports)],
        "resources": {
            "requests": {
                "cpu": str(1 + CPUS_PER_GPU * gpus),
                "memory": f"{MEMORY_GIB_PER_GPU * gpus}Gi",
                pool.resource_name: str(gpus),
            },
            "limits": {pool.resource_name: str(gpus)},
        },
        "volumeMounts": [*cache_mounts(), *weights.mounts],
        **probes(context, weights.stored, parts.probe_paths, name),
        "lifecycle": pre_stop(parts.pre_stop_seconds),
        "securityContext": {"allowPrivilegeEscalation": False},
    }


def _sidecar(context: Context, parts: EngineParts) -> dict[str, Any] | None:
    """llm-d's sidecar, which hands a request to the prefill pod that the endpoint picker named, and then to its own engine.

    It stands in pods of both phases, so that they can change phase: without the picker's header it passes requests on.
    """
    if context.spec.router_type is not RouterType.INFERENCE_POOL or context.spec.engine.type is EngineType.CUSTOM:
        return None
    if parts.sidecar_connector is None:
        raise Refusal(Problem("spec.engine.args", "llm-d's routing sidecar cannot drive this KV connector; use NixlConnector"))
    return {
        "name": SIDECAR,
        "image": context.options.image(SIDECAR),
        "restartPolicy": "Always",
        "args": [
            f"--port={HTTP_PORT}",
            f"--model-server-port={SIDECAR_ENGINE_PORT}",
            f"--kv-connector={parts.sidecar_connector}",
            "--secure-proxy=false",
        ],
        "ports": [{"name": "http", "containerPort": HTTP_PORT}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def _spread(context: Context) -> dict[str, Any]:
    """Replicas of one phase on different nodes where that costs nothing, so that a lost node does not take a whole phase."""
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {labels.SERVICE: context.key.name}},
        "matchLabelKeys": [labels.ROLE],
    }


def _partials(context: Context, variant: Variant) -> list[tuple[str, Mapping[str, Any]]]:
    phase = variant.phase
    found = (
        ("spec.engine.podTemplate", context.spec.engine.pod_template),
        (f"spec.phases.{phase.value}.podTemplate", context.spec.phases.of(phase).pod_template),
    )
    return [(source, partial) for source, partial in found if partial]


def _put_back(template: dict[str, Any], context: Context, variant: Variant, pool: Pool, parts: EngineParts) -> dict[str, Any]:
    """What routing, placement, GPU counts and draining depend on, whatever the user's partial templates say."""
    metadata = {**template["metadata"], "labels": {**(template["metadata"].get("labels") or {}), **context.pod_labels(variant)}}
    spec = dict(template["spec"])
    selector = {**(spec.get("nodeSelector") or {}), **pool.node_selector}
    if selector:
        spec["nodeSelector"] = selector
    tolerations = list(spec.get("tolerations") or ())
    spec["tolerations"] = tolerations + [dict(item) for item in pool.tolerations if dict(item) not in tolerations]
    engine = engine_container(template)
    if engine is None:
        raise Refusal(Problem("spec.engine.podTemplate.spec.containers", "the container engine was taken away; leave it in"))
    given = spec.get("terminationGracePeriodSeconds")
    grace = grace_seconds(max(parts.pre_stop_seconds, _hook_seconds(engine)), parts.shutdown_seconds)
    spec["terminationGracePeriodSeconds"] = max(grace, given) if isinstance(given, int) else grace
    gpus = str(variant.shape.gpus_per_replica)
    resources = engine.get("resources") or {}
    counted = {kind: {**(resources.get(kind) or {}), pool.resource_name: gpus} for kind in ("requests", "limits")}
    replaced = {**engine, "resources": {**resources, **counted}}
    spec["containers"] = [replaced if item is engine else item for item in spec["containers"]]
    return {**template, "metadata": metadata, "spec": spec}


def _hook_seconds(engine: Mapping[str, Any]) -> float:
    """How long the engine's hook waits, where it says so: the user's may wait longer than ours."""
    found: Any = engine
    for name in ("lifecycle", "preStop", "sleep", "seconds"):
        found = found.get(name) if isinstance(found, Mapping) else None
    return float(found) if isinstance(found, int) and not isinstance(found, bool) else 0.0
