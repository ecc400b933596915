"""Step times fitted to measurements, by model family, device and tensor parallel size.

Form: DistServe (OSDI'24). prefill of a batch = a + b x sum(L) + c x sum(L^2); one decode step = a + b x batch + c x sum(context).
Milliseconds here, as fitted; seconds outside. Sources:

- all but rtx4090: least squares over the vLLM tables ("silicon") of aiconfigurator-core 0.12.0 (NVIDIA, Apache-2.0), bf16; mean
  relative error 1-6 % per entry. Against measured serving on H100 their TPOT is 7 % (TensorRT-LLM, 101 rows) and 11 % (vLLM, 52
  rows) too low, so aiconfigurator itself multiplies them by 1.10 (prefill) and 1.08 (decode), and so does this table.
- rtx4090: kernel timings of a vLLM 0.19 layer profile (LLMServingSim 2.0, MIT). The 300 requests that were really served beside
  that profile confirm the same two factors: with them prefill comes out at .97, decode at 1.01 of what was measured (medians).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from equipoise.api.identity import Precision, Shape
from equipoise.fleet.types import Device
from equipoise.perf.types import ModelFacts, StepTimes


@dataclass(frozen=True, slots=True)
class Correction:
    """Factors on fitted times that make them those of a serving engine, with where they come from."""

    prefill: float
    decode: float
    source: str


@dataclass(frozen=True, slots=True)
class Family:
    """Models of one architecture are one family, whatever they were trained on."""

    name: str
    layers: int
    hidden_size: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    parameters: float

    def matches(self, model: ModelFacts) -> bool:
        """Same architecture, and the same number of parameters within 2 % (vocabularies are extended by some tokens)."""
        mine = (self.layers, self.hidden_size, self.attention_heads, self.kv_heads, self.head_dim)
        other = (model.layers, model.hidden_size, model.attention_heads, model.kv_heads, model.head_dim)
        return mine == other and abs(model.active_parameters / self.parameters - 1.0) <= 0.02


@dataclass(frozen=True, slots=True)
class Entry:
    """One row, in milliseconds."""

    family: Family
    device: str
    tensor_parallel: int
    prefill_ms: tuple[float, float, float]
    decode_ms: tuple[float, float, float]
    correction: Correction

    def step_times(self) -> StepTimes:
        """The row as a serving engine runs it, in seconds."""
        prefill, decode = self.correction.prefill / 1e3, self.correction.decode / 1e3
        case = f"{self.family.name} on {self.device}, tensor parallel {self.tensor_parallel}"
        return StepTimes(
            prefill_constant=self.prefill_ms[0] * prefill,
            prefill_per_token=self.prefill_ms[1] * prefill,
            prefill_per_token_squared=self.prefill_ms[2] * prefill,
            decode_constant=self.decode_ms[0] * decode,
            decode_per_sequence=self.decode_ms[1] * decode,
            decode_per_context_token=self.decode_ms[2] * decode,
            source=f"fitted table: {case} ({self.correction.source})",
        )


LLAMA_8B: Final = Family("Llama-3.1-8B", 32, 4096, 32, 8, 128, 8.03e9)
QWEN3_32B: Final = Family("Qwen3-32B", 64, 5120, 64, 8, 128, 32.76e9)
LLAMA_70B: Final = Family("Llama-3.1-70B", 80, 8192, 64, 8, 128, 70.55e9)

AICONFIGURATOR: Final = Correction(1.10, 1.08, "aiconfigurator-core 0.12.0, with its corrections 1.10 and 1.08")
RTX4090: Final = Correction(1.10, 1.08, "LLMServingSim 2.0, vLLM 0.19: layer profile and 300 real requests")

ENTRIES: Final[tuple[Entry, ...]] = (
    Entry(LLAMA_8B, "h200_sxm", 1, (2.265091, 0.01885536, 5.425494e-07), (4.899944, 0.01213138, 2.954858e-05), AICONFIGURATOR),
    Entry(LLAMA_8B, "h100_sxm", 1, (3.417042, 0.01839450, 5.727320e-07), (6.379844, 0.01090855, 4.175131e-05), AICONFIGURATOR),
    Entry(LLAMA_8B, "a100_sxm", 1, (8.400241, 0.05398786, 1.599219e-06), (11.486672, 0.03739926, 8.082109e-05), AICONFIGURATOR),
    Entry(
        LLAMA_8B,
        "rtx_pro_6000_server",
        1,
        (6.180564, 0.03774452, 9.324244e-07),
        (10.774728, 0.01724577, 8.745845e-05),
        AICONFIGURATOR,
    ),
    Entry(LLAMA_8B, "l40s", 1, (11.826973, 0.05869535, 2.722345e-06), (21.921999, 0.03637512, 2.073257e-04), AICONFIGURATOR),
    Entry(LLAMA_8B, "b60", 1, (15.310588, 0.17291869, 3.651385e-06), (36.521892, 0.08785381, 2.701789e-04), AICONFIGURATOR),
    Entry(QWEN3_32B, "h200_sxm", 1, (6.312543, 0.08484720, 1.981098e-06), (18.832505, 0.03577313, 6.375420e-05), AICONFIGURATOR),
    Entry(QWEN3_32B, "h100_sxm", 2, (8.333242, 0.04660546, 1.160337e-06), (13.584055, 0.02370844, 4.429485e-05), AICONFIGURATOR),
    Entry(QWEN3_32B, "a100_sxm", 2, (20.961803, 0.12334182, 3.143811e-06), (24.598183, 0.09274222, 7.995371e-05), AICONFIGURATOR),
    Entry(QWEN3_32B, "l40s", 2, (29.512846, 0.19618355, 6.533098e-06), (47.177594, 0.16422270, 2.020873e-04), AICONFIGURATOR),
    Entry(LLAMA_70B, "h200_sxm", 2, (5.483276, 0.10059705, 1.729245e-06), (20.726725, 0.04141587, 3.361955e-05), AICONFIGURATOR),
    Entry(LLAMA_70B, "h100_sxm", 4, (7.998504, 0.05950683, 7.193332e-07), (15.120707, 0.03228254, 2.772356e-05), AICONFIGURATOR),
    Entry(LLAMA_70B, "a100_sxm", 4, (18.191914, 0.15530532, 1.314183e-06), (27.719061, 0.10094892, 5.649616e-05), AICONFIGURATOR),
    Entry(LLAMA_8B, "rtx4090", 1, (2.923441, 0.08777689, 2.106624e-06), (17.023338, 0.04348462, 1.397530e-04), RTX4090),
)

_BY_DEVICE: Final[dict[tuple[str, int], tuple[Entry, ...]]] = {
    key: tuple(entry for entry in ENTRIES if (entry.device, entry.tensor_parallel) == key)
    for key in {(entry.device, entry.tensor_parallel) for entry in ENTRIES}
}


@lru_cache(maxsize=4096)
def fitted_step_times(model: ModelFacts, device: Device, shape: Shape) -> StepTimes | None:
    """The fitted row for exactly this model family, device and shape; None when there is none. No row is stretched to other
    models.
    """
    if device.fitted_name is None or shape.precision is not Precision.BF16 or shape.pipeline_parallel != 1:
        return None
    for entry in _BY_DEVICE.get((device.fitted_name, shape.tensor_parallel), ()):
        if entry.family.matches(model):
            return entry.step_times()
    return None
