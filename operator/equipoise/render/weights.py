"""From a model address to what the engine is told and what is mounted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from equipoise.api.engine import EngineType
from equipoise.api.identity import Precision, Variant
from equipoise.render.context import Context
from equipoise.render.options import Problem, Refusal

CACHE_PATH: Final = "/cache"
MODEL_PATH: Final = "/models"
CACHE_VOLUME: Final = "cache"
MODEL_VOLUME: Final = "model"
# Object stores that vLLM's Run:ai model streamer reads directly.
_STREAMED: Final = frozenset({"s3", "gs"})


@dataclass(frozen=True, slots=True)
class WeightSource:
    """The weights of one variant as the engine sees them.

    `model` is the engine's model argument, `stored` the precision it is read in, `revision` a Hugging Face revision or empty.
    `quantise`: the engine makes the variant's precision itself while loading. `streamed`: read from an object store by the
    engine's streamer.
    """

    model: str
    stored: Precision
    revision: str = ""
    quantise: bool = False
    streamed: bool = False
    volumes: tuple[dict[str, Any], ...] = ()
    mounts: tuple[dict[str, Any], ...] = ()


def weight_source(context: Context, variant: Variant) -> WeightSource:
    """Where this variant's weights come from; a Refusal where the engine cannot read them from there."""
    engine = context.spec.engine.type
    try:
        uri, quantise = context.spec.model.uri_for(variant.shape.precision)
    except ValueError as error:
        message = f"{error}; the Deployment of {variant} stays as it is until its replicas are moved away"
        raise Refusal(Problem("spec.model.weights", message, variant)) from error
    stored = context.spec.model.weights.precision if quantise else variant.shape.precision
    if uri.scheme == "hf":
        return WeightSource(uri.path, stored, uri.revision, quantise)
    if uri.scheme == "file":
        return WeightSource(uri.path, stored, quantise=quantise)
    if uri.scheme == "pvc":
        claim, _, path = uri.path.partition("/")
        volume = {"name": MODEL_VOLUME, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
        mount = {"name": MODEL_VOLUME, "mountPath": MODEL_PATH, "readOnly": True}
        model = f"{MODEL_PATH}/{path}".rstrip("/")
        return WeightSource(model, stored, quantise=quantise, volumes=(volume,), mounts=(mount,))
    if uri.scheme in _STREAMED and engine in {EngineType.VLLM, EngineType.CUSTOM}:
        return WeightSource(f"{uri.scheme}://{uri.path}", stored, quantise=quantise, streamed=True)
    advice = "give hf://, pvc:// or file://, or use engine.type vllm, which streams from object stores"
    raise Refusal(Problem("spec.model.uri", f"engine.type {engine.value} cannot read {uri.scheme}:// addresses; {advice}"))


def cache_volumes() -> list[dict[str, Any]]:
    """Weight and compile cache (kept over container restarts), and shared memory for tensor parallel workers.

    A `podTemplate` volume named `cache` (hostPath, PersistentVolumeClaim) replaces the first: replicas then start without
    downloading. 2 GiB of shared memory is what vLLM's Kubernetes guide mounts.
    """
    return [
        {"name": CACHE_VOLUME, "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}},
    ]


def cache_mounts() -> list[dict[str, Any]]:
    """Where those are mounted."""
    return [{"name": CACHE_VOLUME, "mountPath": CACHE_PATH}, {"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108 - the engine's own path
