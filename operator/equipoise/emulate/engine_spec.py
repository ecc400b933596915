"""From a pod's command line and its node's labels to the engine that the model runs there. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from equipoise.api.identity import Precision, Shape
from equipoise.api.model_source import Architecture
from equipoise.emulate.pods import SeenPod
from equipoise.fleet.node_labels import product_of
from equipoise.fleet.types import Device
from equipoise.perf.memory import kv_capacity_tokens
from equipoise.perf.models import model_facts
from equipoise.perf.step_times import step_times
from equipoise.perf.types import ModelFacts, Refusal
from equipoise.render.flags import Flag, parse_flags
from equipoise.simulate.engine.types import EngineLimits, ReplicaSpec

_ALIASES: Final = {
    "tp": "tensor-parallel-size", "tp-size": "tensor-parallel-size", "pp": "pipeline-parallel-size",
    "pp-size": "pipeline-parallel-size", "q": "quantization", "model-path": "model",
}  # fmt: skip
_LARGE_DEVICE_BYTES: Final = 70 * 2**30
NODE_LINK_BYTES_PER_SECOND: Final = 12.5e9
"""100 Gbit/s: the least that Mooncake (FAST'25) recommends per node, and what equipoise.fleet assumes."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """The replica's figures, and what its pages say about it."""

    replica: ReplicaSpec
    model_name: str
    device: str
    shape: Shape
    fetches_kv: bool


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a pod cannot be emulated, and what to do about it."""

    message: str


def engine_spec(
    pod: SeenPod, node_labels: Mapping[str, str], architecture: Architecture | None = None, default_model: str | None = None
) -> EngineSpec | Problem:
    """What runs in this pod on this node. `default_model` stands in for a model that the catalogue does not have."""
    flags = parse_flags(_engine_arguments(pod.arguments), _ALIASES)
    product = product_of(node_labels)
    if product is None:
        return Problem(
            f"node {pod.node or '(none)'} of pod {pod.name} has no label that names its GPU, such as nvidia.com/gpu.product"
        )
    recognised = product.recognise()
    if not recognised.known:
        return Problem(f"pod {pod.name} on node {pod.node}: {recognised.problem}")
    address = _model(flags)
    model = model_facts(_uri(address), architecture) if address else Refusal("UnknownModel", "its command line names no model")
    if isinstance(model, Refusal) and default_model is not None:
        model = model_facts(_uri(default_model))
    if isinstance(model, Refusal):
        return Problem(f"pod {pod.name}: {model.message}; or emulate it as a known model with --model")
    shape = _shape(pod, flags)
    times = step_times(model, recognised.device, shape)
    kv_tokens = kv_capacity_tokens(model, recognised.device, shape)
    for refused in (times, kv_tokens):
        if isinstance(refused, Refusal):
            return Problem(f"pod {pod.name}: {refused.message}")
    if isinstance(times, Refusal) or isinstance(kv_tokens, Refusal):
        raise AssertionError("refusals are handled above")
    limits = _limits(flags, recognised.device, model)
    blocks = _number(flags, "num-gpu-blocks-override")
    replica = ReplicaSpec(
        step_times=times,
        kv_tokens=blocks * limits.block_size if blocks else kv_tokens,
        kv_bytes_per_token=model.kv_bytes_per_token,
        node=pod.node,
        link_bytes_per_second=NODE_LINK_BYTES_PER_SECOND,
        pool=pod.pool,
        variant=pod.variant,
        limits=limits,
        prefix_caching=not any(flag.tokens[0].startswith("--no-enable-prefix-caching") for flag in flags),
    )
    served = _text(flags, "served-model-name") or address or model.name
    return EngineSpec(replica, served.split()[0], recognised.device.name, shape, _kv_role(flags) != "kv_producer")


def _engine_arguments(arguments: tuple[str, ...]) -> list[str]:
    """The command line as a list, taken out of `sh -c` where there is one."""
    words = list(arguments)
    if "-c" in words[:3] and len(words) > words.index("-c") + 1:
        words = words[words.index("-c") + 1].split()
    return words


def _model(flags: list[Flag]) -> str:
    named = _text(flags, "model")
    if named:
        return named
    positional = [token for flag in flags if not flag.key for token in flag.tokens]
    if "serve" in positional:
        after = positional[positional.index("serve") + 1 :]
        return after[0] if after else ""
    return ""


def _uri(address: str) -> str:
    """The command line names a model of a hub without a scheme."""
    return address if "://" in address else f"hf://{address}"


def _shape(pod: SeenPod, flags: list[Flag]) -> Shape:
    if pod.shape:
        try:
            return Shape.parse(pod.shape)
        except ValueError:
            pass  # a label of somebody else's; the command line says it too
    quantised = (_text(flags, "quantization") or "").lower()
    precision = Precision.FP8 if quantised == "fp8" else Precision.INT4 if quantised in {"awq", "gptq"} else Precision.BF16
    return Shape(_number(flags, "tensor-parallel-size") or 1, _number(flags, "pipeline-parallel-size") or 1, precision)


def _limits(flags: list[Flag], device: Device, model: ModelFacts) -> EngineLimits:
    """The flags, else vLLM's defaults for an API server: more on large devices, the A100 excepted."""
    large = device.memory_bytes >= _LARGE_DEVICE_BYTES and "a100" not in device.name.lower()
    return EngineLimits(
        max_num_batched_tokens=_number(flags, "max-num-batched-tokens") or (8192 if large else 2048),
        max_num_seqs=_number(flags, "max-num-seqs") or (1024 if large else 256),
        max_num_queued_tokens=_number(flags, "max-num-queued-tokens"),
        max_num_queued_reqs=_number(flags, "max-num-queued-reqs"),
        max_model_len=_number(flags, "max-model-len") or model.max_context_tokens,
        block_size=_number(flags, "block-size") or 16,
        kv_lease_seconds=_lease(flags),
    )


def _kv_transfer(flags: list[Flag]) -> Mapping[str, object]:
    text = _text(flags, "kv-transfer-config")
    try:
        config = json.loads(text) if text else {}
    except ValueError:
        return {}
    return config if isinstance(config, dict) else {}


def _kv_role(flags: list[Flag]) -> str:
    return str(_kv_transfer(flags).get("kv_role", ""))


def _lease(flags: list[Flag]) -> float:
    extra = _kv_transfer(flags).get("kv_connector_extra_config")
    lease = extra.get("kv_lease_duration") if isinstance(extra, dict) else None
    return float(lease) if isinstance(lease, int | float) else 30.0


def _text(flags: list[Flag], key: str) -> str | None:
    return next((flag.value for flag in reversed(flags) if flag.key == key), None)


def _number(flags: list[Flag], key: str) -> int | None:
    """A whole number, also in vLLM's notation: 32k is 32,000 and 32K is 32,768."""
    text = _text(flags, key)
    match = re.fullmatch(r"([0-9.]+)([kKmMgG]?)", text) if text else None
    if match is None:
        return None
    factor = {"": 1, "k": 1000, "K": 1024, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}[match[2]]
    return int(float(match[1]) * factor)
