"""Lifetimes with exemptions and separations, as lifetimes without.

Buffers that may overlap although they are alive together take turns: time is gone through again
and again, in *lanes*, each with a set of buffers of which no two are exempt.  Whoever is exempt
from the same others is one class, so that modes, or branches of a conditional, make few lanes.
The first lane has all of time, the others what is needed for pairs that none before has together.
Buffers that are kept apart are alive together at moments of their own, after all lanes: cliques of
the graph of such pairs, and of those that are alive together anyway.

Cost: O(classes^2) a lane, of which modes have as many as there are modes; a clique cover of the
pairs kept apart.  Source: ours.
"""

from __future__ import annotations

import numpy as np

from stagepack.errors import InputError
from stagepack.instances.arrays import distinct
from stagepack.instances.packing.instance import LmemPacking
from stagepack.instances.packing.normal_form.meetings import Looks, Turns
from stagepack.instances.profile import Array

MOST_TOGETHER = 2_000
"""Buffers kept apart from others up to which it is looked at who of them is alive together."""

MOST_EXEMPT = 2_000
"""Buffers with exemptions at most, of which each may be a class of its own: 3 s of looking."""


def turns(instance: LmemPacking, block: Array, rows: Array, looks: Looks) -> Turns:
    """Return lifetimes, `rows` as those of :class:`Turns`, in turns.

    `block`, shape (n,), is of each buffer: those of one never conflict.  `rows`, shape (pieces, 5),
    are what is held, without exemptions and separations.
    """
    exempt = _between_blocks(instance, instance.exempt, block)
    many = len(np.unique(exempt))
    if many > MOST_EXEMPT:
        raise InputError(
            f"{many:,} buffers are exempt from others, more than the {MOST_EXEMPT:,} that are "
            "looked at",
            field="exempt",
            remedy="leave out pairs that are never alive together, or give conflicts",
        )
    if len(instance.exclusive):
        exempt = exempt[~np.isin(exempt, instance.exclusive).any(axis=1)]
    if not (len(exempt) or instance.apart or instance.exclusive):
        return Turns(rows, rows[:0, 0])
    rows, moments = _ranked(rows)
    apart = _between_blocks(instance, instance.apart, block)
    if instance.exclusive:
        rows, held = _always(instance, block, rows, len(moments))
        apart = np.concatenate([apart, held])
    found = [rows]
    if len(exempt):
        found = []
        for number, (members, active) in enumerate(lanes(instance, exempt, looks)):
            part = rows[members[rows[:, 0]]]
            if number:
                part = _clipped(part, rows[active[rows[:, 0]], 1:3])
            part[:, 1:3] += number * len(moments)
            found.append(part)
    end = len(found) * len(moments)
    sets = kept_apart(instance, block, rows, apart, looks)
    member = np.array([i for each in sets for i in each], dtype=np.int64)
    when = np.repeat(end + np.arange(len(sets)), [len(each) for each in sets]).astype(np.int64)
    zero = np.zeros_like(when)
    found.append(np.stack([member, when, when + 1, zero, instance.size[member]], axis=1))
    return Turns(np.concatenate(found), moments, end)


def _between_blocks(
    instance: LmemPacking, pairs: tuple[tuple[int, int], ...], block: Array
) -> Array:
    """Return pairs of buffers that hold bytes, of different blocks."""
    found = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    keep = (instance.size[found] > 0).all(axis=1) & (block[found[:, 0]] != block[found[:, 1]])
    return np.asarray(found[keep])


def _ranked(rows: Array) -> tuple[Array, Array]:
    """Return rows with the ranks of their times, and the times, at least one."""
    moments, ranks = np.unique(rows[:, 1:3], return_inverse=True)
    rows = rows.copy()
    rows[:, 1:3] = ranks.reshape(-1, 2)
    return rows, moments if len(moments) else np.zeros(1, dtype=np.int64)


def _always(instance: LmemPacking, block: Array, rows: Array, span: int) -> tuple[Array, Array]:
    """Return rows with those of exclusive buffers over all of time, and pairs to keep apart.

    These are of others that never hold all of their bytes at once, though nobody may use them.
    """
    alone = np.array([i for i in instance.exclusive if instance.size[i] > 0], dtype=np.int64)
    zero = np.zeros_like(alone)
    last = zero + max(1, span - 1)
    whole = np.stack([alone, zero, last, zero, instance.size[alone]], axis=1)
    rows = np.concatenate([rows[~np.isin(rows[:, 0], alone)], whole])
    full = np.zeros(instance.n, dtype=bool)
    full[rows[rows[:, 4] - rows[:, 3] == instance.size[rows[:, 0]], 0]] = True
    rest = np.flatnonzero(~full & (instance.size > 0))
    pairs = np.stack([np.repeat(alone, len(rest)), np.tile(rest, len(alone))], axis=1)
    return rows, pairs[block[pairs[:, 0]] != block[pairs[:, 1]]]


def lanes(instance: LmemPacking, exempt: Array, looks: Looks) -> list[tuple[Array, Array]]:
    """Return sets without exempt pairs that have all others, as masks, shape (n,).

    With each set come those because of whom it is needed, also as a mask.  `exempt` are pairs of
    buffers, shape (pairs, 2).
    """
    if instance.period is None:
        i, j = exempt.T
        start, end = instance.start, instance.end
        exempt = exempt[np.maximum(start[i], start[j]) < np.minimum(end[i], end[j])]
    everyone = np.ones(instance.n, dtype=bool)
    if not len(exempt):
        return [(everyone, everyone)]
    both = np.concatenate([exempt, exempt[:, ::-1]])
    looks()
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    looks()
    number: dict[bytes, int] = {}
    kind = np.full(instance.n, -1)
    for row in np.split(both, np.flatnonzero(np.diff(both[:, 0])) + 1):
        kind[row[0, 0]] = number.setdefault(row[:, 1].tobytes(), len(number))
    looks()
    k, some = len(number), np.flatnonzero(kind >= 0)
    share = np.zeros((k, k), dtype=bool)
    share[kind[exempt[:, 0]], kind[exempt[:, 1]]] = True
    share |= share.T
    weight = np.bincount(kind[some], instance.size[some], k)
    if instance.period is None:
        begin, stop = np.full(k, 2**62), np.full(k, -(2**62))
        np.minimum.at(begin, kind[some], instance.start[some])
        np.maximum.at(stop, kind[some], instance.end[some])
        need = np.maximum(begin, begin[:, None]) < np.minimum(stop, stop[:, None])
    else:
        need = np.ones((k, k), dtype=bool)
    need &= ~share
    np.fill_diagonal(need, True)  # to be in a lane at all
    order, found = np.argsort(-weight, kind="stable"), []
    while need.any():
        looks()
        lane, active, free = np.zeros((3, k), dtype=bool)
        free[:] = True
        for wanted in (True, False):  # first those whom something is missing, with one another
            for c in order.tolist():
                missing = need[c] & (lane | (np.arange(k) == c)) if lane.any() else need[c]
                if free[c] and not lane[c] and (missing.any() or not wanted):
                    active[c] |= missing.any()
                    lane[c] = True
                    free &= ~share[c]
        need[np.ix_(lane, lane)] = False
        members = np.append(lane, True)[kind]
        found.append((members, np.append(active, False)[kind]))
    return found


def _clipped(rows: Array, windows: Array) -> Array:
    """Return what of some rows lies in any of some windows [start, stop), shape (windows, 2)."""
    if not len(windows):
        return rows[:0]
    windows = windows[np.argsort(windows[:, 0], kind="stable")]
    reach = np.maximum.accumulate(windows[:, 1])
    new = np.append(True, windows[1:, 0] > reach[:-1])
    begin = windows[new, 0]
    stop = reach[np.append(np.flatnonzero(new)[1:] - 1, len(reach) - 1)]
    first = np.searchsorted(stop, rows[:, 1], side="right")
    count = np.maximum(np.searchsorted(begin, rows[:, 2], side="left") - first, 0)
    found = np.repeat(rows, count, axis=0)
    at = np.arange(len(found)) - np.repeat(np.cumsum(count) - count - first, count)
    found[:, 1] = np.maximum(found[:, 1], begin[at])
    found[:, 2] = np.minimum(found[:, 2], stop[at])
    return found


def kept_apart(
    instance: LmemPacking, block: Array, rows: Array, apart: Array, looks: Looks
) -> list[list[int]]:
    """Return cliques, lists of buffers, that have all pairs kept apart that never meet otherwise.

    Exempt pairs are in no clique, and of a `block`, shape (n,), there is one buffer in each.
    `rows`, shape (pieces, 5), are what is held when, `apart`, shape (pairs, 2), buffers of
    different blocks.
    """
    # A time at which all bytes are held: those that share it meet in full, whatever else there is.
    full = rows[rows[:, 4] - rows[:, 3] == instance.size[rows[:, 0]]]
    start, stop = np.zeros((2, instance.n), dtype=np.int64)
    start[full[:, 0]], stop[full[:, 0]] = full[:, 1], full[:, 2]
    i, j = apart.T
    apart = apart[np.maximum(start[i], start[j]) >= np.minimum(stop[i], stop[j])]
    if not len(apart):
        return []
    from stagepack.instances.packing.normal_form.cover import clique_cover

    member = distinct(apart.ravel())
    place = np.full(instance.n, -1)
    place[member] = np.arange(len(member))
    pairs = place[apart]
    kept = np.unique(pairs.min(axis=1) * len(member) + pairs.max(axis=1))
    codes = kept
    if len(member) <= MOST_TOGETHER:
        start, stop = start[member], stop[member]
        meet = np.maximum(start, start[:, None]) < np.minimum(stop, stop[:, None])
        exempt = place[np.array(instance.exempt, dtype=np.int64).reshape(-1, 2)]
        exempt = exempt[(exempt >= 0).all(axis=1)]
        meet[exempt[:, 0], exempt[:, 1]] = meet[exempt[:, 1], exempt[:, 0]] = False
        meet &= block[member] != block[member][:, None]
        one, other = np.nonzero(np.triu(meet, 1))
        codes = np.union1d(kept, one * len(member) + other)
    low, high = np.divmod(codes, len(member))
    node, clique, _, _ = clique_cover(low, high, instance.size[member], looks)
    order = np.argsort(clique, kind="stable")
    sets = np.split(node[order], np.flatnonzero(np.diff(clique[order])) + 1)
    open_ = set(kept.tolist())
    found = []
    for each in sets:
        looks()
        rising = np.sort(each).astype(np.int64)
        inside = np.triu(rising[:, None] * len(member) + rising, 1).ravel()
        met = open_.intersection(inside.tolist())
        if met:
            open_ -= met
            found.append(member[rising].tolist())
    return found
