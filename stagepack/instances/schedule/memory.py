"""What memory alone keeps in order, in every schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from stagepack.instances.profile import Array
from stagepack.instances.schedule.instance import PipelineSchedule

TOGETHER = 64
"""Stages of a device up to which their memory is compared pair by pair."""

COMPARED = 2**23
"""Microbatches of all such pairs together, up to which devices of several stages are looked at."""

PAIR = 200
"""Microbatches as which a pair counts in addition."""


TOLD = 2**16
"""Microbatches that are compared at a time: caches hold them."""

LOOK = 2_000_000
"""Steps between two looks: a fraction of a tenth of a second."""

CLAIM = 1_800
"""Steps of an effort that a comparison takes, beside what its microbatches do."""


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
    befores: list[Array] = []
    afters: list[Array] = []
    steps = 0
    if instance.limit is not None and instance.training:
        few = _few(instance)[instance.devices]
        above = _above(instance, few)
        for s in np.flatnonzero(few).tolist():
            m = int(instance.microbatches[s])
            for t, kind, fixed, each_i, each_k in _claims(instance, s, above):
                steps += CLAIM
                latest = -1
                for low in range(1, m, TOLD):
                    i = np.arange(low, min(m, low + TOLD))
                    steps += 8 * len(i)
                    if look is not None and steps > LOOK:
                        look(steps)
                        steps = 0
                    # held(i, k) = fixed + i * each_i - k * each_k is what the supposition holds
                    excess = fixed + i * each_i - int(instance.limit[instance.devices[s]])
                    if each_k > 0:
                        k = np.minimum(i - 1, -(-excess // each_k) - 1)
                    else:
                        k = np.where(excess - (i - 1) * each_k > 0, i - 1, -1)
                    most = np.maximum.accumulate(np.concatenate([[latest], k]))
                    row, latest = k > most[:-1], int(most[-1])
                    base, microbatches = instance.operations.base, instance.microbatches
                    befores.append(base[t] + kind * microbatches[t] + k[row])
                    afters.append(base[s] + i[row])
    none = [np.zeros(0, dtype=np.int64)]
    return np.concatenate(befores + none), np.concatenate(afters + none)


def _few(instance: PipelineSchedule) -> Array:
    """Return on which devices all pairs of stages are to be compared, bool, shape (d,)."""
    stages = np.bincount(instance.devices)
    microbatches = np.bincount(instance.devices, instance.microbatches + PAIR)
    pairs = microbatches * stages
    by = np.argsort(pairs, kind="stable")
    affordable = np.zeros(instance.d, dtype=bool)
    affordable[by] = np.cumsum(pairs[by]) <= COMPARED
    return np.asarray((stages == 1) | ((stages <= TOGETHER) & affordable))


def _above(instance: PipelineSchedule, few: Array) -> list[frozenset[int]]:
    """Return for each stage those of its device that are above it, where these are `few`."""
    found: list[frozenset[int]] = [frozenset()] * instance.p
    for device in range(instance.d if instance.d < instance.p else 0):
        stages = np.array(instance.stages_of(device))
        if len(stages) > 1 and few[stages[0]]:
            for s in stages.tolist():
                found[s] = frozenset(stages[instance.above(s, stages)].tolist())
    return found


def _claims(
    instance: PipelineSchedule, s: int, above: list[frozenset[int]]
) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield (t, kind, fixed, each_i, each_k) of the suppositions of :func:`memory_arcs`."""
    same = frozenset(instance.stages_of(int(instance.devices[s])))
    g, least = {}, {}
    for a in same:
        f, b, w = instance.changes(a)
        g[a] = f
        least[a] = min(f, f + b, f + b + w) if instance.split else min(f, f + b)
    upper = (above[s] | {s}) & same
    own = sum(g[a] for a in upper)
    for t in sorted(same):
        if t == s or s in above[t]:
            between = ((above[t] | {t}) & same) - upper
            held = sum(g[a] - least[a] for a in upper) - sum(least[a] for a in between)
            yield t, 1, own + sum(g[a] for a in between), own, held
        if t in above[s]:
            waiting = (above[t] | {t}) & same
            held = sum(g[a] if a in waiting else least[a] for a in upper - {s})
            excess = sum(g[a] - least[a] for a in waiting)
            yield t, 1, held + g[s], held + least[s], excess
        if t in upper and instance.split:
            f, b, _ = instance.changes(t)
            waits = min(f, f + b)
            held = sum(waits if a == t else least[a] for a in upper - {s})
            mine = waits if t == s else least[s]
            yield t, 2, held + g[s], held + mine, waits - least[t]
