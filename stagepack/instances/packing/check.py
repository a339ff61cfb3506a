"""Evaluates and checks placements, directly from the definitions.

It shares no code with the normal form on which the algorithms work.  A sweep over time finds all
overlaps in O((n + found) log n); a faster test shows that there are none.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from stagepack.instances.packing.data import PackingData, PackingSolution
from stagepack.instances.packing.problem import Objective
from stagepack.instances.profile import Array
from stagepack.instances.violation import Violation

LISTED = 100
"""Violations of one rule that are listed; more are counted."""

FOUND = 10_000
"""Overlaps after which no more are looked for."""

AT_ONCE = 50_000
"""Births and deaths that a sweep plays before it looks up: well under 0.2 s."""

PART = 100_000
"""Conflicts that are looked at together."""

_sorted: weakref.WeakKeyDictionary[PackingData, tuple[Array, ...]] = weakref.WeakKeyDictionary()
"""What :func:`_events` keeps."""


@dataclass(frozen=True)
class Measure:
    """What an allocation amounts to, beside its objective value."""

    peak: int  # highest address used, plus one (over all memories)
    bank_conflicts: int | None = None  # pairs that share a bank; None without banks
    # `moved_bytes`, `moved`: bytes and number of buffers that left their previous offset; None
    # without one.
    moved_bytes: int | None = None
    moved: int | None = None
    spill_cost: int | None = None  # cost of all accesses; None without memories
    peaks: tuple[int, ...] = ()  # the peak of each memory; empty without memories
    # Cost of the penalised pairs that share addresses; None without penalties.
    penalties: int | None = None

    @property
    def total(self) -> int:
        """The peaks of all memories together."""
        return sum(self.peaks) if self.peaks else self.peak


def measure(instance: PackingData, solution: PackingSolution) -> Measure:
    """Return peak, bank conflicts, moves and spill cost of `solution`, valid or not."""
    offsets = solution.offsets
    tops = offsets + instance.size
    conflicts = moved_bytes = moved = cost = None
    peaks: tuple[int, ...] = ()
    if instance.banks is not None:
        low, high = offsets // instance.banks.nbytes, (tops - 1) // instance.banks.nbytes
        i, j = instance.bank_pairs.T
        conflicts = int(((low[i] <= high[j]) & (low[j] <= high[i])).sum())
    if (instance.previous >= 0).any():
        gone = (instance.previous >= 0) & (instance.previous != offsets)
        moved_bytes, moved = int(instance.size[gone].sum()), int(gone.sum())
    if instance.memories and solution.memory is not None:
        costs = np.array([memory.cost for memory in instance.memories], dtype=np.int64)
        cost = int((instance.accesses * costs[solution.memory]).sum())
        highest = np.zeros(len(instance.memories), dtype=np.int64)
        np.maximum.at(highest, solution.memory, tops)
        peaks = tuple(highest.tolist())
    paid = None
    if instance.penalties is not None:
        paid = int(
            instance.penalties.cost[_touching(instance, solution, instance.penalties.pairs)].sum()
        )
    return Measure(int(tops.max()), conflicts, moved_bytes, moved, cost, peaks, paid)


def _touching(instance: PackingData, solution: PackingSolution, pairs: Array) -> Array:
    """Return which pairs of buffers, shape (pairs, 2), have a byte in common in one memory."""
    low, high = solution.offsets, solution.offsets + instance.size
    i, j = pairs.T
    share = np.maximum(low[i], low[j]) < np.minimum(high[i], high[j])
    if solution.memory is not None:
        share &= solution.memory[i] == solution.memory[j]
    return np.asarray(share)


def evaluate(instance: PackingData, solution: PackingSolution) -> int:
    """Return the value of the instance's objective; see :class:`.instance.Objective`."""
    found = measure(instance, solution)
    match instance.objective:
        case Objective.BANK_CONFLICTS:
            return instance.conflict_weight * (found.bank_conflicts or 0) + found.peak
        case Objective.MOVES:
            return found.moved_bytes or 0
        case Objective.SPILL:
            return found.spill_cost or 0
        case Objective.PENALTIES:
            return found.penalties or 0
        case Objective.PEAK | Objective.FIT:
            return found.total
        case unknown:
            assert_never(unknown)


def check(instance: PackingData, solution: PackingSolution) -> tuple[Violation, ...]:
    """Return every rule that `solution` breaks, by name; () when it is valid.

    The names: ``offsets`` and ``memory`` (wrong number, negative, unknown), ``overlap`` (which
    two buffers, where and when), ``gap`` (an overlap with what a shrunken buffer still holds),
    ``in-place`` (a pair overlaps at unequal offsets), ``colocation``, ``capacity``,
    ``alignment``, ``fixed``, ``range``, ``reserved``, ``bank`` (beyond the last bank), ``home``
    (a memory that a buffer may not live in), ``view`` (not where its host has it), ``apart``,
    ``exclusive`` and ``segment`` (across a multiple of it).
    At most `LISTED` violations of a rule are spelt out.
    """
    found = _offsets_shape(instance, solution)
    if found:
        return tuple(found)
    offsets, name = solution.offsets, instance.buffer_id

    def tell(rule: str, broken: Array, detail: str, *values: Array) -> None:
        where = np.flatnonzero(broken)
        found.extend(
            Violation(rule, detail.format(name(int(at)), *(int(v[at]) for v in values)))
            for at in where[:LISTED]
        )
        if len(where) > LISTED:
            found.append(Violation(rule, f"and {len(where) - LISTED:,} more"))

    tops = offsets + instance.size
    tell("offsets", offsets < 0, "buffer {} lies at {:,}", offsets)
    misplaced = _memory_violations(instance, solution)
    if misplaced:
        return (*found, *misplaced)
    room = _room(instance, solution)
    tell(
        "capacity",
        tops > room,
        "buffer {} ends at {:,}, {:,} bytes beyond the capacity of {:,}",
        tops,
        tops - room,
        room,
    )
    tell(
        "alignment",
        offsets % instance.alignment != 0,
        "buffer {} lies at {:,}, no multiple of {:,}",
        offsets,
        instance.alignment,
    )
    tell(
        "fixed",
        (instance.fixed >= 0) & (offsets != instance.fixed),
        "buffer {} lies at {:,}, not at {:,}",
        offsets,
        instance.fixed,
    )
    tell("range", ~_in_ranges(instance, offsets), "buffer {} lies at {:,}, in no range", offsets)
    found += _into_reserved(instance, offsets, np.arange(instance.n), instance.reserved)
    _of_memories(instance, solution, tell, found)
    if instance.banks is not None:
        end = instance.banks.count * instance.banks.nbytes
        tell(
            "bank",
            tops > end,
            "buffer {} ends at {:,}, beyond the "
            f"{instance.banks.count:,} banks ({end:,} bytes)",
            tops,
        )
    found += _colocated(instance, solution)
    found += _related(instance, solution)
    found += _overlaps(instance, solution)
    return tuple(found)


def _of_memories(
    instance: PackingData,
    solution: PackingSolution,
    tell: Callable[..., None],
    found: list[Violation],
) -> None:
    """Add to `found` what breaks the rules of the memory that a buffer lies in, and of segments.

    `tell` adds a violation: (rule, which buffers, words, values).
    """
    offsets, tops = solution.offsets, solution.offsets + instance.size
    for index, level in enumerate(instance.memories):
        here = np.flatnonzero(solution.memory == index)
        found += _into_reserved(instance, offsets, here, level.reserved)
        wrong = np.zeros(instance.n, dtype=bool)
        wrong[here] = offsets[here] % level.alignment != 0
        rest = f"buffer {{}} lies at {{:,}}, no multiple of the {level.alignment:,} of {level.name}"
        tell("alignment", wrong, rest, offsets)
    if instance.segment is not None:
        across = (instance.size > 0) & (
            offsets // instance.segment < (tops - 1) // instance.segment
        )
        tell(
            "segment",
            across,
            f"buffer {{}} at [{{:,}}, {{:,}}) lies across a multiple of {instance.segment:,}",
            offsets,
            tops,
        )


def _room(instance: PackingData, solution: PackingSolution) -> Array:
    """Return the capacity of the memory that each buffer lies in, shape (n,)."""
    if instance.memories:
        limits = [2**62 if m.capacity is None else m.capacity for m in instance.memories]
        return np.array(limits, dtype=np.int64)[solution.memory]
    enforced = instance.capacity is not None and instance.objective != "peak"
    return np.full(instance.n, instance.capacity if enforced else 2**62)


def _colocated(instance: PackingData, solution: PackingSolution) -> list[Violation]:
    """Return the groups of buffers that should have one offset in one memory, and have not."""
    offsets, name, found = solution.offsets, instance.buffer_id, []
    for group in instance.colocated:
        members = list(group)
        if len(set(offsets[members].tolist())) > 1:
            places = ", ".join(f"{name(i)} at {offsets[i]:,}" for i in members[:LISTED])
            found.append(Violation("colocation", f"one offset is asked for, not {places}"))
        elif solution.memory is not None and len(set(solution.memory[members].tolist())) > 1:
            names = ", ".join(name(i) for i in members[:LISTED])
            found.append(Violation("colocation", f"{names} lie in different memories"))
    return found


def _into_reserved(
    instance: PackingData, offsets: Array, buffers: Array, reserved: Sequence[tuple[int, int]]
) -> list[Violation]:
    """Return which of some buffers reach into which reserved ranges, which ascend and are apart."""
    ranges = np.array(reserved, dtype=np.int64).reshape(-1, 2)
    low, top = offsets[buffers], offsets[buffers] + instance.size[buffers]
    first = np.searchsorted(ranges[:, 1], low, side="right")
    count = np.searchsorted(ranges[:, 0], top, side="left") - first
    found: list[Violation] = []
    for at in np.flatnonzero(count > 0)[:LISTED].tolist():
        who = f"buffer {instance.buffer_id(int(buffers[at]))} at {low[at]:,} reaches into"
        reached = ranges[first[at] : first[at] + count[at]][: LISTED - len(found)].tolist()
        found += [Violation("reserved", f"{who} [{begin:,}, {end:,})") for begin, end in reached]
    more = int(np.maximum(count, 0).sum()) - len(found)
    return [*found, Violation("reserved", f"and {more:,} more")] if more else found


def _related(instance: PackingData, solution: PackingSolution) -> list[Violation]:
    """Return buffers where their views, homes, separations or exclusive bytes do not have them."""
    offsets, name, found = solution.offsets, instance.buffer_id, []
    memory = np.zeros(instance.n, dtype=np.int64) if solution.memory is None else solution.memory
    for buffer, host, above in ((v.buffer, v.host, v.offset) for v in instance.views):
        at = f"buffer {name(buffer)} lies at {offsets[buffer]:,}"
        if memory[buffer] != memory[host]:
            found.append(Violation("view", f"{at}, in another memory than {name(host)}"))
        elif offsets[buffer] != offsets[host] + above:
            found.append(
                Violation("view", f"{at}, not {above:,} above {name(host)} at {offsets[host]:,}")
            )
    if instance.homes is not None:
        for i in np.flatnonzero(~instance.homes[np.arange(instance.n), memory]).tolist():
            where = instance.memories[int(memory[i])].name
            found.append(Violation("home", f"buffer {name(i)} may not live in {where}"))
    apart = np.array(instance.apart, dtype=np.int64).reshape(-1, 2)
    tops = offsets + instance.size
    for i, j in apart[_touching(instance, solution, apart)].tolist():
        detail = f"buffers {name(i)} at {offsets[i]:,} and {name(j)} at {offsets[j]:,} share bytes"
        found.append(Violation("apart", detail))
    belongs = _places(instance)
    for i in instance.exclusive:
        others = (memory == memory[i]) & (belongs != belongs[i])
        others &= np.maximum(offsets, offsets[i]) < np.minimum(tops, tops[i])
        found += [
            Violation("exclusive", f"buffer {name(j)} at {offsets[j]:,} uses bytes of {name(i)}")
            for j in np.flatnonzero(others)[:LISTED].tolist()
        ]
    return found[:LISTED]


def _places(instance: PackingData) -> Array:
    """Return a number for each buffer, shape (n,): equal for those that have one place together."""
    owner = np.arange(instance.n)
    if not instance.views:  # groups are apart
        for group in instance.colocated:
            owner[list(group)] = group[0]
        return owner

    def first(i: int) -> int:
        while owner[i] != i:
            i = int(owner[i])
        return i

    for group in (*instance.colocated, *((view.buffer, view.host) for view in instance.views)):
        for i in group[1:]:
            owner[first(i)] = first(group[0])
    return np.array([first(i) for i in range(instance.n)], dtype=np.int64)


def shape(instance: PackingData, solution: PackingSolution) -> list[Violation]:
    """Return what makes it impossible to speak of places at all: ``offsets``, ``memory``."""
    return _offsets_shape(instance, solution) or _memory_violations(instance, solution)


def _offsets_shape(instance: PackingData, solution: PackingSolution) -> list[Violation]:
    offsets, n = solution.offsets, instance.n
    if offsets.shape == (n,) and offsets.dtype == np.int64:
        return []
    return [Violation("offsets", f"{offsets.shape} {offsets.dtype} for {n:,} buffers")]


def _memory_violations(instance: PackingData, solution: PackingSolution) -> list[Violation]:
    memory = solution.memory
    if not instance.memories:
        return [] if memory is None else [Violation("memory", "there is only one memory")]
    if memory is None or memory.shape != (instance.n,):
        return [Violation("memory", "the memory of each buffer is missing")]
    wrong = np.flatnonzero((memory < 0) | (memory >= len(instance.memories)))
    return [
        Violation("memory", f"buffer {instance.buffer_id(int(at))} is in memory {memory[at]}")
        for at in wrong[:LISTED]
    ]


def _in_ranges(instance: PackingData, offsets: Array) -> Array:
    fine = np.ones(instance.n, dtype=bool)
    if instance.allowed:
        limited = sorted({item.buffer for item in instance.allowed})
        fine[limited] = False
        for item in instance.allowed:
            at = item.buffer
            if item.low <= offsets[at] and offsets[at] + instance.size[at] <= item.high:
                fine[at] = True
    return fine


def _overlaps(instance: PackingData, solution: PackingSolution) -> list[Violation]:
    offsets = solution.offsets
    memory = np.zeros(instance.n, dtype=np.int64) if solution.memory is None else solution.memory
    owner = _places(instance)
    pairs = np.array(instance.in_place, dtype=np.int64).reshape(-1, 2)
    pairs = pairs[offsets[pairs[:, 0]] == offsets[pairs[:, 1]]]
    pairs = np.concatenate([pairs, np.array(instance.exempt, dtype=np.int64).reshape(-1, 2)])
    sharing = np.sort(pairs[:, 0] * instance.n + pairs[:, 1])
    if instance.conflicts is not None:
        hits = _in_conflict(instance.conflicts, offsets, offsets + instance.size)
        i, j = hits.T
        wrong = (memory[i] == memory[j]) & (owner[i] != owner[j])
        hits = hits[wrong & ~np.isin(i * instance.n + j, sharing)]
        named = [(a, b, None) for a, b in hits[:LISTED].tolist()]
        return _spelt(instance, solution, named, len(hits))
    buffer, start, end, low, high = _rectangles(instance, offsets)
    excused = len(sharing) or instance.colocated or instance.views or len(instance.memories) > 1
    if not excused and _apart(_events(instance, start, end), low, high):
        return []
    pairs_of, complete = [np.empty((0, 2), dtype=np.int64)], True
    order = np.argsort(memory[buffer], kind="stable")
    for here in np.split(order, np.flatnonzero(np.diff(memory[buffer[order]])) + 1):
        columns = (buffer, owner[buffer], start, end, low, high)
        meeting, all_of_them = _meeting(instance.n, sharing, *(column[here] for column in columns))
        complete = complete and all_of_them
        pairs_of.append(here[meeting])
    one, other = np.concatenate(pairs_of).T
    i, j = np.sort(buffer[np.stack([one, other])], axis=0)
    _, some = np.unique(i * instance.n + j, return_index=True)
    spelt = some[:LISTED]  # one place of each pair will do
    one, other = one[spelt], other[spelt]
    rows = np.stack(
        [
            np.maximum(start[one], start[other]),
            np.minimum(end[one], end[other]),
            np.maximum(low[one], low[other]),
            np.minimum(high[one], high[other]),
        ],
        axis=1,
    )
    named_at = zip(i[spelt].tolist(), j[spelt].tolist(), rows.tolist(), strict=True)
    return _spelt(instance, solution, list(named_at), len(some), complete)


def _in_conflict(pairs: Array, low: Array, top: Array) -> Array:
    """Return the pairs, shape (k, 2), of buffers that overlap in [low, top)."""
    found = [pairs[:0]]
    for begin in range(0, len(pairs), PART):  # so that what is made of them stays in the cache
        part = pairs[begin : begin + PART]
        i, j = part.T
        meet = np.maximum(low[i], low[j]) < np.minimum(top[i], top[j])  # in a byte at least
        found.append(part[meet])
    return np.concatenate(found)


def _rectangles(instance: PackingData, offsets: Array) -> tuple[Array, ...]:
    """Return what is in use: buffer, [start, end) in time and [low, high) in addresses."""
    buffer = np.arange(instance.n)
    rows = [buffer, instance.start, instance.end, offsets, offsets + instance.size]
    if instance.gaps:
        held = np.unique([gap.buffer for gap in instance.gaps])
        rows = [np.delete(row, held) for row in rows]
        extra: list[tuple[int, int, int, int, int]] = []
        by_buffer: dict[int, list[tuple[int, int, int, int]]] = {}
        for gap in instance.gaps:
            by_buffer.setdefault(gap.buffer, []).append((gap.start, gap.end, gap.low, gap.high))
        for i, gaps in by_buffer.items():
            now, base = int(instance.start[i]), int(offsets[i])
            for begin, stop, bottom, top in sorted(gaps):
                extra.append((i, now, begin, base, base + int(instance.size[i])))
                extra.append((i, begin, stop, base + bottom, base + top))
                now = stop
            extra.append((i, now, int(instance.end[i]), base, base + int(instance.size[i])))
        more = np.array([row for row in extra if row[1] < row[2] and row[3] < row[4]])
        rows = [
            np.concatenate([row, column])
            for row, column in zip(rows, more.reshape(-1, 5).T, strict=True)
        ]
    if (instance.size == 0).any():  # what holds no bytes is nowhere
        used = rows[3] < rows[4]
        rows = [row[used] for row in rows]
    if instance.period is not None:
        buffer, start, end, low, high = rows
        start, end = start.copy(), end.copy()
        later = start >= instance.period  # a piece wholly in the next turn
        start[later] -= instance.period
        end[later] -= instance.period
        over = end > instance.period
        rows = [
            np.concatenate([buffer, buffer[over]]),
            np.concatenate([start, np.zeros(int(over.sum()), dtype=np.int64)]),
            np.concatenate([np.minimum(end, instance.period), end[over] - instance.period]),
            np.concatenate([low, low[over]]),
            np.concatenate([high, high[over]]),
        ]
    return tuple(np.ascontiguousarray(row, dtype=np.int64) for row in rows)


def _events(instance: PackingData, start: Array, end: Array) -> tuple[Array, ...]:
    """Return rectangles by start, the starts, rectangles by end, and the ends.

    Where rectangles are lifetimes they are kept as long as the instance lives: of many answers that
    are checked only the addresses differ.
    """
    found = _sorted.get(instance)
    if found is None:
        found = *_ascending(start), *_ascending(end)
        if not instance.gaps and instance.period is None:
            _sorted[instance] = found
    return found


def _apart(events: tuple[Array, ...], low: Array, high: Array) -> bool:
    """Tell whether no two rectangles, shape (n,), intersect."""
    from stagepack.instances.packing import sweep  # compiled code: loaded when used

    if not len(low):
        return True
    by_low, low = _ascending(low)
    place = np.empty(len(low), dtype=np.int64)
    place[by_low] = np.arange(len(low))
    births, start, deaths, end = events
    given = sweep.Lives(place[births], start, place[deaths], end, low, high[by_low])
    alive, at = sweep.Alive.of(len(low)), np.zeros(2, dtype=np.int64)
    while at[0] < len(births):
        if not sweep.apart(given, alive, at, AT_ONCE):
            return False
    return True


def _ascending(values: Array) -> tuple[Array, Array]:
    """Return an order in which values, shape (n,), ascend, and the values in this order."""
    if not len(values):
        return values, values
    bits, least = len(values).bit_length(), int(values.min())
    if int(values.max()) - least >= 1 << (62 - bits):
        order = np.argsort(values)
        return order, values[order]
    # A sort of numbers takes half as long as one of their indices.
    both = np.sort((values - least << bits) + np.arange(len(values)))
    return both & ((1 << bits) - 1), (both >> bits) + least


def _meeting(
    buffers: int,
    exempt: Array,
    buffer: Array,
    owner: Array,
    start: Array,
    end: Array,
    low: Array,
    high: Array,
) -> tuple[Array, bool]:
    """Return pairs of rectangles that intersect, shape (pairs, 2), and whether these are all.

    Rectangles of one owner do not count, nor those of two buffers whose pair is `exempt`.
    """
    from stagepack.instances.packing import sweep  # compiled code: loaded when used

    n = len(start)
    by_low = np.argsort(low, kind="stable")
    place = np.empty(n, dtype=np.int64)
    place[by_low] = np.arange(n)
    below = np.searchsorted(low[by_low], high, side="left")
    given = sweep.Rectangles(low, high, place, below, by_low, owner, buffer)
    # At equal times ends come first: lifetimes are half-open.
    events = np.argsort(np.concatenate([end, start]), kind="stable")
    tree = sweep.Tree.of(n)
    found = np.empty((FOUND, 2), dtype=np.int64)
    count = 0
    for at in range(0, 2 * n, AT_ONCE):
        stop = min(at + AT_ONCE, 2 * n)
        count = sweep.sweep(events, at, stop, given, tree, exempt, buffers, found, count)
        if count == FOUND:
            break
    return found[:count], count < FOUND


def _spelt(
    instance: PackingData,
    solution: PackingSolution,
    pairs: Sequence[tuple[int, int, Sequence[int] | None]],
    number: int,
    complete: bool = True,
) -> list[Violation]:
    """Return intersecting pairs, the first of so many, as violations; `complete`: of no more."""
    share = set(instance.in_place)
    shrunken = {gap.buffer for gap in instance.gaps if gap.high > gap.low}
    found = []
    for i, j, span in pairs:
        rule = "overlap"
        if (i, j) in share:
            rule = "in-place"
        elif i in shrunken or j in shrunken:
            rule = "gap"
        detail = (
            f"buffers {instance.buffer_id(i)} at {solution.offsets[i]:,} and "
            f"{instance.buffer_id(j)} at {solution.offsets[j]:,}"
        )
        if span is not None:
            detail += f" share [{span[2]:,}, {span[3]:,}) at times [{span[0]:,}, {span[1]:,})"
        found.append(Violation(rule, detail))
    if number > len(pairs):
        least = "" if complete else "at least "
        found.append(Violation("overlap", f"and {least}{number - len(pairs):,} more"))
    return found
