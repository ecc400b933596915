"""Allocation by an integer program, solved with HiGHS: `allocate(problem)` behind the same interface as the greedy one."""

from __future__ import annotations

from equipoise.decide.allocation.exact.solve import allocate

__all__ = ["allocate"]
