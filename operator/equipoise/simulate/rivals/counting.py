"""Controllers that set one count per phase, on the pool where the service began: what most of them share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from equipoise.api.identity import Phase, ServiceKey, Variant
from equipoise.observe.types import Idle, Known, Signal
from equipoise.perf.capacity import replica_capacity
from equipoise.perf.step_times import step_times
from equipoise.perf.types import ReplicaCapacity, StepTimes, Workload
from equipoise.simulate.loop.policy import Allocation, ServiceView, View
from equipoise.simulate.rivals.base import BasePolicy


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a window says of the traffic; the last known figures where a window says nothing."""

    requests_per_second: float
    prompt_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True)
class Profile:
    """What a load test of one replica of each kind would have found: the model of `perf`, with the targets as its limits."""

    times: StepTimes
    prefill: ReplicaCapacity
    decode: ReplicaCapacity

    def prefill_peak(self, traffic: Traffic) -> float:
        """Prompt tokens per second of a replica that is never idle."""
        length = max(1.0, traffic.prompt_tokens)
        return length / self.times.prefill_seconds(length, length * length)


class CountingPolicy(BasePolicy):
    """Subclasses answer with (prefill, decode). `interval_seconds`: how often they look; rounds in between change nothing.

    More than the pool holds is not asked for: each phase is limited to what the other leaves, as maxReplicas would be set.
    """

    interval_seconds = 15.0

    def __init__(self) -> None:
        self._looked = 0.0  # the first look comes after a whole interval of traffic
        self._traffic: dict[ServiceKey, Traffic] = {}

    def decide(self, view: View) -> Mapping[ServiceKey, Allocation]:
        """See Policy."""
        if view.now - self._looked < self.interval_seconds - 1e-6:
            return {}
        self._looked = view.now
        result: dict[ServiceKey, Allocation] = {}
        for key, service in view.services.items():
            variants = {phase: _variant(service, phase) for phase in Phase}
            wanted = self.counts(view, service)
            if wanted is None:
                continue
            gpus = variants[Phase.PREFILL].shape.gpus_per_replica
            most = _most(view, service, variants[Phase.PREFILL]) // gpus
            prefill, decode = self.fit(max(1, wanted[0]), max(1, wanted[1]), most, service)
            result[key] = {variants[Phase.PREFILL]: prefill, variants[Phase.DECODE]: decode}
        return result

    def counts(self, view: View, service: ServiceView) -> tuple[int, int] | None:
        """Replicas of both phases; None to leave them."""
        raise NotImplementedError

    def fit(self, prefill: int, decode: int, most: int, service: ServiceView) -> tuple[int, int]:
        """Into the pool: what is there stays, growth takes what is left, prefill first."""
        have_prefill, have_decode = service.asked(Phase.PREFILL), service.asked(Phase.DECODE)
        prefill_now, decode_now = min(prefill, have_prefill), min(decode, have_decode)
        room = most - prefill_now - decode_now
        more_prefill = max(0, min(prefill - prefill_now, room))
        more_decode = max(0, min(decode - decode_now, room - more_prefill))
        return prefill_now + more_prefill, decode_now + more_decode

    def traffic(self, service: ServiceView) -> Traffic | None:
        """The window's traffic, None until there was any."""
        key, seen = service.given.key, service.observation
        before = self._traffic.get(key)
        rate, prompt, output = (
            value(seen.prefill.requests_per_second),
            value(seen.prefill.mean_tokens),
            value(seen.decode.mean_tokens),
        )
        if before is None and (rate is None or prompt is None or output is None):
            return None
        idle = isinstance(seen.prefill.requests_per_second, Idle)
        found = Traffic(
            rate if rate is not None else 0.0 if idle or before is None else before.requests_per_second,
            prompt if prompt is not None else before.prompt_tokens if before is not None else 1.0,
            output if output is not None else before.output_tokens if before is not None else 1.0,
        )
        self._traffic[key] = found
        return found

    def profile(self, view: View, service: ServiceView, traffic: Traffic) -> Profile | None:
        """The load test at these lengths; None where the targets cannot be met at all."""
        variant = _variant(service, Phase.PREFILL)
        pool = view.fleet.pool(variant.pool)
        if pool is None:
            return None
        given = service.given
        workload = Workload(traffic.prompt_tokens, traffic.output_tokens).rounded(0.05)
        found = [
            replica_capacity(
                phase, given.model, pool.device, variant.shape, workload, given.targets,
                network_bytes_per_second=pool.network_bytes_per_second,
            )
            for phase in (Phase.PREFILL, Phase.DECODE)
        ]  # fmt: skip
        times = step_times(given.model, pool.device, variant.shape)
        prefill, decode = found
        if isinstance(prefill, ReplicaCapacity) and isinstance(decode, ReplicaCapacity) and isinstance(times, StepTimes):
            return Profile(times, prefill, decode)
        return None


def value(signal: Signal) -> float | None:
    """A known number, else None."""
    return signal.value if isinstance(signal, Known) and math.isfinite(signal.value) else None


def _variant(service: ServiceView, phase: Phase) -> Variant:
    own = [variant for variant in service.allocation if variant.phase is phase]
    if own:
        return min(own)
    return min(service.allocation).with_phase(phase)


def _most(view: View, service: ServiceView, variant: Variant) -> int:
    pool = view.fleet.pool(variant.pool)
    held = sum(
        gpus for node in (pool.nodes if pool is not None else ()) for own, gpus in node.own_gpus.items()
        if own.service == service.given.key
    )  # fmt: skip
    return held + (pool.free_gpus if pool is not None else 0)
