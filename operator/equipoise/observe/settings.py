"""What an installation may tune about observing. Every default says where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields


@dataclass(frozen=True, slots=True)
class LabelNames:
    """Names of the labels that tell whose series it is, as the scrape configuration writes them.

    The defaults are what a PodMonitor with `podTargetLabels`, or a labelmap over `__meta_kubernetes_pod_label_(.+)`, makes
    of the pod labels of `equipoise.api.labels`.
    """

    namespace: str = "namespace"
    pod: str = "pod"
    service: str = "equipoise_dev_service"
    role: str = "llm_d_ai_role"
    variant: str = "equipoise_dev_variant"
    model: str = "model_name"  # written by the engine, not by the scrape


@dataclass(frozen=True, slots=True)
class ObserveSettings:
    """Windows, freshness and thresholds.

    `extra_matchers` are label values that every query asks for, such as `{"cluster": "eu-1"}` where one store holds several
    clusters. ValueError names the field when a value makes no sense.
    """

    minimum_window_seconds: float = 15.0  # shorter windows hold too few requests to tell a tail
    maximum_window_seconds: float = 300.0
    scrapes_per_window: float = 4.0  # Prometheus' own advice for rate(): survive one lost scrape and still see two
    stale_scrapes: float = 3.0  # a pod without a sample for so many intervals is not seen any more
    minimum_stale_seconds: float = 10.0
    default_interval_seconds: float = 15.0  # until an interval has been learned
    probe_seconds: float = 120.0  # over which the interval is learned: four samples at 30 s
    minimum_samples: float = 5.0  # requests behind a latency; fewer say nothing about a percentile
    warm_up_seconds: float = (
        30.0  # the first request of each pair pays the connection (about 5 s per new pair, llm-d's documentation)
    )
    minimum_coverage: float = 0.5  # least share of ready pods that must be sampled before sums are scaled up to all of them
    maximum_window_classes: int = 3  # services scraped at different intervals: how many different windows one round may ask for
    labels: LabelNames = field(default_factory=LabelNames)
    extra_matchers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, int | float) and not value > 0 and item.name != "warm_up_seconds":
                raise ValueError(f"observe settings: {item.name} is {value}, but must be above 0")
        if self.warm_up_seconds < 0:
            raise ValueError(f"observe settings: warm_up_seconds is {self.warm_up_seconds}, but must not be negative")
        if self.maximum_window_seconds < self.minimum_window_seconds:
            raise ValueError(
                f"observe settings: maximum_window_seconds {self.maximum_window_seconds} is below"
                f" minimum_window_seconds {self.minimum_window_seconds}"
            )
        if self.minimum_coverage > 1:
            raise ValueError(f"observe settings: minimum_coverage is {self.minimum_coverage}, but is a share and at most 1")
