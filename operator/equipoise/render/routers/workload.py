"""The router's Deployment, Service and disruption budget, the same for every router."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from equipoise.api import labels
from equipoise.api.identity import Phase
from equipoise.render.context import Context, role_selector
from equipoise.render.drain import ROUTER_NOTICE_SECONDS, grace_seconds, pre_stop
from equipoise.render.engines.base import HTTP_PORT
from equipoise.render.flags import Flag, overlay, parse_flags, tokens
from equipoise.render.merge import overlay_object
from equipoise.render.names import router_name
from equipoise.render.options import Problem, Refusal
from equipoise.render.partials import check_partial

CONTAINER: Final = "router"
METRICS_PORT: Final = 29000
SERVICE_PORT: Final = 80
NOBODY: Final = 65532


@dataclass(frozen=True, slots=True)
class RouterParts:
    """One router: its name, image, command line, and the path that says whether it has pods to send to."""

    name: str
    image: str
    command: tuple[str, ...]
    arguments: tuple[str, ...]
    readiness_path: str
    liveness_path: str


def discovery(context: Context) -> list[str]:
    """Flags that both routers share. A pod belongs to the pool whose role its label names, and to none while it drains."""
    arguments = [
        "--service-discovery",
        f"--service-discovery-namespace={context.key.namespace}",
        f"--service-discovery-port={HTTP_PORT}",
    ]
    for phase in Phase:
        pairs = [f"{name}={value}" for name, value in role_selector(context.key, phase).items()]
        arguments += [f"--{phase.value}-selector", *pairs]
    return arguments


def policies() -> list[str]:
    """How both routers choose pods.

    Prompts that share a prefix meet where it is cached, unless that pod has over four more in hand than another: each is a whole
    prefill (the routers' own threshold is 64). Answers go where fewer run, so that a small GPU gets less.
    """
    return [
        "--policy=power_of_two",
        "--prefill-policy=cache_aware",
        "--balance-abs-threshold=4",
        "--decode-policy=power_of_two",
    ]


def addresses() -> list[str]:
    """Where the router listens."""
    return ["--host=0.0.0.0", f"--port={HTTP_PORT}", "--prometheus-host=0.0.0.0", f"--prometheus-port={METRICS_PORT}"]


def router_workload(context: Context, parts: RouterParts) -> list[dict[str, Any]]:
    """Deployment and Service; with several replicas a disruption budget too."""
    children = [_deployment(context, parts), _service(context, parts)]
    if context.spec.router.replicas > 1:
        children.append(_budget(context, parts))
    return children


def _deployment(context: Context, parts: RouterParts) -> dict[str, Any]:
    name = router_name(context.key)
    pod_labels = context.labels(parts.name, "router")
    partial = context.spec.router.pod_template or {}
    check_partial("spec.router.podTemplate", partial, CONTAINER, "spec.router.args")
    template = overlay_object(_template(context, parts, pod_labels), partial)
    metadata = template.get("metadata") or {}
    template = {**template, "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), **pod_labels}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": context.metadata(name, parts.name, "router"),
        "spec": {
            "replicas": context.spec.router.replicas,
            "selector": {"matchLabels": _selector(context)},
            # A new router is Ready once it has found pods of both phases; until then the old one stays.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": template,
        },
    }


def _template(context: Context, parts: RouterParts, pod_labels: dict[str, str]) -> dict[str, Any]:
    container = {
        "name": CONTAINER,
        "image": context.spec.router.image or parts.image,
        "command": list(parts.command),
        "args": _arguments(context, parts),
        "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108 - a folder that any user of the image can write
        "ports": [{"name": "http", "containerPort": HTTP_PORT}, {"name": "metrics", "containerPort": METRICS_PORT}],
        "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}},
        "readinessProbe": _probe(parts.readiness_path, 5, 2),
        "livenessProbe": _probe(parts.liveness_path, 10, 6),
        "lifecycle": pre_stop(ROUTER_NOTICE_SECONDS),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": _selector(context)},
    }
    return {
        "metadata": {"labels": pod_labels},
        "spec": {
            "serviceAccountName": router_name(context.key),
            "containers": [container],
            # Streams in progress finish; the listener closes at once on SIGTERM, hence the hook.
            "terminationGracePeriodSeconds": grace_seconds(ROUTER_NOTICE_SECONDS, context.spec.drain.grace_seconds),
            "enableServiceLinks": False,
            "securityContext": {"runAsNonRoot": True, "runAsUser": NOBODY, "seccompProfile": {"type": "RuntimeDefault"}},
            "topologySpreadConstraints": [spread],
        },
    }


def _arguments(context: Context, parts: RouterParts) -> list[str]:
    own = parse_flags(parts.arguments)
    theirs = parse_flags(context.spec.router.args)
    for flag in theirs:
        _refuse_reserved(flag)
    return tokens(overlay(own, theirs))


def _refuse_reserved(flag: Flag) -> None:
    fixed = {"host", "port", "prometheus-host", "prometheus-port", "prefill-selector", "decode-selector"}
    if not flag.key or flag.key in fixed or flag.key.startswith("service-discovery"):
        message = f"{flag.tokens[0]!r} is set by Equipoise, and the Service, probes and scrapes depend on it; take it out"
        raise Refusal(Problem("spec.router.args", message))


def _probe(path: str, period_seconds: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": period_seconds,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _service(context: Context, parts: RouterParts) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": context.metadata(router_name(context.key), parts.name, "router"),
        "spec": {
            "selector": _selector(context),
            "ports": [{"name": "http", "port": SERVICE_PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    }


def _budget(context: Context, parts: RouterParts) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": context.metadata(router_name(context.key), parts.name, "router"),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": _selector(context)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def _selector(context: Context) -> dict[str, str]:
    return {labels.SERVICE: context.key.name, labels.COMPONENT: "router"}
