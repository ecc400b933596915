from __future__ import annotations

from dataclasses import replace

from tests.unit.observe.builders import KEY

from equipoise.api.identity import Phase
from equipoise.observe.starvation import Bottleneck, decode_starves_prefill
from equipoise.observe.types import Known, PhaseObservation, ServiceObservation, Unknown, UnknownReason

FAILED = Unknown(UnknownReason.QUERY_FAILED, "connection refused")


def seen(
    kv: float = 0.1,
    peak: float = 0.2,
    queued: float = 0.0,
    capacity: float = 0.0,
    waiting: float | None = None,
    running: float = 5.0,
) -> ServiceObservation:
    prefill = PhaseObservation(
        kv_usage_share=Known(kv), kv_usage_share_peak=Known(peak), waiting_requests=Known(queued), pods_ready=2
    )
    decode = PhaseObservation(
        waiting_for_capacity_requests=Known(capacity),
        waiting_requests=Known(capacity if waiting is None else waiting),
        running_requests=Known(running),
        pods_ready=2,
    )
    return ServiceObservation(KEY, 0.0, 60.0, prefill, decode)


def test_a_full_prefill_cache_alone_proves_nothing() -> None:
    verdict = decode_starves_prefill(seen(kv=0.9, peak=0.99, queued=20.0))
    assert verdict.bottleneck is Bottleneck.PREFILL
    assert verdict.charged_phase is Phase.PREFILL


def test_requests_that_wait_for_a_slow_transfer_are_no_lack_of_room() -> None:
    verdict = decode_starves_prefill(seen(kv=0.9, peak=0.99, capacity=0.0, waiting=8.0))
    assert verdict.bottleneck is Bottleneck.NONE


def test_decode_may_be_short_without_holding_prefill_up() -> None:
    verdict = decode_starves_prefill(seen(kv=0.1, peak=0.3, capacity=4.0))
    assert verdict.bottleneck is Bottleneck.DECODE
    assert verdict.charged_phase is Phase.DECODE
    assert verdict.decode_capacity_wait_share == 4.0 / 9.0


def test_a_moments_wait_in_a_large_pool_is_no_lag() -> None:
    assert decode_starves_prefill(seen(kv=0.5, peak=0.9, capacity=0.4)).bottleneck is Bottleneck.NONE
    assert decode_starves_prefill(seen(kv=0.5, peak=0.9, capacity=4.0, running=400.0)).bottleneck is Bottleneck.NONE


def test_prefill_without_kv_figures_still_leaves_decode_short() -> None:
    observation = seen(capacity=4.0, queued=9.0)
    observation = replace(observation, prefill=replace(observation.prefill, kv_usage_share=FAILED))
    verdict = decode_starves_prefill(observation)
    assert verdict.bottleneck is Bottleneck.DECODE
    assert verdict.prefill_kv_share is None


def test_an_unknown_decode_queue_leaves_the_verdict_open() -> None:
    observation = seen(kv=0.9, peak=0.9, queued=30.0)
    observation = replace(observation, decode=replace(observation.decode, waiting_for_capacity_requests=FAILED))
    verdict = decode_starves_prefill(observation)
    assert verdict.bottleneck is Bottleneck.UNKNOWN
    assert verdict.charged_phase is None
    assert "connection refused" in verdict.message


def test_an_engine_that_does_not_say_why_is_judged_by_all_that_waits() -> None:
    observation = seen(kv=0.5, peak=0.9, waiting=6.0)
    absent = Unknown(UnknownReason.NOT_EXPOSED, "no such metric")
    observation = replace(observation, decode=replace(observation.decode, waiting_for_capacity_requests=absent))
    verdict = decode_starves_prefill(observation)
    assert verdict.bottleneck is Bottleneck.DECODE_STARVES_PREFILL
    assert not verdict.exact


def test_a_single_prompt_in_line_on_many_pods_is_no_prefill_lag() -> None:
    assert decode_starves_prefill(seen(queued=1.0)).bottleneck is Bottleneck.NONE
    assert decode_starves_prefill(seen(queued=2.0)).bottleneck is Bottleneck.PREFILL


def test_unknown_prefill_queue_leaves_the_verdict_open_when_decode_has_room() -> None:
    observation = seen()
    observation = replace(observation, prefill=replace(observation.prefill, waiting_requests=FAILED))
    assert decode_starves_prefill(observation).bottleneck is Bottleneck.UNKNOWN
