"""Tables of what comes out: the plan, the cost of other targets, apart or together."""

from __future__ import annotations

from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from equipoise.api.identity import ServiceKey
from equipoise.api.values import format_duration
from equipoise.cli.plan.advice import Advice, Verdict
from equipoise.cli.plan.allocation import Plan, PlannedService, is_proven
from equipoise.cli.plan.frontier import Frontier
from equipoise.cli.plan.layout import bullets, columns
from equipoise.cli.plan.study import Study
from equipoise.cli.plan.words import NOTHING, count, money, share, tokens

_VERDICTS: Final = {
    Verdict.APART: ("Keep the phases apart", "green"),
    Verdict.AGGREGATE: ("Serve both phases together", "yellow"),
    Verdict.EITHER: ("Either way will do", "cyan"),
    Verdict.NEITHER: ("Neither way fits", "red"),
}


def plan_table(found: Study) -> RenderableType:
    """The replicas to run, what they cost and how full they are; what is missing, with what would help."""
    plan = found.plan
    table = columns(
        ("service", "l"), ("phase", "l"), ("pool", "l"), ("shape", "l"), ("replicas", "r"), ("GPUs", "r"), ("USD/h", "r"),
        ("capacity\ntokens/s", "r"), ("needed\ntokens/s", "r"), ("used", "r"),
    )  # fmt: skip
    notes: list[str] = []
    for service in plan.services:
        _plan_rows(table, service)
        notes += _trouble(service)
    parts: list[RenderableType] = [table, Padding(Text(_total(plan), style="bold"), (1, 0, 0, 0))]
    if notes:
        parts.append(bullets(notes, "red"))
    return Group(*parts)


def _plan_rows(table: Table, service: PlannedService) -> None:
    name = str(service.key)
    for phase, entry in service.phases.items():
        needed, used = tokens(entry.needed_tokens_per_second), share(entry.utilisation)
        several = len(entry.variants) > 1
        if not entry.variants:
            table.add_row(name, phase.value, NOTHING, NOTHING, "0", "0", money(0.0), "0", needed, NOTHING)
            name = ""
        for variant in entry.variants:
            place = variant.option.variant
            table.add_row(
                name, phase.value, place.pool, str(place.shape), str(variant.replicas), str(variant.gpus),
                money(variant.usd_per_hour), tokens(variant.tokens_per_second), *(("", "") if several else (needed, used)),
            )  # fmt: skip
            name = ""
        if several:
            table.add_row(
                "", phase.value, "in all", "", str(sum(item.replicas for item in entry.variants)),
                str(sum(item.gpus for item in entry.variants)), money(sum(item.usd_per_hour for item in entry.variants)),
                tokens(entry.capacity_tokens_per_second), needed, used, style="bold",
            )  # fmt: skip


def _trouble(service: PlannedService) -> list[str]:
    lines = [f"{service.key}: {entry.infeasible.message}" for entry in service.phases.values() if entry.infeasible is not None]
    blocked = {phase for phase, entry in service.phases.items() if entry.infeasible is not None}
    lines += [item.message for item in service.shortfalls if item.phase not in blocked]
    for phase, entry in service.phases.items():
        if entry.variants and entry.attainable_share < 0.945:
            lines.append(
                f"{service.key}: {phase.value}: at best {share(entry.attainable_share)} of requests can meet the target "
                "there, for the others' prompts are too long; a faster device, a wider shape or a longer TTFT would help"
            )
    return lines


def _attainable(service: PlannedService) -> float:
    """Share of requests that can meet the targets where they are planned."""
    return min((entry.attainable_share for entry in service.phases.values() if entry.variants), default=1.0)


def _total(plan: Plan) -> str:
    proof = ", proven cheapest" if is_proven(plan.gap) else ""
    if proof and any(_attainable(service) < 0.945 for service in plan.services):
        proof += " for these tokens, but not every service's share of requests can meet its target"
    state = "" if plan.covered else "; the need is not covered"
    return f"{count(plan.gpus, 'GPU')}, {money(plan.usd_per_hour)} USD per hour{proof}{state}"


def frontier_table(found: Frontier, study: Study, key: ServiceKey) -> RenderableType:
    """Cost by TTFT (rows) and TPOT (columns)."""
    own = next(service for service in study.services if service.key == key).policy.targets
    table = columns(("TTFT \\ TPOT", "l"), *((format_duration(tpot) + " ", "r") for tpot in found.tpot_seconds))
    reasons: dict[str, str] = {}
    for ttft in found.ttft_seconds:
        cells = []
        for tpot in found.tpot_seconds:
            point = found.at(ttft, tpot)
            mine = (ttft, tpot) == (own.ttft_seconds, own.tpot_seconds)
            if point.usd_per_hour is None:
                reasons.setdefault(point.reason, f"{format_duration(ttft)} and {format_duration(tpot)}: {point.reason}")
            cells.append(Text(money(point.usd_per_hour) + ("*" if mine else " "), style="bold" if mine else ""))
        table.add_row(format_duration(ttft), *cells)
    others = "" if len(study.services) == 1 else ", all services together, the others at their own targets"
    line = f"USD per hour of the cheapest plan on this fleet{others}. *: as asked for; {NOTHING}: the fleet cannot do it."
    asked = next(
        (p.usd_per_hour for p in found.points if (p.ttft_seconds, p.tpot_seconds) == (own.ttft_seconds, own.tpot_seconds)), None
    )
    planned = next(service for service in study.plan.services if service.key == key)
    if asked is not None and asked > study.plan.usd_per_hour and _attainable(planned) < 0.945:
        line += (
            f" The plan above costs {money(study.plan.usd_per_hour)}: it carries the tokens, while prompts that are too long for "
            f"its devices miss TTFT. {money(asked)} buys devices on which {own.percentile:g} % of requests can meet both targets."
        )
    parts: list[RenderableType] = [table, Padding(Text(line, style="dim"), (1, 0, 0, 0))]
    if reasons:
        shown = list(reasons.values())
        parts.append(
            bullets(
                [*shown[:3], *([f"and {len(shown) - 3} more such reasons (--output json has all)"] if len(shown) > 3 else [])],
                "dim",
            )
        )
    return Group(*parts)


def advice_text(found: Advice) -> RenderableType:
    """The verdict with its figures, and the replicas that would do both phases."""
    verdict, style = _VERDICTS[found.verdict]
    parts: list[RenderableType] = [Text.assemble((verdict, f"bold {style}"), f": {found.reason}.")]
    if found.replicas:
        table = columns(
            ("together", "l"), ("shape", "l"), ("replicas", "r"), ("GPUs", "r"), ("USD/h", "r"), ("requests/s", "r"),
            ("bound by", "l"),
        )  # fmt: skip
        for entry in found.replicas:
            table.add_row(
                entry.pool, entry.shape, str(entry.replicas), str(entry.gpus), money(entry.usd_per_hour),
                f"{entry.requests_per_second:,.1f}", entry.binds,
            )  # fmt: skip
        parts.append(table)
    if found.signs:
        parts.append(Text(f"What is known to favour one pool, and holds here: {'; '.join(found.signs)}."))
    parts.append(
        Text(
            "Together: replicas with chunked prefill, whose decode steps carry the prompts that come in between; step times add "
            "up (docs/concepts/plan.md has the model). Equipoise serves phases apart; for one pool run the engine as a plain "
            "Deployment.",
            style="dim",
        )
    )
    return Group(*parts)
