"""What a schedule is: a start for every operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.instances.documents import strict
from stagepack.instances.profile import Array
from stagepack.instances.schedule.data import ScheduleData
from stagepack.instances.words import LARGEST
from stagepack.shown import ShownSolution, some

SHAPE = 'write {"start": [[[F starts], [B starts], [W starts]], ...]}, one entry a stage'


@dataclass(frozen=True, eq=False, repr=False)
class ScheduleSolution(ShownSolution):
    """The start of each operation, in cycles.

    Attributes
    ----------
    start : ndarray of int64, shape (operations,)
        Start of each operation, ordered by stage, kind (F, B, W) and microbatch: see
        :class:`.operations.Operations`.
    kinds : int
        Number of kinds of operations of a stage: 1, 2 or 3.
    microbatches : tuple of int
        Microbatches of each stage.
    """

    start: Array
    kinds: int
    microbatches: tuple[int, ...]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ScheduleSolution):
            return NotImplemented
        return (
            self.kinds == other.kinds
            and self.microbatches == other.microbatches
            and np.array_equal(self.start, other.start)
        )

    def __hash__(self) -> int:
        return hash((self.kinds, self.microbatches, self.start.tobytes()))

    @classmethod
    def of(cls, instance: ScheduleData, start: Any) -> ScheduleSolution:
        """Return the solution of `instance` with these starts, one for each operation.

        An array of int64 becomes part of it, not a copy.
        """
        return cls(
            np.asarray(start, dtype=np.int64),
            len(instance.kinds),
            tuple(map(int, instance.microbatches)),
        )

    @classmethod
    def from_dict(cls, data: object, instance: ScheduleData) -> ScheduleSolution:
        """Read ``{"start": [[[F starts], [B starts], [W starts]], ...]}``, one entry a stage.

        Raises
        ------
        InputError
            When a stage, a kind or a microbatch is missing or too many, or a start is no integer.
        """
        given = None
        if isinstance(data, Mapping):
            strict.require_fields(data, ("start",))
            given = data.get("start")
        if not isinstance(given, list | tuple):
            raise InputError("is missing or no list", field="start", remedy=SHAPE)
        _require(given, instance.p, "stages", "start")
        kinds = instance.kinds
        flat: list[int] = []
        for stage, rows in enumerate(given):
            _require(
                rows, len(kinds), f"kinds of operations ({', '.join(kinds)})", f"start[{stage}]"
            )
            for kind, row in enumerate(rows):
                where = f"start[{stage}][{kind}]"
                _require(row, int(instance.microbatches[stage]), "microbatches", where)
                for at, value in enumerate(row):
                    odd = isinstance(value, bool) or not isinstance(value, int)
                    if odd or abs(value) >= LARGEST:
                        raise InputError(
                            f"{value!r} is no integer below 2**62",
                            field=f"{where}[{at}]",
                            remedy="give the cycle of the start",
                        )
                    flat.append(value)
        return cls.of(instance, flat)

    def to_dict(self) -> JsonObject:
        """Return the solution as JSON data, as :meth:`from_dict` reads it."""
        return {"start": [rows.tolist() for rows in self.stages]}

    def _line(self) -> str:
        stages = len(self.microbatches)
        return f"{len(self.start):,} operations of {stages:,} stages, starts {some(self.start)}"

    def malformed(self) -> str:
        """Return the name of an invalid field, or ''."""
        if not isinstance(self.start, np.ndarray):
            return "start"
        return "" if isinstance(self.microbatches, tuple) else "microbatches"

    @property
    def stages(self) -> list[Array]:
        """The starts of each stage, shape (kinds, microbatches)."""
        ends = np.cumsum([self.kinds * m for m in self.microbatches])[:-1]
        return [part.reshape(self.kinds, -1) for part in np.split(self.start, ends)]


def _require(rows: Any, count: int, what: str, where: str) -> None:
    if not isinstance(rows, list | tuple):
        raise InputError("is no list", field=where, remedy=SHAPE)
    if len(rows) != count:
        raise InputError(
            f"has {len(rows):,} entries for {count:,} {what}",
            field=where,
            remedy="give a solution of this instance",
        )
