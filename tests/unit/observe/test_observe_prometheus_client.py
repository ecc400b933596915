"""The client against a real HTTP server on loopback that misbehaves in each way there is."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from equipoise.observe.prometheus import PrometheusClient, PrometheusSettings
from equipoise.observe.readings import Failure, Sample

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
GOOD = {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {"a": "b"}, "value": [1.0, "2.5"]}]}}


class Server:
    """Answers /api/v1/query with whatever the test put into `handler`."""

    def __init__(self) -> None:
        self.handler: Handler = self.good
        self.seen: list[dict[str, str]] = []
        self.url = ""

    async def good(self, _: web.Request) -> web.StreamResponse:
        return web.json_response(GOOD)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        self.seen.append(
            {**{name: str(item) for name, item in form.items()}, **{f"header {k.lower()}": v for k, v in request.headers.items()}}
        )
        return await self.handler(request)


async def serve(context: ssl.SSLContext | None = None) -> tuple[Server, web.AppRunner]:
    server = Server()
    app = web.Application()
    app.router.add_post("/prom/api/v1/query", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    server.url = f"{'https' if context else 'http'}://127.0.0.1:{port}/prom/"
    return server, runner


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    started, runner = await serve()
    yield started
    await runner.cleanup()


async def ask(url: str, **settings: Any) -> list[Sample] | Failure:
    async with PrometheusClient(PrometheusSettings(url, **settings)) as client:
        return await client.query("up", 1000.25)


async def failure(url: str, **settings: Any) -> str:
    answer = await ask(url, **settings)
    assert isinstance(answer, Failure), answer
    return answer.message


def answering(status: int, body: object) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=body if isinstance(body, str) else json.dumps(body))

    return handler


async def test_a_vector_is_read_at_the_time_that_was_asked_for(server: Server) -> None:
    assert await ask(server.url, headers={"X-Scope-OrgID": "eu"}) == [Sample({"a": "b"}, 2.5)]
    sent = server.seen[0]
    assert (sent["query"], sent["time"], sent["timeout"]) == ("up", "1000.250", "10s")
    assert sent["header x-scope-orgid"] == "eu"
    assert "header authorization" not in sent


async def test_the_token_file_is_read_for_every_query(server: Server, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    async with PrometheusClient(PrometheusSettings(server.url, bearer_token_file=str(token))) as client:
        await client.query("up", 1.0)
        token.write_text("second\n")
        await client.query("up", 2.0)
        token.unlink()
        missing = await client.query("up", 3.0)
    assert [sent["header authorization"] for sent in server.seen] == ["Bearer first", "Bearer second"]
    assert isinstance(missing, Failure)
    assert "token" in missing.message


async def test_special_values_are_floats(server: Server) -> None:
    vector = [{"metric": {}, "value": [1, text]} for text in ("NaN", "+Inf", "-Inf")]
    server.handler = answering(200, {"status": "success", "data": {"resultType": "vector", "result": vector}})
    answer = await ask(server.url)
    assert isinstance(answer, list)
    assert [str(sample.value) for sample in answer] == ["nan", "inf", "-inf"]


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (
            422,
            {"status": "error", "errorType": "execution", "error": "too many samples"},
            "answered execution (HTTP 422): too many samples",
        ),
        (400, {"status": "error", "errorType": "bad_data", "error": "parse error"}, "bad_data (HTTP 400): parse error"),
        (401, "no", "refuses the credentials (HTTP 401)"),
        (403, "no", "refuses the credentials (HTTP 403)"),
        (502, "<html>bad gateway</html>", "HTTP 502 with something else than its API's JSON"),
        (200, "[]", "something else than its API's JSON"),
        (200, {**GOOD, "warnings": ["store eu-2 is unavailable"]}, "only part of the answer: store eu-2 is unavailable"),
        (200, {"status": "success", "data": {"resultType": "matrix", "result": []}}, "with a matrix, expected a vector"),
        (200, {"status": "success"}, "in an unknown form"),
        (
            200,
            {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "histogram": []}]}},
            "unknown form",
        ),
    ],
)
async def test_bad_answers_become_sentences(server: Server, status: int, body: object, expected: str) -> None:
    server.handler = answering(status, body)
    assert expected in await failure(server.url)


async def test_remarks_of_promql_itself_do_not_void_the_answer(server: Server) -> None:
    server.handler = answering(200, {**GOOD, "warnings": ["PromQL warning: something"], "infos": ["PromQL info: not a counter"]})
    assert isinstance(await ask(server.url), list)


async def test_a_slow_server_is_given_up(server: Server) -> None:
    released = asyncio.Event()

    async def slow(_: web.Request) -> web.StreamResponse:
        await released.wait()
        return web.json_response(GOOD)

    server.handler = slow
    message = await failure(server.url, timeout_seconds=0.1)
    released.set()
    assert "did not answer within 0.1 s" in message


async def test_an_answer_without_end_is_cut_off(server: Server) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 65536)
        except ConnectionError:
            return response

    server.handler = endless
    assert "exceeds 1 MiB" in await failure(server.url, maximum_response_bytes=1 << 20)


async def test_redirects_are_not_followed(server: Server) -> None:
    async def elsewhere(_: web.Request) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect("http://127.0.0.1:1/")

    server.handler = elsewhere
    assert "HTTP 307" in await failure(server.url, bearer_token="secret")


async def test_nobody_listening_is_a_sentence() -> None:
    assert "Prometheus at 127.0.0.1:1 cannot be asked" in await failure("http://127.0.0.1:1")


async def test_only_so_many_queries_run_at_once(server: Server) -> None:
    running = most = 0
    gate = asyncio.Event()

    async def counted(_: web.Request) -> web.StreamResponse:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            gate.set()
        await gate.wait()
        running -= 1
        return web.json_response(GOOD)

    server.handler = counted
    async with PrometheusClient(PrometheusSettings(server.url, maximum_concurrency=3)) as client:
        answers = await asyncio.gather(*(client.query("up", 1.0) for _ in range(9)))
    assert all(isinstance(answer, list) for answer in answers)
    assert most == 3


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that is its own authority, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on this machine to make a certificate with")
    crt, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
    command += ["-subj", "/CN=prometheus", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(crt)]
    subprocess.run(command, check=True, capture_output=True)
    return crt, key


async def test_certificates_are_checked_against_the_given_authority(certificate: tuple[Path, Path]) -> None:
    crt, key = certificate
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(crt, key)
    started, runner = await serve(context)
    try:
        assert "is not trusted" in await failure(started.url)
        assert isinstance(await ask(started.url, ca_file=str(crt)), list)
        skipping = await ask(started.url, insecure_skip_verify=True, allow_insecure_skip_verify=True)
        assert isinstance(skipping, list)
        assert "cannot be asked" in await failure(started.url, ca_file=str(crt.with_name("nowhere.crt")))
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"url": "prometheus:9090"}, "expected http"),
        ({"url": "https://p", "insecure_skip_verify": True}, "refused"),
        ({"url": "https://p", "bearer_token": "a", "bearer_token_file": "b"}, "give one of them"),
        ({"url": "https://p", "timeout_seconds": 0}, "timeout_seconds"),
    ],
)
def test_settings_that_make_no_sense_are_refused(fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        PrometheusSettings(**fields)


def test_secrets_do_not_show_in_the_settings() -> None:
    settings = PrometheusSettings("https://p", bearer_token="s3cret", headers={"Authorization": "s3cret"})
    assert "s3cret" not in repr(settings)
