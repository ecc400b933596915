"""The engines' HTTP side: OpenAI's completions with vLLM's prefill/decode extension, health, models, metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiohttp import web

from equipoise.emulate import openai_bodies as bodies
from equipoise.emulate.legs import Asked, BadRequest, Legs, asked
from equipoise.emulate.pods import ROUTER_METRICS_PORT
from equipoise.emulate.world import Engine, Router, Service, World
from equipoise.simulate.engine.metrics.exposition import CONTENT_TYPE
from equipoise.simulate.engine.replica import REJECT_REQUESTS, REJECT_TOKENS
from equipoise.simulate.engine.request import Request
from equipoise.simulate.engine.types import Outcome

_BUSY: Final = {
    REJECT_REQUESTS: "The server is busy with as many requests as it may take. Try again later.",
    REJECT_TOKENS: "The prefill backlog is as large as it may be. Try again later.",
}


class PodPages:
    """Handlers for all pod addresses. Which pod is asked shows in the socket's own address."""

    def __init__(self, world: World, legs: Legs, now: Callable[[], float], unix_seconds: Callable[[], float]) -> None:
        self._world = world
        self._legs = legs
        self._now = now
        self._unix_seconds = unix_seconds

    def application(self) -> web.Application:
        """Everything a pod answers."""
        application = web.Application(client_max_size=2**26)
        router = application.router
        for path in ("/health", "/ping", "/liveness", "/readiness"):
            router.add_get(path, self._health)
        router.add_get("/metrics", self._metrics)
        router.add_get("/version", self._version)
        router.add_get("/v1/models", self._models)
        router.add_post("/v1/completions", self._completions)
        router.add_post("/v1/chat/completions", self._chat)
        return application

    def _find(self, request: web.Request) -> tuple[Service, Engine | None, Router | None]:
        name = request.transport.get_extra_info("sockname") if request.transport else None
        address = name[0] if name else ""
        if address in self._world.by_address:
            service, engine = self._world.by_address[address]
            return service, engine, None
        if address in self._world.routers_by_address:
            service, router = self._world.routers_by_address[address]
            return service, None, router
        raise web.HTTPServiceUnavailable(text=f"no pod has the address {address} any more")

    async def _health(self, request: web.Request) -> web.Response:
        service, _, router = self._find(request)
        if router is not None and request.path == "/readiness" and not service.can_serve:
            return web.json_response({"status": "not ready: a phase has no replica"}, status=503)
        return web.Response()

    async def _metrics(self, request: web.Request) -> web.Response:
        service, engine, router = self._find(request)
        now = self._now()
        service.advance(now)
        if engine is not None:
            text = engine.page.page(now)
        elif router is not None and request.url.port == ROUTER_METRICS_PORT:
            text = router.stats.page(service.cluster.in_routing)
        else:
            raise web.HTTPMethodNotAllowed("GET", [])  # as vllm-router's own port does
        return web.Response(text=text, headers={"Content-Type": CONTENT_TYPE})

    async def _version(self, request: web.Request) -> web.Response:
        self._find(request)
        return web.json_response({"version": "0.32.0+emulated"})

    async def _models(self, request: web.Request) -> web.Response:
        service, engine, _ = self._find(request)
        engine = engine or next(iter(service.engines.values()), None)
        return web.json_response({"object": "list", "data": [] if engine is None else [bodies.model_card(engine)]})

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._serve(request, is_chat=False)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._serve(request, is_chat=True)

    async def _serve(self, http: web.Request, is_chat: bool) -> web.StreamResponse:
        service, engine, router = self._find(http)
        try:
            what = asked(await http.read(), is_chat)
        except BadRequest as error:
            return _error(400, "BadRequestError", str(error))
        self._legs.enter()
        try:
            if router is not None:
                request = self._legs.routed(service, what, router)
                model = service.key.name
            elif engine is None:
                raise AssertionError("an address is an engine's or a router's")
            else:
                model = engine.spec.model_name
                if what.remote_decode:
                    return await self._prefill_leg(http, service, engine, what)
                if what.remote_request_id is None:
                    request = self._legs.whole(service, engine, what)
                else:
                    held = self._legs.decode(service, engine, what)
                    if held is None:
                        return _error(500, "InternalServerError", "the KV of this request is gone (lease over, or its engine)")
                    request = held
            return await self._answer(http, service, request, what, model)
        finally:
            self._legs.leave()

    async def _prefill_leg(self, http: web.Request, service: Service, engine: Engine, what: Asked) -> web.StreamResponse:
        request = self._legs.prefill(service, engine, what)
        try:
            await self._legs.until(lambda: request.prefill_end >= 0.0 or request.outcome is not Outcome.PENDING)
        finally:
            if request.prefill_end < 0.0:
                self._legs.abort(service, request)
        if request.outcome is not Outcome.PENDING:
            return _failed(http, request)
        head = bodies.head(what, engine.spec.model_name, int(self._unix_seconds()), streaming=False)
        body = bodies.completion(head, what, "length", 1)
        return web.json_response({**body, "kv_transfer_params": bodies.kv_transfer_params(engine, what, request.prefill_blocks)})

    async def _answer(self, http: web.Request, service: Service, request: Request, what: Asked, model: str) -> web.StreamResponse:
        def begun() -> bool:
            return 0.0 <= request.first_token <= self._now() or request.outcome is not Outcome.PENDING

        def over() -> bool:
            return request.outcome is not Outcome.PENDING

        try:
            await self._legs.until(begun if what.stream else over)
            if request.outcome not in (Outcome.PENDING, Outcome.FINISHED):
                return _failed(http, request)
            if what.stream:
                return await self._stream(http, service, request, what, model)
        finally:
            # A client that leaves cancels this, or makes a write fail; nothing happens when the answer is complete.
            self._legs.abort(service, request)
        head = bodies.head(what, model, int(self._unix_seconds()), streaming=False)
        return web.json_response(bodies.completion(head, what, _reason(request), request.output_tokens))

    async def _stream(self, http: web.Request, service: Service, request: Request, what: Asked, model: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"})
        head = bodies.head(what, model, int(self._unix_seconds()), streaming=True)
        sent = 0
        await response.prepare(http)
        while sent < request.output_tokens:
            ready = self._tokens_now(service, request)
            if ready > sent:
                events = []
                for number in range(sent, ready):
                    last = number == request.output_tokens - 1
                    events.append(bodies.chunk(head, what, number == 0, _reason(request) if last else None))
                sent = ready
                await response.write("".join(events).encode())
            elif request.outcome is not Outcome.PENDING:
                _break_off(http)
                return response
            else:
                await self._legs.until(self._is_new(service, request, sent))
        if what.include_usage:
            await response.write(bodies.usage_chunk(head, what, sent).encode())
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    def _is_new(self, service: Service, request: Request, sent: int) -> Callable[[], bool]:
        return lambda: self._tokens_now(service, request) > sent or request.outcome is not Outcome.PENDING

    def _tokens_now(self, service: Service, request: Request) -> int:
        now = self._now()
        service.advance(now)
        replica = request.decode_replica
        return replica.generated_tokens(request, now) if replica is not None else 0


def _failed(http: web.Request, request: Request) -> web.StreamResponse:
    if request.outcome is Outcome.REFUSED:
        if "longer than" in request.cause:
            return _error(400, "BadRequestError", f"the request is {request.cause}")
        return _error(503, "Service Unavailable", _BUSY.get(request.cause, request.cause))
    if request.cause.endswith("before its KV was fetched"):
        return _error(500, "InternalServerError", request.cause)  # the decode engine is well and says so
    _break_off(http)
    return web.Response(status=502)


def _break_off(http: web.Request) -> None:
    """The engine is gone, and its connections with it."""
    if http.transport is not None:
        http.transport.abort()


def _reason(request: Request) -> str:
    return "length" if request.stopped_by_length else "stop"


def _error(status: int, kind: str, text: str) -> web.Response:
    return web.json_response(bodies.error(status, kind, text), status=status)
