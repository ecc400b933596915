"""Who waits for whom: a full decode pool that makes prefill look slow is a decode lag. Pure.

vLLM's prefill pods keep a prompt's KV blocks until decode has read them. When decode is short of room, prefill's own pool
fills up, prompts queue there, and the prefill leg of TTFT grows although prefill computes fast enough. On a measured pair
(vLLM 0.32.0, five loads; means over each load):

| load | KV used on prefill, mean / peak | waiting for capacity on decode | as a share of decode's requests | waiting on prefill |
|---|---|---|---|---|
| low | 0.00 / 0.04 | 0.0 | 0.00 | 0.0 |
| prefill overloaded | 0.23 / 0.37 | 0.0 | 0.00 | 13.2 |
| decode overloaded, short prompts | 0.45 / 0.86 | 7.7 | 0.50 | 1.1 |
| decode overloaded, long prompts | 0.48 / 0.99 | 2.0 | 0.43 | 16.1 |
| the same, longer answers | 0.60 / 0.99 | 3.4 | 0.48 | 13.0 |

The thresholds lie between the rows. The bottleneck may alternate within a minute, so means over the window decide, never an
instant.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from equipoise.api.identity import Phase
from equipoise.observe.types import Idle, Known, ServiceObservation, Signal, Unknown

KV_FULL_MEAN = 0.25  # of prefill; 0.45 and more where decode held it up, and the window may have begun before the load did
KV_FULL_PEAK = 0.60  # 0.37 at most in a true prefill overload, 0.86 and more where decode held prefill up
CAPACITY_WAIT_SHARE = 0.10  # of decode's requests that wait for room; 0.43 and more where decode was short
CAPACITY_WAIT_REQUESTS = 0.5  # in the mean over the window: a single request that waited for a moment is no lag
PREFILL_WAIT_PER_POD = 1.0  # prompts queued on the average prefill pod


class Bottleneck(StrEnum):
    """What holds requests up."""

    NONE = "None"
    PREFILL = "Prefill"  # prompts queue on prefill, decode has room
    DECODE = "Decode"  # answers wait for room on decode
    DECODE_STARVES_PREFILL = "DecodeStarvesPrefill"  # the same, and prefill is full of blocks that decode has not read
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class StarvationVerdict:
    """The verdict with its numbers; None where a number is not known."""

    bottleneck: Bottleneck
    prefill_kv_share: float | None
    prefill_kv_share_peak: float | None
    prefill_waiting_requests: float | None
    decode_waiting_for_capacity_requests: float | None
    decode_capacity_wait_share: float | None
    message: str
    exact: bool = True  # False: the engine does not tell why requests wait, so waiting of any kind was taken

    @property
    def decode_starves(self) -> bool:
        """Whether decode is short of room, so that slow TTFT is to be charged to it."""
        return self.bottleneck in (Bottleneck.DECODE, Bottleneck.DECODE_STARVES_PREFILL)

    @property
    def charged_phase(self) -> Phase | None:
        """The phase that a slow TTFT is to be charged to; None when nothing waits, or it cannot be told."""
        if self.bottleneck is Bottleneck.PREFILL:
            return Phase.PREFILL
        return Phase.DECODE if self.decode_starves else None


def decode_starves_prefill(observation: ServiceObservation) -> StarvationVerdict:
    """Tell a decode lag from a prefill lag by what waits where, over the observation's window.

    Decode is short when a real share of its requests waits for capacity. It starves prefill when prefill's KV pool is full
    as well. Where decode has room, prompts that queue on prefill are prefill's own. Unknown as soon as decode's queue is
    unknown: without it either could be.
    """
    prefill, decode = observation.prefill, observation.decode
    exact = True
    capacity = _value(decode.waiting_for_capacity_requests)
    if capacity is None and _value(decode.waiting_requests) is not None and _not_exposed(decode.waiting_for_capacity_requests):
        capacity, exact = _value(decode.waiting_requests), False
    running, waiting = _value(decode.running_requests), _value(decode.waiting_requests)
    kv, peak = _value(prefill.kv_usage_share), _value(prefill.kv_usage_share_peak)
    queued = _value(prefill.waiting_requests)
    share = None
    if capacity is not None and running is not None and waiting is not None:
        present = running + max(waiting, capacity)
        share = capacity / present if present > 0 else 0.0

    def verdict(bottleneck: Bottleneck, message: str) -> StarvationVerdict:
        return StarvationVerdict(bottleneck, kv, peak, queued, capacity, share, message, exact)

    if capacity is None or share is None:
        return verdict(
            Bottleneck.UNKNOWN,
            f"what waits on decode is unknown: {_why(decode.waiting_for_capacity_requests, decode.running_requests)}",
        )
    short = capacity >= CAPACITY_WAIT_REQUESTS and share >= CAPACITY_WAIT_SHARE
    waits = f"{capacity:.1f} requests ({share:.0%} of those there) wait for capacity on decode"
    if short and kv is not None and peak is not None and kv >= KV_FULL_MEAN and peak >= KV_FULL_PEAK:
        return verdict(
            Bottleneck.DECODE_STARVES_PREFILL,
            f"{waits}, and prefill's KV pool is {kv:.0%} full (peak {peak:.0%}) of what decode has not read",
        )
    if short:
        return verdict(Bottleneck.DECODE, waits)
    if queued is None:
        return verdict(
            Bottleneck.UNKNOWN, f"decode has room, but what waits on prefill is unknown: {_why(prefill.waiting_requests)}"
        )
    pods = max(1, prefill.pods_sampled, prefill.pods_ready)
    if queued >= PREFILL_WAIT_PER_POD * pods:
        return verdict(
            Bottleneck.PREFILL,
            f"{queued:.1f} prompts wait on {pods} prefill pods while decode has room ({capacity:.1f} wait for capacity there)",
        )
    return verdict(Bottleneck.NONE, f"{queued:.1f} prompts wait on prefill, {capacity:.1f} requests for capacity on decode")


def _value(signal: Signal) -> float | None:
    if isinstance(signal, Known):
        return signal.value
    return 0.0 if isinstance(signal, Idle) else None


def _not_exposed(signal: Signal) -> bool:
    return isinstance(signal, Unknown) and signal.reason.value == "NotExposed"


def _why(*signals: Signal) -> str:
    return next((item.message for item in signals if isinstance(item, Unknown)), "no reason given")
