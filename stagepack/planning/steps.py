"""Proofs of plans of chains: why no step is shorter, whatever the stages and their schedule.

Let w be the work of a microbatch on a stage, P that on the layers before it, and L the latencies of
the cuts before it.  The device of the stage works m w in all.  Training, it begins after the first
microbatch has passed the layers before (its forward pass, if W is split off and may come last), and
the last microbatch returns through them: a step takes P + m w, and L there and back (once if W is
split off).  Between its first F and its first B a microbatch goes to the end and back, while the
device has room for so many F's only: what these leave of that time it idles.  In inference a
microbatch passes all layers: a step takes all work, m - 1 times the largest w more, and the
latencies of all cuts.

Labels say which values below the bound stages can come to: after j stages that end at a cut, the
largest w (inference; 0 in training, where each stage is compared with the bound at once) and L.  Of
two labels of one cut the one that is larger in neither says all.  Where no label reaches the end,
no stages stay below the bound.  Devices count as the largest and the fastest of them, cuts as
crossed by the fastest links: both only make steps shorter.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import accumulate

from stagepack.contracts import Number
from stagepack.instances.pipeline.check import stage_memory
from stagepack.instances.pipeline.data import PartitionData
from stagepack.instances.profile import Link

MOST = 2_000_000
"""Stages that labels are extended by."""

Label = tuple[Fraction, int]


def shortest_step_is(
    instance: PartitionData, microbatches: int, bound: int, *, split: bool, resident: bool
) -> bool:
    """Return whether no stages and no schedule of them take fewer cycles a step than a bound.

    Parameters
    ----------
    instance : PartitionData
        The chain.
    microbatches : int
        Of a step.
    bound : int
        Cycles.
    split : bool
        Whether the backward pass is split into B and W.
    resident : bool
        Whether a device holds its stage all the time, with what one microbatch keeps.
    """
    if instance.compute_table is not None or microbatches < 1:
        return False
    speed = max(Fraction(str(device.speed)) for device in instance.cluster.devices)
    cuts = [c for c, allowed in enumerate(instance.allowed_cuts.tolist()) if allowed]
    work = _before(instance.cycles.tolist(), cuts, speed)
    ahead = _before(instance.forward.tolist(), cuts, speed) if split else work
    lag = [0, *_latencies(instance, cuts), 0]
    trips = 1 if split or not instance.training else 2
    idle = _idle(instance, microbatches, speed, split) if resident else lambda *_: 0
    last, left = len(cuts) - 1, MOST
    labels: dict[int, list[Label]] = {0: [(Fraction(0), 0)]}
    for stage in range(1, min(instance.k, last) + 1):
        found: dict[int, list[Label]] = {}
        more = 0 if instance.fewer_stages else max(0, instance.k - stage - 1)
        beyond = sum(sorted(lag[1:-1])[:more])
        for at, known in labels.items():
            for longest, before in known:
                for end in range(at + 1, last + 1):
                    own = work[end] - work[at]
                    if instance.training:
                        value = ahead[at] + microbatches * own + trips * before
                    else:
                        own = max(own, longest)
                        value = work[-1] + (microbatches - 1) * own + before
                    if value >= bound:
                        break
                    if value + idle(cuts[at], cuts[end], lag[end] + beyond) >= bound:
                        continue
                    left -= 1
                    if left < 0:
                        return False
                    kept = Fraction(0) if instance.training else own
                    found.setdefault(end, []).append((kept, before + lag[end]))
        if last in found and (instance.fewer_stages or stage == instance.k):
            return False
        labels = {at: _least(some) for at, some in found.items()}
    return not labels.get(last)


def _idle(
    instance: PartitionData, microbatches: int, speed: Fraction, split: bool
) -> Callable[[int, int, int], Number | Fraction]:
    """Return what says how long the device of layers [first, end) idles; forever without room.

    Told of the latencies behind it.
    """
    memories = [device.memory for device in instance.cluster.devices]
    known = [memory for memory in memories if memory is not None]
    if len(known) < len(memories) or instance.memory_table is not None:
        return lambda *_: 0
    forward, backward, stash = (
        list(accumulate(map(Fraction, column.tolist()), initial=Fraction(0)))
        for column in (instance.forward, instance.backward, instance.stash)
    )

    @functools.cache
    def idle(first: int, end: int, away: int) -> Number | Fraction:
        left = max(known) - stage_memory(instance, first, end, 0, 0)
        each = stash[end] - stash[first] + int(instance.kept_bytes[first])
        if left < each * instance.training:
            return math.inf
        if not instance.training or each == 0:
            return 0
        flying = min(microbatches, left // each)
        back = (backward[-1] - backward[end]) / (2 if split else 1)
        trip = (forward[-1] - forward[first] + back) / speed + 2 * away
        while_away: Fraction = trip - flying * (forward[end] - forward[first]) / speed
        own = (backward[end] - backward[first]) / (2 if split else 1) / speed
        turns = -(-microbatches // flying) * (trip + own)
        work = (forward[end] - forward[first] + backward[end] - backward[first]) / speed
        return max(while_away, turns - microbatches * work, Fraction(0))

    return idle


def _least(labels: list[Label]) -> list[Label]:
    """Return the labels that no other one is at most as large as in both."""
    kept: list[Label] = []
    for label in sorted(labels):
        if not kept or label[1] < kept[-1][1]:
            kept.append(label)
    return kept


def _before(cycles: list[float], cuts: list[int], speed: Fraction) -> list[Fraction]:
    """Return the work before each cut on the fastest device."""
    before = list(accumulate(map(Fraction, cycles), initial=Fraction(0)))
    return [before[c] / speed for c in cuts]


def _latencies(instance: PartitionData, cuts: list[int]) -> Iterator[int]:
    """Yield how long a tensor takes across each inner cut at least, in whole cycles."""
    clock = instance.cluster.clock
    ends = []
    for name, nbytes in (("send", instance.out_bytes), ("recv", instance.in_bytes)):
        links: set[Link | None] = {getattr(one, name) for one in instance.cluster.devices}
        table = getattr(instance, f"{name}_cycles")
        if table is not None:
            ends.append([math.ceil(min(column)) for column in table.T.tolist()])
        elif None in links:
            ends.append([0] * (instance.n + 1))
        else:
            paces = [(one.idle, one.GBps * 2**30 / clock) for one in links if one is not None]
            ends.append(
                [
                    min(math.ceil(idle + size / pace) for idle, pace in paces)
                    for size in nbytes.tolist()
                ]
            )
    for c in cuts[1:-1]:
        yield max(end[c] for end in ends)
