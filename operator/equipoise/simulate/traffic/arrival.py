"""One request as the outside world offers it."""

from __future__ import annotations

from typing import NamedTuple


class Arrival(NamedTuple):
    """Seconds since the traffic began, tokens, and the name of the traffic it belongs to.

    `hash_ids` stand for blocks of 512 prompt tokens; equal leading ids mean an equal prefix.
    """

    at_seconds: float
    prompt_tokens: int
    output_tokens: int
    kind: str = ""
    hash_ids: tuple[int, ...] | None = None
