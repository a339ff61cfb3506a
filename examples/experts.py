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

import math
import time
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

import stagepack as sp

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
    tried: set[tuple[int, ...]] = set()
    open_bounds: list[Fraction] = []

    def take(copies: list[int], share: float) -> bool:
        """Decide numbers of copies, once; return whether that is better."""
        nonlocal best, value
        if tuple(copies) in tried:
            return False
        tried.add(tuple(copies))
        found, proved = decided(loads, copies, devices, slots, share)
        if found is not None and largest(loads, slots, found) < value:
            best, value = found, largest(loads, slots, found)
            open_bounds.append(proved)
            return True
        open_bounds.append(proved)
        return False

    def left() -> float:
        return end - time.monotonic()

    copies, better = copies_of_eplb(loads, devices * slots), True
    take(copies, seconds / 4)
    while better and value > least and left() > seconds / 2:
        better = False
        for copies in neighbours(best, len(loads)):
            if value > least and left() > seconds / 2 and take(copies, seconds / 20):
                better = True
                break
    for copies in numbers(loads, devices, slots, value):
        if value == least or left() <= 0:
            return Answer(best, value, least)
        take(copies, left())
    return Answer(best, value, max(least, min([value, *open_bounds])))


def neighbours(placement: Placement, experts: int) -> Iterator[list[int]]:
    """Yield numbers of copies with one more of an expert on the fullest devices, one less elsewhere.

    In all directions, as loads are not told: whoever asks has few experts, or little time.
    """
    copies = [sum(device.count(expert) for device in placement) for expert in range(experts)]
    for more in range(experts):
        for less in range(experts):
            if more != less and copies[less] > 1:
                changed = list(copies)
                changed[more] += 1
                changed[less] -= 1
                yield changed


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
