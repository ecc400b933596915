"""The client that counts: streams completions from a router and writes what became of every single request.

A process of its own, so that what it measures is not the driver's waiting. Arrivals are Poisson and do not wait for answers.
A line of JSON per request that has ended goes to `--records`. On SIGTERM no more requests begin, those under way are waited for.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import time
from pathlib import Path
from typing import Any, TextIO

import aiohttp

ANSWER_TIMEOUT_SECONDS = 120.0


async def stream(session: aiohttp.ClientSession, url: str, model: str, prompt: str, tokens: int) -> dict[str, Any]:
    """One request. Complete means: status 200, every token asked for, and the stream's own end mark."""
    record: dict[str, Any] = {"begin": time.monotonic(), "asked": tokens, "tokens": 0, "complete": False, "error": ""}
    body = {"model": model, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": True}
    first = last = 0.0
    done = False
    try:
        async with session.post(f"{url}/v1/completions", json=body) as answer:
            record["status"] = answer.status
            if answer.status != 200:
                record["error"] = f"HTTP {answer.status}: {(await answer.text())[:300]}"
            else:
                async for line in answer.content:
                    if not line.startswith(b"data: "):
                        continue
                    if line.strip() == b"data: [DONE]":
                        done = True
                        continue
                    last = time.monotonic()
                    first = first or last
                    record["tokens"] += 1
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        record["error"] = f"{type(error).__name__}: {error}"
    record["end"] = time.monotonic()
    record["complete"] = done and record["tokens"] == tokens and not record["error"]
    if not record["complete"] and not record["error"]:
        record["error"] = f"the stream ended after {record['tokens']} of {tokens} tokens"
    if first:
        record["ttft"] = first - record["begin"]
        if record["tokens"] > 1:
            record["tpot"] = (last - first) / (record["tokens"] - 1)
    return record


async def drive(options: argparse.Namespace, records: TextIO) -> None:
    """Send until told to stop."""
    stop = asyncio.Event()
    for which in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(which, stop.set)
    draw = random.Random(options.seed)
    timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_SECONDS)
    # A connection that the router closes just as it is used again is the client's trouble, not a lost request: none is kept.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    under_way: set[asyncio.Task[None]] = set()
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:

        async def one(number: int, prompt: str, tokens: int) -> None:
            record = await stream(session, options.url, options.model, prompt, tokens)
            records.write(json.dumps({"number": number, **record}) + "\n")
            records.flush()

        number, due = 0, time.monotonic()
        start = due
        while not stop.is_set():
            surge = int((due - start) / options.surge_every) % 2 == 1 if options.surge_every else False
            due += draw.expovariate(options.surge_rate if surge else options.rate)
            try:
                await asyncio.wait_for(stop.wait(), max(0.0, due - time.monotonic()))
            except TimeoutError:
                pass
            else:
                break
            number += 1
            length = draw.randint(options.prompt_characters // 2, options.prompt_characters * 3 // 2)
            prompt = f"{number} " + "a" * length
            task = asyncio.create_task(one(number, prompt, draw.randint(*options.output_tokens)))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        if under_way:
            await asyncio.wait(under_way)


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--rate", type=float, default=5.0, help="requests per second")
    parser.add_argument("--prompt-characters", type=int, default=1600, help="mean; four make a token in the emulator")
    parser.add_argument("--output-tokens", type=int, nargs=2, default=(20, 140), metavar=("LEAST", "MOST"))
    parser.add_argument("--surge-every", type=float, default=0.0, help="seconds at --rate, then as many at --surge-rate; 0: none")
    parser.add_argument("--surge-rate", type=float, default=10.0, help="requests per second in between")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with options.records.open("a") as records:
        asyncio.run(drive(options, records))


if __name__ == "__main__":
    main()
