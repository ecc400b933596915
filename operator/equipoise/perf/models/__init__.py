"""Facts of models by their address, completed or corrected by what the user states."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Final

from equipoise.api.identity import Precision
from equipoise.api.model_source import Architecture
from equipoise.perf.models.config import facts_from_config
from equipoise.perf.models.known import ALIASES, KNOWN
from equipoise.perf.types import ModelFacts, Refusal

# Endings that change what a model was trained for, not its architecture.
_TRAINING: Final = (
    r"(-(instruct|it|chat|base|pt|hf|thinking|preview|v[0-9]+(\.[0-9]+)*|2507|2512|tbd|bf16|fp16|1t|3t|intermediate-.*))+$"
)
_FP8_ENDING: Final = r"-(fp8(-(dynamic|block|kv))?|quantized\.w8a8)$"
_INT4_ENDING: Final = r"-(awq(-int4)?|gptq(-int4)?|int4|w4a16|quantized\.w4a16|bnb-4bit|4bit|awq-4bit)$"


def model_facts(uri: str, architecture: Architecture | None = None) -> ModelFacts | Refusal:
    """Facts of the model at `uri` (`hf://ORG/NAME`, or any path whose last part is a known name), overridden by `architecture`.

    A model that the catalogue does not have needs the figures in `spec.model.architecture`; the Refusal lists those missing.
    """
    name = model_name(uri)
    known = _known_facts(name)
    return (
        known if architecture is None and known is not None else _with_architecture(name, known, architecture or Architecture())
    )


def model_name(uri: str) -> str:
    """The last part of a model's address, without scheme and revision."""
    return uri.partition("://")[2].partition("@")[0].rstrip("/").rpartition("/")[2] or uri


@lru_cache(maxsize=4096)
def _known_facts(name: str) -> ModelFacts | None:
    key = name.lower()
    precision = None
    for ending, meant in ((_FP8_ENDING, Precision.FP8), (_INT4_ENDING, Precision.INT4)):
        if re.search(ending, key):
            key, precision = re.sub(ending, "", key), meant
    facts = None
    while facts is None:
        facts = _BY_NAME.get(ALIASES.get(key.removeprefix("meta-"), key.removeprefix("meta-")))
        shorter = re.sub(_TRAINING, "", key)
        # One ending at a time would also do; a name that is known with its date (mistral-small-24b-instruct-2501) loses only the
        # middle.
        if facts is None and shorter == key:
            shorter = re.sub(r"-(instruct|it|chat|base|v[0-9]+(\.[0-9]+)*)(?=-)", "", key)
            if shorter == key:
                return None
        key = shorter
    return facts if precision is None else replace(facts, precisions=(precision,), measured_weight_bytes=())


def _with_architecture(name: str, known: ModelFacts | None, given: Architecture) -> ModelFacts | Refusal:
    parameters = given.parameter_count or (known.parameters if known else None)
    stated_active = given.active_parameter_count if known is None or given.active_parameters is not None else None
    active = stated_active or (known.active_parameters if known else None)
    layers = given.layers or (known.layers if known else None)
    hidden = given.hidden_size or (known.hidden_size if known else None)
    heads = given.attention_heads or (known.attention_heads if known else None)
    kv_heads = given.kv_heads or (known.kv_heads if known else None)
    if not (parameters and active and layers and hidden and heads and kv_heads):
        values = {"parameters": parameters, "layers": layers, "hiddenSize": hidden, "attentionHeads": heads, "kvHeads": kv_heads}
        missing = [field for field, value in values.items() if not value]
        return Refusal(
            "UnknownModel",
            f"model {name!r} is not in the catalogue of known models, and spec.model.architecture lacks {', '.join(missing)}; "
            "they stand in the model's config.json and on its card",
        )
    head_dim = given.head_dim or (known.head_dim if known else None) or hidden // heads
    context = given.max_context or (known.max_context_tokens if known else 32768)
    if known is None:
        return ModelFacts(
            name,
            parameters,
            active,
            layers,
            hidden,
            heads,
            kv_heads,
            head_dim,
            context,
            source="spec.model.architecture",
            required_context_tokens=given.max_context or 0,
        )
    same_cache = (layers, kv_heads, head_dim) == (known.layers, known.kv_heads, known.head_dim)
    return replace(
        known,
        parameters=parameters,
        active_parameters=active,
        layers=layers,
        hidden_size=hidden,
        attention_heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        max_context_tokens=context,
        required_context_tokens=given.max_context or 0,
        kv_bytes_override=known.kv_bytes_override if same_cache else None,
        measured_weight_bytes=known.measured_weight_bytes if parameters == known.parameters else (),
        source=f"{known.source}, corrected by spec.model.architecture",
    )


def _facts() -> dict[str, ModelFacts]:
    result = {}
    for row in KNOWN:
        name = row.hub_id.rpartition("/")[2]
        facts = facts_from_config(row.config(), name)
        result[name.lower()] = replace(
            facts,
            parameters=row.parameters,
            active_parameters=row.active_parameters,
            measured_weight_bytes=row.weight_bytes,
            source=f"config.json and card of {row.hub_id}",
        )
    return result


_BY_NAME: Final[dict[str, ModelFacts]] = _facts()

__all__ = ["facts_from_config", "model_facts", "model_name"]
