"""Metric tables, one file per engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from equipoise.observe.engines.sglang import SGLANG
from equipoise.observe.engines.table import EngineTable
from equipoise.observe.engines.vllm import VLLM

ENGINES: Final[Mapping[str, EngineTable]] = {table.engine: table for table in (VLLM, SGLANG)}
