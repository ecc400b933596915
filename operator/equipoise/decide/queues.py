"""How much a prefill replica may hold back: overload becomes early refusals instead of everybody being late."""

from __future__ import annotations

from typing import Final

from equipoise.api.identity import Shape
from equipoise.fleet.types import Device
from equipoise.perf.step_times import step_times
from equipoise.perf.types import ModelFacts, Refusal

_SHARE_OF_TARGET: Final = 0.8
"""Of the TTFT target that the prompts ahead may take; the rest is for the request's own prompt, the KV transfer and the first
decode step."""


def queue_bound_tokens(model: ModelFacts, device: Device, shape: Shape, ttft_seconds: float) -> int | None:
    """Queued prompt tokens above which a replica refuses (vLLM `--max-num-queued-tokens`); None where its speed is not known.

    What waits is served first come, first served, so a request behind more tokens than speed x target is late whatever happens
    after, and makes all behind it late too: without a bound one burst keeps every later request out of target long after
    capacity is right again. Depends on model, device, shape and target only, never on the traffic: it is a start-up flag and
    must not change under a running engine.
    """
    times = step_times(model, device, shape)
    if isinstance(times, Refusal) or times.prefill_per_token <= 0.0:
        return None
    # The quadratic part is left out: what waits is many prompts, each far shorter than their sum.
    budget_seconds = max(0.0, _SHARE_OF_TARGET * ttft_seconds - times.prefill_constant)
    return max(1, int(budget_seconds / times.prefill_per_token))
