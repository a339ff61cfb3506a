"""Lower bounds without search.

These are the load of the heaviest moment, the tops of blocks that must be placed high, and, in a
conflict graph, a heavy clique.  Cost: O(b), and at most `clique_steps` steps for the clique.
Source: the load is the usual bound; cliques by branch and bound over a greedy colouring, as is
usual.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from stagepack.evidence import Evidence, witness
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing import LmemPacking, Objective
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array


def peak_bound(blocks: Blocks) -> int:
    """Return a lower bound on the peak: the heaviest section, or what must lie high. O(b)."""
    return max(load_bound(blocks), placed_bound(blocks))


LISTED = 12
"""Buffers that a reason names."""


def heavy_clique(
    instance: LmemPacking,
    blocks: Blocks,
    keep_going: Callable[[], bool] = lambda: True,
    *,
    tuning: PackingTuning = TUNING,
) -> tuple[int, list[int]]:
    """Return the heaviest clique of a conflict graph that a short search finds: weight, blocks.

    No blocks are returned where none is heavier than each section, and a weight of 0 where there is
    nothing to seek.

    The sections of a graph are cliques that cover it, not all there are.  Branch and bound, by a
    greedy colouring: of each colour a clique takes one block at most.  Any clique is a bound, so
    the search may end at any time, as it does once `keep_going` says no.  Blocks that may share an
    offset are in none together; of members of unlike size the smallest counts.  Of many blocks only
    those with the heaviest neighbours are looked at.
    """
    # In time every clique is in a section, all of which counts where nothing is shared.
    known = blocks.sections == 1 or (blocks.linear and not len(blocks.may_share))
    if instance.conflicts is None or known:
        return 0, []
    keep_going()  # the normal form of many conflicts took its time
    from stagepack.instances.packing.normal_form.graphs import conflicting

    i, j = blocks.block[conflicting(instance).T]
    least = np.minimum.reduceat(blocks.high - blocks.low, blocks.piece_ptr[:-1])
    around = least.copy()
    for one, other in ((i, j), (j, i)):
        keep_going()  # of millions every pass takes a while: others hear of it
        np.add.at(around, one, least[other])
    chosen = np.sort(np.argsort(-around, kind="stable")[: tuning.bounds.clique_blocks])
    place = np.full(blocks.b, -1)
    place[chosen] = np.arange(len(chosen))
    both = (place[i] >= 0) & (place[j] >= 0) & (i != j)
    i, j = place[i[both]], place[j[both]]
    meets = np.zeros((len(chosen), len(chosen)), dtype=bool)
    meets[i, j] = meets[j, i] = True
    share = place[blocks.may_share]
    i, j = share[(share >= 0).all(axis=1)].T
    meets[i, j] = meets[j, i] = False
    packed = np.packbits(meets, axis=1, bitorder="little")
    near = [int.from_bytes(bits.tobytes(), "little") for bits in packed]
    weight = least[chosen].tolist()
    best, steps = int(blocks.load.max()), tuning.bounds.clique_steps
    clique: list[int] = []

    def grow(held: int, members: list[int], candidates: list[int]) -> None:
        """Try all cliques that candidates can still add to, the heaviest first."""
        nonlocal best, steps, clique
        if held > best:
            best, clique = held, members
        order, limits = _coloured(candidates, near, weight)
        for at in range(len(order) - 1, -1, -1):
            steps -= 1
            if steps < 0 or held + limits[at] <= best or not keep_going():
                return
            i = order[at]
            rest = [k for k in order[:at] if near[i] >> k & 1]
            grow(held + weight[i], [*members, i], rest)

    grow(0, [], list(range(len(chosen))))
    return best, sorted(chosen[clique].tolist())


def _coloured(
    candidates: list[int], near: list[int], weight: list[int]
) -> tuple[list[int], list[int]]:
    """Order blocks by colour, and bound the cliques within each prefix of the order."""
    order: list[int] = []
    limits: list[int] = []
    waiting = sorted(candidates, key=lambda i: -weight[i])
    limit = 0
    while waiting:
        colour, mask, rest = [], 0, []
        for i in waiting:
            if mask & near[i]:
                rest.append(i)
            else:
                colour.append(i)
                mask |= 1 << i
        for i in reversed(colour):  # the heaviest last
            order.append(i)
            limits.append(limit + weight[i])
        limit += weight[colour[0]]
        waiting = rest
    return order, limits


def load_bound(blocks: Blocks) -> int:
    """Return a lower bound on the peak from what each section holds. O(pieces).

    Where all offsets have a divisor in common, what lies above a block begins at a multiple of it,
    so that of what is alive at one time only the block on top leaves less than it is rounded up to.
    Blocks that may share their offsets are counted as they are.
    """
    return heaviest(blocks)[0]


def heaviest(blocks: Blocks) -> tuple[int, int]:
    """Return the :func:`load_bound` and the section that shows it; -1: the largest block does."""
    section = int(blocks.load.argmax())
    bound, section = max((int(blocks.size.max()), -1), (int(blocks.load[section]), section))
    step = math.gcd(int(np.gcd.reduce(blocks.alignment)), int(np.gcd.reduce(blocks.low)))
    if step == 1:
        return bound, section
    alone = np.ones(blocks.b, dtype=bool)
    alone[blocks.may_share] = False
    slack = (blocks.low - blocks.high) % step
    slack[~np.repeat(alone, np.diff(blocks.piece_ptr))] = 0
    more = np.bincount(blocks.first, slack, blocks.sections + 1)
    more -= np.bincount(blocks.end, slack, blocks.sections + 1)
    rounded = blocks.load + np.cumsum(more)[:-1].astype(np.int64)
    fullest = int(rounded.argmax())
    alive = (blocks.first <= fullest) & (fullest < blocks.end)
    raised = int(rounded[fullest]) - int(slack[alive].max(initial=0))
    return (raised, fullest) if raised > bound else (bound, section)


def placed_bound(blocks: Blocks) -> int:
    """Return a lower bound on the peak from the lowest place of every block with ranges."""
    ranged = np.flatnonzero(np.diff(blocks.range_ptr))
    lowest = blocks.range_low[blocks.range_ptr[ranged]] + blocks.size[ranged]
    return int(lowest.max(initial=0))


def objective_bound(
    instance: LmemPacking,
    blocks: Blocks,
    keep_going: Callable[[], bool] = lambda: True,
    *,
    tuning: PackingTuning = TUNING,
) -> tuple[int, Evidence]:
    """Return a lower bound on the instance's objective that holds whatever is chosen, and why.

    `keep_going` is asked now and then; once it says no, what is known by then is returned.
    """
    if instance.objective in (Objective.MOVES, Objective.PENALTIES):
        return 0, witness("floor")
    (bound, section), placed = heaviest(blocks), placed_bound(blocks)
    weight, clique = heavy_clique(instance, blocks, keep_going, tuning=tuning)
    if clique and weight > max(bound, placed):
        return weight, _of_clique(blocks, np.array(clique))
    if placed > bound or section < 0:
        return max(bound, placed), witness("place")
    return bound, of_section(instance, blocks, section)


def of_section(instance: LmemPacking, blocks: Blocks, section: int) -> Evidence:
    """Return what shows how much the section of number `section` holds."""
    moment = int(blocks.moment[section])
    if instance.conflicts is None and not (instance.exempt or section >= blocks.timed):
        return witness("load", moment=moment)
    alive = (blocks.first <= section) & (section < blocks.end)
    owner = np.repeat(np.arange(blocks.b), np.diff(blocks.piece_ptr))[alive]
    if instance.conflicts is not None:
        return _of_clique(blocks, owner)
    if section < blocks.timed:
        members = np.flatnonzero(np.isin(blocks.block, owner)).tolist()
        return witness("load", moment=moment, members=members)
    # Of each block, who has these bytes.
    low, high = np.full((2, blocks.b), -1)
    low[owner], high[owner] = blocks.low[alive], blocks.high[alive]
    same = (blocks.shift == low[blocks.block]) & (
        blocks.shift + instance.size == high[blocks.block]
    )
    buffers = np.flatnonzero(same)
    _, one = np.unique(blocks.block[buffers], return_index=True)
    return witness("clique", members=np.sort(buffers[one]).tolist())


def _of_clique(blocks: Blocks, members: Array) -> Evidence:
    """Return the evidence of a clique of blocks, in terms of their buffers."""
    return witness("clique", members=np.flatnonzero(np.isin(blocks.block, members)).tolist())


def overload(instance: LmemPacking, blocks: Blocks) -> tuple[str, Evidence] | None:
    """Return why the capacity cannot do, from one look at each section and block, in words.

    None where nothing is known against it, which does not say that it will do.
    """
    ranged = np.flatnonzero(np.diff(blocks.range_ptr))
    first = blocks.range_ptr[ranged]
    room = blocks.range_high[first] - blocks.range_low[first]
    nowhere = ranged[room < blocks.size[ranged]]
    if len(nowhere):
        return _nowhere(instance, blocks, np.flatnonzero(blocks.block == nowhere[0]))
    skew = np.flatnonzero((blocks.fixed >= 0) & (blocks.fixed % blocks.alignment != 0))
    if len(skew):
        names = [instance.buffer_id(int(i)) for i in np.flatnonzero(blocks.block == skew[0])]
        why = (
            f"colocated buffers {', '.join(names)} are fixed at {blocks.fixed[skew[0]]:,}, no "
            f"multiple of their alignments ({blocks.alignment[skew[0]]:,}); correct one of them"
        )
        return why, witness("place")
    ceiling = None if instance.memories else instance.ceiling
    return None if ceiling is None else _over(instance, blocks, ceiling)


def _nowhere(instance: LmemPacking, blocks: Blocks, members: Array) -> tuple[str, Evidence]:
    """Return why the members of a block have no place."""
    names = ", ".join(instance.buffer_id(int(i)) for i in members)
    why = f"buffer {names} fits in none of its ranges; widen them or free reserved ones"
    large = members[instance.size[members] > (instance.segment or np.inf)]
    if len(large):
        why = (
            f"buffer {instance.buffer_id(int(large[0]))} has {instance.size[large[0]]:,} bytes, "
            f"more than a segment of {instance.segment:,}; give larger segments"
        )
    elif (blocks.shift % instance.alignment)[members].any():
        why = f"alignments of buffers {names} contradict their views; correct one of them"
    elif len(members) > 1:
        why = f"buffers {names}, which have one place together, have none that suits all of them"
    return why, witness("place")


def _over(instance: LmemPacking, blocks: Blocks, ceiling: int) -> tuple[str, Evidence] | None:
    """Return why a number of bytes cannot do."""
    limit = f"the capacity of {ceiling:,}"
    if ceiling != instance.capacity:
        limit = f"the {ceiling:,} bytes of all banks"
    fullest = int(blocks.load.argmax())
    excess = int(blocks.load[fullest]) - ceiling
    if excess > 0:
        owner = np.repeat(np.arange(blocks.b), np.diff(blocks.piece_ptr))
        alive = owner[(blocks.first <= fullest) & (fullest < blocks.end)]
        when = f"alive at time {blocks.moment[fullest]:,}"
        if instance.conflicts is not None:
            when = "that all conflict with one another"
        elif fullest >= blocks.timed:
            when = "alive together or kept apart"
        members = np.flatnonzero(np.isin(blocks.block, alive))
        why = (
            f"{listed(instance, members)} {when} hold {blocks.load[fullest]:,} bytes, "
            f"{excess:,} more than {limit}; at least {load_bound(blocks):,} are needed"
        )
        return why, of_section(instance, blocks, fullest)
    if placed_bound(blocks) > ceiling:
        why = (
            f"a fixed or limited buffer must end at {placed_bound(blocks):,}, beyond {limit}; "
            "move it or raise the limit"
        )
        return why, witness("place")
    least, section = heaviest(blocks)
    if least > ceiling:
        why = (
            f"rounded up to their alignment, the buffers alive together need "
            f"{least:,} bytes, {least - ceiling:,} more than {limit}"
        )
        at = of_section(instance, blocks, section) if section >= 0 else witness("place")
        return why, at
    return None


def listed(instance: LmemPacking, buffers: Array) -> str:
    """Return the names of some buffers, the largest first."""
    buffers = buffers[np.argsort(-instance.size[buffers], kind="stable")]
    names = ", ".join(instance.buffer_id(int(i)) for i in buffers[:LISTED])
    if len(buffers) == 1:
        return f"buffer {names}"
    rest = f" and {len(buffers) - LISTED:,} more" if len(buffers) > LISTED else ""
    return f"the {len(buffers):,} buffers {names}{rest}"
