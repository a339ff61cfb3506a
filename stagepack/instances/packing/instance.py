"""Instances of LMEM packing: construction, evaluation and checking of solutions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.files import in_bytes
from stagepack.instances import clusters
from stagepack.instances.arrays import Given, integer, integers, names
from stagepack.instances.base import Answered, Rules, require_instance
from stagepack.instances.packing import profiled, relations, validate
from stagepack.instances.packing.check import Measure, check, evaluate, shape
from stagepack.instances.packing.check import measure as measured
from stagepack.instances.packing.data import (
    Allowed,
    Banks,
    Gap,
    Memory,
    PackingData,
    PackingSolution,
    Penalties,
    View,
)
from stagepack.instances.packing.problem import KIND, Objective
from stagepack.instances.profile import Array, Cluster, ModelProfile
from stagepack.instances.words import Words, member
from stagepack.result import Result


class LmemPacking(PackingData, Answered[PackingSolution, int]):
    """An instance of LMEM packing; use :meth:`from_arrays` or :meth:`from_profile`."""

    solution_type = PackingSolution
    rules = Rules(shape, check, evaluate)

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
        memories: Iterable[Memory | tuple[Any, ...]] = (),
        homes: Any = None,
        exclusive: Iterable[int] = (),
        apart: Iterable[tuple[int, int]] = (),
        exempt: Iterable[tuple[int, int]] = (),
        views: Iterable[View | tuple[int, int, int | str]] = (),
        penalties: Penalties | Iterable[tuple[int, int, int]] | None = None,
        segment: int | str | None = None,
        lives: Iterable[Iterable[tuple[int, int]]] | None = None,
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
        memories : iterable of Memory or (name, capacity[, cost[, reserved[, alignment]]])
            Several memories to choose from.
        homes : array_like of bool, shape (n, memories), or mapping, optional
            In which memories a buffer may live; a mapping has the names or indices of memories for
            some buffers, all others may live anywhere.
        exclusive : iterable of int
            Buffers whose bytes no other buffer may use at any time.
        apart : iterable of (int, int)
            Pairs of buffers that must not overlap although they are not alive together.
        exempt : iterable of (int, int)
            Pairs that may overlap although they are alive together: only one of them is used.
        views : iterable of View or (buffer, host, offset)
            Buffers that lie inside of another one, so many bytes above its offset.  What hangs
            together so never conflicts with itself.
        penalties : Penalties or iterable of (int, int, cost), optional
            What it costs if two buffers share an address.
        segment : int, optional
            No buffer lies across a multiple of this: pages, or heaps of so many bytes.
        lives : iterable, optional
            In place of `start` and `end`: a list of lifetimes (start, end) for each buffer.
        accesses : array_like of int, shape (n,), optional
            Of each buffer, in the unit that the costs of memories are for; by default its size.
        objective : Objective or str, optional
            When absent: "penalties" with a capacity and penalties, "fit" with a capacity, "spill"
            with memories that differ in cost, "fit" with others that all have capacities,
            otherwise "peak".
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
        gaps = list(gaps)
        if lives is not None:
            if start is not None or end is not None or conflicts is not None:
                raise InputError(
                    "replaces start, end and conflicts", field="lives", remedy="give one of them"
                )
            start, end, dead = relations.lifetimes(lives, n)
            gaps += dead
        if conflicts is not None:
            if start is not None and (np.any(start) or end is None or (np.asarray(end) != 1).any()):
                raise InputError(
                    "replaces lifetimes", field="conflicts", remedy="give start and end, or this"
                )
            start, end = np.zeros(n, dtype=np.int64), np.ones(n, dtype=np.int64)
        memories = tuple(memories)
        levels = relations.memories(memories) if memories else ()
        priced = None if penalties is None else relations.penalties(penalties, n)
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
            in_place=_pairs(in_place, "in_place", n),
            banks=None if banks is None else validate.banks(banks, n),
            memories=levels,
            homes=None
            if homes is None
            else relations.homes(homes, n, [memory.name for memory in levels]),
            exclusive=tuple(sorted({integer(i, "exclusive") for i in exclusive})),
            apart=_pairs(apart, "apart", n),
            exempt=_pairs(exempt, "exempt", n),
            views=tuple(validate.records(views, View, "views")),
            penalties=priced,
            segment=None if segment is None else integer(in_bytes(segment, "segment"), "segment"),
            accesses=integers(sizes if accesses is None else accesses, "accesses", "buffer", n),
            previous=places(previous, "previous"),
            hint=places(hint, "hint"),
            objective=usual_objective(capacity, levels, priced)
            if objective is None
            else member(objective, Objective, "objective"),
            source=source,
            lifetimes=lifetimes,
        )
        validate.instance(built)
        told = built.views or built.colocated or built.exclusive or built.apart or built.exempt
        if told or built.segment is not None:
            relations.check(built)
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

        Gaps, ranges, pairs, groups and views that name another buffer are dropped.
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
        priced = self.penalties
        if priced is not None:
            inside = np.isin(priced.pairs, keep).all(axis=1)
            ends = [[place[int(i)] for i in pair] for pair in priced.pairs[inside]]
            priced = Penalties(np.array(ends, dtype=np.int64).reshape(-1, 2), priced.cost[inside])
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
            "apart": both(self.apart),
            "exempt": both(self.exempt),
            "exclusive": [place[i] for i in self.exclusive if i in place],
            "views": [
                View(place[view.buffer], place[view.host], view.offset)
                for view in self.views
                if view.buffer in place and view.host in place
            ],
            "homes": None if self.homes is None else self.homes[keep],
            "penalties": priced,
            "banks": banks,
        }
        if self.conflicts is not None:
            fields["conflicts"] = np.array(both(self.conflicts.tolist())).reshape(-1, 2)
        return self.replace(**{**fields, **changes})

    def within(self, memory: int, buffers: Sequence[int], **changes: Any) -> LmemPacking:
        """Return these buffers in one of several memories, as an instance of that memory alone.

        Parameters
        ----------
        memory : int
            Index of the memory: its capacity, reserved ranges and alignment count.
        buffers : sequence of int
            Those that live in it.
        **changes
            Further fields to change, such as the objective.
        """
        level = self.memories[memory]
        alignment = np.lcm(self.alignment[np.asarray(buffers, dtype=np.int64)], level.alignment)
        alone: JsonObject = {
            "memories": (),
            "homes": None,
            "capacity": level.capacity,
            "reserved": (*self.reserved, *level.reserved),
            "alignment": alignment,
        }
        return self.select(buffers, **{**alone, **changes})

    def secondary(self, solution: PackingSolution) -> int:
        """Return the second criterion of solutions of equal value: see :class:`.Objective`.

        The peak where it is not the first; else penalties, bytes moved, the largest of the peaks.
        """
        found = measured(self, solution)
        if self.objective in (Objective.MOVES, Objective.SPILL, Objective.PENALTIES):
            return found.total
        if self.objective is not Objective.BANK_CONFLICTS and found.penalties is not None:
            return found.penalties
        return found.peak if self.memories else found.moved_bytes or 0


def measure(instance: LmemPacking, solution: PackingSolution | Result[PackingSolution]) -> Measure:
    """Return peak, bank conflicts, moves and spill cost of `solution`, valid or not."""
    require_instance(instance, KIND)
    return measured(instance, instance.solution_in(solution))


def aligned(own: Any, n: int, given: Words) -> Any:
    """Return alignments of `n` buffers: the one `given` beside a file for those without `own` ones.

    The file gives 1 where it has nothing to say, None where it says nothing of any.
    """
    if "alignment" not in given:
        return own
    own = np.ones(n, dtype=np.int64) if own is None else np.asarray(own)
    return np.where(own == 1, given["alignment"], own)


def _by_time(gap: Gap) -> tuple[int, int]:
    return gap.buffer, gap.start


def _pairs(given: Iterable[tuple[int, int]], name: str, n: int) -> tuple[tuple[int, int], ...]:
    """Return pairs of buffers, the first below the second, ascending, each once."""
    return tuple((int(i), int(j)) for i, j in validate.pairs(list(given), name, n).tolist())


def usual_objective(
    capacity: object, memories: tuple[Memory, ...], penalties: Penalties | None
) -> Objective:
    """Return the objective that is meant where none is given; see :meth:`LmemPacking.from_arrays`.

    A `capacity` of None is no limit; () are the `memories` of one memory.
    """
    if len({memory.cost for memory in memories}) > 1:
        return Objective.SPILL
    limited = all(memory.capacity is not None for memory in memories)
    if not (limited if memories else capacity is not None):
        return Objective.PEAK
    return Objective.FIT if penalties is None else Objective.PENALTIES
