"""Figures of the control law, each with its reason and source. Callers of decide() may override any of them by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Settings:
    """All figures of one round. Utilisations are demand / capacity, where capacity already leaves room for queueing.

    The values marked (notes) come from a sketch simulator of eight H100 with Llama-3.1-8B: see `docs/concepts/deciding.md`.
    """

    # Demand
    backlog_drain_seconds: float = 30.0  # queued work is added to demand as if it had to be gone in this time (notes)
    average_requests: float = 200.0  # a demand is averaged over this many requests: chance is then a tenth of it
    smoothing_seconds: float = 60.0  # time constant of the forecast's level while only noise is seen
    trend_seconds: float = 300.0  # time constant of the trend: slower than the level, or noise becomes a forecast
    shift_deviations: float = 3.0  # a step beyond this many standard deviations is a shift, taken at once
    forecast_deviations: float = 1.0  # upper quantile of the forecast, in standard deviations: about the 84th percentile
    forecast_most_growth: float = 1.0  # a trend may at most double the level: extrapolation is trusted no further
    default_prompt_tokens: float = 1155.0  # until lengths are observed: Azure's conversation trace of 2023
    default_output_tokens: float = 211.0

    # Sizing
    headroom: float = 1.0  # queueing room is in the capacity, forecast error in the upper quantile: nothing is left to add
    cover_tolerance: float = (
        0.03  # a phase loaded this much above its capacity counts as covered: one replica must not hang on noise
    )
    shrink_margin: float = 0.08  # what stays after a shrink exceeds the window's highest need by this: no growing back at once

    return_dwell_factor: float = (
        2.0  # replicas that cannot flip stay for the mix before, so many times the demand's dwell (simulated)
    )

    # Trim
    trim_rounds: float = 3.0  # rounds in a row below target before the floor rises: a single bad window is noise
    trim_step: float = 0.10  # up, per round
    trim_most: float = 2.0
    trim_least_utilisation: float = 0.4  # below it a phase has room for twice its work: more replicas would mend nothing
    trim_good_seconds: float = 300.0  # good for this long before the floor sinks
    trim_decay_per_minute: float = 0.04  # from 1.5 to 1.0 in ten minutes: a wrong floor is paid for as long (simulated)

    # Flips
    flip_utilisation: float = 0.75  # act from here on (notes)
    flip_gain: float = 0.10  # and only for a larger utilisation at least this much lower (notes)
    flip_seconds: float = 1.0  # what a change of labels takes to reach the routers (measured on a real pair)

    # Cold moves
    startup_seconds: float = 120.0  # until the service's own pods have shown theirs
    drain_seconds: float = 30.0  # a donor's answers in progress, before its GPUs are free
    confirm_share: float = 0.15  # a cold move must be wanted for this share of its start-up time, two rounds at least (simulated)
    worth_margin: float = 1.2  # gain must exceed loss by this factor: the dwell is a guess (simulated)
    dwell_seconds: float = 900.0  # how long a demand is expected to last, until the service has shown shifts of its own
    change_price_hours: float = 0.25  # a cold change costs this many hours of a replica, so that small savings move nothing

    # Waiting
    pending_deadline_seconds: float = 300.0  # a pod without a node for this long is given up
    pending_retry_seconds: float = 600.0  # and its variant is left alone for this long

    @classmethod
    def from_mapping(cls, overrides: Mapping[str, float]) -> Settings:
        """Defaults with overrides. ValueError names an unknown setting and lists the known ones."""
        known = {entry.name for entry in fields(cls)}
        unknown = sorted(set(overrides) - known)
        if unknown:
            raise ValueError(f"settings: {', '.join(unknown)} unknown; there are {', '.join(sorted(known))}")
        return cls(**{name: float(value) for name, value in overrides.items()})
