"""Proofs of packings: why no placement is lower, or none fits.

Each rule shows that every placement reaches some address.  That is what the peak is at least, and
so every objective of which the peak is a part; and where that address is beyond the capacity, or
the last bank, nothing fits.  What a rule does not look at only asks for more of a placement.

load    What is held at one moment lies apart in the memory, so that some of it ends no lower than
        all of it together.  Of two that may overlap one is left out; what one group of a common
        offset holds is the union of it.  Where all that counts begins at multiples of a step, each
        but the highest takes a multiple of it.  Reserved ranges below that end come on top.
clique  The same of buffers any two of which conflict, and
pair    of the two that are heaviest.
place   A buffer lies no lower than the first address that its own rules and those of all that share
        its offset allow; where there is none, nothing fits.
floor   Each access costs what the cheapest memory asks for, and no objective is negative.
misfit  A search, see :mod:`.packing_misfit`.

In several memories, only `load` and `clique` show that nothing fits: what is apart takes no more
than all of them have.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from stagepack.evidence import Proof
from stagepack.instances.packing.data import PackingData
from stagepack.instances.packing.words import Objective
from stagepack.verify.packing_misfit import conflicts, misfit, turns_of
from stagepack.verify.rules import Claimed, Rules, UnprovedError

Evidence = Mapping[str, Any]
Window = tuple[int, int]
"""Bytes [low, high) of a buffer, above its offset."""


def needed(instance: PackingData, claimed: Claimed) -> int:
    """Return the address that a placement must be shown to reach.

    Raises
    ------
    UnprovedError
        Where no address shows the claim.
    """
    if claimed.bound is None:
        limits = [memory.capacity for memory in instance.memories] or [instance.ceiling]
        if None in limits:
            raise UnprovedError("no capacity is too small")
        return sum(limit for limit in limits if limit is not None) + 1
    if instance.objective in (Objective.MOVES, Objective.SPILL):
        raise UnprovedError(f"no address says anything of {instance.objective}")
    return math.ceil(claimed.bound)


def _require(least: int, goal: int, what: str) -> None:
    if least < goal:
        raise UnprovedError(f"{what} needs {least:,}, not {goal:,}")


# ---------------------------------------------------------------------- what is held at once


def _load(instance: PackingData, evidence: Evidence, claimed: Claimed) -> None:
    goal = needed(instance, claimed)
    if instance.conflicts is not None:
        raise UnprovedError("there are no moments")
    moment = evidence["moment"] if "moment" in evidence else _heaviest(instance, claimed)
    turns = turns_of(instance, moment)
    held = {}
    lives = zip(instance.size.tolist(), instance.start.tolist(), instance.end.tolist(), strict=True)
    for i, (nbytes, start, end) in enumerate(lives):
        claimed.step(i)
        if any(start <= now < end for now in turns):
            held[i] = 0, nbytes
    for gap in instance.gaps:  # within one lifetime, which is a period at most
        if any(gap.start <= now < gap.end for now in turns):
            held[gap.buffer] = gap.low, gap.high
    _require(_together(instance, held), goal, f"moment {moment}")


def _clique(instance: PackingData, evidence: Evidence, claimed: Claimed) -> None:
    goal, members = needed(instance, claimed), set(evidence["members"])
    if not members <= set(range(instance.n)):
        raise UnprovedError("a member is no buffer")
    met = {(i, j) for i, j in conflicts(instance, claimed) if i in members and j in members}
    if 2 * len(met) < len(members) * (len(members) - 1):
        raise UnprovedError("two of the members do not conflict")
    held = {i: (0, int(instance.size[i])) for i in members}
    _require(_together(instance, held), goal, "the clique")


def _pair(instance: PackingData, _: Evidence, claimed: Claimed) -> None:
    goal, size = needed(instance, claimed), instance.size.tolist()
    share = set(instance.in_place)
    home = {i: group for group in instance.colocated for i in group}
    least = max(
        (
            size[i] + size[j]
            for i, j in conflicts(instance, claimed)
            if (i, j) not in share and (i not in home or j not in home[i])
        ),
        default=0,
    )
    _require(max(least, max(size)), goal, "the heaviest pair")


def _together(instance: PackingData, held: dict[int, Window]) -> int:
    """Return the address that must be reached where buffers hold bytes at once."""
    home = {i: i for i in held}
    windows = {i: [window] for i, window in held.items() if window[0] < window[1]}
    step = {i: int(instance.alignment[i]) for i in windows}
    for group in instance.colocated:
        alive = [i for i in group if i in windows]
        for i in alive:
            home[i] = alive[0]
            step[alive[0]] = math.lcm(*(int(instance.alignment[k]) for k in group))
        for i in alive[1:]:
            windows[alive[0]] += windows.pop(i)
    windows = {i: _joined(spans) for i, spans in windows.items()}
    weight = {i: sum(high - low for low, high in spans) for i, spans in windows.items()}
    for pair in instance.in_place:
        both = {home[i] for i in pair if home.get(i) in weight}
        if len(both) > 1:  # of those still there
            del weight[min(both, key=lambda i: (weight[i], i))]
    total = sum(weight.values())
    if instance.memories:
        return total
    apart = [(i, low, high) for i in weight for low, high in windows[i]]
    unit = math.gcd(*(step[i] for i, _, _ in apart), *(low for _, low, _ in apart))
    beyond = total
    for low, high in instance.reserved:  # ascending and apart
        beyond += high - low if low < beyond else 0
    if unit < 2:
        return beyond
    loose = [(low - high) % unit for _, low, high in apart]
    return max(beyond, total + sum(loose) - max(loose))


def _joined(spans: list[Window]) -> list[Window]:
    """Return windows in order, those that touch as one."""
    found: list[Window] = []
    for low, high in sorted(spans):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(high, found[-1][1])
        else:
            found.append((low, high))
    return found


def _heaviest(instance: PackingData, claimed: Claimed) -> int:
    """Return a moment at which much is held, one of each lot that may overlap; any would do."""
    out: set[int] = set()
    for group in (*instance.colocated, *instance.in_place):
        alone = sorted((int(instance.size[i]), i) for i in group if i not in out)
        out.update(i for _, i in alone[:-1])
    unit = math.gcd(*instance.alignment.tolist())
    size = [-(-nbytes // unit) * unit for nbytes in instance.size.tolist()]
    changes: Counter[int] = Counter()

    def hold(start: int, end: int, nbytes: int) -> None:
        period = instance.period
        if period is not None:
            start, end = start % period, start % period + end - start
            if end > period:
                changes[0] += nbytes
                end -= period
        changes[start] += nbytes
        changes[end] -= nbytes

    for i, (start, end) in enumerate(
        zip(instance.start.tolist(), instance.end.tolist(), strict=True)
    ):
        claimed.step(i)
        if i not in out:
            hold(start, end, size[i])
    for gap in instance.gaps:
        if gap.buffer not in out:
            hold(gap.start, gap.end, gap.high - gap.low - size[gap.buffer])
    moments = sorted(changes)
    loads = list(accumulate(changes[moment] for moment in moments))
    return moments[loads.index(max(loads))]


# ---------------------------------------------------------------------- where a buffer may lie


def _place(instance: PackingData, evidence: Evidence, claimed: Claimed) -> None:
    if "buffer" in evidence:
        chosen = [evidence["buffer"]]
    else:
        chosen = [i for i, at in enumerate(instance.fixed.tolist()) if at >= 0]
        chosen += dict.fromkeys(item.buffer for item in instance.allowed)
        chosen.append(int(instance.size.argmax()))
    least = 0
    for i in chosen:
        if not 0 <= i < instance.n:
            raise UnprovedError("there is no such buffer")
        together = next((group for group in instance.colocated if i in group), (i,))
        at = _lowest(instance, together, claimed)
        if at is None:
            return  # it has no place at all
        least = max([least, *(at + int(instance.size[k]) for k in together)])
    goal = needed(instance, claimed)
    if instance.memories:
        raise UnprovedError("no address is too high for all memories")
    _require(least, goal, "a place of its own")


def _lowest(instance: PackingData, together: tuple[int, ...], claimed: Claimed) -> int | None:
    """Return the lowest offset that the places of some buffers have in common; None: no offset."""
    allowed = {i: sorted((o.low, o.high) for o in instance.allowed if o.buffer == i)
               for i in together}  # fmt: skip
    at, agreed, steps = 0, 0, 0
    while agreed < len(together):
        for i in together:
            claimed.step(steps)
            steps += 1
            above = _next(instance, i, at, allowed[i], claimed)
            if above is None:
                return None
            agreed = 1 if above > at else agreed + 1
            at = above
    return at


def _next(
    instance: PackingData, i: int, at: int, allowed: list[Window], claimed: Claimed
) -> int | None:
    """Return the lowest offset from `at` on at which a buffer may lie; None: there is none."""
    size, fixed = int(instance.size[i]), int(instance.fixed[i])
    align = int(instance.alignment[i])
    everywhere: list[tuple[int, int | None]] = [(0, None)]
    for low, high in allowed or everywhere:
        place = max(at, low, fixed)
        for number, (begin, end) in enumerate(((0, 0), *instance.reserved)):
            claimed.step(number)
            if place + size > begin and place < end:
                place = end
            place += -place % align
        fits = high is None or place + size <= high
        if fits and fixed in (-1, place):
            return place
    return None


# ---------------------------------------------------------------------- costs


def _floor(instance: PackingData, _: Evidence, claimed: Claimed) -> None:
    if claimed.bound is None:
        raise UnprovedError("of costs, not of places")
    least = 0
    if instance.objective is Objective.SPILL:
        least = sum(instance.accesses.tolist()) * min(memory.cost for memory in instance.memories)
    _require(least, math.ceil(claimed.bound), "any placement")


RULES: Rules = {
    "load": (Proof.WITNESS, _load),
    "clique": (Proof.WITNESS, _clique),
    "pair": (Proof.WITNESS, _pair),
    "place": (Proof.WITNESS, _place),
    "floor": (Proof.WITNESS, _floor),
    "misfit": (Proof.LOG, misfit),
}

UNAIDED: tuple[str, ...] = ("floor", "place", "load", "pair")
"""Rules that need no evidence, in the order in which they are tried."""
