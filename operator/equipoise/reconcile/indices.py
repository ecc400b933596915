"""What the store finds objects by, besides their names."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Final

from equipoise.api import labels
from equipoise.api.identity import ServiceKey
from equipoise.reconcile.kube.kinds import INFERENCE_SERVICE, NODE, POD, REPLICA_SET, Kind
from equipoise.reconcile.kube.protocol import Object

IndexFunction = Callable[[Object], Iterable[Hashable]]
"""All values under which an object is found."""


def by_owner(obj: Object) -> Iterator[Hashable]:
    """The uid of its controller."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            yield reference.get("uid")


def by_service(obj: Object) -> Iterator[Hashable]:
    """The service in its label."""
    metadata = obj["metadata"]
    name = (metadata.get("labels") or {}).get(labels.SERVICE)
    if name:
        yield ServiceKey(metadata.get("namespace", ""), name)


def by_service_or_owner(obj: Object) -> Iterator[Hashable]:
    """The service in its label, and any that owns it."""
    metadata = obj["metadata"]
    names = {name.name for name in by_service(obj) if isinstance(name, ServiceKey)}
    names |= {ref["name"] for ref in metadata.get("ownerReferences") or () if ref.get("kind") == INFERENCE_SERVICE.kind}
    for name in sorted(names):
        yield ServiceKey(metadata.get("namespace", ""), name)


def by_variant(obj: Object) -> Iterator[Hashable]:
    """Namespace and the variant in its label."""
    metadata = obj["metadata"]
    name = (metadata.get("labels") or {}).get(labels.VARIANT)
    if name:
        yield metadata.get("namespace", ""), name


def by_node(obj: Object) -> Iterator[Hashable]:
    """Where a pod is bound; "" for nowhere yet."""
    yield (obj.get("spec") or {}).get("nodeName") or ""


SERVICE: Final = "service"
VARIANT: Final = "variant"
NODE_NAME: Final = "node"
OWNER: Final = "owner"

DEFAULT: Final[Mapping[str, IndexFunction]] = {SERVICE: by_service_or_owner, OWNER: by_owner}
"""What children of a service are found by."""

INDICES: Final[Mapping[Kind, Mapping[str, IndexFunction]]] = {
    REPLICA_SET: {SERVICE: by_service, OWNER: by_owner},
    POD: {SERVICE: by_service, VARIANT: by_variant, NODE_NAME: by_node, OWNER: by_owner},
    NODE: {},
}
"""Kinds that are looked up otherwise, or that are too many to index for nothing."""
