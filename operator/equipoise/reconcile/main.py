"""Entry of the operator: logging, one event loop, one process."""

from __future__ import annotations

import asyncio
import gc
import logging

from prometheus_client import disable_created_metrics
from uvloop import new_event_loop

from equipoise.reconcile import logs
from equipoise.reconcile.contract import AppFactory
from equipoise.reconcile.kube.connection import ConnectionRefused
from equipoise.reconcile.process import Process
from equipoise.reconcile.settings import Settings

logger = logging.getLogger(__name__)


async def run(settings: Settings, app_factory: AppFactory) -> int:
    """Run the operator in this event loop until SIGTERM or SIGINT (0), or until it must not go on (1)."""
    return await Process(settings, app_factory).run()


def main(settings: Settings, app_factory: AppFactory) -> int:
    """Run the operator as a process; returns the exit code. Says in one line what stands in the way of a start."""
    logs.configure(settings.logging)
    disable_created_metrics()  # type: ignore[no-untyped-call]
    # The store holds hundreds of thousands of small objects that live long and hold no cycles. With Python's thresholds the
    # collector walks them again and again: 40 % of a round over 1,000 services.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    try:
        # TLS and sockets in C: a fifth of the operator's processor time while services come up (measured).
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(run(settings, app_factory))
    except ConnectionRefused as error:
        logger.critical("%s", error)
    except OSError as error:
        logger.critical("cannot listen on %s:%d: %s", settings.http.host, settings.http.port, error.strerror or error)
    return 1
