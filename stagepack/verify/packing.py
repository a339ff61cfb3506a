"""Proofs of packings: why no placement is lower, or none fits.

Each rule shows that every placement reaches some address.  That is what the peak is at least, and
so every objective of which the peak is a part; and where that address is beyond the capacity, or
the last bank, nothing fits.  What a rule does not look at only asks for more of a placement.

load    What is held at one moment lies apart in the memory, so that some of it ends no lower than
        all of it together.  Of those that may overlap only some count, no two of which may; who is
        looked at may be named.  Where all that
        counts begins at multiples of a step, each but the highest takes a multiple of it.  Reserved
        ranges below that end come on top.
clique  The same of buffers any two of which conflict, are kept apart, or hold all of their bytes
        at one moment.
place   A buffer lies no lower than the first address that its own rules allow; where there is none,
        nothing fits.
floor   Each access costs what the cheapest memory asks for, and no objective is negative.
misfit  A search, see :mod:`.packing_misfit`.

In several memories, what is apart takes no more than all of them have, wherever it lies; no address
says anything else.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import accumulate, combinations
from typing import TYPE_CHECKING, Any

from stagepack.evidence import Proof
from stagepack.verify.packing_misfit import (
    MOST_BUFFERS,
    PEAKS,
    alive_at,
    misfit,
    sharing,
    turns_of,
)
from stagepack.verify.rules import Claimed, Rules, UnprovedError

if TYPE_CHECKING:
    from stagepack.instances.packing.data import PackingData

Evidence = Mapping[str, Any]
Window = tuple[int, int]
"""Bytes [low, high) of a buffer, above its offset."""

PART = 2**14
"""Conflicts that are looked at together."""


def _require(instance: PackingData, claimed: Claimed, least: float, what: str) -> None:
    """Require that an address which is reached shows the claim."""
    if claimed.bound is not None:
        goal = math.ceil(claimed.bound)
        if instance.objective.value not in PEAKS:
            raise UnprovedError(f"no address says anything of {instance.objective}")
    else:
        limits = [memory.capacity for memory in instance.memories] or [instance.ceiling]
        if None in limits:
            raise UnprovedError("no capacity is too small")
        goal = sum(limit for limit in limits if limit is not None) + 1
    if least < goal:
        raise UnprovedError(f"{what} needs {least:,}, not {goal:,}")


def _load(instance: PackingData, evidence: Evidence, claimed: Claimed) -> None:
    moment = evidence["moment"] if "moment" in evidence else _heaviest(instance, claimed)
    turns, held = turns_of(instance, moment), {}
    lives = zip(instance.size.tolist(), instance.start.tolist(), instance.end.tolist(), strict=True)
    for i, (nbytes, start, end) in enumerate(lives):
        claimed.step(i)
        if any(start <= now < end for now in turns):
            held[i] = 0, nbytes
    for gap in instance.gaps:  # within one lifetime, which is a period at most
        if any(gap.start <= now < gap.end for now in turns):
            held[gap.buffer] = gap.low, gap.high
    if "members" in evidence:
        held = {i: window for i, window in held.items() if i in set(evidence["members"])}
    _require(instance, claimed, _together(instance, held), f"moment {moment}")


def _heaviest(instance: PackingData, claimed: Claimed) -> int:
    """Return a moment at which much is held; any would do."""
    changes: Counter[int] = Counter()
    for column, sign in ((instance.start, 1), (instance.end, -1)):
        rows = zip(column.tolist(), instance.size.tolist(), strict=True)
        for number, (moment, nbytes) in enumerate(rows):
            claimed.step(number)
            changes[moment] += sign * nbytes
    for gap in instance.gaps:
        less = int(instance.size[gap.buffer]) - (gap.high - gap.low)
        changes[gap.start] -= less
        changes[gap.end] += less
    moments = sorted(changes)
    loads = list(accumulate(changes[moment] for moment in moments))
    return moments[loads.index(max(loads))]


def _clique(instance: PackingData, evidence: Evidence, claimed: Claimed) -> None:
    members = set(evidence["members"])
    if not members <= set(range(instance.n)):
        raise UnprovedError("a member is no buffer")
    met = {pair for pair in instance.apart if members.issuperset(pair)}
    alone = members.intersection(instance.exclusive)
    met |= {(min(i, j), max(i, j)) for i in alone for j in members if i != j}
    if instance.conflicts is None and 2 * len(met) < len(members) * (len(members) - 1):
        met |= _at_once(instance, members, claimed)
    conflicts: Any = () if instance.conflicts is None else instance.conflicts
    for begin in range(0, len(conflicts), PART):
        claimed.step(0)
        for i, j in conflicts[begin : begin + PART].tolist():
            if i in members and j in members:
                met.add((min(i, j), max(i, j)))
    if 2 * len(met) < len(members) * (len(members) - 1):
        raise UnprovedError("two of the members do not conflict")
    held = {i: (0, int(instance.size[i])) for i in members}
    _require(instance, claimed, _together(instance, held), "the clique")


def _at_once(instance: PackingData, members: set[int], claimed: Claimed) -> set[tuple[int, int]]:
    """Return pairs of members that hold all of their bytes when one of them begins to."""
    if len(members) > MOST_BUFFERS:
        raise UnprovedError("it speaks of too many buffers")
    which = sorted(members)
    begins = {int(instance.start[i]) for i in which}
    begins |= {gap.end for gap in instance.gaps if gap.buffer in members}
    found = set()
    for alive in alive_at(instance, which, sorted(begins), claimed):
        here = [i for at, i in enumerate(which) if alive >> at & 1]
        found |= set(combinations(here, 2))
    return found


def _together(instance: PackingData, held: dict[int, Window]) -> int:
    """Return the address that must be reached where buffers hold bytes at once."""
    weight = {i: high - low for i, (low, high) in held.items() if low < high}
    free, taken = sharing(instance), set[int]()
    for i in sorted(weight, key=lambda i: (weight[i], i), reverse=True):
        if taken.isdisjoint(free.get(i, ())):
            taken.update(free.get(i, ()))
        else:
            del weight[i]
    total = sum(weight.values())
    if instance.memories:
        return total
    beyond = total
    for low, high in instance.reserved:  # ascending and apart
        beyond += high - low if low < beyond else 0
    step = math.gcd(*(math.gcd(int(instance.alignment[i]), held[i][0]) for i in weight)) or 1
    loose = [-nbytes % step for nbytes in weight.values()]
    return max(beyond, total + sum(loose) - max(loose, default=0))


def _place(instance: PackingData, _: Evidence, claimed: Claimed) -> None:
    allowed: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
    for item in instance.allowed:
        allowed[item.buffer].append((item.low, item.high))
    columns = instance.size.tolist(), instance.alignment.tolist(), instance.fixed.tolist()
    highest: float = 0
    for i, (size, align, fixed) in enumerate(zip(*columns, strict=True)):
        claimed.step(i)
        lowest = math.inf
        if instance.segment is not None and size > instance.segment:
            return  # it has no place at all
        for low, high in allowed.get(i) or [(0, math.inf)]:
            at = max(low, fixed)
            at += -at % align
            for number, (begin, end) in enumerate(instance.reserved):
                claimed.step(number)
                if begin < at + size and at < end:
                    at = end + -end % align
            if at + size <= high and fixed in (-1, at):
                lowest = min(lowest, at)
        highest = max(highest, lowest + size)
    if highest == math.inf:
        return  # some buffer has no place at all
    if instance.memories:
        raise UnprovedError("no address is too high for all memories")
    _require(instance, claimed, highest, "a place of its own")


def _floor(instance: PackingData, _: Evidence, claimed: Claimed) -> None:
    least, objective = 0, instance.objective.value
    if objective not in (*PEAKS, "moves", "spill"):
        raise UnprovedError(f"the objective {objective} is not looked at")
    if objective == "spill":
        least = sum(instance.accesses.tolist()) * min(memory.cost for memory in instance.memories)
    if claimed.bound is None or claimed.bound > least:
        raise UnprovedError(f"any placement may cost {least:,}")


RULES: Rules = {
    "load": (Proof.WITNESS, _load),
    "clique": (Proof.WITNESS, _clique),
    "place": (Proof.WITNESS, _place),
    "floor": (Proof.WITNESS, _floor),
    "misfit": (Proof.LOG, misfit),
}
UNAIDED = ("floor", "place", "load")
