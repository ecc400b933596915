"""The run on disk: one line per request, one per service and second."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict
from pathlib import Path
from typing import Final

from equipoise.api.identity import ServiceKey
from equipoise.emulate.ledger import Second, summary
from equipoise.simulate.engine.replica import Replica
from equipoise.simulate.engine.request import Request

REQUEST_COLUMNS: Final = (
    "service", "kind", "arrival_seconds", "prompt_tokens", "output_tokens", "outcome", "cause", "ttft_seconds", "tpot_seconds",
    "prefill_leg_seconds", "decode_leg_seconds", "transfer_seconds", "finish_seconds", "preemptions", "prefill_replica",
    "decode_replica",
)  # fmt: skip


class Records:
    """`requests.csv` and `seconds.jsonl` in a folder; an existing run there is replaced. Times are seconds since the start."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._requests = (folder / "requests.csv").open("w", newline="", encoding="utf-8")
        self._seconds = (folder / "seconds.jsonl").open("w", encoding="utf-8")
        self._rows = csv.writer(self._requests)
        self._rows.writerow(REQUEST_COLUMNS)

    def request(self, service: ServiceKey, request: Request) -> None:
        """One request that ended."""
        self._rows.writerow(
            (
                service,
                request.kind,
                f"{request.arrival:.4f}",
                request.prompt_tokens,
                request.output_tokens,
                request.outcome.name.lower(),
                request.cause,
                _text(request.ttft_seconds),
                _text(request.tpot_seconds),
                _text(_between(request.arrival, request.prefill_end)),
                _text(_between(request.decode_queued, request.first_token)),
                _text(_between(request.transfer_start, request.transfer_end)),
                _text(request.finish if request.finish >= 0.0 else None),
                request.preemptions,
                _name(request.prefill_replica),
                _name(request.decode_replica),
            )
        )

    def second(self, service: ServiceKey, second: Second, traffic: str) -> None:
        """One whole second of a service."""
        figures = {name: value for name, value in asdict(second).items() if not isinstance(value, list)}
        latencies = summary([second], 1.0)
        line = {"service": str(service), "traffic": traffic, **figures}
        line |= {name: latencies[name] for name in ("ttft_seconds", "tpot_seconds")}
        self._seconds.write(json.dumps(line) + "\n")

    def flush(self) -> None:
        """Write what is buffered."""
        self._requests.flush()
        self._seconds.flush()

    def close(self) -> None:
        """Write everything and close the files."""
        self._requests.close()
        self._seconds.close()


def _between(begin: float, end: float) -> float | None:
    return end - begin if begin >= 0.0 and end >= 0.0 else None


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.5f}"


def _name(replica: Replica | None) -> str:
    return "" if replica is None else replica.address
