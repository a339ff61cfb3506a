"""Recomputation within one group as models for engines: `RematMilp` and `RematCpSat`.

Both state the same two programs: paths in chains whose layers are computed again once at most
(:mod:`.remat_path`), stages otherwise (:mod:`.remat_stages`).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from stagepack.formulations.phases import remat
from stagepack.formulations.phases.remat import Step
from stagepack.formulations.phases.remat_path import RematPath
from stagepack.formulations.phases.remat_stages import RematStages
from stagepack.formulations.phases.whole import ROUNDING
from stagepack.instances.phases.instance import PhaseSchedule
from stagepack.instances.phases.modes import Mode
from stagepack.instances.phases.solution import PhaseSolution
from stagepack.instances.profile import Array


class _Remat:
    """What the two models share.

    Parameters
    ----------
    instance : PhaseSchedule
        Training, all layers in one group.
    io_tiles, microbatch : int, optional
        Given; without them the only choice there is.
    mode : Mode, optional
        Given; without it the only one that goes with `io_tiles`.
    upper : int, optional
        Cycles of a known plan: what takes longer may be cut off, nothing else is.

    Attributes
    ----------
    model : highspy.HighsLp, cp_model.CpModel or None
        None when `infeasible`.
    infeasible : bool
        No plan (of at most `upper` cycles) exists for this choice.
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
        reason = self.unsupported(instance)
        if reason:
            raise ValueError(reason)
        tiles = instance.io_tile_choices[0] if io_tiles is None else io_tiles
        batch = instance.microbatches[0] if microbatch is None else microbatch
        chosen = instance.modes_with(tiles)[0] if mode is None else Mode(mode)
        self.instance, self.upper = instance, upper
        self.step = Step(instance, tiles, batch, chosen)
        kind = RematStages if RematPath.unsupported(instance) else RematPath
        self.form: RematPath | RematStages = kind(self.step, upper)
        self.infeasible = self.form.infeasible
        self.model: Any = None if self.infeasible else self._lowered()

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

    def _lowered(self) -> Any:
        raise NotImplementedError

    def decode(self, values: Array) -> PhaseSolution:
        """Return the plan of an engine's values, one a column."""
        return self.form.decode(np.asarray(values))

    def hint(self, solution: PhaseSolution) -> Array:
        """Return the value of every column for a plan of the same tiles, microbatch and mode.

        Raises
        ------
        ValueError
            When the plan is not in the model.
        """
        return self.form.hint(solution)

    def lower_bound(self, raw: float, tolerance: float = 0.0) -> int:
        """Return the cycles that no plan of this choice undercuts; at most upper + 1."""
        if not math.isfinite(raw):
            raw = 0.0
        bound = self.form.cost.time(self.form.program.lower_bound(raw, max(tolerance, ROUNDING)))
        return bound if self.upper is None else min(bound, self.upper + 1)


class RematMilp(_Remat):
    """Checkmate (Jain et al., MLSys 2020) with paging (POET, Patil et al., ICML 2022); HiGHS."""

    def _lowered(self) -> Any:
        return self.form.program.arrays()


class RematCpSat(_Remat):
    """Retention intervals (MOCCASIN: Bartan et al., ICML 2023) on a grid of stages; CP-SAT."""

    parameters: ClassVar[dict[str, Any]] = {"linearization_level": 2}
    """Without the relaxation of all its rows CP-SAT finds no bound at all."""

    def _lowered(self) -> Any:
        return self.form.program.cp_sat()
