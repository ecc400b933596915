"""The JSON of OpenAI's completions, as vLLM writes it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from equipoise.emulate.legs import Asked
from equipoise.emulate.world import Engine

WORD: Final = " tick"
"""The one word of every answer: what is emulated is when tokens come, not what they say."""
_SIDE_CHANNEL_PORT: Final = 5600


def head(what: Asked, model: str, created: int, streaming: bool) -> dict[str, Any]:
    """What every body begins with."""
    kind = ("chat.completion.chunk" if streaming else "chat.completion") if what.is_chat else "text_completion"
    return {"id": what.id, "object": kind, "created": created, "model": model}


def completion(begin: Mapping[str, Any], what: Asked, reason: str, output_tokens: int) -> dict[str, Any]:
    """A whole answer."""
    text = WORD * output_tokens
    said = {"message": {"role": "assistant", "content": text}} if what.is_chat else {"text": text}
    choice = {"index": 0, **said, "logprobs": None, "finish_reason": reason}
    return {**begin, "choices": [choice], "usage": usage(what, output_tokens)}


def chunk(begin: Mapping[str, Any], what: Asked, first: bool, reason: str | None) -> str:
    """One token as a server-sent event."""
    if what.is_chat:
        delta = {"role": "assistant", "content": WORD} if first else {"content": WORD}
        choice: dict[str, Any] = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    else:
        choice = {"index": 0, "text": WORD, "logprobs": None, "finish_reason": reason}
    return f"data: {json.dumps({**begin, 'choices': [choice]})}\n\n"


def usage_chunk(begin: Mapping[str, Any], what: Asked, output_tokens: int) -> str:
    """The last event before the end, for clients that ask for usage."""
    return f"data: {json.dumps({**begin, 'choices': [], 'usage': usage(what, output_tokens)})}\n\n"


def usage(what: Asked, output_tokens: int) -> dict[str, int]:
    """Token counts."""
    total = what.prompt_tokens + output_tokens
    return {"prompt_tokens": what.prompt_tokens, "completion_tokens": output_tokens, "total_tokens": total}


def kv_transfer_params(engine: Engine, what: Asked, blocks: int) -> dict[str, Any]:
    """Where a decode engine fetches the KV of this prefill leg, in NixlConnector's form."""
    return {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": [list(range(blocks))],
        "remote_engine_id": engine.pod.uid,
        "remote_request_id": what.id,
        "remote_host": engine.pod.address,
        "remote_port": _SIDE_CHANNEL_PORT,
        "tp_size": engine.spec.shape.tensor_parallel,
    }


def model_card(engine: Engine) -> dict[str, Any]:
    """An entry of /v1/models."""
    length = engine.replica.spec.limits.max_model_len
    return {"id": engine.spec.model_name, "object": "model", "owned_by": "emulated", "max_model_len": length}


def error(status: int, kind: str, text: str) -> dict[str, Any]:
    """An error."""
    return {"error": {"message": text, "type": kind, "param": None, "code": status}}
