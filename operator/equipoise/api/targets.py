"""spec.targets: what latency the service owes its users."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from equipoise.api.base import ApiModel, rule, rules
from equipoise.api.values import Duration, parse_duration

Percent = Annotated[int, Field(ge=1, le=100)]


class TargetsSpec(ApiModel):
    """Latency targets; requests that meet both TTFT and TPOT are goodput."""

    model_config = rules(
        rule("duration(self.ttft) > duration('0s') && duration(self.ttft) <= duration('10m')",
             "ttft must be above 0 and at most 10m, such as 500ms", field_path=".ttft"),
        rule("duration(self.tpot) > duration('0s') && duration(self.tpot) <= duration('10s')",
             "tpot must be above 0 and at most 10s, such as 50ms", field_path=".tpot"),
        rule("duration(self.ttft) > duration(self.tpot)",
             "ttft must be longer than tpot: the first token takes a whole prefill, the others one step each; are they swapped?",
             field_path=".ttft"),
        rule("has(self.timeToPublish) == has(self.thinkingTokens)",
             "timeToPublish and thinkingTokens belong together: set both or neither", field_path=".timeToPublish"),
        rule("!has(self.timeToPublish) || duration(self.timeToPublish) > duration(self.ttft)",
             "timeToPublish must be longer than ttft: thinking starts with the first token", field_path=".timeToPublish"),
    )  # fmt: skip

    ttft: Duration
    """Time to first token, as a duration such as `500ms`: from the request's arrival to its first output token."""
    tpot: Duration
    """Time per output token after the first, as a duration such as `50ms`."""
    percentile: Annotated[int, Field(ge=50, le=99)] = 95
    """Share of requests, in per cent, that must meet each target."""
    goodput: Percent | None = None
    """Share of requests, in per cent, that must meet both targets at once for the condition TargetsMet. Without it TargetsMet
    judges each phase on its own, at `percentile`."""
    time_to_publish: Duration | None = None
    """Time until the visible answer begins, as a duration such as `8s`, for models that think first. No engine reports it, so it
    is kept by way of TPOT: the TPOT that is held is at most (timeToPublish - ttft) / thinkingTokens."""
    thinking_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Tokens of thinking before the visible answer that timeToPublish has to cover; a high percentile of your traffic."""

    @property
    def ttft_seconds(self) -> float:
        """The TTFT target in seconds."""
        return parse_duration(self.ttft, "spec.targets.ttft")

    @property
    def tpot_seconds(self) -> float:
        """The TPOT to hold, in seconds: the target, or less where timeToPublish asks for less."""
        tpot = parse_duration(self.tpot, "spec.targets.tpot")
        if self.time_to_publish is None or self.thinking_tokens is None:
            return tpot
        thinking_seconds = parse_duration(self.time_to_publish, "spec.targets.timeToPublish") - self.ttft_seconds
        return min(tpot, thinking_seconds / self.thinking_tokens)
