"""HiGHS behind a few words: columns, rows, one objective after the other. The same input gives the same output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import highspy
import numpy as np
from highspy._core import _Highs

INFINITY = float("inf")

# What HiGHS throws arrives as one of these: pybind11's table of C++ exceptions, and TypeError where a call does not suit the
# version that is installed.
_THROWN = (RuntimeError, ValueError, IndexError, OverflowError, MemoryError, TypeError)


class SolverError(Exception):
    """HiGHS failed instead of answering; the text says how. Nothing is known of the program then."""


@dataclass(slots=True)
class Solution:
    """Values of all columns, the objective, and how far from the optimum it can be at most (relative)."""

    values: list[float]
    value: float
    bound: float
    gap: float


def quiet(seconds: float) -> _Highs:
    """A solver with one thread and a fixed seed, so that it takes the same way every time.

    The base class, since the constructor of `highspy.Highs` switches callbacks on and thereby writes a banner to standard output
    before anyone can silence it.
    """
    highs = _Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    highs.setOptionValue("random_seed", 0)
    highs.setOptionValue("time_limit", seconds)
    return highs


def relative_gap(value: float, bound: float) -> float:
    """Distance from the bound; nothing where the value is as good as zero."""
    return 0.0 if value - bound <= 1e-6 else (value - bound) / max(abs(value), 1e-6)


class Program:
    """A mixed integer program that grows row by row and is solved for one objective after another.

    Bounded three ways: by `nodes` of the search tree, which is the same on every machine, by the relative gap, and last by time.
    """

    def __init__(self, seconds: float, gap: float, nodes: int) -> None:
        self.seconds, self.gap, self.nodes = seconds, gap, nodes
        self.lower: list[float] = []
        self.upper: list[float] = []
        self.whole: list[bool] = []
        self._rows: list[tuple[float, float]] = []
        self._starts: list[int] = [0]
        self._index: list[int] = []
        self._value: list[float] = []
        self._used = 0.0

    def integer(self, lower: float, upper: float) -> int:
        """A new whole-numbered column."""
        return self._column(lower, upper, whole=True)

    def continuous(self, lower: float, upper: float) -> int:
        """A new column."""
        return self._column(lower, upper, whole=False)

    def _column(self, lower: float, upper: float, *, whole: bool) -> int:
        self.lower.append(lower)
        self.upper.append(upper)
        self.whole.append(whole)
        return len(self.lower) - 1

    def row(self, entries: Iterable[tuple[int, float]], lower: float = -INFINITY, upper: float = INFINITY) -> None:
        """A new constraint lower <= sum <= upper."""
        for column, value in entries:
            if value != 0.0:
                self._index.append(column)
                self._value.append(value)
        self._starts.append(len(self._index))
        self._rows.append((lower, upper))

    def at_most(self, entries: Iterable[tuple[int, float]], value: float) -> None:
        """What was achieved in one objective is kept in the next."""
        self.row(entries, upper=value)

    def minimise(self, costs: Mapping[int, float], hint: Mapping[int, float]) -> Solution | None:
        """The best solution found, starting from `hint` where that can be completed; None when there is none, SolverError when
        HiGHS fails.

        HiGHS 1.16 may report the objective of a start that its presolve has improved together with the values of the start
        itself. The values are therefore priced again, and where they disagree the program is solved without a start.
        """
        model = self._model(costs)
        found = self._run(model, hint)
        if found is not None and hint:
            priced = sum(value * found.values[column] for column, value in costs.items())
            if abs(priced - found.value) > 1e-5 * max(1.0, abs(found.value)):
                return self._run(model, {})
        return found

    def _run(self, model: highspy.HighsLp, hint: Mapping[int, float]) -> Solution | None:
        left = self.seconds - self._used
        if left <= 0.0:
            return None
        try:
            return self._answer(model, hint, left)
        except _THROWN as error:
            text = str(error).partition("\n")[0][:120]
            raise SolverError(f"HiGHS failed: {type(error).__name__}{f': {text}' if text else ''}") from error

    def _answer(self, model: highspy.HighsLp, hint: Mapping[int, float], seconds: float) -> Solution | None:
        highs = quiet(seconds)
        highs.setOptionValue("mip_rel_gap", self.gap)
        highs.setOptionValue("mip_abs_gap", 1e-7)
        highs.setOptionValue("mip_max_nodes", self.nodes)
        if highs.passModel(model) == highspy.HighsStatus.kError:
            raise SolverError("HiGHS failed: it refused the program")
        if hint:
            index = np.fromiter(hint, dtype=np.int32, count=len(hint))
            start = np.fromiter(hint.values(), dtype=np.float64, count=len(hint))
            highs.setSolution(len(hint), index, start)
        highs.run()
        self._used += highs.getRunTime()
        info = highs.getInfo()
        if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return None
        values = list(highs.getSolution().col_value)
        if len(values) != len(self.lower) or not np.isfinite(values).all():
            raise SolverError(f"HiGHS failed: {len(values)} values for {len(self.lower)} columns, or some are no numbers")
        value = info.objective_function_value
        bound = info.mip_dual_bound if any(self.whole) else value
        return Solution(values, value, bound, relative_gap(value, bound))

    def _model(self, costs: Mapping[int, float]) -> highspy.HighsLp:
        model = highspy.HighsLp()
        columns = len(self.lower)
        cost = np.zeros(columns)
        for column, value in costs.items():
            cost[column] = value
        model.num_col_, model.num_row_ = columns, len(self._rows)
        model.col_cost_ = cost
        model.col_lower_, model.col_upper_ = np.array(self.lower), np.array(self.upper)
        model.row_lower_ = np.array([lower for lower, _ in self._rows])
        model.row_upper_ = np.array([upper for _, upper in self._rows])
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.array(self._starts, dtype=np.int32)
        model.a_matrix_.index_ = np.array(self._index, dtype=np.int32)
        model.a_matrix_.value_ = np.array(self._value)
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        model.integrality_ = [kinds[whole] for whole in self.whole]
        return model
