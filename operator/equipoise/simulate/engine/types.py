"""What an emulated engine is made of: limits, place, speed. Plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from equipoise.perf.types import StepTimes


class Outcome(IntEnum):
    """How a request ended."""

    PENDING = 0
    FINISHED = 1
    REFUSED = 2  # turned away before any work: no replica, or an engine's queue limit (HTTP 503)
    LOST = 3  # work was under way and a replica went away
    ABORTED = 4  # the client went away


class Stage(IntEnum):
    """Where a request is now."""

    NEW = 0
    PREFILL_WAITING = 1
    PREFILLING = 2
    HELD = 3  # prefill answered, KV blocks wait on the prefill replica for a decode leg
    DECODE_WAITING = 4  # no KV blocks on the decode replica yet
    LOADING = 5  # KV blocks are being copied
    LOADED = 6  # KV is there, the next step takes the request in
    DECODING = 7
    DONE = 8


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """A vLLM engine's own limits, named after its flags.

    `max_num_queued_tokens` follows vLLM's admission check: a request is refused when the prompts of all requests that have no
    first token yet already add up to the limit (whole prompts, cached parts included); the request itself may pass it.
    `max_num_queued_reqs` bounds waiting and running requests together. `kv_lease_seconds` is how long a prefill engine keeps
    blocks that nobody fetches.
    """

    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 256
    max_num_queued_tokens: int | None = None
    max_num_queued_reqs: int | None = None
    max_model_len: int = 131_072
    block_size: int = 16
    kv_lease_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """One replica: how fast it is, how much KV it holds, where it sits.

    `kv_tokens` is the KV cache's capacity; `kv_bytes_per_token` what the hand-over moves. Replicas with the same `node` share
    that node's link; `link_bytes_per_second` is the rate of that link.
    """

    step_times: StepTimes
    kv_tokens: int
    kv_bytes_per_token: int
    node: str = "node-0"
    link_bytes_per_second: float = 12.5e9
    pool: str = ""
    variant: str = ""
    limits: EngineLimits = field(default_factory=EngineLimits)
    prefix_caching: bool = True


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """What a KV transfer costs besides its bytes.

    `post_seconds`: fixed time of one transfer (measured on a NIXL pair over loopback: 1 to 2.3 ms).
    `handshake_seconds`: paid once by the first transfer of each pair of replicas (llm-d's guide: lazy, seconds); zero by default.
    `same_node_bytes_per_second`: rate between two replicas of one node, which does not use the node's network link.
    """

    post_seconds: float = 0.0015
    handshake_seconds: float = 0.0
    same_node_bytes_per_second: float = 25e9
