"""One look at everything: the clients' figures, pods, and the InferenceService's status."""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from equipoise.api import labels
from equipoise.api.identity import Phase
from equipoise.cli.demo.samples import Sample, SeenMove
from equipoise.cli.demo.script import NAMESPACE, POOLS, SERVICE, turn_names

_WINDOW = "5"  # seconds of the clients' rolling figures
_PERCENTILE = "p95"


class Look:
    """Reads the API server and the emulator; keeps what it has already told of decisions."""

    def __init__(self, server_url: str, ca_file: Path, token: str, clients: Callable[[], dict[str, Any]]) -> None:
        self._url = server_url
        self._context = ssl.create_default_context(cafile=str(ca_file))
        self._token = token
        self._clients = clients
        self._told: set[str] = set()
        self.decision: dict[str, Any] = {}
        self.conditions: dict[str, dict[str, Any]] = {}
        self.state = ""
        self.turns: list[tuple[float, str]] = []

    def sample(self) -> tuple[Sample | None, list[SeenMove]]:
        """The sample of now (None before the traffic begins), and the moves decided since the last one."""
        figures = self._clients()["services"].get(f"{NAMESPACE}/{SERVICE}")
        service = self._get(f"/apis/equipoise.dev/v1alpha1/namespaces/{NAMESPACE}/inferenceservices/{SERVICE}")
        status = service.get("status", {})
        self.conditions = {item["type"]: item for item in status.get("conditions", ())}
        self.decision = status.get("lastDecision", {})
        if figures is None:
            return None, []
        traffic = figures["traffic"]
        self.state = traffic["state"]
        names = dict(zip((name for _, name in traffic["turns"]), turn_names([name for _, name in traffic["turns"]]), strict=True))
        self.turns = _turns([(at, names[name]) for at, name in traffic["turns"]])
        at_seconds = traffic["seconds"]
        if at_seconds is None:
            return None, []
        window, totals = figures["windows"][_WINDOW], figures["totals"]
        ready, bound = self._pods()
        sample = Sample(
            at_seconds=at_seconds,
            traffic=names.get(traffic["kind"], traffic["kind"]),
            requests_per_second=window["offered_requests_per_second"],
            ttft_seconds=_worst(window["ttft_seconds"][_PERCENTILE], figures.get("oldest_wait_seconds")),
            tpot_seconds=window["tpot_seconds"][_PERCENTILE],
            ready=ready,
            desired=_desired(status),
            gpus_bound=bound,
            refused=totals["refused"],
            lost=totals["lost"],
            completed=totals["completed"],
            lagging=Phase(status["lagging"]) if status.get("lagging") else None,
        )
        return sample, self._moves(at_seconds)

    def _moves(self, at_seconds: float) -> list[SeenMove]:
        at_time = self.decision.get("atTime", "")
        if self.decision.get("verdict") != "Move" or at_time in self._told:
            return []
        self._told.add(at_time)
        return [
            SeenMove(
                at_seconds,
                move["kind"],
                move.get("donor", ""),
                move.get("receiver", ""),
                move.get("replicas", 0),
                move.get("reason", ""),
            )
            for move in self.decision.get("moves", ())
        ]

    def _pods(self) -> tuple[dict[tuple[Phase, str], int], dict[str, int]]:
        """Ready replicas by phase and pool, and GPUs that bound pods hold by pool, all pods of the cluster counted."""
        ready: dict[tuple[Phase, str], int] = {}
        bound: dict[str, int] = {pool.name: 0 for pool in POOLS}
        for pod in self._get("/api/v1/pods")["items"]:
            found = pod["metadata"].get("labels", {})
            pool = found.get(labels.POOL)
            if pool is None or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
                continue
            if pod["spec"].get("nodeName"):
                bound[pool] = bound.get(pool, 0) + _gpus(pod)
            conditions = {item["type"]: item["status"] for item in pod.get("status", {}).get("conditions", ())}
            serves = conditions.get("Ready") == "True" and found.get(labels.ROLE) in set(Phase)
            if serves and not pod["metadata"].get("deletionTimestamp"):
                key = (Phase(found[labels.ROLE]), pool)
                ready[key] = ready.get(key, 0) + 1
        return ready, bound

    def _get(self, path: str) -> dict[str, Any]:
        request = urllib.request.Request(self._url + path, headers={"Authorization": f"Bearer {self._token}"})
        with urllib.request.urlopen(request, timeout=10, context=self._context) as answer:
            return dict(json.loads(answer.read()))


def _turns(parts: Sequence[Sequence[Any]]) -> list[tuple[float, str]]:
    """When another kind of traffic begins; parts that go on with the same kind are no turn."""
    result: list[tuple[float, str]] = []
    for at, name in parts:
        if not result or result[-1][1] != name:
            result.append((float(at), str(name)))
    return result


def _worst(finished: float | None, waiting: float | None) -> float | None:
    """TTFT of those that have a first token; where the oldest that still waits has waited longer, that is the truth."""
    values = [value for value in (finished, waiting if waiting and waiting > 1.0 else None) if value is not None]
    return max(values, default=None)


def _gpus(pod: Mapping[str, Any]) -> int:
    return sum(int(item.get("resources", {}).get("limits", {}).get("nvidia.com/gpu", 0)) for item in pod["spec"]["containers"])


def _desired(status: Mapping[str, Any]) -> dict[tuple[Phase, str], int]:
    result: dict[tuple[Phase, str], int] = {}
    for entry in status.get("allocation", ()):
        key = (Phase(entry["phase"]), entry["pool"])
        result[key] = result.get(key, 0) + entry["replicas"]
    return result
