"""Models, traffic, targets, step times and capacity as plain values."""

from __future__ import annotations

import math
from dataclasses import dataclass

from equipoise.api.identity import Phase, Precision


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What sizing needs to know of a model. `active_parameters` differs from `parameters` for mixtures of experts.

    `embedding_parameters` is one token table (vocabulary x hidden size): kept in 16 bits whatever the precision, and a step
    reads only rows of it. A model whose output layer has weights of its own (`tied_embeddings` false) holds a second table that
    every step reads.
    """

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
    embedding_parameters: float = 0.0
    tied_embeddings: bool = False
    kv_bytes_override: int | None = None  # for attention that keeps something else than keys and values: latent attention (MLA)
    required_context_tokens: int = 0  # a replica must hold KV of one request this long: the user's maxContext, 0 without one
    measured_weight_bytes: tuple[tuple[Precision, float], ...] = ()  # of a published checkpoint, where the formula does not hold

    @property
    def kv_bytes_per_token(self) -> int:
        """Key and value of one token over all layers, two bytes an element (the engines' default KV precision)."""
        if self.kv_bytes_override is not None:
            return self.kv_bytes_override
        return 2 * 2 * self.layers * self.kv_heads * self.head_dim

    @property
    def is_mixture_of_experts(self) -> bool:
        """Whether a token uses only part of the weights."""
        return self.active_parameters < self.parameters


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

    def rounded(self, step: float = 0.02) -> Workload:
        """The same traffic to the nearest `step` (2 %), so that noise changes neither capacities nor what is cached for them."""

        def near(value: float) -> float:
            return value if value <= 0 else math.exp(round(math.log(value) / math.log1p(step)) * math.log1p(step))

        return Workload(
            mean_prompt_tokens=near(self.mean_prompt_tokens),
            mean_output_tokens=near(self.mean_output_tokens),
            # What is missed is rounded, not what is hit: from 95 to 96 % of hits the work falls by a fifth.
            prefix_hit_share=1.0 - near(1.0 - self.prefix_hit_share),
            prompt_tokens_second_moment=near(squared) if (squared := self.prompt_tokens_second_moment) is not None else None,
        )


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
    binds: str  # what limits it: compute, target, kv memory, batch limit, network
    source: str
    utilisation: float = 1.0  # what `tokens_per_second` is of the replica's peak: the rest is room for queueing at the percentile
    attainable_share: float = 1.0  # requests short enough for an idle replica to meet the target; more replicas do not raise it


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a device or shape cannot serve a phase, as a sentence with its numbers."""

    reason: str
    message: str
