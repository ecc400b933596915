"""The engines' HTTP side on one loopback address, and lists of the Kubernetes API that stay current. Local sockets only."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from time import monotonic
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from equipoise.emulate.kube import Access, CurrentList, KubeConfigError, find_access
from equipoise.emulate.legs import BadRequest, Legs, asked
from equipoise.emulate.openai_api import PodPages
from equipoise.emulate.options import parse_options
from equipoise.emulate.world import World

Client = TestClient[web.Request, web.Application]


def engine_pod(*arguments: str) -> dict[str, Any]:
    labels = {"equipoise.dev/service": "chat", "llm-d.ai/role": "decode", "app.kubernetes.io/component": "decode"}
    command = ["vllm", "serve", "meta-llama/Llama-3.1-8B-Instruct", "--served-model-name=chat", *arguments]
    return {
        "metadata": {"uid": "u", "name": "d0", "namespace": "prod", "labels": labels},
        "spec": {"nodeName": "n1", "containers": [{"name": "engine", "command": command}]},
        "status": {"podIP": "127.0.0.1", "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


@pytest.fixture
async def engine() -> AsyncIterator[Callable[..., Any]]:
    clients: list[Client] = []
    clocks: list[asyncio.Task[None]] = []

    async def start(*arguments: str) -> Client:
        begin = monotonic()
        world = World(parse_options([]), lambda: monotonic() - begin, lambda: 0.0)
        node = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}
        world.node_changed({"metadata": {"name": "n1", "labels": node}}, False)
        world.pod_changed(engine_pod(*arguments), False)
        legs = Legs(lambda: monotonic() - begin, lambda service, request, now: None)
        pages = PodPages(world, legs, lambda: monotonic() - begin, lambda: 0.0)
        client: Client = TestClient(TestServer(pages.application(), host="127.0.0.1"))
        await client.start_server()
        clients.append(client)

        async def pass_time() -> None:
            while True:
                world.advance(monotonic() - begin)
                legs.beat()
                await asyncio.sleep(0.003)

        clocks.append(asyncio.create_task(pass_time()))
        return client

    yield start
    for client, clock in zip(clients, clocks, strict=True):
        await client.close()
        clock.cancel()


async def events(answer: Any) -> list[Any]:
    lines = (await answer.text()).split("\n\n")
    assert lines[-1] == ""
    assert lines[-2] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


async def test_a_stream_has_one_event_per_token_and_takes_its_time(engine: Callable[..., Any]) -> None:
    client = await engine()
    begin = monotonic()
    body = {"prompt": "x" * 4000, "max_tokens": 40, "stream": True, "stream_options": {"include_usage": True}}
    answer = await client.post("/v1/completions", json=body)
    assert answer.status == 200
    *tokens, usage = await events(answer)
    assert len(tokens) == 40
    assert [token["choices"][0]["finish_reason"] for token in tokens] == [None] * 39 + ["length"]
    assert usage["usage"] == {"prompt_tokens": 1000, "completion_tokens": 40, "total_tokens": 1040}
    assert monotonic() - begin > 0.25  # 1,000 tokens of prompt and 40 steps of about 6.5 ms on an H100


async def test_both_legs_hand_the_kv_over(engine: Callable[..., Any]) -> None:
    client = await engine()
    prefill = {"prompt": [1] * 800, "max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True, "do_remote_prefill": False}}
    answer = await (await client.post("/v1/completions", json=prefill)).json()
    assert answer["usage"]["completion_tokens"] == 1
    params = answer["kv_transfer_params"]
    assert (params["do_remote_prefill"], params["remote_host"]) == (True, "127.0.0.1")
    assert len(params["remote_block_ids"][0]) == 50
    decode = {"prompt": [1] * 800, "max_tokens": 7, "kv_transfer_params": params}
    whole = await (await client.post("/v1/completions", json=decode)).json()
    assert whole["choices"][0]["text"] == " tick" * 7
    page = await (await client.get("/metrics")).text()
    assert 'vllm:prompt_tokens_by_source_total{engine="0",model_name="chat",source="external_kv_transfer"} 800.0' in page
    again = await client.post("/v1/completions", json=decode)
    assert again.status == 500  # fetched already
    assert "KV of this request is gone" in (await again.json())["error"]["message"]


async def test_chat_and_models_speak_openai(engine: Callable[..., Any]) -> None:
    client = await engine()
    body = {"messages": [{"role": "user", "content": "hello"}], "max_completion_tokens": 3, "stream": True}
    first, *rest = await events(await client.post("/v1/chat/completions", json=body))
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": " tick"}
    assert len(rest) == 2
    models = await (await client.get("/v1/models")).json()
    assert [model["id"] for model in models["data"]] == ["chat"]
    assert (await client.get("/health")).status == 200


async def test_a_full_queue_answers_503_and_counts_it(engine: Callable[..., Any]) -> None:
    client = await engine("--max-num-queued-tokens=1000")
    body = {"prompt": [1] * 900, "max_tokens": 2}
    answers = await asyncio.gather(*(client.post("/v1/completions", json=body) for _ in range(8)))
    statuses = [answer.status for answer in answers]
    assert set(statuses) == {200, 503}
    page = await (await client.get("/metrics")).text()
    assert f'admission_rejections_total{{model_name="chat",reason="max_num_queued_tokens"}} {statuses.count(503)}.0' in page


async def test_a_client_that_leaves_frees_the_engine(engine: Callable[..., Any]) -> None:
    client = await engine()
    answer = await client.post("/v1/completions", json={"prompt": "x", "max_tokens": 100_000, "stream": True})
    await answer.content.readline()
    answer.close()

    async def running() -> str:
        return str(await (await client.get("/metrics")).text())

    async with asyncio.timeout(5):
        while 'vllm:num_requests_running{engine="0",model_name="chat"} 0.0' not in await running():
            await asyncio.sleep(0.02)
    assert 'finished_reason="abort",model_name="chat"} 0.0' in await running()  # as measured on real engines


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"prompt": "a", "max_tokens": 0}', "max_tokens must be a positive integer"),
        (b'{"prompt": 5}', "prompt must be"),
    ],
)
def test_bad_bodies_say_what_is_wrong(body: bytes, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        asked(body, is_chat=False)


def test_bodies_are_understood() -> None:
    what = asked(b'{"prompt": ["abcd", "abcdefgh"], "kv_transfer_params": {"do_remote_decode": true}}', is_chat=False)
    assert (what.prompt_tokens, what.remote_decode, what.stopped_by_length, what.output_tokens) == (3, True, False, 128)
    parts = b'{"messages": [{"role": "user", "content": [{"type": "text", "text": "abcdefgh"}]}]}'
    assert asked(parts, is_chat=True).prompt_tokens == 6


class FakeApi:
    """Lists and watches of one resource, with a script of what the watch says."""

    def __init__(self) -> None:
        self.items: dict[str, str] = {"a": "1"}
        self.version = 1
        self.lists = 0
        self.script: list[list[dict[str, Any]]] = []
        self.waiting = asyncio.Event()

    def item(self, name: str, version: str) -> dict[str, Any]:
        return {"metadata": {"uid": name, "name": name, "resourceVersion": version}}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            self.lists += 1
            items = [self.item(name, version) for name, version in self.items.items()]
            return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": items})
        response = web.StreamResponse()
        await response.prepare(request)
        if not self.script:
            self.waiting.set()
            await asyncio.Event().wait()
        for event in self.script.pop(0):
            await response.write(json.dumps(event).encode() + b"\n")
        return response


async def test_lists_stay_current_over_broken_and_expired_watches() -> None:
    api = FakeApi()
    api.items = {"a": "1", "b": "1"}
    api.script = [
        [{"type": "ADDED", "object": api.item("c", "2")}, {"type": "DELETED", "object": api.item("a", "3")}],
        [{"type": "BOOKMARK", "object": api.item("", "5")}],
        [{"type": "ERROR", "object": {"code": 410, "message": "too old"}}],
    ]
    heard: list[tuple[str, bool]] = []
    application = web.Application()
    application.router.add_get("/things", api.handle)
    async with TestServer(application) as server, aiohttp.ClientSession() as session:

        def hear(item: dict[str, Any], gone: bool) -> None:
            heard.append((item["metadata"]["name"], gone))
            if item["metadata"]["name"] == "a" and gone:
                api.items = {"c": "2", "d": "9"}  # b goes and d comes while nobody watches

        access = Access(str(server.make_url("")).rstrip("/"), True)
        task = asyncio.create_task(CurrentList(session, access, "/things", hear).run())
        async with asyncio.timeout(10):
            await api.waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert heard == [("a", False), ("b", False), ("c", False), ("a", True), ("b", True), ("d", False)]
    assert api.lists == 2


def test_kubeconfigs_are_read_and_what_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config"
    config = {
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [
            {
                "name": "c",
                "cluster": {"server": "http://127.0.0.1:1/", "certificate-authority-data": base64.b64encode(b"").decode()},
            }
        ],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    path.write_text(json.dumps(config))
    access = find_access(path)
    assert access.server == "http://127.0.0.1:1"
    assert access.headers == {"Authorization": "Bearer secret"}
    config["users"] = []
    path.write_text(json.dumps(config))
    with pytest.raises(KubeConfigError, match="users has no entry named 'u'"):
        find_access(path)
    with pytest.raises(KubeConfigError, match="there is no kubeconfig"):
        find_access(tmp_path / "nowhere")
