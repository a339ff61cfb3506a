"""Lower bounds without search.

There are three: the work of all layers divided equally among the devices, the most expensive span
that no cut may divide, and the most expensive of the necessary cuts.  A sample takes all the work,
on the fastest of devices, and all necessary cuts; tokens take the memory of all devices together,
and of each layer that of the largest.  Cost: O(n).  Source: the
usual bounds of chains-on-chains partitioning; spans and cuts are own work.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import assert_never

import numpy as np

from stagepack.evidence import SEARCHED, Evidence, witness
from stagepack.instances.pipeline import Objective
from stagepack.instances.pipeline.order import StageOrder
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import Array

MOST_WAYS, MOST_STAGES, MOST_TIMES = 100_000, 1_000_000, 20_000_000
"""Transitions of devices, stages, and these for all limits or states, verified in plain Python."""
UNITS, MOST_ROOMS = 64, 4
"""Equal parts of a limit, and layers, that are tried as units; rooms of devices that are parted."""


def filled(costs: RangeCosts, transfers: Iterable[int] = ()) -> Evidence:
    """Return the evidence that devices, filled up to a bound, end too early.

    `transfers` are those, in ticks, from which another limit on compute suffices, of the objective
    transfer-bounded.
    """
    instance, limits = costs.instance, list(transfers)
    others = instance.placed or instance.reduces or instance.alternatives
    if others or instance.objective is Objective.MOVES:
        return SEARCHED
    if StageOrder.refusal(instance) is not None or len(costs.order.source) > MOST_WAYS:
        return SEARCHED
    stashing = instance.training and bool(instance.stash.any())
    plain = instance.objective in (Objective.BOTTLENECK, Objective.HEADROOM)
    alike = not stashing and (instance.fewer_stages or costs.classes == 1)
    # Then stages that each take all they can suffice, one after the other.
    if costs.tabular or not alike or not plain:
        pairs = int(costs.allowed.sum()) ** 2
        stages = pairs * costs.classes * (min(costs.k, instance.microbatches) if stashing else 1)
        times = stages * len(limits)
        if instance.objective is Objective.LATENCY:
            times = pairs * len(costs.order.source)  # each adds to the tails of every state
        elif not costs.tabular:
            stages = min(stages, _tried(costs, MOST_STAGES))
            times = stages * len(limits)
        if stages > MOST_STAGES or times > MOST_TIMES:
            return SEARCHED
    if instance.objective is not Objective.TRANSFER_BOUNDED:
        return witness("fill")
    if instance.tolerance == 0:  # transfers are whole
        return witness("fill", transfers=[math.ceil(Fraction(t) / costs.scale) for t in limits])
    # A little less, within the tolerance, however ticks and the float are rounded.
    share, work = Fraction(instance.tolerance) / 1000, costs.compute_bound()
    less = (Fraction(t) - share * max(t, work) for t in limits)
    return witness("fill", transfers=[float(t / costs.scale) for t in less])


def _tried(costs: RangeCosts, most: int) -> int:
    """Return how many stages the verifier tries at most; above `most` if these are more.

    From any cut it tries ends that each send less than those between, in each state of devices.
    O(n log n).
    """
    each = len(costs.order.source) * int(costs.allowed.sum())
    longest = 1
    for row in costs.send[:, costs.allowed].tolist() if each <= most else ():
        falling: list[int] = []
        for sent in row:
            at = bisect_left(falling, -sent)
            falling[at : at + 1] = [-sent]
            if len(falling) * each > most:
                return most + 1
        longest = max(longest, len(falling))
    return longest * each


def work_bound(costs: RangeCosts) -> tuple[int, Evidence]:
    """Return a lower bound on the objective value, in ticks, and its evidence.  O(n log n)."""
    if costs.instance.placed:
        return counted(costs), SEARCHED
    return objective_bound(costs), filled(costs, [costs.transfer_bound() + costs.host])


def counted(costs: RangeCosts) -> int:
    """Return a lower bound, in ticks, for devices with several stages each.

    In whole units a span that no cut may split counts for as many as it holds, and a device takes
    no more than its limit holds.  Where no stage may be empty, the first and the last span are on
    known devices; where devices are alike, the largest is.  Of units, those just above an equal
    part of the limit say most (Fekete and Schepers 2001).  Nor do those with the most spans have
    room for the smallest ones (Haouari, Gharbi and Jemmali 2006).  O(spans * units) for each of
    O(log) limits.
    """
    floor = costs.compute_bound()
    if costs.rounding or not costs.instance.whole:
        return floor
    pace, base = paces(costs)
    spans = np.diff(base[np.flatnonzero(costs.allowed)])
    classes = costs.device_class.tolist()
    forced = [0] * costs.k
    if not costs.instance.fewer_stages and len(spans) > 1:
        table = costs.instance.stage_devices
        forced[table[0]] += int(spans[0])
        forced[table[-1]] += int(spans[-1])
        spans = spans[1:-1]
    elif costs.classes == 1:
        forced[0] = int(spans.max())
        spans = np.delete(spans, spans.argmax())
    sums = np.append(0, np.cumsum(np.sort(spans[spans > 0])))
    sizes, counts = np.unique(spans, return_counts=True)
    common = sizes[np.argsort(-sizes * counts)][:UNITS]

    def too_low(limit: int) -> bool:
        """Return whether in some unit devices take less than all within a limit."""
        rooms = np.array(
            [limit // pace[c] - taken for c, taken in zip(classes, forced, strict=True)]
        )
        if rooms.min() < 0 or _crowded(sums, rooms):
            return True
        parts = np.unique(rooms)[-MOST_ROOMS:, None] // np.arange(1, UNITS + 1) + 1
        units = np.unique([1, *common[common > 0].tolist(), *parts.ravel().tolist()]).tolist()
        return any((sizes // unit * counts).sum() > (rooms // unit).sum() for unit in units)

    low, high, step = floor, floor, 1
    while too_low(high):
        low, high, step = high + 1, high + step, 2 * step
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if too_low(middle) else (low, middle)
    return low


def _crowded(sums: Array, rooms: Array) -> bool:
    """Return whether spans, given by running sums of the smallest ones, are too many for rooms.

    Of N spans in m equal rooms, any h of these have together at least what they have where all have
    about as many.  The same holds without the smallest spans.  Other rooms take all they can.
    O(rooms) for each of O(log spans) numbers of spans left out.
    """
    values, counts = np.unique(rooms, return_counts=True)
    common = int(counts.argmax())
    room, m = int(values[common]), int(counts[common])
    others = np.delete(values, common), np.delete(counts, common)
    some = np.arange(1, m + 1)
    for without in [0, 1, 2, 3, *(2**at for at in range(2, len(sums).bit_length()))]:
        if without >= len(sums):
            break
        left = sums[without:] - sums[without]
        taken = np.searchsorted(left, others[0], side="right") - 1
        each, more = divmod(len(left) - 1 - int(taken @ others[1]), m)
        if each < 0:
            break
        if (left[some * each + np.minimum(some, more)] > some * room).any():
            return True
    return False


def paces(costs: RangeCosts) -> tuple[list[int], Array]:
    """Return ticks of a unit of work on each class, and running sums of work in that unit.

    The unit is the largest in which the work of all layers is whole; for exact ticks, otherwise
    the ticks of the first class.
    """
    totals = costs.prefix[:, -1].tolist()
    unit = math.gcd(*totals)
    if not unit or costs.rounding:
        return [1] * costs.classes, costs.prefix[0]
    return [total // unit for total in totals], costs.prefix[0] // (totals[0] // unit)


def objective_bound(costs: RangeCosts) -> int:
    """Return a lower bound on the objective value, in ticks, from what cuts and layers cost.  O(n).

    All devices together compute for all layers, and some stage meets the dearest of the cuts that
    cannot be spared; see :meth:`.RangeCosts.compute_bound` and :meth:`.RangeCosts.transfer_bound`.
    """
    compute = costs.compute_bound()
    match costs.instance.objective:
        case Objective.TRANSFER_BOUNDED:
            return compute + costs.transfer_bound() + costs.host
        case Objective.SUM:
            return max(compute, costs.transfer_bound()) + costs.host
        case Objective.OVERLAP:
            return max(compute, costs.cut_bound())
        case Objective.LATENCY:
            work = 0 if costs.instance.compute_table is not None else costs.prefix[:, -1].min()
            return max(0, int(work) + costs.transfers_bound() + costs.host - costs.rounding)
        case Objective.HEADROOM:
            return -_most_tokens(costs)
        case Objective.MOVES:  # where a layer is held, it need not move
            return int(np.diff(costs.prefix, axis=1).min(axis=0).sum())
        case Objective.BOTTLENECK:
            return compute
        case unknown:
            assert_never(unknown)


def _most_tokens(costs: RangeCosts) -> int:
    """Return an upper bound on the tokens whose KV cache fits on every device.  O(n)."""
    instance = costs.instance
    each, shared = instance.cached_bytes(1), instance.shared
    own, common = np.zeros_like(each), 0
    if instance.memory_table is None:
        own = sum(instance.exclusive.values(), own)
        common = int(shared.nbytes[np.unique(shared.key)].sum())
    capacity = [c or 0 for c in costs.capacity]
    room = sum(capacity[c] for c in costs.device_class.tolist()) - int(own.sum()) - common
    counted = each > 0
    largest = int(((max(capacity) - own[counted]) // each[counted]).min())
    most: int = max(instance.tokens, min(largest, room // int(each.sum())))
    return most


def dearest_span(costs: RangeCosts, pause: Callable[[], object]) -> tuple[int, int, int]:
    """Return a lower bound on the largest compute, receive and send together, in ticks, and why.

    Whatever no cut may split lies in some stage, which begins before it and ends after it, where
    that is cheapest; also returned are the two cuts for which that is dearest.  Needs costs that
    add up.  O(n), `pause` is called between passes.
    """
    cuts = np.flatnonzero(costs.allowed)
    pause()
    prefix = costs.prefix[costs.prefix[:, -1].argmin()][cuts]  # of the fastest devices
    pause()
    begun = prefix - costs.recv.min(axis=0)[cuts]
    pause()
    pause()
    ended = prefix + costs.send.min(axis=0)[cuts]
    pause()
    earliest = np.maximum.accumulate(begun)
    pause()
    latest = np.minimum.accumulate(ended[::-1])[::-1]
    pause()
    needed = latest[1:] - earliest[:-1]
    span = int(needed.argmax())
    first, last = int(begun[: span + 1].argmax()), span + 1 + int(ended[span + 1 :].argmin())
    return int(needed[span]) + costs.host, int(cuts[first]), int(cuts[last])


def cheap_cuts(costs: RangeCosts, most: int, pause: Callable[[], object]) -> Array:
    """Return about `most` of the cuts, the cheapest of equally many in a row, bool, (n + 1,).

    Cheap is what receives and sends little.  O(n).

    `pause` is called now and then; what it raises ends the look.
    """
    cuts = np.flatnonzero(costs.allowed)
    width = max(1, len(cuts) // most)
    pause()
    price = (costs.recv.min(axis=0) + costs.send.min(axis=0))[cuts]
    pause()
    rows = price[: len(cuts) // width * width].reshape(-1, width)
    chosen = np.zeros(costs.n + 1, dtype=bool)
    chosen[cuts[rows.argmin(axis=1) + width * np.arange(len(rows))]] = True
    chosen[[0, costs.n]] = True
    return chosen
