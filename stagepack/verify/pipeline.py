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

Of headroom, a stage costs minus the tokens for which it has room.  Of latency, tails cost what
their stages compute and transfer together; of those that begin at a cut the cheapest is kept, and
the claim is shown where whole pipelines cost no less.

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

OBJECTIVES = ("bottleneck", "transfer-bounded", "sum", "overlap", "latency", "headroom")
"""What is known of the costs of partitions."""

Costs = dict[int, int | Fraction]
"""What tails cost at least, by the cut where they begin; nothing where that does not add up."""

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
    if chain.last < instance.k and not instance.fewer_stages:
        return
    bound = math.inf if claimed.bound is None else _above(instance, claimed.bound)
    said = evidence.get("transfers", ()) if chain.objective == "transfer-bounded" else ()
    steps = sorted({t for t in map(exact, said) if 0 < t < bound})
    for least, above in pairwise([0, *steps, bound]):
        chain.refute(Limits(bound - least, above))


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
        if instance.placed or instance.alternatives or self.objective not in OBJECTIVES:
            raise UnprovedError("it is about chains of one stage a device, with other objectives")
        self.instance, self.claimed, self._looks = instance, claimed, 0
        self.cuts = at = _allowed_cuts(instance)
        self.last, self._fixed = len(at) - 1, sorted(instance.fixed_cuts)
        tables = (instance.compute_table, instance.memory_table)
        self._tabular = any(table is not None for table in tables)
        # Devices of a kind are a class, of which the first stands for all.
        apart = instance.recv_cycles is not None or instance.send_cycles is not None
        apart |= any(table is not None and table.ndim == 3 for table in tables)
        kinds = [d if apart else one.kind for d, one in enumerate(instance.cluster.devices)]
        self.devices = [kinds.index(kind) for kind in kinds]
        check = defined(instance.kind, "check")
        self._host = _exact(check.host_cycles(instance))
        self._recv = cache(lambda d, a: _exact(check.recv_cycles(instance, d, at[a])))
        self._send = cache(lambda d, b: _exact(check.send_cycles(instance, d, at[b])))
        self._compute = cache(lambda d, a, b: _exact(check.stage_cost(instance, at[a], at[b], d)))
        self._memory = cache(lambda d, s, a, b: check.stage_memory(instance, at[a], at[b], d, s))

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
        self._looks, latency = 0, self.objective == "latency"
        tried = defaultdict[tuple[int, int, int], list[bool | None]](list)

        def furthest(ends: Costs, device: int, stages: int) -> Costs:
            return {self._furthest(limits, device, stages, min(ends)): 0}

        def every(ends: Costs, device: int, stages: int) -> Costs:
            found: Costs = {}
            cheap: list[tuple[int | Fraction, int]] = [(0, 0)]
            for end in sorted(ends):
                sent = self._send(device, end) if end < self.last else 0
                while cheap[-1][0] > sent:
                    cheap.pop()
                above = 0 if self._tabular or latency else cheap[-1][1]
                cheap.append((sent, end))
                row = tried[device, stages, end]
                while len(row) < end - above and row[-1:] != [None]:
                    row.append(self._may(limits, device, stages, end - 1 - len(row), end))
                for first in (end - 1 - at for at, may in enumerate(row[: end - above]) if may):
                    cost = ends[end] + (self._whole(device, first, end) if latency else 0)
                    found[first] = min(cost, found.get(first, cost))
            return found

        if not self._tabular and self._least(furthest) is None:
            return
        least = self._least(every)
        if least is not None and (not latency or least + self._host < limits.cost):
            raise UnprovedError("stages within the limits reach from the end to the beginning")

    def _least(self, grow: Callable[[Costs, int, int], Costs]) -> int | Fraction | None:
        """Return what tails that grow by stages cost as whole pipelines; None: none becomes one."""
        held = defaultdict[State, Costs](dict)
        for number, (tail, longer, device, stages) in enumerate(self.ways()):
            self.claimed.step(0)
            if number == 0:
                held[tail] = {self.last: 0}
            if number == MOST_WAYS:
                raise UnprovedError("the devices can be used in too many ways")
            if ends := held.get(tail):
                grown, known = ends if device is None else grow(ends, device, stages), held[longer]
                known.update({at: min(cost, known.get(at, cost)) for at, cost in grown.items()})
        fewer, k = self.instance.fewer_stages, self.instance.k
        whole = [ends for (passed, _), ends in held.items() if fewer or passed == k]
        return min((ends[0] for ends in whole if 0 in ends), default=None)

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
        if capacity is not None and self._memory(device, stages, first, end) > capacity:
            return False
        return self._compute(device, first, end) < limits.cost

    def _moves(self, limits: Limits, device: int, first: int, end: int) -> bool:
        """Whether what a stage receives and sends is within limits."""
        recv, send = self._moved(device, first, end)
        match self.objective:
            case "overlap":
                return max(recv, send) < limits.cost
            case "sum":
                return self._whole(device, first, end) + self._host < limits.cost
            case "transfer-bounded":
                return recv + send + self._host < limits.transfer
        return True

    def _moved(self, device: int, first: int, end: int) -> tuple[int | Fraction, int | Fraction]:
        recv = self._recv(device, first) if first > 0 else 0
        return recv, self._send(device, end) if end < self.last else 0

    def _whole(self, device: int, first: int, end: int) -> int | Fraction:
        return self._compute(device, first, end) + sum(self._moved(device, first, end))


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


RULES: Rules = {"fill": (Proof.WITNESS, fill)}
UNAIDED = ("fill",)
