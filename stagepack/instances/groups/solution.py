"""What a plan is: groups in the order in which they run, their slices, timesteps and addresses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from stagepack.contracts import JsonObject
from stagepack.instances.documents import strict
from stagepack.instances.groups.data import GroupingData
from stagepack.instances.groups.regions import Cut, Regions
from stagepack.instances.groups.timesteps import Spill, Timetable
from stagepack.shown import ShownSolution, some

DEPTHS = {"boundaries": 1, "slices": 2, "order": 1, "positions": 2, "spills": 3, "offsets": 2}
"""Fields of a plan, and how many sequences are around its integers."""


@dataclass(frozen=True, repr=False)
class GroupingSolution(ShownSolution):
    """A plan of layer groups: which operators are fused, in which slices, rows and addresses.

    Attributes
    ----------
    boundaries : tuple of int
        0 = b_0 < ... < b_k = n: group j is the operators [b_j, b_{j+1}) of `order`.
    slices : tuple of tuple of int
        For each group, the number of ranges into which it is cut along N, C, H and W; an empty
        tuple for an operator that runs alone, from and to global memory.
    order : tuple of int
        The operators in execution order; empty: the order of the instance.
    positions : tuple of tuple of int
        For each group, the positions of its transfers in the order of
        :attr:`.timesteps.Timetable.moves`; an empty tuple places them by the rule ``nearest``.
        Empty: this rule for all groups.
    spills : tuple of tuple of (int, int, int)
        For each group, its spills: tensor, position of the store, position of the load.  Empty:
        none.
    offsets : tuple of tuple of int
        For each group, the address of every copy of its buffers, see :func:`.lmem.copies`; empty
        for an operator that runs from global memory.
    """

    boundaries: tuple[int, ...]
    slices: tuple[tuple[int, ...], ...]
    order: tuple[int, ...] = ()
    positions: tuple[tuple[int, ...], ...] = ()
    spills: tuple[tuple[tuple[int, int, int], ...], ...] = ()
    offsets: tuple[tuple[int, ...], ...] = ()

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.boundaries) - 1

    def operators(self, group: int) -> tuple[int, ...]:
        """Return the operators of a group in execution order."""
        first, end = self.boundaries[group], self.boundaries[group + 1]
        return self.order[first:end] if self.order else tuple(range(first, end))

    def timetable(self, instance: GroupingData, group: int) -> Timetable:
        """Return the rows of a group."""
        regions = Regions(instance, self.operators(group), Cut(*self.slices[group]))
        positions = self.positions[group] if self.positions else ()
        spills = self.spills[group] if self.spills else ()
        return Timetable(regions, positions or None, [Spill(*spill) for spill in spills])

    def timetables(self, instance: GroupingData) -> Iterator[tuple[int, Timetable | None]]:
        """Yield each group and its rows; None for operators that run from and to global memory."""
        for group, counts in enumerate(self.slices):
            yield group, self.timetable(instance, group) if counts else None

    def with_group(
        self,
        group: int,
        positions: tuple[int, ...],
        spills: tuple[tuple[int, int, int], ...],
        offsets: tuple[int, ...],
    ) -> GroupingSolution:
        """Return a copy with other `positions`, `spills` and `offsets` for one `group`."""
        given = {"positions": positions, "spills": spills, "offsets": offsets}
        changed = {}
        for name, value in given.items():
            known = getattr(self, name) or ((),) * self.groups
            every = (*known[:group], value, *known[group + 1 :])
            changed[name] = every if any(every) or name == "offsets" else ()
        return replace(self, **changed)

    @classmethod
    def from_global_memory(cls, n: int) -> GroupingSolution:
        """Return the plan in which every operator runs alone, from and to global memory."""
        return cls(tuple(range(n + 1)), ((),) * n, offsets=((),) * n)

    @classmethod
    def from_dict(cls, data: object, instance: object = None) -> GroupingSolution:
        """Read what :meth:`to_dict` wrote.

        Raises
        ------
        InputError
            Naming the field.
        """
        return strict.convert(data, cls)

    def to_dict(self) -> JsonObject:
        """Return the plan as JSON data; empty fields are left out."""
        known = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {
            name: value
            for name, value in known.items()
            if value or name in ("boundaries", "slices")
        }

    def malformed(self) -> str:
        """Return the name of a field that is not a tuple of integers, or ""."""
        for name, depth in DEPTHS.items():
            given = getattr(self, name)
            if not (isinstance(given, tuple) and _integers(given, depth)):
                return name
        return ""

    def _line(self) -> str:
        return f"{self.groups} groups, boundaries {some(self.boundaries)}"


def _integers(given: object, depth: int) -> bool:
    """Whether something is integers in so many sequences around one another."""
    if depth == 0:
        return hasattr(given, "__index__")
    return isinstance(given, tuple | list) and all(_integers(part, depth - 1) for part in given)
