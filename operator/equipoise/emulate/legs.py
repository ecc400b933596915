"""HTTP requests on their way through the model: what a body asks for, and a request that can be waited for."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from equipoise.emulate.world import Engine, Router, Service, next_request_number
from equipoise.simulate.engine.request import Request
from equipoise.simulate.engine.types import Outcome, Stage

DEFAULT_OUTPUT_TOKENS: Final = 128
CHARACTERS_PER_TOKEN: Final = 4


class BadRequest(Exception):
    """The body is not what the endpoint takes; answered with 400."""


@dataclass(frozen=True)
class Asked:
    """What a completion request asks for. There is no tokenizer here: four characters make a token, token ids count exactly."""

    prompt_tokens: int
    output_tokens: int
    stopped_by_length: bool
    stream: bool
    include_usage: bool
    is_chat: bool
    remote_decode: bool  # a prefill leg: another engine will decode
    remote_request_id: str | None  # a decode leg: KV is held elsewhere under this id
    id: str = field(default_factory=lambda: f"cmpl-{secrets.token_hex(8)}")


def asked(body: bytes, is_chat: bool) -> Asked:
    """Read a body of /v1/completions or /v1/chat/completions."""
    try:
        found = json.loads(body)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadRequest("the body is not a JSON object")
    limit = found.get("max_completion_tokens") or found.get("max_tokens")
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise BadRequest(f"max_tokens must be a positive integer, found {limit!r}")
    transfer = found.get("kv_transfer_params") or {}
    options = found.get("stream_options") or {}
    return Asked(
        prompt_tokens=_chat_tokens(found.get("messages")) if is_chat else _prompt_tokens(found.get("prompt")),
        output_tokens=limit or DEFAULT_OUTPUT_TOKENS,
        stopped_by_length=limit is not None,
        stream=bool(found.get("stream")),
        include_usage=bool(options.get("include_usage")),
        is_chat=is_chat,
        remote_decode=bool(transfer.get("do_remote_decode")),
        remote_request_id=transfer.get("remote_request_id") if transfer.get("do_remote_prefill") else None,
    )


def _prompt_tokens(prompt: object) -> int:
    match prompt:
        case str():
            return max(1, -(-len(prompt) // CHARACTERS_PER_TOKEN))
        case [int(), *_]:
            return len(prompt)
        case [str(), *_] | [[*_], *_]:
            return sum(_prompt_tokens(part) for part in prompt)
    raise BadRequest("prompt must be a text, token ids, or a list of these")


def _chat_tokens(messages: object) -> int:
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages must be a list of at least one message")
    return sum(4 + _content_tokens(message.get("content") if isinstance(message, Mapping) else None) for message in messages)


def _content_tokens(content: object) -> int:
    if isinstance(content, list):
        return sum(_content_tokens(part.get("text")) for part in content if isinstance(part, Mapping))
    return -(-len(content) // CHARACTERS_PER_TOKEN) if isinstance(content, str) else 0


class Legs:
    """Sends HTTP requests' legs into the model, and remembers prefill legs until their decode leg comes."""

    def __init__(self, now: Callable[[], float], arrived: Callable[[Service, Request, float], None]) -> None:
        self._now = now
        self._arrived = arrived
        self._held: dict[str, tuple[Service, Request]] = {}
        self.open = 0  # HTTP requests in the model: while there are any, time must pass in small steps
        self.opened = asyncio.Event()  # the first of them has come
        self._beat = asyncio.Event()

    def beat(self) -> None:
        """Time has passed: everybody who waits looks again. Tokens are a matter of time in the model, not events."""
        before, self._beat = self._beat, asyncio.Event()
        before.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for the model to get there."""
        while not condition():
            await self._beat.wait()

    def enter(self) -> None:
        """An HTTP request goes into the model."""
        self.open += 1
        self.opened.set()

    def leave(self) -> None:
        """An HTTP request is answered."""
        self.open -= 1

    def prefill(self, service: Service, engine: Engine, what: Asked) -> Request:
        """A leg that ends with its KV held here."""
        request = self._new(service, what)
        request.one_leg = True
        self._held[what.id] = (service, request)
        service.cluster.send_prefill(request, engine.replica, self._advance(service))
        return request

    def decode(self, service: Service, engine: Engine, what: Asked) -> Request | None:
        """A leg whose KV is held by another engine; None when nobody holds it (any more)."""
        held_service, request = self._held.pop(what.remote_request_id or "", (None, None))
        now = self._advance(service)
        if request is None or held_service is not service or request.stage is not Stage.HELD:
            return None
        request.output_tokens = what.output_tokens
        request.stopped_by_length = what.stopped_by_length
        service.cluster.send_decode(request, engine.replica, now)
        return request

    def whole(self, service: Service, engine: Engine, what: Asked) -> Request:
        """Not disaggregated: this engine reads the prompt and writes the answer."""
        request = self._new(service, what)
        request.local = True
        service.cluster.send_decode(request, engine.replica, self._advance(service))
        return request

    def routed(self, service: Service, what: Asked, router: Router) -> Request:
        """Through the emulated router."""
        request = self._new(service, what)
        service.submit(request, self._advance(service), router)
        return request

    def sweep(self) -> None:
        """Drop prefill legs whose KV is gone."""
        for name in [name for name, (_, request) in self._held.items() if request.outcome is not Outcome.PENDING]:
            del self._held[name]

    def abort(self, service: Service, request: Request) -> None:
        """The client went away."""
        service.cluster.abort(request, self._advance(service))

    def _advance(self, service: Service) -> float:
        now = self._now()
        service.advance(now)
        return now

    def _new(self, service: Service, what: Asked) -> Request:
        now = self._advance(service)
        request = Request(
            next_request_number(), now, what.prompt_tokens, 1 if what.remote_decode else what.output_tokens, kind="http"
        )
        request.stopped_by_length = what.stopped_by_length
        self._arrived(service, request, now)
        return request
