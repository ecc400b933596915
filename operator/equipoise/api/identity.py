"""The words every room shares: phase, service, shape, variant. Plain values, ordered, printable."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

GROUP = "equipoise.dev"
VERSION = "v1alpha1"
FIELD_MANAGER = "equipoise"


class Phase(StrEnum):
    """One of the two phases of serving: prefill reads the prompt (TTFT), decode writes the answer (TPOT)."""

    PREFILL = "prefill"
    DECODE = "decode"

    __hash__ = str.__hash__  # that of Enum runs in Python, and plans look variants up by the hundred thousand

    @property
    def other(self) -> Phase:
        """The phase on the other side of the hand-over."""
        return Phase.DECODE if self is Phase.PREFILL else Phase.PREFILL


class Precision(StrEnum):
    """Precision of the weights; the KV cache keeps the engine's default."""

    BF16 = "bf16"
    FP8 = "fp8"
    INT4 = "int4"

    __hash__ = str.__hash__


@dataclass(frozen=True, slots=True, order=True)
class ServiceKey:
    """Namespace and name of one InferenceService."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """How one replica sits on a pool: parallel sizes and weight precision, hence GPUs per replica."""

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    precision: Precision = Precision.BF16

    @property
    def gpus_per_replica(self) -> int:
        """GPUs that one replica holds."""
        return self.tensor_parallel * self.pipeline_parallel

    def __str__(self) -> str:
        pipeline = f"-pp{self.pipeline_parallel}" if self.pipeline_parallel > 1 else ""
        return f"tp{self.tensor_parallel}{pipeline}-{self.precision.value}"

    @classmethod
    def parse(cls, text: str) -> Shape:
        """Read what `str()` wrote; ValueError names the part that is wrong."""
        tensor = pipeline = 1
        precision = Precision.BF16
        for part in text.split("-"):
            if part.startswith("tp") and part[2:].isdigit():
                tensor = int(part[2:])
            elif part.startswith("pp") and part[2:].isdigit():
                pipeline = int(part[2:])
            elif part in {item.value for item in Precision}:
                precision = Precision(part)
            else:
                raise ValueError(f"shape {text!r}: {part!r} is none of tpN, ppN, {', '.join(Precision)}")
        return cls(tensor, pipeline, precision)


@dataclass(frozen=True, slots=True, order=True)
class Variant:
    """(service, phase, pool, shape): one Deployment."""

    service: ServiceKey
    phase: Phase
    pool: str
    shape: Shape

    def __hash__(self) -> int:  # over the same fields as a generated one, but in one call
        shape = self.shape
        parts = (self.service.namespace, self.service.name, self.phase, self.pool)
        return hash((*parts, shape.tensor_parallel, shape.pipeline_parallel, shape.precision))

    def __str__(self) -> str:
        return f"{self.service}:{self.phase.value}@{self.pool}/{self.shape}"

    def with_phase(self, phase: Phase) -> Variant:
        """The same place and shape in another phase: where a flip leads."""
        return Variant(self.service, phase, self.pool, self.shape)
