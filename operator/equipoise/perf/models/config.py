"""Facts from a Hugging Face config.json, by arithmetic on the architecture. Pure: the file is read by whoever has it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from equipoise.api.identity import Precision
from equipoise.perf.types import ModelFacts

# Model types whose feed-forward block has two matrices (up, down) instead of three (gate, up, down).
_TWO_MATRIX_TYPES: Final = frozenset({"opt", "gpt2", "gpt_neox", "gptj", "falcon", "starcoder2", "phi"})
# Types that tie input and output tables when the file does not say: the defaults of their configuration classes.
_TIED_BY_DEFAULT: Final = frozenset({"gemma", "gemma2", "gemma3", "gemma3_text", "opt", "gpt2", "cohere", "cohere2", "falcon"})


@dataclass(frozen=True, slots=True)
class _Config:
    data: Mapping[str, Any]
    name: str

    def integer(self, *keys: str, default: int | None = None) -> int:
        """The first of these fields that is a positive number; ValueError names them when there is none."""
        for key in keys:
            value = self.data.get(key)
            if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
                return int(value)
        if default is not None:
            return default
        found = {key: self.data[key] for key in keys if key in self.data}
        raise ValueError(
            f"config.json of {self.name}: needs {' or '.join(keys)} as a positive number, found {found or 'nothing'}"
        )


def facts_from_config(config: Mapping[str, Any] | str, name: str = "model") -> ModelFacts:
    """Facts of the model that this config.json describes: dense, grouped-query, mixture of experts or latent attention
    (DeepSeek).

    Vision towers are not counted (1-2 % of such models). ValueError names the field that is missing or ill-typed.
    """
    data = json.loads(config) if isinstance(config, str) else config
    if not isinstance(data, Mapping):
        raise ValueError(f"config.json of {name}: expected an object, found {type(data).__name__}")
    text = data.get("text_config")
    outer = data
    if isinstance(text, Mapping):
        data = {**data, **text}
    fields = _Config(data, name)
    layers = fields.integer("num_hidden_layers", "n_layer")
    hidden = fields.integer("hidden_size", "n_embd")
    heads = fields.integer("num_attention_heads", "n_head")
    kv_heads = fields.integer("num_key_value_heads", default=heads)
    head_dim = fields.integer("head_dim", default=hidden // heads)
    vocabulary = fields.integer("vocab_size")
    tied = bool(
        data.get("tie_word_embeddings", outer.get("model_type") in _TIED_BY_DEFAULT or data.get("model_type") in _TIED_BY_DEFAULT)
    )
    table = float(vocabulary * hidden)
    latent = fields.integer("kv_lora_rank", default=0)
    attention = _latent_attention(fields, hidden, heads, latent) if latent else hidden * head_dim * (2 * heads + 2 * kv_heads)
    total, active = _feed_forward(fields, layers, hidden)
    shared = layers * attention + table * (1 if tied else 2)
    return ModelFacts(
        name=name,
        parameters=shared + total,
        active_parameters=shared + active,
        layers=layers,
        hidden_size=hidden,
        attention_heads=heads,
        kv_heads=1 if latent else kv_heads,
        head_dim=fields.integer("v_head_dim", default=head_dim) if latent else head_dim,
        max_context_tokens=fields.integer("max_position_embeddings", "n_positions", default=8192),
        precisions=_precisions(data.get("quantization_config")),
        source="config.json",
        embedding_parameters=table,
        tied_embeddings=tied,
        # Latent attention keeps one compressed vector and the rotary part of the key per layer, not keys and values.
        kv_bytes_override=2 * layers * (latent + fields.integer("qk_rope_head_dim", default=0)) if latent else None,
    )


def _latent_attention(fields: _Config, hidden: int, heads: int, latent: int) -> int:
    rotary = fields.integer("qk_rope_head_dim")
    plain = fields.integer("qk_nope_head_dim")
    value = fields.integer("v_head_dim")
    query_rank = fields.integer("q_lora_rank", default=0)
    query = query_rank * (hidden + heads * (plain + rotary)) if query_rank else hidden * heads * (plain + rotary)
    return query + hidden * (latent + rotary) + latent * heads * (plain + value) + heads * value * hidden


def _feed_forward(fields: _Config, layers: int, hidden: int) -> tuple[float, float]:
    """Parameters of all feed-forward blocks: in all, and those that one token uses."""
    matrices = 2 if fields.data.get("model_type") in _TWO_MATRIX_TYPES else 3
    dense_width = fields.integer("intermediate_size", "ffn_dim", "n_inner", default=4 * hidden)
    dense = matrices * hidden * dense_width
    experts = fields.integer("num_local_experts", "num_experts", "n_routed_experts", default=0)
    if not experts:
        return float(layers * dense), float(layers * dense)
    per_token = fields.integer("num_experts_per_tok", "experts_per_token", default=1)
    width = fields.integer("moe_intermediate_size", default=dense_width)
    shared_width = fields.integer(
        "shared_expert_intermediate_size", default=fields.integer("n_shared_experts", default=0) * width
    )
    first_dense = fields.integer("first_k_dense_replace", default=0)
    listed = fields.data.get("mlp_only_layers")
    dense_layers = min(layers, first_dense + (len(listed) if isinstance(listed, list) else 0))
    sparse_step = fields.integer("decoder_sparse_step", default=1)
    sparse_layers = (layers - dense_layers) // sparse_step
    router = hidden * experts
    one, always = matrices * hidden * width, matrices * hidden * shared_width + router
    rest = (layers - sparse_layers) * dense
    return float(rest + sparse_layers * (experts * one + always)), float(rest + sparse_layers * (per_token * one + always))


def _precisions(quantisation: object) -> tuple[Precision, ...]:
    """Precision of the checkpoint; 16 bits when it says nothing."""
    if not isinstance(quantisation, Mapping):
        return (Precision.BF16,)
    text = json.dumps(quantisation).lower()
    method = str(quantisation.get("quant_method", "")).lower()
    if "fp8" in method or ('"num_bits": 8' in text and '"type": "float"' in text) or '"quant_algo": "fp8"' in text:
        return (Precision.FP8,)
    if method in {"awq", "gptq", "mxfp4", "bitsandbytes"} or '"num_bits": 4' in text or "fp4" in text:
        bits = quantisation.get("bits", 4)
        return (Precision.INT4,) if bits == 4 or method == "mxfp4" else (Precision.FP8,)
    return (Precision.BF16,)
