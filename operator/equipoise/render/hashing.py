"""Digests of plain data: the same value gives the same digest in every process and release."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no spaces, ASCII. TypeError for what JSON cannot hold."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest(value: Any, length: int = 10) -> str:
    """The first `length` hexadecimal digits of the SHA-256 of the canonical text (four bits each)."""
    return hashlib.sha256(canonical(value).encode("ascii")).hexdigest()[:length]
