"""Whole renderings of arbitrary specs: nothing a user writes breaks them, and the same input is at rest."""

from __future__ import annotations

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from equipoise.api import labels
from equipoise.api.identity import Phase, Precision, ServiceKey, Shape, Variant
from equipoise.api.service import InferenceService
from equipoise.fleet.types import Device, Pool
from equipoise.render import Rendering, RenderOptions, compose, differences

UID = "11111111-2222-3333-4444-555555555555"
POOLS = {
    name: Pool(
        name,
        Device(name.upper(), 80 * 2**30, 3e12, {Precision.BF16: 1e15}, 4e11, 8, 0.5, 0.7, 0.7, "test"),
        (),
        1.0,
        resource_name=resource,
        node_selector={"gpu": name},
        tolerations=({"key": "pool", "value": name},),
    )
    for name, resource in (("h100", "nvidia.com/gpu"), ("l4", "nvidia.com/gpu"), ("mi300", "amd.com/gpu"))
}
KEY = ServiceKey("prod", "chat")

_keys = st.sampled_from([
    "metadata", "spec", "labels", "annotations", "containers", "initContainers", "name", "args", "env", "ports", "resources",
    "limits", "volumes", "nodeSelector", "tolerations", "terminationGracePeriodSeconds", "nvidia.com/gpu", "llm-d.ai/role",
    "readinessProbe", "exec", "topologySpreadConstraints", "containerPort",
])  # fmt: skip
_scalars = st.one_of(st.none(), st.booleans(), st.integers(-1, 9999), st.sampled_from(["engine", "cache", "x", "1", ""]))
_json = st.recursive(
    _scalars, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_keys, inner, max_size=4)), max_leaves=15
)
_rubbish = st.dictionaries(_keys, _json, max_size=3)
_hook = st.integers(1, 900).map(lambda seconds: {"preStop": {"sleep": {"seconds": seconds}}})
_container = st.fixed_dictionaries(
    {"name": st.sampled_from(["engine", "helper"])}, optional={"env": _json, "resources": _json, "lifecycle": _hook}
)
_partial = st.one_of(
    _rubbish,
    st.fixed_dictionaries(
        {},
        optional={
            "metadata": st.fixed_dictionaries({}, optional={"labels": st.dictionaries(_keys, st.sampled_from("ab"), max_size=3)}),
            "spec": st.fixed_dictionaries(
                {},
                optional={
                    "containers": st.lists(_container, max_size=2),
                    "nodeSelector": st.dictionaries(st.sampled_from(["gpu", "zone"]), st.sampled_from("ab"), max_size=2),
                    "terminationGracePeriodSeconds": st.integers(0, 999),
                    "tolerations": st.lists(st.fixed_dictionaries({"key": st.sampled_from("ab")}), max_size=2),
                },
            ),
        },
    ),
)
_arguments = st.lists(
    st.sampled_from(
        ["--a", "--a=1", "--no-a", "-b", "2", "--port=1", "--max-num-seqs", "64", "--kv-transfer-config={}", "--dtype=half"]
    ),
    max_size=4,
)


@st.composite
def _services(draw: st.DrawFn) -> InferenceService:
    engine: dict[str, Any] = {"type": draw(st.sampled_from(["vllm", "sglang", "custom", "trtllm"]))}
    engine |= {"args": draw(_arguments), "podTemplate": draw(st.one_of(st.just({}), _partial)), "image": "e:1"}
    phase: dict[str, Any] = {"engineArgs": draw(_arguments), "podTemplate": draw(st.one_of(st.just({}), _partial))}
    spec = {
        "model": {"uri": draw(st.sampled_from(["hf://a/b", "pvc://c/d", "s3://b/k", "file:///m"]))},
        "targets": {"ttft": "500ms", "tpot": "50ms"},
        "engine": engine,
        "phases": {"prefill": phase},
    }
    metadata = {"name": "chat", "namespace": "prod", "uid": UID}
    return InferenceService.parse(
        {"apiVersion": "equipoise.dev/v1alpha1", "kind": "InferenceService", "metadata": metadata, "spec": spec}
    )


_allocation = st.dictionaries(
    st.builds(
        Variant,
        st.just(KEY),
        st.sampled_from(Phase),
        st.sampled_from(["h100", "l4", "mi300", "gone"]),
        st.builds(Shape, st.sampled_from([1, 2, 8]), st.sampled_from([1, 2])),
    ),
    st.one_of(st.none(), st.integers(0, 9)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=120)
@given(_services(), _allocation)
def test_whatever_is_written_is_rendered_or_refused_in_words(
    service: InferenceService, allocation: dict[Variant, int | None]
) -> None:
    result = compose(service, UID, allocation, POOLS)
    assert result == compose(service, UID, dict(reversed(allocation.items())), POOLS), "the same input, the same output"
    for problem in result.problems:
        assert problem.field.startswith(("spec.", "status."))
        assert len(problem.message) > 20
    event("refused" if result.refused else "rendered")
    if result.refused:
        assert result.children == ()
        return
    _assert_whole(result, allocation)
    live = {child["metadata"]["name"]: child for child in result.children if child["kind"] == "Deployment"}
    again = compose(service, UID, allocation, POOLS, RenderOptions(live=live))
    assert [differences(new, old) for new, old in zip(again.children, result.children, strict=True)] == [()] * len(
        result.children
    )


def _assert_whole(result: Rendering, allocation: dict[Variant, int | None]) -> None:
    children = result.children
    assert len({(child["kind"], child["metadata"]["name"]) for child in children}) == len(children)
    variants = [child for child in children if labels.VARIANT in child["metadata"]["labels"]]
    assert len(variants) + len(result.kept) == len(allocation)
    for child in children:
        assert child["metadata"]["ownerReferences"][0]["uid"] == UID
        assert labels.SPEC_HASH in child["metadata"]["annotations"]
        assert len(child["metadata"]["name"]) <= 63
    for deployment in variants:
        template = deployment["spec"]["template"]
        found = template["metadata"]["labels"]
        assert deployment["spec"]["selector"]["matchLabels"].items() <= found.items()
        pool = POOLS[found[labels.POOL]]
        spec = template["spec"]
        assert found[labels.ROLE] == found[labels.COMPONENT]
        assert pool.node_selector.items() <= spec["nodeSelector"].items()
        assert pool.tolerations[0] in spec["tolerations"]
        gpus = str(Shape.parse(found[labels.SHAPE]).gpus_per_replica)
        (engine,) = [container for container in spec["containers"] if container["name"] == "engine"]
        assert engine["resources"]["limits"][pool.resource_name] == gpus
        hook = (engine.get("lifecycle") or {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        assert spec["terminationGracePeriodSeconds"] > hook + 300
