"""Whole manifests against reviewed files. `UPDATE_GOLDEN=1 pytest tests/unit/render` writes them anew: then read the diff."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from equipoise.render import INFERENCE_POOLS, POD_MONITORS, RenderOptions, render
from equipoise.render.freeze import TEMPLATE

GOLDEN = Path(__file__).parent / "golden"
PACKED = "(packed copy of spec.template)"


@dataclass(frozen=True)
class Case:
    """One service: what it shows, the user's YAML, the pools and the allocation as (phase, pool, shape) -> replicas."""

    shows: str
    spec: str
    pools: tuple[str, ...]
    allocation: Mapping[tuple[str, str, str], int | None]
    kinds: frozenset[str] = frozenset()
    queue_bound: int | None = None
    tolerations: tuple[Mapping[str, str], ...] = field(default=())


CASES = {
    "smallest": Case(
        shows="the smallest InferenceService on one pool",
        spec="",
        pools=("h100-80gb",),
        allocation={("prefill", "h100-80gb", "tp1-bf16"): 1, ("decode", "h100-80gb", "tp1-bf16"): 1},
    ),
    "mixed-fleet": Case(
        shows="three pools; prefill bounded by its target; a decode Deployment without pods, for flips to lead to",
        spec="""
            engine:
              args: [--enable-prefix-caching, --gpu-memory-utilization=0.92]
              env:
              - name: HF_TOKEN
                valueFrom: {secretKeyRef: {name: hugging-face, key: token}}
              podTemplate:
                metadata: {annotations: {example.com/team: search}}
                spec:
                  priorityClassName: serving
                  containers:
                  - name: engine
                    resources: {requests: {memory: 24Gi}}
            phases:
              decode: {engineArgs: [--max-num-seqs=256]}
            drain: {grace: 2m}
        """,
        pools=("h100-80gb", "l40s-48gb", "l4-24gb"),
        allocation={
            ("prefill", "h100-80gb", "tp1-bf16"): 2,
            ("decode", "h100-80gb", "tp1-bf16"): 0,
            ("decode", "l40s-48gb", "tp1-bf16"): 3,
            ("decode", "l4-24gb", "tp2-bf16"): 1,
        },
        queue_bound=24000,
        tolerations=({"key": "dedicated", "operator": "Equal", "value": "inference", "effect": "NoSchedule"},),
    ),
    "external-scaling": Case(
        shows="prefill scaled by an HPA through its PhaseScale, with counts that the caller keeps to itself",
        spec="phases: {prefill: {scaling: External, min: 2}}",
        pools=("l40s-48gb",),
        allocation={("prefill", "l40s-48gb", "tp1-bf16"): None, ("decode", "l40s-48gb", "tp1-bf16"): 2},
    ),
    "sglang": Case(
        shows="SGLang with its router; a running replica can change phase",
        spec="engine: {type: sglang}",
        pools=("h100-80gb",),
        allocation={("prefill", "h100-80gb", "tp2-bf16"): 1, ("decode", "h100-80gb", "tp2-bf16"): 2},
    ),
    "fp8-tensor-parallel": Case(
        shows="70B in fp8 over four GPUs, quantised while loading, from a PersistentVolumeClaim, its cache on the node's disk",
        spec="""
            model:
              uri: pvc://models/llama-3.3-70b
              servedName: llama-70b
              architecture: {parameters: 70.6G, maxContext: 32768}
              weights: {precision: bf16, calibrated: [{precision: fp8}]}
            engine:
              podTemplate:
                spec:
                  volumes:
                  - {name: cache, hostPath: {path: /var/cache/equipoise, type: DirectoryOrCreate}}
            phases:
              prefill: {shape: {tensorParallel: 4, precision: fp8}}
              decode: {shape: {tensorParallel: 4, precision: fp8}}
            rollout: {maxUnavailable: 0, maxSurge: 1}
        """,
        pools=("h100-80gb",),
        allocation={("prefill", "h100-80gb", "tp4-fp8"): 1, ("decode", "h100-80gb", "tp4-fp8"): 1},
    ),
    "inference-pool": Case(
        shows="an InferencePool instead of a router, llm-d's sidecar in the pods, and a PodMonitor",
        spec="router: {type: inference-pool, endpointPicker: {name: chat-epp}}",
        pools=("h100-80gb",),
        allocation={("prefill", "h100-80gb", "tp1-bf16"): 1, ("decode", "h100-80gb", "tp1-bf16"): 1},
        kinds=frozenset({POD_MONITORS, INFERENCE_POOLS}),
    ),
    "custom-engine": Case(
        shows="an engine of the user's own behind vllm-router, with one router and PodMonitors",
        spec="""
            model: {uri: "file:///opt/model", servedName: my-model}
            engine: {type: custom, image: "registry.example.com/engine:1.4", args: [--fast]}
            phases: {decode: {engineArgs: [--decode-lanes=4]}}
            router: {type: vllm-router, replicas: 1}
        """,
        pools=("l4-24gb",),
        allocation={("prefill", "l4-24gb", "tp1-bf16"): 1, ("decode", "l4-24gb", "tp1-bf16"): 1},
        kinds=frozenset({POD_MONITORS}),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_manifests_are_the_reviewed_ones(name: str, service: Any, pools: Any, variant: Any, uid: str) -> None:
    case = CASES[name]
    allocation = {variant(phase, pool, shape): replicas for (phase, pool, shape), replicas in case.allocation.items()}
    bounds = {} if case.queue_bound is None else {item: case.queue_bound for item in allocation if item.phase.value == "prefill"}
    options = RenderOptions(available_kinds=case.kinds, queue_bounds=bounds)
    children = render(service(case.spec), uid, allocation, pools(*case.pools, tolerations=case.tolerations), options)

    text = f"# {case.shows}\n" + "---\n".join(_document(child) for child in children)
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path.name} differs: review the change, then UPDATE_GOLDEN=1"


def test_every_golden_file_has_its_case() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == set(CASES)


def _document(child: dict[str, Any]) -> str:
    annotations = dict(child["metadata"].get("annotations", {}))
    if TEMPLATE in annotations:
        annotations[TEMPLATE] = PACKED
    shown = {**child, "metadata": {**child["metadata"], "annotations": annotations}}
    return yaml.dump(shown, Dumper=_Plain, sort_keys=False, width=130, allow_unicode=True)


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True
