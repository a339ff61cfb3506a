"""Recomputation within one group as models for engines: `RematMilp` and `RematCpSat`.

Both state the same program (:mod:`.remat_stages`), whose sets, parameters, variables, objective,
constraints, size and source are theirs.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from stagepack.formulations.base import Formulation, require_objective
from stagepack.formulations.phases import remat
from stagepack.formulations.phases.remat import Step
from stagepack.formulations.phases.remat_stages import RematStages
from stagepack.formulations.whole import BY_HIGHS
from stagepack.instances.phases.data import PhaseSolution
from stagepack.instances.phases.instance import PhaseSchedule
from stagepack.instances.phases.modes import Mode
from stagepack.instances.phases.problem import Objective
from stagepack.instances.profile import Array


class _Remat(Formulation[PhaseSchedule, PhaseSolution]):
    """What the two models share: training, all layers in one group.

    `io_tiles`, `microbatch` and `mode` are the only choice there is where they are not given.  What
    takes longer than `upper`, the cycles of a known plan, may be cut off, nothing else is.
    """

    def __init__(
        self,
        instance: PhaseSchedule,
        *,
        io_tiles: int | None = None,
        microbatch: int | None = None,
        mode: Mode | str | None = None,
        upper: int | None = None,
    ) -> None:
        require_objective(instance.objective, Objective.TIME)
        reason = self.unsupported(instance)
        if reason:
            raise ValueError(reason)
        tiles = instance.io_tile_choices[0] if io_tiles is None else io_tiles
        batch = instance.microbatches[0] if microbatch is None else microbatch
        chosen = instance.modes_with(tiles)[0] if mode is None else Mode(mode)
        self.instance, self.upper = instance, upper
        self.step = Step(instance, tiles, batch, chosen)
        self.form = RematStages(self.step, upper)
        self.infeasible = self.form.infeasible
        if not self.infeasible:
            self.model = self._lowered()

    @staticmethod
    def unsupported(instance: PhaseSchedule) -> str:
        """Return why the model does not apply, '' if it does."""
        return remat.unsupported(instance)

    @staticmethod
    def choices(instance: PhaseSchedule) -> list[tuple[int, int, Mode]]:
        """Return every (I/O tiles, microbatch, mode) of an instance: a model each.

        Modes that can only take longer than another one allowed with it are left out.
        """
        found = []
        for tiles in instance.io_tile_choices:
            modes = instance.modes_with(tiles)
            if Mode.COMPUTE in modes:  # naive loads the variables more often
                modes = tuple(mode for mode in modes if mode is not Mode.NAIVE)
            found += [(tiles, batch, mode) for batch in instance.microbatches for mode in modes]
        return found

    @abstractmethod
    def _lowered(self) -> Any:
        """Return what the engine is given."""

    def decode(self, values: Array) -> PhaseSolution:
        """Return the plan of an engine's values, one a column."""
        return self.form.decode(np.asarray(values))

    def hint(self, solution: PhaseSolution) -> Array:
        """Return the value of every column for a plan of the same tiles, microbatch and mode.

        Raises `ValueError` when the plan is not in the model.
        """
        return self.form.hint(solution)

    def worth(self, steps: int) -> int:
        """Return the cycles of a plan whose objective is so many times `gain`."""
        return self.form.cost.time(max(0, steps) * self.form.program.gain)


class RematMilp(_Remat):
    """Checkmate (Jain et al., MLSys 2020) with paging (POET, Patil et al., ICML 2022); HiGHS."""

    parameters = BY_HIGHS

    def _lowered(self) -> Any:
        """Return the program as its engine takes it."""
        self.coarse = self.form.program.coarse
        return self.form.program.arrays()

    def slack(self, raw: float, tolerance: float) -> float:
        """Return what the engine's tolerance makes of the program's costs."""
        return self.form.program.slack(raw, tolerance)


class RematCpSat(_Remat):
    """Retention intervals (MOCCASIN: Bartan et al., ICML 2023) on a grid of stages; CP-SAT."""

    def _lowered(self) -> Any:
        """Return the program as its engine takes it."""
        # Without the relaxation of all its rows CP-SAT finds no bound at all.
        self.parameters = {"linearization_level": 2, **self.form.program.settings}
        return self.form.program.cp_sat()
