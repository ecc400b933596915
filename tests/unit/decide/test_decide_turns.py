"""Mixes that take turns: what the mix before needs is judged at its own lengths, confirmations are earned, cold phases wait."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.decide.world import Setting, observation, service

from equipoise.api.identity import Phase
from equipoise.decide.lag import estimate_lags
from equipoise.decide.memory import PhaseMemory, ServiceMemory
from equipoise.decide.settings import Settings
from equipoise.decide.trim import adjust_trim
from equipoise.decide.types import Decision
from equipoise.decide.worth import Regimes, note_shift, regimes, served_share
from equipoise.observe.types import Known

P, D = Phase.PREFILL, Phase.DECODE
SETTINGS = Settings()


def test_a_returning_demand_counts_in_replicas_of_its_own_lengths() -> None:
    past = Regimes(previous={D: 27_000.0}, previous_rates={D: 9_000.0})
    assert past.returning(D, 2_250.0) == pytest.approx(6_750.0)  # three replicas then are three replicas now
    assert past.returning(P, 2_250.0) is None
    assert Regimes(previous={D: 27_000.0}).returning(D, 2_250.0) == 27_000.0  # its lengths were not remembered


def test_a_shift_remembers_the_speeds_before_it() -> None:
    before = {"rate.prefill": 40_000.0, "rate.decode": 9_000.0}
    memory = note_shift(before, 500.0, {P: 150_000.0, D: 27_000.0}, {P: 290_000.0, D: 2_000.0})
    assert memory["shift.decode.rate"] == 9_000.0
    assert regimes(memory, 600.0, 15.0, SETTINGS).previous_rates == {P: 40_000.0, D: 9_000.0}


@pytest.mark.parametrize(
    ("load", "utilisation", "share"),
    [
        (1.0, 0.25, 1.0),  # capacity at the percentile is a quarter of the peak: far from the peak
        (3.0, 0.25, 1.0),
        (4.0, 0.25, 0.87),  # at the peak
        (8.0, 0.25, 0.435),
        (1.0, 0.9, 1.0),
        (2.0, 1.0, 0.435),
    ],
)
def test_a_bounded_prefill_queue_serves_by_its_peak(load: float, utilisation: float, share: float) -> None:
    assert served_share({P: load}, {P: utilisation}) == pytest.approx(share)


def test_a_prefill_phase_never_serves_more_at_a_higher_load() -> None:
    shares = [served_share({P: step / 20.0}, {P: 0.6}) for step in range(100)]
    assert shares == sorted(shares, reverse=True)


def test_refused_requests_have_missed_their_target() -> None:
    setting = Setting()
    seen = observation(
        setting.service.key, prefill={"refused_requests_per_second": Known(2.0), "requests_per_second": Known(10.0)}
    )
    found = estimate_lags(seen, setting.service.targets, {P: 0.95, D: 0.95}, decode_starves=False)
    assert found[P].attainment == pytest.approx(0.99 * 0.8)
    assert found[P].lagging
    assert not found[D].lagging


def test_a_hardly_used_phase_gets_no_floor() -> None:
    seen = estimate_lags(
        observation(Setting().service.key, decode={"attainment": Known(0.5)}),
        Setting().service.targets,
        {P: 0.95, D: 0.95},
        False,
    )[D]
    memory = PhaseMemory(short_rounds=3)
    little = adjust_trim(memory, seen, 0.2, False, 0.95, 2000.0, 15.0, SETTINGS)
    much = adjust_trim(memory, seen, 0.8, False, 0.95, 2000.0, 15.0, SETTINGS)
    assert little.memory.trim == 1.0
    assert much.memory.trim > 1.0


def shrinking(direction: float, flips: bool, seconds_ago: float = 400.0) -> Decision:
    """Decode needs one of its three replicas, and has for long; the mix before needed two."""
    extra = {
        "shift.at": 10_000.0 - seconds_ago,
        "shift.direction": direction,
        "shift.mean": 900.0,
        "shift.decode": 1_700.0,
        "shift.prefill": 9_000.0,
        "shift.decode.rate": 1_000.0,
        "shift.prefill.rate": 10_000.0,
        "decode.peak": 600.0,
    }
    memory = ServiceMemory(phases={D: PhaseMemory(low_since_seconds=9_000.0)}, extra=extra)
    given = service(flip_supported=flips)
    setting = Setting(
        service=given,
        ready={(P, "h100"): 2, (D, "h100"): 3},
        seen=observation(given.key, rate=3.0, prompt=3_000.0, output=200.0, at=10_000.0),
        memory=memory,
        now=10_000.0,
    )
    return setting.decide()


@pytest.mark.parametrize(
    ("direction", "flips", "seconds_ago", "kept"),
    [
        (1.0, False, 400.0, 2),  # the mix turned: what it needed before stays
        (1.0, True, 400.0, 1),  # a flip would bring it back in a second
        (2.0, False, 400.0, 1),  # only the volume changed
        (1.0, False, 2_000.0, 1),  # twice the usual time has passed
    ],
)
def test_a_cold_phase_keeps_what_the_mix_before_needed(direction: float, flips: bool, seconds_ago: float, kept: int) -> None:
    decision = shrinking(direction, flips, seconds_ago)
    assert sum(count for variant, count in decision.allocation.items() if variant.phase is D) == kept


def test_what_was_not_worth_it_is_not_confirmed() -> None:
    """A glimpse of a shift must not act on confirmations from rounds in which the move was not worth it."""
    given = service(flip_supported=False)
    # Demands take turns every 60 s, a start takes 60 s: no move can pay.
    extra = {
        "shift.at": 995.0, "shift.direction": 1.0, "shift.mean": 60.0, "shift.prefill": 18_000.0, "shift.decode": 4_000.0,
        "shift.prefill.rate": 10_000.0, "shift.decode.rate": 1_000.0,
    }  # fmt: skip
    memory = ServiceMemory(phases={P: PhaseMemory(pressed_rounds=5)}, extra=extra)
    setting = Setting(
        service=given,
        ready={(P, "h100"): 4, (D, "h100"): 4},
        seen=observation(given.key, rate=50.0, prompt=1_000.0, output=40.0),
        memory=memory,
    )
    decision = setting.decide()
    assert any(reason.name == "NotWorthIt" for reason in decision.reasons)
    assert decision.memory.phases[P].pressed_rounds == 0
    again = replace(setting, memory=decision.memory).decide()
    assert dict(again.allocation) == dict(decision.allocation)


@pytest.mark.parametrize(("level_before", "kept"), [(600.0, 1), (100.0, 3)])
def test_a_phase_gives_nothing_back_while_its_demand_rises(level_before: float, kept: int) -> None:
    """600 tokens/s need one replica of three: the two others go, unless the demand has just stepped up to it from 100."""
    given = service(flip_supported=False)
    extra = {"decode.peak": 600.0, "decode.demand.level": level_before, "decode.demand.at": 9_985.0}
    setting = Setting(
        service=given,
        ready={(P, "h100"): 2, (D, "h100"): 3},
        seen=observation(given.key, rate=3.0, prompt=3_000.0, output=200.0, at=10_000.0),
        memory=ServiceMemory(phases={D: PhaseMemory(low_since_seconds=9_000.0)}, extra=extra),
        now=10_000.0,
    )
    decision = setting.decide()
    assert sum(count for variant, count in decision.allocation.items() if variant.phase is D) == kept


@pytest.mark.parametrize(("level_before", "moves"), [(90_000.0, True), (10_000.0, False)])
def test_a_donor_past_its_capacity_gives_nothing_while_its_demand_rises(level_before: float, moves: bool) -> None:
    """Both phases are short, decode more so. What prefill needs is not seen yet when its demand has just stepped up."""
    given = service(flip_supported=False)
    extra = {"prefill.demand.level": level_before, "prefill.demand.at": 985.0}
    setting = Setting(
        service=given,
        ready={(P, "h100"): 6, (D, "h100"): 2},
        seen=observation(given.key, rate=60.0, prompt=1_500.0, output=200.0),
        memory=ServiceMemory(phases={D: PhaseMemory(pressed_rounds=9)}, extra=extra),
    )
    decision = setting.decide()
    given_away = 6 - sum(count for variant, count in decision.allocation.items() if variant.phase is P)
    assert (given_away > 0) is moves, decision.reasons
