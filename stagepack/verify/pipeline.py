"""Proofs of chains: why no partition is better, or none fits.

``fill``: no partition has all its stages below the bound.  Tails of the chain grow stage by stage,
with every device that may come next; kept are the cuts where a tail of so many stages may begin.
Once no tail of a whole pipeline begins at cut 0, the claim is shown.

First every stage takes all layers that fit by their memory and compute: without tables a part of
what fits also fits, so no tail begins before the one whose stages each take as much as they can.  A
stage may be empty here, which only adds partitions, and what crosses cuts is free.  Where this does
not suffice, all stages that fit are tried, if they are not too many.  Of two ends the earlier one,
where it sends no more, has all the stages of the later one that begin before it, without tables.

For compute plus transfer, evidence says ``transfers`` t_1 < t_2 < ...: partitions of a transfer in
[t_i, t_(i+1)) and of a sum below the bound B compute for less than B - t_i.  Filling with both
limits refutes them.  Any numbers will do: between 0 and B they leave nothing out.

``count``: devices with several stages each, wherever these are placed, have no room for all layers.
In whole units ``unit``, spans that no cut may split count for as many as they hold, rounded down,
and a device takes no more than what is below the bound holds.  Where no stage may be empty, the
first and the last span take room of the devices of the first and the last stage.

What a stage costs is what the checker of partitions says; here it is added up exactly.  Where
objectives are sums of floating-point numbers, the tolerance of the instance covers their rounding.
Not used is what says nothing of partitions: names, the graph of which the chain is an order, what
schedules keep.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cache, partial
from itertools import accumulate, pairwise, product
from typing import TYPE_CHECKING, Any, NamedTuple

from stagepack.evidence import Proof
from stagepack.verify.rules import Claimed, Rules, UnprovedError, defined, exact

if TYPE_CHECKING:
    from stagepack.instances.pipeline.data import PartitionData

MOST_WAYS, MOST_STAGES = 400_000, 1_000_000
"""Ways to place one more stage, of all choices of devices; stages that are tried."""

State = tuple[int, tuple[int, ...]]
"""How many devices a tail has passed, and what else matters of them."""


class Way(NamedTuple):
    """How a tail grows: by a stage on a device, or, without one, by leaving a device out.

    Stages are counted from this one on, as far as they matter to its memory.
    """

    tail: State
    longer: State
    device: int | None
    stages: int


class Limits(NamedTuple):
    """What the cost of a stage is below, and its transfers, where they count by themselves."""

    cost: Fraction | float
    transfer: Fraction | float


def fill(instance: PartitionData, evidence: Mapping[str, Any], claimed: Claimed) -> None:
    """Show that partitions below the bound end too early."""
    chain = _Chain(instance, claimed)
    few = chain.last < instance.k and not instance.fewer_stages
    if few or not set(instance.fixed_cuts) <= set(chain.cuts):
        return
    bound = math.inf if claimed.bound is None else _above(instance, claimed.bound)
    steps = {exact(t) for t in evidence.get("transfers", ())}
    counted = steps if chain.objective == "transfer-bounded" else ()
    for least, above in pairwise([0, *sorted(t for t in counted if 0 < t < bound), bound]):
        chain.refute(Limits(bound - least, above))


def count(instance: PartitionData, evidence: Mapping[str, Any], claimed: Claimed) -> None:
    """Show that devices within the bound have no room for all layers, counted in units."""
    numbers = [exact(number) for number in evidence.get("unit", ())]
    if not instance.placed or claimed.bound is None or len(numbers) != 2 or min(numbers) <= 0:
        raise UnprovedError("no bound of devices with several stages, or no unit above 0")
    unit, bound = Fraction(*numbers), _above(instance, claimed.bound)
    running = [Fraction(0), *accumulate(map(Fraction, instance.cycles.tolist()))]
    spans = [running[b] - running[a] for a, b in pairwise(_allowed_cuts(instance))]
    rooms = [bound * Fraction(str(device.speed)) for device in instance.cluster.devices]
    if not instance.fewer_stages and len(spans) > 1:
        for end in (0, -1):
            rooms[instance.stage_devices[end]] -= spans.pop(end)
    places = sum(math.ceil(room / unit) - 1 for room in rooms)
    if min(rooms) > 0 and sum(span // unit for span in spans) <= places:
        raise UnprovedError("the devices have room for all layers")


def _above(instance: PartitionData, bound: Fraction) -> Fraction:
    """Return what is above all figures that, rounded as objectives are, are below a bound."""
    if instance.tolerance > 0 or bound.denominator == 1:
        return bound
    less = Fraction(math.nextafter(float(bound), -math.inf))
    return (less + bound) / 2 + Fraction(1, 2**200)


class _Chain:
    """A partition whose cuts are numbered among those that are allowed."""

    def __init__(self, instance: PartitionData, claimed: Claimed) -> None:
        self.objective = str(instance.objective)
        known = ("bottleneck", "transfer-bounded", "sum", "overlap")
        if self.objective not in known or instance.placed:
            raise UnprovedError(f"nothing is known of {self.objective}, or of several stages")
        self.instance, self.claimed, self._looks = instance, claimed, 0
        self.cuts = cuts = _allowed_cuts(instance)
        self.last, self._fixed = len(cuts) - 1, sorted(instance.fixed_cuts)
        tables = (instance.compute_table, instance.memory_table)
        self._tabular = any(table is not None for table in tables)
        # Devices of a kind are a class, of which the first stands for all.
        apart = instance.recv_cycles is not None or instance.send_cycles is not None
        apart |= any(table is not None and table.ndim == 3 for table in tables)
        kinds = [d if apart else one.kind for d, one in enumerate(instance.cluster.devices)]
        self.devices = [kinds.index(kind) for kind in kinds]
        check = defined(instance.kind, "check")
        self._host = _exact(check.host_cycles(instance))
        self._recv = cache(lambda d, a: _exact(check.recv_cycles(instance, d, cuts[a])))
        self._send = cache(lambda d, b: _exact(check.send_cycles(instance, d, cuts[b])))
        compute = check.stage_compute
        self._compute = cache(lambda d, a, b: _exact(compute(instance, cuts[a], cuts[b], d)))
        memory = check.stage_memory
        self._memory = cache(lambda d, s, a, b: memory(instance, cuts[a], cuts[b], d, s))

    def ways(self) -> Iterator[Way]:
        """Yield how tails grow, shorter ones first.

        In a free order a state says how many devices of each class are used, in a fixed one how
        many stages there are.
        """
        instance, counts = self.instance, Counter(self.devices)
        most = instance.microbatches if instance.training and instance.stash.any() else 1
        if instance.free_order or len(counts) == 1:
            for used in product(*(range(count + 1) for count in counts.values())):
                after = sum(used) + 1
                for c, device in enumerate(counts):
                    if used[c] < counts[device]:
                        longer = (*used[:c], used[c] + 1, *used[c + 1 :])
                        yield Way((after - 1, used), (after, longer), device, min(most, after))
            return
        for passed, device in enumerate(reversed(self.devices)):
            for stages in range(min(most, passed) + 1):
                tail, more = (passed, (stages,)), min(most, stages + 1)
                yield Way(tail, (passed + 1, (more,)), device, more)
                if instance.fewer_stages:
                    yield Way(tail, (passed + 1, (stages,)), None, 0)

    def refute(self, limits: Limits) -> None:
        """Show that no partition keeps to the limits."""
        self._looks = 0

        tried = defaultdict[tuple[int, int, int], list[bool | None]](list)

        def furthest(ends: set[int], device: int, stages: int) -> set[int]:
            return {self._furthest(limits, device, stages, min(ends))}

        def every(ends: set[int], device: int, stages: int) -> set[int]:
            found = set[int]()
            cheap: list[tuple[int | Fraction, int]] = [(0, 0)]
            for end in sorted(ends):
                sent = self._send(device, end) if end < self.last and not self._tabular else 0
                while cheap[-1][0] > sent:
                    cheap.pop()
                above = 0 if self._tabular else cheap[-1][1]
                cheap.append((sent, end))
                row = tried[device, stages, end]
                while len(row) < end - above and row[-1:] != [None]:
                    row.append(self._may(limits, device, stages, end - 1 - len(row), end))
                found.update(end - 1 - at for at, may in enumerate(row[: end - above]) if may)
            return found

        if (self._tabular or self._reaches(furthest)) and self._reaches(every):
            raise UnprovedError("stages within the limits reach from the end to the beginning")

    def _reaches(self, grow: Callable[[set[int], int, int], set[int]]) -> bool:
        """Whether tails that grow by stages become whole pipelines."""
        held = defaultdict[State, set[int]](set)
        for number, (tail, longer, device, stages) in enumerate(self.ways()):
            self.claimed.step(0)
            if number == 0:
                held[tail] = {self.last}
            if number == MOST_WAYS:
                raise UnprovedError("the devices can be used in too many ways")
            if ends := held.get(tail):
                held[longer] |= ends if device is None else grow(ends, device, stages)
        fewer, k = self.instance.fewer_stages, self.instance.k
        return any(0 in ends for (passed, _), ends in held.items() if fewer or passed == k)

    def _furthest(self, limits: Limits, device: int, stages: int, end: int) -> int:
        """Return the first cut from which one stage may reach to an end."""
        step = 1
        while step < end and self._fits(limits, device, stages, end - step, end):
            step *= 2
        low = max(0, end - step)
        fits = partial(self._fits, limits, device, stages, end=end)
        return low + bisect_left(range(low, end), True, key=fits)

    def _may(self, limits: Limits, device: int, stages: int, first: int, end: int) -> bool | None:
        """Whether a stage is within limits; None: nor is any longer one that ends there."""
        self._looks += 1
        self.claimed.step(self._looks)
        if self._looks > MOST_STAGES:
            raise UnprovedError("too many stages would have to be tried")
        if self._fits(limits, device, stages, first, end):
            return self._moves(limits, device, first, end)
        return False if self._tabular else None

    def _fits(self, limits: Limits, device: int, stages: int, first: int, end: int) -> bool:
        """Whether no fixed cut is inside a stage, and its compute and memory are within limits."""
        if bisect_right(self._fixed, self.cuts[first]) < bisect_left(self._fixed, self.cuts[end]):
            return False
        capacity = self.instance.cluster.devices[device].memory
        full = capacity is not None and self._memory(device, stages, first, end) > capacity
        return not full and self._compute(device, first, end) < limits.cost

    def _moves(self, limits: Limits, device: int, first: int, end: int) -> bool:
        """Whether what a stage receives and sends is within limits."""
        recv = self._recv(device, first) if first > 0 else 0
        send = self._send(device, end) if end < self.last else 0
        if self.objective in ("bottleneck", "overlap"):
            return self.objective == "bottleneck" or max(recv, send) < limits.cost
        if self.objective == "sum":
            return self._compute(device, first, end) + recv + send + self._host < limits.cost
        return recv + send + self._host < limits.transfer


def _allowed_cuts(instance: PartitionData) -> list[int]:
    """Return the cuts where a stage may begin or end."""
    crossed = [0] * (instance.n + 2)
    for variable in instance.variables:
        crossed[variable.first + 1] += 1
        crossed[variable.last + 1] -= 1
    forbidden = set(instance.forbidden_cuts)
    inner = enumerate(accumulate(crossed[: instance.n]))
    return [0, *(c for c, over in inner if c and not over and c not in forbidden), instance.n]


def _exact(value: Any) -> int | Fraction:
    return value if isinstance(value, int) else Fraction(value)


RULES: Rules = {"fill": (Proof.WITNESS, fill), "count": (Proof.WITNESS, count)}
UNAIDED = ("fill",)
