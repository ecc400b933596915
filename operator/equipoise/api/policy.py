"""spec.capacity, rollout, drain and metrics: how far Equipoise may go, and how gently."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from equipoise.api.base import ApiModel, rule, rules
from equipoise.api.values import (
    CountOrPercent,
    Duration,
    PositiveQuantity,
    parse_count_or_percent,
    parse_duration,
    parse_quantity,
)


class CapacityMode(StrEnum):
    """How far Equipoise may go."""

    AUTO = "Auto"
    RECOMMEND = "Recommend"
    OFF = "Off"


class Switch(StrEnum):
    """Whether Equipoise uses a means where it can."""

    AUTO = "Auto"
    DISABLED = "Disabled"


class MetricsSource(StrEnum):
    """Where signals come from."""

    PROMETHEUS = "Prometheus"
    PODS = "Pods"


class CooldownSpec(ApiModel):
    """Waits between changes of one direction."""

    grow: Duration = "0s"
    """Least time between two grows of this service, as a duration. Growing is otherwise as fast as signals are fresh."""
    shrink: Duration = "5m"
    """How long less must have been enough before replicas are given up, as a duration."""

    @property
    def grow_seconds(self) -> float:
        """`grow` in seconds."""
        return parse_duration(self.grow, "spec.capacity.cooldown.grow")

    @property
    def shrink_seconds(self) -> float:
        """`shrink` in seconds."""
        return parse_duration(self.shrink, "spec.capacity.cooldown.shrink")


class CapacitySpec(ApiModel):
    """What capacity decisions may do for this service."""

    model_config = rules(
        rule("!has(self.interval) || (duration(self.interval) >= duration('1s') && duration(self.interval) <= duration('1h'))",
             "capacity.interval must lie between 1s and 1h", field_path=".interval"),
    )  # fmt: skip

    mode: CapacityMode = CapacityMode.AUTO
    """Auto (decide and act), Recommend (decide and explain, change nothing) or Off (keep the counts there are; no
    decisions). Put Off in quotes, because YAML reads it as false."""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Rank among the services that share the pools: the higher is served first when GPUs are short."""
    max_gpus: Annotated[int, Field(ge=1, le=100_000)] | None = Field(default=None, alias="maxGPUs")
    """Most GPUs that this service may hold in all, a count. When left out: what the pools hold."""
    max_cost_per_hour: PositiveQuantity | None = None
    """Most that this service's GPUs may cost, in USD per hour, such as `\"42.50\"`. When left out: no limit."""
    interval: Duration | None = None
    """Least time between two decisions on this service, as a duration. When left out: every round of the operator
    (15s unless it was installed with another interval)."""
    cooldown: CooldownSpec = CooldownSpec()
    """Waits between changes."""
    flips: Switch = Switch.AUTO
    """Auto lets a running replica change phase without reloading its weights, where engine and version can; Disabled never
    does."""
    bounded_queues: Switch = Switch.AUTO
    """Auto limits the prompt tokens a prefill replica may hold back to what it can compute inside the TTFT target, where the
    engine has such a limit: overload is then refused early (HTTP 503) instead of making everyone late. Disabled leaves queues
    unbounded."""

    @property
    def max_cost_usd_per_hour(self) -> float | None:
        """`maxCostPerHour` as a number."""
        return None if self.max_cost_per_hour is None else parse_quantity(self.max_cost_per_hour, "spec.capacity.maxCostPerHour")

    @property
    def interval_seconds(self) -> float | None:
        """`interval` in seconds; None: every round."""
        return None if self.interval is None else parse_duration(self.interval, "spec.capacity.interval")


class RolloutSpec(ApiModel):
    """How a new template replaces the old one, over both phases together."""

    model_config = rules(
        rule("!(string(self.maxUnavailable) in ['0', '0%'] && string(self.maxSurge) in ['0', '0%'])",
             "rollout.maxUnavailable and rollout.maxSurge cannot both be 0: nothing could ever be replaced; set one to 1",
             field_path=".maxUnavailable"),
        rule("duration(self.progressDeadline) >= duration('10s')",
             "rollout.progressDeadline must be at least 10s: a model has to load", field_path=".progressDeadline"),
    )  # fmt: skip

    max_unavailable: CountOrPercent = "1"
    """Replicas of each phase that may be missing during a rollout: a count, or a percentage rounded down. On a full pool one is
    removed first, inside this allowance."""
    max_surge: CountOrPercent = "1"
    """Replicas of each phase that may exist on top during a rollout, where GPUs are free: a count, or a percentage rounded up."""
    progress_deadline: Duration = "20m"
    """How long a rollout may go without a new replica becoming ready, as a duration; then both phases roll back together."""

    def max_unavailable_of(self, replicas: int) -> int:
        """Allowance for a phase of that many replicas."""
        return parse_count_or_percent(self.max_unavailable, replicas, round_up=False, field="spec.rollout.maxUnavailable")

    def max_surge_of(self, replicas: int) -> int:
        """Replicas on top for a phase of that many."""
        return parse_count_or_percent(self.max_surge, replicas, round_up=True, field="spec.rollout.maxSurge")

    @property
    def progress_deadline_seconds(self) -> float:
        """`progressDeadline` in seconds."""
        return parse_duration(self.progress_deadline, "spec.rollout.progressDeadline")


class DrainSpec(ApiModel):
    """How replicas are taken out of service."""

    model_config = rules(
        rule("duration(self.grace) >= duration('1s') && duration(self.grace) <= duration('24h')",
             "drain.grace must lie between 1s and 24h", field_path=".grace"),
    )  # fmt: skip

    grace: Duration = "5m"
    """Longest time a replica that is out of routing may take to finish its answers, as a duration; after that they are cut
    off."""

    @property
    def grace_seconds(self) -> float:
        """`grace` in seconds."""
        return parse_duration(self.grace, "spec.drain.grace")


class MetricsSpec(ApiModel):
    """How the service is observed."""

    source: MetricsSource = MetricsSource.PROMETHEUS
    """Prometheus (as the operator was configured), or Pods (the operator scrapes this service's engine pods itself: signals are
    five seconds fresh where Prometheus is slow)."""
    pod_monitor: Switch = Switch.AUTO
    """Auto creates a PodMonitor for the engine and router pods where the Prometheus operator is installed; Disabled never
    does."""
