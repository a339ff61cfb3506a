"""Relations between packings of buffers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.data import Allowed, Gap, View
from tests.packing_cases import FEATURES, random_packing, tight
from tests.relations.relation import NO_WORSE, SAME, Prediction, Relation, scaled

COLUMNS = ("size", "start", "end", "alignment", "fixed", "accesses", "previous", "hint")
OBJECTIVES = ("peak", "peak", "peak", "fit", "bank-conflicts", "moves", "spill")


def instance(seed: int) -> LmemPacking:
    """Return a few buffers with options; every fourth is structured."""
    draw = np.random.default_rng(seed)
    if seed % 4 == 3:
        return structured(draw)
    features = [name for name in FEATURES if draw.random() < 0.15]
    objective = str(draw.choice(OBJECTIVES))
    return random_packing(draw, features=features, objective=objective)


def structured(draw: np.random.Generator) -> LmemPacking:
    """Return what bounds and covers know best: cliques, stars, parts, the smallest gap."""
    shape = str(draw.choice(["parts", "star", "cliques", "equal", "tight"]))
    n = int(draw.integers(4, 9))
    size = draw.integers(1, 6, n)
    if shape == "tight":
        return tight()
    if shape == "equal":
        start = draw.integers(0, 6, n)
        return LmemPacking.from_arrays([3] * n, start, start + int(draw.integers(1, 5)))
    part = draw.integers(0, 3, n)
    pairs = [
        (i, j)
        for i in range(n)
        for j in range(i)
        if (j == 0 if shape == "star" else (part[i] != part[j]) == (shape == "parts") or j == 0)
    ]
    return LmemPacking.from_arrays(size, conflicts=np.array(pairs).reshape(-1, 2))


def plain(given: LmemPacking) -> bool:
    """Whether there are only sizes and lifetimes."""
    fields = ("gaps", "allowed", "reserved", "colocated", "in_place", "memories")
    if given.related:
        return False
    some = any(getattr(given, name) for name in fields)
    some |= any(getattr(given, name) is not None for name in ("period", "conflicts", "banks"))
    bound = given.capacity is not None or (given.alignment > 1).any() or (given.fixed >= 0).any()
    return not some and not bound and str(given.objective) == "peak"


def same_weight(given: LmemPacking, changed: LmemPacking, times: int = 1) -> LmemPacking | None:
    """Return a changed packing, unless conflicts count for more or less than before."""
    if str(given.objective) != "bank-conflicts":
        return changed
    return changed if changed.conflict_weight == times * given.conflict_weight else None


def larger(given: LmemPacking) -> LmemPacking | None:
    """Return a packing with more memory."""
    changes: dict[str, Any] = {}
    if given.capacity is not None:
        changes["capacity"] = 2 * given.capacity
    if given.memories:
        changes["memories"] = [
            replace(one, capacity=None if one.capacity is None else 2 * one.capacity)
            for one in given.memories
        ]
    return same_weight(given, given.replace(**changes))


def anywhere(given: LmemPacking) -> LmemPacking | None:
    free = given.replace(
        fixed=np.full(given.n, -1), allowed=(), reserved=(), alignment=np.ones(given.n, np.int64)
    )
    return same_weight(given, free)


def smaller(given: LmemPacking) -> LmemPacking | None:
    """Return a packing of smaller buffers."""
    if given.gaps or given.allowed or given.views or str(given.objective) == "moves":
        return None
    return same_weight(given, given.replace(size=np.maximum(0, given.size - 1)))


def shorter(given: LmemPacking) -> LmemPacking | None:
    """Return a packing of buffers that live shorter."""
    if given.gaps or given.conflicts is not None:
        return None
    end = np.maximum(given.start + 1, given.end - 1)
    return same_weight(given, given.replace(end=end))


def fewer_conflicts(given: LmemPacking) -> LmemPacking | None:
    if given.conflicts is None or not len(given.conflicts):
        return None
    return same_weight(given, given.replace(conflicts=given.conflicts[1:]))


def in_place(given: LmemPacking) -> LmemPacking | None:
    """Return a packing with another pair that may share its address."""
    pair = (0, given.n - 1)
    if given.n < 2 or given.views or {pair, pair[::-1]} & set(given.in_place):
        return None
    return same_weight(given, given.replace(in_place=(*given.in_place, pair)))


def freer(given: LmemPacking) -> LmemPacking | None:
    """Return a packing without separations, exclusive bytes and segments."""
    if not (given.apart or given.exclusive or given.segment):
        return None
    return same_weight(given, given.replace(apart=(), exclusive=(), segment=None))


def exempt(given: LmemPacking) -> LmemPacking | None:
    """Return a packing with other pairs that may overlap."""
    pairs = [(i, i + 2) for i in range(given.n - 2) if (i, i + 2) not in given.apart]
    if given.views or given.colocated:
        return None
    return same_weight(given, given.replace(exempt=(*given.exempt, *pairs)))


def without_last(given: LmemPacking) -> LmemPacking | None:
    """Return a packing without its last buffer."""
    if given.n < 2 or given.colocated or given.in_place or given.views:
        return None
    return same_weight(given, chosen(given, np.arange(given.n - 1)))


def shuffled(given: LmemPacking) -> LmemPacking:
    """Return a packing with its buffers in another order."""
    return chosen(given, np.random.default_rng(given.n).permutation(given.n))


def chosen(given: LmemPacking, order: Any) -> LmemPacking:
    """Return a packing of buffers with these numbers, in this order."""
    return given.select([int(at) for at in order], ids=None)


def reversed_(given: LmemPacking) -> LmemPacking | None:
    """Return a packing whose time runs backwards."""
    if given.conflicts is not None or given.period is not None:
        return None
    last = int(given.end.max())
    gaps = [replace(one, start=last - one.end, end=last - one.start) for one in given.gaps]
    return given.replace(start=last - given.end, end=last - given.start, gaps=gaps)


def slower(given: LmemPacking) -> LmemPacking | None:
    """Return a packing whose times are three times as long."""
    if given.conflicts is not None:
        return None
    gaps = [replace(one, start=3 * one.start, end=3 * one.end) for one in given.gaps]
    period = None if given.period is None else 3 * given.period
    return given.replace(start=3 * given.start, end=3 * given.end, gaps=gaps, period=period)


def rotated(given: LmemPacking) -> LmemPacking | None:
    """Return a packing in a circle that begins elsewhere."""
    if given.period is None or given.gaps:
        return None
    start = (given.start + 1) % given.period
    return given.replace(start=start, end=start + given.end - given.start)


def heavier(given: LmemPacking) -> LmemPacking | None:
    """Return a packing with five times as many bytes at addresses five times as high."""
    banks = given.banks
    changed = given.replace(
        size=5 * given.size,
        alignment=5 * given.alignment,
        fixed=_times(given.fixed),
        previous=_times(given.previous),
        hint=_times(given.hint),
        capacity=None if given.capacity is None else 5 * given.capacity,
        gaps=[replace(one, low=5 * one.low, high=5 * one.high) for one in given.gaps],
        allowed=[replace(one, low=5 * one.low, high=5 * one.high) for one in given.allowed],
        reserved=[(5 * low, 5 * high) for low, high in given.reserved],
        views=[replace(one, offset=5 * one.offset) for one in given.views],
        segment=None if given.segment is None else 5 * given.segment,
        banks=None
        if banks is None
        else replace(
            banks,
            nbytes=5 * banks.nbytes,
            weight=None if banks.weight is None else 5 * banks.weight,
        ),
        memories=[
            replace(one, capacity=None if one.capacity is None else 5 * one.capacity)
            for one in given.memories
        ],
    )
    return same_weight(given, changed, 5)


def _times(offsets: Any) -> Any:
    return np.where(offsets < 0, offsets, 5 * offsets)


def heavier_bytes(given: LmemPacking) -> LmemPacking | None:
    return None if str(given.objective) == "spill" else heavier(given)


def heavier_costs(given: LmemPacking) -> LmemPacking | None:
    return heavier(given) if str(given.objective) == "spill" else None


def again(given: LmemPacking) -> LmemPacking | None:
    """Return a packing followed by itself in time."""
    if given.conflicts is not None or given.period is not None or given.banks is not None:
        return None
    if given.exclusive:
        return None
    n, last = given.n, int(given.end.max() - given.start.min())
    columns = {name: np.tile(getattr(given, name), 2) for name in COLUMNS}
    columns["start"][n:] += last
    columns["end"][n:] += last
    return given.replace(
        **columns,
        ids=None,
        gaps=[
            *given.gaps,
            *(Gap(g.buffer + n, g.start + last, g.end + last, g.low, g.high) for g in given.gaps),
        ],
        allowed=[*given.allowed, *(Allowed(a.buffer + n, a.low, a.high) for a in given.allowed)],
        colocated=[*given.colocated, *([at + n for at in some] for some in given.colocated)],
        views=[*given.views, *(View(v.buffer + n, v.host + n, v.offset) for v in given.views)],
        **{
            name: [*getattr(given, name), *((a + n, b + n) for a, b in getattr(given, name))]
            for name in ("in_place", "apart", "exempt")
        },
    )


def again_peak(given: LmemPacking) -> LmemPacking | None:
    return again(given) if str(given.objective) in ("peak", "fit") else None


def again_sum(given: LmemPacking) -> LmemPacking | None:
    return again(given) if str(given.objective) in ("moves", "spill") else None


def beside(given: LmemPacking) -> LmemPacking | None:
    """Return a packing and itself at the same time."""
    return chosen_twice(given) if plain(given) else None


def chosen_twice(given: LmemPacking) -> LmemPacking:
    return given.replace(**{name: np.tile(getattr(given, name), 2) for name in COLUMNS}, ids=None)


def cut_in_two(given: LmemPacking) -> LmemPacking | None:
    """Return a packing whose largest buffer is two, which may lie apart."""
    at = int(given.size.argmax())
    if not plain(given) or given.size[at] < 2:
        return None
    return parted(given, at, size=(int(given.size[at]) // 2, -(-int(given.size[at]) // 2)))


def parted(given: LmemPacking, at: int, **columns: tuple[int, int]) -> LmemPacking:
    """Return a packing with two buffers for one, that differ in these columns."""
    found = {name: np.append(getattr(given, name), getattr(given, name)[at]) for name in COLUMNS}
    for name, (first, second) in columns.items():
        found[name][[at, given.n]] = first, second
    return given.replace(**found, ids=None)


def lived_in_two(given: LmemPacking) -> LmemPacking | None:
    """Return a packing whose longest buffer is two at one address, one after the other."""
    at = int((given.end - given.start).argmax())
    start, end = int(given.start[at]), int(given.end[at])
    if not plain(given) or end - start < 2:
        return None
    changed = parted(given, at, start=(start, start + 1), end=(start + 1, end))
    return changed.replace(colocated=[(at, given.n)])


RELATIONS = (
    Relation("more memory", larger, NO_WORSE),
    Relation("addresses anywhere", anywhere, NO_WORSE),
    Relation("smaller buffers", smaller, NO_WORSE),
    Relation("shorter lives", shorter, NO_WORSE),
    Relation("fewer conflicts", fewer_conflicts, NO_WORSE),
    Relation("another pair in place", in_place, NO_WORSE),
    Relation("freer", freer, NO_WORSE),
    Relation("other exempt pairs", exempt, NO_WORSE),
    Relation("a buffer fewer", without_last, NO_WORSE),
    Relation("shuffled", shuffled, SAME),
    Relation("reversed", reversed_, SAME),
    Relation("three times as slow", slower, SAME),
    Relation("rotated", rotated, SAME),
    Relation("five times the bytes", heavier_bytes, scaled(5)),
    Relation("five times the bytes to hold", heavier_costs, SAME),
    Relation("again", again_peak, SAME),
    Relation("again, added up", again_sum, scaled(2)),
    Relation("beside itself", beside, Prediction(2)),
    Relation("a buffer cut in two", cut_in_two, NO_WORSE),
    Relation("a life in two", lived_in_two, SAME),
)
