"""One replica toward the phase with more misses, every 20 s: "shift to the lagging phase" taken at its word."""

from __future__ import annotations

from equipoise.api.identity import Phase
from equipoise.simulate.loop.policy import ServiceView, View
from equipoise.simulate.rivals.counting import CountingPolicy, value


class NaiveShift(CountingPolicy):
    """With `flips`, the replica changes phase; else it is stopped and another one started."""

    interval_seconds = 20.0

    def __init__(self, *, flips: bool = False) -> None:
        super().__init__()
        self.name = "naive-flips" if flips else "naive"
        self.flips = flips

    def counts(self, view: View, service: ServiceView) -> tuple[int, int] | None:
        """See CountingPolicy."""
        seen, share = service.observation, service.given.targets.percentile / 100.0
        ttft, tpot = value(seen.ttft_attainment), value(seen.decode.attainment)
        misses = {Phase.PREFILL: 1.0 - (1.0 if ttft is None else ttft), Phase.DECODE: 1.0 - (1.0 if tpot is None else tpot)}
        prefill, decode = service.asked(Phase.PREFILL), service.asked(Phase.DECODE)
        if max(misses.values()) <= 1.0 - share or misses[Phase.PREFILL] == misses[Phase.DECODE]:
            return None
        if misses[Phase.PREFILL] > misses[Phase.DECODE]:
            return (prefill + 1, decode - 1) if decode > 1 else None
        return (prefill - 1, decode + 1) if prefill > 1 else None

    def fit(self, prefill: int, decode: int, most: int, service: ServiceView) -> tuple[int, int]:
        """A shift keeps the sum."""
        return prefill, decode
