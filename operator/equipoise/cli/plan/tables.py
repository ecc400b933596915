"""The study for people: tables that fit a terminal of 100 columns, with every reason beside them."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from equipoise.api.identity import Phase, ServiceKey
from equipoise.cli.plan.layout import bullets, columns, heading
from equipoise.cli.plan.outcome import advice_text, frontier_table, plan_table
from equipoise.cli.plan.services import Service
from equipoise.cli.plan.shapes import NOT_WISHED, Ways
from equipoise.cli.plan.study import Study
from equipoise.cli.plan.traffic import Traffic
from equipoise.cli.plan.words import LEGEND, NOTHING, bound_by, money, per_million, ratio, share, targets, tokens


def print_study(found: Study, console: Console) -> None:
    """Everything, in the order in which one reads a plan: what there is, what it can do, what to run, what else there is."""
    console.print(_fleet(found), crop=False)
    frontiers = {item.key: item for item in found.frontiers}
    advice = {item.key: item for item in found.advice}
    for service in found.services:
        key = service.key
        console.print(heading(str(key)), crop=False)
        console.print(_service(service, found.traffic[key]), crop=False)
        console.print(_shapes(found.ways[key]), crop=False)
    console.print(heading("Plan"), crop=False)
    console.print(plan_table(found), crop=False)
    for key in (service.key for service in found.services):
        if key in frontiers:
            console.print(heading(_titled("Cost of other targets", key, found)), crop=False)
            console.print(frontier_table(frontiers[key], found, key), crop=False)
    for key in (service.key for service in found.services):
        if key in advice:
            console.print(heading(_titled("Apart or together", key, found)), crop=False)
            console.print(advice_text(advice[key]), crop=False)


def _titled(text: str, key: ServiceKey, found: Study) -> str:
    return text if len(found.services) == 1 else f"{text}: {key}"


def _fleet(found: Study) -> RenderableType:
    planned = found.plan.gpus_by_pool()
    table = columns(
        ("pool", "l"), ("device", "l"), ("nodes", "r"), ("GPUs", "r"), ("usable", "r"), ("planned", "r"), ("USD/h\neach", "r"),
    )  # fmt: skip
    sources: dict[str, list[str]] = {}
    for pool in found.fleet.pools:
        gpus = sum(node.allocatable_gpus for node in pool.nodes)
        source = pool.price_source.removeprefix("built-in list: ") or "no source"
        sources.setdefault(source, []).append(pool.name)
        table.add_row(
            pool.name, pool.device.name, str(len(pool.nodes)), str(gpus), str(pool.usable_gpus), str(planned.get(pool.name, 0)),
            money(pool.price_usd_per_gpu_hour),
        )  # fmt: skip
    unusable = [
        f"{node.name} takes no pods: {node.unusable_reason}"
        for pool in found.fleet.pools
        for node in pool.nodes
        if not node.usable
    ]
    prices = "; ".join(f"{', '.join(names)} from {source}" for source, names in sources.items())
    parts: list[RenderableType] = [heading("Fleet"), table, Padding(Text(f"Prices: {prices}.", style="dim"), (1, 0, 0, 0))]
    if found.fleet.problems or unusable:
        parts.append(bullets([*found.fleet.problems, *_few(unusable)], "yellow"))
    return Group(*parts)


def _few(lines: list[str], most: int = 4) -> list[str]:
    return lines if len(lines) <= most else [*lines[:most], f"and {len(lines) - most} more nodes"]


def _service(service: Service, traffic: Traffic) -> RenderableType:
    policy, workload = service.policy, traffic.workload
    precisions = ", ".join(precision.value for precision in policy.model.precisions)
    lines = [f"{policy.model.name} in {precisions}; {targets(policy.targets)}"]
    hits = f", {share(workload.prefix_hit_share)} of it cached" if workload.prefix_hit_share else ""
    lengths = f"{workload.mean_prompt_tokens:,.0f} prompt tokens{hits}, and {workload.mean_output_tokens:,.0f} output tokens"
    if traffic.requests_per_second is None:
        lines.append(f"no demand given (--demand): planned at its minimum; sized for requests of {lengths}")
    else:
        prompt, output = (tokens(traffic.tokens_per_second(phase)) for phase in Phase)
        lines.append(f"{traffic.requests_per_second:,.4g} requests/s of {lengths}")
        lines.append(f"that is {prompt} uncached prompt tokens/s and {output} output tokens/s")
    if traffic.assumed:
        lines.append(f"lengths not given, assumed: {', '.join(traffic.assumed)} (Azure's conversation trace)")
    parts: list[RenderableType] = [Text(line) for line in lines]
    if service.notes:
        parts.append(bullets(service.notes, "yellow"))
    return Group(*parts)


def _shapes(ways: Ways) -> RenderableType:
    table = columns(
        ("pool", "l"), ("shape", "l"), ("for", "l"), ("prefill\ntokens/s", "r"), ("USD per\nmillion", "r"), ("bound by", "l"),
        ("decode\ntokens/s", "r"), ("USD per\nmillion", "r"), ("bound by", "l"), ("decode:\nprefill", "r"),
    )  # fmt: skip
    limits: dict[str, None] = {}
    refusals: dict[str, list[str]] = {}
    for row in ways.rows:
        cells: list[str] = []
        marks = ""
        for phase in Phase:
            side = row.sides[phase]
            if side.capacity is None:
                cells += [NOTHING, NOTHING, ""]
                if side.refusal is not None and side.refusal.reason != NOT_WISHED:
                    where = f"{row.pool} {row.shape} {phase.value}" if row.shape else f"{row.pool} {phase.value}"
                    refusals.setdefault(side.refusal.message, []).append(where)
                continue
            limit = bound_by(side.capacity)
            limits.setdefault(limit)
            marks += ("P" if phase is Phase.PREFILL else "D") if side.offered else ""
            cells += [tokens(side.capacity.tokens_per_second), per_million(row.usd_per_million(phase)), limit]
        shape = str(row.shape) if row.shape else NOTHING
        table.add_row(row.pool, shape, marks, *cells, ratio(row.decode_per_prefill), style="" if marks else "dim")
    legend = "One replica inside the targets. P, D: the shape that is planned with. USD per million tokens at full use. "
    legend += "; ".join(LEGEND.get(limit, limit) for limit in limits)
    parts: list[RenderableType] = [table, Padding(Text(f"{legend}. {_comparison(ways)}", style="dim"), (1, 0, 0, 0))]
    lines = [*_refused(refusals), *ways.left_out]
    if lines:
        parts += [Text(""), Text("Not offered", style="bold"), bullets(lines)]
    return Group(*parts)


def _refused(refusals: dict[str, list[str]]) -> list[str]:
    lines = []
    for message, places in refusals.items():
        both = [place.removesuffix(" prefill") for place in places if f"{place.removesuffix(' prefill')} decode" in places]
        named = [place for place in places if not any(place in (f"{one} prefill", f"{one} decode") for one in both)]
        lines.append(f"{', '.join([*both, *named])}: {message}")
    return lines


def _comparison(ways: Ways) -> str:
    """Which pools lean to which phase, by comparative advantage of the shapes that are planned with."""
    found = {
        row.pool: row.decode_per_prefill
        for row in ways.rows
        if row.decode_per_prefill is not None and all(row.sides[phase].offered for phase in Phase)
    }
    if len(found) < 2:
        return ""
    order = sorted(found, key=lambda pool: (found[pool] or 0.0, pool))
    if (found[order[-1]] or 0.0) < 1.05 * (found[order[0]] or 0.0):
        return "No pool leans to a phase more than another: decode:prefill is the same everywhere."
    return f"By decode:prefill (comparative advantage) {order[-1]} leans most to decode and {order[0]} most to prefill."
