"""MILP of phase scheduling with interval columns: :mod:`.groups` for HiGHS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stagepack.formulations.phases import groups
from stagepack.formulations.phases.groups import Groups
from stagepack.formulations.phases.whole import TOLERANCE
from stagepack.instances.phases.instance import PhaseSchedule
from stagepack.instances.phases.solution import PhaseSolution
from stagepack.instances.profile import Array

if TYPE_CHECKING:
    from stagepack.heuristics.phases.options import OptionTable


class Milp:
    """The program of groups as a `highspy.HighsLp`.

    Parameters
    ----------
    instance : PhaseSchedule
    tables : OptionTable or sequence of OptionTable
        Options of all groups, for each number of I/O tiles and microbatch to choose from.
    upper : int, optional
        Cycles of a known plan: what takes longer may be cut off, nothing else is.

    Attributes
    ----------
    model : highspy.HighsLp or None
        None when `infeasible`.
    infeasible : bool
        No plan (of at most `upper` cycles) can be made of the options.
    """

    def __init__(
        self,
        instance: PhaseSchedule,
        tables: OptionTable | Sequence[OptionTable],
        *,
        upper: int | None = None,
    ) -> None:
        self.instance = instance
        self.groups = Groups(tables, upper)
        for part in self.groups.parts:
            part.memory()
        self.infeasible = self.groups.program.contradiction
        self.model: Any = None if self.infeasible else self.groups.program.arrays()

    @staticmethod
    def unsupported(instance: PhaseSchedule) -> str:
        """Return what the model does not take of an instance, '' if it takes it."""
        return groups.unsupported(instance)

    def decode(self, values: Array) -> PhaseSolution:
        """Return the plan of an engine's values, one a column."""
        return self.groups.decode(np.asarray(values))

    def hint(self, solution: PhaseSolution) -> Array:
        """Return the value of every column for a plan; NaN where the engine is to choose."""
        return self.groups.hint(solution)

    def lower_bound(self, raw: float, tolerance: float = TOLERANCE) -> int:
        """Return the cycles that no plan of the options undercuts, from an engine's bound."""
        return self.groups.lower_bound(raw, tolerance)
