"""The study as plain JSON, for scripts; docs/concepts/plan.md describes its fields."""

from __future__ import annotations

import math
from typing import Any

from equipoise.api.identity import Phase
from equipoise.cli.plan.allocation import PlannedPhase, PlannedService
from equipoise.cli.plan.frontier import Frontier
from equipoise.cli.plan.services import Service
from equipoise.cli.plan.shapes import ShapeRow, Side
from equipoise.cli.plan.study import Study
from equipoise.cli.plan.words import bound_by


def as_document(found: Study) -> dict[str, Any]:
    """All figures; units are in the names, None is what is not known or not possible."""
    planned = found.plan.gpus_by_pool()
    frontiers = {item.key: item for item in found.frontiers}
    advice = {item.key: item for item in found.advice}
    return {
        "fleet": {
            "pools": [
                {
                    "name": pool.name,
                    "device": pool.device.name,
                    "nodes": len(pool.nodes),
                    "gpus": sum(node.allocatable_gpus for node in pool.nodes),
                    "usableGPUs": pool.usable_gpus,
                    "plannedGPUs": planned.get(pool.name, 0),
                    "usdPerGPUHour": pool.price_usd_per_gpu_hour,
                    "priceSource": pool.price_source,
                }
                for pool in found.fleet.pools
            ],
            "problems": list(found.fleet.problems),
        },
        "services": [
            {
                "name": str(service.key),
                **_asked(found, service),
                "shapes": [_row(row) for row in found.ways[service.key].rows],
                "plan": _service(plan),
                "frontier": _frontier(frontiers[service.key]) if service.key in frontiers else None,
                "aggregated": _advice(advice[service.key]) if service.key in advice else None,
            }
            for service, plan in zip(found.services, found.plan.services, strict=True)
        ],
        "gpus": found.plan.gpus,
        "usdPerHour": round(found.plan.usd_per_hour, 4),
        "covered": found.plan.covered,
        "method": found.plan.method,
        "gap": None if math.isnan(found.plan.gap) else found.plan.gap,
    }


def _asked(found: Study, service: Service) -> dict[str, Any]:
    traffic, targets = found.traffic[service.key], service.policy.targets
    return {
        "model": {
            "name": service.policy.model.name,
            "parameters": service.policy.model.parameters,
            "precisions": [precision.value for precision in service.policy.model.precisions],
            "source": service.policy.model.source,
        },
        "targets": {
            "ttftSeconds": targets.ttft_seconds,
            "tpotSeconds": targets.tpot_seconds,
            "percentile": targets.percentile,
        },
        "demand": {
            "requestsPerSecond": traffic.requests_per_second,
            "meanPromptTokens": traffic.workload.mean_prompt_tokens,
            "meanOutputTokens": traffic.workload.mean_output_tokens,
            "prefixHitShare": traffic.workload.prefix_hit_share,
            "assumed": list(traffic.assumed),
        },
        "notes": list(service.notes),
    }


def _row(row: ShapeRow) -> dict[str, Any]:
    return {
        "pool": row.pool,
        "shape": None if row.shape is None else str(row.shape),
        "gpus": None if row.shape is None else row.shape.gpus_per_replica,
        "usdPerHour": round(row.price_usd_per_hour, 4),
        "decodePerPrefill": _figures(row.decode_per_prefill),
        **{phase.value: _side(row, phase, row.sides[phase]) for phase in Phase},
    }


def _side(row: ShapeRow, phase: Phase, side: Side) -> dict[str, Any]:
    if side.capacity is None:
        refusal = side.refusal
        return {"refused": None if refusal is None else {"reason": refusal.reason, "message": refusal.message}}
    found = side.capacity
    return {
        "tokensPerSecond": _figures(found.tokens_per_second),
        "usdPerMillionTokens": _figures(row.usd_per_million(phase)),
        "boundBy": bound_by(found),
        "maxBatch": found.max_batch,
        "kvTokens": found.kv_tokens,
        "utilisation": _figures(found.utilisation),
        "attainableShare": _figures(found.attainable_share),
        "source": found.source,
        "planned": side.offered,
    }


def _service(plan: PlannedService) -> dict[str, Any]:
    return {
        "phases": {phase.value: _phase(entry) for phase, entry in plan.phases.items()},
        "gpus": plan.gpus,
        "usdPerHour": round(plan.usd_per_hour, 4),
        "covered": plan.covered,
        "shortfalls": [
            {
                "phase": item.phase.value,
                "reason": item.reason,
                "message": item.message,
                "missingTokensPerSecond": _figures(item.missing_tokens_per_second),
                "missingReplicas": item.missing_replicas,
            }
            for item in plan.shortfalls
        ],
    }


def _phase(entry: PlannedPhase) -> dict[str, Any]:
    return {
        "neededTokensPerSecond": _figures(entry.needed_tokens_per_second),
        "capacityTokensPerSecond": _figures(entry.capacity_tokens_per_second),
        "utilisation": _figures(entry.utilisation),
        "attainableShare": _figures(entry.attainable_share),
        "infeasible": None if entry.infeasible is None else entry.infeasible.message,
        "variants": [
            {
                "pool": item.option.variant.pool,
                "shape": str(item.option.variant.shape),
                "replicas": item.replicas,
                "gpus": item.gpus,
                "usdPerHour": round(item.usd_per_hour, 4),
                "tokensPerSecond": _figures(item.tokens_per_second),
                "nodes": list(item.nodes),
            }
            for item in entry.variants
        ],
    }


def _frontier(found: Frontier) -> list[dict[str, Any]]:
    return [
        {
            "ttftSeconds": point.ttft_seconds,
            "tpotSeconds": point.tpot_seconds,
            "usdPerHour": None if point.usd_per_hour is None else round(point.usd_per_hour, 4),
            "gpus": point.gpus,
            "pools": {phase.value: list(pools) for phase, pools in point.pools.items()},
            "reason": point.reason or None,
        }
        for point in found.points
    ]


def _advice(found: Any) -> dict[str, Any]:
    return {
        "verdict": found.verdict.value,
        "reason": found.reason,
        "apartUsdPerHour": _figures(found.apart_usd_per_hour),
        "aggregatedUsdPerHour": _figures(found.aggregated_usd_per_hour),
        "replicas": [
            {
                "pool": item.pool,
                "shape": item.shape,
                "replicas": item.replicas,
                "gpus": item.gpus,
                "usdPerHour": round(item.usd_per_hour, 4),
                "requestsPerSecond": _figures(item.requests_per_second),
                "boundBy": item.binds,
            }
            for item in found.replicas
        ],
        "favouring": list(found.signs),
    }


def _figures(value: float | None) -> float | None:
    """Six significant figures: more would be noise of the model."""
    return None if value is None else float(f"{value:.6g}")
