"""Random small packings for soaks: planted, tight, with an optimum above the load, every option.

The instance of a number never changes: :func:`case` draws the family, then the instance, from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stagepack.catalog.packing.evolved import CORES
from stagepack.catalog.packing.random import constant_load
from stagepack.heuristics.packing.exact_search import exact
from stagepack.instances.packing import (
    Allowed,
    Banks,
    Gap,
    LmemPacking,
    Memory,
    Objective,
    PackingSolution,
)
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.result import Status
from tests.packing_cases import FEATURES, random_packing

Random = np.random.Generator
Row = tuple[int, int, int]
"""Start, end, size."""
Piece = tuple[int, int, int, int]
"""[left, right) in time, [low, high) in addresses."""

LARGEST_EVOLVED = 14


@dataclass(frozen=True)
class Case:
    """An instance, and what is known about it without a search.

    Attributes
    ----------
    family : str
    instance : LmemPacking
    reachable : int, optional
        The objective value of a placement that was planted.
    optimum : int, optional
        The least value, where the way it was made tells.
    tiny : bool
        Whether trying everything takes little time.
    """

    family: str
    instance: LmemPacking
    reachable: int | None = None
    optimum: int | None = None
    tiny: bool = False


def case(number: int) -> Case:
    """Return the case of a number."""
    rng = np.random.default_rng([17, number])
    names, weights = zip(*WEIGHTS.items(), strict=True)
    family = str(rng.choice(names, p=np.array(weights) / sum(weights)))
    return FAMILIES[family](rng)


def as_python(instance: LmemPacking) -> str:
    """Return Python that rebuilds an instance; it needs ``from stagepack import *``."""
    given: dict[str, Any] = {"size": instance.size.tolist()}
    if instance.conflicts is not None:
        given["conflicts"] = [tuple(pair) for pair in instance.conflicts.tolist()]
    else:
        given |= {"start": instance.start.tolist(), "end": instance.end.tolist()}
    if instance.banks is not None:
        banks = instance.banks
        given["banks"] = Banks(banks.count, banks.nbytes, banks.pairs.tolist(), banks.weight)
    for name, default in (("alignment", 1), ("fixed", -1), ("previous", -1), ("hint", -1)):
        values = getattr(instance, name)
        if (values != default).any():
            given[name] = values.tolist()
    for name in ("period", "capacity", "gaps", "allowed", "reserved", "colocated", "in_place"):
        if getattr(instance, name):
            given[name] = getattr(instance, name)
    if instance.memories:
        given |= {"memories": instance.memories, "accesses": instance.accesses.tolist()}
    given["objective"] = str(instance.objective)
    return f"LmemPacking.from_arrays(**{given!r})"


# ---------------------------------------------------------------------- planted


def dissection(rng: Random, count: int, width: int, height: int, *, pinwheel: bool) -> list[Piece]:
    """Cut a rectangle into `count` pieces or a few fewer; pinwheels turn around a middle piece."""
    pieces: list[Piece] = [(0, width, 0, height)]
    for _ in range(4 * count):
        if len(pieces) >= count:
            break
        areas = np.array([(right - left) * (high - low) for left, right, low, high in pieces])
        at = int(rng.choice(len(pieces), p=areas / areas.sum()))
        left, right, low, high = pieces[at]
        if pinwheel and right - left > 2 and high - low > 2 and len(pieces) + 4 <= count:
            one, two = sorted((left + 1 + rng.permutation(right - left - 1)[:2]).tolist())
            bottom, top = sorted((low + 1 + rng.permutation(high - low - 1)[:2]).tolist())
            parts = [
                (left, two, low, bottom),
                (two, right, low, top),
                (one, right, top, high),
                (left, one, bottom, high),
                (one, two, bottom, top),
            ]
            if rng.random() < 0.5:  # the other way round
                parts = [(left + right - r, left + right - p, a, b) for p, r, a, b in parts]
        elif right - left > 1 and (rng.random() < 0.5 or high - low == 1):
            cut = int(rng.integers(left + 1, right))
            parts = [(left, cut, low, high), (cut, right, low, high)]
        elif high - low > 1:
            cut = int(rng.integers(low + 1, high))
            parts = [(left, right, low, cut), (left, right, cut, high)]
        else:
            continue
        pieces[at : at + 1] = parts
    return [pieces[i] for i in rng.permutation(len(pieces))]


def _planted(rng: Random, *, pinwheel: bool) -> Case:
    """Return pieces of a rectangle, with options that the planted placement respects."""
    objective = Objective(
        rng.choice(
            ["peak", "fit", "bank-conflicts", "moves", "spill"], p=[0.5, 0.3, 0.1, 0.06, 0.04]
        )
    )
    hard = objective not in (Objective.PEAK, Objective.FIT)
    count = int(rng.integers(4, 9 if hard else 15))
    width, height = int(rng.integers(3, 11)), int(rng.integers(6, 31))
    pieces = dissection(rng, count, width, height, pinwheel=pinwheel)
    options = {str(name) for name in rng.choice(PLANTED_OPTIONS, int(rng.integers(0, 4)))}
    given, offsets, peak, optimal = _decorated(rng, pieces, width, options)
    given |= {"objective": objective, "name": "pinwheel" if pinwheel else "planted"}
    n = len(offsets)
    memory = None
    if objective is Objective.FIT:
        given["capacity"] = peak
    if objective is Objective.BANK_CONFLICTS:
        nbytes = max(1, peak // int(rng.integers(2, 5)))
        pairs = [(i, j) for i in range(n) for j in range(i) if rng.random() < 0.3]
        given["banks"] = Banks(-(-peak // nbytes), nbytes, np.array(pairs).reshape(-1, 2), None)
        given["capacity"] = peak if rng.random() < 0.5 else None
    if objective is Objective.MOVES:
        elsewhere = rng.random(n) < 0.4
        given["previous"] = np.where(elsewhere, rng.integers(-1, peak, n), offsets)
        given["previous"][0] = offsets[0]
        given["capacity"] = peak
    if objective is Objective.SPILL:
        memory = np.zeros(n, dtype=np.int64)  # all fit into the near one
        given["memories"] = [Memory("near", peak, 1), Memory("far", None, int(rng.integers(2, 5)))]
        given["accesses"] = rng.integers(0, 9, n)
    instance = LmemPacking.from_arrays(**given)
    solution = PackingSolution.of(instance, offsets, memory)
    assert instance.check(solution) == (), (instance.check(solution), as_python(instance))
    value = int(instance.evaluate(solution))
    known = (objective is Objective.PEAK and optimal) or objective is Objective.SPILL
    return Case(given["name"], instance, reachable=value, optimum=value if known else None)


PLANTED_OPTIONS = (
    "scale",
    "alignment",
    "fixed",
    "allowed",
    "reserved",
    "gaps",
    "colocated",
    "in-place",
    "circular",
    "conflicts",
    "banks",
    "hint",
)


def _decorated(
    rng: Random, pieces: list[Piece], width: int, options: set[str]
) -> tuple[dict[str, Any], Any, int, bool]:
    """Return arguments of an instance, the planted offsets, their peak, and if it is optimal."""
    gaps: list[Gap] = []
    if "gaps" in options:
        pieces, gaps = _with_gaps(rng, pieces)
    start, end, offsets, top = np.array(pieces, dtype=np.int64).T
    size = top - offsets
    peak = int(top.max())
    optimal = True
    reserved: list[tuple[int, int]] = []
    if "reserved" in options and not gaps:
        # Where no piece is cut: all above make room.
        clean = [h for h in range(peak) if not ((offsets < h) & (h < top)).any()]
        at, room = int(rng.choice(clean)), int(rng.integers(1, 6))
        offsets = offsets + room * (offsets >= at)
        reserved = [(at, at + room), (peak + room + 3, peak + room + 5)]
        peak += room
    scale = int(rng.choice([2, 3, 32])) if "scale" in options else 1
    size, offsets, peak = size * scale, offsets * scale, peak * scale
    given: dict[str, Any] = {
        "size": size,
        "reserved": [(low * scale, high * scale) for low, high in reserved],
        "gaps": [Gap(g.buffer, g.start, g.end, g.low * scale, g.high * scale) for g in gaps],
    }
    n = len(size)
    if "conflicts" in options and not gaps:
        alive = (start[:, None] < end) & (start < end[:, None])
        given["conflicts"] = np.argwhere(np.triu(alive, 1))
    elif "circular" in options and not gaps:
        shift = int(rng.integers(width))
        turned = (start + shift) % width
        given |= {"period": width, "start": turned, "end": turned + end - start}
    else:
        shift = int(rng.integers(-3, 4))
        given |= {"start": start + shift, "end": end + shift}
        given["gaps"] = [
            Gap(g.buffer, g.start + shift, g.end + shift, g.low, g.high) for g in given["gaps"]
        ]
    if "alignment" in options:
        choices = [[a for a in (1, 2, 3, 4, 6, 8, 32) if at % a == 0] for at in offsets.tolist()]
        given["alignment"] = [int(rng.choice(fitting)) for fitting in choices]
    if "fixed" in options:
        given["fixed"] = np.where(rng.random(n) < 0.2, offsets, -1)
    if "allowed" in options:
        given["allowed"] = []
        for i in rng.permutation(n)[:3].tolist():
            low = max(0, int(offsets[i]) - int(rng.integers(0, 5)))
            high = int(offsets[i] + size[i]) + int(rng.integers(0, 5))
            given["allowed"].append(Allowed(i, low, high))
            if low > int(size[i]):
                given["allowed"].append(Allowed(i, 0, int(size[i])))
    if "colocated" in options and not gaps:
        level = int(rng.choice(offsets))
        same = np.flatnonzero(offsets == level)[:3].tolist()
        if len(same) > 1:
            given["colocated"] = [same]
    if "in-place" in options:
        optimal = False
        given["in_place"] = [tuple(rng.permutation(n)[:2].tolist()) for _ in range(2) if n > 1]
    if "banks" in options:
        nbytes = max(1, peak // int(rng.integers(1, 5)))
        given["banks"] = Banks(-(-peak // nbytes), nbytes, np.zeros((0, 2), dtype=np.int64), None)
    if "hint" in options:
        given["hint"] = offsets if rng.random() < 0.3 else rng.integers(-1, peak, n)
    return given, offsets, peak, optimal


def _with_gaps(rng: Random, pieces: list[Piece]) -> tuple[list[Piece], list[Gap]]:
    """Join pieces that follow one another in time to buffers of changing shape."""
    left = list(pieces)
    joined: list[tuple[Piece, list[Piece]]] = []
    for _ in range(int(rng.integers(1, 4))):
        follows = [
            (a, b) for a in left for b in left if a[1] <= b[0] and a[2] < b[3] and b[2] < a[3]
        ]
        if not follows:
            break
        first, second = follows[int(rng.integers(len(follows)))]
        left = [piece for piece in left if piece not in (first, second)]
        low, high = min(first[2], second[2]), max(first[3], second[3])
        joined.append(((first[0], second[1], low, high), [first, second]))
    gaps = []
    for number, ((_, _, low, _), (first, second)) in enumerate(joined):
        i = len(left) + number
        gaps.append(Gap(i, first[0], first[1], first[2] - low, first[3] - low))
        if first[1] < second[0]:
            gaps.append(Gap(i, first[1], second[0], 0, 0))
        gaps.append(Gap(i, second[0], second[1], second[2] - low, second[3] - low))
    return left + [whole for whole, _ in joined], gaps


# ---------------------------------------------------------------------- tight and above the load


def _tight(rng: Random) -> Case:
    """Return a dissection changed a little: hardly a byte to waste, feasible or not."""
    count, width = int(rng.integers(6, 13)), int(rng.integers(4, 10))
    height = int(rng.integers(6, 21))
    pieces = dissection(rng, count, width, height, pinwheel=rng.random() < 0.5)
    rows = [(left, right, high - low) for left, right, low, high in pieces]
    for _ in range(int(rng.integers(1, 5))):
        changed = compressed(_mutated(rng, rows))
        if changed and load(changed) <= height:
            rows = changed
    return Case("tight", _instance(rows, "tight"))


def evolve(rng: Random, steps: int = 12) -> list[Row]:
    """Return a small packing whose optimum exceeds its load.

    Most start from a known one, some look for one among packings of constant load; then sizes,
    lifetimes and the buffers themselves change, and what still exceeds its load goes on.
    """
    rows: list[Row] = []
    if rng.random() < 0.15:
        for _ in range(60):
            found = constant_load(int(rng.integers(8, 14)), int(rng.integers(2**31)))
            rows = compressed(_rows(found))
            for _ in range(20):
                if exceeds_load(rows):
                    break
                changed = compressed(_mutated(rng, rows))
                if changed and len(changed) <= LARGEST_EVOLVED:
                    rows = changed
            if exceeds_load(rows):
                break
        else:
            rows = []
    if not rows:
        small = [core for core in CORES if len(core.rows) <= LARGEST_EVOLVED]
        rows = list(small[int(rng.integers(len(small)))].rows)
    for _ in range(steps):
        changed = compressed(_mutated(rng, rows))
        if len(changed) <= LARGEST_EVOLVED and exceeds_load(changed):
            rows = changed
    return rows


def load(rows: list[Row]) -> int:
    """Return the highest sum of sizes at any time."""
    return max(
        (sum(size for start, end, size in rows if start <= now < end) for now, _, _ in rows),
        default=0,
    )


def exceeds_load(rows: list[Row]) -> bool:
    """Return whether the exact search says that the load is not enough."""
    if not rows:
        return False
    blocks = Blocks.of(_instance(rows, ""))
    found = exact.decide(blocks, load(rows), keep_going=lambda: True)
    return found.status is Status.INFEASIBLE


def compressed(rows: list[Row]) -> list[Row]:
    """Return the rows in time that only ticks when a buffer begins after another has ended."""
    moments = sorted({time for start, end, _ in rows for time in (start, end)})
    starts, ends = {row[0] for row in rows}, {row[1] for row in rows}
    tick, now, ended = {}, 0, False
    for moment in moments:
        if moment in ends:
            ended = True
        if moment in starts and ended:
            now, ended = now + 1, False
        tick[moment] = now
    last = {moment: tick[moment] + (moment not in starts) for moment in moments}
    return [(tick[start], max(tick[start] + 1, last[end]), size) for start, end, size in rows]


def _mutated(rng: Random, rows: list[Row]) -> list[Row]:
    rows = list(rows)
    for _ in range(int(rng.integers(1, 4))):
        if not rows:
            return rows
        i = int(rng.integers(len(rows)))
        start, end, size = rows[i]
        match int(rng.integers(7)):
            case 0:
                rows[i] = start, end, max(1, size + int(rng.choice([-1, 1])))
            case 1:
                rows[i] = start, max(start + 1, end + int(rng.choice([-1, 1]))), size
            case 2:
                rows[i] = min(end - 1, start + int(rng.choice([-1, 1]))), end, size
            case 3 if end - start > 1:
                cut = int(rng.integers(start + 1, end))
                rows[i : i + 1] = [(start, cut, size), (cut, end, size)]
            case 4 if size > 1:
                cut = int(rng.integers(1, size))
                rows[i : i + 1] = [(start, end, cut), (start, end, size - cut)]
            case 5:
                begin = int(rng.integers(start, end))
                length = int(rng.integers(1, 4))
                rows.insert(i, (begin, begin + length, int(rng.integers(1, size + 1))))
            case 6 if len(rows) > 6:
                del rows[i]
            case _:  # bytes go from one buffer to another
                j = int(rng.integers(len(rows)))
                if j != i and size > 1:
                    rows[i] = start, end, size - 1
                    rows[j] = rows[j][0], rows[j][1], rows[j][2] + 1
    return rows


def _evolved(rng: Random) -> Case:
    """Return an evolved packing in some disguise that leaves its optimum above its load."""
    rows = evolve(rng)
    start, end, size = np.array(rows, dtype=np.int64).T
    width = int(end.max())
    if rng.random() < 0.5:
        start, end = width - end, width - start
    scale = int(rng.choice([1, 1, 2, 7, 64]))
    size = size * scale
    given: dict[str, Any] = {"size": size, "name": "evolved"}
    disguise = rng.choice(["linear", "stretched", "circular", "conflicts", "aligned", "ground"])
    if disguise == "stretched":
        moments = np.concatenate([[0], np.cumsum(rng.integers(1, 9, width))]) - 5
        start, end = moments[start], moments[end]
    if disguise == "aligned":
        given["alignment"] = np.full(len(size), scale)
    if disguise == "ground":
        start, end = np.append(start, 0), np.append(end, width)
        given["size"] = np.append(size, scale * int(rng.integers(1, 5)))
    if disguise == "circular":
        shift = int(rng.integers(width))
        turned = (start + shift) % width
        given |= {"period": width, "start": turned, "end": turned + end - start}
    elif disguise == "conflicts":
        alive = (start[:, None] < end) & (start < end[:, None])
        given["conflicts"] = np.argwhere(np.triu(alive, 1))
    else:
        given |= {"start": start, "end": end}
    return Case("evolved", LmemPacking.from_arrays(**given))


def _rows(instance: LmemPacking) -> list[Row]:
    columns = (instance.start.tolist(), instance.end.tolist(), instance.size.tolist())
    return list(zip(*columns, strict=True))


def _instance(rows: list[Row], name: str) -> LmemPacking:
    start, end, size = np.array(rows, dtype=np.int64).T
    return LmemPacking.from_arrays(size, start, end, name=name)


# ---------------------------------------------------------------------- every option


DRAWN = {
    Objective.PEAK: 0.4,
    Objective.FIT: 0.25,
    Objective.BANK_CONFLICTS: 0.15,
    Objective.MOVES: 0.1,
    Objective.SPILL: 0.1,
}
"""How often each objective is drawn."""


def _options(rng: Random) -> Case:
    """Return a tiny packing with up to four options and any objective."""
    objective = rng.choice(list(DRAWN), p=list(DRAWN.values()))
    features = rng.choice(FEATURES[:10], int(rng.integers(0, 5)), replace=False).tolist()
    instance = random_packing(rng, features=features, objective=str(objective))
    return Case("options", instance, tiny=True)


FAMILIES: dict[str, Callable[[Random], Case]] = {
    "planted": lambda rng: _planted(rng, pinwheel=False),
    "pinwheel": lambda rng: _planted(rng, pinwheel=True),
    "tight": _tight,
    "evolved": _evolved,
    "options": _options,
}
WEIGHTS = {"planted": 15, "pinwheel": 15, "tight": 15, "evolved": 20, "options": 35}
"""How often each family comes."""
