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
from stagepack.instances.packing.blocks import Blocks
from stagepack.instances.packing.instance import LmemPacking
from stagepack.instances.packing.problem import Objective
from stagepack.instances.packing.solution import PackingSolution


class PackingModel(Formulation[LmemPacking, PackingSolution]):
    """A model of a packing; expresses every instance.

    Parameters
    ----------
    instance : LmemPacking
        The instance.
    upper : int, optional
        Objective value of a known solution: what is worth more may be cut off, nothing else is.
    lower : int, optional
        A known lower bound on the objective value.
    spend : callable, optional
        Called with the seconds that what is about to be built usually takes.

    Attributes
    ----------
    frame : Frame
        The instance in units.

    Raises
    ------
    InputError
        When numbers are too large for the engine to be exact, or the pairs too many.
    """

    row = 0.0
    """Seconds of work that a block takes in any case,"""

    bank_pair = 0.0
    """and that two buffers take which should not share a bank."""

    def __init__(
        self,
        instance: LmemPacking,
        *,
        upper: int | None = None,
        lower: int | None = None,
        spend: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        self.instance, self.upper, self._spend = instance, upper, spend
        spend(self.row * Blocks.of(instance).b)
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

    @classmethod
    def building(cls, instance: LmemPacking) -> float:
        """Return the seconds of work that building the model takes at least, about."""
        seconds = cls.row * Blocks.of(instance).b
        if instance.banks is not None and instance.objective is Objective.BANK_CONFLICTS:
            seconds += cls.bank_pair * len(instance.banks.pairs)
        return seconds

    def worth(self, steps: int) -> int:
        """Return the value of an objective of so many times `gain`; `least` in any case."""
        return max(self.frame.least, steps * self.frame.gain)
