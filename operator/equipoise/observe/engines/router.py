"""What the router in front of the engines knows of arrivals (vllm-router 0.1.17, observed by running it).

`vllm_router_pd_requests_total` does not count arrivals: a streamed request is counted when the answer's headers leave, any
other when it is over. A request that waits for prefill is in neither, so the counter alone falls when prefill starves; the
requests that the router holds in their prefill leg (`vllm_router_pd_prefill_occupancy`) are added as they grow. Failed
requests are counted. The counter first appears with the first request, with 1 and not with 0, so that the first one is
missed.
"""

from __future__ import annotations

from equipoise.observe.engines.table import Instrument, Kind, Metric, Reading

_HELD = (Metric("vllm_router_pd_prefill_occupancy"),)

ROUTER: tuple[Instrument, ...] = (
    Instrument(Reading.ROUTER_ANSWERED, Kind.INCREASE, (Metric("vllm_router_pd_requests_total"),), (), split=("route",)),
    Instrument(Reading.ROUTER_HELD_NOW, Kind.NOW, _HELD, (), split=("worker", "rank")),
    Instrument(Reading.ROUTER_HELD_BEFORE, Kind.BEFORE, _HELD, (), split=("worker", "rank")),
)
