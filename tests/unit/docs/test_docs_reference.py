"""Reference pages say what the code has: settings with their defaults, metrics with their labels, commands with their options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import click
import pytest
import typer.main
from pydantic import BaseModel
from pydantic.alias_generators import to_snake
from tests.unit.docs.pages import reference, rows

from equipoise.api.conditions import ConditionType
from equipoise.cli.main import app
from equipoise.decide.settings import Settings as ControlLaw
from equipoise.observe.types import UnknownReason
from equipoise.reconcile.metrics import Metrics
from equipoise.reconcile.settings import ENVIRONMENT_PREFIX, Settings, load_settings
from equipoise.reconcile.status import conditions

SETTINGS = rows(reference("settings.md"))


def _keys(section: BaseModel, before: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, field in type(section).model_fields.items():
        value, path = getattr(section, name), (*before, field.alias or name)
        if isinstance(value, BaseModel):
            yield from _keys(value, path)
        else:
            yield ".".join(path), value


def _shown(value: Any) -> str:
    if value in ("", ()):
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, int | float) else str(value)


KEYS = dict(_keys(Settings()))


@pytest.mark.parametrize("key", KEYS)
def test_a_setting_is_documented_with_its_variable_and_default(key: str) -> None:
    variable = ENVIRONMENT_PREFIX + "__".join(to_snake(part) for part in key.split(".")).upper()
    assert SETTINGS[key][1:3] == [f"`{variable}`", _shown(KEYS[key])]


def test_documented_variables_reach_their_settings() -> None:
    found = load_settings(environment={"EQUIPOISE_API__PAGE_SIZE": "50", "EQUIPOISE_NAMESPACES": "a,b"})
    assert (found.api.page_size, found.namespaces) == (50, ("a", "b"))


def test_a_figure_of_the_control_law_is_documented_with_its_default() -> None:
    for field in fields(ControlLaw):
        assert SETTINGS[field.name][1] == f"{field.default:g}", field.name


def test_no_setting_is_documented_that_is_not_there() -> None:
    assert set(SETTINGS) == set(KEYS) | {field.name for field in fields(ControlLaw)}


def test_every_metric_is_documented_with_its_labels() -> None:
    """By the names that a scrape shows: counters end in `_total`."""
    documented = rows(reference("metrics.md"))
    metrics = Metrics()
    found = {}
    for metric in vars(metrics).values():
        if hasattr(metric, "_labelnames") and hasattr(metric, "describe"):
            family = metric.describe()[0]
            name = family.name + ("_total" if family.type == "counter" else "")
            found[name] = (family.type, tuple(label for label in metric._labelnames if label not in ("namespace", "service")))
    assert len(found) > 25
    assert set(documented) == set(found)
    for name, (kind, labels) in found.items():
        cells = documented[name]
        assert cells[1] == kind, name
        assert re.findall(r"`([^`]+)`", cells[2]) == list(labels), name


def commands() -> list[tuple[str, Any]]:
    """Every command under the name of its section: those of a group stand in the group's."""
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group | typer.core.TyperGroup)
    found = []
    for name, command in group.commands.items():
        inner = command.commands.values() if isinstance(command, click.Group | typer.core.TyperGroup) else [command]
        found += [(name, item) for item in inner]
    return found


def test_every_command_is_documented_with_its_options() -> None:
    text = reference("cli.md")
    for name, command in commands():
        section = text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert section, f"docs/reference/cli.md has no section {name}"
        if "Arguments and exit codes are those of `status`" in section:
            section += text.partition("\n## status\n")[2].partition("\n## ")[0]
        for parameter in command.params:
            for option in parameter.opts if parameter.opts[0].startswith("-") else ["NAME"]:
                if option != "--help":
                    assert f"`{option}`" in section, f"{name} {option}"


def test_no_option_is_documented_that_is_not_there() -> None:
    known = {option for _, command in commands() for parameter in command.params for option in parameter.opts}
    assert {name for name in rows(reference("cli.md")) if name.startswith("-")} <= known


def test_every_condition_and_each_of_its_reasons_is_documented() -> None:
    text = reference("reasons.md")
    used = set(re.findall(r'(?:True|False|None), "([A-Z][A-Za-z]+)"', inspect.getsource(conditions)))
    used |= set(re.findall(r'met, "([A-Z][A-Za-z]+)"', inspect.getsource(conditions)))
    assert len(used) > 15
    for name in used | conditions.NOT_YET | {"PrefillNotReady", "DecodeNotReady"}:
        assert f"`{name}`" in text, name
    for kind in ConditionType:
        assert re.search(rf"^\|.*\b{kind.value}\b", text, re.MULTILINE), kind
    signals = {reason.value for reason in UnknownReason}
    assert {"NoSeriesWhilePodsReady", "Stale", "NotExposed"} <= signals
