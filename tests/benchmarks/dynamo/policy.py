"""The operator's own decide() as a scaling policy of Dynamo's simulator: signals in, replica counts out, nothing in between.

What is adapted: the engine's measured step times become a row of the fitted table; the simulator's ticks become observations
(`signals`); its active, starting and draining workers become the status of two variants on one pool. It has no flips (a worker's
role is fixed) and no bound on queues, so the law does without both, as with such engines in production.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.benchmarks.dynamo.engine import GPUS, TPOT_SECONDS, TTFT_SECONDS, Profile, kv_tokens
from tests.benchmarks.dynamo.signals import Window

from equipoise.api.identity import Phase, Precision, ServiceKey, Shape, Variant
from equipoise.decide.decide import decide
from equipoise.decide.memory import ServiceMemory
from equipoise.decide.performance import EnginePerformance
from equipoise.decide.types import DecideInput, PhasePolicy, ServiceInput, VariantStatus
from equipoise.fleet.catalogue import device
from equipoise.fleet.types import Device, Fleet, NodeCapacity, Pool
from equipoise.perf import table
from equipoise.perf.memory import ENGINE_MEMORY_SHARE, LARGE_DEVICE_RESERVE_BYTES, weight_bytes
from equipoise.perf.models import model_facts
from equipoise.perf.types import ModelFacts, Refusal, ReplicaCapacity, Targets, Workload

KEY: Final = ServiceKey("bench", "replay")
EPOCH_SECONDS: Final = 1_700_000_000.0
INTERVAL_SECONDS: Final = 5.0
FREE_NETWORK: Final = 1e15  # the simulator hands KV over in no time
POOL: Final = "replay"
VARIANTS: Final = {phase: Variant(KEY, phase, POOL, Shape()) for phase in Phase}


def model() -> ModelFacts:
    """The simulator's engine has no model; sizes are those of Llama-3.1-8B, speed is as measured."""
    found = model_facts("hf://meta-llama/Llama-3.1-8B")
    if isinstance(found, Refusal):
        raise TypeError(found.message)
    return found


@dataclass(frozen=True, slots=True)
class ReplayPerformance(EnginePerformance):
    """The operator's performance model, told how prompt lengths spread.

    The simulator says the variance of the prompts before each worker; the operator's observations have no field for it.
    """

    prompt_variation: float = 1.0  # variance over squared mean

    def capacity(
        self,
        phase: Phase,
        model: ModelFacts,
        pool: Pool,
        shape: Shape,
        workload: Workload,
        targets: Targets,
        *,
        sharing: int = 1,
        speed: float = 1.0,
    ) -> ReplicaCapacity | Refusal:
        """See EnginePerformance."""
        squared = workload.mean_prompt_tokens**2 * (1.0 + self.prompt_variation)
        known = replace(workload, prompt_tokens_second_moment=squared)
        return EnginePerformance.capacity(self, phase, model, pool, shape, known, targets, sharing=sharing, speed=speed)


def measured_device(profile: Profile, held_tokens: int) -> Device:
    """A device with the measured step times in the fitted table, and memory for as many KV tokens as a worker holds."""
    name = "dynamo-replay"
    facts = model()
    needed = weight_bytes(facts, Precision.BF16) + held_tokens * facts.kv_bytes_per_token + LARGE_DEVICE_RESERVE_BYTES
    row = table.Entry(
        replace(table.LLAMA_8B, parameters=facts.active_parameters),
        name,
        1,
        tuple(1e3 * value for value in profile.prefill),  # type: ignore[arg-type]
        tuple(1e3 * value for value in profile.decode),  # type: ignore[arg-type]
        table.Correction(1.0, 1.0, "a load test inside the simulator"),
    )
    table._BY_DEVICE[name, 1] = (row,)
    return replace(
        device("H100"), name=name, fitted_name=name, memory_bytes=int(needed / ENGINE_MEMORY_SHARE) + 1, max_tensor_parallel=1
    )


class EquipoiseScaling:
    """What Dynamo's replay calls at every tick. `moves` and `reasons` are for people."""

    def __init__(
        self,
        measured: Device,
        engine: Mapping[str, Any],
        prefill: int,
        decode: int,
        *,
        percentile: float,
        startup_seconds: float,
    ) -> None:
        self._device, self._percentile = measured, percentile
        self._startup = startup_seconds  # of the first workers, which started before the trace does
        self._window = Window(KEY, kv_tokens(engine), int(engine["engine"]["max_num_batched_tokens"]))
        self._model = model()
        self._desired = {Phase.PREFILL: prefill, Phase.DECODE: decode}
        self._status: str | None = None
        self._seen_starting: dict[tuple[Phase, int], float] = {}
        self._startups: dict[Phase, list[float]] = {phase: [] for phase in Phase}
        self.reasons: Counter[str] = Counter()
        self.hook: Any = None
        self.moves: list[tuple[float, str]] = []

    def initial_tick_ms(self) -> float:
        """After the first interval."""
        return INTERVAL_SECONDS * 1e3

    def on_tick(self, tick: Mapping[str, Any]) -> dict[str, Any]:
        """One round."""
        now = tick["now_ms"] / 1e3 + EPOCH_SECONDS
        self._window.add(tick)
        statuses = tuple(self._variant(tick, phase, now) for phase in Phase)
        inputs = DecideInput(
            services=(self._service(statuses),),
            observations={KEY: self._window.observation(now)},
            memories={KEY: ServiceMemory.from_dict(None if self._status is None else json.loads(self._status))},
            now_seconds=now,
            interval_seconds=INTERVAL_SECONDS,
        )
        decision = decide(self._fleet(statuses), inputs, ReplayPerformance(self._window.prompt_variation()))[KEY]
        self.last = decision
        self.obs = inputs.observations[KEY]
        if self.hook:
            self.hook(tick, self)
        self._status = json.dumps(decision.memory.to_dict())
        self.reasons.update(reason.name for reason in decision.reasons)
        wanted = {phase: decision.allocation.get(VARIANTS[phase], 0) for phase in Phase}
        if wanted != self._desired:
            self.moves.append((tick["now_ms"] / 1e3, f"{wanted[Phase.PREFILL]}P{wanted[Phase.DECODE]}D"))
        self._desired = wanted
        return {
            "target_prefill": wanted[Phase.PREFILL],
            "target_decode": wanted[Phase.DECODE],
            "next_tick_ms": tick["now_ms"] + INTERVAL_SECONDS * 1e3,
        }

    def _service(self, statuses: tuple[VariantStatus, ...]) -> ServiceInput:
        return ServiceInput(
            key=KEY,
            model=self._model,
            targets=Targets(TTFT_SECONDS, TPOT_SECONDS, self._percentile),
            phases={phase: PhasePolicy(shape=Shape()) for phase in Phase},
            flip_supported=False,
            flip_reason="a worker of the simulator keeps its role",
            shares_arrivals=False,  # its router goes round-robin
            variants=statuses,
            created_seconds=EPOCH_SECONDS - 7200.0,
            engine="dynamo-replay",
        )

    def _variant(self, tick: Mapping[str, Any], phase: Phase, now: float) -> VariantStatus:
        active, starting = tick[f"active_{phase.value}_ids"], tick[f"starting_{phase.value}_ids"]
        for worker in starting:
            self._seen_starting.setdefault((phase, worker), now)
        for worker in active:
            began = self._seen_starting.pop((phase, worker), None)
            if began is not None:  # the start was asked for at the end of the tick before it was seen
                self._startups[phase].append(now - began + INTERVAL_SECONDS)
        known = sorted(self._startups[phase])
        return VariantStatus(
            VARIANTS[phase],
            desired=self._desired[phase],
            ready=len(active),
            starting=len(starting),
            draining=tick[f"draining_{phase.value}_count"],
            startup_seconds=known[len(known) // 2] if known else self._startup,
        )

    def _fleet(self, statuses: tuple[VariantStatus, ...]) -> Fleet:
        own = {status.variant: status.ready + status.starting + status.draining for status in statuses}
        node = NodeCapacity("replay", GPUS, own_gpus=own)
        pool = Pool(POOL, self._device, (node,), 1.0, network_bytes_per_second=FREE_NETWORK)
        return Fleet((pool,))
