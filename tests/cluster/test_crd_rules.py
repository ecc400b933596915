"""Every rule of the CRDs on the real API server: an example it refuses, its message, and the nearest example it accepts."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from equipoise.api.crd import RESOURCES, definition

if TYPE_CHECKING:
    from local_cluster import LocalCluster

CRDS = Path(__file__).parents[2] / "crds"
Changes = Mapping[str, Any]

BASES: Mapping[str, dict[str, Any]] = {
    "InferenceService": {
        "metadata": {"name": "chat"},
        "spec": {"model": {"uri": "hf://meta-llama/Llama-3.1-8B-Instruct"}, "targets": {"ttft": "500ms", "tpot": "50ms"}},
    },
    "GPUPool": {"metadata": {"name": "l40s"}, "spec": {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L40S"}}},
    "PhaseScale": {"metadata": {"name": "chat-prefill"}, "spec": {"replicas": 1}},
}


@dataclass(frozen=True)
class Case:
    """`refused` and `accepted` change the base by dotted paths; `stored` is what the server has before, for rules on updates."""

    id: str
    message: str
    refused: Changes
    accepted: Changes
    kind: str = "InferenceService"
    stored: Changes | None = None


RULES = (
    Case("name too long", "at most 45 characters", {"metadata.name": "n" * 46}, {"metadata.name": "n" * 45}),
    Case("name that a Service cannot have", "the name must begin with a letter", {"metadata.name": "3chat"},
         {"metadata.name": "chat3"}),
    Case("name with a dot", "hold only lower-case letters, digits and hyphens", {"metadata.name": "chat.v1"},
         {"metadata.name": "chat-v1"}),
    Case("name that collides with derived names", "must not go on with -prefill", {"metadata.name": "chat-decode"},
         {"metadata.name": "chat-decoder"}),
    Case("pool name too long", "shorten it to 63", {"metadata.name": "p" * 64}, {"metadata.name": "p" * 63}, kind="GPUPool"),
    Case("ttft of zero", "ttft must be above 0", {"spec.targets.ttft": "0s", "spec.targets.tpot": "0s"},
         {"spec.targets.ttft": "51ms"}),
    Case("ttft of an hour", "ttft must be above 0 and at most 10m", {"spec.targets.ttft": "1h"}, {"spec.targets.ttft": "10m"}),
    Case("tpot of zero", "tpot must be above 0", {"spec.targets.tpot": "0ms"}, {"spec.targets.tpot": "1ms"}),
    Case("targets swapped", "are they swapped?", {"spec.targets.ttft": "50ms", "spec.targets.tpot": "500ms"},
         {"spec.targets.ttft": "500ms", "spec.targets.tpot": "499ms"}),
    Case("time to publish without tokens", "timeToPublish and thinkingTokens belong together",
         {"spec.targets.timeToPublish": "8s"},
         {"spec.targets.timeToPublish": "8s", "spec.targets.thinkingTokens": 200}),
    Case("tokens without time to publish", "timeToPublish and thinkingTokens belong together",
         {"spec.targets.thinkingTokens": 200}, {}),
    Case("published before the first token", "timeToPublish must be longer than ttft",
         {"spec.targets.timeToPublish": "500ms", "spec.targets.thinkingTokens": 200},
         {"spec.targets.timeToPublish": "501ms", "spec.targets.thinkingTokens": 200}),
    Case("more active parameters than there are", "activeParameters cannot be more than parameters",
         {"spec.model.architecture": {"parameters": "30G", "activeParameters": "31G"}},
         {"spec.model.architecture": {"parameters": "30G", "activeParameters": "30000M"}}),
    Case("heads that cannot be grouped", "kvHeads must divide attentionHeads",
         {"spec.model.architecture": {"attentionHeads": 32, "kvHeads": 12}},
         {"spec.model.architecture": {"attentionHeads": 32, "kvHeads": 8}}),
    Case("int4 without weights", "need a uri of their own", {"spec.model.weights.calibrated": [{"precision": "int4"}]},
         {"spec.model.weights.calibrated": [{"precision": "int4", "uri": "hf://a/b-awq"}, {"precision": "fp8"}]}),
    Case("calibrated names the main precision", "take the entry of the same precision out",
         {"spec.model.weights": {"precision": "fp8", "calibrated": [{"precision": "fp8"}]}},
         {"spec.model.weights": {"precision": "fp8", "calibrated": [{"precision": "bf16", "uri": "hf://a/b"}]}}),
    Case("custom engine without image", "engine.type custom needs engine.image", {"spec.engine": {"type": "custom"}},
         {"spec.engine": {"type": "custom", "image": "registry.example/engine:1"}}),
    Case("another engine later", "engine.type cannot be changed", {"spec.engine.type": "sglang"},
         {"spec.engine": {"type": "vllm", "version": "0.32.0"}}, stored={}),
    Case("value twice", "set value or valueFrom, not both",
         {"spec.engine.env": [{"name": "A", "value": "1", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
         {"spec.engine.env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]}),
    Case("max below min", "max must be at least min", {"spec.phases.decode": {"min": 3, "max": 2}},
         {"spec.phases.decode": {"min": 3, "max": 3}}),
    Case("max below the default min", "max must be at least min: raise max or lower min",
         {"spec.phases.decode": {"min": 2, "max": 1}},
         {"spec.phases.decode": {"max": 1}}),
    Case("external with max", "with scaling External the autoscaler owns the bounds",
         {"spec.phases.decode": {"scaling": "External", "max": 4}}, {"spec.phases.decode": {"scaling": "External", "min": 4}}),
    Case("fixed with a range", "with scaling Fixed the count is min: take max out",
         {"spec.phases.decode": {"scaling": "Fixed", "min": 2, "max": 4}},
         {"spec.phases.decode": {"scaling": "Fixed", "min": 2, "max": 2}}),
    Case("fixed at zero", "with scaling Fixed the count is min, and 0 would never serve",
         {"spec.phases": {"prefill": {"min": 0, "scaling": "Fixed"}, "decode": {"min": 0}}},
         {"spec.phases": {"prefill": {"min": 1, "scaling": "Fixed"}, "decode": {"min": 1}}}),
    Case("one phase at zero", "min must be 0 for both phases or for neither", {"spec.phases.prefill.min": 0},
         {"spec.phases": {"prefill": {"min": 0}, "decode": {"min": 0}}}),
    Case("inference pool without picker", "needs router.endpointPicker.name", {"spec.router.type": "inference-pool"},
         {"spec.router": {"type": "inference-pool", "endpointPicker": {"name": "picker"}}}),
    Case("picker without inference pool", "read only with router.type inference-pool",
         {"spec.router": {"type": "none", "endpointPicker": {"name": "picker"}}}, {"spec.router": {"type": "none"}}),
    Case("image for no router", "Equipoise runs no router",
         {"spec.router": {"type": "none", "image": "registry.example/router:1"}},
         {"spec.router": {"type": "vllm-router", "image": "registry.example/router:1"}}),
    Case("vllm-router with SGLang", "use sglang-router with engine.type sglang",
         {"spec.engine": {"type": "sglang"}, "spec.router": {"type": "vllm-router"}},
         {"spec.engine": {"type": "sglang"}, "spec.router": {"type": "sglang-router"}}),
    Case("sglang-router with vLLM", "use vllm-router with engine.type vllm", {"spec.router": {"type": "sglang-router"}},
         {"spec.router": {"type": "vllm-router"}}),
    Case("image for a router there is none of", "have no router by default",
         {"spec.engine": {"type": "trtllm"}, "spec.router": {"args": ["--x"]}}, {"spec.engine": {"type": "trtllm"}}),
    Case("budget below the minimum", "capacity.maxGPUs is less than the two phases' min take together",
         {"spec.capacity": {"maxGPUs": 5}, "spec.phases.prefill": {"min": 2, "shape": {"tensorParallel": 2}},
          "spec.phases.decode.min": 2},
         {"spec.capacity": {"maxGPUs": 6}, "spec.phases.prefill": {"min": 2, "shape": {"tensorParallel": 2}},
          "spec.phases.decode.min": 2}),
    Case("precision nobody checked", "shape.precision must be that of model.weights",
         {"spec.phases.decode": {"shape": {"precision": "fp8"}}},
         {"spec.phases.decode": {"shape": {"precision": "fp8"}}, "spec.model.weights.calibrated": [{"precision": "fp8"}]}),
    Case("heads that cannot be split", "shape.tensorParallel must divide model.architecture.attentionHeads",
         {"spec.model.architecture.attentionHeads": 28, "spec.phases.decode": {"shape": {"tensorParallel": 8}}},
         {"spec.model.architecture.attentionHeads": 28, "spec.phases.decode": {"shape": {"tensorParallel": 4}}}),
    Case("interval too short", "capacity.interval must lie between 1s and 1h", {"spec.capacity.interval": "500ms"},
         {"spec.capacity.interval": "1s"}),
    Case("budget of nothing", "must be above 0: correct it, or leave the field out", {"spec.capacity.maxCostPerHour": "0.00"},
         {"spec.capacity.maxCostPerHour": "0.01"}),
    Case("negative budget", "must be above 0: correct it, or leave the field out", {"spec.capacity.maxCostPerHour": -5},
         {"spec.capacity.maxCostPerHour": 5}),
    Case("negative price", "must be 0 or more: take the minus sign out", {"spec.pricePerGPUHour": -1},
         {"spec.pricePerGPUHour": 0},
         kind="GPUPool"),
    Case("no room to roll out", "cannot both be 0", {"spec.rollout": {"maxUnavailable": 0, "maxSurge": 0}},
         {"spec.rollout": {"maxUnavailable": 0, "maxSurge": 1}}),
    Case("no room to roll out, in per cent", "cannot both be 0", {"spec.rollout": {"maxUnavailable": "0%", "maxSurge": "0%"}},
         {"spec.rollout": {"maxUnavailable": "1%", "maxSurge": "0%"}}),
    Case("negative surge", "must be a count from 0 to 9999", {"spec.rollout.maxSurge": -1}, {"spec.rollout.maxSurge": 2}),
    Case("deadline that no model meets", "a model has to load", {"spec.rollout.progressDeadline": "9s"},
         {"spec.rollout.progressDeadline": "10s"}),
    Case("drain of no time", "drain.grace must lie between 1s and 24h", {"spec.drain.grace": "0s"}, {"spec.drain.grace": "1s"}),
    Case("another resource later", "resourceName cannot be changed", {"spec.resourceName": "amd.com/gpu"}, {"spec.paused": True},
         kind="GPUPool", stored={}),
    Case("toleration of any value", "takes no value", {"spec.tolerations": [{"key": "k", "operator": "Exists", "value": "v"}]},
         {"spec.tolerations": [{"key": "k", "operator": "Equal", "value": "v"}, {"operator": "Exists"}]}, kind="GPUPool"),
)  # fmt: skip

BOUNDS = (
    Case("model without scheme", "should match", {"spec.model.uri": "meta-llama/Llama-3.1-8B"},
         {"spec.model.uri": "file:///models/llama"}),
    Case("no duration", "should match", {"spec.targets.ttft": "0.5"}, {"spec.targets.ttft": "0.5s"}),
    Case("a bare number for a duration", "must be of type string", {"spec.targets.ttft": 500}, {"spec.targets.ttft": "500ms"}),
    Case("no quantity", "should match", {"spec.capacity.maxCostPerHour": "12 USD"}, {"spec.capacity.maxCostPerHour": "12"}),
    Case("no target", "Required value", {"spec.targets": {"ttft": "1s"}}, {"spec.targets": {"ttft": "1s", "tpot": "40ms"}}),
    Case("percentile of a mean", "greater than or equal to 50", {"spec.targets.percentile": 49}, {"spec.targets.percentile": 50}),
    Case("percentile of everyone", "less than or equal to 99", {"spec.targets.percentile": 100}, {"spec.targets.percentile": 99}),
    Case("phase of no replicas", "greater than or equal to 1", {"spec.phases.decode.max": 0}, {"spec.phases.decode.max": 1}),
    Case("the same pool twice", "Duplicate value", {"spec.phases.decode.pools": ["a", "a"]},
         {"spec.phases.decode.pools": ["a", "b"]}),
    Case("the same precision twice", "Duplicate value",
         {"spec.model.weights.calibrated": [{"precision": "fp8"}, {"precision": "fp8", "uri": "hf://a/b"}]},
         {"spec.model.weights.calibrated": [{"precision": "fp8", "uri": "hf://a/b"}]}),
    Case("odd parallel size", 'supported values: "1", "2", "4", "8", "16"', {"spec.phases.decode.shape": {"tensorParallel": 3}},
         {"spec.phases.decode.shape": {"tensorParallel": 4}}),
    Case("unknown engine", 'supported values: "vllm"', {"spec.engine.type": "llamacpp"}, {"spec.engine.type": "trtllm"}),
    Case("version with a v", "should match", {"spec.engine.version": "v0.32.0"}, {"spec.engine.version": "0.32.0"}),
    Case("percentage above a hundred", "should match", {"spec.rollout.maxUnavailable": "101%"},
         {"spec.rollout.maxUnavailable": "100%"}),
    Case("pool of all nodes", "should have at least 1 properties", {"spec.nodeSelector": {}},
         {"spec.nodeSelector": {"a": "b"}}, kind="GPUPool"),
    Case("too many replicas to scale to", "less than or equal to 1000", {"spec.replicas": 1001},
         {"spec.replicas": 0}, kind="PhaseScale"),
)  # fmt: skip


def example(kind: str, changes: Changes) -> dict[str, Any]:
    """The base of a kind with changes by dotted path."""
    result = {"apiVersion": "equipoise.dev/v1alpha1", "kind": kind, **copy.deepcopy(BASES[kind])}
    for path, value in changes.items():
        node: dict[str, Any] = result
        *parents, last = path.split(".")
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = value
    return result


@pytest.fixture(scope="module", autouse=True)
def crds(cluster: LocalCluster) -> None:
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(CRDS))


def all_messages() -> set[str]:
    found: set[str] = set()

    def walk(node: object) -> None:
        if isinstance(node, dict):
            found.update(rule["message"] for rule in node.get("x-kubernetes-validations", []) if isinstance(rule, dict))
            for child in node.values():
                walk(child)

    for resource in RESOURCES:
        walk(definition(resource))
    return found


def test_every_rule_has_its_example() -> None:
    assert {message for message in all_messages() if not any(case.message in message for case in RULES)} == set()


@pytest.mark.parametrize("case", [*RULES, *BOUNDS], ids=lambda case: case.id)
def test_refused_with_its_message_and_its_neighbour_accepted(
    case: Case, cluster: LocalCluster, request: pytest.FixtureRequest
) -> None:
    from local_cluster import CommandError

    verb, where = "create", "default"
    if case.stored is not None:
        verb, where = "replace", str(request.getfixturevalue("namespace"))
        cluster.kubectl("create", "-n", where, "-f", "-", input=json.dumps(example(case.kind, case.stored)))

    def dry_run(changes: Changes) -> str:
        manifest = json.dumps(example(case.kind, changes))
        return cluster.kubectl(verb, "--dry-run=server", "--validate=strict", "-n", where, "-f", "-", input=manifest)

    try:
        with pytest.raises(CommandError) as error:
            dry_run(case.refused)
        assert case.message in error.value.stderr
        assert "is invalid" in error.value.stderr
        assert "(server dry run)" in dry_run(case.accepted)
    finally:
        if case.stored is not None:
            cluster.kubectl("delete", "-n", where, "-f", "-", input=json.dumps(example(case.kind, case.stored)))
