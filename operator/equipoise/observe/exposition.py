"""A metrics page in Prometheus' text format, reduced to the series that are wanted. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from prometheus_client.parser import text_string_to_metric_families

from equipoise.observe.engines.table import EngineTable

Labels = tuple[tuple[str, str], ...]  # in order of their names
Series = Mapping[str, Mapping[Labels, float]]  # by metric name


def wanted_names(table: EngineTable) -> frozenset[str]:
    """Every exact series name that the table's instruments read."""
    names = {metric.name for metric in table.presence}
    return frozenset(names | {metric.name for item in table.instruments for metric in item.metrics})


def parse_page(text: str, names: Collection[str]) -> Series:
    """The wanted series of one page.

    Other lines are dropped before parsing: an engine's page has a thousand lines, of which some hundred are wanted.
    ValueError when a wanted line is malformed.
    """
    kept = [line for line in text.splitlines() if line and line[0] != "#" and _name(line) in names]
    series: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families("\n".join(kept) + "\n"):
        for sample in family.samples:
            series.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = float(sample.value)
    return series


def _name(line: str) -> str:
    brace = line.find("{")
    return line[:brace] if brace >= 0 else line.split(None, 1)[0]
