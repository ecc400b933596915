"""Two revisions side by side: Deployments of their own, the former one as it was, also after the spec went on."""

from __future__ import annotations

from typing import Any

import pytest

from equipoise.api import labels
from equipoise.api.identity import Phase
from equipoise.render import RenderOptions, compose, revision
from equipoise.render.freeze import TEMPLATE, freeze
from equipoise.render.saved import at_fields, patch_to, saved_fields

OLD = "engine: {image: 'r.example.com/vllm:1', args: [--max-num-seqs=9]}"
NEW = "engine: {image: 'r.example.com/vllm:2'}"
PLAIN = "chat-prefill-h100-80gb-tp1-bf16"


def deployments(children: Any) -> dict[str, dict[str, Any]]:
    found = [child for child in children if child["kind"] == "Deployment"]
    return {child["metadata"]["name"]: child for child in found if "router" not in child["metadata"]["name"]}


@pytest.fixture
def both(service: Any, pools: Any, variant: Any, uid: str) -> Any:
    """Renders the new spec beside the old revision's live Deployments."""

    def run(former: dict[str, int], *, known: bool = True, phases: tuple[str, ...] = ("prefill",)) -> Any:
        old, new = service(OLD), service(NEW)
        allocation = {variant(phase): 1 for phase in phases}
        first = compose(old, uid, allocation, pools("h100-80gb")).children
        live = {child["metadata"]["name"]: child for child in first if child["kind"] == "Deployment"}
        saved = {revision(old): saved_fields(old)} if known else {}
        options = RenderOptions(live=live, saved=saved)
        table = {revision(old): {variant(phase): count for phase, count in former.items()}}
        return compose(new, uid, allocation, pools("h100-80gb"), options, table)

    return run


def engine_of(deployment: dict[str, Any]) -> dict[str, Any]:
    return dict(deployment["spec"]["template"]["spec"]["containers"][0])


def test_each_revision_has_a_deployment_of_its_own(both: Any, service: Any) -> None:
    found = {name: child for name, child in deployments(both({"prefill": 1}).children).items() if "prefill" in name}
    new_name = f"{PLAIN}-{revision(service(NEW))}"
    assert set(found) == {PLAIN, new_name}
    assert engine_of(found[PLAIN])["image"] == "r.example.com/vllm:1"
    assert engine_of(found[new_name])["image"] == "r.example.com/vllm:2"
    selectors = [child["spec"]["selector"]["matchLabels"] for child in found.values()]
    assert len({selector[labels.REVISION] for selector in selectors}) == 2
    assert {selector[labels.VARIANT] for selector in selectors} == {PLAIN}, "metrics and status know one variant"


def test_a_phase_that_is_new_in_a_former_revision_is_rendered_as_that_revision(both: Any, service: Any) -> None:
    """While rolled back a variant may be needed that never ran: it gets the former image, not the spec's."""
    found = deployments(both({"prefill": 1, "decode": 2}).children)
    decode = next(child for name, child in found.items() if "decode" in name)
    assert engine_of(decode)["image"] == "r.example.com/vllm:1"
    assert "--max-num-seqs=9" in engine_of(decode)["args"]
    assert decode["spec"]["template"]["metadata"]["labels"][labels.REVISION] == revision(service(OLD))


def test_a_revision_that_nothing_is_known_of_keeps_what_runs_and_starts_nothing_elsewhere(both: Any) -> None:
    result = both({"prefill": 1, "decode": 2}, known=False)
    assert engine_of(deployments(result.children)[PLAIN])["image"] == "r.example.com/vllm:1"
    assert [problem.field for problem in result.problems] == ["status.revisions"]
    assert not any("decode" in name for name in deployments(result.children))


def test_budgets_count_replicas_of_all_revisions(both: Any) -> None:
    kinds = [child["kind"] for child in both({"prefill": 1}).children]
    assert "PodDisruptionBudget" in kinds


def test_a_frozen_template_of_a_former_revision_is_sent_as_it_is(service: Any, pools: Any, variant: Any, uid: str) -> None:
    """What a former release rendered is not rendered anew, however the defaults have changed since."""
    old = service(OLD)
    live = next(child for child in compose(old, uid, {variant("prefill"): 1}, pools("h100-80gb")).children)
    template = live["spec"]["template"]
    template["spec"]["containers"][0]["args"] = ["--as-it-was"]
    live["metadata"]["annotations"][TEMPLATE] = freeze(template)
    options = RenderOptions(live={PLAIN: live}, saved={revision(old): saved_fields(old)})
    result = compose(service(NEW), uid, {}, pools("h100-80gb"), options, {revision(old): {variant("prefill"): 3}})
    assert engine_of(deployments(result.children)[PLAIN])["args"] == ["--as-it-was"]
    assert deployments(result.children)[PLAIN]["spec"]["replicas"] == 3


@pytest.mark.parametrize(
    "spec",
    [
        OLD,
        "engine: {env: [{name: A, value: b}], podTemplate: {spec: {priorityClassName: x}}}",
        "phases: {decode: {engineArgs: [--enforce-eager]}, prefill: {podTemplate: {metadata: {labels: {a: b}}}}}",
        "drain: {grace: 1m}",
        "model: {uri: 'hf://meta-llama/Llama-3.1-8B-Instruct', servedName: chat, architecture: {maxContext: 4096}}",
        "router: {type: inference-pool, endpointPicker: {name: epp}}",
        "capacity: {boundedQueues: Disabled, maxGPUs: 7}",
    ],
)
def test_saved_fields_give_the_revision_back(service: Any, spec: str) -> None:
    """From any spec to any other, by rendering and by patch; what is no engine's business stays as the newer spec has it."""
    old, new = service(spec), service(f"{NEW}\ntargets: {{ttft: 2s, tpot: 30ms}}\nphases: {{prefill: {{min: 3}}}}")
    back = at_fields(new, saved_fields(old))
    assert revision(back) == revision(old)
    assert back.spec.targets == new.spec.targets
    assert back.spec.phases.of(Phase.PREFILL).min == 3
    merged = _merge(new.to_dict(), patch_to(new, saved_fields(old)))
    assert revision(type(new).parse(merged)) == revision(old)


def _merge(base: Any, patch: Any) -> Any:
    """A JSON merge patch, as RFC 7386 has it."""
    if not isinstance(patch, dict):
        return patch
    result = dict(base) if isinstance(base, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merge(result.get(name), value)
    return result
