"""Log lines: JSON or text, each with the service it is about."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TextIO

from equipoise.api.identity import ServiceKey
from equipoise.reconcile.clock import rfc3339_micro
from equipoise.reconcile.settings import LogFormat, LoggingSettings

_subject: ContextVar[ServiceKey | None] = ContextVar("service", default=None)
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@contextmanager
def about(key: ServiceKey) -> Iterator[None]:
    """Every line written inside, by whatever module, carries the service's namespace and name."""
    token = _subject.set(key)
    try:
        yield
    finally:
        _subject.reset(token)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, namespace and service, `extra` fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, object] = {
            "time": rfc3339_micro(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        key = _subject.get()
        if key is not None:
            line |= {"namespace": key.namespace, "service": key.name}
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD and name not in line}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """Time, level, service, message: for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and the traceback below it."""
        key = _subject.get()
        subject = f"[{key}] " if key is not None else ""
        text = f"{rfc3339_micro(record.created)} {record.levelname:<7} {subject}{record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _worth_telling(record: logging.LogRecord) -> bool:
    """Not each try of each of fifteen watches while the API server is away: the Lease says it once, kopf's last try is told."""
    return not (record.name.startswith("kopf.") and "will retry" in record.getMessage())


def hush_kopf() -> None:
    """Let kopf say no more: what its requests meet while it closes their session is no error."""
    logging.getLogger("kopf").setLevel(logging.CRITICAL)


def configure(settings: LoggingSettings, stream: TextIO | None = None) -> None:
    """Send everything to `stream` (standard error). kopf speaks only of what went wrong, unless debugging."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.format is LogFormat.JSON else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    level = settings.level.value.upper()
    if level != "DEBUG":
        handler.addFilter(_worth_telling)
    root.setLevel(level)
    noisy = level if level == "DEBUG" else "WARNING"
    for name in ("kopf", "aiohttp.access", "asyncio"):
        logging.getLogger(name).setLevel(noisy)
