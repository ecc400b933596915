"""Every named world can be built, without and with a folder of recordings, and offers what its title says."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from equipoise.api.identity import Phase
from equipoise.simulate.scenarios.catalogue import SCENARIOS, scenario


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_a_scenario_begins_inside_its_pools_with_both_phases(name: str) -> None:
    world = scenario(name).build(None)
    gpus = {pool.name: pool.nodes * pool.gpus_per_node for pool in world.pools}
    for setup in world.services:
        assert all(sum(count for (found, _), count in setup.initial.items() if found is phase) >= 1 for phase in Phase)
        for (_, pool), count in setup.initial.items():
            gpus[pool] -= count
        first = list(islice(setup.arrivals(0), 50))
        assert len(first) == 50
        assert [arrival.at_seconds for arrival in first] == sorted(arrival.at_seconds for arrival in first)
        assert first[-1].at_seconds < world.seconds
        assert [tuple(a) for a in islice(setup.arrivals(0), 50)] == [tuple(arrival) for arrival in first]
    assert min(gpus.values()) >= 0


def test_recordings_are_replayed_where_they_are_found(tmp_path: Path) -> None:
    rows = [f"2023-11-16 18:15:{second:02d}.0000000,{1000 + second},50" for second in range(60)]
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows) + "\n"
    (tmp_path / "AzureLLMInferenceTrace_conv_2023.csv").write_text(text, encoding="utf-8")
    recorded, generated = scenario("S1").build(tmp_path), scenario("S1").build(None)
    assert recorded.seconds == pytest.approx(59.0)
    prompts = {arrival.prompt_tokens for arrival in recorded.services[0].arrivals(0)}
    assert prompts == set(range(1000, 1060))
    assert generated.seconds == 1800.0


def test_an_unknown_scenario_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'S9' is none of alt300, .*constant"):
        scenario("S9")
