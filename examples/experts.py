"""Experts of a mixture on devices: which are replicated, and which device holds which.

An expert has a load, and its copies share it evenly.  A device has so many slots, a copy takes one;
what counts is the largest load of a device.  EPLB, DeepSeek's load balancer, is greedy: it copies
the expert with the most load a copy until all slots are used, and then puts copies, the heaviest
first, on the device with the least load that has room.

For given numbers of copies, Stagepack's graph partition says the rest: nodes without edges, of one
byte each, on devices of as many bytes as they have slots.  Here the numbers are searched around it,
from those of EPLB on, so that the answer is never worse; where few are left that might be better,
all of them are decided, and the answer is proved.

    python examples/experts.py
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

import stagepack as sp

FEW = 8
"""Experts that are looked at, of the hottest and of the coldest."""
Placement = list[list[int]]
"""Of each device: the experts of which it holds a copy."""


class Answer(NamedTuple):
    """A placement, its largest load, and what none is below."""

    placement: Placement
    value: Fraction
    bound: Fraction

    @property
    def proved(self) -> bool:
        """Whether nothing is better."""
        return self.value == self.bound


def largest(loads: Sequence[int], slots: int, placement: Placement) -> Fraction:
    """Return the largest load of a device; refuse a placement without some expert, or too full."""
    held = [expert for device in placement for expert in device]
    if set(held) != set(range(len(loads))):
        raise ValueError("some expert is on no device, or there is none of that number")
    if max(map(len, placement)) > slots:
        raise ValueError("a device holds more than it has slots")
    share = [Fraction(load, held.count(expert)) for expert, load in enumerate(loads)]
    return max(sum((share[expert] for expert in device), Fraction(0)) for device in placement)


# ---------------------------------------------------------------------- EPLB


def copies_of_eplb(loads: Sequence[int], total: int) -> list[int]:
    """Return how many copies of each expert EPLB makes, so many in all."""
    copies = [1] * len(loads)
    for _ in range(total - len(loads)):
        most = max(range(len(loads)), key=lambda e: (Fraction(loads[e], copies[e]), -e))
        copies[most] += 1
    return copies


def pack(loads: Sequence[int], copies: Sequence[int], devices: int, slots: int) -> Placement:
    """Return where EPLB puts copies: the heaviest first, where the least load is."""
    placement: Placement = [[] for _ in range(devices)]
    held = [Fraction(0)] * devices
    every = [expert for expert, many in enumerate(copies) for _ in range(many)]
    for expert in sorted(every, key=lambda e: -Fraction(loads[e], copies[e])):
        free = [d for d in range(devices) if len(placement[d]) < slots]
        device = min(free, key=lambda d: held[d])
        placement[device].append(expert)
        held[device] += Fraction(loads[expert], copies[expert])
    return placement


def eplb(loads: Sequence[int], devices: int, slots: int) -> Placement:
    """Return the placement of EPLB, where all devices are in one node."""
    return pack(loads, copies_of_eplb(loads, devices * slots), devices, slots)


# ---------------------------------------------------------------------- bounds


def bound(loads: Sequence[int], devices: int, slots: int) -> Fraction:
    """Return what no placement is below, whatever is replicated.

    An equal share of all; and the least load at which copies that are no heavier find slots: it is
    some load shared among some number of copies.
    """
    shares = sorted({Fraction(w, r) for w in loads if w for r in range(1, devices * slots + 1)})
    low, high = 0, len(shares) - 1
    while low < high:
        middle = (low + high) // 2
        needed = sum(max(1, math.ceil(w / shares[middle])) for w in loads)
        low, high = (low, middle) if needed <= devices * slots else (middle + 1, high)
    heaviest = shares[low] if shares else Fraction(0)
    return max(Fraction(sum(loads), devices), heaviest)


def bound_of(loads: Sequence[int], copies: Sequence[int], devices: int, slots: int) -> Fraction:
    """Return what no placement of so many copies is below.

    The i heaviest are on devices of their own, which hold the lightest besides where slots must be
    used, and one of these no less than the mean; or two of them are on one device.
    """
    every = sorted(Fraction(w, r) for w, r in zip(loads, copies, strict=True) for _ in range(r))
    light = [Fraction(0), *itertools.accumulate(every)]
    heavy = every[::-1]
    best, unused = Fraction(sum(loads), devices), devices * slots - len(every)
    for i in range(1, min(devices, len(every)) + 1):
        others = min(len(every) - i, max(0, i * (slots - 1) - unused))
        apart = (sum(heavy[:i], Fraction(0)) + light[others]) / i
        together = 2 * heavy[i - 1] + light[max(0, slots - 2 - unused)]
        best = max(best, min(apart, together) if i > 1 else apart)
    return max(best, sum(heavy[devices - 1 : devices + 1])) if len(heavy) > devices else best


def numbers(
    loads: Sequence[int], devices: int, slots: int, below: Fraction
) -> Iterator[list[int]]:
    """Yield all numbers of copies that might do with less than `below` a device."""
    least = [max(1, math.floor(w / below) + 1) if below else 1 for w in loads]
    spare = devices * slots - sum(least)
    if spare < 0:
        return

    def given(first: list[int], left: int) -> Iterator[list[int]]:
        if len(first) == len(loads):
            yield first
            return
        for more in range(left + 1):
            yield from given([*first, least[len(first)] + more], left - more)

    yield from given([], spare)


# ---------------------------------------------------------------------- the search


def decided(
    loads: Sequence[int], copies: Sequence[int], devices: int, slots: int, seconds: float
) -> tuple[Placement | None, Fraction]:
    """Return the best placement found of so many copies, and what none of them is below."""
    every = [expert for expert, many in enumerate(copies) for _ in range(many)]
    unit = math.lcm(*copies)
    graph = sp.GraphPartition.from_arrays(
        [loads[expert] * unit // copies[expert] for expert in every],
        accelerators=devices,
        memory=np.ones(len(every), dtype=int),
        capacity=slots,
        contiguous=False,
    )
    result = sp.solve(graph, time_limit=max(0.01, seconds))
    proved = Fraction(0 if result.bound is None else result.bound) / unit
    if result.solution is None:
        return None, proved
    placement: Placement = [[] for _ in range(devices)]
    for expert, device in zip(every, result.solution.assignment.tolist(), strict=True):
        placement[device].append(expert)
    return placement, proved


def place(loads: Sequence[int], devices: int, slots: int, seconds: float = 10) -> Answer:
    """Return the best placement found in so many seconds: that of EPLB, or a better one."""
    if len(loads) > devices * slots:
        raise ValueError("there are more experts than slots")
    end = time.monotonic() + seconds
    best = eplb(loads, devices, slots)
    value, least = largest(loads, slots, best), bound(loads, devices, slots)
    known: dict[tuple[int, ...], Fraction] = {}

    def take(copies: list[int], most: float) -> bool:
        """Decide numbers of copies unless they can be no better; return whether they are."""
        nonlocal best, value
        before = known.get(tuple(copies), bound_of(loads, copies, devices, slots))
        known[tuple(copies)] = before
        seconds = min(most, end - time.monotonic())
        if before >= value or seconds <= 0:
            return False
        found, proved = decided(loads, copies, devices, slots, seconds)
        known[tuple(copies)] = max(before, proved)
        worth = value if found is None else largest(loads, slots, found)
        if found is None or worth >= value:
            return False
        best, value = found, worth
        return True

    take(copies_of_eplb(loads, devices * slots), seconds / 4)
    half = time.monotonic() + seconds / 2
    better = True
    while better and value > least and time.monotonic() < half:
        changes = neighbours(loads, best, slots, value)
        better = any(take(copies, seconds / 20) for copies in changes if time.monotonic() < half)
    for copies in numbers(loads, devices, slots, value):
        take(copies, seconds)
        if value == least or time.monotonic() > end:
            return Answer(best, value, least)
    return Answer(best, value, max(least, min([value, *known.values()])))


def neighbours(
    loads: Sequence[int], placement: Placement, slots: int, value: Fraction
) -> list[list[int]]:
    """Return numbers of copies with one more of an expert and one less of another.

    Those that might be better than `value`, of the hottest and the coldest experts; first what EPLB
    would pack best.
    """
    copies = [sum(device.count(expert) for device in placement) for expert in range(len(loads))]
    found = []
    several = [e for e, many in enumerate(copies) if many > 1]
    hot = sorted(range(len(loads)), key=lambda e: -Fraction(loads[e], copies[e]))[:FEW]
    cold = sorted(several, key=lambda e: Fraction(loads[e], copies[e] - 1))[:FEW]
    for more, less in itertools.product(hot, cold):
        changed = list(copies)
        changed[more] += 1
        changed[less] -= 1
        if more != less and Fraction(loads[less], changed[less]) < value:
            packed = largest(loads, slots, pack(loads, changed, len(placement), slots))
            found.append((packed, changed))
    return [changed for _, changed in sorted(found)]


LAYERS = (
    [90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86],
    [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27],
)
"""The loads of EPLB's own example: two layers of twelve experts."""


def main() -> None:
    """Place EPLB's own example on eight devices of two slots, and say what both find."""
    for layer, loads in enumerate(LAYERS):
        greedy = largest(loads, 2, eplb(loads, 8, 2))
        found = place(loads, 8, 2)
        said = "optimal" if found.proved else f"at least {float(found.bound):.2f}"
        print(f"layer {layer}: EPLB {float(greedy):.2f}, here {float(found.value):.2f} ({said})")
        for device, experts in enumerate(found.placement):
            print(f"  device {device}: experts {', '.join(map(str, experts))}")


if __name__ == "__main__":
    main()
