"""Counts that somebody else owns, changed towards the other phase: running replicas flip where they can."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.decide.world import Setting, pool, service

from equipoise.api.identity import Phase
from equipoise.decide.types import Decision, Move, MoveKind, PhasePolicy, Scaling

P, D = Phase.PREFILL, Phase.DECODE


def fixed(prefill: int, decode: int, **changes: Any) -> Setting:
    """Two prefill and two decode replicas that fill a pool, set to other counts."""
    phases = {phase: PhasePolicy(minimum=n, scaling=Scaling.FIXED) for phase, n in ((P, prefill), (D, decode))}
    given = {"flip_supported": True, **changes.pop("service", {})}
    ready = {(P, "h100"): 2, (D, "h100"): 2}
    return Setting(pools=(pool("h100", gpus=4),), service=service(phases=phases, **given), ready=ready, **changes)


def kinds(decision: Decision) -> list[tuple[MoveKind, int]]:
    return [(move.kind, move.replicas) for move in decision.moves]


@pytest.mark.parametrize(("prefill", "decode"), [(1, 3), (3, 1)])
def test_an_edit_towards_the_other_phase_is_a_flip_even_on_a_full_pool(prefill: int, decode: int) -> None:
    setting = fixed(prefill, decode)
    decision = setting.decide()
    assert kinds(decision) == [(MoveKind.FLIP, 1)]
    assert decision.allocation == {setting.variant(P): prefill, setting.variant(D): decode}
    found: Move = decision.moves[0]
    assert (found.donor, found.receiver) == (setting.variant(P if prefill < 2 else D), setting.variant(D if prefill < 2 else P))


def test_external_counts_flip_too() -> None:
    setting = fixed(1, 1)
    phases = {
        P: PhasePolicy(scaling=Scaling.EXTERNAL, external_replicas=1),
        D: PhasePolicy(scaling=Scaling.EXTERNAL, external_replicas=3),
    }
    setting.service = replace(setting.service, phases=phases)
    assert kinds(setting.decide()) == [(MoveKind.FLIP, 1)]


def test_what_goes_beyond_the_flip_shrinks_or_grows() -> None:
    assert kinds(fixed(1, 2).decide()) == [(MoveKind.SHRINK, 1)]
    wider = fixed(1, 4)
    wider.pools = (pool("h100", gpus=8),)
    assert sorted(kinds(wider.decide())) == [(MoveKind.FLIP, 1), (MoveKind.GROW, 1)]


def test_only_ready_replicas_flip() -> None:
    starting = fixed(1, 3, status={(P, "h100"): {"ready": 0, "starting": 2}})
    assert MoveKind.FLIP not in {kind for kind, _ in kinds(starting.decide())}


def test_no_flip_where_it_is_not_supported() -> None:
    decision = fixed(1, 3, service={"flip_supported": False, "flip_reason": "the role is fixed"}).decide()
    assert kinds(decision) == [(MoveKind.SHRINK, 1)]
