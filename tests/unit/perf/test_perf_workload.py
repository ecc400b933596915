from __future__ import annotations

import pytest

from equipoise.perf.types import Workload


def test_rounding_moves_lengths_by_a_per_cent_at_most() -> None:
    for length in (1.0, 17.3, 1155.0, 120_000.0):
        rounded = Workload(length, length / 3, 0.371, length**2 * 1.7).rounded()
        assert rounded.mean_prompt_tokens == pytest.approx(length, rel=0.0101)
        assert rounded.mean_output_tokens == pytest.approx(length / 3, rel=0.0101)
        assert rounded.prompt_tokens_second_moment == pytest.approx(length**2 * 1.7, rel=0.0101)
        assert rounded.prefix_hit_share == pytest.approx(0.371, abs=0.0101)


def test_noise_rounds_to_the_same_workload() -> None:
    steps = {Workload(1155 * (1 + noise / 1000), 211).rounded() for noise in range(-20, 21)}
    assert len(steps) <= 4  # 4 % of noise, steps of 2 %


def test_nothing_stays_nothing() -> None:
    assert Workload(0, 0).rounded() == Workload(0, 0)
    assert Workload(100, 10).rounded().prompt_tokens_second_moment is None
