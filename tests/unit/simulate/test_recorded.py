"""A recorded window as traffic: rates, lengths, gaps, idle times, and refusals that say what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import pytest
from typer.testing import CliRunner

from equipoise.api.identity import Phase, ServiceKey
from equipoise.cli.main import app
from equipoise.cli.simulate.recorded import recording_request
from equipoise.observe.types import (
    Idle,
    Known,
    PhaseObservation,
    ServiceObservation,
    Signal,
    Unknown,
    UnknownReason,
)
from equipoise.perf.types import Targets
from equipoise.simulate.traffic.recorded import Recording, recorded_traffic

KEY = ServiceKey("prod", "chat")
LONG, SHORT = Known(1000.0), Known(100.0)
STALE = Unknown(UnknownReason.STALE, "no sample for 50 s")


def window(
    rate: Signal, prompt: Signal = LONG, output: Signal = SHORT, hits: float = 0.0, attained: float = 1.0
) -> ServiceObservation:
    first = PhaseObservation(
        requests_per_second=rate, mean_tokens=prompt, prefix_hit_share=Known(hits), pods_sampled=3, attainment=Known(attained)
    )
    second = PhaseObservation(mean_tokens=output, attainment=Known(0.5), pods_sampled=5)
    return ServiceObservation(KEY, 0.0, 60.0, first, second, ttft_attainment=Known(attained))


def recording(*windows: ServiceObservation) -> Recording:
    return Recording(tuple(windows), 60.0)


def arrivals(found: Recording) -> Sequence[tuple[float, int, int]]:
    return [(a.at_seconds, a.prompt_tokens, a.output_tokens) for a in recorded_traffic(found).traffic.arrivals(3)]


def test_each_window_has_its_own_rate_and_lengths() -> None:
    requests = arrivals(recording(window(Known(20.0)), window(Known(5.0), Known(4000.0), Known(20.0))))
    early = [entry for entry in requests if entry[0] < 60.0]
    late = [entry for entry in requests if entry[0] >= 60.0]
    assert len(early) == pytest.approx(1200, rel=0.1)
    assert len(late) == pytest.approx(300, rel=0.2)
    assert fmean(entry[1] for entry in early) == pytest.approx(1000.0, rel=0.1)
    assert fmean(entry[1] for entry in late) == pytest.approx(4000.0, rel=0.2)
    assert fmean(entry[2] for entry in late) == pytest.approx(20.0, rel=0.2)
    assert max(entry[0] for entry in requests) < 120.0


def test_cached_prompt_tokens_are_left_out_and_said() -> None:
    found = recorded_traffic(recording(window(Known(20.0), hits=0.75)))
    assert fmean(a.prompt_tokens for a in found.traffic.arrivals(0)) == pytest.approx(250.0, rel=0.1)
    assert found.prompt_tokens == pytest.approx(1000.0)
    assert found.prefix_hit_share == pytest.approx(0.75)


def test_idle_is_no_traffic_and_unknown_is_no_idle() -> None:
    idle = window(Idle(), Idle(), Idle())
    unknown = window(STALE, STALE, STALE)
    found = recorded_traffic(recording(window(Known(10.0)), idle, window(Known(10.0)), unknown))
    counts = [0, 0, 0, 0]
    for arrival in found.traffic.arrivals(0):
        counts[int(arrival.at_seconds // 60)] += 1
    assert counts[1] == 0
    assert counts[3] == pytest.approx(600, rel=0.15)  # what was known last stands
    assert found.gaps == 1
    assert found.requests_per_second == pytest.approx(7.5)


def test_shares_are_means_over_requests() -> None:
    found = recorded_traffic(recording(window(Known(30.0), attained=1.0), window(Known(10.0), attained=0.6), window(Idle())))
    assert found.ttft_attainment == pytest.approx(0.9)
    assert found.tpot_attainment == pytest.approx(0.5)


def test_pods_are_those_of_the_first_window_that_saw_any() -> None:
    seen = window(Known(1.0))
    unseen = replace(seen, prefill=replace(seen.prefill, pods_sampled=0))
    assert recording(unseen, seen).replicas(Phase.PREFILL) == 3
    assert recording(unseen).replicas(Phase.PREFILL) == 0
    assert recording(unseen).replicas(Phase.DECODE) == 5


@pytest.mark.parametrize(
    ("windows", "text"),
    [
        ((), "holds no window"),
        ((window(Known(1.0)), window(STALE), window(STALE)), "unknown in 2 of 3 windows .Stale: no sample for 50 s"),
        ((window(Idle()), window(Idle())), "no requests in the recorded time"),
        ((window(Known(1.0), output=STALE),), "mean answer length was never known in 1 windows: Stale"),
    ],
)
def test_what_cannot_be_replayed_is_refused(windows: tuple[ServiceObservation, ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        recorded_traffic(recording(*windows))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"service": "chat"}, "--service 'chat' is not NAMESPACE/NAME"),
        ({"engine": "abacus"}, "--engine 'abacus' is none of sglang, vllm"),
        ({"step": "5s"}, "--step 5s is too short"),
        ({"since": "30s"}, "--since 30s and --step 1m"),
        ({"since": "yesterday"}, "--since: 'yesterday' is no duration"),
        ({"url": "prometheus:9090"}, "expected http"),
    ],
)
def test_options_that_make_no_sense_are_named(changes: dict[str, str], text: str) -> None:
    given = {"url": "http://prometheus:9090", "service": "prod/chat", "since": "1h", "step": "1m", "engine": "vllm", **changes}
    with pytest.raises(ValueError, match=text):
        recording_request(given["url"], given["service"], given["since"], given["step"], given["engine"], Targets(1.0, 0.05))


def test_a_recording_is_no_scenario_and_a_prometheus_that_is_not_there_is_said() -> None:
    both = CliRunner().invoke(app, ["simulate", "S1", "--from-prometheus", "http://127.0.0.1:1", "--service", "prod/chat"])
    assert both.exit_code == 2
    assert "one of a scenario" in both.output
    gone = CliRunner().invoke(app, ["simulate", "--from-prometheus", "http://127.0.0.1:1", "--service", "prod/chat"])
    assert gone.exit_code == 2
    assert "127.0.0.1:1 cannot be asked" in gone.output
