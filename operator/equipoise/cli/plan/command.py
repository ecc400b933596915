"""`equipoise plan` from its arguments to its exit code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from rich.console import Console

from equipoise.cli.plan.document import as_document
from equipoise.cli.plan.files import PlanError
from equipoise.cli.plan.fleets import fleet_from_cluster, fleet_from_file, with_prices
from equipoise.cli.plan.services import read_services, sized_services
from equipoise.cli.plan.study import Study, study
from equipoise.cli.plan.tables import print_study
from equipoise.cli.plan.traffic import read_traffic
from equipoise.decide.settings import Settings


def run_plan(
    files: Sequence[Path],
    *,
    fleet: Path | None,
    live: bool,
    demand: Sequence[str],
    prices: Path | None,
    model_config: Sequence[str],
    mounts: Sequence[str],
    output: Literal["table", "json"],
    plot: Path | None,
) -> int:
    """Print the plan. 0: every service gets what it needs; 1: it does not; 2: the arguments or files cannot be used."""
    try:
        found = _study(files, fleet, live, demand, prices, model_config, mounts)
        if plot is not None:
            _plot(found, plot)
    except PlanError as error:
        print(error, file=sys.stderr)
        return 2
    if output == "json":
        print(json.dumps(as_document(found), indent=2))
    else:
        print_study(found, Console(highlight=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 100))
    return 0 if found.plan.covered else 1


def _study(
    files: Sequence[Path],
    fleet: Path | None,
    live: bool,
    demand: Sequence[str],
    prices: Path | None,
    model_config: Sequence[str],
    mounts: Sequence[str],
) -> Study:
    if fleet == Path("live") and not fleet.exists():
        fleet, live = None, True
    if (fleet is None) == (not live):
        what = "both were given" if live else "neither was given"
        raise PlanError(f"give either --fleet FILE or --fleet live, to say what hardware to plan with; {what}")
    resources = read_services(files)
    keys = [resource.key for resource in resources]
    settings = Settings()
    traffic = read_traffic(demand, keys, settings)
    hardware = fleet_from_file(fleet, keys) if fleet is not None else fleet_from_cluster(keys)
    if prices is not None:
        hardware = with_prices(hardware, prices)
    claims = {name: Path(path) for name, path in _pairs(mounts, "--mount", "CLAIM=FOLDER").items()}
    return study(hardware, sized_services(resources, _configs(model_config), claims), traffic, settings)


def _configs(texts: Sequence[str]) -> dict[str, str]:
    """`NAME=PLACE`, or a place alone, which is for all services."""
    result = {}
    for text in texts:
        name, equals, place = text.partition("=")
        named = bool(equals) and "://" not in name and not name.startswith((".", "/", "~"))
        result[name if named else "*"] = place if named else text
    return result


def _pairs(texts: Sequence[str], option: str, form: str) -> Mapping[str, str]:
    result = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise PlanError(f"{option} {text!r}: write it as {form}")
        result[name] = value
    return result


def _plot(found: Study, path: Path) -> None:
    try:
        from equipoise.cli.plan.picture import draw
    except ImportError:
        raise PlanError("--plot needs matplotlib: pip install 'equipoise[report]'") from None
    try:
        draw(found, path)
    except (OSError, ValueError) as error:
        raise PlanError(f"--plot {path}: {error}; give a file such as plan.png in a folder that can be written to") from None
