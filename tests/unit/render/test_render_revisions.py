"""What makes a new revision, and what a revision keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from equipoise.api import labels
from equipoise.render import RenderOptions, differences, differs, render, revision
from equipoise.render.freeze import TEMPLATE, freeze, thaw
from equipoise.render.options import REPOSITORIES

SAME = [
    "targets: {ttft: 2s, tpot: 30ms}",
    "phases: {prefill: {min: 3, max: 9}, decode: {min: 2}}",
    "capacity: {priority: 5, maxGPUs: 40}",
    "router: {replicas: 5, image: r.example.com/router:2}",
    "rollout: {maxSurge: 2}",
    "metrics: {source: Pods}",
    "engine: {type: vllm}",
    "drain: {grace: 5m}",
    "model: {uri: 'hf://meta-llama/Llama-3.1-8B-Instruct', architecture: {parameters: 9G}}",
]
OTHER = [
    "engine: {version: 0.33.0}",
    "engine: {args: [--enforce-eager]}",
    "engine: {env: [{name: A, value: b}]}",
    "phases: {decode: {engineArgs: [--enforce-eager]}}",
    "phases: {prefill: {podTemplate: {spec: {priorityClassName: x}}}}",
    "drain: {grace: 1m}",
    "model: {uri: 'hf://meta-llama/Llama-3.1-8B-Instruct', architecture: {maxContext: 4096}}",
    "model: {uri: 'hf://meta-llama/Llama-3.1-8B-Instruct', servedName: chat}",
    "model: {uri: 'hf://meta-llama/Llama-3.1-8B-Instruct@v2'}",
    "router: {type: inference-pool, endpointPicker: {name: epp}}",
    "capacity: {boundedQueues: Disabled}",
]


@pytest.mark.parametrize("spec", SAME)
def test_what_no_engine_sees_is_the_same_revision(service: Any, spec: str) -> None:
    assert revision(service(spec)) == revision(service())


def test_what_engines_see_is_another_revision(service: Any) -> None:
    assert len({revision(service(spec)) for spec in ["", *OTHER]}) == len(OTHER) + 1


def test_the_revision_of_a_known_spec_is_fixed(service: Any) -> None:
    """This value is in clusters: should it change, every model there would restart on upgrade."""
    assert revision(service()) == "v1-0e62137b00"


@pytest.fixture
def place(service: Any, pools: Any, variant: Any, uid: str) -> Any:
    """The prefill Deployment of a spec, rendered beside live ones."""

    def run(spec: str = "", options: RenderOptions | None = None, phase: str = "prefill", **more: Any) -> dict[str, Any]:
        pool = more.get("pool", "h100-80gb")
        found = pools(pool, tolerations=more.get("tolerations", ()))
        return render(service(spec), uid, {variant(phase, pool): 2}, found, options)[0]

    return run


def live(*deployments: dict[str, Any]) -> RenderOptions:
    return RenderOptions(live={item["metadata"]["name"]: item for item in deployments})


def test_an_upgrade_with_other_defaults_restarts_nothing(place: Any) -> None:
    running = place()
    upgraded = replace(live(running), repositories={**REPOSITORIES, "vllm": "mirror.example.com/vllm"})
    assert place(options=replace(upgraded, live={}))["spec"]["template"] != running["spec"]["template"]
    assert differences(place(options=upgraded), running) == ()


def test_a_new_revision_brings_the_new_template(place: Any) -> None:
    running = place()
    changed = place("engine: {args: [--enforce-eager]}", live(running))
    assert "--enforce-eager" in changed["spec"]["template"]["spec"]["containers"][0]["args"]


def test_a_foreign_edit_is_undone(place: Any) -> None:
    running = place()
    edited = {**running, "spec": {**running["spec"], "template": {**running["spec"]["template"], "spec": {"containers": []}}}}
    assert place(options=live(edited))["spec"]["template"] == running["spec"]["template"]
    assert differs(place(options=live(edited)), edited)


def test_placement_follows_the_pool_and_then_rests(place: Any) -> None:
    running = place()
    toleration = {"key": "spot", "operator": "Exists"}
    moved = place(options=live(running), tolerations=(toleration,))
    assert toleration in moved["spec"]["template"]["spec"]["tolerations"]
    again = place(options=live(moved), tolerations=(toleration,))
    assert differences(again, moved) == ()
    assert differences(moved, again) == ()


def test_a_new_place_takes_image_and_pins_from_the_running_revision(place: Any) -> None:
    running = place()
    options = replace(live(running), repositories={"vllm": "mirror.example.com/vllm"})
    sibling = place(options=options, phase="decode", pool="l4-24gb")
    container = sibling["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "vllm/vllm-openai:v0.32.0"
    other = place("engine: {args: [--enforce-eager]}", options, phase="decode", pool="l4-24gb")
    assert other["spec"]["template"]["spec"]["containers"][0]["image"] == "mirror.example.com/vllm:v0.32.0"


def test_pins_of_a_revision_spread_to_new_places_and_only_those(service: Any, pools: Any, variant: Any, uid: str) -> None:
    alone = render(service(), uid, {variant("prefill"): 1}, pools("h100-80gb"))[0]
    fleet = pools("h100-80gb", "l4-24gb")
    fresh = render(service(), uid, {variant("decode", "l4-24gb"): 1}, fleet)[0]
    beside = render(service(), uid, {variant("decode", "l4-24gb"): 1}, fleet, live(alone))[0]

    def args(deployment: dict[str, Any]) -> str:
        return " ".join(deployment["spec"]["template"]["spec"]["containers"][0]["args"])

    assert "--attention-backend=FLASH_ATTN" in args(fresh)
    assert "--attention-backend" not in args(beside), "the running half chose by itself, and the two must agree"
    assert "--dtype=bfloat16" in args(beside)
    pinned = render(service(), uid, {variant("prefill"): 1}, fleet)[0]
    later = render(service(), uid, {variant("decode"): 1}, pools("h100-80gb"), live(pinned))[0]
    assert "--attention-backend=FLASH_ATTN" in args(later)


def test_a_packed_template_is_read_back_and_rubbish_is_not() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}
    assert thaw(freeze(template)) == template
    assert [thaw(text) for text in ("", "xxx", "e30=", freeze({"a": 1}))] == [None] * 4


def test_what_is_not_wanted_any_more_is_seen_as_a_difference(place: Any) -> None:
    with_variable = place("engine: {env: [{name: A, value: b}]}")
    without = place()
    fields = {**without, "metadata": {**without["metadata"], "annotations": {}}, "spec": {"template": {"spec": {
        "containers": [{"env": without["spec"]["template"]["spec"]["containers"][0]["env"]}]}}}}  # fmt: skip
    assert labels.SPEC_HASH in without["metadata"]["annotations"]
    assert TEMPLATE in without["metadata"]["annotations"]
    env = with_variable["spec"]["template"]["spec"]["containers"][0]["env"]
    assert fields["spec"]["template"]["spec"]["containers"][0]["env"] != env
    assert any("spec-hash" in line for line in differences(without, with_variable))


def test_the_count_is_compared_but_not_part_of_the_digest(service: Any, pools: Any, variant: Any, uid: str) -> None:
    two, three, none = (render(service(), uid, {variant("prefill"): count}, pools("h100-80gb"))[0] for count in (2, 3, None))
    assert differences(three, two) == ("spec.replicas: wanted 3, found 2",)
    assert differences(none, two) == ()
    assert "replicas" not in none["spec"]
