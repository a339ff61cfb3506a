"""Instances of layer grouping: construction, evaluation and checking of solutions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stagepack.instances.base import Answered, Rules
from stagepack.instances.groups import validate
from stagepack.instances.groups.banks import bank_conflicts
from stagepack.instances.groups.check import check, evaluate, shape
from stagepack.instances.groups.chip import LaneChip
from stagepack.instances.groups.data import HALF, GroupingData, Source
from stagepack.instances.groups.operators import Operator
from stagepack.instances.groups.problem import Objective, Order, Slicing, Standalone, Timesteps
from stagepack.instances.groups.solution import GroupingSolution
from stagepack.instances.words import member


class LayerGrouping(GroupingData, Answered[GroupingSolution, int]):
    """An instance of layer grouping; use :meth:`from_arrays`."""

    solution_type = GroupingSolution
    rules = Rules(shape, check, evaluate)
    secondary_name = "conflicts"

    @classmethod
    def from_arrays(
        cls,
        operators: Iterable[Operator],
        inputs: Iterable[Source],
        *,
        chip: LaneChip,
        outputs: Sequence[str] = (),
        slicing: Slicing | str = Slicing.N_THEN_H,
        standalone: Standalone | str = Standalone.ANY,
        timesteps: Timesteps | str = Timesteps.NEAREST,
        order: Order | str = Order.GIVEN,
        max_slices: int = 64,
        max_group: int = 64,
        overlap_limit: float | str | None = HALF,
        objective: Objective | str = Objective.CYCLES,
        name: str = "groups",
        source: str = "",
    ) -> LayerGrouping:
        """Build an instance from operators; those of a file may be in any order.

        Parameters
        ----------
        operators : iterable of Operator
            The operators; they are sorted topologically if they are not, stably.
        inputs : iterable of Source
            Tensors that come from outside.
        outputs : sequence of str
            Results of the network, in addition to tensors that no operator reads.
        standalone : Standalone
            Which operators may run by themselves from and to global memory; their local memory is
            the matter of whoever wrote their kernels.
        timesteps : Timesteps
            Whether loads and stores are where the rule puts them, or in any row.
        order : Order
            Whether groups are of operators that follow one another, or of any that can run
            together.
        chip, slicing, objective
            Words of :class:`Slicing` and :class:`Objective`, and the chip.
        max_slices, max_group : int
            Slices, and operators, of a group at most.
        overlap_limit : float, "half" or None
            Fraction of the rows (and columns) of an input of a group that several slices may read.
            The rule of TPU-MLIR is a half; None: any.
        name, source : str
            For tables and reports.

        Raises
        ------
        InputError
            Naming the field or the operator: an unknown input, a name that is used twice, a cycle,
            shapes that do not follow from those of the inputs, or products of sizes beyond 64 bits.
        """
        given = validate.parts(operators, inputs, outputs, chip)
        instance = cls(
            name=str(name),
            operators=validate.sorted_operators(given.operators, given.inputs),
            inputs=given.inputs,
            outputs=given.outputs,
            chip=given.chip,
            slicing=member(slicing, Slicing, "slicing"),
            standalone=member(standalone, Standalone, "standalone"),
            timesteps=member(timesteps, Timesteps, "timesteps"),
            order=member(order, Order, "order"),
            max_slices=validate.count(max_slices, "max_slices"),
            max_group=validate.count(max_group, "max_group"),
            overlap_limit=validate.limit(overlap_limit),
            objective=member(objective, Objective, "objective"),
            source=str(source),
        )
        validate.instance(instance)
        return instance

    def secondary(self, solution: GroupingSolution) -> int:
        """Return the second criterion of plans with equal cycles: pairs of buffers that share a
        bank.

        Tables call it `secondary_name`.
        """
        return bank_conflicts(self, solution)
