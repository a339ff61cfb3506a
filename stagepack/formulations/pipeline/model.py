"""What all models of the pipeline share: costs in ticks, counted from what is known beforehand.

Quantities
    n, k             layers and devices; cut c lies between layers c - 1 and c
    P, Q             lower bounds on the largest compute and transfer
    unit             the greatest common divisor of all ticks that count
Objective
    C + T            largest compute and transfer (T for `transfer-bounded` only); C holds transfer,
                     too, for `sum`, and is the largest of compute, receive and send for `overlap`

Cost and source: see :mod:`.frame`.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property

from stagepack.errors import InputError
from stagepack.formulations.base import Formulation
from stagepack.formulations.pipeline.frame import StageValues, constant_ticks, generous
from stagepack.instances.pipeline.instance import PipelinePartition
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.pipeline.solution import PipelineSolution
from stagepack.instances.pipeline.words import Objective

LARGEST_COEFFICIENT = 1e4
"""Ticks are scaled down until no coefficient or sum of a MILP's row is more: far above the engine's
tolerances, and well conditioned."""


class PipelineModel(Formulation[PipelinePartition, PipelineSolution]):
    """A model of a partition, in ticks.

    Parameters
    ----------
    costs : RangeCosts
        The instance in ticks.
    upper : int, optional
        Ticks of a known solution: what is worth more may be cut off, nothing else is.

    Attributes
    ----------
    bounded : bool
        Whether T is a summand of its own.
    least : tuple of int
        P and Q in ticks.
    unit : int
        Ticks of one step of the objective.

    Raises
    ------
    InputError
        When the instance is `unsupported`, too large, or has costs that the engine cannot hold.
    """

    least: tuple[int, int]
    unit: int

    def __init__(self, costs: RangeCosts, *, upper: int | None = None) -> None:
        reason = self.unsupported(costs.instance)
        if reason:
            raise InputError(reason, field="model")
        self.costs = costs
        self.upper = generous(costs, upper)
        self.bounded = costs.instance.objective is Objective.TRANSFER_BOUNDED
        self.build()

    @abstractmethod
    def build(self) -> None:
        """Build the model, or find out that the ends of the chain do not meet."""

    @property
    def floor(self) -> int:
        """Ticks of C + T that no solution undercuts."""
        return sum(self.least) if self.bounded else self.least[0]

    @property
    def spare(self) -> int:
        """Ticks that `upper` leaves C + T above `floor`."""
        assert self.upper is not None
        return self.upper - constant_ticks(self.costs) - self.floor

    def largest(self, solution: PipelineSolution) -> tuple[int, int]:
        """Return the largest compute and transfer of a solution in ticks, P and Q at least.

        Raises
        ------
        ValueError
            When it is worth more than `upper`.
        """
        costs = self.costs
        if self.upper is not None and costs.objective(solution) > self.upper:
            raise ValueError(f"{solution} is worth more than the model allows")
        counted = constant_ticks(costs) if not self.bounded else 0
        transfer = max(
            int(costs.recv[c, a] + costs.send[c, b])
            for a, b, c in ((a, b, costs.device_class[device]) for a, b, device in solution.stages)
        )
        compute = costs.largest_compute(solution) - counted
        return max(compute, self.least[0]), max(transfer, self.least[1])

    @cached_property
    def values(self) -> StageValues | None:
        """What C + T can be."""
        return None

    def ticks(self, steps: int) -> int:
        """Return the ticks of C + T when the model's objective is so many steps."""
        return self.floor + steps * self.unit

    def worth(self, steps: int) -> int:
        """Return the least ticks that stages and the exchange with the host add up to."""
        bound = max(self.floor, self.ticks(steps))
        if self.values is not None:
            bound = self.values.at_least(bound)
        return bound + constant_ticks(self.costs)
