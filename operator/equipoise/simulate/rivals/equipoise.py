"""The operator itself: its decide(), with its memory carried from round to round through the dictionary it keeps in status."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from equipoise.api.identity import ServiceKey
from equipoise.decide.decide import decide
from equipoise.decide.memory import ServiceMemory
from equipoise.decide.types import DecideInput, Decision
from equipoise.simulate.loop.policy import Allocation, View
from equipoise.simulate.loop.setup import EPOCH_SECONDS
from equipoise.simulate.rivals.base import BasePolicy


class EquipoisePolicy(BasePolicy):
    """`log` keeps every decision, for those who want to know why."""

    def __init__(
        self,
        name: str = "equipoise",
        *,
        interval_seconds: float = 15.0,
        settings: Mapping[str, float] | None = None,
        flips: bool = True,
        bounded: bool = True,
        log: bool = False,
    ) -> None:
        self.name = name
        self.flips, self.bounded = flips, bounded
        self.reasons: Counter[str] = Counter()
        self.log: list[tuple[float, Decision]] | None = [] if log else None
        self._interval_seconds = interval_seconds
        self._settings = dict(settings or {})
        self._status: dict[ServiceKey, str] = {}

    def decide(self, view: View) -> Mapping[ServiceKey, Allocation]:
        """One round of the operator's rules over all services."""
        decisions = decide(
            view.fleet,
            DecideInput(
                services=tuple(service.given for service in view.services.values()),
                observations={key: service.observation for key, service in view.services.items()},
                memories={key: ServiceMemory.from_dict(self._remembered(key)) for key in view.services},
                now_seconds=view.now + EPOCH_SECONDS,
                interval_seconds=self._interval_seconds,
                settings=self._settings,
            ),
        )
        for key, decision in decisions.items():
            self._status[key] = json.dumps(decision.memory.to_dict())
            self.reasons.update(reason.name for reason in decision.reasons)
            if self.log is not None:
                self.log.append((view.now, decision))
        return {key: dict(decision.allocation) for key, decision in decisions.items()}

    def _remembered(self, key: ServiceKey) -> dict[str, Any] | None:
        text = self._status.get(key)
        return None if text is None else json.loads(text)
