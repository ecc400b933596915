"""The client against a real HTTP server that answers as told: retries, deadlines, credentials, errors, the wire."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from equipoise.reconcile.clock import SystemClock
from equipoise.reconcile.kube import errors, kinds
from equipoise.reconcile.kube.client import KubeClient
from equipoise.reconcile.kube.connection import Connection
from equipoise.reconcile.kube.kinds import CONFIG_MAP, DEPLOYMENT, GPU_POOL, POD, kind_of
from equipoise.reconcile.kube.transport import Retry, Transport

MANIFEST = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "prod"}, "data": {"x": "1"}}


@dataclass
class Answer:
    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0


class ApiServer:
    """Gives the prepared answers in turn (the last one for ever) and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.authorizations: list[str | None] = []
        self.content_types: list[str] = []

    async def handle(self, request: web.Request) -> web.Response:
        text = await request.text()
        self.requests.append((request.method, request.path, dict(request.query), json.loads(text) if text else None))
        self.authorizations.append(request.headers.get("Authorization"))
        self.content_types.append(request.headers.get("Content-Type", ""))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer.delay:
            await asyncio.sleep(answer.delay)
        text = answer.body if isinstance(answer.body, str) else json.dumps(answer.body or {})
        return web.Response(status=answer.status, text=text, headers=answer.headers)


class NoWaitClock(SystemClock):
    """Real time, but pauses between tries are only noted."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.offset = 0.0

    def monotonic_seconds(self) -> float:
        return super().monotonic_seconds() + self.offset

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


@dataclass
class Rig:
    server: ApiServer
    client: KubeClient
    clock: NoWaitClock
    writes: list[tuple[str, str, str]]
    tokens: list[str]
    fence: list[bool]

    def answers(self, *answers: Answer) -> None:
        self.server.answers = list(answers)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    server, clock, tokens, fence = ApiServer(), NoWaitClock(), ["first"], [True]
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def load() -> Connection:
        return Connection(address, token=tokens[-1])

    transport = Transport(await load(), load, clock, timeout_seconds=0.3, retry=Retry(attempts=3), draw=lambda: 0.5)
    writes: list[tuple[str, str, str]] = []
    client = KubeClient(transport, fence=lambda: fence[0], observe_write=lambda *write: writes.append(write), page_size=2)
    yield Rig(server, client, clock, writes, tokens, fence)
    await transport.close()
    await runner.cleanup()


def status(code: int, reason: str, message: str = "no", **details: Any) -> Answer:
    return Answer(code, {"kind": "Status", "reason": reason, "message": message, "details": details})


async def test_get_answers_none_for_what_is_not_there(rig: Rig) -> None:
    rig.answers(status(404, "NotFound", name="a", kind="configmaps"))
    assert await rig.client.get(CONFIG_MAP, "prod", "a") is None
    rig.answers(Answer(404, "404 page not found"))
    assert await rig.client.get(kinds.POD_MONITOR, "prod", "a") is None


async def test_get_reads_one_object_at_its_place(rig: Rig) -> None:
    rig.answers(Answer(200, MANIFEST))
    assert await rig.client.get(CONFIG_MAP, "prod", "a") == MANIFEST
    assert rig.server.requests[0][:2] == ("GET", "/api/v1/namespaces/prod/configmaps/a")
    assert rig.server.authorizations == ["Bearer first"]
    await rig.client.get(GPU_POOL, None, "h100")
    assert rig.server.requests[1][1] == "/apis/equipoise.dev/v1alpha1/gpupools/h100"


async def test_list_reads_all_pages_and_fills_in_the_kind(rig: Rig) -> None:
    page = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [{"metadata": {"name": "a"}}]}
    last = {"metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"name": "b"}}]}
    rig.answers(Answer(200, page), Answer(200, last))
    items, version = await rig.client.list(DEPLOYMENT, label_selector="a=b", field_selector="metadata.name=x")
    assert ([item["metadata"]["name"] for item in items], version) == (["a", "b"], "9")
    assert {(item["apiVersion"], item["kind"]) for item in items} == {("apps/v1", "Deployment")}
    queries = [query for _, _, query, _ in rig.server.requests]
    assert queries[0] == {"limit": "2", "labelSelector": "a=b", "fieldSelector": "metadata.name=x"}
    assert queries[1]["continue"] == "more"


async def test_list_keeps_only_what_it_is_told_to(rig: Rig) -> None:
    rig.answers(Answer(200, {"metadata": {}, "items": [{"metadata": {"name": name}} for name in "abc"]}))
    items, _ = await rig.client.list(
        POD, keep=lambda obj: {"n": obj["metadata"]["name"]} if obj["metadata"]["name"] != "b" else None
    )
    assert items == [{"n": "a"}, {"n": "c"}]


async def test_a_list_whose_continuation_expired_starts_over_in_one_piece(rig: Rig) -> None:
    rig.answers(
        Answer(200, {"metadata": {"continue": "old"}, "items": [{"metadata": {"name": "a"}}]}),
        status(410, "Expired"),
        Answer(200, {"metadata": {"resourceVersion": "12"}, "items": [{"metadata": {"name": "b"}}]}),
    )
    items, version = await rig.client.list(POD)
    assert ([item["metadata"]["name"] for item in items], version) == (["b"], "12")
    assert "limit" not in rig.server.requests[2][2]


async def test_a_kind_that_is_not_served_is_told_apart_from_an_empty_list(rig: Rig) -> None:
    rig.answers(Answer(404, "404 page not found"))
    with pytest.raises(errors.KindNotServed):
        await rig.client.list(kinds.POD_MONITOR)


async def test_apply_sends_the_intent_and_never_bookkeeping(rig: Rig) -> None:
    rig.answers(Answer(200, MANIFEST))
    metadata = {**MANIFEST["metadata"], "resourceVersion": "5", "managedFields": [{}], "uid": "u"}  # type: ignore[dict-item]
    await rig.client.apply({**MANIFEST, "metadata": metadata, "status": {"x": 1}})
    method, path, query, body = rig.server.requests[0]
    assert (method, path) == ("PATCH", "/api/v1/namespaces/prod/configmaps/a")
    assert query == {"fieldManager": "equipoise", "force": "true"}
    assert body == {**MANIFEST, "metadata": {"name": "a", "namespace": "prod", "uid": "u"}}
    assert rig.server.content_types == ["application/apply-patch+yaml"]
    await rig.client.apply(MANIFEST, force=False, dry_run=True)
    assert rig.server.requests[1][2] == {"fieldManager": "equipoise", "force": "false", "dryRun": "All"}


async def test_apply_status_sends_identity_and_status_only(rig: Rig) -> None:
    rig.answers(Answer(200, {}))
    metadata = {"name": "chat", "namespace": "prod", "uid": "u", "labels": {"a": "b"}, "resourceVersion": "5"}
    obj = {
        "apiVersion": "equipoise.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": metadata,
        "spec": {},
        "status": {"a": 1},
    }
    await rig.client.apply_status(obj)
    _, path, _, body = rig.server.requests[0]
    assert path == "/apis/equipoise.dev/v1alpha1/namespaces/prod/inferenceservices/chat/status"
    assert body == {
        **{k: obj[k] for k in ("apiVersion", "kind", "status")},
        "metadata": {"name": "chat", "namespace": "prod", "uid": "u"},
    }


async def test_patch_is_a_merge_patch_with_an_optional_precondition(rig: Rig) -> None:
    rig.answers(Answer(200, {}))
    await rig.client.patch(DEPLOYMENT, "prod", "a", {"spec": {"replicas": 2}}, subresource="scale", resource_version="7")
    method, path, _, body = rig.server.requests[0]
    assert (method, path) == ("PATCH", "/apis/apps/v1/namespaces/prod/deployments/a/scale")
    assert body == {"spec": {"replicas": 2}, "metadata": {"resourceVersion": "7"}}
    assert rig.server.content_types == ["application/merge-patch+json"]
    assert rig.writes == [("patch-scale", "Deployment", "ok")]


async def test_delete_with_preconditions_and_of_what_is_gone(rig: Rig) -> None:
    rig.answers(Answer(200, {}))
    assert await rig.client.delete(POD, "prod", "p", uid="u", resource_version="3", grace_seconds=0, propagation="Background")
    assert rig.server.requests[0][3] == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u", "resourceVersion": "3"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
    }
    rig.answers(status(404, "NotFound", name="p"))
    assert not await rig.client.delete(POD, "prod", "p")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (status(403, "Forbidden", 'deployments is forbidden: User "x" cannot patch'), errors.Forbidden),
        (status(409, "Conflict"), errors.Conflict),
        (status(409, "AlreadyExists"), errors.AlreadyExists),
        (status(422, "Invalid", "spec.replicas: must be >= 0"), errors.Invalid),
        (status(422, "Invalid", causes=[{"field": "metadata.uid", "message": "field is immutable"}]), errors.Conflict),
        (status(400, "BadRequest"), errors.Invalid),
        (status(500, "", "failed to create typed patch object (a/b): .data.x: expected string"), errors.Invalid),
        (status(404, "NotFound", name="prod", kind="namespaces"), errors.NotFound),
        (status(500, "InternalError"), errors.Unavailable),
        (status(504, "Timeout"), errors.Timeout),
        (status(429, "TooManyRequests"), errors.TooManyRequests),
        (Answer(502, "<html>bad gateway</html>"), errors.Unavailable),
        (Answer(200, "<html>login</html>"), errors.Unavailable),
    ],
)
async def test_errors_are_typed_and_carry_the_servers_words(rig: Rig, answer: Answer, expected: type[errors.ApiError]) -> None:
    rig.answers(answer)
    with pytest.raises(errors.ApiError) as caught:
        await rig.client.apply(MANIFEST)
    assert type(caught.value) is expected
    if isinstance(answer.body, dict):
        assert caught.value.message == answer.body["message"]
    assert str(caught.value).startswith("apply configmaps prod/a: ")
    assert rig.writes == [("apply", "ConfigMap", expected.__name__)]


async def test_idempotent_calls_are_tried_again_with_growing_pauses(rig: Rig) -> None:
    rig.answers(status(500, "InternalError"), status(503, "Unavailable"), Answer(200, MANIFEST))
    await rig.client.apply(MANIFEST)
    assert len(rig.server.requests) == 3
    assert rig.clock.pauses == pytest.approx([0.2, 0.4])
    assert rig.writes == [("apply", "ConfigMap", "ok")]


async def test_retry_after_is_honoured(rig: Rig) -> None:
    too_many = status(429, "TooManyRequests")
    too_many.headers["Retry-After"] = "7"
    rig.answers(too_many, Answer(200, MANIFEST))
    await rig.client.get(CONFIG_MAP, "prod", "a")
    assert rig.clock.pauses == [7.0]


async def test_tries_come_to_an_end(rig: Rig) -> None:
    rig.answers(status(503, "Unavailable"))
    with pytest.raises(errors.Unavailable):
        await rig.client.get(CONFIG_MAP, "prod", "a")
    assert len(rig.server.requests) == 3


@pytest.mark.parametrize(
    "write",
    [
        lambda client: client.create(MANIFEST),
        lambda client: client.replace(MANIFEST),
        lambda client: client.delete(CONFIG_MAP, "prod", "a"),
    ],
    ids=["create", "replace without a version", "delete without a uid"],
)
async def test_what_might_happen_twice_is_tried_once(rig: Rig, write: Callable[[KubeClient], Awaitable[Any]]) -> None:
    rig.answers(status(503, "Unavailable"))
    with pytest.raises(errors.Unavailable):
        await write(rig.client)
    assert len(rig.server.requests) == 1


async def test_a_guarded_replace_and_a_guarded_delete_are_tried_again(rig: Rig) -> None:
    rig.answers(status(503, "Unavailable"), Answer(200, {}))
    await rig.client.replace({**MANIFEST, "metadata": {"name": "a", "namespace": "prod", "resourceVersion": "3"}})
    rig.answers(status(503, "Unavailable"), Answer(200, {}))
    assert await rig.client.delete(CONFIG_MAP, "prod", "a", uid="u")
    assert len(rig.server.requests) == 4


async def test_no_answer_in_time_is_a_timeout(rig: Rig) -> None:
    rig.answers(Answer(200, MANIFEST, delay=0.6))
    with pytest.raises(errors.Timeout, match=r"no answer within 0\.3 s"):
        await rig.client.create(MANIFEST)


async def test_nobody_listening_is_unavailable() -> None:
    async def load() -> Connection:
        return Connection("http://127.0.0.1:1")

    transport = Transport(await load(), load, SystemClock(), retry=Retry(attempts=1))
    with pytest.raises(errors.Unavailable, match="Connect"):
        await KubeClient(transport).get(CONFIG_MAP, "prod", "a")
    await transport.close()


async def test_a_refused_token_is_read_again_once(rig: Rig) -> None:
    rig.answers(status(401, "Unauthorized"), Answer(200, MANIFEST))
    rig.tokens.append("second")
    await rig.client.get(CONFIG_MAP, "prod", "a")
    assert rig.server.authorizations == ["Bearer first", "Bearer second"]
    rig.answers(status(401, "Unauthorized"))
    with pytest.raises(errors.Unauthorized):
        await rig.client.get(CONFIG_MAP, "prod", "a")
    assert len(rig.server.authorizations) == 4


async def test_an_old_token_is_read_again_before_it_is_used(rig: Rig) -> None:
    rig.answers(Answer(200, MANIFEST))
    rig.tokens.append("second")
    await rig.client.get(CONFIG_MAP, "prod", "a")
    rig.clock.offset = 61.0
    await rig.client.get(CONFIG_MAP, "prod", "a")
    assert rig.server.authorizations == ["Bearer first", "Bearer second"]


async def test_behind_the_fence_nothing_is_written_and_everything_read(rig: Rig) -> None:
    rig.fence[0] = False
    rig.answers(Answer(200, MANIFEST))
    with pytest.raises(errors.Fenced):
        await rig.client.apply(MANIFEST)
    assert await rig.client.get(CONFIG_MAP, "prod", "a") == MANIFEST
    assert [method for method, *_ in rig.server.requests] == ["GET"]
    assert rig.writes == [("apply", "ConfigMap", "Fenced")]


async def test_the_fence_is_asked_again_before_each_further_try(rig: Rig) -> None:
    rig.answers(status(503, "Unavailable"))

    async def sleep(seconds: float) -> None:
        rig.fence[0] = False

    rig.clock.sleep = sleep  # type: ignore[method-assign]
    with pytest.raises(errors.Fenced):
        await rig.client.apply(MANIFEST)
    assert len(rig.server.requests) == 1


def test_manifests_find_their_place_or_are_refused() -> None:
    assert kind_of({"apiVersion": "apps/v1", "kind": "Deployment"}) is DEPLOYMENT
    with pytest.raises(ValueError, match="no known kind has apiVersion 'apps/v2' and kind 'Deployment'"):
        kind_of({"apiVersion": "apps/v2", "kind": "Deployment"})
    with pytest.raises(ValueError, match="Pod 'p' needs a namespace"):
        POD.path(None, "p")


async def test_a_manifest_without_a_name_is_refused_here(rig: Rig) -> None:
    rig.answers(Answer(200, {}))
    with pytest.raises(errors.Invalid, match=r"no metadata\.name"):
        await rig.client.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})
    assert rig.server.requests == []
