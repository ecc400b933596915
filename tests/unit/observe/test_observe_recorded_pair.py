"""The measured table of a real vLLM pair, out of its pages."""

from __future__ import annotations

import pytest
from tests.unit.observe.builders import observe_ring, replay, ring_of, scope, value
from tests.unit.observe.recordings import frames, older_generation

from equipoise.observe.starvation import Bottleneck, decode_starves_prefill
from equipoise.observe.types import Known, Unknown, UnknownReason

# Load; mean TTFT of prefill and of decode pod, queue and prefill time on prefill, TPOT: as the recordings' notes state them.
MEASURED = [
    ("low", 0.2039, 0.0412, 0.00003, 0.193, 0.01130),
    ("overdecode", 1.2307, 3.6476, 0.626, 0.485, 0.01884),
    ("overprefill", 4.5105, 0.0846, 3.759, 0.584, 0.02242),
    ("overdecodelong", 17.6996, 2.6214, 15.763, 1.524, 0.01999),
    ("overdecodelong2", 14.8802, 3.5714, 13.393, 1.177, 0.01739),
]


@pytest.mark.parametrize(("load", "prefill_leg", "decode_leg", "queue", "compute", "tpot"), MEASURED)
def test_means_are_those_of_the_measured_table(
    load: str, prefill_leg: float, decode_leg: float, queue: float, compute: float, tpot: float
) -> None:
    seen = replay(load)
    assert value(seen.prefill.latency_mean_seconds) == pytest.approx(prefill_leg, rel=0.01)
    assert value(seen.ttft_decode_leg_mean_seconds) == pytest.approx(decode_leg, rel=0.01)
    assert value(seen.ttft_mean_seconds) == pytest.approx(prefill_leg + decode_leg, rel=0.01)
    assert value(seen.prefill.queue_mean_seconds) == pytest.approx(queue, rel=0.02, abs=1e-5)
    assert value(seen.decode.latency_mean_seconds) == pytest.approx(tpot, rel=0.01)
    variant = seen.prefill.per_variant["chat-prefill"]
    assert variant.compute_mean_seconds == pytest.approx(compute, rel=0.01)
    assert seen.decode.latency_source == "vllm:request_time_per_output_token_seconds"


@pytest.mark.parametrize(
    ("load", "bottleneck"),
    [
        ("low", Bottleneck.NONE),
        ("overprefill", Bottleneck.PREFILL),
        ("overdecode", Bottleneck.DECODE_STARVES_PREFILL),
        ("overdecodelong", Bottleneck.DECODE_STARVES_PREFILL),
        ("overdecodelong2", Bottleneck.DECODE_STARVES_PREFILL),
    ],
)
def test_a_decode_lag_is_told_from_a_prefill_lag(load: str, bottleneck: Bottleneck) -> None:
    verdict = decode_starves_prefill(replay(load))
    assert verdict.bottleneck is bottleneck, verdict.message
    assert verdict.exact


def test_the_naive_comparison_would_have_blamed_prefill() -> None:
    seen = replay("overdecodelong2")
    assert value(seen.prefill.latency_mean_seconds) > 3 * value(seen.ttft_decode_leg_mean_seconds)
    assert decode_starves_prefill(seen).decode_starves


def test_prompt_tokens_are_counted_once_and_none_was_computed_on_decode() -> None:
    seen = replay("overprefill")
    assert value(seen.prefill.tokens_per_second) * seen.window_seconds == pytest.approx(82_364, rel=0.01)
    assert value(seen.decode.recomputed_tokens_per_second) == 0.0
    assert value(seen.prefill.mean_tokens) == pytest.approx(1372.7, rel=0.01)
    assert value(seen.decode.mean_tokens) == pytest.approx(8.0)


def test_offered_requests_stay_while_nothing_is_finished() -> None:
    """In the first seconds of the prefill overload prompts queue up: completions alone would show a fraction of the demand."""
    start = frames("overprefill")
    held = [frame for frame in start if frame.seconds <= 3.2]
    # The counters are pinned to the start: what has arrived is then visible in the queue alone.
    frozen = [
        type(frame)(frame.seconds, _counters_of(held[0].prefill, frame.prefill), frame.decode, frame.router) for frame in held
    ]
    seen = observe_ring(ring_of(frozen), scope())
    assert value(seen.prefill.served_requests_per_second) == 0.0
    assert value(seen.prefill.requests_per_second) > 3.0
    assert value(seen.decode.requests_per_second) >= value(seen.prefill.requests_per_second)
    latency = seen.prefill.latency_mean_seconds
    assert isinstance(latency, Unknown)
    assert latency.reason is UnknownReason.TOO_FEW_SAMPLES
    assert "wait or run" in latency.message


@pytest.mark.parametrize("load", ["overprefill", "overdecodelong2"])
def test_an_older_vllm_gives_the_same_signals_under_its_own_names(load: str) -> None:
    old = [
        type(frame)(frame.seconds, older_generation(frame.prefill), older_generation(frame.decode), "")
        for frame in frames(load, 2)
    ]
    then, now = observe_ring(ring_of(old), scope()), replay(load)
    assert value(then.prefill.tokens_per_second) == pytest.approx(value(now.prefill.tokens_per_second))
    assert value(then.prefill.kv_usage_share) == value(now.prefill.kv_usage_share)
    assert value(then.decode.latency_mean_seconds) == pytest.approx(value(now.decode.latency_mean_seconds), rel=0.05)
    assert then.decode.latency_source == "vllm:inter_token_latency_seconds"
    refused = then.prefill.refused_requests_per_second
    assert isinstance(refused, Unknown)
    assert refused.reason is UnknownReason.NOT_EXPOSED
    verdict = decode_starves_prefill(then)
    assert not verdict.exact
    assert verdict.bottleneck is decode_starves_prefill(now).bottleneck


def test_every_signal_of_a_running_pair_is_known() -> None:
    seen = replay("overdecode")
    for phase in (seen.prefill, seen.decode):
        unknown = {
            name: signal.message
            for name in type(phase).__dataclass_fields__
            if isinstance(signal := getattr(phase, name), Unknown)
        }
        assert set(unknown) == ({"recomputed_tokens_per_second"} if phase is seen.prefill else {"prefix_hit_share"})
    assert isinstance(seen.decode.latency_percentile_bucket_seconds, Known)
    assert seen.decode.latency_percentile_bucket_seconds.value == pytest.approx(0.025)


def _counters_of(start: str, page: str) -> str:
    """The page with its counters as they were at the start, its gauges as they are."""
    gauges = {line.split(" ")[2] for line in page.splitlines() if line.startswith("# TYPE") and line.endswith(" gauge")}
    first = dict(line.rsplit(" ", 1) for line in start.splitlines() if line and line[0] != "#")
    lines = []
    for line in page.splitlines():
        if line and line[0] != "#" and line.partition("{")[0] not in gauges:
            key = line.rsplit(" ", 1)[0]
            line = f"{key} {first[key]}"
        lines.append(line)
    return "\n".join(lines) + "\n"
