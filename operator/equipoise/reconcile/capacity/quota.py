"""What the namespace's ResourceQuotas leave for one service."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from equipoise.api.values import parse_quantity

_PREFIXES = ("requests.", "limits.")


def quota_gpus(quotas: Iterable[Mapping[str, Any]], resource_names: Iterable[str], own_gpus: int) -> int | None:
    """GPUs that the service may hold in all: the tightest quota's limit, less what others in the namespace use of it.

    `own_gpus` is what the service itself holds now. None: no quota speaks of these GPUs.
    """
    allowances = []
    names = {prefix + name for name in resource_names for prefix in _PREFIXES}
    for quota in quotas:
        hard = (quota.get("status") or {}).get("hard") or (quota.get("spec") or {}).get("hard") or {}
        used = (quota.get("status") or {}).get("used") or {}
        for name in names & hard.keys():
            others = max(0.0, parse_quantity(used.get(name, "0")) - own_gpus)
            allowances.append(int(max(0.0, parse_quantity(hard[name]) - others)))
    return min(allowances, default=None)
