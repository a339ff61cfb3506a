"""Proofs of layer groups: why no grouping is shorter, or none fits.

``potentials``: a number for each boundary between operators, null where none can be.  The claim is
shown if no group [a, b) is shorter than what they rise from a to b: cycles of groups add up, so all
groups together take what they rise in all.  For each last operator and cut the groups grow operator
by operator to the front.  What one takes at least is summed row by row: what an operator computes,
beside the weights of the next and what the one before stores; of inputs only those of the first
operator, which nothing in the group has written, and which are loaded before it begins: for the
next slice beside the last row, as what the last operator stored is beside the first.  Of the
slices, the first, the second and the last stand for all: ranges begin and end in the order of the
slices, so all hold the same if the first and the last do, and nothing takes less time for more
rows.  Where this is too short, :class:`.replay.Replay` tells what the group takes, and holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from stagepack.evidence import Proof
from stagepack.verify.rules import Claimed, Rules, UnprovedError, defined

if TYPE_CHECKING:
    from stagepack.instances.groups.data import GroupingData
    from stagepack.instances.groups.execution.replay import Part, Replay
    from stagepack.instances.groups.operators import Shape

Counts = tuple[int, ...]
"""Into how many ranges N, C, H and W are cut."""
Along = dict[int, tuple[int, bool, list[int], list[bool]]]
"""Of operators on an axis: the longest range of slices, whether all are alike, and both of each
input, if no operator before is in the group."""


def potentials(instance: GroupingData, evidence: Mapping[str, Any], claimed: Claimed) -> None:
    """Show that no group is shorter than potentials rise along it."""
    if instance.objective.value != "cycles":
        raise UnprovedError("is about cycles")
    if instance.timesteps != "nearest" or not (instance.order == "given" or instance.linear):
        raise UnprovedError("groups may be of other operators, or rows")
    given, n = evidence["potentials"], instance.n
    if len(given) != n + 1 or not all(p is None or type(p) is int for p in given):
        raise UnprovedError(f"there are no {n + 1} potentials")
    if given[0] is None or not (
        given[n] is None or (claimed.bound is not None and given[n] - given[0] >= claimed.bound)
    ):
        raise UnprovedError("the potentials do not rise by as much")
    prices, alone = _Prices(instance), defined(instance.kind, "execution", "replay").played_alone
    for b in range(1, n + 1):
        rises = [
            -math.inf if p is None else math.inf if given[b] is None else given[b] - p
            for p in given[:b]
        ]
        if instance.stands(b - 1) and alone(instance, b - 1) < rises[b - 1]:
            raise UnprovedError(f"operator {b - 1} is shorter by itself")
        low = max(0, b - instance.max_group)
        low = max([low, *(at + 1 for at in range(low, b) if instance.alone(at))])
        along = cache(partial(_along, instance, range(low, b)))
        for counts in _cuts(instance, b - 1):
            claimed.step(0)
            for a, least in prices.growing(range(low, b), counts, along):
                claimed.step(0)
                if least < rises[a] and not _replay(instance, range(a, b), counts, rises[a]):
                    break


def _replay(instance: GroupingData, members: range, counts: Counts, least: float) -> bool:
    """Show that a group takes so many cycles, or does not fit; return whether a larger one may."""
    cut = (members.start, members.stop), (counts,)
    plan = defined(instance.kind, "solution").GroupingSolution(*cut)
    played = defined(instance.kind, "execution", "replay").Replay(instance, plan, 0)
    if played.cycles >= least:
        return True
    alive = [0] * (3 * played.rows)
    for place in played.places:
        for row in range(place.start, place.start + place.rows):
            alive[row % (played.period or len(alive))] += place.nbytes
    for _, over in played.overwritten:  # of two of equal size, in the row in which both are alive
        alive[played.places[over].start] -= played.places[over].nbytes
    cut_wrongly = defined(instance.kind, "check").cut_wrongly
    if max(alive) <= instance.chip.memory and not any(cut_wrongly(played)):
        raise UnprovedError(f"operators {members} may take {played.cycles:,} cycles in {counts}")
    return _least_bytes(played) <= instance.chip.memory


def _least_bytes(played: Replay) -> int:
    """Return bytes that are alive in a row of this group, and of all into which it grows.

    Only while it computes; an input of all slices only from load to last use, as one that another
    operator of a larger group makes; and what may be written over another is not alive yet.
    """
    instance, rows = played.instance, range(played.rows, 2 * played.rows)
    alive = dict.fromkeys(rows, 0)
    for life in played.lives:
        over = life.tensor in played.operators and instance.overwrites(life.tensor)
        begin, end = life.first + over, life.last + 1
        if life.once and life.tensor < 0 and played.period:
            begin, end = rows.start, rows.stop
        for row in range(max(begin, rows.start), min(end, rows.stop)):
            alive[row] += life.nbytes
    return max(alive.values())


def _along(instance: GroupingData, members: range, axis: int, parts: int) -> Along:
    """Return what the first, second and last slice hold, of an axis cut into so many parts."""
    slices = sorted({0, min(1, parts - 1), parts - 1})
    held_along = defined(instance.kind, "taps").held_along
    held: dict[int, list[Part]] = {}
    found: Along = {}

    def ask(tensor: int, asked: list[Part]) -> None:
        known = zip(held.get(tensor, asked), asked, strict=True)
        held[tensor] = [(min(p[0], q[0]), max(p[1], q[1])) for p, q in known]

    for at in reversed(members):
        operator, sources = instance.operators[at], instance.sources(at)
        if _leaves(instance, at, members.stop):
            size, longer = divmod(operator.full[axis], parts)
            begins = [size * s + min(s, longer) for s in slices]
            ask(at, [(a, a + size + (s < longer)) for a, s in zip(begins, slices, strict=True)])
        for which, tensor in enumerate(instance.reads[at]):
            ask(tensor, [held_along(operator, which, axis, part, sources) for part in held[at]])
        size, *inputs = [
            max(end - first for first, end in held[tensor]) for tensor in (at, *instance.reads[at])
        ]
        alike, *same = [held[tensor][0] == held[tensor][-1] for tensor in (at, *instance.reads[at])]
        found[at] = size, alike, inputs, same
    return found


def _leaves(instance: GroupingData, at: int, end: int) -> bool:
    """Whether what an operator of a group writes is stored."""
    readers = instance.tensors[at].readers
    return at in instance.kept or not readers or readers[-1] >= end


class _Prices:
    """What parts of tensors cost, each reckoned once."""

    def __init__(self, instance: GroupingData) -> None:
        self.instance, self.chip = instance, instance.chip
        self._cycles = defined(instance.kind, "operators").compute_cycles
        self.computed, self.weights = cache(self._computed), cache(self._weights)

    def _computed(self, at: int, part: Shape) -> Any:
        instance = self.instance
        return self._cycles(instance.operators[at], instance.sources(at), part, self.chip)

    def _weights(self, at: int, channels: int) -> int:
        """Return the cycles in which the weights for some of the channels are loaded."""
        operator = self.instance.operators[at]
        shares = ((w, -(-w.channels * channels // operator.full[1])) for w in operator.weights)
        return sum(self.chip.load_cycles(weight.nbytes(share)) for weight, share in shares)

    def growing(
        self, members: range, counts: Counts, along: Callable[[int, int], Along]
    ) -> Iterator[tuple[int, int]]:
        """Yield the first operator, from the last on, and the least cycles of groups in a cut."""
        n, c, h, w = counts
        parts, slices, tensors = (n, c, 1, h, w), math.prod(counts), self.instance.tensors
        tracks = [along(axis, count) for axis, count in enumerate(parts)]
        turns, beside = -(-slices // self.chip.cores), self.chip.row_cycles

        def row(compute: int, each: int, once: int, later: int = 0) -> int:
            first = beside(compute, each + once)
            return (turns - 1) * beside(compute, each + later) + first

        total = compute = each = once = left = 0
        ahead = end = 0, 0  # loads for the operator after this one: with each slice, with the first
        for at in reversed(members):
            store = 0
            if _leaves(self.instance, at, members.stop):
                sizes = list(zip(tensors[at].shape, parts, strict=True))
                if any(size < count for size, count in sizes):
                    return
                values = math.prod(-(-size // count) for size, count in sizes)
                store = self.chip.store_cycles(values * tensors[at].dtype_bytes)
            last = at == members.stop - 1
            total += beside(0, store) if last else row(compute, each + store, once)
            n, c, d, h, w = (track[at][0] for track in tracks)
            compute, weights = self.computed(at, (n, c, d, h, w)), self.weights(at, c)
            if at >= members.stop - 2:  # what computes in the last row, and what it stores beside
                end = (compute, 0) if last else (end[0], store)
            each, once = ahead
            ahead = (0, weights) if slices > 1 and tracks[1][at][1] else (weights, 0)
            read, same = (zip(*(track[at][k] for track in tracks), strict=True) for k in (2, 3))
            loads = {
                tensor: (
                    self.chip.load_cycles(math.prod(part) * tensors[tensor].dtype_bytes),
                    alike,
                )
                for tensor, part, alike in zip(
                    self.instance.reads[at], read, map(all, same), strict=True
                )
            }
            begin = beside(0, weights + sum(cycles for cycles, _ in loads.values()))
            again = ahead[0] + sum(cycles for cycles, alike in loads.values() if not alike)
            more = (turns - 1) * (beside(end[0], end[1] + again) - beside(*end))
            yield at, begin + row(compute, each, once, left) + more + total
            left = store if last else left


def _cuts(instance: GroupingData, last: int) -> Iterator[Counts]:
    """Yield all ways to cut a group by the shape of what its last operator writes."""
    most = instance.max_slices
    n, c, _, h, w = instance.tensors[last].shape
    if instance.slicing == "n-then-h":
        yield from ((parts, 1, 1, 1) for parts in range(1, min(n, most) + 1))
        yield from ((n, 1, parts, 1) for parts in range(2, min(h, most // n) + 1))
        return
    for x in range(1, min(n, most) + 1):
        for y in range(1, min(c, most // x) + 1):
            for z in range(1, min(h, most // (x * y)) + 1):
                yield from ((x, y, z, v) for v in range(1, min(w, most // (x * y * z)) + 1))


RULES: Rules = {"potentials": (Proof.WITNESS, potentials)}
UNAIDED = ()
