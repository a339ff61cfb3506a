"""Orders of stages that go over the devices and back: V's, waves, and chains in two directions.

Cost: O(n log(n)) for n operations.  Sources: those of the rules in :mod:`.rules`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stagepack.heuristics.schedule.patterns import (
    B,
    F,
    Look,
    Moments,
    Pattern,
    Runs,
    W,
    columns,
    written,
)
from stagepack.instances.profile import Array
from stagepack.instances.schedule import PipelineSchedule

MOST_SLOTS = 1_000_000
"""Slots of all devices up to which a pattern is squeezed: tens of megabytes, and a tenth
of a second."""

# ---------------------------------------------------------------------- stages in a V


def folded(instance: PipelineSchedule) -> str:
    """Return why not: stages are not in the shape of a V."""
    d = instance.d
    if instance.devices.tolist() != [*range(d), *reversed(range(d))]:
        return "needs two stages a device in the shape of a V: 0, 1, .., d-1, d-1, .., 1, 0"
    return ""


def zb_v(instance: PipelineSchedule, look: Look) -> Moments:
    """Yield the order of a V in the memory of 1F1B, rank by rank."""
    d, m = instance.d, int(instance.microbatches[0])
    total = max(m, 2 * d - 1)  # what exceeds m is left out where it comes up
    devices: list[Runs] = []
    for rank in range(d):
        down, up = rank, 2 * d - 1 - rank
        full_down, full_up = [((s, B), (s, W)) for s in (down, up)]
        devices.append(
            [
                (2 * (d - rank) - 1, ((down, F),)),
                (rank, ((up, F), (down, F))),
                (d - rank, ((up, F), *full_up)),
                (total - d, ((down, F), *full_down, (up, F), *full_up)),
                (rank, ((down, B), (up, B))),
                (d - rank, full_down),
                (total, ((up, W),)),
                (total, ((down, W),)),
            ]
        )
    yield written(instance, look, devices)


def few_slots(instance: PipelineSchedule) -> str:
    """Return why not: squeezing would take too much memory."""
    slots = instance.d * (8 * int(instance.microbatches[0]) + 7 * instance.d)
    if slots > MOST_SLOTS:
        return f"is for patterns of up to {MOST_SLOTS:,} slots, not {slots:,}"
    return ""


def v_half(instance: PipelineSchedule, look: Look) -> Moments:
    """Yield the order whose pattern holds half of what 1F1B does."""
    d = instance.d
    rank, wait = np.arange(d), 0 if d % 2 else 3
    down, up = 2 * rank, 3 * d - rank - 2
    back = 3 * d + wait + 2 * rank - 1, 6 * d + wait - rank - 2
    yield _squeezed(instance, look, down, up, *back)


def v_min(instance: PipelineSchedule, look: Look) -> Moments:
    """Yield the order whose pattern holds a third of what 1F1B does, the least there can be."""
    d = instance.d
    rank, wait = np.arange(d), 0 if d % 3 else 2
    yield _squeezed(
        instance, look, rank, 2 * d - 1 - rank, 2 * d + wait + rank, 4 * d + wait - 1 - rank
    )


def v_1f1b(instance: PipelineSchedule, look: Look) -> Moments:
    """Yield the order whose pattern, of B and W in one, holds two thirds of what 1F1B does."""
    d = instance.d
    rank, turn = np.arange(d), np.arange(2 * d)
    wait = 2 * d + (0 if d % 3 else 3)
    back = wait + 2 * turn + 3 * ((-(d + 2) % 3 + turn) // 3)
    yield _squeezed(
        instance, look, rank, 2 * d - 1 - rank, back[:d], back[: d - 1 : -1], pairs=True
    )


def _squeezed(
    instance: PipelineSchedule,
    look: Look,
    down: Array,
    up: Array,
    back_up: Array,
    back_down: Array,
    *,
    pairs: bool = False,
) -> Array:
    """Return moments of a pattern of six slots, of which the ramps are squeezed.

    `down`, `up`, `back_up` and `back_down`, int64 (d,), are the slots in which each device runs
    F of its stage on the way down, then up, and B of that, and of the one on the way down, of the
    first microbatch.  `pairs`: a B and its W are two slots together.
    """
    from stagepack.heuristics.schedule.squeezing import Squeezed  # compiled code, loaded when used

    begin = np.stack([np.append(down, up[::-1]), np.append(back_down, back_up[::-1])], axis=1)
    slots = Squeezed(begin, 6, int(instance.microbatches[0]), look)
    moment = slots.in_pairs() if pairs else slots.apart()
    return np.asarray(moment[:, : len(instance.kinds)].ravel())


# ---------------------------------------------------------------------- two ways, and waves


def at_least_the_stages(instance: PipelineSchedule) -> str:
    """Return why not: microbatches are too few."""
    m, p = int(instance.microbatches.min()), 2 * instance.d // _ways(instance)
    if m < p:
        return f"needs as many microbatches as stages, {p:,}, not {m:,}"
    return ""


def _ways(instance: PipelineSchedule) -> int:
    """Return the chains of stages in order, all as long, that there are; 0 where stages differ."""
    ends = instance.ends
    ways = instance.p - len(ends)
    if ways < 1 or instance.p % ways or (ends[:, 1] - ends[:, 0] != 1).any():
        return 0
    each = instance.p // ways
    breaks = np.setdiff1d(np.arange(instance.p - 1), ends[:, 0])
    return ways if (breaks % each == each - 1).all() else 0


def zigzag(ways: int, passes: int, words: str) -> Callable[[PipelineSchedule], str]:
    """Return a test for chains that pass over the devices and back; `words` say which.

    One chain makes a multiple of `passes`.  Of two `ways`, each makes so many, from opposite ends
    of an even number of devices, all with as many microbatches.
    """

    def reason(instance: PipelineSchedule) -> str:
        d, each, own = instance.d, max(1, instance.p // ways), np.arange(instance.p)
        place = own % each % (2 * d)
        devices = np.minimum(place, 2 * d - 1 - place)
        devices = np.where(own < each, devices, d - 1 - devices)
        right = _ways(instance) == ways and each % (passes * d) == 0
        if ways == 2:
            alike = (instance.microbatches == instance.microbatches[0]).all()
            right = right and d % 2 == 0 and each == passes * d and bool(alike)
        return "" if right and (instance.devices == devices).all() else f"needs {words}"

    return reason


def dual_pipe(instance: PipelineSchedule, look: Look) -> Moments:
    """Yield the order of DualPipe: F of one way and B of the other in turn.

    The devices of a V, or those of two chains in opposite directions, of which a device and its
    mirror image do the same: half as many as there are.
    """
    p, m = instance.p, instance.microbatches.tolist()
    d = p // 2 // _ways(instance)
    pairs = [(s, p - 1 - s) for s in range(d)]
    if _ways(instance) == 2:  # the early half of each chain meets the late half of the other
        pairs += [(p // 2 + s, p // 2 - 1 - s) for s in range(d)]
    yield written(
        instance, look, [_dual(down, up, k % d, d, m[down]) for k, (down, up) in enumerate(pairs)]
    )


def _dual(down: int, up: int, rank: int, d: int, m: int) -> Runs:
    """Return what the device of stages `down` and `up` runs, the `rank`-th of d, m of each."""
    below = d - 1 - rank
    full_down, full_up = [((s, B), (s, W)) for s in (down, up)]
    # From the middle of what follows the steady state on, W's wait: first those of B's that came
    # first.
    early, first = divmod(rank + 1, 2)
    rest = rank + 1 - early - first
    late = [(down, W)] * first + [(up, W), (down, W)] * rest + [(down, W)] * below
    return [
        (2 * below, ((down, F),)),
        (rank + 1, ((down, F), (up, F))),
        (below, (*full_up, (up, F))),
        (m - 2 * d + rank + 1, ((down, F), *full_up, (up, F), *full_down)),
        (below, (*full_up, (up, F), *full_down)),
        (early, (*full_up, *full_down)),
        (first, (*full_up, (down, B))),
        (rest, ((up, B), (down, B))),
        *((1, (w, (down, B))) for w in late[:below]),
        *((1, (w,)) for w in late[below:]),
    ]


def waves(instance: PipelineSchedule, look: Look) -> Moments:
    """Yield the order in which a group of microbatches fills every other slot, there and back.

    On the k-th of L stages of a way, F of the i-th microbatch of a group has slot k + 2 i, and B
    slot 2 L - 1 - k + 2 i.  With as many microbatches as devices in a group, of both ways together,
    no two of a device meet, and it is never idle between.
    """
    ways = _ways(instance)
    each = instance.p // ways
    place = np.arange(instance.p) % each
    begin = columns(2 * place, 2 * (2 * each - 1 - place), 2 * (2 * each - 1 - place) + 1)
    yield Pattern(begin, 4, instance.d // ways, 4 * each).moments(instance, look)
