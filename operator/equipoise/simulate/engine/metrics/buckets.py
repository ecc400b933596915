"""Bucket edges of vLLM 0.32's histograms, as scraped from real engines; the last bucket, +Inf, is not listed."""

from __future__ import annotations

TTFT_SECONDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
INTER_TOKEN_SECONDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
REQUEST_SECONDS = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
ITERATION_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)
PARAMETER_N = (1, 2, 5, 10, 20)
NIXL_TRANSFER_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 5.0)
NIXL_POST_SECONDS = (0.001, *NIXL_TRANSFER_SECONDS)
NIXL_BYTES = tuple(2048 * 4**power for power in range(12))
NIXL_DESCRIPTORS = (10, 20, 30, 50, 75, 100, 200, 400, 1000, 2000, 4000, 10000, 20000, 50000)


def token_counts(max_model_len: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50 … up to the model's length: the edges of vLLM's token-count histograms."""
    edges: list[int] = []
    power = 1
    while power <= max_model_len:
        edges.extend(digit * power for digit in (1, 2, 5) if digit * power <= max_model_len)
        power *= 10
    return tuple(edges)
