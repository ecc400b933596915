from __future__ import annotations

import json

import pytest

from equipoise.api.identity import Precision
from equipoise.api.model_source import Architecture
from equipoise.perf.models import facts_from_config, model_facts, model_name
from equipoise.perf.models.known import ALIASES, KNOWN, Known
from equipoise.perf.types import ModelFacts, Refusal


def facts(uri: str) -> ModelFacts:
    found = model_facts(uri)
    assert isinstance(found, ModelFacts), found
    return found


@pytest.mark.parametrize("row", KNOWN, ids=lambda row: row.hub_id)
def test_stated_sizes_follow_from_the_architecture(row: Known) -> None:
    computed = facts_from_config(row.config(), row.hub_id)
    # Vision towers are not counted (Mistral Small 3.1 and 3.2: 1.8 %).
    assert computed.parameters == pytest.approx(row.parameters, rel=0.02)
    assert computed.active_parameters == pytest.approx(row.active_parameters, rel=0.02)


@pytest.mark.parametrize(
    ("name", "kv_bytes"),
    [
        ("Llama-3.1-8B", 131_072),
        ("Qwen3-32B", 262_144),
        ("Llama-3.1-70B", 327_680),
        ("DeepSeek-V3", 70_272),  # 61 layers x (512 + 64) x 2 bytes: the paper's "70 KB per token"
        ("Llama-2-7b", 524_288),  # no grouped queries
    ],
)
def test_kv_bytes_per_token(name: str, kv_bytes: int) -> None:
    assert facts(f"hf://any/{name}").kv_bytes_per_token == kv_bytes


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("hf://meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("hf://meta-llama/Meta-Llama-3.1-8B-Instruct@main", "Llama-3.1-8B"),
        ("hf://meta-llama/Meta-Llama-3-70B-Instruct", "Llama-3-70B"),
        ("hf://meta-llama/Llama-2-7b-chat-hf", "Llama-2-7b"),
        ("pvc://models/llama/llama-3.1-8b-instruct", "Llama-3.1-8B"),
        ("s3://bucket/weights/Qwen2.5-7B-Instruct/", "Qwen2.5-7B"),
        ("hf://mistralai/Mistral-7B-Instruct-v0.3", "Mistral-7B"),
        ("hf://mistralai/Mixtral-8x7B-Instruct-v0.1", "Mixtral-8x7B"),
        ("hf://mistralai/Mistral-Small-24B-Instruct-2501", "Mistral-Small-24B-2501"),
        ("hf://google/gemma-3-27b-it", "gemma-3-27b"),
        ("hf://Qwen/Qwen3-30B-A3B-Thinking-2507", "Qwen3-30B-A3B"),
        ("hf://deepseek-ai/DeepSeek-R1", "DeepSeek-V3"),
        ("hf://deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "Llama-3.1-8B"),
        ("hf://TinyLlama/TinyLlama-1.1B-Chat-v1.0", "TinyLlama-1.1B"),
    ],
)
def test_usual_addresses_of_a_model_find_it(uri: str, name: str) -> None:
    assert facts(uri).name == name


@pytest.mark.parametrize(
    ("uri", "precision"),
    [
        ("hf://RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", Precision.FP8),
        ("hf://Qwen/Qwen3-32B-FP8", Precision.FP8),
        ("hf://Qwen/Qwen2.5-7B-Instruct-AWQ", Precision.INT4),
        ("hf://Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", Precision.INT4),
        ("hf://openai/gpt-oss-20b", Precision.INT4),
        ("hf://deepseek-ai/DeepSeek-V3", Precision.FP8),
        ("hf://Qwen/Qwen3-32B", Precision.BF16),
    ],
)
def test_precision_that_a_checkpoint_is_published_in(uri: str, precision: Precision) -> None:
    assert facts(uri).precisions == (precision,)


def test_every_alias_leads_to_a_known_model() -> None:
    names = {row.hub_id.rpartition("/")[2].lower() for row in KNOWN}
    assert set(ALIASES.values()) <= names
    assert not set(ALIASES) & names


def test_a_model_nobody_knows_says_what_to_write() -> None:
    refusal = model_facts("hf://acme/falcon-42b", Architecture(layers=60, hidden_size=8192))
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "UnknownModel"
    assert "spec.model.architecture lacks parameters, attentionHeads, kvHeads" in refusal.message


def test_architecture_alone_describes_a_model() -> None:
    given = Architecture(parameters="8.03G", layers=32, hidden_size=4096, attention_heads=32, kv_heads=8, max_context=16384)
    found = model_facts("file:///models/mine", given)
    assert isinstance(found, ModelFacts)
    assert (found.name, found.parameters, found.active_parameters) == ("mine", 8.03e9, 8.03e9)
    assert (found.head_dim, found.kv_bytes_per_token, found.max_context_tokens) == (128, 131_072, 16384)
    assert found.required_context_tokens == 16384


def test_architecture_corrects_the_catalogue() -> None:
    known = facts("hf://deepseek-ai/DeepSeek-V3")
    shorter = model_facts("hf://deepseek-ai/DeepSeek-V3", Architecture(max_context=8192))
    assert isinstance(shorter, ModelFacts)
    assert (shorter.max_context_tokens, shorter.kv_bytes_per_token) == (8192, known.kv_bytes_per_token)
    plain = model_facts("hf://deepseek-ai/DeepSeek-V3", Architecture(kv_heads=8))
    assert isinstance(plain, ModelFacts)
    assert plain.kv_bytes_override is None  # it is not the latent attention of the catalogue any more


def test_correcting_the_size_of_a_mixture_does_not_make_it_dense() -> None:
    corrected = model_facts("hf://Qwen/Qwen3-30B-A3B", Architecture(parameters="31G"))
    assert isinstance(corrected, ModelFacts)
    assert (corrected.parameters, corrected.active_parameters) == (31e9, 3.35e9)


def test_model_name_without_scheme_and_revision() -> None:
    assert model_name("hf://org/name@v1") == "name"
    assert model_name("file:///a/b/") == "b"


def test_config_of_a_vision_model_is_read_from_its_text_part() -> None:
    text = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100}
    found = facts_from_config(json.dumps({"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 999}}))
    assert (found.layers, found.hidden_size, found.kv_heads, found.tied_embeddings) == (2, 64, 4, True)
    assert found.parameters == 2 * (64 * 16 * 16 + 3 * 64 * 128) + 100 * 64


@pytest.mark.parametrize(
    ("quantisation", "precision"),
    [
        ({"quant_method": "fp8"}, Precision.FP8),
        ({"quant_method": "fbgemm_fp8"}, Precision.FP8),
        ({"quant_method": "awq", "bits": 4}, Precision.INT4),
        ({"quant_method": "gptq", "bits": 8}, Precision.FP8),  # eight bits a weight, whatever they mean
        (
            {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}}},
            "int4",
        ),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}},
            "fp8",
        ),
        (None, Precision.BF16),
    ],
)
def test_quantisation_config(quantisation: object, precision: str) -> None:
    config = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100}
    assert facts_from_config({**config, "quantization_config": quantisation}).precisions == (Precision(precision),)


def test_a_config_without_a_field_names_it() -> None:
    with pytest.raises(
        ValueError, match=r"config.json of mine: needs num_hidden_layers or n_layer .* found \{'num_hidden_layers': 'x'\}"
    ):
        facts_from_config({"num_hidden_layers": "x", "hidden_size": 64}, "mine")
    with pytest.raises(ValueError, match="expected an object, found list"):
        facts_from_config("[]")
