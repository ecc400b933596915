"""The allocation function that decide() calls, and nothing else: the plan must come out as the operator's would."""

from __future__ import annotations

from equipoise.decide.allocation.exact import allocate

__all__ = ["allocate"]
