"""At rest nothing is written; a new operator process takes over from status alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from equipoise_stage import Stage

Apply = Callable[..., dict[str, Any]]
WRITES = ("create", "update", "patch", "delete", "deletecollection")


def operator_writes(stage: Stage, since: int) -> list[str]:
    """Writes of the operator since that position in the audit log, leases left out: they are its heartbeat."""
    from local_cluster import audited_requests

    assert stage.cluster.audit_log is not None
    found = list(audited_requests(stage.cluster.audit_log))[since:]
    user = f"system:serviceaccount:{stage.namespace}:{stage.release}"
    return [
        f"{item.verb} {item.resource} {item.namespace}/{item.name}"
        for item in found
        if item.user == user and item.verb in WRITES and item.resource != "leases"
    ]


def position(stage: Stage) -> int:
    from local_cluster import audited_requests

    assert stage.cluster.audit_log is not None
    return len(list(audited_requests(stage.cluster.audit_log)))


def rounds(stage: Stage) -> float:
    """Capacity rounds so far, from the operator's own metrics."""
    lines = stage.operator_metrics().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("equipoise_capacity_round_seconds_count"))


def test_at_rest_nothing_is_written_and_a_restart_changes_nothing(stage: Stage, space: str, apply_service: Apply) -> None:
    """Quiet rounds write nothing, for longer than figures are held back; nor does a new process after a SIGKILL."""
    from local_cluster import wait_until

    apply_service()
    stage.wait_condition(space, "chat", "Ready")
    stage.wait_condition(space, "chat", "Progressing", "False")
    stage.wait_condition(space, "chat", "MetricsAvailable")

    def reason(kind: str) -> str:
        conditions = stage.service(space, "chat")["status"]["conditions"]
        return next(str(item["reason"]) for item in conditions if item["type"] == kind)

    # Latencies of new pods are not believed for 30 s and a window; that there is no traffic is the last thing to become known.
    wait_until(lambda: reason("TargetsMet") == "NoTraffic", 120, "the end of the warm-up")
    start, first = position(stage), rounds(stage)

    def five_quiet_rounds() -> bool:
        # Figures settle; from then on nothing may be written.
        nonlocal start, first
        if operator_writes(stage, start):
            start, first = position(stage), rounds(stage)
        return rounds(stage) >= first + 5

    wait_until(five_quiet_rounds, 150, "five rounds without a write", poll_seconds=0.5)
    first = rounds(stage)
    wait_until(lambda: rounds(stage) >= first + 20, 90, "twenty more rounds")
    assert operator_writes(stage, start) == []

    before = stage.service(space, "chat")
    stage.kill_operator()
    start = position(stage)
    stage.start_operator({"capacity": {"intervalSeconds": 2}})
    wait_until(lambda: rounds(stage) >= 4, 60, "four rounds of the new process")
    assert operator_writes(stage, start) == []
    after = stage.service(space, "chat")
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert after["status"] == before["status"]
