"""How far each phase is past its target, and which phase owes a slow first token."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from equipoise.api.identity import Phase
from equipoise.observe.types import Known, PhaseObservation, ServiceObservation, Signal
from equipoise.perf.types import Targets


@dataclass(frozen=True, slots=True)
class Lag:
    """1.0 is exactly at the target, above is past it; None is not known."""

    value: float | None
    latency_seconds: float | None
    attainment: float | None

    @property
    def lagging(self) -> bool:
        """Past its target."""
        return self.value is not None and self.value > 1.0


def decode_leg_dominates(observation: ServiceObservation | None, targets: Targets) -> bool:
    """Whether TTFT is late because of its decode leg (KV transfer, decode queue, first step). Means add; percentiles do not."""
    if observation is None:
        return False
    decode_leg = _known(observation.ttft_decode_leg_mean_seconds)
    prefill_leg = _known(observation.prefill.latency_mean_seconds)
    if decode_leg is None or prefill_leg is None:
        return False
    return decode_leg > prefill_leg and decode_leg + prefill_leg > 0.5 * targets.ttft_seconds


def estimate_lags(
    observation: ServiceObservation | None, targets: Targets, promised: Mapping[Phase, float], decode_starves: bool
) -> dict[Phase, Lag]:
    """Lag of both phases, TTFT charged to the phase that causes it.

    `promised` are the shares of requests to be inside the target: the percentile, or what is attainable with any number of
    replicas (prompts that are too long for the device miss anyhow, and no move mends that).
    """
    if observation is None:
        return {phase: Lag(None, None, None) for phase in Phase}
    to_decode = decode_starves or decode_leg_dominates(observation, targets)
    leg = _known(observation.prefill.latency_percentile_seconds)
    decode_leg = _known(observation.ttft_decode_leg_mean_seconds) or 0.0
    ttft = None if leg is None else leg + decode_leg
    attainment = _known(observation.ttft_attainment)
    if attainment is None:
        attainment = _known(observation.prefill.attainment)
    attainment = _with_refusals(attainment, observation.prefill)
    ttft_lag = _lag(None if ttft is None else ttft / targets.ttft_seconds, attainment, promised[Phase.PREFILL])
    tpot = _known(observation.decode.latency_percentile_seconds)
    tpot_attainment = _with_refusals(_known(observation.decode.attainment), observation.decode)
    tpot_lag = _lag(None if tpot is None else tpot / targets.tpot_seconds, tpot_attainment, promised[Phase.DECODE])
    if to_decode and ttft_lag is not None and ttft_lag > 1.0:
        blamed = ttft_lag if tpot_lag is None else max(tpot_lag, ttft_lag)
        worse = attainment if tpot_attainment is None else min(tpot_attainment, 1.0 if attainment is None else attainment)
        return {Phase.PREFILL: Lag(1.0, ttft, None), Phase.DECODE: Lag(blamed, tpot, worse)}
    return {Phase.PREFILL: Lag(ttft_lag, ttft, attainment), Phase.DECODE: Lag(tpot_lag, tpot, tpot_attainment)}


def _with_refusals(attainment: float | None, phase: PhaseObservation) -> float | None:
    """Of all requests offered to the phase: one that was turned away (a queue bounded by the target) left no latency behind, and
    missed its target all the same.
    """
    refused, offered = _known(phase.refused_requests_per_second), _known(phase.requests_per_second)
    if attainment is None or refused is None or offered is None or refused <= 0.0 or offered <= 0.0:
        return attainment
    return attainment * (1.0 - min(1.0, refused / offered))


def _lag(ratio: float | None, attainment: float | None, promised: float) -> float | None:
    """Attainment decides whether the target is met, the latency by how much: bucket edges blur a percentile, not a share."""
    if attainment is None:
        return ratio
    if attainment >= promised:
        return 1.0 if ratio is None else min(ratio, 1.0)
    short = 1.0 + (promised - attainment) / promised
    return short if ratio is None else max(short, ratio)


def _known(signal: Signal) -> float | None:
    return signal.value if isinstance(signal, Known) and math.isfinite(signal.value) else None
