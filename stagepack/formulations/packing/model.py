"""Data that both models of packing share: the instance in units, and the value of a solution.

The objective of both models is counted in multiples of `gain`, the greatest common divisor of all
possible changes of the objective.  Sets and parameters are those of :mod:`.frame`.

Cost and source: see :mod:`.frame`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from stagepack.formulations.base import Formulation
from stagepack.formulations.packing.frame import Frame, too_dense
from stagepack.heuristics.packing.tuning import TUNING, ModelTuning, PackingTuning
from stagepack.instances.packing.data import PackingSolution
from stagepack.instances.packing.instance import LmemPacking
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.packing.problem import Objective


class PackingModel(Formulation[LmemPacking, PackingSolution]):
    """A model of a packing; expresses every instance.

    What is worth more than `upper`, the objective value of a known solution, may be cut off,
    nothing else is; `lower` is a known lower bound.  `spend` is called with the seconds that what
    is about to be built usually takes.  `frame` is the instance in units.  `InputError` is raised
    when numbers are too large for the engine to be exact, or the pairs too many.
    """

    def __init__(
        self,
        instance: LmemPacking,
        *,
        upper: int | None = None,
        lower: int | None = None,
        spend: Callable[[float], object] = lambda seconds: None,
        tuning: PackingTuning = TUNING,
    ) -> None:
        self.instance, self.upper, self._spend = instance, upper, spend
        self.tuning = tuning.models
        spend(self.row(self.tuning) * Blocks.of(instance).b)
        self.frame = Frame(instance, upper=upper, lower=lower)
        self.infeasible = self.frame.infeasible
        if not self.infeasible:
            self.build()

    @abstractmethod
    def build(self) -> None:
        """Build the model, or find out that there is none."""

    @staticmethod
    def unsupported(instance: LmemPacking) -> str:
        """Return why the model would be too large, or ''."""
        return too_dense(Blocks.of(instance))

    @staticmethod
    def row(tuning: ModelTuning) -> float:
        """Return the seconds of work that a block takes in any case."""
        return 0.0

    @staticmethod
    @abstractmethod
    def bank_pair(tuning: ModelTuning) -> float:
        """Return the seconds of work of two buffers that should not share a bank."""

    @classmethod
    def building(cls, instance: LmemPacking, tuning: PackingTuning = TUNING) -> float:
        """Return the seconds of work that building the model takes at least, about."""
        seconds = cls.row(tuning.models) * Blocks.of(instance).b
        if instance.banks is not None and instance.objective is Objective.BANK_CONFLICTS:
            seconds += cls.bank_pair(tuning.models) * len(instance.banks.pairs)
        return seconds

    def worth(self, steps: int) -> int:
        """Return the value of an objective of so many times `gain`; `least` in any case."""
        return max(self.frame.least, steps * self.frame.gain)
