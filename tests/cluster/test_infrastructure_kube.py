"""The client and Events on the real API server: what it really answers, and that each answer means what the classes say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from equipoise.reconcile.clock import SystemClock
from equipoise.reconcile.events import EventLimits, EventType, EventWriter
from equipoise.reconcile.kube import errors, kinds
from equipoise.reconcile.kube.client import KubeClient
from equipoise.reconcile.kube.connection import Connection, load_connection
from equipoise.reconcile.kube.kinds import CONFIG_MAP, DEPLOYMENT, EVENT, INFERENCE_SERVICE, NODE, POD
from equipoise.reconcile.kube.protocol import Object
from equipoise.reconcile.kube.transport import Retry, Transport

if TYPE_CHECKING:
    from local_cluster import LocalCluster

CRDS = Path(__file__).parents[2] / "crds"
OTHER_UID = "6c4bd4ae-0000-4000-8000-000000000000"


async def connected(kubeconfig: Path, page_size: int = 500) -> tuple[KubeClient, Transport]:
    async def load() -> Connection:
        return await load_connection(str(kubeconfig))

    transport = Transport(await load(), load, SystemClock(), retry=Retry(attempts=1))
    return KubeClient(transport, page_size=page_size), transport


@pytest.fixture
async def client(cluster: LocalCluster) -> AsyncIterator[KubeClient]:
    result, transport = await connected(cluster.kubeconfig, page_size=3)
    yield result
    await transport.close()


@pytest.fixture
def inference_services(cluster: LocalCluster) -> None:
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(CRDS))


def config_map(namespace: str, name: str = "a", **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}


def deployment(namespace: str, **spec: Any) -> Object:
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a", "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **spec},
    }


async def test_apply_creates_changes_and_removes_what_is_left_out(client: KubeClient, namespace: str) -> None:
    first = await client.apply(config_map(namespace, x="1", y="2"))
    again = await client.apply(config_map(namespace, x="1", y="2"))
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    await client.apply(config_map(namespace, x="3"))
    found = await client.get(CONFIG_MAP, namespace, "a")
    assert found is not None
    assert found["data"] == {"x": "3"}


async def test_apply_leaves_fields_of_others_alone(client: KubeClient, cluster: LocalCluster, namespace: str) -> None:
    await client.apply(deployment(namespace))
    cluster.kubectl("scale", "deployment", "a", "-n", namespace, "--replicas=3")
    await client.apply(deployment(namespace, minReadySeconds=1))
    found = await client.get(DEPLOYMENT, namespace, "a")
    assert found is not None
    assert (found["spec"]["replicas"], found["spec"]["minReadySeconds"]) == (3, 1)


async def test_a_field_of_somebody_else_is_a_conflict_unless_forced(
    client: KubeClient, cluster: LocalCluster, namespace: str
) -> None:
    cluster.apply([config_map(namespace, x="theirs")])
    with pytest.raises(errors.Conflict, match="conflict with"):
        await client.apply(config_map(namespace, x="ours"), force=False)
    assert (await client.apply(config_map(namespace, x="ours")))["data"] == {"x": "ours"}


async def test_apply_with_the_uid_of_a_predecessor_is_a_conflict(client: KubeClient, namespace: str) -> None:
    stranger = config_map(namespace)
    stranger["metadata"]["uid"] = OTHER_UID
    with pytest.raises(errors.Conflict):  # there is none: it must not be created under a wrong uid
        await client.apply(stranger)
    await client.apply(config_map(namespace))
    with pytest.raises(errors.Conflict):
        await client.apply(stranger)


async def test_a_dry_run_checks_and_changes_nothing(client: KubeClient, namespace: str) -> None:
    await client.apply(deployment(namespace), dry_run=True)
    assert await client.get(DEPLOYMENT, namespace, "a") is None
    with pytest.raises(errors.Invalid, match=r"spec\.replicas"):
        await client.apply(deployment(namespace, replicas=-1), dry_run=True)


async def test_wrong_content_is_invalid_with_the_field_in_the_message(client: KubeClient, namespace: str) -> None:
    with pytest.raises(errors.Invalid, match=r"spec\.replicas: Invalid value: -1"):
        await client.apply(deployment(namespace, replicas=-1))
    with pytest.raises(errors.Invalid, match=r"\.data\.x: expected string"):
        await client.apply({**config_map(namespace), "data": {"x": {"y": 1}}})


async def test_absent_objects_namespaces_and_kinds_are_told_apart(client: KubeClient, namespace: str) -> None:
    assert await client.get(POD, namespace, "none") is None
    assert await client.get(kinds.LEADER_WORKER_SET, namespace, "none") is None
    with pytest.raises(errors.KindNotServed):
        await client.list(kinds.LEADER_WORKER_SET)
    with pytest.raises(errors.NotFound, match='namespaces "no-such-namespace" not found') as caught:
        await client.apply(config_map("no-such-namespace"))
    assert not isinstance(caught.value, errors.KindNotServed)


async def test_list_pages_and_selects(client: KubeClient, namespace: str) -> None:
    for n in range(8):
        obj = config_map(namespace, f"c{n}")
        obj["metadata"]["labels"] = {"half": str(n % 2)}
        await client.apply(obj)
    items, version = await client.list(CONFIG_MAP, namespace, label_selector="half=1")
    assert [item["metadata"]["name"] for item in items] == ["c1", "c3", "c5", "c7"]
    assert version.isdigit()
    assert {item["kind"] for item in items} == {"ConfigMap"}
    assert len((await client.list(CONFIG_MAP, namespace)).items) >= 8  # three pages


async def test_create_meets_what_is_there(client: KubeClient, namespace: str) -> None:
    await client.create(config_map(namespace))
    with pytest.raises(errors.AlreadyExists):
        await client.create(config_map(namespace))


async def test_patch_and_replace_keep_to_the_version_they_were_given(client: KubeClient, namespace: str) -> None:
    old = await client.apply(config_map(namespace, x="1"))
    new = await client.patch(CONFIG_MAP, namespace, "a", {"data": {"x": None, "z": "2"}})
    assert new["data"] == {"z": "2"}
    stale = old["metadata"]["resourceVersion"]
    with pytest.raises(errors.Conflict):
        await client.patch(CONFIG_MAP, namespace, "a", {"data": {"x": "9"}}, resource_version=stale)
    with pytest.raises(errors.Conflict):
        await client.replace(old)
    with pytest.raises(errors.NotFound):
        await client.patch(CONFIG_MAP, namespace, "none", {"data": {}})


async def test_delete_keeps_to_its_preconditions(client: KubeClient, namespace: str) -> None:
    obj = await client.apply(config_map(namespace))
    with pytest.raises(errors.Conflict):
        await client.delete(CONFIG_MAP, namespace, "a", uid=OTHER_UID)
    with pytest.raises(errors.Conflict):
        await client.delete(CONFIG_MAP, namespace, "a", resource_version="1")
    assert await client.delete(CONFIG_MAP, namespace, "a", uid=obj["metadata"]["uid"], grace_seconds=0)
    assert not await client.delete(CONFIG_MAP, namespace, "a")


async def test_the_scale_subresource_is_patched_by_itself(client: KubeClient, namespace: str) -> None:
    await client.apply(deployment(namespace, replicas=0))
    scale = await client.patch(DEPLOYMENT, namespace, "a", {"spec": {"replicas": 2}}, subresource="scale")
    assert scale["spec"]["replicas"] == 2


@pytest.mark.usefixtures("inference_services")
async def test_status_is_applied_apart_from_the_spec(client: KubeClient, namespace: str) -> None:
    spec = {"model": {"uri": "hf://org/model"}, "targets": {"ttft": "500ms", "tpot": "50ms"}}
    metadata = {"name": "chat", "namespace": namespace}
    head = {"apiVersion": INFERENCE_SERVICE.api_version, "kind": INFERENCE_SERVICE.kind, "metadata": metadata}
    created = await client.apply({**head, "spec": spec})
    status = {"observedGeneration": created["metadata"]["generation"]}
    written = await client.apply_status({**created, "spec": {"model": {"uri": "hf://other/model"}}, "status": status})
    assert written["status"]["observedGeneration"] == 1
    assert written["spec"]["model"]["uri"] == "hf://org/model"
    assert written["metadata"]["generation"] == 1
    with pytest.raises(errors.NotFound):
        await client.apply_status({**head, "metadata": {**metadata, "name": "none"}, "status": status})


async def test_a_refusal_by_rbac_is_forbidden_and_says_what_is_missing(cluster: LocalCluster, namespace: str) -> None:
    cluster.kubectl("create", "serviceaccount", "limited", "-n", namespace)
    limited, transport = await connected(cluster.service_account_kubeconfig(namespace, "limited"))
    try:
        with pytest.raises(errors.Forbidden, match='cannot list resource "nodes"'):
            await limited.list(NODE)
        with pytest.raises(errors.Forbidden, match="cannot patch"):
            await limited.apply(config_map(namespace))
    finally:
        await transport.close()


async def test_a_wrong_token_is_unauthorized(cluster: LocalCluster) -> None:
    good = await load_connection(str(cluster.kubeconfig))

    async def load() -> Connection:
        return Connection(good.server, ca_file=good.ca_file, token="wrong")

    transport = Transport(await load(), load, SystemClock(), retry=Retry(attempts=1))
    try:
        with pytest.raises(errors.Unauthorized):
            await KubeClient(transport).list(NODE)
    finally:
        await transport.close()


@pytest.mark.usefixtures("inference_services")
async def test_events_are_shown_by_kubectl_with_their_count(client: KubeClient, cluster: LocalCluster, namespace: str) -> None:
    obj = await client.apply(config_map(namespace))
    limits = EventLimits(window_seconds=1e9, repeat_seconds=0.0)  # one window, whenever the test runs
    for leader in ("first", "second"):
        events = EventWriter(client, SystemClock(), instance=leader, limits=limits)
        for n in range(3):
            events.emit(obj, EventType.WARNING, "CapacityLimited", f"{leader} {n}")
        await events.flush()
    (event,) = (await client.list(EVENT, namespace, field_selector="reason=CapacityLimited")).items
    assert (event["count"], event["message"], event["type"]) == (6, "second 2", "Warning")
    shown = cluster.kubectl("events", "-n", namespace, "--for", "configmap/a")
    assert "CapacityLimited" in shown
    assert "(x6 over" in shown
