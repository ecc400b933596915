"""Durations, quantities and counts as Kubernetes writes them, and back. All numbers are seconds, bytes, tokens, USD.

The patterns are those of the CRDs (RE2, so no look-around): what the API server admits, these functions read.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

DURATION_PATTERN: Final = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
QUANTITY_PATTERN: Final = r"^[0-9]+(\.[0-9]+)?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][0-9]{1,2})?$"
COUNT_OR_PERCENT_PATTERN: Final = r"^(0|[1-9][0-9]{0,3}|(0|[1-9][0-9]?|100)%)$"
DURATION_LENGTH: Final = 24
QUANTITY_LENGTH: Final = 24

# Decimal, so that 8.03G is 8030000000 and not the float beside it.
_SECONDS: Final = {"h": Decimal(3600), "m": Decimal(60), "s": Decimal(1), "ms": Decimal("0.001")}
_FACTORS: Final = {"": Decimal(1), "m": Decimal("1e-3"), "u": Decimal("1e-6"), "n": Decimal("1e-9")} | {
    suffix: base**power
    for base, suffixes in ((Decimal(1000), ("k", "M", "G", "T", "P", "E")), (Decimal(1024), ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")))
    for power, suffix in enumerate(suffixes, start=1)
}
_DURATION_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_QUANTITY_PARTS: Final = re.compile(r"^([0-9]+(?:\.[0-9]+)?)(?:([a-zA-Z]{0,2})|[eE]([0-9]{1,2}))$")


def parse_duration(text: str, field: str = "") -> float:
    """Seconds of a duration such as `500ms`, `1.5s` or `1m30s`; ValueError names `field` and the value."""
    if not re.fullmatch(DURATION_PATTERN, text, re.ASCII):
        raise ValueError(
            f"{_at(field)}{text!r} is no duration; write numbers with a unit of ms, s, m or h, such as 500ms or 1m30s"
        )
    return float(sum(Decimal(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(text)))


def format_duration(seconds: float) -> str:
    """A duration in the shortest usual form: `0.5` is `500ms`, `90` is `1m30s`; negative is an error.

    Exact to the millisecond, and below 100 ms (where TPOT lies) to a tenth of one.
    """
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{seconds!r} seconds cannot be written as a duration")
    if seconds < 0.09995:
        return f"{_plain(seconds * 1000, 1)}ms" if round(seconds * 1000, 1) else "0s"
    milliseconds = round(seconds * 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if minutes else "") + (f"{_plain(rest / 1000, 3)}s" if rest else "")


def parse_quantity(value: str | int, field: str = "") -> float:
    """The number of a quantity such as `12.5`, `80Gi`, `3350G` or `1e12`; ValueError names `field` and the value."""
    text = str(value)
    match = _QUANTITY_PARTS.fullmatch(text) if re.fullmatch(QUANTITY_PATTERN, text, re.ASCII) else None
    if match is None:
        raise ValueError(
            f"{_at(field)}{text!r} is no quantity; write a number, with k, M, G, T, Ki, Mi, Gi or Ti after it if need be"
        )
    number, suffix, exponent = match.groups()
    return float(Decimal(number) * (Decimal(10) ** int(exponent) if exponent else _FACTORS[suffix or ""]))


def format_quantity(value: float, decimals: int = 3) -> str:
    """A plain decimal quantity without trailing zeros; negative and non-finite numbers are an error."""
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r} cannot be written as a quantity")
    return _plain(value, decimals)


def parse_count_or_percent(value: str | int, total: int, *, round_up: bool, field: str = "") -> int:
    """A count, or a percentage of `total` rounded as asked; ValueError names `field` and the value."""
    text = str(value)
    if not re.fullmatch(COUNT_OR_PERCENT_PATTERN, text, re.ASCII):
        raise ValueError(f"{_at(field)}{text!r} is neither a count such as 1 nor a percentage such as 25%")
    if not text.endswith("%"):
        return int(text)
    hundredths = int(text[:-1]) * total
    return -(-hundredths // 100) if round_up else hundredths // 100


def _plain(value: float, decimals: int) -> str:
    """Decimal, without an exponent and without trailing zeros."""
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _at(field: str) -> str:
    return f"{field}: " if field else ""


def _duration(text: str) -> str:
    parse_duration(text)
    return text


def _quantity(text: str) -> str:
    parse_quantity(text)
    return text


def _count_or_percent(text: str) -> str:
    parse_count_or_percent(text, 1, round_up=True)
    return text


def _number_to_text(value: Any) -> Any:
    """An unquoted number in YAML arrives as one; it means the same."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _int_or_string(pattern: str, length: int, rule: str, message: str) -> WithJsonSchema:
    """The pattern binds strings only, so a rule has to bind the numbers."""
    return WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "pattern": pattern,
            "maxLength": length,
            "x-kubernetes-validations": [{"rule": rule, "message": message}],
        }
    )


_NOT_NEGATIVE: Final = "type(self) == string || int(self) >= 0"
_POSITIVE: Final = "type(self) == string ? quantity(self).isGreaterThan(quantity('0')) : int(self) > 0"

Duration = Annotated[
    str,
    AfterValidator(_duration),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN, "minLength": 2, "maxLength": DURATION_LENGTH}),
]
"""A duration in Kubernetes' notation, kept as text."""

Quantity = Annotated[
    str,
    BeforeValidator(_number_to_text),
    AfterValidator(_quantity),
    _int_or_string(QUANTITY_PATTERN, QUANTITY_LENGTH, _NOT_NEGATIVE, "must be 0 or more: take the minus sign out"),
]
"""A quantity of 0 or more in Kubernetes' notation, kept as text."""

PositiveQuantity = Annotated[
    str,
    BeforeValidator(_number_to_text),
    AfterValidator(_quantity),
    _int_or_string(QUANTITY_PATTERN, QUANTITY_LENGTH, _POSITIVE, "must be above 0: correct it, or leave the field out"),
]
"""A quantity above 0 in Kubernetes' notation, kept as text."""

Figure = Annotated[
    str,
    BeforeValidator(_number_to_text),
    AfterValidator(_quantity),
    WithJsonSchema({"type": "string", "pattern": QUANTITY_PATTERN, "maxLength": QUANTITY_LENGTH}),
]
"""A quantity of 0 or more in a status: always text, because Equipoise alone writes it."""

CountOrPercent = Annotated[
    str,
    BeforeValidator(_number_to_text),
    AfterValidator(_count_or_percent),
    _int_or_string(
        COUNT_OR_PERCENT_PATTERN,
        4,
        "type(self) == string || (int(self) >= 0 && int(self) <= 9999)",
        "must be a count from 0 to 9999, or a percentage such as 25%",
    ),
]
"""A count, or a percentage of the replicas, kept as text."""
