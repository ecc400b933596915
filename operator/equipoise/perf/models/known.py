"""Configurations of common open models, as their config.json files on the Hugging Face hub state them, and the sizes their
cards state.

One row: hub id; parameters in all and for one token (as published); layers, hidden size, attention heads, KV heads, head width,
width of the feed-forward block (of one expert in mixtures), vocabulary, tied tables, longest context. tests/unit/perf recompute
every size from the row, so a slip in a figure shows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from equipoise.api.identity import Precision


@dataclass(frozen=True, slots=True)
class Known:
    """One model. `more` holds further fields of its config.json (experts, latent attention, quantisation)."""

    hub_id: str
    parameters: float
    active_parameters: float
    layers: int
    hidden_size: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocabulary: int
    tied: bool
    context: int
    more: dict[str, Any] = field(default_factory=dict)
    weight_bytes: tuple[
        tuple[Precision, float], ...
    ] = ()  # of the published checkpoint, where blocks and scales make the formula wrong

    def config(self) -> dict[str, Any]:
        """The row in the words of config.json."""
        return {
            "num_hidden_layers": self.layers,
            "hidden_size": self.hidden_size,
            "num_attention_heads": self.attention_heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.feed_forward,
            "vocab_size": self.vocabulary,
            "tie_word_embeddings": self.tied,
            "max_position_embeddings": self.context,
            **self.more,
        }


def _dense(hub_id: str, size: float, *figures: int, tied: bool = False, context: int, **more: Any) -> Known:
    layers, hidden, heads, kv_heads, width, feed_forward, vocabulary = figures
    return Known(hub_id, size, size, layers, hidden, heads, kv_heads, width, feed_forward, vocabulary, tied, context, more)


def _experts(hub_id: str, sizes: tuple[float, float], *figures: int, count: int, used: int, context: int, **more: Any) -> Known:
    weights = more.pop("weight_bytes", ())
    fields = {"num_experts": count, "num_experts_per_tok": used, **more}
    layers, hidden, heads, kv_heads, width, feed_forward, vocabulary = figures
    return Known(
        hub_id, *sizes, layers, hidden, heads, kv_heads, width, feed_forward, vocabulary, False, context, fields, weights
    )


_MXFP4: Final = {"quantization_config": {"quant_method": "mxfp4"}}
_FP8: Final = {"quantization_config": {"quant_method": "fp8"}}
_LATENT: Final = {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}

KNOWN: Final[tuple[Known, ...]] = (
    _dense("meta-llama/Llama-3.1-8B", 8.03e9, 32, 4096, 32, 8, 128, 14336, 128256, context=131072),
    _dense("meta-llama/Llama-3.1-70B", 70.55e9, 80, 8192, 64, 8, 128, 28672, 128256, context=131072),
    _dense("meta-llama/Llama-3.1-405B", 405.85e9, 126, 16384, 128, 8, 128, 53248, 128256, context=131072),
    _dense("meta-llama/Llama-3.2-1B", 1.236e9, 16, 2048, 32, 8, 64, 8192, 128256, tied=True, context=131072),
    _dense("meta-llama/Llama-3.2-3B", 3.213e9, 28, 3072, 24, 8, 128, 8192, 128256, tied=True, context=131072),
    _dense("meta-llama/Llama-3.3-70B", 70.55e9, 80, 8192, 64, 8, 128, 28672, 128256, context=131072),
    _dense("meta-llama/Llama-3-8B", 8.03e9, 32, 4096, 32, 8, 128, 14336, 128256, context=8192),
    _dense("meta-llama/Llama-3-70B", 70.55e9, 80, 8192, 64, 8, 128, 28672, 128256, context=8192),
    _dense("meta-llama/Llama-2-7b", 6.74e9, 32, 4096, 32, 32, 128, 11008, 32000, context=4096),
    _dense("meta-llama/Llama-2-13b", 13.02e9, 40, 5120, 40, 40, 128, 13824, 32000, context=4096),
    _dense("meta-llama/Llama-2-70b", 68.98e9, 80, 8192, 64, 8, 128, 28672, 32000, context=4096),
    _dense("Qwen/Qwen2.5-0.5B", 0.494e9, 24, 896, 14, 2, 64, 4864, 151936, tied=True, context=32768),
    _dense("Qwen/Qwen2.5-1.5B", 1.544e9, 28, 1536, 12, 2, 128, 8960, 151936, tied=True, context=32768),
    _dense("Qwen/Qwen2.5-3B", 3.086e9, 36, 2048, 16, 2, 128, 11008, 151936, tied=True, context=32768),
    _dense("Qwen/Qwen2.5-7B", 7.616e9, 28, 3584, 28, 4, 128, 18944, 152064, context=32768),
    _dense("Qwen/Qwen2.5-14B", 14.77e9, 48, 5120, 40, 8, 128, 13824, 152064, context=32768),
    _dense("Qwen/Qwen2.5-32B", 32.76e9, 64, 5120, 40, 8, 128, 27648, 152064, context=32768),
    _dense("Qwen/Qwen2.5-72B", 72.71e9, 80, 8192, 64, 8, 128, 29568, 152064, context=32768),
    _dense("Qwen/Qwen3-0.6B", 0.596e9, 28, 1024, 16, 8, 128, 3072, 151936, tied=True, context=40960),
    _dense("Qwen/Qwen3-1.7B", 1.72e9, 28, 2048, 16, 8, 128, 6144, 151936, tied=True, context=40960),
    _dense("Qwen/Qwen3-4B", 4.02e9, 36, 2560, 32, 8, 128, 9728, 151936, tied=True, context=40960),
    _dense("Qwen/Qwen3-8B", 8.19e9, 36, 4096, 32, 8, 128, 12288, 151936, context=40960),
    _dense("Qwen/Qwen3-14B", 14.77e9, 40, 5120, 40, 8, 128, 17408, 151936, context=40960),
    _dense("Qwen/Qwen3-32B", 32.76e9, 64, 5120, 64, 8, 128, 25600, 151936, context=40960),
    _dense("mistralai/Mistral-7B", 7.25e9, 32, 4096, 32, 8, 128, 14336, 32768, context=32768),
    _dense("mistralai/Mistral-Nemo-2407", 12.25e9, 40, 5120, 32, 8, 128, 14336, 131072, context=131072),
    _dense("mistralai/Mistral-Small-24B-2501", 23.57e9, 40, 5120, 32, 8, 128, 32768, 131072, context=32768),
    _dense("mistralai/Mistral-Small-3.1-24B-2503", 24.01e9, 40, 5120, 32, 8, 128, 32768, 131072, context=131072),
    _dense("mistralai/Mistral-Small-3.2-24B-2506", 24.01e9, 40, 5120, 32, 8, 128, 32768, 131072, context=131072),
    _dense("mistralai/Mistral-Large-2407", 122.6e9, 88, 12288, 96, 8, 128, 28672, 32768, context=131072),
    _dense("google/gemma-2-2b", 2.614e9, 26, 2304, 8, 4, 256, 9216, 256000, tied=True, context=8192),
    _dense("google/gemma-2-9b", 9.242e9, 42, 3584, 16, 8, 256, 14336, 256000, tied=True, context=8192),
    _dense("google/gemma-2-27b", 27.23e9, 46, 4608, 32, 16, 128, 36864, 256000, tied=True, context=8192),
    _dense("google/gemma-3-1b", 1.0e9, 26, 1152, 4, 1, 256, 6912, 262144, tied=True, context=32768),
    _dense("google/gemma-3-4b", 3.88e9, 34, 2560, 8, 4, 256, 10240, 262208, tied=True, context=131072),
    _dense("google/gemma-3-12b", 11.77e9, 48, 3840, 16, 8, 256, 15360, 262208, tied=True, context=131072),
    _dense("google/gemma-3-27b", 27.01e9, 62, 5376, 32, 16, 128, 21504, 262208, tied=True, context=131072),
    _dense("microsoft/phi-4", 14.66e9, 40, 5120, 40, 10, 128, 17920, 100352, context=16384),
    _dense("microsoft/Phi-4-mini", 3.84e9, 32, 3072, 24, 8, 128, 8192, 200064, tied=True, context=131072),
    _dense("microsoft/Phi-3.5-mini", 3.82e9, 32, 3072, 32, 32, 96, 8192, 32064, context=131072),
    _dense("TinyLlama/TinyLlama-1.1B", 1.1e9, 22, 2048, 32, 4, 64, 5632, 32000, context=2048),
    _dense("facebook/opt-125m", 0.125e9, 12, 768, 12, 12, 64, 3072, 50272, tied=True, context=2048, model_type="opt"),
    _experts("mistralai/Mixtral-8x7B", (46.7e9, 12.88e9), 32, 4096, 32, 8, 128, 14336, 32000, count=8, used=2, context=32768),
    _experts("mistralai/Mixtral-8x22B", (140.6e9, 39.15e9), 56, 6144, 48, 8, 128, 16384, 32768, count=8, used=2, context=65536),
    _experts("Qwen/Qwen3-30B-A3B", (30.53e9, 3.35e9), 48, 2048, 32, 4, 128, 768, 151936, count=128, used=8, context=40960),
    _experts("Qwen/Qwen3-235B-A22B", (235.1e9, 22.2e9), 94, 4096, 64, 4, 128, 1536, 151936, count=128, used=8, context=40960),
    _experts("Qwen/Qwen3-Coder-30B-A3B", (30.53e9, 3.35e9), 48, 2048, 32, 4, 128, 768, 151936, count=128, used=8, context=262144),
    _experts("Qwen/Qwen3-Coder-480B-A35B", (480.2e9, 35.5e9), 62, 6144, 96, 8, 128, 2560, 151936, count=160, used=8,
             context=262144),
    _experts("openai/gpt-oss-20b", (20.91e9, 4.19e9), 24, 2880, 64, 8, 64, 2880, 201088, count=32, used=4, context=131072,
             weight_bytes=((Precision.INT4, 13.8e9),), **_MXFP4),
    _experts("openai/gpt-oss-120b", (116.8e9, 5.7e9), 36, 2880, 64, 8, 64, 2880, 201088, count=128, used=4, context=131072,
             weight_bytes=((Precision.INT4, 65.2e9),), **_MXFP4),
    _experts("deepseek-ai/DeepSeek-V3", (671e9, 37.5e9), 61, 7168, 128, 128, 128, 18432, 129280, count=256, used=8,
             context=163840, moe_intermediate_size=2048, n_shared_experts=1, first_k_dense_replace=3, **_LATENT, **_FP8),
    _experts("moonshotai/Kimi-K2", (1026e9, 32.9e9), 61, 7168, 64, 64, 128, 18432, 163840, count=384, used=8, context=131072,
             moe_intermediate_size=2048, n_shared_experts=1, first_k_dense_replace=1, **_LATENT, **_FP8),
)  # fmt: skip

# Other names of the same architecture and size, as they stand on the hub, without the endings that say how it was trained.
ALIASES: Final[dict[str, str]] = {
    "deepseek-r1": "deepseek-v3",
    "deepseek-r1-0528": "deepseek-v3",
    "deepseek-v3-0324": "deepseek-v3",
    "deepseek-v3.1": "deepseek-v3",
    "deepseek-r1-distill-llama-8b": "llama-3.1-8b",
    "deepseek-r1-distill-llama-70b": "llama-3.3-70b",
    "deepseek-r1-distill-qwen-1.5b": "qwen2.5-1.5b",
    "deepseek-r1-distill-qwen-7b": "qwen2.5-7b",
    "deepseek-r1-distill-qwen-14b": "qwen2.5-14b",
    "deepseek-r1-distill-qwen-32b": "qwen2.5-32b",
    "deepseek-r1-0528-qwen3-8b": "qwen3-8b",
    "qwq-32b": "qwen2.5-32b",
    "mistral-small-3-24b": "mistral-small-24b-2501",
    "kimi-k2-0905": "kimi-k2",
}
