"""Models, traffic, targets, step times and capacity as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from equipoise.api.identity import Phase, Precision


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What sizing needs to know of a model. `active_parameters` differs from `parameters` for mixtures of experts."""

    name: str
    parameters: float
    active_parameters: float
    layers: int
    hidden_size: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    max_context_tokens: int
    precisions: tuple[Precision, ...] = (Precision.BF16,)
    source: str = ""

    @property
    def kv_bytes_per_token(self) -> int:
        """Key and value of one token over all layers, two bytes an element (the engines' default KV precision)."""
        return 2 * 2 * self.layers * self.kv_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class Workload:
    """The shape of the traffic: mean lengths and the share of prompt tokens that the prefix cache answers."""

    mean_prompt_tokens: float
    mean_output_tokens: float
    prefix_hit_share: float = 0.0
    prompt_tokens_second_moment: float | None = None  # mean of squared lengths; None: exponential-like, 2 x mean^2

    @property
    def uncached_prompt_tokens(self) -> float:
        """Mean prompt tokens that prefill has to compute."""
        return self.mean_prompt_tokens * (1.0 - self.prefix_hit_share)


@dataclass(frozen=True, slots=True)
class Targets:
    """Latency targets in seconds, to be met by `percentile` per cent of requests."""

    ttft_seconds: float
    tpot_seconds: float
    percentile: float = 95.0


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Step times of one replica in DistServe's form.

    prefill of one batch: a + b * sum(L) + c * sum(L^2); one decode step: a + b * batch + c * sum(context). Seconds and tokens.
    """

    prefill_constant: float
    prefill_per_token: float
    prefill_per_token_squared: float
    decode_constant: float
    decode_per_sequence: float
    decode_per_context_token: float
    source: str

    def prefill_seconds(self, tokens: float, tokens_squared: float) -> float:
        """One prefill step over prompts with these sums."""
        return self.prefill_constant + self.prefill_per_token * tokens + self.prefill_per_token_squared * tokens_squared

    def decode_step_seconds(self, batch: float, context_tokens: float) -> float:
        """One decode step of `batch` sequences that hold `context_tokens` KV tokens together."""
        return self.decode_constant + self.decode_per_sequence * batch + self.decode_per_context_token * context_tokens


@dataclass(frozen=True, slots=True)
class ReplicaCapacity:
    """What one ready replica sustains inside the targets.

    `tokens_per_second` is uncached prompt tokens/s for prefill, output tokens/s for decode. `service_seconds` is the
    unloaded time of the phase for a mean request: prefill of the mean prompt, or one decode step at the largest batch.
    """

    phase: Phase
    tokens_per_second: float
    max_batch: int
    kv_tokens: int
    service_seconds: float
    binds: str  # what limits it: compute, bandwidth, kv memory, target
    source: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a device or shape cannot serve a phase, as a sentence with its numbers."""

    reason: str
    message: str
