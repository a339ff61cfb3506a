"""Lower bounds for several memories: what must live in some of them, by memory and together.

What has its homes among some memories only is held there, at its heaviest moment: together these
have as many bytes, and no fewer is the sum of their peaks.  Sets of memories without one in common
add up.  By Hall's theorem, bytes could be spread over memories, each where it may be, only if no
set of memories holds too much.

Cost: O(2^memories pieces) for up to `homes.sets` memories; of more only each by itself, and
all.  Source: own work; Hall's theorem for transports.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stagepack.contracts import JsonObject
from stagepack.evidence import Evidence, witness
from stagepack.heuristics.packing import bounds
from stagepack.heuristics.packing.homes import alone_in
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing import LmemPacking, Objective
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array


@dataclass(frozen=True)
class Crowd:
    """What some memories hold at once at least."""

    mask: int  # the bits of their indices
    nbytes: int  # bytes; of one memory the address that is reached
    buffers: Array  # int64, shape (k,): that have no other home and are alive at this moment
    shown: JsonObject  # the memories and the moment, or the members of a clique, for the verifier


def crowds(instance: LmemPacking, where: Array, *, tuning: PackingTuning = TUNING) -> list[Crowd]:
    """Return what sets of memories hold at their heaviest moments, single memories first.

    Nothing where buffers are so many that looking takes long.

    `where`, bool of shape (n, memories), is where buffers can live:
    :func:`~stagepack.heuristics.packing.homes.possible`.
    """
    m = where.shape[1]
    if len(where) > tuning.homes.crowded:
        return []
    bits = where @ (1 << np.arange(m, dtype=np.int64))
    masks = {1 << k for k in range(m)}
    # Where nobody has a choice, all together hold no more than each by itself.
    choices = [kind for kind in np.unique(bits).tolist() if kind.bit_count() > 1]
    if m <= tuning.homes.sets:
        for kind in choices:
            masks |= {mask | kind for mask in masks} | {kind}
    elif choices:
        masks.add((1 << m) - 1)
    found = []
    for mask in sorted(masks, key=lambda mask: (mask.bit_count(), mask)):
        inside = np.flatnonzero((bits | mask) == mask)
        if len(inside):
            found.append(_crowd(instance, mask, inside))
    return found


def _crowd(instance: LmemPacking, mask: int, inside: Array) -> Crowd:
    """Return what a set of memories holds, of the buffers that live nowhere else."""
    memories = [k for k in range(len(instance.memories)) if mask >> k & 1]
    single = len(memories) == 1
    if single:
        part = alone_in(instance, memories[0], inside, penalties=None)
    else:
        part = instance.select(inside.tolist(), objective=Objective.PEAK, penalties=None)
    blocks = Blocks.of(part)
    section = int(blocks.load.argmax())
    nbytes = int(blocks.load[section])
    if single:
        for low, high in part.reserved:
            nbytes += high - low if low < nbytes else 0
        rounded, at = bounds.heaviest(blocks)
        if at >= 0 and rounded > nbytes:
            nbytes, section = rounded, at
    owner = np.repeat(np.arange(blocks.b), np.diff(blocks.piece_ptr))
    alive = owner[(blocks.first <= section) & (section < blocks.end)]
    buffers = inside[np.isin(blocks.block, alive)]
    shown: JsonObject = {**bounds.of_section(part, blocks, section).data, "memories": memories}
    del shown["rule"]
    if "members" in shown:
        shown["members"] = inside[shown["members"]].tolist()
    return Crowd(mask, nbytes, buffers, shown)


def objective_bound(
    instance: LmemPacking, where: Array, found: list[Crowd]
) -> tuple[int, Evidence]:
    """Return a lower bound on the objective, and what shows it.

    `where` is as for :func:`crowds`, which `found` the crowds.
    """
    if instance.objective in (Objective.PEAK, Objective.FIT):
        return _peaks(found)
    if instance.objective is not Objective.SPILL:
        return 0, witness("floor")
    costs = np.array([memory.cost for memory in instance.memories], dtype=np.int64)
    cheapest = np.where(where, costs, costs.max()).min(axis=1)
    return int((instance.accesses * cheapest).sum()), witness("floor")


def _peaks(found: list[Crowd]) -> tuple[int, Evidence]:
    """Return the most that sets of memories without one in common hold, and what shows it."""
    best: dict[int, tuple[int, tuple[Crowd, ...]]] = {0: (0, ())}
    for crowd in sorted(found, key=lambda crowd: -crowd.nbytes):
        for mask, (total, chosen) in list(best.items()):
            both = mask | crowd.mask
            if mask & crowd.mask or len(chosen) >= 8:
                continue
            if total + crowd.nbytes > best.get(both, (-1, ()))[0]:
                best[both] = total + crowd.nbytes, (*chosen, crowd)
    total, chosen = max(best.values(), key=lambda one: (one[0], -len(one[1])))
    return total, witness("memories", sets=[crowd.shown for crowd in chosen])


def overload(instance: LmemPacking, found: list[Crowd]) -> tuple[str, Evidence] | None:
    """Return why memories cannot hold what must live there, in words, and what shows it."""
    short = [(crowd, _excess(instance, crowd)) for crowd in found]
    short = [(crowd, excess) for crowd, excess in short if excess > 0]
    for crowd, excess in short:
        names = _names(instance, crowd)
        has = f"the {crowd.nbytes - excess:,} of {names}"
        when = "alive together or kept apart"
        if instance.conflicts is not None:
            when = "that all conflict with one another"
        elif "moment" in crowd.shown:
            when = f"alive at time {crowd.shown['moment']:,}"
        why = (
            f"{bounds.listed(instance, crowd.buffers)} {when} may live in {names} only and need "
            f"{crowd.nbytes:,} bytes, {excess:,} more than {has}; "
            f"{_remedy(instance, crowd, excess)}"
        )
        for other, lacking in short:
            if not other.mask & crowd.mask:
                why += f"; {_names(instance, other)} lacks {lacking:,} bytes, too"
        return why, witness("memories", sets=[crowd.shown])
    return None


def _excess(instance: LmemPacking, crowd: Crowd) -> int:
    """Return by how much a crowd exceeds its memories; 0 where one of them has no end."""
    limits = [instance.memories[k].capacity for k in crowd.shown["memories"]]
    room = [limit for limit in limits if limit is not None]
    return crowd.nbytes - sum(room) if len(room) == len(limits) else 0


def _names(instance: LmemPacking, crowd: Crowd) -> str:
    return ", ".join(instance.memories[k].name for k in crowd.shown["memories"])


def _remedy(instance: LmemPacking, crowd: Crowd, excess: int) -> str:
    """Return what is missing, in words: bytes, or another home for a buffer large enough."""
    levels = [level.name for k, level in enumerate(instance.memories) if crowd.mask >> k & 1]
    others = [level for k, level in enumerate(instance.memories) if not crowd.mask >> k & 1]
    more = f"give {' or '.join(levels)} {excess:,} bytes more"
    for buffer in crowd.buffers[np.argsort(instance.size[crowd.buffers], kind="stable")].tolist():
        nbytes = int(instance.size[buffer])
        room = [o.name for o in others if o.capacity is None or o.capacity >= nbytes]
        if nbytes >= excess and room:
            return f"{more}, or allow buffer {instance.buffer_id(buffer)} in {' or '.join(room)}"
    return f"{more}, or allow some of them elsewhere" if others else more


def nowhere(instance: LmemPacking, where: Array) -> str:
    """Return which buffer has no memory that could hold it, in words; "" for none."""
    lost = np.flatnonzero(~where.any(axis=1))
    if not len(lost):
        return ""
    at = int(lost[0])
    homes = list(range(where.shape[1]))
    if instance.homes is not None:
        homes = np.flatnonzero(instance.homes[at]).tolist()
    names = ", ".join(
        f"{instance.memories[k].name} ({instance.memories[k].capacity:,})"
        if instance.memories[k].capacity is not None
        else instance.memories[k].name
        for k in homes
    )
    also = "" if instance.fixed[at] < 0 else f" at {instance.fixed[at]:,}"
    return (
        f"buffer {instance.buffer_id(at)} of {instance.size[at]:,} bytes{also} fits in none of its "
        f"memories: {names}; make one larger, or allow another"
    )
