"""Random small packings with every option, and their optimum by enumeration.

The enumeration knows the rules of :mod:`stagepack.instances.packing` from their definition only:
it plays all moments of time one by one and shares no code with the normal form or the checker.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stagepack import catalog
from stagepack.instances.packing import (
    Allowed,
    Banks,
    Gap,
    LmemPacking,
    Memory,
    Objective,
    PackingSolution,
)

RELATIONS = ("apart", "exempt", "views", "exclusive", "segment", "lives", "penalties")
"""What buffers have to do with one another; penalties need an objective or a capacity."""

FEATURES = (
    "alignment",
    "gaps",
    "fixed",
    "allowed",
    "reserved",
    "colocated",
    "in-place",
    "circular",
    "conflicts",
    "banks",
    "no-bytes",
    *RELATIONS[:-1],
)
"""Options of an instance that a random one may have; the objective is chosen apart."""

Random = np.random.Generator

TIGHT = ((0, 2, 4), (0, 1, 6), (0, 3, 5), (1, 2, 4), (1, 4, 2), (2, 5, 7), (3, 4, 7), (4, 5, 8))
"""(start, end, size) of a packing whose load is 16 and whose optimum is 17."""


def tight() -> LmemPacking:
    """Return the smallest packing known whose optimum exceeds its load."""
    start, end, size = np.array(TIGHT).T
    return LmemPacking.from_arrays(size, start, end, name="tight")


# ---------------------------------------------------------------------- random instances


def random_packing(
    rng: Random,
    *,
    features: Collection[str] = (),
    objective: Objective | str = Objective.PEAK,
    n: int | None = None,
) -> LmemPacking:
    """Return a random packing of 3 to 7 small buffers.

    Parameters
    ----------
    rng : Generator
        Where the numbers come from.
    features : collection of str
        Out of `FEATURES` and `RELATIONS`; "conflicts" replaces lifetimes, "circular", "gaps" and
        "lives" need them.  "memories" are several, with homes, also for other objectives.
    objective : Objective
        What to minimise; what it needs (capacity, banks, memories, old offsets) is added.
    n : int, optional
        Number of buffers.
    """
    objective = Objective(objective)
    one = objective in (Objective.MOVES, Objective.BANK_CONFLICTS)
    features = [name for name in features if name != "memories" or not one]
    n = int(rng.integers(3, 8 if objective is Objective.PEAK else 6)) if n is None else n
    scale = int(rng.choice([1, 1, 2, 3]))
    size = rng.integers(1, 6, n) * scale
    if "no-bytes" in features:
        size *= rng.random(n) < rng.choice([0, 0.5, 0.8], p=[0.1, 0.6, 0.3])
    given: dict[str, Any] = {"objective": objective, "size": size}
    given |= _times(rng, n, features)
    if "alignment" in features:
        given["alignment"] = rng.choice([1, 1, 2, 3, 4], n)
    if "gaps" in features and "conflicts" not in features:
        given["gaps"] = _random_gaps(rng, size, given["start"], given["end"])
    if "reserved" in features:
        given["reserved"] = _spans(rng, int(rng.integers(1, 3)), 4 * scale)
    if "allowed" in features:
        given["allowed"] = [
            Allowed(i, low, high + int(size[i]))
            for i in rng.permutation(n)[:2].tolist()
            for low, high in _spans(rng, int(rng.integers(1, 3)), 6 * scale)
        ]
    if "colocated" in features:
        given["colocated"] = [rng.permutation(n)[: int(rng.integers(2, 4))].tolist()]
    if "fixed" in features:
        fixed = np.full(n, -1)
        i = int(rng.integers(n))
        alignment = int(given["alignment"][i]) if "alignment" in given else 1
        fixed[i] = int(rng.integers(0, 6)) * alignment
        given["fixed"] = fixed
    if "in-place" in features:
        given["in_place"] = [
            tuple(rng.permutation(n)[:2].tolist()) for _ in range(int(rng.integers(1, 4)))
        ]
    given |= _relations(rng, given, features)
    size = given["size"]
    load = int(size.sum())
    if objective in (Objective.FIT, Objective.MOVES, Objective.PENALTIES) or (
        objective is not Objective.SPILL and rng.random() < 0.3
    ):
        given["capacity"] = max(int(size.max()), int(load * rng.uniform(0.4, 1.2)))
    if "banks" in features or objective is Objective.BANK_CONFLICTS:
        given["banks"] = _random_banks(rng, n, load, scale)
    if objective is Objective.MOVES or rng.random() < 0.1:
        given["previous"] = np.where(rng.random(n) < 0.8, rng.integers(0, load + 1, n), -1)
        given["previous"][0] = 0
    if objective is Objective.SPILL:
        small = max(1, int(load * rng.uniform(0.2, 0.7)))
        last = None if rng.random() < 0.5 else load
        given["memories"] = [Memory("near", small, 1), Memory("far", last, int(rng.integers(1, 5)))]
        given["accesses"] = rng.integers(0, 9, n)
    elif "memories" in features:
        given.pop("capacity", None)
        given["memories"] = [
            Memory(
                name,
                max(1, int(load * rng.uniform(0.2, 0.9)))
                if objective is Objective.FIT or rng.random() < 0.5
                else None,
                0,
                tuple(_spans(rng, 1, 4 * scale)) if rng.random() < 0.3 else (),
                int(rng.choice([1, 1, 2])),
            )
            for name in ("near", "far", "third")[: int(rng.integers(1, 4))]
        ]
    if "memories" in features:
        homes = rng.random((n, len(given["memories"]))) < 0.7
        homes[:, 0] |= ~homes.any(axis=1)
        for group in _together(given):
            homes[group] = homes[group].any(axis=0)
        given["homes"] = homes
    return LmemPacking.from_arrays(**given)


def _relations(rng: Random, given: dict[str, Any], features: Collection[str]) -> dict[str, Any]:
    """Return what buffers have to do with one another; views get room in their hosts."""
    size, n = given["size"].copy(), len(given["size"])
    found: dict[str, Any] = {}
    if "views" in features:
        order, views = rng.permutation(n).tolist(), []
        for buffer, host in (order[:2], (order[2], order[int(rng.integers(0, 2))])):
            at = int(rng.integers(0, 3))
            size[host] = max(size[host], at + size[buffer])
            views.append((buffer, host, at))
        for _ in range(2):  # a host that is a view itself has grown
            for buffer, host, at in views:
                size[host] = max(size[host], at + size[buffer])
        found |= {"views": views, "size": size}
        tied = {i for view in views for i in view[:2]}
        given["colocated"] = [g for g in given.get("colocated", ()) if not tied & set(g)]
        given["in_place"] = [p for p in given.get("in_place", ()) if not tied & set(p)]
    pairs = [(i, j) for j in range(n) for i in range(j)]
    groups = _together({**given, **found})
    free = [p for p in pairs if not any(set(p) <= set(group) for group in groups)]
    draw = rng.random(len(free))
    if "apart" in features:
        found["apart"] = [pair for pair, x in zip(free, draw, strict=True) if x < 0.25]
    if "exempt" in features:
        found["exempt"] = [pair for pair, x in zip(free, draw, strict=True) if x > 0.6]
    if "exclusive" in features:
        found["exclusive"] = [int(rng.integers(n))]
    if "segment" in features:
        found["segment"] = max(1, int(size.max() + rng.integers(0, 4)))
    if "lives" in features and "conflicts" not in features and "gaps" not in features:
        found["gaps"] = [
            (i, begin + 1, begin + 2)
            for i, (begin, end) in enumerate(zip(given["start"], given["end"], strict=True))
            if end - begin > 2
        ]
    if "penalties" in features or given["objective"] is Objective.PENALTIES:
        chosen = [pair for pair in pairs if rng.random() < 0.5] or pairs[:1]
        found["penalties"] = [(*pair, int(rng.integers(1, 6))) for pair in chosen]
    return found


def _together(given: dict[str, Any]) -> list[list[int]]:
    """Return the sets of buffers that have one place, by colocation or as views."""
    sets: list[set[int]] = []
    for tie in (*given.get("colocated", ()), *(view[:2] for view in given.get("views", ()))):
        met = [one for one in sets if one & set(tie)]
        sets = [one for one in sets if one not in met] + [set(tie).union(*met)]
    return [sorted(one) for one in sets]


def _times(rng: Random, n: int, features: Collection[str]) -> dict[str, Any]:
    if "conflicts" in features:
        pairs = [(i, j) for i in range(n) for j in range(i) if rng.random() < 0.6]
        return {"conflicts": np.array(pairs, dtype=np.int64).reshape(-1, 2)}
    if "circular" in features:
        period = int(rng.integers(3, 7))
        start = rng.integers(0, period, n)
        return {"period": period, "start": start, "end": start + rng.integers(1, period + 1, n)}
    start = rng.integers(0, 5, n)
    return {"start": start, "end": start + rng.integers(1, 4, n)}


def _random_gaps(rng: Random, size: Any, start: Any, end: Any) -> list[Gap]:
    gaps = []
    for i in rng.permutation(len(size))[:3].tolist():
        begin = int(rng.integers(start[i], end[i]))
        stop = int(rng.integers(begin + 1, end[i] + 1))
        low, high = sorted(rng.integers(0, size[i] + 1, 2).tolist())
        gaps.append(Gap(i, begin, stop, *((low, high) if rng.random() < 0.7 else (0, 0))))
    return gaps


def _spans(rng: Random, count: int, most: int) -> list[tuple[int, int]]:
    lows = rng.integers(0, most, count)
    return [(int(low), int(low + rng.integers(1, 4))) for low in lows]


def _random_banks(rng: Random, n: int, load: int, scale: int) -> Banks:
    nbytes = int(rng.integers(2, 6)) * int(rng.choice([1, scale]))
    count = max(1, int(1.3 * load) // nbytes)
    pairs = [(i, j) for i in range(n) for j in range(i) if rng.random() < 0.5]
    weight = None if rng.random() < 0.5 else int(rng.integers(0, 6))
    return Banks(count, nbytes, np.array(pairs, dtype=np.int64).reshape(-1, 2), weight)


# ---------------------------------------------------------------------- enumeration


@dataclass
class Found:
    """The best allocation met so far."""

    value: float = float("inf")
    offsets: list[int] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)


def brute_force(instance: LmemPacking, ceiling: int | None = None) -> PackingSolution | None:
    """Return a best solution, by trying all offsets below a ceiling; None when there is none.

    Parameters
    ----------
    instance : LmemPacking
        Few buffers, small numbers.
    ceiling : int, optional
        No buffer ends above it; by default high enough for some best solution.
    """
    if ceiling is None:
        ceiling = sufficient_ceiling(instance)
    search = _Enumeration(instance, ceiling)
    if all(search.starts):
        search.go({}, search.starts)
    if not search.found.offsets:
        return None
    memory = search.found.memory if instance.memories else None
    solution = PackingSolution.of(instance, search.found.offsets, memory)
    assert instance.check(solution) == ()
    assert instance.evaluate(solution) == search.found.value
    return solution


def sufficient_ceiling(instance: LmemPacking) -> int:
    """Return a height that some best solution does not exceed: all stacked on any support."""
    support = [0, *(high for _, high in instance.reserved), *instance.fixed.tolist()]
    support += [item.low for item in instance.allowed]
    if instance.objective is Objective.MOVES:
        support += instance.previous.tolist()
    support += [high for level in instance.memories for _, high in level.reserved]
    alignment = instance.alignment * math.lcm(1, *(level.alignment for level in instance.memories))
    if instance.segment is not None:
        alignment += instance.segment
    for group in _together({"colocated": instance.colocated}):
        alignment[list(group)] = np.lcm.reduce(alignment[list(group)])
    ceiling = int(max(support) + (instance.size + alignment - 1).sum())
    if instance.banks is not None:
        ceiling = min(ceiling + instance.banks.nbytes, instance.banks.count * instance.banks.nbytes)
    return ceiling if instance.ceiling is None else min(ceiling, instance.ceiling)


class _Enumeration:
    """Depth first: buffer after buffer at every place that those before leave it.

    A place is (memory, offset), held as one bit of an integer.
    """

    def __init__(self, instance: LmemPacking, ceiling: int) -> None:
        self.instance = instance
        self.height = ceiling + 1
        self.found = Found()
        self.limits = [memory.capacity for memory in instance.memories] or [instance.ceiling]
        self.ceiling = ceiling
        self.starts = [self._unary(i) for i in range(instance.n)]
        self.forbidden = self._forbidden()
        self.share = {
            pair
            for i, j in instance.in_place
            if (i, j) not in instance.apart and not {i, j} & set(instance.exclusive)
            for pair in ((i, j), (j, i))
        }
        self.above = self._distances()
        peaks = (Objective.PEAK, Objective.FIT)
        self.least = self._least_peak() if instance.objective in peaks else 0

    def _distances(self) -> dict[tuple[int, int], int]:
        """Return by how much the second lies above the first, of buffers with one place."""
        found = {(i, j): 0 for group in self.instance.colocated for i in group for j in group}
        for view in self.instance.views:
            found |= {(view.host, view.buffer): view.offset, (view.buffer, view.host): -view.offset}
        for middle in range(self.instance.n):
            for (i, k), one in list(found.items()):
                for (again, j), other in list(found.items()):
                    if k == middle == again:
                        found.setdefault((i, j), one + other)
        return found

    def _unary(self, i: int) -> int:
        """Return the places that buffer i may have on its own."""
        instance, size = self.instance, int(self.instance.size[i])
        bits = 0
        allowed = [item for item in instance.allowed if item.buffer == i]
        for memory, limit in enumerate(self.limits):
            if instance.homes is not None and not instance.homes[i, memory]:
                continue
            level = instance.memories[memory] if instance.memories else Memory("", None)
            segment = instance.segment or self.ceiling + 1
            end = self.ceiling if limit is None else min(limit, self.ceiling)
            for offset in range(end - size + 1):
                fine = (
                    offset % int(instance.alignment[i]) == 0
                    and int(instance.fixed[i]) in (-1, offset)
                    and not any(
                        low < offset + size and offset < high
                        for low, high in (*instance.reserved, *level.reserved)
                    )
                    and offset % level.alignment == 0
                    and (not size or offset // segment == (offset + size - 1) // segment)
                    and (
                        not allowed
                        or any(
                            item.low <= offset and offset + size <= item.high for item in allowed
                        )
                    )
                )
                bits |= fine << (memory * self.height + offset)
        return bits

    def _held(self, i: int) -> Iterator[tuple[int, int, int]]:
        """Yield (moment, low, high): the bytes above its offset that a buffer holds."""
        instance = self.instance
        for moment in range(int(instance.start[i]), int(instance.end[i])):
            low, high = 0, int(instance.size[i])
            for gap in instance.gaps:
                if gap.buffer == i and gap.start <= moment < gap.end:
                    low, high = gap.low, gap.high
            if low < high:
                yield moment if instance.period is None else moment % instance.period, low, high

    def _forbidden(self) -> dict[tuple[int, int], set[int]]:
        """Return the values of offset_j - offset_i at which buffers i and j overlap."""
        instance, n = self.instance, self.instance.n
        held = [{moment: (low, high) for moment, low, high in self._held(i)} for i in range(n)]
        pairs = {(i, j) for i in range(n) for j in range(n) if i != j}
        never = {
            (i, j)
            for i, j in pairs
            if (min(i, j), max(i, j)) in instance.apart or {i, j} & set(instance.exclusive)
        }
        if instance.conflicts is not None:
            listed = {tuple(pair) for pair in instance.conflicts.tolist()}
            pairs = {(i, j) for i, j in pairs if (i, j) in listed or (j, i) in listed}
        found: dict[tuple[int, int], set[int]] = {}
        for i, j in never:
            if instance.size[i] and instance.size[j]:
                found[i, j] = set(range(1 - int(instance.size[j]), int(instance.size[i])))
        for i, j in pairs - found.keys():
            if (min(i, j), max(i, j)) in instance.exempt:
                continue
            found[i, j] = {
                distance
                for moment in held[i].keys() & held[j].keys()
                for distance in range(
                    held[i][moment][0] - held[j][moment][1] + 1,
                    held[i][moment][1] - held[j][moment][0],
                )
            }
        return found

    def _least_peak(self) -> int:
        """Return the load where every buffer counts fully, else the largest size."""
        instance = self.instance
        loose = instance.in_place or instance.colocated or instance.views or instance.exempt
        if instance.conflicts is not None or loose or instance.memories:
            return int(instance.size.max())
        load: dict[int, int] = {}
        for i in range(instance.n):
            for moment, low, high in self._held(i):
                load[moment] = load.get(moment, 0) + high - low
        return max(int(instance.size.max()), *load.values(), 0)

    def _left(self, placed: int, memory: int, offset: int, other: int, bits: int) -> int:
        """Return what a placed buffer leaves to another."""
        mask = (1 << self.height) - 1
        if (placed, other) in self.above:
            # We take what has one place to be in one memory, too.
            there = offset + self.above[placed, other]
            return bits & (1 << (memory * self.height + there)) if 0 <= there < self.height else 0
        taken = 0
        for distance in self.forbidden.get((placed, other), ()):
            if distance == 0 and (placed, other) in self.share:
                continue
            if 0 <= offset + distance < self.height:
                taken |= 1 << (offset + distance)
        return bits & ~((taken & mask) << (memory * self.height))

    def go(self, chosen: dict[int, tuple[int, int]], left: list[int]) -> None:
        """Place the buffer with the fewest places left, in every one of them."""
        value = self._value(chosen, left)
        if value >= self.found.value or self.found.value <= self.least:
            return
        n = self.instance.n
        open_ = [i for i in range(n) if i not in chosen]
        if not open_:
            self.found.value = value
            self.found.memory = [chosen[i][0] for i in range(n)]
            self.found.offsets = [chosen[i][1] for i in range(n)]
            return
        i = min(open_, key=lambda i: left[i].bit_count())
        bits = left[i]
        while bits:
            lowest = bits & -bits
            bits ^= lowest
            memory, offset = divmod(lowest.bit_length() - 1, self.height)
            rest = [
                self._left(i, memory, offset, j, left[j]) if j in open_ and j != i else 0
                for j in range(n)
            ]
            if all(rest[j] for j in open_ if j != i):
                self.go({**chosen, i: (memory, offset)}, rest)

    def _value(self, chosen: dict[int, tuple[int, int]], left: list[int]) -> int:
        """Return what the chosen places cost, and the places left to the others at least."""
        instance = self.instance
        tops = [offset + int(instance.size[i]) for i, (_, offset) in chosen.items()]
        match instance.objective:
            case Objective.MOVES:
                return sum(
                    int(instance.size[i])
                    for i in range(instance.n)
                    if instance.previous[i] != -1 and self._moves(i, chosen, left)
                )
            case Objective.SPILL:
                return sum(
                    int(instance.accesses[i]) * self._cost(i, chosen, left)
                    for i in range(instance.n)
                )
            case Objective.BANK_CONFLICTS:
                conflicts = self._bank_conflicts(chosen)
                return instance.conflict_weight * conflicts + max(tops, default=0)
            case Objective.PENALTIES:
                return self._penalties(chosen)
        if instance.memories:
            peaks: dict[int, int] = {}
            for top, (memory, _) in zip(tops, chosen.values(), strict=True):
                peaks[memory] = max(top, peaks.get(memory, 0))
            return sum(peaks.values())
        lowest = (
            (left[i] & -left[i]).bit_length() - 1 + int(instance.size[i])
            for i in range(instance.n)
            if i not in chosen
        )
        return max([*tops, *lowest])

    def _moves(self, i: int, chosen: dict[int, tuple[int, int]], left: list[int]) -> bool:
        previous = int(self.instance.previous[i])
        if i in chosen:
            return chosen[i][1] != previous
        return not left[i] >> previous & 1

    def _cost(self, i: int, chosen: dict[int, tuple[int, int]], left: list[int]) -> int:
        mask = (1 << self.height) - 1
        return min(
            memory.cost
            for k, memory in enumerate(self.instance.memories)
            if (chosen[i][0] == k if i in chosen else left[i] >> (k * self.height) & mask)
        )

    def _penalties(self, chosen: dict[int, tuple[int, int]]) -> int:
        priced, size = self.instance.penalties, self.instance.size.tolist()
        assert priced is not None
        cells = {
            i: {(memory, byte) for byte in range(at, at + size[i])}
            for i, (memory, at) in chosen.items()
        }
        return sum(
            cost
            for (i, j), cost in zip(priced.pairs.tolist(), priced.cost.tolist(), strict=True)
            if i in cells and j in cells and cells[i] & cells[j]
        )

    def _bank_conflicts(self, chosen: dict[int, tuple[int, int]]) -> int:
        banks = self.instance.banks
        assert banks is not None
        touched = {
            i: {byte // banks.nbytes for byte in range(at, at + int(self.instance.size[i]))}
            for i, (_, at) in chosen.items()
        }
        return sum(
            i in touched and j in touched and bool(touched[i] & touched[j])
            for i, j in banks.pairs.tolist()
        )


def dense(buffers: int, layers: int, kept: int) -> LmemPacking:
    """Return an instance of training with many buffers alive together."""
    instance = catalog.load(
        "packing/random/training", buffers=buffers, layers=layers, kept=kept, seed=0
    )
    assert isinstance(instance, LmemPacking)
    return instance
