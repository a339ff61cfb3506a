"""Proofs of layer groups: why no grouping is shorter, or none fits.

``potentials``: a number for each boundary between operators, null where none can be.  The claim is
shown if no group [a, b) is shorter than what they rise from a to b: cycles of groups add up, so all
groups together take what they rise in all.  For each last operator the groups are grown operator by
operator to the front, in all cuts.  What a group takes is summed row by row as
:class:`.replay.Replay` defines it, with the ranges of the first, the second and the last slice of
each axis in place of all.  They begin and end in the order of the slices: so all slices hold the
same if the first and the last do, and the longest of the three is no longer than the longest of
all; and nothing takes less time, or room, for more rows.  Nor do bytes that are alive in a row
become fewer as the group grows, but for what is loaded once for all slices.  Where this does not
suffice the group is replayed as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any, NamedTuple

from stagepack.evidence import Proof
from stagepack.instances.groups.check import cut_wrongly
from stagepack.instances.groups.chip import exact
from stagepack.instances.groups.data import GroupingData
from stagepack.instances.groups.execution.replay import Replay, played_alone
from stagepack.instances.groups.operators import Shape, buffer_bytes, compute_cycles
from stagepack.instances.groups.solution import GroupingSolution
from stagepack.instances.groups.taps import held_along
from stagepack.verify.rules import Claimed, Rules, UnprovedError

Counts = tuple[int, ...]
"""Into how many ranges N, C, H and W are cut."""


def potentials(instance: GroupingData, evidence: Mapping[str, Any], claimed: Claimed) -> None:
    """Show that no group is shorter than potentials rise along it."""
    if instance.timesteps != "nearest" or not (instance.order == "given" or instance.linear):
        raise UnprovedError("groups may be of other operators, or rows")
    given, n = evidence["potentials"], instance.n
    if len(given) != n + 1 or not all(p is None or type(p) is int for p in given):
        raise UnprovedError(f"there are no {n + 1} potentials")
    if given[0] is None or not (
        given[n] is None or (claimed.bound is not None and given[n] - given[0] >= claimed.bound)
    ):
        raise UnprovedError("the potentials do not rise by as much")
    prices = _Prices(instance)
    for b in range(1, n + 1):
        rises = [
            -math.inf if p is None else math.inf if given[b] is None else given[b] - p
            for p in given[:b]
        ]
        if instance.stands(b - 1) and played_alone(instance, b - 1) < rises[b - 1]:
            raise UnprovedError(f"operator {b - 1} is shorter by itself")
        for a, counts in _Growth(prices, b - 1, claimed).shorter(rises):
            _replay(instance, range(a, b), counts, rises[a])


def _replay(instance: GroupingData, members: range, counts: Counts, least: float) -> None:
    """Show that a group in a cut takes so many cycles, or does not fit."""
    plan = GroupingSolution((members.start, members.stop), (counts,))
    played = Replay(instance, plan, 0)
    if played.cycles >= least:
        return
    alive = [0] * (3 * played.rows)
    for place in played.places:
        for row in range(place.start, place.start + place.rows):
            alive[row % (played.period or len(alive))] += place.nbytes
    for _, over in played.overwritten:  # of two of equal size, in the row in which both are alive
        alive[played.places[over].start] -= played.places[over].nbytes
    if max(alive) <= instance.chip.memory and not any(cut_wrongly(played)):
        raise UnprovedError(f"operators {members} may take {played.cycles:,} cycles in {counts}")


class _Track:
    """What the first, second and last slice hold along an axis that is cut into so many parts.

    Attributes
    ----------
    longest : dict of int to int
        By tensor.
    alike : dict of int to bool
    """

    def __init__(self, instance: GroupingData, axis: int, parts: int) -> None:
        self.instance, self.axis, self.parts = instance, axis, parts
        self.slices = sorted({0, min(1, parts - 1), parts - 1})
        self.longest: dict[int, int] = {}
        self.alike: dict[int, bool] = {}
        self._held: dict[int, list[tuple[int, int]]] = {}

    def add(self, at: int, leaves: bool) -> None:
        """Add an operator before the others."""
        instance, axis = self.instance, self.axis
        if leaves:
            size, longer = divmod(instance.tensors[at].shape[axis], self.parts)
            begins = [size * s + min(s, longer) for s in self.slices]
            ends = [a + size + (s < longer) for a, s in zip(begins, self.slices, strict=True)]
            self._ask(at, list(zip(begins, ends, strict=True)))
        operator, sources, own = instance.operators[at], instance.sources(at), self._held[at]
        for which, tensor in enumerate(instance.reads[at]):
            held = [held_along(operator, which, axis, part, sources) for part in own]
            self._ask(tensor, held)

    def _ask(self, tensor: int, held: list[tuple[int, int]]) -> None:
        known = self._held.get(tensor)
        if known is not None:
            held = [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(known, held, strict=True)]
        self._held[tensor] = held
        self.longest[tensor] = max(end - first for first, end in held)
        self.alike[tensor] = held[0] == held[-1]


class _Prices:
    """What parts of tensors cost, each reckoned once."""

    def __init__(self, instance: GroupingData) -> None:
        self.instance, self.chip = instance, instance.chip
        self.made, self.loaded = cache(self._made), cache(self._loaded)
        self.weights, self.stored = cache(self._weights), cache(self._stored)

    def _made(self, at: int, part: Shape) -> tuple[int, int, int]:
        """Return cycles, bytes, and working bytes of a part that an operator makes."""
        operator, chip = self.instance.operators[at], self.chip
        cycles = compute_cycles(operator, self.instance.sources(at), part, chip)
        working = buffer_bytes(operator, part, chip) if operator.buffer else 0
        return cycles, chip.lane_bytes(part, operator.dtype_bytes), working

    def _loaded(self, tensor: int, part: Shape) -> tuple[int, int]:
        """Return cycles and bytes of a part that is loaded."""
        wide = self.instance.tensors[tensor].dtype_bytes
        return self.chip.load_cycles(math.prod(part) * wide), self.chip.lane_bytes(part, wide)

    def _weights(self, at: int, channels: int) -> tuple[int, int]:
        """Return cycles and bytes of the weights for some of the channels."""
        operator, cycles, nbytes = self.instance.operators[at], 0, 0
        for weight in operator.weights:
            share = -(-weight.channels * channels // operator.full[1])
            cycles += self.chip.load_cycles(weight.nbytes(share))
            nbytes += weight.local(self.chip, share)
        return cycles, nbytes

    def _stored(self, at: int, parts: tuple[int, ...]) -> int:
        """Return the cycles in which what an operator makes is stored; -1: it is too small."""
        known = self.instance.tensors[at]
        sizes = list(zip(known.shape, parts, strict=True))
        if any(size < count for size, count in sizes):
            return -1
        values = math.prod(-(-size // count) for size, count in sizes)
        return self.chip.store_cycles(values * known.dtype_bytes)


class _Step(NamedTuple):
    """An operator by which a group grows, whatever the cut.

    Attributes
    ----------
    at : int
    leaves : bool
        Whether what it writes is stored.
    reader : int or None
        The first of the others that reads it.
    inputs : list of (int, int or None)
        What it reads, and the first of the others that does.
    """

    at: int
    leaves: bool
    reader: int | None
    inputs: list[tuple[int, int | None]]


class _Growth:
    """Groups that end with an operator, grown to the front in all cuts at once."""

    def __init__(self, prices: _Prices, last: int, claimed: Claimed) -> None:
        self.prices, self.last, self.claimed = prices, last, claimed
        self._tracks: dict[tuple[int, int], _Track] = {}

    def shorter(self, rises: list[float]) -> Iterator[tuple[int, Counts]]:
        """Yield groups, by their first operators, and cuts that may be too short."""
        instance, last, readers = self.prices.instance, self.last, dict[int, int]()
        growing = [self._cut(counts) for counts in _cuts(instance, last)]
        for a in range(last, max(-1, last - instance.max_group), -1):
            if instance.alone(a):
                return
            users = instance.tensors[a].readers
            leaves = a in instance.kept or not users or users[-1] > last
            reads = dict.fromkeys(instance.reads[a])
            step = _Step(a, leaves, readers.get(a), [(t, readers.get(t)) for t in reads])
            readers |= dict.fromkeys(reads, a)
            for track in self._tracks.values():
                track.add(a, leaves)
            growing = [cut for cut in growing if cut.grow(step)]
            for cut in growing:
                self.claimed.step(0)
                if cut.fits and cut.cycles() < rises[a]:
                    yield a, cut.counts

    def _cut(self, counts: Counts) -> _Cut:
        n, c, h, w = counts
        keys = enumerate((n, c, 1, h, w))
        tracks = [self._tracks.setdefault(k, _Track(self.prices.instance, *k)) for k in keys]
        return _Cut(self.prices, self.last, counts, tracks)


def _cuts(instance: GroupingData, last: int) -> Iterator[Counts]:
    """Yield all ways to cut a group by the shape of what its last operator writes."""
    most = instance.max_slices
    n, c, _, h, w = instance.tensors[last].shape
    if instance.slicing == "n-then-h":
        yield from ((parts, 1, 1, 1) for parts in range(1, min(n, most) + 1))
        yield from ((n, 1, parts, 1) for parts in range(2, min(h, most // n) + 1))
        return
    for counts in product(*(range(1, min(size, most) + 1) for size in (n, c, h, w))):
        if math.prod(counts) <= most:
            yield counts


class _Cut:
    """A group in a cut; lists tell of its operators, or the rows in which they compute, from last.

    Attributes
    ----------
    counts : tuple of int
    fits : bool
        Whether what is known to be alive fits.
    """

    def __init__(self, prices: _Prices, last: int, counts: Counts, tracks: list[_Track]) -> None:
        self._prices, self._last, self.counts, self._tracks = prices, last, counts, tracks
        self._parts = tuple(track.parts for track in tracks)
        slices = math.prod(counts)
        self._many, self._turns = slices > 1, -(-slices // prices.chip.cores)
        self._hidden, self._whole = exact(prices.chip.overlap).as_integer_ratio()
        # Cycles of compute in a row; of what moves beside it with each slice; with the first only.
        self._compute, self._each, self._once = list[int](), list[int](), list[int]()
        self._rows, self._total, self._stored = list[int](), 0, 0
        # What is loaded for an operator: so, and its bytes; of a tensor: what of these is its own.
        self._loads, self._firsts, self._comes = list[int](), list[int](), list[int]()
        self._moves: dict[int, tuple[int, int, int]] = {}
        # Bytes alive in a row; the most of them; those of weights and inputs for all slices.
        self._alive, self._peak = list[int](), 0
        self._weights, self._inputs = 0, dict[int, int]()
        self.fits = True

    def grow(self, step: _Step) -> bool:
        """Add an operator before the others; return False where no larger group fits."""
        at, row, prices = step.at, len(self._compute), self._prices
        store = prices.stored(at, self._parts) if step.leaves else 0
        if store < 0:
            return False
        for tensor, reader in [(at, step.reader), *step.inputs]:
            if reader is not None:
                self._unload(tensor, self._last - reader)
        part = self._part(at)
        compute, own, working = prices.made(at, part)
        self._compute.append(compute)
        self._each.append(self._loads[-1] if row else 0)
        self._once.append(self._firsts[-1] if row else 0)
        self._rows.append(0)
        over = 0 if prices.instance.overwrites(at) else own
        self._alive.append(working + over + (self._comes[-1] if row else 0))
        self._load_weights(at, part[1])
        for tensor, reader in step.inputs:
            self._load(tensor, row, reader)
        self._live(row, row + 1, self._comes[row])
        if self._inputs.pop(at, None) is None and (step.reader is not None or store):
            # Between its row and where it was loaded, or stored if nobody reads it.
            begin = row - 1 if step.reader is None else self._last - step.reader + 2
            self._live(max(begin, 0), row, own)
        if row and store:
            self._each[row - 1] += store
            self._price(row - 1)
        self._stored = self._stored if row else store
        self._price(row)
        held = self._weights + sum(self._inputs.values())
        self.fits = self._peak + held <= prices.chip.memory
        return self._peak + self._weights <= prices.chip.memory

    def _part(self, tensor: int) -> Shape:
        """Return the longest range of a tensor on every axis."""
        n, c, d, h, w = (track.longest[tensor] for track in self._tracks)
        return n, c, d, h, w

    def _unload(self, tensor: int, reader: int) -> None:
        """Take back that a tensor is loaded for an operator."""
        each, once, nbytes = self._moves.pop(tensor)
        self._loads[reader] -= each
        self._firsts[reader] -= once
        self._comes[reader] -= nbytes
        if reader + 1 < len(self._rows):
            self._each[reader + 1] -= each
            self._once[reader + 1] -= once
            self._price(reader + 1)

    def _load_weights(self, at: int, channels: int) -> None:
        """Load the weights of a new operator."""
        cycles, nbytes = self._prices.weights(at, channels)
        once = self._many and self._tracks[1].alike[at]
        shared = once and self._turns > 1
        self._weights += nbytes if shared else 0
        self._loads.append(0 if once else cycles)
        self._firsts.append(cycles if once else 0)
        self._comes.append(0 if shared else nbytes)

    def _load(self, tensor: int, row: int, reader: int | None) -> None:
        """Load a tensor for a new operator; some of the others may read it, too."""
        cycles, nbytes = self._prices.loaded(tensor, self._part(tensor))
        once = self._many and all(track.alike[tensor] for track in self._tracks)
        fresh = reader is None or tensor in self._inputs
        if once and self._turns > 1 and fresh:
            self._inputs[tensor], nbytes = nbytes, 0
        elif self._inputs.pop(tensor, None) is None and reader is not None:
            self._live(self._last - reader + 2, row, nbytes)
        each = 0 if once else cycles
        self._moves[tensor] = each, cycles - each, nbytes
        self._loads[row] += each
        self._firsts[row] += cycles - each
        self._comes[row] += nbytes

    def _live(self, begin: int, end: int, nbytes: int) -> None:
        """Take it that so many bytes more are alive in some rows."""
        for row in range(begin, end):
            self._alive[row] += nbytes
            self._peak = max(self._peak, self._alive[row])

    def _beside(self, compute: int, moved: int) -> int:
        less = min(compute, moved)
        return max(compute, moved) + less - self._hidden * less // self._whole

    def _row(self, row: int, loads: int = 0, stores: int = 0) -> int:
        """Return the cycles of a row of the stage that computes, over all slices.

        Beside it loads of the next slices and stores of the ones before.
        """
        compute, each, turns = self._compute[row], self._each[row], self._turns
        if turns == 1:
            return self._beside(compute, each + self._once[row])
        first = self._beside(compute, each + self._once[row] + loads)
        others = (turns - 2) * self._beside(compute, each + loads + stores)
        return first + others + self._beside(compute, each + stores)

    def _price(self, row: int) -> None:
        """Reckon a row again that is neither first nor last."""
        self._total -= self._rows[row]
        self._rows[row] = self._row(row)
        self._total += self._rows[row]

    def cycles(self) -> int:
        """Return what the group takes at least."""
        first, loads, stores = len(self._rows) - 1, self._loads[-1], self._stored
        found = self._beside(0, loads + self._firsts[-1]) + self._beside(0, stores) + self._total
        if not first:
            return found - self._rows[0] + self._row(0, loads, stores)
        found += self._row(0, loads) - self._rows[0]
        return found + self._row(first, 0, stores) - self._rows[first]


RULES: Rules = {"potentials": (Proof.WITNESS, potentials)}

UNAIDED: tuple[str, ...] = ()
"""Rules that need no evidence, in the order in which they are tried."""
