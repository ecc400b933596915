"""A model's config.json from wherever its address leads, and a sentence where it cannot be had."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from equipoise.api.model_source import Architecture
from equipoise.checkpoint.facts import READING, CheckpointReader, checkpoint_facts
from equipoise.checkpoint.places import CannotReadConfig, Local, Sources, Web, config_place
from equipoise.perf.types import ModelFacts, Refusal

CONFIG = json.dumps(
    {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "max_position_embeddings": 131072, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
    }
)  # fmt: skip
COMMIT = "0123456789abcdef0123456789abcdef01234567"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Serve = Callable[[Handler], Awaitable[str]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts a server on a free port and gives its address."""
    runners: list[web.AppRunner] = []

    async def start(handler: Handler) -> str:
        app = web.Application()
        app.router.add_get("/{path:.*}", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        runners.append(runner)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    yield start
    for runner in runners:
        await runner.cleanup()


async def facts(address: str, sources: Sources, **limits: float) -> ModelFacts | Refusal:
    async with aiohttp.ClientSession() as session:
        return await checkpoint_facts(address, None, sources, session, **limits)  # type: ignore[arg-type]


def message(answer: ModelFacts | Refusal) -> str:
    assert isinstance(answer, Refusal)
    return answer.message


def test_each_kind_of_address_has_its_place(tmp_path: Path) -> None:
    sources = Sources(hub_token="secret", mounts={"weights": tmp_path}, local_paths=True)
    hub = config_place("hf://org/model@v1", sources)
    assert isinstance(hub, Web)
    assert hub.url == "https://huggingface.co/org/model/resolve/v1/config.json"
    assert hub.token == "secret"
    assert "secret" not in repr(hub)
    assert config_place("https://host/models/x", sources) == Web("https://host/models/x/config.json")
    assert config_place("https://host/x/config.json?a=1", sources) == Web("https://host/x/config.json?a=1")
    assert config_place("pvc://weights/llama", sources) == Local(tmp_path / "llama" / "config.json", tmp_path)
    assert config_place("file:///models/x", sources) == Local(Path("/models/x/config.json"))


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("pvc://other/llama", "PersistentVolumeClaim other is not mounted here (mounted: none)"),
        ("file:///models/x", "inside the engine's container"),
        ("s3://bucket/x", "in an object store"),
        ("https:///x", "no host in it"),
        ("https://user:word@host/x", "without user and password"),
    ],
)
def test_what_cannot_be_reached_is_said(address: str, said: str) -> None:
    with pytest.raises(CannotReadConfig, match=r"^.*") as error:
        config_place(address, Sources())
    assert said in str(error.value)
    assert "word" not in str(error.value).replace("password", "")


def test_the_hubs_cache_is_looked_into_first(tmp_path: Path) -> None:
    folder = tmp_path / "models--org--model"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    (folder / "snapshots" / COMMIT).mkdir(parents=True)
    sources = Sources(hub_cache=tmp_path)
    assert isinstance(config_place("hf://org/model", sources), Web)
    (folder / "snapshots" / COMMIT / "config.json").write_text(CONFIG)
    place = config_place("hf://org/model", sources)
    assert place == Local(folder / "snapshots" / COMMIT / "config.json", tmp_path)
    assert isinstance(config_place("hf://org/model@other", sources), Web)


async def test_a_hub_gives_facts_and_gets_the_token(serve: Serve) -> None:
    seen = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.path, request.headers.get("Authorization")))
        return web.Response(text=CONFIG)

    found = await facts("hf://org/new-model", Sources(hub_endpoint=await serve(answer), hub_token="secret"))
    assert isinstance(found, ModelFacts)
    assert found.parameters == pytest.approx(8.03e9, rel=0.01)
    assert (found.layers, found.kv_heads, found.head_dim) == (32, 8, 128)
    assert seen == [("/org/new-model/resolve/main/config.json", "Bearer secret")]


async def test_the_token_stays_with_its_host(serve: Serve) -> None:
    seen = []

    async def elsewhere(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.Response(text=CONFIG)

    other = (await serve(elsewhere)).replace("127.0.0.1", "localhost")

    async def redirect(request: web.Request) -> web.Response:
        raise web.HTTPFound(f"{other}/x")

    assert isinstance(await facts("hf://a/b", Sources(hub_endpoint=await serve(redirect), hub_token="secret")), ModelFacts)
    assert seen == [None]


@pytest.mark.parametrize(
    ("status", "text", "said"),
    [
        (401, "", "set HF_TOKEN"),
        (403, "", "ask for access"),
        (404, "", "check spec.model.uri"),
        (500, "", "answered 500"),
        (200, "no json", "does not describe a model that can be sized"),
        (200, "[]", "does not describe a model that can be sized"),
        (200, "{}", "does not describe a model that can be sized"),
        (200, "[" * 100_000, "config.json of hf://a/b"),
        (200, CONFIG.replace("32,", '"many",', 1), "config.json of hf://a/b"),
        (200, " " * 5000, "longer than 4,000 bytes"),
    ],
)
async def test_wrong_answers_are_refusals_that_say_what_to_do(serve: Serve, status: int, text: str, said: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, text=text)

    limit = 4_000 if len(text) == 5000 else 2_000_000
    found = message(await facts("hf://a/b", Sources(hub_endpoint=await serve(answer)), maximum_bytes=limit))
    assert said in found
    assert "spec.model.architecture" in found


async def test_a_hub_that_hangs_is_given_up(serve: Serve) -> None:
    async def hang(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    found = await facts("hf://a/b", Sources(hub_endpoint=await serve(hang)), timeout_seconds=0.2)
    assert "did not answer within 0.2 s" in message(found)
    assert "cannot be reached" in message(await facts("http://127.0.0.1:9/x", Sources()))


async def test_files_and_claims(tmp_path: Path) -> None:
    (tmp_path / "claim" / "llama").mkdir(parents=True)
    (tmp_path / "claim" / "llama" / "config.json").write_text(CONFIG)
    (tmp_path / "secret.json").write_text(CONFIG)
    (tmp_path / "claim" / "leak").mkdir()
    (tmp_path / "claim" / "leak" / "config.json").symlink_to(tmp_path / "secret.json")
    sources = Sources(mounts={"weights": tmp_path / "claim"})
    assert isinstance(await facts("pvc://weights/llama", sources), ModelFacts)
    assert "does not exist" in message(await facts("pvc://weights/other", sources))
    assert "leads out of" in message(await facts("pvc://weights/leak", sources))
    assert isinstance(await facts(str(tmp_path / "claim" / "llama"), sources), ModelFacts)


async def test_what_the_user_states_comes_first(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(CONFIG)
    async with aiohttp.ClientSession() as session:
        found = await checkpoint_facts(str(tmp_path), Architecture(layers=16, parameters="4G"), Sources(), session)
    assert isinstance(found, ModelFacts)
    assert (found.layers, found.parameters) == (16, 4e9)
    assert found.kv_bytes_per_token == 2 * 2 * 16 * 8 * 128


async def test_a_reader_waits_for_nobody_and_tries_again_later(serve: Serve) -> None:
    statuses = [500, 200]
    asked = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=statuses[len(asked) - 1], text=CONFIG)

    now: list[float] = [0.0]
    told: list[str] = []
    reader = CheckpointReader(Sources(hub_endpoint=await serve(answer)), lambda: now[0], told.append, retry_seconds=60.0)
    try:
        first = reader.peek("hf://a/b")
        assert isinstance(first, Refusal)
        assert first.reason == READING
        assert "answered 500" in message(await reader.facts("hf://a/b"))
        now[0] = 59.0
        assert "answered 500" in message(await reader.facts("hf://a/b"))
        assert len(asked) == 1
        now[0] = 60.0
        assert isinstance(await reader.facts("hf://a/b"), ModelFacts)
        now[0] = 1e9
        assert isinstance(reader.peek("hf://a/b", Architecture(layers=8)), ModelFacts)
        assert len(asked) == 2
        assert told == ["hf://a/b"] * 2
    finally:
        await reader.close()
