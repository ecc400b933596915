"""Children that only mean something beside pods that serve: a phase's disruption budget and its addresses by DNS.

Written before its pods, a budget makes the disruption controller write its status for each pod that comes and complain of the
missing ones; a headless Service makes two more controllers write each address twice. On a control plane that is asked for five
services a second this was a third of all its writes, for objects that say "nobody" until a pod is ready.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from equipoise.api.identity import Phase, ServiceKey
from equipoise.reconcile.kube.kinds import POD_DISRUPTION_BUDGET, SERVICE, kind_of
from equipoise.reconcile.kube.protocol import Object
from equipoise.reconcile.store import Store
from equipoise.reconcile.view.pods import EnginePod
from equipoise.render.names import phase_name

SETTLED_SECONDS: Final = 1.0  # a phase's pods come up together more often than not: all their addresses in one write


def unsettled_phases(pods: Iterable[EnginePod], now_seconds: float) -> frozenset[Phase]:
    """Phases none of whose pods has been ready for a second."""
    settled = {
        pod.variant.phase
        for pod in pods
        if pod.ready and not pod.terminating and now_seconds - (pod.ready_since_seconds or now_seconds) >= SETTLED_SECONDS
    }
    return frozenset(Phase) - settled


def without_late(children: Iterable[Object], store: Store, key: ServiceKey, unsettled: frozenset[Phase]) -> list[Object]:
    """The children to write now. What exists already stays wanted, whatever its phase's pods do."""
    names = {phase_name(key, phase) for phase in unsettled}
    return [child for child in children if not (_is_late(child, names) and _is_missing(child, store, key))]


def _is_late(child: Object, names: set[str]) -> bool:
    return child["metadata"]["name"] in names and kind_of(child) in (POD_DISRUPTION_BUDGET, SERVICE)


def _is_missing(child: Object, store: Store, key: ServiceKey) -> bool:
    return store.get(kind_of(child), key.namespace, child["metadata"]["name"]) is None
