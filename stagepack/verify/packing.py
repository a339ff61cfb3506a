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
floor   Each access costs what the cheapest memory asks for that may hold the buffer, and no
        objective is negative.
memories  What may live in some memories only is held in these at a moment, or as a clique: their
        peaks together are no less, and if their capacities are, nothing fits.  In one memory it
        ends no lower than all of it together, see `load`.  Peaks of different memories add up.
        A buffer may live in those of its homes that are large enough, and begin at multiples of
        what its fixed offset is one of, as may all that have one place with it.
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
    from stagepack.instances.packing.data import Memory, PackingData

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
    held = _alive(instance, moment, claimed, evidence)
    _require(instance, claimed, _together(instance, held), f"moment {moment}")


def _alive(
    instance: PackingData, moment: int, claimed: Claimed, evidence: Evidence
) -> dict[int, Window]:
    """Return what is held at a moment, by buffer: those that are named, if any are."""
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
    return held


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
    least = _together(instance, _members(instance, evidence, claimed))
    _require(instance, claimed, least, "the clique")


def _members(instance: PackingData, evidence: Evidence, claimed: Claimed) -> dict[int, Window]:
    """Return what the members of a clique hold."""
    members = set(evidence["members"])
    if not members <= set(range(instance.n)):
        raise UnprovedError("a member is no buffer")
    met = {pair for pair in instance.apart if members.issuperset(pair)}
    alone = members.intersection(instance.exclusive)
    met |= {(min(i, j), max(i, j)) for i in alone for j in members - {i}}
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
    return {i: (0, int(instance.size[i])) for i in members}


def _at_once(instance: PackingData, members: set[int], claimed: Claimed) -> set[tuple[int, int]]:
    """Return pairs of members that hold all of their bytes when one of them begins to."""
    if len(members) > MOST_BUFFERS:
        raise UnprovedError("it speaks of too many buffers")
    which, found = sorted(members), set()
    begins = {int(instance.start[i]) for i in which}
    begins |= {gap.end for gap in instance.gaps if gap.buffer in members}
    for alive in alive_at(instance, which, sorted(begins), claimed):
        found |= set(combinations((i for at, i in enumerate(which) if alive >> at & 1), 2))
    return found


def _memories(instance: PackingData, evidence: Evidence, claimed: Claimed) -> None:
    where, seen, least = _homes(instance, claimed), set[int](), 0
    if claimed.bound is None and instance.memories and not all(where):
        return  # some buffer has no place at all
    for crowd in evidence["sets"]:
        memories = {index for index in crowd["memories"] if 0 <= index < len(instance.memories)}
        if seen & memories or not memories:
            raise UnprovedError("a memory counts twice, or there is none")
        if "moment" in crowd:
            held = _alive(instance, crowd["moment"], claimed, crowd)
        else:
            held = _members(instance, crowd, claimed)
        inside = {i: window for i, window in held.items() if where[i] <= memories}
        alone = instance.memories[min(memories)] if len(memories) == 1 else None
        needed = _together(instance, inside, alone)
        limits = (instance.memories[index].capacity for index in memories)
        room = sum(math.inf if limit is None else limit for limit in limits)
        if claimed.bound is None and needed > room:
            return
        seen |= memories
        least += needed
    if claimed.bound is None or instance.objective.value not in PEAKS:
        raise UnprovedError("no memory is too small")
    if least < claimed.bound:
        raise UnprovedError(f"the peaks come to {least:,} at least")


def _homes(instance: PackingData, claimed: Claimed) -> list[set[int]]:
    """Return the memories that may hold each buffer."""
    found = []
    for i, (size, fixed) in enumerate(zip(instance.size, instance.fixed, strict=True)):
        claimed.step(i)
        found.append(
            {
                index
                for index, memory in enumerate(instance.memories)
                if (instance.homes is None or instance.homes[i, index])
                and (memory.capacity is None or max(fixed, 0) + size <= memory.capacity)
                and (fixed < 0 or fixed % memory.alignment == 0)
            }
        )
    ties = [*instance.colocated, *((view.buffer, view.host) for view in instance.views)]
    changed = True
    while changed:
        changed = False
        for number, tie in enumerate(ties):
            claimed.step(number)
            common = set.intersection(*(found[i] for i in tie))
            for i in tie:
                changed |= found[i] != common
                found[i] = common
    return found


def _together(instance: PackingData, held: dict[int, Window], memory: Memory | None = None) -> int:
    """Return the address that must be reached where buffers hold bytes at once.

    If `memory` is one of several, it holds all of them; else no address of several counts.
    """
    weight = {i: high - low for i, (low, high) in held.items() if low < high}
    free, taken = sharing(instance), set[int]()
    for i in sorted(weight, key=lambda i: (weight[i], i), reverse=True):
        if taken.isdisjoint(free.get(i, ())):
            taken.update(free.get(i, ()))
        else:
            del weight[i]
    total = sum(weight.values())
    if instance.memories and memory is None:
        return total
    beyond, end, also = total, 0, 1 if memory is None else memory.alignment
    for low, high in sorted((*instance.reserved, *(() if memory is None else memory.reserved))):
        low = max(low, end)
        beyond += max(0, high - low) if low < beyond else 0
        end = max(end, high)
    aligned = (math.lcm(int(instance.alignment[i]), also) for i in weight)
    step = math.gcd(*(math.gcd(by, held[i][0]) for i, by in zip(weight, aligned, strict=True))) or 1
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
            at = -(-max(low, fixed) // align) * align
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
    if objective not in (*PEAKS, "moves", "spill", "penalties"):
        raise UnprovedError(f"the objective {objective} is not looked at")
    if objective == "spill":
        costs = [memory.cost for memory in instance.memories]
        for count, homes in zip(instance.accesses.tolist(), _homes(instance, claimed), strict=True):
            least += count * min((costs[index] for index in homes), default=0)
    if claimed.bound is None or claimed.bound > least:
        raise UnprovedError(f"any placement may cost {least:,}")


RULES: Rules = {
    "load": (Proof.WITNESS, _load),
    "clique": (Proof.WITNESS, _clique),
    "place": (Proof.WITNESS, _place),
    "floor": (Proof.WITNESS, _floor),
    "memories": (Proof.WITNESS, _memories),
    "misfit": (Proof.LOG, misfit),
}
UNAIDED = ("floor", "place", "load")
