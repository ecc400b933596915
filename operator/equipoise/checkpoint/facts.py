"""Facts of a model that the catalogue does not know, from its own config.json."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Final

import aiohttp

from equipoise.api.model_source import Architecture
from equipoise.checkpoint.places import CONFIG, CannotReadConfig, Sources
from equipoise.checkpoint.read import MAXIMUM_BYTES, TIMEOUT_SECONDS, read_config
from equipoise.perf.models import facts_from_config, model_name
from equipoise.perf.types import ModelFacts, Refusal

UNREADABLE: Final = "ConfigUnreadable"
READING: Final = "ReadingConfig"
CURE: Final = "or state the figures under spec.model.architecture (parameters, layers, hiddenSize, attentionHeads, kvHeads)"
_AT_ONCE: Final = 4


async def checkpoint_facts(
    address: str,
    architecture: Architecture | None,
    sources: Sources,
    session: aiohttp.ClientSession,
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
    maximum_bytes: int = MAXIMUM_BYTES,
) -> ModelFacts | Refusal:
    """Facts of the model at `address` (see `config_place` for its forms), overridden by what the user states.

    A Refusal, never an exception, when the file cannot be read or does not describe a model that can be sized: it says where it
    was looked for, what was found and what to do.
    """
    try:
        text = await read_config(address, sources, session, timeout_seconds=timeout_seconds, maximum_bytes=maximum_bytes)
        found = facts_from_config(text, _name(address))
    except CannotReadConfig as error:
        return Refusal(UNREADABLE, f"{error}; {CURE}")
    except RecursionError:
        return Refusal(UNREADABLE, f"config.json of {address}: nested too deeply; {CURE}")
    except (ValueError, TypeError, OverflowError) as error:
        return Refusal(UNREADABLE, f"config.json of {address} does not describe a model that can be sized: {error}; {CURE}")
    facts = stated_over(found, architecture)
    figures = (facts.parameters, facts.layers, facts.attention_heads, facts.kv_heads, facts.head_dim, facts.kv_bytes_per_token)
    if min(figures) <= 0 or facts.parameters == float("inf"):
        return Refusal(UNREADABLE, f"config.json of {address} gives impossible figures ({facts}); {CURE}")
    return facts


def _name(address: str) -> str:
    """The last part of the model's address, the file itself left out."""
    place = address.removesuffix(f"/{CONFIG}")
    return model_name(place) if "://" in place else place.rstrip("/").rpartition("/")[2]


def stated_over(facts: ModelFacts, given: Architecture | None) -> ModelFacts:
    """The facts with every figure replaced that the user states."""
    if given is None or given == Architecture():
        return facts
    stated: dict[str, Any] = {
        "parameters": given.parameter_count,
        "active_parameters": given.active_parameter_count,
        "layers": given.layers,
        "hidden_size": given.hidden_size,
        "attention_heads": given.attention_heads,
        "kv_heads": given.kv_heads,
        "head_dim": given.head_dim,
        "max_context_tokens": given.max_context,
    }
    changed = {name: value for name, value in stated.items() if value is not None}
    if changed.keys() & {"layers", "kv_heads", "head_dim"}:
        changed["kv_bytes_override"] = None
    return replace(facts, **changed, source=f"{facts.source}, corrected by spec.model.architecture")


@dataclass(slots=True)
class _Memory:
    facts: ModelFacts | Refusal
    until_seconds: float


class CheckpointReader:
    """Facts by address for a process that asks again and again.

    A file that was read is not read again: a revision does not change, and a branch that moves keeps its architecture. A failure
    is remembered for `retry_seconds`. `peek` never waits, so that a round over all services is not held up by a slow hub: the
    file is read in the background, at most four at a time, and `on_read` is told the address. `clock` gives seconds that only go
    forward.
    """

    def __init__(
        self,
        sources: Sources,
        clock: Callable[[], float],
        on_read: Callable[[str], None] | None = None,
        *,
        retry_seconds: float = 60.0,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._sources = sources
        self._clock = clock
        self._on_read = on_read
        self._retry_seconds = retry_seconds
        self._timeout_seconds = timeout_seconds
        self._known: dict[str, _Memory] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._session: aiohttp.ClientSession | None = None
        self._gate = asyncio.Semaphore(_AT_ONCE)

    def peek(self, address: str, architecture: Architecture | None = None) -> ModelFacts | Refusal:
        """What is known now. Unknown, or failed long enough ago: a Refusal `ReadingConfig` (or the old failure), and the reading
        begins. Call it inside the event loop.
        """
        memory = self._known.get(address)
        if memory is None or (isinstance(memory.facts, Refusal) and self._clock() >= memory.until_seconds):
            self._begin(address)
        if memory is None:
            return Refusal(READING, f"the config.json of {address} is being read")
        return memory.facts if isinstance(memory.facts, Refusal) else stated_over(memory.facts, architecture)

    async def facts(self, address: str, architecture: Architecture | None = None) -> ModelFacts | Refusal:
        """The same, but waits for a reading that is under way or begins."""
        answer = self.peek(address, architecture)
        task = self._reading.get(address)
        if task is None:
            return answer
        await asyncio.shield(task)
        return self.peek(address, architecture)

    async def close(self) -> None:
        """Stop what is being read and let go of connections."""
        tasks = list(self._reading.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _begin(self, address: str) -> None:
        if address not in self._reading:
            read: Coroutine[Any, Any, None] = self._read(address)
            self._reading[address] = asyncio.create_task(read, name=f"config of {address}")

    async def _read(self, address: str) -> None:
        try:
            async with self._gate:
                if self._session is None:
                    self._session = aiohttp.ClientSession(trust_env=True)
                facts = await checkpoint_facts(address, None, self._sources, self._session, timeout_seconds=self._timeout_seconds)
            self._known[address] = _Memory(facts, self._clock() + self._retry_seconds)
        finally:
            del self._reading[address]
        if self._on_read is not None:
            self._on_read(address)
