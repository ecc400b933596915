"""Clients' figures: what is counted when, and what is unknown rather than zero."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from equipoise.api.identity import ServiceKey
from equipoise.emulate.ledger import Ledger, quantile
from equipoise.emulate.options import parse_options
from equipoise.emulate.records import Records
from equipoise.emulate.targets import targets_of
from equipoise.perf.types import Targets
from equipoise.simulate.engine.request import Request
from equipoise.simulate.engine.types import Outcome


def request(number: int, arrival: float, first: float = -1.0, finish: float = -1.0, tokens: int = 11) -> Request:
    made = Request(number, arrival, 100, tokens)
    made.first_token, made.finish = first, finish
    return made


def ended(one: Request, outcome: Outcome, at: float, cause: str = "") -> Request:
    one.outcome, one.ended_at, one.cause = outcome, at, cause
    return one


def test_met_targets_count_where_they_happen() -> None:
    ledger = Ledger(Targets(0.5, 0.05))
    one = request(0, 1.0, first=1.2, finish=1.6)
    ledger.arrived(one, 1.0)
    ledger.look(1.3)
    ledger.ended(ended(one, Outcome.FINISHED, 1.6), 1.6)
    window = ledger.window(5.0, 5)
    assert (window["ttft_attainment"], window["tpot_attainment"], window["goodput"]) == (1.0, 1.0, 1.0)
    assert window["ttft_seconds"]["mean"] == pytest.approx(0.2)
    assert window["tpot_seconds"]["p95"] == pytest.approx(0.04)
    assert ledger.totals == {"offered": 1, "completed": 1, "refused": 0, "lost": 0, "aborted": 0, "good": 1, "bad": 0}


def test_a_missed_ttft_counts_as_soon_as_the_target_has_passed_and_only_once() -> None:
    ledger = Ledger(Targets(0.5, 0.05))
    one = request(0, 1.0)
    ledger.arrived(one, 1.0)
    ledger.look(1.4)
    assert ledger.totals["bad"] == 0
    ledger.look(1.6)
    assert ledger.totals["bad"] == 1
    assert ledger.window(3.0, 5)["ttft_attainment"] == 0.0
    assert ledger.window(3.0, 5)["ttft_seconds"]["mean"] is None  # the latency itself is not known yet
    assert ledger.oldest_wait_seconds(3.0) == 2.0
    one.first_token, one.finish = 3.0, 3.4
    ledger.look(3.1)
    ledger.ended(ended(one, Outcome.FINISHED, 3.4), 3.4)
    window = ledger.window(6.0, 5)
    assert window["ttft_seconds"]["count"] == 1
    assert (ledger.totals["good"], ledger.totals["bad"]) == (0, 1)
    assert ledger.waiting_for_first_token == 0


@pytest.mark.parametrize(
    ("outcome", "name"), [(Outcome.REFUSED, "refused"), (Outcome.LOST, "lost"), (Outcome.ABORTED, "aborted")]
)
def test_requests_that_fail_count_against_goodput_with_their_cause(outcome: Outcome, name: str) -> None:
    ledger = Ledger(Targets(0.5, 0.05))
    one = request(0, 1.0)
    ledger.arrived(one, 1.0)
    ledger.ended(ended(one, outcome, 1.1, "because"), 1.1)
    assert ledger.totals[name] == ledger.totals["bad"] == 1
    assert ledger.causes == {"because": 1}
    assert ledger.window(3.0, 5)["goodput"] == 0.0
    assert ledger.window(3.0, 5)[name] == 1


def test_nothing_is_not_zero() -> None:
    window = Ledger(Targets(0.5, 0.05)).window(10.0, 5)
    assert window["goodput"] is None
    assert window["ttft_seconds"] == {"count": 0, "mean": None, "p50": None, "p90": None, "p95": None, "p99": None}
    assert window["offered_requests_per_second"] == 0.0


def test_old_seconds_leave_the_windows() -> None:
    ledger = Ledger(Targets(0.5, 0.05))
    for number in range(100):
        one = request(number, float(number), first=number + 0.1, finish=number + 0.3)
        ledger.arrived(one, float(number))
        ledger.ended(ended(one, Outcome.FINISHED, number + 0.3), number + 0.3)
    assert ledger.window(100.0, 5)["completed"] == 5
    assert ledger.window(100.0, 60)["completed"] == 60
    assert ledger.window(105.0, 5)["completed"] == 0


def test_quantiles_are_values_that_occurred() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [quantile(values, share) for share in (0.5, 0.9, 0.95, 0.99, 1.0)] == [50.0, 90.0, 95.0, 99.0, 100.0]
    assert quantile([3.0], 0.5) == 3.0


def test_records_hold_every_request_and_every_second(tmp_path: Path) -> None:
    ledger, records, key = Ledger(Targets(0.5, 0.05)), Records(tmp_path), ServiceKey("prod", "chat")
    one = request(0, 1.0, first=1.2, finish=1.6)
    ledger.arrived(one, 1.0)
    ledger.ended(ended(one, Outcome.FINISHED, 1.6), 1.6)
    records.request(key, one)
    for second in ledger.seconds_between(0, 3):
        records.second(key, second, "chat")
    records.close()
    with (tmp_path / "requests.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["service"], row["outcome"], row["ttft_seconds"], row["tpot_seconds"]) for row in rows] == [
        ("prod/chat", "finished", "0.20000", "0.04000")
    ]
    lines = [json.loads(line) for line in (tmp_path / "seconds.jsonl").read_text().splitlines()]
    assert [(line["at_seconds"], line["offered"], line["good"], line["traffic"]) for line in lines] == [(1, 1, 1, "chat")]


def test_targets_come_from_the_options_then_the_service_then_the_default() -> None:
    assert targets_of(parse_options([]), None) == Targets(0.5, 0.05, 95.0)
    spec = {"ttft": "1s", "tpot": "30ms", "percentile": 99}
    assert targets_of(parse_options([]), spec) == Targets(1.0, 0.03, 99.0)
    assert targets_of(parse_options(["--ttft", "2s"]), spec) == Targets(2.0, 0.03, 99.0)


def test_options_name_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_options(["--traffic", "chat:10@x"])
    assert "KIND:DURATION@RATE" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parse_options(["--ttft", "soon"])
    assert "--ttft" in capsys.readouterr().err


def test_traffic_options_may_name_their_service() -> None:
    options = parse_options(["--traffic", "chat:10s@5", "--traffic", "prod/code==4096+28:10s@5"])
    assert set(options.traffic) == {None, ServiceKey("prod", "code")}
