"""The data of a memory map: rectangles over time, load, lines.

Buffers that share bytes in a solution (those with one place, in place of one another or exempt)
are counted once.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stagepack.errors import InputError
from stagepack.instances.arrays import distinct
from stagepack.instances.packing.relations import tied
from stagepack.instances.profile import Array
from stagepack.report.format import byte_step
from stagepack.report.style import AREAS, CAPACITY, INK, tint
from stagepack.result import Result

if TYPE_CHECKING:
    from stagepack.instances.packing import LmemPacking, PackingSolution

SCALES = ("auto", "time", "sections")
THIN = 1 / 600  # of the width: about a pixel
MANY_THIN = 0.1  # share of thin rectangles beyond which real time is not legible
MOST = 60_000  # rectangles of a map: the largest, where there are more
MOST_BANKS = 64  # up to so many banks are numbered
STEPS = 3000  # points of the load
PEAK = "#222222"
BOUND = "#2f6fb0"
CLASH = "#c1121f"
RESERVED = "#8a929c"
LOAD, LOAD_EDGE = "#b9c7d8", "#5b7390"


@dataclass(frozen=True, eq=False)
class Rectangles:
    """What buffers hold, whatever their offsets."""

    buffer: Array  # int64, shape (r,): whose they are
    # `start`, `end`: int64, shape (r,): times, within one period; numbers of cliques where a graph
    # replaces time.
    start: Array
    end: Array
    # `low`, `high`: int64, shape (r,): bytes above the offset.
    low: Array
    high: Array

    def __len__(self) -> int:
        return len(self.buffer)

    def __getitem__(self, chosen: Array) -> Rectangles:
        return Rectangles(*(column[chosen] for column in vars(self).values()))

    @property
    def areas(self) -> Array:
        """Bytes times time of each, shape (r,), as floats."""
        return np.asarray((self.end - self.start) * (self.high - self.low).astype(float))


def colours() -> list[str]:
    """Return the colours that buffers take in turn: those of areas in three tints."""
    return [tint(colour, share) for share in (0.0, 0.4, 0.2) for colour in AREAS]


def rectangles(instance: LmemPacking) -> Rectangles:
    """Return what the buffers hold: one rectangle each, more with gaps or circular lifetimes."""
    found = _cliques(instance) if instance.conflicts is not None else _lifetimes(instance)
    if not instance.views:
        return found
    # What comes later is drawn above: a view is no larger than its host.
    return found[np.argsort(-instance.size[found.buffer], kind="stable")]


def _lifetimes(instance: LmemPacking) -> Rectangles:
    """Return what buffers with lifetimes hold."""
    zero = np.zeros(instance.n, dtype=np.int64)
    found = Rectangles(np.arange(instance.n), instance.start, instance.end, zero, instance.size)
    if instance.gaps:
        found = _with_gaps(instance, found)
    return found if instance.period is None else _wrapped(found, instance.period)


def _with_gaps(instance: LmemPacking, whole: Rectangles) -> Rectangles:
    """Cut rectangles where their buffers pause."""
    gaps: dict[int, list[tuple[int, int, int, int]]] = {}
    for gap in instance.gaps:
        gaps.setdefault(gap.buffer, []).append((gap.start, gap.end, gap.low, gap.high))
    rows = []
    for buffer, windows in gaps.items():
        now, nbytes = int(instance.start[buffer]), int(instance.size[buffer])
        for start, end, low, high in sorted(windows):
            rows += [(buffer, now, start, 0, nbytes), (buffer, start, end, low, high)]
            now = end
        rows.append((buffer, now, int(instance.end[buffer]), 0, nbytes))
    rows = [row for row in rows if row[1] < row[2] and row[3] < row[4]]
    parts = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    rest = whole[np.setdiff1d(whole.buffer, list(gaps))]
    columns = zip(vars(rest).values(), parts, strict=True)
    return Rectangles(*(np.concatenate(pair) for pair in columns))


def _wrapped(given: Rectangles, period: int) -> Rectangles:
    """Cut circular lifetimes where the period begins anew."""
    turn = np.where(given.start >= period, period, 0)  # pieces that lie in the next turn
    start, end = given.start - turn, given.end - turn
    over = end > period
    return Rectangles(
        np.concatenate([given.buffer, given.buffer[over]]),
        np.concatenate([start, np.zeros(int(over.sum()), dtype=np.int64)]),
        np.concatenate([np.minimum(end, period), end[over] - period]),
        np.concatenate([given.low, given.low[over]]),
        np.concatenate([given.high, given.high[over]]),
    )


def _cliques(instance: LmemPacking) -> Rectangles:
    """Return a conflict graph as rectangles over cliques that cover all conflicts."""
    from stagepack.instances.packing.normal_form.blocks import Blocks

    blocks = Blocks.of(instance)
    count = np.diff(blocks.piece_ptr)[blocks.block]
    buffer = np.repeat(np.arange(instance.n), count)
    step = np.arange(len(buffer)) - np.repeat(np.cumsum(count) - count, count)
    piece = blocks.piece_ptr[blocks.block[buffer]] + step
    first, end = blocks.first[piece], blocks.end[piece]
    # Cliques that follow one another make one rectangle.
    begins = np.append(True, (buffer[1:] != buffer[:-1]) | (first[1:] != end[:-1]))
    ends = np.append(begins[1:], True)
    buffer, zero = buffer[begins], np.zeros(int(begins.sum()), dtype=np.int64)
    return Rectangles(buffer, first[begins], end[ends], zero, instance.size[buffer])


def load(instance: LmemPacking, given: Rectangles, offsets: Array | None) -> tuple[Array, Array]:
    """Return bytes in use of an `instance`, its rectangles `given`, as steps: from times[i] on,
    load[i] bytes, until times[i + 1].

    Bytes that buffers share at equal `offsets` count once.  Without offsets pairs in place, which
    share only at equal ones, and exempt ones count twice.
    """
    groups = [list(group) for group in instance.colocated]
    groups += [[view.buffer, view.host] for view in instance.views]
    low = tied(instance)[1] if offsets is None else offsets
    if offsets is not None:
        groups += [[i, j] for i, j in instance.in_place if offsets[i] == offsets[j]]
        top = offsets + instance.size
        groups += [[i, j] for i, j in instance.exempt if max(low[i], low[j]) < min(top[i], top[j])]
    start, end, held = given.start, given.end, given.high - given.low
    if groups:
        members = _joined(groups)
        inside = np.isin(given.buffer, [i for group in members for i in group])
        above = low[given.buffer]
        placed = replace(given, low=given.low + above, high=given.high + above)
        merged = [row for group in members for row in _union(placed, group)]
        rows = np.array(merged, dtype=np.int64).reshape(-1, 3).T
        start, end, held = (
            np.concatenate([column[~inside], row])
            for column, row in zip((start, end, held), rows, strict=True)
        )
    times, place = np.unique(np.concatenate([start, end]), return_inverse=True)
    steps = np.zeros(len(times), dtype=np.int64)
    np.add.at(steps, place, np.concatenate([held, -held]))
    return times, np.cumsum(steps)


def _joined(groups: list[list[int]]) -> list[list[int]]:
    """Return groups without overlap: those that share a member are one."""
    found: list[set[int]] = []
    for group in groups:
        touching = [known for known in found if known & set(group)]
        found = [known for known in found if known not in touching]
        found.append(set(group).union(*touching))
    return [sorted(group) for group in found]


def _union(given: Rectangles, group: list[int]) -> list[tuple[int, int, int]]:
    """Return [start, end) and the bytes, of those at these addresses, that a group holds."""
    parts = given[np.isin(given.buffer, group)]
    moments = distinct(np.concatenate([parts.start, parts.end])).tolist()
    found = []
    for start, end in itertools.pairwise(moments):
        alive = parts[(parts.start <= start) & (end <= parts.end)]
        held, top = 0, 0
        for low, high in sorted(zip(alive.low.tolist(), alive.high.tolist(), strict=True)):
            held += max(0, high - max(low, top))
            top = max(top, high)
        found.append((start, end, held))
    return found


def wasted(instance: LmemPacking, solution: PackingSolution) -> int:
    """Return how much of the peak is unused while it is reached: peak - most bytes in use then."""
    given = rectangles(instance)
    tops = solution.offsets[given.buffer] + given.high
    peak = int(tops.max())
    times, in_use = load(instance, given, solution.offsets)
    least = peak
    for at in np.flatnonzero(tops == peak)[:1000]:
        first, last = np.searchsorted(times, (given.start[at], given.end[at]))
        least = min(least, peak - int(in_use[first:last].max()))
    return least


def moments(given: Rectangles) -> Array:
    """Return one moment of each section: of each maximal set of rectangles alive together."""
    starts = distinct(given.start)
    ended = np.searchsorted(np.sort(given.end), starts, side="right")
    last = np.append(ended[1:] > ended[:-1], True)
    found: Array = starts[last]
    return found


class Line(NamedTuple):
    """A line across the map: what it says, its address, colour and dashes."""

    name: str
    address: int
    colour: str
    dash: str


@dataclass(frozen=True, eq=False, kw_only=True)
class MemoryMap:
    """Everything on the map of one solution."""

    # What is drawn, the largest of them where there are too many; offsets not added.
    shown: Rectangles
    # `left`, `right`: float64, shape (r,): where they lie on the axis of time.
    left: Array
    right: Array
    # `low`, `high`: int64, shape (r,): and on the axis of addresses.
    low: Array
    high: Array
    hidden: int  # rectangles left out
    span: tuple[float, float]  # ends of the axis of time
    # `places`, `load`: ndarray: the load as steps over that axis.
    places: Array
    load: Array
    axis: str  # title of the axis of time
    scale: str
    # Where each memory begins on the axis of addresses, its name and capacity; they stand one above
    # the other.
    bases: tuple[tuple[int, str, int | None], ...]
    top: int  # end of the axis of addresses
    peak: int  # the highest address in use
    bound: int | None  # the largest load, if no buffers may share bytes: no peak is below it
    # `fixed`, `clashing`: bool, shape (n,): buffers that are fixed, and those that share a bank
    # with one they should not.
    fixed: Array
    clashing: Array

    @property
    def few(self) -> str:
        """A word about the rectangles that are left out."""
        return f" (the {len(self.shown):,} largest rectangles)" if self.hidden else ""

    def lines(self) -> list[Line]:
        """Return the lines across the map: capacities, where memories begin, peak and bound."""
        found = []
        for base, name, capacity in self.bases:
            of = f"capacity of {name}" if name else "capacity"
            if capacity is not None:
                found.append(Line(f"{of} {capacity:,}", base + capacity, CAPACITY, "solid"))
            if base:
                found.append(Line(f"{name} begins", base, INK, "solid"))
        if len(self.bases) == 1:
            found.append(Line(f"peak {self.peak:,}", self.peak, PEAK, "dash"))
        if self.bound is not None:
            found.append(Line(f"load bound {self.bound:,}", self.bound, BOUND, "dot"))
        return found

    def reserved(self, instance: LmemPacking) -> list[tuple[int, int]]:
        """Return the ranges of the axis of addresses that no buffer may use."""
        found = []
        ends = [*(base for base, _, _ in self.bases[1:]), 2**62]
        own = [memory.reserved for memory in instance.memories] or [()]
        for (base, _, _), end, ranges in zip(self.bases, ends, own, strict=True):
            for low, high in (*instance.reserved, *ranges):
                if base + low < end:
                    found.append((base + low, min(base + high, end)))
        return found

    def ticks(self) -> list[tuple[int, int]]:
        """Return places on the axis of addresses, and the address in its memory at each."""
        step = byte_step(self.top)
        ends = [base for base, _, _ in self.bases[1:]] + [self.top]
        return [
            (at, at - base)
            for (base, _, _), end in zip(self.bases, ends, strict=True)
            for at in range(base, end, step)
        ]

    def banks(self, instance: LmemPacking) -> list[tuple[float, str]]:
        """Return the middles of banks that are numbered, and their names."""
        if instance.banks is None:
            return []
        nbytes = instance.banks.nbytes
        count = min(instance.banks.count, -(-self.top // nbytes))
        if count > MOST_BANKS:
            return []
        middles = [(bank, (bank + 0.5) * nbytes) for bank in range(0, count, -(-count // 16))]
        return [(middle, f"bank {bank}") for bank, middle in middles if middle <= self.top]


def memory_map_of(
    instance: LmemPacking, solution: PackingSolution | Result[PackingSolution], scale: str = "auto"
) -> MemoryMap:
    """Return what is on the map of one solution.

    Of the `scale` of time, "time" is real, every section is equally wide in "sections", and "auto"
    is what is more legible.
    """
    found = instance.solution_in(solution)
    if scale not in SCALES:
        raise InputError(
            f"unknown scale {scale!r}", field="scale", remedy="choose " + " or ".join(SCALES)
        )
    given = rectangles(instance)
    times, in_use = load(instance, given, found.offsets)
    cuts = moments(given)
    ends = (int(given.start.min()), int(given.end.max()))
    if instance.period is not None:
        ends = (0, instance.period)
    sections = scale == "sections" or (scale == "auto" and _too_thin(given, cuts, ends))
    shown, hidden = given, max(0, len(given) - MOST)
    if hidden:
        shown = given[np.sort(np.argsort(given.areas)[hidden:])]
    bases, top = _bases(instance, found)
    shift = np.array([base for base, _, _ in bases])
    base = 0 if found.memory is None else shift[found.memory[shown.buffer]]
    offset = found.offsets[shown.buffer] + base
    if sections:
        left, right = (np.searchsorted(cuts, edge) for edge in (shown.start, shown.end))
        places, in_use = np.arange(len(cuts)), in_use[np.searchsorted(times, cuts, "right") - 1]
        span = (0.0, float(len(cuts)))
    else:
        left, right, places = shown.start, shown.end, times
        span = (float(ends[0]), float(ends[1]))
    return MemoryMap(
        shown=shown,
        left=left.astype(float),
        right=right.astype(float),
        low=offset + shown.low,
        high=offset + shown.high,
        hidden=hidden,
        span=span,
        places=np.append(places, span[1]).astype(float),
        load=np.append(in_use, in_use[-1] if sections else 0),
        axis=_axis(instance, sections),
        scale="sections" if sections else "time",
        bases=bases,
        top=top,
        peak=int((found.offsets + instance.size).max()),
        bound=None if instance.in_place or instance.exempt or len(bases) > 1 else int(in_use.max()),
        fixed=instance.fixed >= 0,
        clashing=_clashing(instance, found),
    )


def _too_thin(given: Rectangles, cuts: Array, ends: tuple[int, int]) -> bool:
    """Tell whether real time shows more rectangles thinner than a pixel than sections do."""
    real = (given.end - given.start) / (ends[1] - ends[0]) < THIN
    even = np.searchsorted(cuts, given.end) - np.searchsorted(cuts, given.start)
    return bool(real.mean() > max(MANY_THIN, 1.2 * (even / len(cuts) < THIN).mean()))


def _axis(instance: LmemPacking, sections: bool) -> str:
    """Return the name of the axis of time."""
    if instance.conflicts is not None:
        return "Cliques of the conflict graph"
    if sections:
        return "Time, compressed to sections (one for each maximal set of buffers alive together)"
    return "Time" + ("" if instance.period is None else f", modulo {instance.period:,}")


def _bases(
    instance: LmemPacking, solution: PackingSolution
) -> tuple[tuple[tuple[int, str, int | None], ...], int]:
    """Return where each memory begins on the axis of addresses, and where the axis ends."""
    from stagepack.instances.packing import measure

    found = measure(instance, solution)
    if not instance.memories or solution.memory is None:
        end = instance.banks.count * instance.banks.nbytes if instance.banks is not None else 0
        return ((0, "", instance.capacity),), _room(found.peak, instance.capacity, end)
    bases, base = [], 0
    for memory, peak in zip(instance.memories, found.peaks, strict=True):
        bases.append((base, memory.name, memory.capacity))
        base += _room(peak, memory.capacity)
    return tuple(bases), base


def _room(peak: int, *ends: int | None) -> int:
    """Return the height to draw, some: the peak, and the ends that are not far above it."""
    near = [end for end in ends if end and end <= 2.2 * peak]
    return max([1, peak, *near])


def _clashing(instance: LmemPacking, solution: PackingSolution) -> Array:
    """Return which buffers share a bank with one that they should not, shape (n,)."""
    found = np.zeros(instance.n, dtype=bool)
    found[clashes(instance, solution).ravel()] = True
    return found


def clashes(instance: LmemPacking, solution: PackingSolution) -> Array:
    """Return the pairs of buffers in conflict over a bank, shape (pairs, 2)."""
    if instance.banks is None:
        return np.zeros((0, 2), dtype=np.int64)
    low = solution.offsets // instance.banks.nbytes
    high = (solution.offsets + instance.size - 1) // instance.banks.nbytes
    i, j = instance.bank_pairs.T
    pairs: Array = instance.bank_pairs[(low[i] <= high[j]) & (low[j] <= high[i])]
    return pairs


def thinned(places: Array, values: Array, most: int) -> tuple[Array, Array]:
    """Return steps of about `most` points: of many, the least and greatest of each run.

    From `places` [i] on, `values` [i]; as they are, where they are no more.
    """
    if len(places) <= most:
        return places, values
    even = np.linspace(places[0], places[-1], most // 2)
    cuts = np.unique(np.searchsorted(places, even))[:-1]
    ends = np.append(places[cuts[1:]], places[-1])
    middle = (places[cuts] + ends) / 2
    least, greatest = np.minimum.reduceat(values, cuts), np.maximum.reduceat(values, cuts)
    line = np.append(np.column_stack([greatest, least]).ravel(), values[-1])
    return np.append(np.column_stack([places[cuts], middle]).ravel(), places[-1]), line
