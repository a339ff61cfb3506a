"""Instances of LMEM packing: construction, evaluation and checking of solutions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.instances import clusters
from stagepack.instances.arrays import Given, in_bytes, integer, integers, names
from stagepack.instances.base import Answered, Rules, require_instance
from stagepack.instances.packing import profiled, validate
from stagepack.instances.packing.check import Measure, check, evaluate, shape
from stagepack.instances.packing.check import measure as measured
from stagepack.instances.packing.data import (
    Allowed,
    Banks,
    Gap,
    Memory,
    PackingData,
    PackingSolution,
)
from stagepack.instances.packing.problem import KIND, Objective
from stagepack.instances.profile import Array, Cluster, ModelProfile
from stagepack.instances.words import Words, member
from stagepack.result import Result


class LmemPacking(PackingData, Answered[PackingSolution, int]):
    """An instance of LMEM packing; use :meth:`from_arrays` or :meth:`from_profile`."""

    solution_type = PackingSolution
    rules = Rules(shape, check, evaluate)

    # ------------------------------------------------------------------ constructors

    @classmethod
    def from_arrays(
        cls,
        size: Given,
        start: Given = None,
        end: Given = None,
        *,
        ids: Sequence[str] | None = None,
        period: int | None = None,
        conflicts: Given = None,
        capacity: int | str | None = None,
        alignment: Given = None,
        gaps: Iterable[Gap | tuple[int | str, ...]] = (),
        fixed: Given = None,
        allowed: Iterable[Allowed | tuple[int, int | str, int | str]] = (),
        reserved: Iterable[tuple[int | str, int | str]] = (),
        colocated: Iterable[Iterable[int]] = (),
        in_place: Iterable[tuple[int, int]] = (),
        banks: Banks | None = None,
        memories: Iterable[Memory | tuple[str, int | str | None, int]] = (),
        accesses: Given = None,
        previous: Given = None,
        hint: Given = None,
        objective: Objective | str | None = None,
        name: str = "packing",
        source: str = "",
        lifetimes: str = "",
    ) -> LmemPacking:
        """Build an instance from arrays.

        Bytes and addresses may be texts with units, as in the shell: "12KiB".

        Parameters
        ----------
        size, start, end : array_like of int, shape (n,)
            Bytes and lifetimes [start, end); leave the lifetimes out with `conflicts`.  A buffer of
            no bytes has an offset like any other, and overlaps nothing.
        ids : sequence of str, optional
            Names of the buffers; "0", "1", ... when absent.
        period : int, optional
            Length of a cycle that repeats: lifetimes are taken modulo this.
        conflicts : array_like of int, shape (pairs, 2), optional
            Pairs of buffers that must not overlap, in place of lifetimes.
        capacity : int, optional
            Bytes of the memory.
        alignment : int or array_like, optional
            What offsets are multiples of, for all buffers or each; 1 when absent.
        gaps : iterable of Gap or (buffer, start, end[, low, high])
            Times during which a buffer is not in use, or only some of its bytes are.
        fixed, previous, hint : array_like of int, shape (n,), optional
            Offsets that a solution must use, old ones, and some where a search may start; -1 for
            none.
        allowed : iterable of Allowed or (buffer, low, high)
            Address ranges of a buffer, which must lie wholly in one of them.
        reserved : iterable of (low, high)
            Address ranges [low, high) that no buffer may use.
        colocated : iterable of groups of int
            Groups of buffers with the same offset, which may overlap; groups that share a buffer
            are merged.
        in_place : iterable of (int, int)
            Pairs of buffers that may overlap, but only if they have the same offset: an operator
            writes its output over an input that is not used again.
        banks : Banks, optional
            Of the memory, and who should not share one.
        memories : iterable of Memory or (name, capacity, cost)
            Several memories to choose from, for the objective ``spill``.
        accesses : array_like of int, shape (n,), optional
            Of each buffer, in the unit that the costs of memories are for; by default its size.
        objective : Objective or str, optional
            "fit" with a capacity, "spill" with memories, otherwise "peak" when absent.
        name, source, lifetimes : str
            For tables and reports; the last one is how a file says lifetimes.

        Raises
        ------
        InputError
            Naming the field: wrong shapes, numbers that are no integers, empty lifetimes, sizes
            below 0, numbers or sums of 2**62 and more, unknown indices, rules that contradict each
            other.
        """
        sizes = integers(in_bytes(size, "size"), "size", "buffer")
        n = len(sizes)
        if conflicts is not None:
            if start is not None and (np.any(start) or end is None or (np.asarray(end) != 1).any()):
                raise InputError(
                    "replaces lifetimes", field="conflicts", remedy="give start and end, or this"
                )
            start, end = np.zeros(n, dtype=np.int64), np.ones(n, dtype=np.int64)
        none = np.full(n, -1, dtype=np.int64)
        one = 1 if alignment is None else in_bytes(alignment, "alignment")

        def places(given: Given, name: str) -> Array:
            return integers(none if given is None else in_bytes(given, name), name, "buffer", n)

        built = cls(
            name=name,
            size=sizes,
            start=integers(start, "start", "buffer", n),
            end=integers(end, "end", "buffer", n),
            ids=names(ids, "ids", n, "buffer", unique=True),
            period=None if period is None else integer(period, "period"),
            conflicts=None if conflicts is None else validate.pairs(conflicts, "conflicts", n),
            capacity=None
            if capacity is None
            else integer(in_bytes(capacity, "capacity"), "capacity"),
            alignment=integers(one, "alignment", "buffer", n, spread=True),
            gaps=tuple(sorted(validate.records(gaps, Gap, "gaps"), key=_by_time)),
            fixed=places(fixed, "fixed"),
            allowed=tuple(validate.records(allowed, Allowed, "allowed")),
            reserved=validate.ranges(reserved, "reserved"),
            colocated=validate.groups(colocated, "colocated", n),
            in_place=tuple(
                (int(i), int(j)) for i, j in validate.pairs(list(in_place), "in_place", n).tolist()
            ),
            banks=None if banks is None else validate.banks(banks, n),
            memories=tuple(validate.records(memories, Memory, "memories")),
            accesses=integers(sizes if accesses is None else accesses, "accesses", "buffer", n),
            previous=places(previous, "previous"),
            hint=places(hint, "hint"),
            objective=_objective(objective, capacity, memories),
            source=source,
            lifetimes=lifetimes,
        )
        validate.instance(built)
        return built

    @classmethod
    def from_profile(
        cls,
        profile: ModelProfile,
        cluster: Cluster | str | None = None,
        *,
        training: bool | None = None,
        name: str | None = None,
        **options: Any,
    ) -> LmemPacking:
        """Build an instance from a model profile; see :mod:`.profiled`.

        Parameters
        ----------
        profile : ModelProfile
            Of a network.
        cluster : Cluster or str, optional
            An object or a name of the catalog.  The memory is that of its first device, and holds
            both the activations and what the layers hold permanently, as one buffer.  Without a
            cluster, there are only the activations, in a memory without limit.
        training : bool, optional
            Whether a backward pass follows; by default what the profile says of its bytes.
        name : str, optional
            That of the profile when absent.
        **options
            What :meth:`from_arrays` takes; may replace what is derived.

        Raises
        ------
        InputError
            As :meth:`from_arrays`, and for what :class:`.Lifetimes` refuses.
        """
        memory = None if cluster is None else clusters.cluster(cluster)
        training = profile.trains(training)
        derived = profiled.columns(profile.together(), memory, training=training)
        title = profile.name or "packing" if name is None else name
        return cls.from_arrays(**{**derived, "name": title, **options})

    def replace(self, **changes: Any) -> LmemPacking:
        """Return a copy with some fields changed, all validated anew as by :meth:`from_arrays`.

        Conflicts replace lifetimes.

        Raises
        ------
        InputError
            For an unknown field or a value that does not fit.
        """
        if changes.get("conflicts") is not None:
            changes = {"start": None, "end": None, **changes}
        return super().replace(**changes)

    def select(self, buffers: Sequence[int], **changes: Any) -> LmemPacking:
        """Return an instance with only these buffers, in this order, and with some fields changed.

        Gaps, ranges, pairs and groups that name another buffer are dropped.
        """
        keep = np.asarray(buffers, dtype=np.int64)
        place = {int(buffer): at for at, buffer in enumerate(keep)}

        def both(pairs: Iterable[Iterable[int]]) -> list[tuple[int, ...]]:
            groups = (tuple(place[int(i)] for i in group if int(i) in place) for group in pairs)
            return [group for group in groups if len(group) > 1]

        banks = self.banks
        if banks is not None:
            pairs = np.array(both(banks.pairs.tolist()), dtype=np.int64).reshape(-1, 2)
            banks = Banks(banks.count, banks.nbytes, pairs, banks.weight)
        columns = ("size", "start", "end", "alignment", "fixed", "accesses", "previous", "hint")
        fields: JsonObject = {name: getattr(self, name)[keep] for name in columns}
        fields |= {
            "ids": None if self.ids is None else [self.ids[int(i)] for i in keep],
            "gaps": [
                replace(gap, buffer=place[gap.buffer]) for gap in self.gaps if gap.buffer in place
            ],
            "allowed": [
                replace(item, buffer=place[item.buffer])
                for item in self.allowed
                if item.buffer in place
            ],
            "colocated": both(self.colocated),
            "in_place": both(self.in_place),
            "banks": banks,
        }
        if self.conflicts is not None:
            fields["conflicts"] = np.array(both(self.conflicts.tolist())).reshape(-1, 2)
        return self.replace(**{**fields, **changes})

    def secondary(self, solution: PackingSolution) -> int:
        """Return the second criterion of solutions of equal value: bytes moved, or the peak."""
        found = measured(self, solution)
        if self.objective in (Objective.MOVES, Objective.SPILL):
            return found.peak
        return found.moved_bytes or 0


def measure(instance: LmemPacking, solution: PackingSolution | Result[PackingSolution]) -> Measure:
    """Return peak, bank conflicts, moves and spill cost of `solution`, valid or not."""
    require_instance(instance, KIND)
    return measured(instance, instance.solution_in(solution))


def aligned(own: Any, n: int, given: Words) -> Any:
    """Return alignments of n buffers: what is `given` for those that have none of their own.

    Parameters
    ----------
    own : array_like of int, shape (n,), or None
        Alignments that the file gives, 1 where it has nothing to say; None: nowhere.
    n : int
        Number of buffers.
    given : mapping
        What was said beside the file; an ``alignment``, if any, is for the buffers without one.
    """
    if "alignment" not in given:
        return own
    own = np.ones(n, dtype=np.int64) if own is None else np.asarray(own)
    return np.where(own == 1, given["alignment"], own)


def _by_time(gap: Gap) -> tuple[int, int]:
    return gap.buffer, gap.start


def _objective(
    given: Objective | str | None, capacity: object, memories: Iterable[object]
) -> Objective:
    if given is None:
        if memories:
            return Objective.SPILL
        return Objective.PEAK if capacity is None else Objective.FIT
    return member(given, Objective, "objective")
