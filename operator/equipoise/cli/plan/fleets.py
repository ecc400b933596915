"""The fleet to plan with: from a file, from a running cluster, at the user's own prices."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from equipoise.api.identity import ServiceKey, Variant
from equipoise.api.values import parse_quantity
from equipoise.cli.cluster import CannotRead
from equipoise.cli.plan.files import PlanError, read_documents
from equipoise.cli.plan.kubectl import get_items
from equipoise.cli.plan.pools import pool_objects
from equipoise.fleet.catalogue import DEVICES
from equipoise.fleet.discover import discover
from equipoise.fleet.naming import pool_name
from equipoise.fleet.types import Fleet
from equipoise.reconcile.view.pods import variant_of_pod

_KINDS: Final = {"Node": "nodes", "Pod": "pods", "GPUPool": "gpu_pools"}


@dataclass(frozen=True, slots=True)
class Objects:
    """What a fleet is discovered from, as the API server gives it."""

    nodes: list[Any]
    pods: list[Any]
    gpu_pools: list[Any]


def fleet_from_file(path: Path, planned: Collection[ServiceKey]) -> Fleet:
    """The fleet that a file describes: pools in the small format of docs/concepts/plan.md, or objects as `kubectl get -o yaml`
    gives them (nodes, and pods and GPUPools if they are there).

    Pods of `planned` services hold nothing: their GPUs are what is planned with. PlanError for what cannot be read, and when the
    file holds no GPU.
    """
    found = Objects([], [], [])
    for document in read_documents(path, "fleet"):
        if not isinstance(document, Mapping):
            raise PlanError(
                f"fleet {path}: expected `pools:` or Kubernetes objects, found a {type(document).__name__}; see "
                "docs/concepts/plan.md"
            )
        if "pools" in document and "kind" not in document:
            for part, objects in zip((found.nodes, found.pods, found.gpu_pools), pool_objects(document, path), strict=True):
                part.extend(objects)
        else:
            _sort_in(document, found, path)
    return _discover(found, planned, f"fleet {path}")


def fleet_from_cluster(planned: Collection[ServiceKey]) -> Fleet:
    """The fleet of the cluster that kubectl's current context leads to. PlanError with kubectl's own words."""
    try:
        nodes = get_items("nodes")
        pods = get_items("pods", "--all-namespaces", "--field-selector=status.phase!=Succeeded,status.phase!=Failed")
        pools = get_items("gpupools.equipoise.dev", optional=True)
    except CannotRead as error:
        raise PlanError(f"--live: {error}") from None
    return _discover(Objects(nodes, pods, pools), planned, "--live")


def with_prices(fleet: Fleet, path: Path) -> Fleet:
    """The same fleet at the prices of a file: USD per GPU and hour by pool or device, flat or under `prices:`.

    PlanError for a name that is neither a pool of this fleet nor a device, and for what is no price. Pools that the file does not
    name keep theirs.
    """
    documents = read_documents(path, "price list")
    content = documents[0].get("prices", documents[0]) if isinstance(documents[0], Mapping) else documents[0]
    if not isinstance(content, Mapping) or len(documents) > 1:
        raise PlanError(f"price list {path}: expected one mapping such as {{H100: 4.50, L40S: 1.80}}; write USD per GPU and hour")
    pools = {pool.name for pool in fleet.pools}
    devices = {*DEVICES, *(pool.device.name for pool in fleet.pools)}
    prices: dict[str, float] = {}
    for name, value in content.items():
        if name not in pools | devices:
            near = difflib.get_close_matches(str(name), sorted(pools | devices), 3, 0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else f"devices are {', '.join(sorted(DEVICES))}"
            raise PlanError(f"price list {path}: {name!r} is neither a pool of this fleet nor a device; {hint}")
        try:
            prices[name] = parse_quantity(value)
        except ValueError:
            raise PlanError(
                f"price list {path}: {name}: {value!r} is no price; write USD per GPU and hour, such as 4.50"
            ) from None

    def priced(name: str, device: str) -> float | None:
        return prices.get(name, prices.get(device))

    return replace(
        fleet,
        pools=tuple(
            pool
            if (price := priced(pool.name, pool.device.name)) is None
            else replace(pool, price_usd_per_gpu_hour=price, price_source=path.name)
            for pool in fleet.pools
        ),
    )


def _sort_in(document: Mapping[str, Any], found: Objects, path: Path) -> None:
    kind = str(document.get("kind", ""))
    if kind.endswith("List"):
        items = document.get("items")
        for item in items if isinstance(items, list) else []:
            if isinstance(item, Mapping):
                _sort_in({"kind": kind.removesuffix("List"), **item}, found, path)
    elif kind in _KINDS:
        getattr(found, _KINDS[kind]).append(document)
    elif not kind:
        raise PlanError(
            f"fleet {path}: neither `pools:` nor a Kubernetes object with a kind; found the keys "
            f"{', '.join(map(str, document)) or 'none'}; see docs/concepts/plan.md"
        )


def _discover(objects: Objects, planned: Collection[ServiceKey], source: str) -> Fleet:
    def own(pod: Mapping[str, Any]) -> Variant | None:
        variant = variant_of_pod(pod)
        return variant if variant is not None and variant.service in planned else None

    fleet = discover(objects.nodes, objects.pods, objects.gpu_pools, own=own)
    if not fleet.pools:
        problems = "".join(f"\n  {problem}" for problem in fleet.problems)
        names = ", ".join(pool_name(DEVICES[name]) for name in ("H100", "L40S", "L4"))
        raise PlanError(
            f"{source}: no GPU pool in {len(objects.nodes)} nodes (pools look like {names}); nodes need GPUs in "
            f"status.allocatable and the labels of GPU Feature Discovery{problems}"
        )
    return fleet
