"""The page of queries, from the metric tables: `python -m equipoise.observe.document > docs/reference/queries.md`."""

from __future__ import annotations

import sys

from equipoise.observe.engines import ENGINES
from equipoise.observe.engines.router import ROUTER
from equipoise.observe.engines.table import EngineTable, Instrument
from equipoise.observe.promql import Selection, instrument_query, last_sample_query, router_query, sample_count_query
from equipoise.observe.settings import LabelNames, ObserveSettings

_WINDOW_SECONDS = 60.0
_HEAD = """# Queries

<!-- Written by `python -m equipoise.observe.document` from the metric tables; edit those, not this page. -->

Everything that Equipoise asks Prometheus in a round, as it asks it at a scrape interval of 15 s (hence a window of 60 s).
Each query reads **one signal for all services at once**; a round has the two queries of the roll call, then those of the
engines in use and of the routers, once per window in use (at most {classes}).
[Signals](../concepts/signals.md) tells what is made of the answers.

Paste a query into Prometheus to see what Equipoise sees. If it is empty there, these labels are missing from your targets:

| label | comes from |
|---|---|
| `namespace`, `pod` | the pod; a PodMonitor adds them by itself |
| `equipoise_dev_service` | pod label `equipoise.dev/service` (`podTargetLabels` of a PodMonitor, or a labelmap) |
| `llm_d_ai_role` | pod label `llm-d.ai/role`: `prefill` or `decode`; not on routers |
| `equipoise_dev_variant` | pod label `equipoise.dev/variant` |
| `model_name`, `{ranks}` | written by the engine itself |

Where pods must be left out, `pod!~"…"` joins the selectors: in all queries pods that have series and no longer exist, in
queries marked *warm* also pods that are not warm yet. Names are asked for exactly as written; where several stand in one
query, the first is the present name and the others are those of older versions, asked pod by pod.
"""


def render() -> str:
    """The whole page."""
    tables = list(ENGINES.values())
    ranks = "`, `".join(dict.fromkeys(table.rank_label for table in tables))
    parts = [_HEAD.format(classes=ObserveSettings().maximum_window_classes, ranks=ranks)]
    for table in tables:
        parts += _engine(table)
    parts.append("\n## Routers\n")
    for item in ROUTER:
        parts += _entry(item, router_query(item, _selection(tables[0])), "")
    return "\n".join(parts)


def _selection(table: EngineTable) -> Selection:
    return Selection(LabelNames(), table.rank_label, _WINDOW_SECONDS, {})


def _engine(table: EngineTable) -> list[str]:
    selection = _selection(table)
    probe = ObserveSettings().probe_seconds
    parts = [f"\n## Engine {table.engine}: {len(table.instruments)} readings\n", "### roll call\n"]
    parts += ["When each pod was last seen, and how often in the last two minutes.\n"]
    parts += [*_code(last_sample_query(table, selection)), *_code(sample_count_query(table, selection, probe))]
    for item in table.instruments:
        phases = ", ".join(phase.value for phase in item.phases)
        parts += _entry(item, instrument_query(item, selection), f"{phases}{'; warm' if item.warm_only else ''}")
    return parts


def _entry(item: Instrument, query: str, note: str) -> list[str]:
    title = item.reading.value.replace("_", " ")
    return [f"### {title}{f' ({note})' if note else ''}\n", *_code(query)]


def _code(query: str) -> list[str]:
    return ["```promql", query, "```\n"]


if __name__ == "__main__":
    sys.stdout.write(render())
