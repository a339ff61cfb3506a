"""What memory alone keeps in order, in every schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from stagepack.instances.profile import Array
from stagepack.instances.schedule.ancestors import Ancestors
from stagepack.instances.schedule.instance import PipelineSchedule

TOGETHER = 64
"""Stages of a device up to which their memory is compared pair by pair."""

COMPARED = 2**23
"""Microbatches of all such pairs together, up to which devices of several stages are looked at."""

PAIR = 200
"""Microbatches as which a pair counts in addition."""


TOLD = 2**16
"""Microbatches that are compared at a time: caches hold them."""

BLOCK, STAGE, ENTRY = 5_000, 500, 4
"""Steps of an effort that a comparison of many takes, a stage, and each of the entries."""


class Claims(NamedTuple):
    """Suppositions of :func:`memory_arcs`; int64 arrays, an entry for each."""

    # Of F of stage s and microbatch i, and of what has not ended of stage t and microbatch k.
    s: Array
    t: Array
    kind: Array
    # The device then holds fixed + i * each_i - k * each_k more than its limit.
    fixed: Array
    each_i: Array
    each_k: Array


def memory_arcs(
    instance: PipelineSchedule, look: Callable[[int], object] | None = None
) -> tuple[Array, Array]:
    """Return pairs (before, after) of operations that memory keeps in order.

    Let F of stage s and microbatch i start, and consider the stages of its device that lie on
    paths to or from s.  By then F of microbatches 0 .. i has run on the stages above s.  What has
    run F, whatever else, holds at least e, the least after F, B or W; what waits for its B holds
    g.

    1. Suppose B of stage t, s itself or below it, and microbatch k < i had not ended.  When the
       later of F(s, i) and F(t, k) starts, microbatches k .. i of s and of the stages above
       it, and microbatch k of the stages from s to t, have run F and wait for their B's, for
       these wait for B(t, k); the earlier microbatches of all of them hold at least e.
    2. Suppose B of stage t above s and microbatch k < i had not ended when F(s, i) starts.  Then
       microbatches k .. i of t and above wait for their B's; all others above s hold at least e.
    3. Suppose W of stage t, s itself or above it, and microbatch k < i had not ended.  Then
       microbatches k .. i of t hold at least the less of what they do after F and after B.

    Where that exceeds the limit, the supposition was wrong.  Of each kind the latest such k is
    taken, for operations of a kind run in order, and left out where an earlier F of s has to wait
    for it, too.  A device with one stage, whose B is whole and takes nothing, keeps within its
    limit if these arcs are kept, unless :func:`.reasons.reasons` knows that no order does.
    Devices with more than `TOGETHER` stages have none, nor have, where there are too many pairs,
    those with the most of them.  O(stages of a device ** 2 * m) each
    device; `look` is called several times a second with the steps since, and may raise.
    """
    look = look or (lambda _: None)
    none = np.zeros(0, dtype=np.int64)
    befores, afters = [none], [none]
    if instance.limit is not None and instance.training:
        claims = _claims(instance, look)
        many = instance.microbatches[claims.s]
        for m in np.unique(many).tolist():
            rows = np.flatnonzero(many == m)
            size = max(1, TOLD // m)
            for low in range(0, len(rows), size):
                part = Claims(*(column[rows[low : low + size]] for column in claims))
                for before, after in _arcs(instance, part, m, look):
                    befores.append(before)
                    afters.append(after)
    before = np.concatenate(befores)
    look(len(before))
    return before, np.concatenate(afters)


def _arcs(
    instance: PipelineSchedule, claims: Claims, m: int, look: Callable[[int], object]
) -> Iterator[tuple[Array, Array]]:
    """Yield the pairs of claims on stages of m microbatches, some microbatches after the others."""
    base, microbatches = instance.operations.base, instance.microbatches
    latest = np.full((len(claims.s), 1), -1)
    first = base[claims.t] + claims.kind * microbatches[claims.t]
    fixed, each_i, each_k = (column[:, None] for column in claims[3:])
    for low in range(1, m, TOLD):
        i = np.arange(low, min(m, low + TOLD))
        # What the supposition holds beyond the limit: excess - k * each_k.
        excess = fixed + i * each_i
        some = np.minimum(i - 1, -(-excess // np.maximum(each_k, 1)) - 1)
        all_or_none = np.where(excess - (i - 1) * each_k > 0, i - 1, -1)
        k = np.concatenate([latest, np.where(each_k > 0, some, all_or_none)], axis=1)
        most = np.maximum.accumulate(k, axis=1)
        claim, at = np.nonzero(k[:, 1:] > most[:, :-1])
        latest = most[:, -1:]
        yield first[claim] + k[claim, 1 + at], base[claims.s[claim]] + i[at]
        look(BLOCK + ENTRY * k.size)


def _few(instance: PipelineSchedule) -> Array:
    """Return on which devices all pairs of stages are to be compared, bool, shape (d,)."""
    stages = np.bincount(instance.devices)
    microbatches = np.bincount(instance.devices, instance.microbatches + PAIR)
    pairs = microbatches * stages
    by = np.argsort(pairs, kind="stable")
    affordable = np.zeros(instance.d, dtype=bool)
    affordable[by] = np.cumsum(pairs[by]) <= COMPARED
    return np.asarray((stages == 1) | ((stages <= TOGETHER) & affordable))


def _claims(instance: PipelineSchedule, look: Callable[[int], object]) -> Claims:
    """Return all suppositions.  O(stages of a device ** 2) each device."""
    assert instance.limit is not None
    f, b, w = instance.memory_forward, instance.memory_backward, instance.memory_weight
    waits = np.minimum(f, f + b)
    least = np.minimum(waits, f + b + w)
    few, alone = _few(instance), np.bincount(instance.devices) == 1
    own, low = f.copy(), least.copy()  # of a stage and those above it, on its device
    above = [np.stack([np.flatnonzero(alone[instance.devices])] * 2)]
    for device in np.flatnonzero(few & ~alone).tolist():
        ancestors = Ancestors.of(instance, look)
        stages = np.array(instance.stages_of(device))
        upper = np.stack([ancestors.above(s, stages) for s in stages.tolist()])
        upper |= stages[:, None] == stages
        own[stages], low[stages] = upper @ f[stages], upper @ least[stages]
        below, over = np.nonzero(upper)
        above.append(np.stack([stages[below], stages[over]]))
        look(BLOCK + STAGE * len(stages))
    s, t = np.concatenate(above, axis=1)  # t is s, or above it
    mine, rest, over = least[s], low[s] - least[s], s != t
    held = own[t] + rest - low[t]
    kinds = [
        (t, s, 1, own[s], own[t], own[t] - low[s]),
        (s[over], t[over], 1, (f[s] + held)[over], (mine + held)[over], (own - low)[t[over]]),
    ]
    if instance.split:
        held = rest + np.where(over, waits[t] - least[t], 0)
        mine = np.where(over, mine, waits[s])
        kinds.append((s, t, 2, f[s] + held, mine + held, waits[t] - least[t]))
    found = [np.broadcast_arrays(*columns) for columns in kinds]
    claims = Claims(*(np.concatenate(columns) for columns in zip(*found, strict=True)))
    return claims._replace(fixed=claims.fixed - instance.limit[instance.devices[claims.s]])
