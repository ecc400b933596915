"""What a vllm-router 0.1.17 would count for the requests that the model's own clients send, and its page.

Only series that it was seen to write. Like it, a streamed request is counted when its answer's headers leave, which is when the
prefill leg ends; and a family appears with its first sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from equipoise.api.identity import Phase
from equipoise.simulate.engine.metrics.exposition import label_text
from equipoise.simulate.engine.metrics.histogram import Histogram
from equipoise.simulate.engine.replica import Replica
from equipoise.simulate.engine.request import Request
from equipoise.simulate.engine.types import Outcome, Stage

_DURATION_SECONDS: Final = (
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 45, 60, 90, 120, 180, 240,
)  # fmt: skip
ROUTE: Final = "/v1/completions"


class RouterStats:
    """Counts of one router pod, from its start. Workers are named by URL."""

    def __init__(self) -> None:
        self.requests = 0
        self.prefill_requests: dict[str, int] = {}
        self.decode_requests: dict[str, int] = {}
        self.prefill_errors: dict[str, int] = {}
        self.decode_errors: dict[str, int] = {}
        self.errors: dict[str, int] = {}
        self.duration = Histogram(_DURATION_SECONDS)
        self._prefilling: dict[Request, None] = {}  # headers have not left
        self._decoding: dict[Request, None] = {}

    def taken(self, request: Request) -> None:
        """The router has the request and looks for replicas."""
        self._prefilling[request] = None

    def sent(self, request: Request) -> None:
        """The prefill leg was sent, if there was a replica to send it to."""
        if request.prefill_replica is not None:
            _add(self.prefill_requests, worker_url(request.prefill_replica))

    def look(self) -> None:
        """Find the requests whose prefill leg has ended: their headers have left."""
        for request in [request for request in self._prefilling if request.stage >= Stage.HELD]:
            self._headers(request, request.prefill_end)

    def ended(self, request: Request, now: float) -> None:
        """A request has ended, well or not."""
        if request in self._prefilling:
            if request.prefill_end >= 0.0:
                self._headers(request, request.prefill_end)
            else:
                del self._prefilling[request]
                self._count(request, now)
                if request.prefill_replica is None:
                    _add(self.errors, "server_selection")
                else:
                    _add(self.prefill_errors, worker_url(request.prefill_replica))
        if request in self._decoding:
            del self._decoding[request]
            if request.outcome is not Outcome.FINISHED and request.decode_replica is not None:
                _add(self.decode_errors, worker_url(request.decode_replica))

    def _headers(self, request: Request, at: float) -> None:
        del self._prefilling[request]
        self._count(request, at)
        if request.decode_replica is not None:
            _add(self.decode_requests, worker_url(request.decode_replica))
            self._decoding[request] = None

    def _count(self, request: Request, at: float) -> None:
        self.requests += 1
        self.duration.observe(max(0.0, at - request.arrival))

    def page(self, in_routing: Mapping[Phase, Iterable[Replica]]) -> str:
        """The router's metrics page."""
        self.look()
        lines: list[str] = []
        if self.requests:
            _family(lines, "vllm_router_pd_requests_total", "counter", "route", {ROUTE: self.requests})
        _family(lines, "vllm_router_pd_prefill_requests_total", "counter", "worker", self.prefill_requests)
        _family(lines, "vllm_router_pd_decode_requests_total", "counter", "worker", self.decode_requests)
        processed = dict(self.prefill_requests)
        for worker, count in self.decode_requests.items():
            processed[worker] = processed.get(worker, 0) + count
        _family(lines, "vllm_router_processed_requests_total", "counter", "worker", processed)
        _family(lines, "vllm_router_pd_prefill_errors_total", "counter", "worker", self.prefill_errors)
        _family(lines, "vllm_router_pd_decode_errors_total", "counter", "worker", self.decode_errors)
        _family(lines, "vllm_router_pd_errors_total", "counter", "error_type", self.errors)
        idle = {phase: {worker_url(replica): 0 for replica in replicas} for phase, replicas in in_routing.items()}
        healthy = dict.fromkeys([*idle[Phase.PREFILL], *idle[Phase.DECODE]], 1)
        _family(lines, "vllm_router_worker_health", "gauge", "worker", healthy)
        occupancy, tokens, active = dict(idle[Phase.PREFILL]), dict(idle[Phase.PREFILL]), dict(idle[Phase.DECODE])
        for request in self._prefilling:
            if request.prefill_replica is not None:
                worker = worker_url(request.prefill_replica)
                _add(occupancy, worker)
                _add(tokens, worker, request.prompt_tokens)
        for request in self._decoding:
            if request.decode_replica is not None:
                _add(active, worker_url(request.decode_replica))
        for name, counts in (
            ("vllm_router_pd_prefill_occupancy", occupancy),
            ("vllm_router_pd_active_prefill_tokens", tokens),
            ("vllm_router_pd_active_decode_requests", active),
        ):
            _family(lines, name, "gauge", "worker", counts, {"rank": "aggregate"})
        if self.requests:
            self._durations(lines)
        return "\n".join(lines) + "\n"

    def _durations(self, lines: list[str]) -> None:
        name, text = "vllm_router_pd_request_duration_seconds", f'route="{ROUTE}"'
        lines.append(f"# TYPE {name} histogram")
        below = 0
        for edge, count in zip((*map(str, _DURATION_SECONDS), "+Inf"), self.duration.counts, strict=True):
            below += count
            lines.append(f'{name}_bucket{{{text},le="{edge}"}} {below}')
        lines += [f"{name}_sum{{{text}}} {self.duration.total!r}", f"{name}_count{{{text}}} {below}", ""]
        name = "vllm_router_pd_decode_pending_seconds"
        lines += [f"# TYPE {name} summary", f"{name}_sum {self.duration.total!r}", f"{name}_count {below}", ""]


def worker_url(replica: Replica) -> str:
    """How the router names a worker: by its URL."""
    return replica.address


def _add(counts: dict[str, int], name: str, amount: int = 1) -> None:
    counts[name] = counts.get(name, 0) + amount


def _family(
    lines: list[str], name: str, kind: str, label: str, counts: Mapping[str, int], more: Mapping[str, str] | None = None
) -> None:
    if counts:
        lines.append(f"# TYPE {name} {kind}")
        lines.extend(f"{name}{label_text({label: value, **(more or {})})} {count}" for value, count in counts.items())
        lines.append("")
