"""Moving KV from a prefill replica to a decode replica."""

from __future__ import annotations

from typing import Final

from equipoise.perf.types import ModelFacts

LINK_UTILISATION: Final = 0.9  # as for any queue: beyond it transfers wait for one another


def kv_transfer_seconds(model: ModelFacts, tokens: float, bytes_per_second: float) -> float:
    """Time to move the KV of `tokens` over the link, alone on it.

    Splitwise overlaps all but 5-8 ms of it with prefill; none is counted as overlapped here, for the connectors of vLLM and
    SGLang send when the prompt is done.
    """
    return tokens * model.kv_bytes_per_token / bytes_per_second


def most_prompt_tokens_per_second(model: ModelFacts, bytes_per_second: float) -> float:
    """Prompt tokens/s whose KV the link carries."""
    return LINK_UTILISATION * bytes_per_second / model.kv_bytes_per_token
