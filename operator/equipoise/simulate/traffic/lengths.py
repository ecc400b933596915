"""How long prompts and answers are: published distributions, and simple ones.

The tables are percentiles computed from the public traces named with them; between two points the logarithm of the length is
interpolated. Prompt and answer are drawn independently: in these traces the correlation of their logarithms is below 0.09.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Final, Protocol

_PERCENTILES: Final = (0.0, 1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9, 100.0)


class LengthSampler(Protocol):
    """Draws token counts."""

    def sample(self, random: Random) -> int:
        """One length, at least 1."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same length."""

    tokens: int

    def sample(self, random: Random) -> int:
        """The length."""
        return self.tokens


class Lognormal:
    """Lognormal with this mean and coefficient of variation (standard deviation / mean), cut at `maximum`."""

    def __init__(self, mean_tokens: float, variation: float = 1.0, maximum: int = 131_072) -> None:
        if mean_tokens < 1.0 or variation < 0.0:
            raise ValueError(
                f"lognormal lengths need a mean of at least 1 and no negative variation, got {mean_tokens}, {variation}"
            )
        self._sigma = math.sqrt(math.log(1.0 + variation * variation))
        self._mu = math.log(mean_tokens) - self._sigma * self._sigma / 2.0
        self._maximum = maximum

    def sample(self, random: Random) -> int:
        """One length."""
        return max(1, min(self._maximum, round(math.exp(random.gauss(self._mu, self._sigma)))))


class Percentiles:
    """A distribution given by its percentiles, the first 0 and the last 100."""

    def __init__(self, values: Sequence[float], percentiles: Sequence[float] = _PERCENTILES) -> None:
        if len(values) != len(percentiles) or list(values) != sorted(values) or values[0] < 1:
            raise ValueError(f"percentiles need {len(percentiles)} lengths of at least 1 that never fall, got {list(values)}")
        self._shares = [percentile / 100.0 for percentile in percentiles]
        self._logs = [math.log(value) for value in values]
        self._slopes = [
            (self._logs[i + 1] - self._logs[i]) / (self._shares[i + 1] - self._shares[i]) for i in range(len(values) - 1)
        ]

    def sample(self, random: Random) -> int:
        """One length."""
        share = random.random()
        i = bisect_right(self._shares, share) - 1
        return max(1, round(math.exp(self._logs[i] + (share - self._shares[i]) * self._slopes[i])))


@dataclass(frozen=True, slots=True)
class Lengths:
    """Prompt and answer lengths of one kind of traffic; means are those published or asked for."""

    prompt: LengthSampler
    output: LengthSampler
    mean_prompt_tokens: float
    mean_output_tokens: float
    source: str


def fixed(prompt_tokens: int, output_tokens: int) -> Lengths:
    """Every request alike."""
    return Lengths(Fixed(prompt_tokens), Fixed(output_tokens), prompt_tokens, output_tokens, "fixed")


def lognormal(mean_prompt_tokens: float, mean_output_tokens: float, variation: float = 1.0) -> Lengths:
    """Lognormal around the means."""
    return Lengths(
        Lognormal(mean_prompt_tokens, variation),
        Lognormal(mean_output_tokens, variation),
        mean_prompt_tokens,
        mean_output_tokens,
        f"lognormal, variation {variation:g}",
    )


_AZURE: Final = "Azure LLM inference trace 2023, {}; CC-BY 4.0, Patel et al., Splitwise, ISCA 2024"
_MOONCAKE: Final = "Mooncake trace of the FAST'25 release, {}; Apache-2.0, Qin et al., FAST 2025"

PUBLISHED: Final[Mapping[str, Lengths]] = MappingProxyType(
    {
        "azure-conv": Lengths(
            Percentiles((2, 29, 181, 207, 387, 403, 703, 1020, 1071, 1130, 1315, 2734, 4083, 4098, 4142, 4831, 6212, 14050)),
            Percentiles((7, 16, 41, 54, 77, 91, 103, 129, 177, 384, 400, 424, 451, 540, 601, 643, 954, 1000)),
            1155,
            211,
            _AZURE.format("conversations"),
        ),
        "azure-code": Lengths(
            Percentiles((3, 17, 75, 147, 386, 770, 1075, 1469, 1909, 2433, 3192, 5186, 7302, 7436, 7436, 7436, 7437, 7437)),
            Percentiles((6, 6, 6, 7, 8, 9, 11, 13, 16, 20, 29, 55, 90, 172, 252, 361, 824, 1899)),
            2048,
            28,
            _AZURE.format("code completion"),
        ),
        "mooncake-conversation": Lengths(
            Percentiles(
                (891, 894, 901, 964, 1662, 3263, 4993, 6909, 9570,
                 13196, 17869, 27367, 39549, 66425, 85401, 100886, 121301, 126195)
            ),
            Percentiles((1, 3, 10, 24, 100, 213, 291, 350, 399, 447, 504, 597, 698, 891, 1120, 1570, 2000, 2000)),
            12035,
            343,
            _MOONCAKE.format("conversations"),
        ),
        "reasoning": Lengths(
            Lognormal(1268), Lognormal(1527), 1268, 1527, "means of deepseek-r1 in ServeGen, arXiv 2505.09999; lognormal assumed"
        ),
    }
)  # fmt: skip
ALIASES: Final[Mapping[str, str]] = MappingProxyType({"chat": "azure-conv", "conv": "azure-conv", "code": "azure-code"})


def lengths_named(text: str) -> Lengths:
    """Lengths by name (`chat`, `code`, `reasoning`, …) or by means: `6000+40` is lognormal around them, `=6000+40` exactly them.

    ValueError names what is known.
    """
    name = ALIASES.get(text, text)
    if name in PUBLISHED:
        return PUBLISHED[name]
    exact = text.startswith("=")
    prompt, plus, output = text.removeprefix("=").partition("+")
    if plus and prompt.isdigit() and output.isdigit() and int(prompt) and int(output):
        return fixed(int(prompt), int(output)) if exact else lognormal(int(prompt), int(output))
    known = ", ".join([*ALIASES, *PUBLISHED])
    raise ValueError(
        f"traffic {text!r} is none of {known}, nor PROMPT+OUTPUT tokens such as 6000+40 (=6000+40 for exact lengths)"
    )
