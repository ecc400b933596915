"""Calibration finds the speed of engines that are slower or faster than the table, and nothing where there is nothing to find."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

import pytest

from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.decide.calibration import KEPT_SAMPLES, Calibrated, Window, calibrate_variants, sample_of
from equipoise.decide.memory import ServiceMemory, VariantMemory, variant_key
from equipoise.decide.types import VariantStatus
from equipoise.observe.types import VariantObservation
from equipoise.perf.calibrate import calibrated_times
from equipoise.perf.types import StepTimes, Workload
from equipoise.simulate.engine.cluster import Cluster
from equipoise.simulate.engine.request import Request
from equipoise.simulate.engine.types import ReplicaSpec

TIMES = StepTimes(0.003, 2e-5, 6e-10, 0.007, 1e-5, 4e-8, "test")
CHAT = Workload(1000.0, 200.0)
KV_TOKENS = 400_000
VARIANTS = {phase: Variant(ServiceKey("prod", "chat"), phase, "h100", Shape()) for phase in Phase}


def slowed(factor: float) -> StepTimes:
    return calibrated_times(calibrated_times(TIMES, Phase.PREFILL, factor), Phase.DECODE, factor)


def observed(factor: float, rates: tuple[float, ...], seconds: float = 60.0) -> dict[Phase, list[VariantObservation]]:
    """A pair of simulated engines of that speed, window after window at these request rates."""
    cluster, chance, now, index = Cluster(), random.Random(5), 0.0, 0
    for phase in Phase:
        cluster.add(phase.value, ReplicaSpec(slowed(factor), KV_TOKENS, 1024, "a"), phase, 0.0)
    found: dict[Phase, list[VariantObservation]] = {phase: [] for phase in Phase}
    for rate in rates:
        end, look, requests = now + seconds, now, []
        usage: list[float] = []
        running: list[float] = []
        while now < end:
            now += chance.expovariate(rate)
            while look < min(now, end):
                cluster.advance_to(look)
                cluster.sync(look)
                decode = cluster.replicas["decode"]
                usage.append(decode.kv_usage())
                running.append(decode.running_requests())
                look += 0.25
            cluster.advance_to(now)
            lengths = [max(1, round(chance.expovariate(1 / mean))) for mean in (1000, 200)]
            requests.append(Request(index, now, lengths[0], 1 + lengths[1]))
            cluster.submit(requests[-1], now)
            index += 1
        done = [one for one in requests if 0.0 <= one.prefill_end <= end]
        answered = [pace for one in requests if 0.0 <= one.finish <= end and (pace := one.tpot_seconds) is not None]
        found[Phase.PREFILL].append(
            VariantObservation(
                pods=1, requests_per_second=len(done) / seconds, latency_samples=len(done),
                tokens_per_second=sum(one.prompt_tokens for one in done) / seconds,
                queue_mean_seconds=fmean(one.prefill_scheduled - one.prefill_queued for one in done),
                compute_mean_seconds=fmean(one.prefill_end - one.prefill_scheduled for one in done),
            )
        )  # fmt: skip
        found[Phase.DECODE].append(
            VariantObservation(
                pods=1, latency_mean_seconds=fmean(answered), latency_samples=len(answered),
                running_requests=fmean(running), kv_usage_share=fmean(usage),
            )
        )  # fmt: skip
    return found


def window(phase: Phase, seen: VariantObservation | None, **changes: object) -> Window:
    status = VariantStatus(VARIANTS[phase], desired=1, ready=1, name="d")
    given = Window(status, seen, TIMES, KV_TOKENS)
    return replace(given, **changes)  # type: ignore[arg-type]


def run(
    phase: Phase,
    seen: list[VariantObservation],
    memory: dict[str, VariantMemory] | None = None,
    engine: str = "v1-a",
    change: Callable[[Window], Window] = lambda one: one,
    start: float = 10_000.0,
) -> Calibrated:
    """Rounds of a minute, one window each, after long enough without a change."""
    found = calibrate_variants(
        [change(window(phase, None))],
        memory or {},
        engine,
        CHAT,
        at_seconds=start - 600,
        window_seconds=60,
        now_seconds=start - 600,
    )
    for index, one in enumerate(seen):
        at = start + 60.0 * index
        found = calibrate_variants(
            [change(window(phase, one))], found.memory, engine, CHAT, at_seconds=at, window_seconds=60, now_seconds=at
        )
    return found


def speed(found: Calibrated, phase: Phase) -> float:
    one = found.speeds.get(VARIANTS[phase])
    return 1.0 if one is None else one.factor


@pytest.fixture(scope="module", params=[0.7, 1.3])
def engines(request: pytest.FixtureRequest) -> tuple[float, dict[Phase, list[VariantObservation]]]:
    return request.param, observed(request.param, (4.0, 10.0, 6.0, 12.0, 5.0, 14.0, 8.0, 11.0, 7.0, 9.0))


@pytest.mark.parametrize("phase", Phase)
def test_the_speed_of_simulated_engines_is_found(
    engines: tuple[float, dict[Phase, list[VariantObservation]]], phase: Phase
) -> None:
    factor, seen = engines
    found = run(phase, seen[phase])
    assert speed(found, phase) == pytest.approx(factor, rel=0.08)
    assert "measured" in found.speeds[VARIANTS[phase]].message


def test_busy_prefill_steps_are_not_mistaken_for_a_slow_engine() -> None:
    """At 60 % busy a step holds other prompts too: engines then report far more than a prompt's own time."""
    seen = observed(1.0, (24.0,) * 9)[Phase.PREFILL]
    own = TIMES.prefill_seconds(1000.0, 2e6)
    assert fmean(one.compute_mean_seconds or 0.0 for one in seen) > 1.5 * own
    assert speed(run(Phase.PREFILL, seen), Phase.PREFILL) == pytest.approx(1.0, abs=0.12)


def steady(step: float, usage: float = 0.2) -> list[VariantObservation]:
    return [
        VariantObservation(
            pods=1, latency_mean_seconds=step, latency_samples=500, running_requests=60, kv_usage_share=usage + 0.002 * index
        )
        for index in range(12)
    ]


def test_a_speed_never_leaves_the_bounds_and_says_so() -> None:
    slow, fast = run(Phase.DECODE, steady(10.0)), run(Phase.DECODE, steady(1e-4))
    assert speed(slow, Phase.DECODE) == 0.5
    assert speed(fast, Phase.DECODE) == 2.0
    assert "outside 0.5 to 2" in slow.speeds[VARIANTS[Phase.DECODE]].message


def test_small_differences_are_left_alone() -> None:
    expected = TIMES.decode_step_seconds(84_000 / 1200, 84_000)
    assert speed(run(Phase.DECODE, steady(expected * 1.03)), Phase.DECODE) == 1.0
    assert speed(run(Phase.DECODE, steady(expected * 1.25)), Phase.DECODE) == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(
    "change",
    [
        lambda one: replace(one, settling=True),
        lambda one: replace(one, status=replace(one.status, starting=1)),
        lambda one: replace(one, status=replace(one.status, draining=1)),
        lambda one: replace(one, status=replace(one.status, ready=2)),  # one of two pods is not scraped
        lambda one: one if one.seen is None else replace(one, seen=replace(one.seen, latency_samples=5.0)),
        lambda one: one if one.seen is None else replace(one, seen=replace(one.seen, running_requests=1.0)),
        lambda one: one if one.seen is None else replace(one, seen=replace(one.seen, kv_usage_share=float("nan"))),
    ],
    ids=["settling", "starting", "draining", "unscraped", "few", "idle", "nan"],
)
def test_what_is_no_steady_state_is_left_out(change: Callable[[Window], Window]) -> None:
    found = run(Phase.DECODE, steady(0.05), change=change)
    assert not found.speeds
    assert not any(entry.samples for entry in found.memory.values())


def test_a_change_of_replicas_begins_a_new_warm_up() -> None:
    counts = iter([1, *(2 + index // 2 for index in range(12))])
    found = run(
        Phase.DECODE, steady(0.05),
        change=lambda one: replace(
            one, status=replace(one.status, ready=(count := next(counts))),
            seen=None if one.seen is None else replace(one.seen, pods=count),
        ),
    )  # fmt: skip
    assert len(found.memory[variant_key(VARIANTS[Phase.DECODE])].samples) == 0


def test_full_prefill_steps_are_left_out() -> None:
    seen = VariantObservation(
        pods=1,
        requests_per_second=30,
        tokens_per_second=30_000,
        latency_samples=900,
        queue_mean_seconds=0.3,
        compute_mean_seconds=0.2,
    )
    assert sample_of(window(Phase.PREFILL, seen), CHAT) is None
    assert sample_of(window(Phase.PREFILL, replace(seen, queue_mean_seconds=0.05)), CHAT) == pytest.approx((1000.0, 0.05))


def test_another_engine_or_shape_begins_anew_and_the_same_one_is_remembered() -> None:
    found = run(Phase.DECODE, steady(0.02))
    known = dict(found.memory)
    assert speed(found, Phase.DECODE) != 1.0

    def next_round(engine: str, one: Window, seconds: float) -> Calibrated:
        return calibrate_variants([one], known, engine, CHAT, at_seconds=seconds, window_seconds=60, now_seconds=seconds)

    same = next_round("v1-a", window(Phase.DECODE, None), 12_000)
    assert speed(same, Phase.DECODE) == speed(found, Phase.DECODE)
    other = next_round("v1-b", window(Phase.DECODE, None), 12_000)
    assert not other.speeds
    assert not any(entry.samples for entry in other.memory.values())
    wide = Variant(ServiceKey("prod", "chat"), Phase.DECODE, "h100", Shape(2))
    assert not next_round("v1-a", Window(VariantStatus(wide, ready=1, name="w"), None, TIMES, KV_TOKENS), 12_000).speeds
    # What is gone for long is not carried for ever.
    assert variant_key(VARIANTS[Phase.DECODE]) not in next_round("v1-a", window(Phase.PREFILL, None), 12_000 + 7 * 3600).memory


def test_memory_is_small_and_survives_the_api_server() -> None:
    found = run(Phase.DECODE, steady(0.02) * 4)
    memory = ServiceMemory(variants=found.memory)
    entry = found.memory[variant_key(VARIANTS[Phase.DECODE])]
    assert len(entry.samples) == KEPT_SAMPLES
    assert len(str(memory.to_dict())) < 700
    assert ServiceMemory.from_dict(memory.to_dict()) == memory
    for wrong in (None, 3, {"a": 1}, {"a": {"engine": 1}}, {"a": {"engine": "e", "speed": 1e9}}):
        assert ServiceMemory.from_dict({"variants": wrong}).variants == {}
    assert ServiceMemory.from_dict({"variants": {"a": {"engine": "e", "samples": [[1], "x", [1, 2, 3]]}}}).variants[
        "a"
    ].samples == ((1.0, 2.0, 3.0),)
