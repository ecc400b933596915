"""What people read, which pods go first, and what memory keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.decide.world import Setting, observation

from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.decide import reasons
from equipoise.decide.donors import PodView, choose_pods
from equipoise.decide.explain import allocation_text, describe_move, event_message, explain, headline
from equipoise.decide.memory import PhaseMemory, ServiceMemory, parse_variant_key, variant_key
from equipoise.decide.types import Move, MoveKind

P, D = Phase.PREFILL, Phase.DECODE
KEY = ServiceKey("prod", "chat")
VARIANT = Variant(KEY, P, "h100-80gb", Shape(2))
FULL = {(P, "h100"): 4, (D, "h100"): 4}


def test_a_move_is_told_with_its_numbers() -> None:
    decision = Setting(ready=FULL, seen=observation(KEY, rate=16.0, output=343.75)).decide()
    text = explain(decision)
    assert headline(decision) == "prod/chat: flip 2 from prefill to decode on h100/tp1-bf16"
    for part in (
        "prefill: demand 16,000 tokens/s",
        "decode: demand 5,500 tokens/s",
        "why:",
        "Flipped",
        "8 GPUs, 16.00 USD per hour",
    ):
        assert part in text
    assert event_message(decision).startswith(headline(decision))


def test_a_hold_says_why() -> None:
    decision = Setting(ready=FULL, seen=observation(KEY, rate=30.0, output=100.0)).decide()
    assert "hold" in headline(decision)
    assert decision.reasons[-1].message in headline(decision)


def test_unknown_is_told_as_unknown() -> None:
    decision = Setting(ready=FULL).decide()
    assert "demand unknown" in explain(decision)
    assert "no observation" in explain(decision)


def test_a_handover_between_services_names_the_giver() -> None:
    other = replace(VARIANT, service=ServiceKey("prod", "code"))
    move = Move(MoveKind.HANDOVER, other, VARIANT, 1, 2)
    assert describe_move(move) == "hand over 2 from prod/code:prefill@h100-80gb/tp2-bf16 for 1 of prefill on h100-80gb/tp2-bf16"
    assert describe_move(replace(move, donor=VARIANT.with_phase(D))).startswith("hand over 2 from decode on h100-80gb")


def test_an_event_fits_into_an_event() -> None:
    decision = Setting(ready=FULL, seen=observation(KEY, rate=16.0, output=343.75)).decide()
    long = replace(decision, moves=tuple(replace(decision.moves[0], reason=f"{index} " + "x" * 400) for index in range(5)))
    assert len(event_message(long)) == 1000


def test_allocation_in_words() -> None:
    assert allocation_text({VARIANT: 3}) == "prefill 3 × h100-80gb/tp2-bf16, decode none"


def test_reason_names_are_camel_case_and_each_is_documented(request: pytest.FixtureRequest) -> None:
    names = {value for name, value in vars(reasons).items() if name.isupper()}
    text = (request.config.rootpath / "docs" / "reference" / "reasons.md").read_text(encoding="utf-8")
    for name in names:
        assert name[0].isupper()
        assert name.isalnum()
        assert f"`{name}`" in text, f"{name} is missing in docs/reference/reasons.md"


def test_pods_that_cost_least_go_first() -> None:
    pods = [
        PodView("old-busy", created_seconds=1.0, work=9.0),
        PodView("young-busy", created_seconds=5.0, work=9.0),
        PodView("idle", created_seconds=1.0, work=0.0),
        PodView("unknown", created_seconds=9.0),
        PodView("not-ready", ready=False),
        PodView("pending", ready=False, bound=False),
        PodView("leaving", draining=True, work=50.0),
    ]
    order = [pod.name for pod in choose_pods(reversed(pods), 9)]
    assert order == ["leaving", "pending", "not-ready", "idle", "young-busy", "old-busy", "unknown"]
    assert [pod.name for pod in choose_pods(pods, 2)] == ["leaving", "pending"]
    assert choose_pods(pods, -1) == []


def test_pods_on_the_nodes_that_a_wide_receiver_needs_go_first() -> None:
    pods = [PodView("a", node="n1", work=0.0), PodView("b", node="n2", work=5.0)]
    assert [pod.name for pod in choose_pods(pods, 1, ("n2",))] == ["b"]


def test_variant_keys_survive_and_rubbish_is_dropped() -> None:
    assert parse_variant_key(KEY, variant_key(VARIANT)) == VARIANT
    for text in ("", "prefill", "prefill@h100", "nonsense@h100/tp1-bf16", "prefill@h100/tpx"):
        assert parse_variant_key(KEY, text) is None


def test_memory_reads_whatever_it_is_given() -> None:
    memory = ServiceMemory({variant_key(VARIANT): 2}, 1.0, 2.0, 3.0, {P: PhaseMemory(1.2, 1, 5.0, 2, 7.0)}, {"x": 1.5})
    assert ServiceMemory.from_dict(memory.to_dict()) == memory
    counts = {"a": -1, "b": True, "c": 2.5, "d": 3}
    broken = {"allocation": counts, "phases": {"prefill": "?", "other": {}}, "extra": {"y": float("nan")}}
    assert ServiceMemory.from_dict(broken) == ServiceMemory(allocation={"d": 3}, phases={P: PhaseMemory()})
    assert ServiceMemory.from_dict(None) == ServiceMemory()
