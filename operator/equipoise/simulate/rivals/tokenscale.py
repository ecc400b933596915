"""TokenScale (arXiv 2512.03416, 2025) without its convertible decoders: replicas = token arrival rate / token velocity.

Prefill: prompt tokens that arrive per second over the velocity of a prefiller, min(computed tokens/s, tokens/s of its link).
Decode: prompt and answer tokens that arrive per second over the rate at which a decoder releases memory: tokens of completed
requests over the time they took, at the batch that its memory holds or its TPOT target allows. The paper sums over buckets of
lengths and predicts the answer's; here both are the window's means. No cooldown is given; what starts takes 3 to 10 s there, so
shrinking is immediate.
"""

from __future__ import annotations

import math

from equipoise.api.identity import Phase
from equipoise.simulate.loop.policy import ServiceView, View
from equipoise.simulate.rivals.counting import CountingPolicy, Profile, Traffic
from equipoise.simulate.rivals.hpa import Stabiliser


class TokenScale(CountingPolicy):
    """`use`: the share of a velocity that is planned with, 1.0 as published; `stabilisation_seconds` before a shrink."""

    interval_seconds = 5.0

    def __init__(self, name: str = "tokenscale", *, use: float = 1.0, stabilisation_seconds: float = 0.0) -> None:
        super().__init__()
        self.name, self._use = name, use
        self._stabilisers = {phase: Stabiliser(stabilisation_seconds) for phase in Phase} if stabilisation_seconds > 0.0 else {}

    def counts(self, view: View, service: ServiceView) -> tuple[int, int] | None:
        """See CountingPolicy."""
        traffic = self.traffic(service)
        profile = None if traffic is None else self.profile(view, service, traffic)
        pool = view.fleet.pool(min(service.allocation).pool)
        if traffic is None or profile is None or pool is None:
            return None
        link = pool.network_bytes_per_second / service.given.model.kv_bytes_per_token
        velocities = {
            Phase.PREFILL: min(profile.prefill_peak(traffic), link),
            Phase.DECODE: release_velocity(profile, traffic, service.given.targets.tpot_seconds),
        }
        arriving = {Phase.PREFILL: traffic.prompt_tokens, Phase.DECODE: traffic.prompt_tokens + traffic.output_tokens}
        wanted = {}
        for phase in Phase:
            wish = max(1, math.ceil(traffic.requests_per_second * arriving[phase] / (velocities[phase] * self._use)))
            stabiliser = self._stabilisers.get(phase)
            wanted[phase] = wish if stabiliser is None else stabiliser.settle(view.now, wish, service.asked(phase))
        return wanted[Phase.PREFILL], wanted[Phase.DECODE]


def release_velocity(profile: Profile, traffic: Traffic, tpot_seconds: float) -> float:
    """Tokens of finished requests that leave a decoder's memory per second at its largest batch inside the target."""
    context = traffic.prompt_tokens + traffic.output_tokens / 2.0
    per_sequence = profile.times.decode_per_sequence + profile.times.decode_per_context_token * context
    whole = traffic.prompt_tokens + traffic.output_tokens
    batch = max(1.0, min((tpot_seconds - profile.times.decode_constant) / per_sequence, profile.decode.kv_tokens / whole))
    step = profile.times.decode_step_seconds(batch, batch * context)
    return batch * whole / (traffic.output_tokens * step)
