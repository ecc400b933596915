"""The closed forms of capacity against simulated engines, which know nothing of them."""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from equipoise.api.identity import Phase, Shape
from equipoise.fleet.catalogue import device
from equipoise.perf.capacity import kv_transfer_seconds, replica_capacity
from equipoise.perf.capacity.queueing import (
    MAXIMUM_UTILISATION,
    mean_batch_for_limit,
    normal_quantile,
    share_below,
    spread,
    utilisation_for_target,
)
from equipoise.perf.models import model_facts
from equipoise.perf.step_times import step_times
from equipoise.perf.types import ModelFacts, ReplicaCapacity, StepTimes, Targets, Workload

PROMPT, OUTPUT, NETWORK = 1155.0, 211.0, 12.5e9


def case(phase: Phase, name: str, ttft: float, sharing: int) -> tuple[StepTimes, ReplicaCapacity, ModelFacts]:
    model = model_facts("hf://any/Llama-3.1-8B")
    assert isinstance(model, ModelFacts)
    times = step_times(model, device(name), Shape())
    assert isinstance(times, StepTimes)
    found = replica_capacity(
        phase, model, device(name), Shape(), Workload(PROMPT, OUTPUT), Targets(ttft, 0.05),
        network_bytes_per_second=NETWORK, replicas_sharing_queue=sharing,
    )  # fmt: skip
    assert isinstance(found, ReplicaCapacity)
    return times, found, model


@dataclass
class Server:
    """A batch-by-tokens engine: what waits is packed into steps of at most `budget` tokens, in order of arrival."""

    times: StepTimes
    budget: float  # vLLM's max_num_batched_tokens: 8,192 by default on H100 and H200, 2,048 elsewhere
    waiting: deque[tuple[float, float]] = field(default_factory=deque)
    running: list[tuple[float, float]] = field(default_factory=list)
    until: float = 0.0
    tokens: float = 0.0
    sent: float = 0.0

    def run_to(self, now: float, answered: list[float]) -> None:
        """Do all steps that start before `now`."""
        while True:
            if self.running:
                if self.until > now:
                    return
                answered.extend(self.until - arrival for arrival, _ in self.running)
                self.tokens -= sum(length for _, length in self.running)
                self.running = []
            if not self.waiting or max(self.until, self.waiting[0][0]) > now:
                return
            start = max(self.until, self.waiting[0][0])
            while self.waiting and self.waiting[0][0] <= start:
                if self.running and sum(length for _, length in self.running) + self.waiting[0][1] > self.budget:
                    break
                self.running.append(self.waiting.popleft())
            lengths = [length for _, length in self.running]
            self.until = start + self.times.prefill_seconds(sum(lengths), sum(length**2 for length in lengths))


def served_prefill(
    times: StepTimes, prompts_per_second: float, servers: int, budget: float = 2048, *, threshold: int | None = None
) -> list[float]:
    """Waiting plus prefill of Poisson arrivals with exponential lengths, each sent to the server with the fewest tokens in hand.

    With a threshold, as the routers' `cache_aware` does it for prompts that share nothing: to the server that was sent the fewest
    tokens so far, unless the counts in hand lie further apart than that.
    """
    chance = random.Random(7)
    engines = [Server(times, budget) for _ in range(servers)]
    answered: list[float] = []
    now = 0.0
    for _ in range(40_000):
        now += chance.expovariate(prompts_per_second)
        for engine in engines:
            engine.run_to(now, answered)
        length = chance.expovariate(1 / PROMPT)
        chosen = min(engines, key=lambda engine: engine.tokens)
        if threshold is not None:
            counts = [len(engine.waiting) + len(engine.running) for engine in engines]
            apart = max(counts) - min(counts) > threshold and max(counts) > 1.5 * min(counts)
            chosen = engines[counts.index(min(counts))] if apart else min(engines, key=lambda engine: engine.sent)
        chosen.sent += length
        chosen.waiting.append((now, length))
        chosen.tokens += length
    for engine in engines:
        engine.run_to(float("inf"), answered)
    return answered


@pytest.mark.parametrize(
    ("name", "ttft", "sharing"),
    [("H100", 0.3, 1), ("A100-80GB", 0.5, 1), ("A100-80GB", 0.5, 4), ("L40S", 1.0, 1), ("L40S", 0.5, 4), ("RTX-4090", 1.0, 2)],
)
def test_prefill_at_capacity_meets_the_target(name: str, ttft: float, sharing: int) -> None:
    times, found, model = case(Phase.PREFILL, name, ttft, sharing)
    assert found.binds == "target"
    seconds = served_prefill(times, sharing * found.tokens_per_second / PROMPT, sharing, 8192 if name == "H100" else 2048)
    extra = 0.05 + kv_transfer_seconds(model, PROMPT, NETWORK)
    inside = sum(one + extra <= ttft for one in seconds) / len(seconds)
    assert 0.94 <= inside <= 0.98


@pytest.mark.parametrize(("name", "ttft", "sharing"), [("A100-80GB", 0.5, 2), ("L40S", 0.5, 4)])
def test_so_it_does_behind_the_router_that_equipoise_deploys(name: str, ttft: float, sharing: int) -> None:
    times, found, model = case(Phase.PREFILL, name, ttft, sharing)
    seconds = served_prefill(times, sharing * found.tokens_per_second / PROMPT, sharing, threshold=4)
    extra = 0.05 + kv_transfer_seconds(model, PROMPT, NETWORK)
    assert 0.94 <= sum(one + extra <= ttft for one in seconds) / len(seconds) <= 0.98


def test_half_as_much_again_misses_it() -> None:
    times, found, model = case(Phase.PREFILL, "A100-80GB", 0.5, 1)
    seconds = served_prefill(times, 1.5 * found.tokens_per_second / PROMPT, 1)
    extra = 0.05 + kv_transfer_seconds(model, PROMPT, NETWORK)
    assert sum(one + extra <= 0.5 for one in seconds) / len(seconds) < 0.90


def served_decode(times: StepTimes, answers_per_second: float, kv_tokens: int, count: int) -> tuple[list[float], list[float]]:
    """TPOT and waiting for KV of one continuous-batching engine; a sequence is admitted when its prompt has room."""
    chance = random.Random(3)
    arrivals, now = [], 0.0
    for _ in range(count):
        now += chance.expovariate(answers_per_second)
        arrivals.append((now, chance.expovariate(1 / PROMPT), max(2, round(chance.expovariate(1 / OUTPUT)))))
    waiting: deque[tuple[float, float, int]] = deque()
    leaving: list[tuple[int, float, float, int]] = []  # last step, first token at, tokens held at the end, length
    clock, step, held, following = 0.0, 0, 0.0, 0
    paces, waits = [], []
    while following < count or waiting or leaving:
        if not waiting and not leaving:
            clock = max(clock, arrivals[following][0])
        while following < count and arrivals[following][0] <= clock:
            waiting.append(arrivals[following])
            following += 1
        admitted: list[tuple[float, float, int]] = []
        while waiting and held + waiting[0][1] <= kv_tokens and len(leaving) + len(admitted) < 256:
            admitted.append(waiting.popleft())
            held += admitted[-1][1]
        waits += [clock - arrival for arrival, _, _ in admitted]
        clock += times.decode_step_seconds(len(leaving) + len(admitted), held)
        step += 1
        held += len(leaving) + len(admitted)
        for _, prompt, length in admitted:
            heapq.heappush(leaving, (step + length - 1, clock, prompt + length, length))
        while leaving and leaving[0][0] <= step:
            _, first, tokens, length = heapq.heappop(leaving)
            held -= tokens
            paces.append((clock - first) / (length - 1))
    return paces[count // 5 :], waits[count // 5 :]


@pytest.mark.parametrize("name", ["L40S", "A100-80GB", "Arc-Pro-B60"])
def test_decode_at_capacity_keeps_the_percentile_near_the_target(name: str) -> None:
    times, found, _ = case(Phase.DECODE, name, 1.0, 1)
    assert found.binds == "target"
    paces, _ = served_decode(times, found.tokens_per_second / OUTPUT, found.kv_tokens, 12_000)
    percentile = sorted(paces)[int(0.95 * len(paces))]
    assert percentile == pytest.approx(0.05, rel=0.05)
    faster, waits = served_decode(times, 1.15 * found.tokens_per_second / OUTPUT, found.kv_tokens, 12_000)
    assert sorted(faster)[int(0.95 * len(faster))] > 0.0515 or sum(wait > 0.1 for wait in waits) > 0.05 * len(waits)


@pytest.mark.parametrize("name", ["RTX-4090", "A100-40GB"])
def test_decode_bound_by_memory_hardly_waits_for_it(name: str) -> None:
    times, found, _ = case(Phase.DECODE, name, 1.0, 1)
    assert found.binds == "kv memory"
    _, waits = served_decode(times, found.tokens_per_second / OUTPUT, found.kv_tokens, 12_000)
    assert sum(wait > 0.1 for wait in waits) / len(waits) <= 0.06
    _, waits = served_decode(times, 1.25 * found.tokens_per_second / OUTPUT, found.kv_tokens, 12_000)
    assert sum(wait > 0.1 for wait in waits) / len(waits) > 0.10


def test_utilisation_of_a_single_exponential_server_is_that_of_the_textbook() -> None:
    """Deterministic service of D: P(W > t) is close to rho exp(-2 t (1 - rho) / D) without what batching adds."""
    for budget in (3.0, 6.0, 12.0):
        found = utilisation_for_target(budget, [(1.0, 1.0)], 95)
        assert 0.2 < found <= MAXIMUM_UTILISATION
    assert utilisation_for_target(1e6, [(1.0, 1.0)], 95) == MAXIMUM_UTILISATION


def test_nobody_in_time_leaves_the_share_that_need_not_be() -> None:
    assert utilisation_for_target(0.5, [(1.0, 1.0)], 95) == pytest.approx(0.05, abs=1e-3)
    assert utilisation_for_target(0.5, [(1.0, 1.0)], 90) == pytest.approx(0.10, abs=1e-3)
    assert utilisation_for_target(0.5, [(1.0, 1.0)], 95, servers=4) > 0.3  # of four, seldom all are busy


def test_mean_batch_solves_its_equation() -> None:
    for limit, variability, growth, servers in [(30, 1.7, 0.01, 1), (256, 1.0, 0.02, 1), (2, 3.0, 0.5, 1), (80, 1.5, 0.3, 4)]:
        mean = mean_batch_for_limit(limit, variability, growth, 95, servers)
        margin = normal_quantile(95) * (variability * mean * (1 + growth * mean) / servers) ** 0.5
        assert mean + margin == pytest.approx(limit)
    assert mean_batch_for_limit(10, 1.5, 0.1, 50) == pytest.approx(10)  # at the median no margin is kept
    assert mean_batch_for_limit(0, 1, 1, 95) == 0


def test_spread_keeps_mean_and_second_moment() -> None:
    for variability in (1.0, 1.3, 2.0, 3.0):
        points = spread(100.0, variability * 100.0**2)
        assert sum(share for _, share in points) == pytest.approx(1)
        assert sum(value * share for value, share in points) == pytest.approx(100, rel=0.03)
        assert sum(value**2 * share for value, share in points) == pytest.approx(variability * 1e4, rel=0.08)


def test_share_below_of_an_exponential() -> None:
    for value, share in [(0.5, 0.393), (1.0, 0.632), (3.0, 0.950)]:
        assert share_below(value, 1.0, 2.0) == pytest.approx(share, abs=0.015)
    assert share_below(-1, 1, 2) == 0
