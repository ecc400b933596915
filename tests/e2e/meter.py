"""GPUs that pods bound to nodes hold, against the pool and against what the service may hold, at every state of the API."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.e2e.kube import Pod

PLACEHOLDER_ALLOWANCE_SECONDS = 2.0
"""So long may a pod that a ReplicaSet made while a flip was under way, and that never serves, hold a GPU beyond the budget."""


@dataclass
class _Over:
    since: float
    why: str


@dataclass
class BudgetMeter:
    """Give `look` to a PodWatch. A service's budget may be set at any time; pools are fixed. Seconds and GPUs."""

    pools: Mapping[str, int]  # GPUs by the prefix of the nodes' names
    budgets: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    placeholder_seconds: list[float] = field(default_factory=list)  # one entry per stretch of time over the budget
    most: dict[str, int] = field(default_factory=dict)
    looks: int = 0
    _over: dict[str, _Over] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def set_budget(self, service: str, gpus: int) -> None:
        """What the service may hold from now on."""
        with self._lock:
            self.budgets[service] = gpus

    def look(self, now: float, pods: Sequence[Pod]) -> None:
        """Judge one state."""
        with self._lock:
            self.looks += 1
            bound = [pod for pod in pods if pod.node]
            for prefix, limit in self.pools.items():
                held = sum(pod.gpus for pod in bound if pod.node.startswith(f"{prefix}-"))
                self.most[f"pool {prefix}"] = max(self.most.get(f"pool {prefix}", 0), held)
                if held > limit:
                    self.violations.append(f"pool {prefix}: {held} GPUs of {limit}")
            for service, budget in self.budgets.items():
                self._judge(now, service, budget, [pod for pod in bound if pod.service == service])

    def _judge(self, now: float, service: str, budget: int, pods: Sequence[Pod]) -> None:
        held = sum(pod.gpus for pod in pods)
        self.most[service] = max(self.most.get(service, 0), held)
        started = self._over.get(service)
        if held <= budget:
            if started is not None:
                del self._over[service]
                lasted = now - started.since
                self.placeholder_seconds.append(lasted)
                if lasted > PLACEHOLDER_ALLOWANCE_SECONDS:
                    self.violations.append(f"{service}: {started.why} for {lasted:.2f} s")
            return
        never_ready = sum(pod.gpus for pod in pods if pod.ready_at is None)
        if started is None:
            self._over[service] = _Over(now, f"{held} GPUs of {budget}")
        if held - never_ready > budget:
            self.violations.append(f"{service}: {held} GPUs of {budget}, {held - never_ready} of them by pods that serve")
