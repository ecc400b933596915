"""Log lines in both shapes, and the service that each is about."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from equipoise.api.identity import ServiceKey
from equipoise.reconcile import logs
from equipoise.reconcile.settings import LogFormat, LoggingSettings, LogLevel

CHAT = ServiceKey("prod", "chat")


@pytest.fixture
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    others = {name: logging.getLogger(name).level for name in ("kopf", "aiohttp.access", "asyncio")}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in others.items():
        logging.getLogger(name).setLevel(before)


@pytest.mark.usefixtures("restored")
def test_json_lines_carry_the_service_and_extra_fields() -> None:
    stream = io.StringIO()
    logs.configure(LoggingSettings(), stream)
    with logs.about(CHAT):
        logging.getLogger("x").info("moved %d", 2, extra={"pool": "h100"})
    logging.getLogger("x").warning("outside")
    first, second = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert {k: first[k] for k in ("level", "logger", "message", "namespace", "service", "pool")} == {
        "level": "info",
        "logger": "x",
        "message": "moved 2",
        "namespace": "prod",
        "service": "chat",
        "pool": "h100",
    }
    assert first["time"].endswith("Z")
    assert "service" not in second


@pytest.mark.usefixtures("restored")
def test_an_exception_stays_on_its_json_line() -> None:
    stream = io.StringIO()
    logs.configure(LoggingSettings(), stream)
    try:
        raise ValueError("boom")
    except ValueError:
        logging.getLogger("x").exception("failed")
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: boom" in json.loads(line)["exception"]


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize(("level", "lines"), [(LogLevel.INFO, 1), (LogLevel.DEBUG, 2)])
def test_of_kopfs_tries_only_the_last_one_is_told_unless_debugging(level: LogLevel, lines: int) -> None:
    stream = io.StringIO()
    logs.configure(LoggingSettings(level=level), stream)
    kopf = logging.getLogger("kopf._cogs.clients.watching")
    kopf.error("Request attempt #1/7 failed; will retry: GET https://x -> ClientConnectionError()")
    kopf.error("Request attempt #7/7 failed; escalating: GET https://x -> ClientConnectionError()")
    assert len(stream.getvalue().splitlines()) == lines
    assert "escalating" in stream.getvalue()


@pytest.mark.usefixtures("restored")
def test_text_lines_are_for_people_and_the_level_holds() -> None:
    stream = io.StringIO()
    logs.configure(LoggingSettings(format=LogFormat.TEXT, level=LogLevel.WARNING), stream)
    with logs.about(CHAT):
        logging.getLogger("x").info("quiet")
        logging.getLogger("x").warning("loud")
        logging.getLogger("kopf.x").info("chatter")
    (line,) = stream.getvalue().splitlines()
    assert line.endswith("WARNING [prod/chat] loud")
