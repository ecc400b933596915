"""An oracle: it knows every request to come, its moves cost nothing, and it may move every round. What no real controller can be.

Prefill is sized from the seconds of computing that the coming prompts take, decode from the answers that will be under way. How
much room it leaves is chosen in hindsight (`search.best_oracle`): the cheapest of the best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.decide.policy import ServicePolicy, service_policy
from equipoise.perf.capacity import replica_capacity
from equipoise.perf.step_times import step_times
from equipoise.perf.types import ReplicaCapacity, StepTimes, Workload
from equipoise.simulate.loop.policy import Allocation, View
from equipoise.simulate.loop.setup import ServiceSetup, World
from equipoise.simulate.rivals.base import BasePolicy


class _Future:
    """Replicas of each phase that one service will need, by round, at full use of each replica."""

    def __init__(self, setup: ServiceSetup, world: World, pool: str, seed: int) -> None:
        found = next(entry for entry in world.pools if entry.name == pool)
        policy = service_policy(setup.resource)
        assert isinstance(policy, ServicePolicy)  # noqa: S101 - for the type checker: the loop has refused others before
        shape = policy.phases[Phase.PREFILL].shape or Shape()
        self.variants = {phase: Variant(setup.key, phase, pool, shape) for phase in Phase}
        times = step_times(policy.model, found.catalogue_device, shape)
        if not isinstance(times, StepTimes):
            raise ValueError(f"{setup.key}: {times.message}")
        rounds = int(world.seconds / world.interval_seconds) + 2
        self.prefill, self.decode = [0.0] * rounds, [0.0] * rounds
        step = world.interval_seconds
        tpot = policy.targets.tpot_seconds
        offered = list(setup.arrivals(seed))
        prompts = sum(a.prompt_tokens for a in offered) / max(1, len(offered))
        answers = sum(a.output_tokens for a in offered) / max(1, len(offered))
        capacity = replica_capacity(
            Phase.DECODE, policy.model, found.catalogue_device, shape, Workload(prompts, answers), policy.targets,
            network_bytes_per_second=found.network_bytes_per_second,
        )  # fmt: skip
        longest = capacity.max_batch if isinstance(capacity, ReplicaCapacity) else 1
        kv_tokens = capacity.kv_tokens if isinstance(capacity, ReplicaCapacity) else 1
        for arrival in offered:
            position = min(rounds - 1, int(arrival.at_seconds / step))
            length, answer = arrival.prompt_tokens, arrival.output_tokens
            self.prefill[position] += times.prefill_seconds(length, float(length) * length) / step
            # How much of a replica's step time, and of its memory, one answer takes while it is written.
            per_step = times.decode_per_sequence + times.decode_per_context_token * (length + answer / 2.0)
            share = max(
                per_step / max(1e-9, tpot - times.decode_constant), (length + answer) / kv_tokens, 1.0 / max(longest, 256)
            )
            seconds = 0.7 * tpot * answer
            last = min(rounds - 1, int((arrival.at_seconds + seconds) / step))
            for at in range(position, last + 1):
                overlap = min((at + 1) * step, arrival.at_seconds + seconds) - max(at * step, arrival.at_seconds)
                self.decode[at] += share * max(0.0, overlap) / step


class OraclePolicy(BasePolicy):
    """`room`: the share of a replica that is used, 0..1, prefill and decode. One pool per service: the first it begins on."""

    name = "oracle"
    flips = True
    bounded = True
    instant = True

    def __init__(self, seed: int, room: tuple[float, float] = (0.75, 0.85), *, spare: bool = False) -> None:
        self._seed, self._room, self._spare = seed, room, spare
        self._futures: dict[ServiceKey, _Future] = {}
        self._interval = 1.0

    def initial(self, world: World) -> Mapping[ServiceKey, Mapping[tuple[Phase, str], int]]:
        """What the first round needs."""
        self._interval = world.interval_seconds
        result: dict[ServiceKey, dict[tuple[Phase, str], int]] = {}
        left = {pool.name: pool.nodes * pool.gpus_per_node for pool in world.pools}
        for setup in world.services:
            pool = min(setup.initial)[1]
            future = self._futures[setup.key] = _Future(setup, world, pool, self._seed)
            share = left[pool] if setup is world.services[-1] else sum(setup.initial.values())
            prefill, decode = self._counts(future, 0, share // future.variants[Phase.PREFILL].shape.gpus_per_replica)
            left[pool] -= share
            result[setup.key] = {(Phase.PREFILL, pool): prefill, (Phase.DECODE, pool): decode}
        return result

    def _counts(self, future: _Future, number: int, most: int) -> tuple[int, int]:
        ahead = slice(number, number + 2)
        need = (max(future.prefill[ahead], default=0.0) / self._room[0], max(future.decode[ahead], default=0.0) / self._room[1])
        prefill, decode = (max(1, math.ceil(value)) for value in need)
        if prefill + decode <= most and not self._spare:
            return prefill, decode
        loads = {split: max(need[0] / split, need[1] / (most - split)) for split in range(1, most)}
        best = min(loads, key=lambda split: (loads[split], split))
        return best, most - best

    def decide(self, view: View) -> Mapping[ServiceKey, Allocation]:
        """What the coming rounds need; short of GPUs, the split that leaves the fuller phase least full."""
        number = round(view.now / self._interval)
        result = {}
        free = {pool.name: pool.free_gpus for pool in view.fleet.pools}
        for key, future in self._futures.items():
            variants = future.variants
            gpus = variants[Phase.PREFILL].shape.gpus_per_replica
            own = sum(status.ready + status.starting for status in view.services[key].given.variants)
            pool = variants[Phase.PREFILL].pool
            most = own + free[pool] // gpus
            prefill, decode = self._counts(future, number, max(2, most))
            free[pool] -= max(0, prefill + decode - own) * gpus
            result[key] = {variants[Phase.PREFILL]: prefill, variants[Phase.DECODE]: decode}
        return result
