"""A solver that fails costs the last bit of quality and nothing else: the plan that is at hand stands, and says so."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import highspy
import pytest
from highspy._core import _Highs
from tests.unit.decide.allocation.small_fleets import broken_rules

from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.decide.allocation.exact import allocate, solver
from equipoise.decide.allocation.types import AllocationProblem, NodeSpace, PhaseDemand, ServiceDemand
from equipoise.decide.types import VariantOption
from equipoise.perf.types import ReplicaCapacity

RATES = {("a", 1): 100.0, ("b", 1): 61.0, ("b", 2): 130.0}
PRICES = {"a": 1.0, "b": 0.58}


def problem(services: int = 2) -> AllocationProblem:
    """Needs that no count meets exactly, on fewer GPUs than they take: prices alone do not settle it."""

    def phase(key: ServiceKey, phase: Phase, needed: float) -> PhaseDemand:
        options = []
        for (pool, wide), rate in RATES.items():
            capacity = ReplicaCapacity(phase, rate, 64, 10_000, 0.1, "compute", "test")
            options.append(VariantOption(Variant(key, phase, pool, Shape(wide)), capacity, PRICES[pool] * wide, 60.0))
        return PhaseDemand(phase, needed, 1, None, tuple(options), {})

    given = []
    for index in range(services):
        key = ServiceKey("prod", f"s{index}")
        phases = {Phase.PREFILL: phase(key, Phase.PREFILL, 310.0 + 45 * index), Phase.DECODE: phase(key, Phase.DECODE, 222.0)}
        given.append(ServiceDemand(key, 0, float(index), phases, change_price_usd=0.2))
    pools = {"a": (NodeSpace("a-0", 7),), "b": (NodeSpace("b-0", 3), NodeSpace("b-1", 3))}
    return AllocationProblem(pools, tuple(given))


class Failing(_Highs):
    """HiGHS that fails where it should solve."""

    asked = 0
    error: BaseException = RuntimeError()

    def run(self) -> highspy.HighsStatus:
        """Never solves."""
        type(self).asked += 1
        raise self.error


class Confused(_Highs):
    """HiGHS that answers with something that is no number."""

    def getSolution(self) -> highspy.HighsSolution:
        """Values of which one is unknown."""
        found = super().getSolution()
        values = list(found.col_value)
        values[0] = math.nan
        found.col_value = values
        return found


class Refusing(_Highs):
    """HiGHS that takes no program."""

    def passModel(self, model: highspy.HighsLp) -> highspy.HighsStatus:  # type: ignore[override]
        """Never takes one."""
        return highspy.HighsStatus.kError


def use(monkeypatch: pytest.MonkeyPatch, kind: Callable[[], _Highs]) -> None:
    """Let the program run on another solver."""

    def made(seconds: float) -> _Highs:
        highs = kind()
        highs.setOptionValue("output_flag", False)
        highs.setOptionValue("time_limit", seconds)
        return highs

    monkeypatch.setattr(solver, "quiet", made)


@pytest.mark.parametrize(
    "error", [RuntimeError("out of luck"), MemoryError(), ValueError("vector"), IndexError("map::at"), TypeError("x")]
)
def test_a_solver_that_raises_leaves_the_plan_at_hand(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    Failing.asked, Failing.error = 0, error
    with_solver = allocate(problem())
    assert with_solver.method == "integer program"
    use(monkeypatch, Failing)
    found = allocate(problem())
    assert Failing.asked == 1  # and is not asked again in this round
    assert found.method.startswith("greedy (HiGHS failed: " + type(error).__name__)
    assert not broken_rules(problem(), found)
    assert found.replicas
    assert found.gap > with_solver.gap


@pytest.mark.parametrize("kind", [Confused, Refusing])
def test_an_answer_that_is_none_is_not_taken(monkeypatch: pytest.MonkeyPatch, kind: Callable[[], _Highs]) -> None:
    use(monkeypatch, kind)
    found = allocate(problem())
    assert "HiGHS failed" in found.method
    assert not broken_rules(problem(), found)
    assert found.replicas


def test_an_error_of_our_own_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what HiGHS throws is caught: a plan that is wrong by our own mistake must be seen."""
    Failing.error = KeyError("ours")
    use(monkeypatch, Failing)
    with pytest.raises(KeyError):
        allocate(problem())


def test_without_time_the_solver_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    Failing.asked = 0
    use(monkeypatch, Failing)
    found = allocate(replace(problem(), time_limit_seconds=0.0))
    assert (Failing.asked, found.method) == (0, "greedy")
