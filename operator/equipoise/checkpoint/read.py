"""Reading a config.json, with a deadline and a bound on its size."""

from __future__ import annotations

import asyncio
from typing import Final

import aiohttp

from equipoise.checkpoint.places import CannotReadConfig, Local, Sources, Web, config_place

TIMEOUT_SECONDS: Final = 10.0
MAXIMUM_BYTES: Final = 2 * 1024 * 1024  # real ones have 1 to 100 kB, those that list quantised layers up to some hundred
_REDIRECTS: Final = 5
_HINTS: Final = {
    401: "the model is gated or private: set HF_TOKEN to a token that may read it",
    403: "the model is gated: ask for access on its page, and set HF_TOKEN to a token that may read it",
    404: "there is no such model, revision or file: check spec.model.uri",
    429: "too many requests: try again later",
}


async def read_config(
    address: str,
    sources: Sources,
    session: aiohttp.ClientSession,
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
    maximum_bytes: int = MAXIMUM_BYTES,
) -> str:
    """Text of the config.json of the model at `address`.

    CannotReadConfig names the place, what went wrong (no way there, status, time-out, size, not text) and what to do.
    """
    place = config_place(address, sources)
    if isinstance(place, Web):
        data = await _fetch(place, session, timeout_seconds, maximum_bytes)
    else:
        data = await asyncio.to_thread(_load, place, maximum_bytes)
    if len(data) > maximum_bytes:
        raise CannotReadConfig(f"{place} is longer than {maximum_bytes:,} bytes: that is no config.json")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise CannotReadConfig(f"{place} is no UTF-8 text: that is no config.json") from None


async def _fetch(place: Web, session: aiohttp.ClientSession, timeout_seconds: float, maximum_bytes: int) -> bytes:
    headers = {"Authorization": f"Bearer {place.token}"} if place.token else {}
    try:
        async with (
            asyncio.timeout(timeout_seconds),
            session.get(place.url, headers=headers, max_redirects=_REDIRECTS) as response,
        ):
            if response.status != 200:
                hint = _HINTS.get(response.status, "try again, or check the address")
                raise CannotReadConfig(f"{place} answered {response.status} {response.reason or ''}".rstrip() + f"; {hint}")
            chunks, size = [], 0
            async for chunk in response.content.iter_chunked(65536):
                chunks.append(chunk)
                size += len(chunk)
                if size > maximum_bytes:
                    break
            return b"".join(chunks)
    except TimeoutError:
        raise CannotReadConfig(
            f"{place} did not answer within {timeout_seconds:g} s; check the network, or set HF_ENDPOINT to a mirror"
        ) from None
    except aiohttp.TooManyRedirects:
        raise CannotReadConfig(f"{place} leads on and on ({_REDIRECTS} redirects); check the address") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise CannotReadConfig(
            f"{place} cannot be reached ({error or type(error).__name__}); check the network, or set HF_ENDPOINT to a mirror"
        ) from None


def _load(place: Local, maximum_bytes: int) -> bytes:
    try:
        path = place.path.resolve(strict=True)
        if place.root is not None and not path.is_relative_to(place.root.resolve()):
            raise CannotReadConfig(f"{place} leads out of {place.root}; give a path inside it")
        with path.open("rb") as file:
            return file.read(maximum_bytes + 1)
    except FileNotFoundError:
        raise CannotReadConfig(f"{place} does not exist; give the folder that holds the model's config.json") from None
    except OSError as error:
        raise CannotReadConfig(f"{place} cannot be read ({error.strerror or error}); check the path and its rights") from None
