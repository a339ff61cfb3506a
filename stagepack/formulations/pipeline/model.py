"""What all models of the pipeline share: costs in ticks, counted from what is known beforehand.

Quantities
    n, k             layers and devices; cut c lies between layers c - 1 and c
    P, Q             lower bounds on the largest compute and transfer
    unit             the greatest common divisor of all ticks that count, or more: steps of the
                     objective must be few enough for the engine to count them exactly
Objective
    C + T            largest compute and transfer (T for `transfer-bounded` only); C holds transfer,
                     too, for `sum`, is the largest of compute, receive and send for `overlap`, what
                     all stages cost together for `latency`, and for `headroom` the tokens that
                     some stage lacks of as many as there can be at most

Cost and source: see :mod:`.frame`.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property

from stagepack.errors import InputError
from stagepack.formulations.base import Formulation
from stagepack.formulations.pipeline.frame import StageValues, constant_ticks, generous, in_tokens
from stagepack.instances.pipeline.data import PipelineSolution
from stagepack.instances.pipeline.instance import PipelinePartition
from stagepack.instances.pipeline.problem import Objective
from stagepack.instances.pipeline.ranges import RangeCosts


class PipelineModel(Formulation[PipelinePartition, PipelineSolution]):
    """A model of a partition, in ticks.

    What is worth more than `upper`, ticks of a known solution, may be cut off, nothing else is.

    - `bounded`: whether T is a summand of its own.
    - `least`: P and Q in ticks.
    - `unit`: ticks of one step of the objective.
    - `loss`: by how many ticks rounding to steps may have raised C + T, less than a step for each.
    """

    least: tuple[int, int]
    unit: int
    loss = 0

    def __init__(self, costs: RangeCosts, *, upper: int | None = None) -> None:
        reason = self.unsupported(costs.instance)
        if reason:
            raise InputError(reason, field="model")
        headroom = costs.instance.objective is Objective.HEADROOM
        self.costs = in_tokens(costs) if headroom else costs
        self.upper = generous(costs, upper)
        self.bounded = costs.instance.objective is Objective.TRANSFER_BOUNDED
        self.build()

    @abstractmethod
    def build(self) -> None:
        """Build the model, or find out that the ends of the chain do not meet."""

    @property
    def exact(self) -> bool:
        """Whether the model's costs are the instance's, not rounded to a coarser unit."""
        return self.loss == 0

    def set_unit(self, common: int, most: int, largest: int) -> None:
        """Choose the ticks of a step: a common divisor, or more where the most is too many.

        Running sums of costs are then rounded down, so that those of a stage, rounded up, satisfy
        every row: the optimum of the model exceeds that of the instance by less than a step for
        each of C and T, and of the stages whose costs add up to C.

        `common`: of all ticks that count, 0 for none; `most`: ticks of the largest figure of the
        model; `largest`: steps are to be fewer.
        """
        self.unit, self.loss = max(1, common), 0
        if most // self.unit >= largest:
            self.unit = most // (largest - 1) + 1
            self.loss = (self.unit - 1) * self._summands

    @property
    def additive(self) -> bool:
        """Whether C is what all stages cost together."""
        return self.costs.instance.objective.additive

    @property
    def _summands(self) -> int:
        """Of how many figures, each rounded by itself, C + T is the sum."""
        return self.costs.k if self.additive else 2 if self.bounded else 1

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

        :class:`ValueError`: it is worth more than `upper`.
        """
        costs = self.costs
        if self.upper is not None and costs.objective(solution) > self.upper:
            raise ValueError(f"{solution} is worth more than the model allows")
        if self.additive:
            return max(costs.objective(solution) - costs.host, self.least[0]), 0
        counted = costs.host if costs.instance.objective is Objective.SUM else 0
        transfer = max(
            costs.transfer(a, b, int(costs.device_class[device])) - costs.host
            for a, b, device in solution.stages
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
