"""Proofs of chains: why no partition is better, or none fits.

``fill``: no partition has all its stages within what is below the bound.  Tails of the chain are
filled stage by stage, with every device that may come next: kept is the set of the cuts where a
tail of so many stages may begin.  Once no set of a whole pipeline holds cut 0, the claim is shown.
Two things keep the sets small.  Without tables a part of a stage that fits also fits, and a longer
prefix leaves no more to do.  So a tail begins nowhere before where stages that each take all they
can would begin, and its cut is in reach of the devices that are left, filled likewise from the head
on; a stage may be empty here, which only adds partitions.  Often these two never meet.  And all
ends of the stages that begin at a cut follow it without a gap, so that the cheapest of them tells.

For compute plus transfer, evidence says ``transfers`` t_1 < t_2 < ...: partitions of a transfer in
[t_i, t_(i+1)) and of a sum below the bound B compute for less than B - t_i.  One fill with both
limits refutes them.  Any numbers will do: between 0 and infinity they leave nothing out.

Figures are whole numbers of a unit in which all of them are whole.  Where objectives are sums of
floating-point numbers, the tolerance of the instance covers their rounding.  Not used is what says
nothing of partitions: names, the graph of which the chain is an order, what schedules keep.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise, product
from typing import Any, NamedTuple

from stagepack.evidence import Proof
from stagepack.instances.pipeline.check import host_cycles
from stagepack.instances.pipeline.data import PartitionData
from stagepack.instances.profile import Link
from stagepack.verify.rules import Claimed, Rules, UnprovedError, exact

MOST_WAYS = 400_000
"""Ways to place one more stage, of all choices of devices."""
MOST_RANGES = 30_000_000
"""Ranges of layers in tables that are looked at."""

State = tuple[int, ...]


class Way(NamedTuple):
    """How a tail grows: by a stage on a device, or, without one, by leaving a device out."""

    tail: State
    longer: State
    device: int | None
    stashes: int


class Limits(NamedTuple):
    """What a stage may cost, and what its transfers may, where that counts by itself."""

    cost: int
    transfer: int = 0


def fill(instance: PartitionData, evidence: Mapping[str, Any], claimed: Claimed) -> None:
    """Show that partitions within what is below the bound end too early."""
    chain = _Chain(instance, claimed)
    if chain.contradicts:
        return
    if claimed.bound is None:
        chain.objective = "bottleneck"
        chain.refute(Limits(chain.everything))
        return
    most = chain.below(claimed.bound)
    if chain.objective != "transfer-bounded":
        chain.refute(Limits(most))
        return
    given = sorted({math.ceil(exact(t) * chain.unit) for t in evidence.get("transfers", ())})
    steps = [0, *(t for t in given if 0 < t <= most), most + 1]
    for least, above in pairwise(steps):
        chain.refute(Limits(most - least, above - 1))


class _Chain:
    """A partition in whole units: cuts are numbered among those that are allowed.

    Attributes
    ----------
    unit : int
        Units in a cycle.
    contradicts : bool
        Whether a fixed cut is not allowed.
    """

    def __init__(self, instance: PartitionData, claimed: Claimed) -> None:
        self.objective = str(instance.objective)
        if self.objective not in ("bottleneck", "transfer-bounded", "sum", "overlap"):
            raise UnprovedError(f"nothing is known of the objective {self.objective}")
        self.instance, self.claimed, self._looks = instance, claimed, 0
        self.cuts = _allowed_cuts(instance)
        self.last = len(self.cuts) - 1
        self.contradicts = not set(instance.fixed_cuts) <= set(self.cuts)
        self.fixed = [bisect_left(self.cuts, cut) for cut in sorted(instance.fixed_cuts)]
        self.fixed.append(self.last)
        self._devices()
        self._times()
        self._memory()

    # ------------------------------------------------------------------ figures

    def _devices(self) -> None:
        """Number the kinds of devices, of which one stands for all."""
        instance, known = self.instance, dict[object, int]()
        tables = (instance.compute_table, instance.memory_table)
        apart = instance.recv_cycles is not None or instance.send_cycles is not None
        apart |= any(table is not None and table.ndim == 3 for table in tables)
        devices = instance.cluster.devices
        kinds = [d if apart else device.kind for d, device in enumerate(devices)]
        self.device_class = [known.setdefault(kind, len(known)) for kind in kinds]
        self.example = [self.device_class.index(c) for c in range(len(known))]

    def _times(self) -> None:
        """Set times in units: what cuts cost, and layers, times a factor of a class of devices."""
        instance, table = self.instance, self.instance.compute_table
        speeds = [Fraction(str(instance.cluster.devices[d].speed)) for d in self.example]
        cycles = [] if table is not None else instance.cycles.tolist()
        flat = [0] if table is None or table.dtype.kind == "i" else table.ravel().tolist()
        counted = self.objective != "bottleneck"
        moved = [self._transfers(d) for d in self.example] if counted else []
        host = [host_cycles(instance) if counted else 0]
        together = math.lcm(*(speed.numerator for speed in speeds))
        grid = max(map(_grid, (cycles, flat, host, *(row for pair in moved for row in pair))))
        self.unit = grid * together
        self.factor = [together // speed.numerator * speed.denominator for speed in speeds]
        self.host = _scaled(host, self.unit)[0]
        self.recv = [_scaled(_at(recv, self.cuts), self.unit) for recv, _ in moved]
        self.send = [_scaled(_at(send, self.cuts), self.unit) for _, send in moved]
        for recv, send in zip(self.recv, self.send, strict=True):
            recv[0] = send[-1] = 0
        running = [0, *accumulate(_scaled(cycles, grid))]
        self.work = _at(running, self.cuts) if table is None else []
        self.time_table = None if table is None else self._rows(table, grid)
        dearest = running[-1] if table is None else math.ceil(Fraction(table.max().item()) * grid)
        self.everything = dearest * max(self.factor)

    def _transfers(self, d: int) -> tuple[list[float], list[float]]:
        """Return the cycles in which a device receives and sends at each cut."""
        instance, device = self.instance, self.instance.cluster.devices[d]
        recv, send = instance.recv_cycles, instance.send_cycles
        return (
            self._moved(device.recv, instance.in_bytes) if recv is None else recv[d].tolist(),
            self._moved(device.send, instance.out_bytes) if send is None else send[d].tolist(),
        )

    def _moved(self, link: Link | None, nbytes: Any) -> list[float]:
        """Return the cycles in which a link moves the bytes at each cut, by their definition."""
        if link is None:
            return [0] * len(nbytes)
        idle, rate = link.idle, link.GBps * 2**30 / self.instance.cluster.clock
        trips, moved = self.instance.trips, nbytes.tolist()
        if self.instance.whole:
            return [trips * int(idle + b / rate) for b in moved]
        return [trips * (idle + b / rate) for b in moved]

    def _rows(self, table: Any, unit: int) -> list[list[list[int]]]:
        """Return the table of each class, at the cuts that are allowed."""
        if len(self.example) * len(self.cuts) ** 2 > MOST_RANGES:
            raise UnprovedError("the tables are too large")
        tables = [table if table.ndim == 2 else table[d] for d in self.example]
        return [
            [_scaled(_at(row, self.cuts), unit) for row in each[self.cuts].tolist()]
            for each in tables
        ]

    def _memory(self) -> None:
        """Set bytes: running sums, the peak and the keys of what lies between neighbouring cuts."""
        instance, cuts, shared = self.instance, self.cuts, self.instance.shared
        self.capacity = [instance.cluster.devices[d].memory for d in self.example]
        self.bytes = self.stash = [0] * len(cuts)
        self.peak, self.keys, self.nbytes = [0] * self.last, dict[int, set[int]](), list[int]()
        self.bytes_table = None
        self.most_stashes, self._reaches = 0, dict[tuple[int | None, int], Sequence[int]]()
        if all(c is None for c in self.capacity):
            return
        if instance.training and instance.stash.any():
            self.most_stashes = min(instance.microbatches, instance.k)
            self.stash = _at([0, *accumulate(instance.stash.tolist())], cuts)
        if instance.memory_table is not None:
            self.bytes_table = self._rows(instance.memory_table, 1)
            return
        columns = [column.tolist() for column in instance.exclusive.values()]
        if columns:
            self.bytes = _at([0, *accumulate(map(sum, zip(*columns, strict=True)))], cuts)
        peak = (instance.temporary + instance.carry).tolist()
        whole = self.last == instance.n
        self.peak = peak if whole else [max(peak[a:b]) for a, b in pairwise(cuts)]
        self.nbytes = shared.nbytes.tolist()
        for layer, key in zip(shared.layer.tolist(), shared.key.tolist(), strict=True):
            self.keys.setdefault(bisect_right(cuts, layer) - 1, set()).add(key)
        most = self.bytes[-1] + self.most_stashes * self.stash[-1] + sum(self.nbytes)
        most += max(self.peak)
        self.capacity = [None if c is None or c >= most else c for c in self.capacity]

    def below(self, bound: Fraction) -> int:
        """Return the most units of an objective that is below a bound."""
        if self.instance.tolerance == 0 and bound.denominator > 1:
            # Objectives are rounded to floats: what is below and rounded up is not below.
            less = Fraction(math.nextafter(float(bound), -math.inf))
            return math.floor((less + bound) / 2 * self.unit)
        return math.ceil(bound * self.unit) - 1

    # ------------------------------------------------------------------ the order of devices

    def ways(self) -> tuple[list[Way], set[State]]:
        """Return how tails grow, shorter ones first, and which of them may be the whole chain."""
        most, k, fewer = self.most_stashes, self.instance.k, self.instance.fewer_stages
        if len(self.example) == 1 or not (fewer or self.instance.free_order):
            ways = [Way((s,), (s + 1,), k - 1 - s, min(most, s + 1)) for s in range(k)]
            return ways, {(s,) for s in range(1, k + 1)} if fewer else {(k,)}
        if self.instance.free_order:
            return self._any_order()
        if 2 * k * (most + 1) > MOST_WAYS:
            raise UnprovedError("devices may be left out in too many ways")
        ways = []  # a state is how many devices are left, and the stages that may matter
        for left, stages in product(range(k, 0, -1), range(most + 1)):
            if stages <= k - left:
                one = min(most, stages + 1)
                ways.append(Way((left, stages), (left - 1, stages), None, 0))
                ways.append(Way((left, stages), (left - 1, one), left - 1, one))
        return ways, {(0, stages) for stages in range(most + 1)}

    def _any_order(self) -> tuple[list[Way], set[State]]:
        """Return the ways of a free order; a state says how many devices of each class are used."""
        counts = list(Counter(self.device_class).values())
        if math.prod(count + 1 for count in counts) * len(counts) > MOST_WAYS:
            raise UnprovedError("the devices can be used in too many orders")
        states = list(product(*(range(count + 1) for count in counts)))
        ways = []
        for state in states:
            stashes = min(self.most_stashes, sum(state) + 1)
            for c, used in enumerate(state):
                if used < counts[c]:
                    longer = (*state[:c], used + 1, *state[c + 1 :])
                    ways.append(Way(state, longer, self.example[c], stashes))
        return ways, set(states[1:]) if self.instance.fewer_stages else {states[-1]}

    # ------------------------------------------------------------------ filling

    def refute(self, limits: Limits) -> None:
        """Show that no partition keeps to the limits."""
        ways, whole = self.ways()
        start, masks = ways[0].tail, dict[tuple[int, int], list[int]]()
        tabular = self.time_table is not None or self.bytes_table is not None
        if tabular:
            kinds = {(self.device_class[way.device or 0], way.stashes) for way in ways}
            if len(kinds) * self.last**2 > 2 * MOST_RANGES:
                raise UnprovedError("the tables are too large")
            windows = {state: (0, self.last) for way in ways for state in way[:2]}
        else:
            windows = self._windows(ways, whole, limits.cost)
            if windows[start][1] < self.last:
                return
        tails: dict[State, list[int]] = {start: [self.last]}
        for tail, longer, device, stashes in ways:
            self._look()
            ends, window = tails.get(tail, []), windows[longer]
            if not ends or window[0] > window[1]:
                continue
            if device is None:
                starts = [cut for cut in ends if window[0] <= cut <= window[1]]
            elif tabular:
                kind = self.device_class[device], stashes
                if kind not in masks:
                    masks[kind] = list(self._masks(*kind, limits))
                held = sum(1 << end for end in ends)
                starts = [first for first, mask in enumerate(masks[kind]) if mask & held]
            else:
                starts = list(
                    self._starts(ends, window, self.device_class[device], stashes, limits)
                )
            tails[longer] = sorted({*tails[longer], *starts}) if longer in tails else starts
        if any(0 in tails.get(state, ())[:1] for state in whole):
            raise UnprovedError("stages within the limits reach from the end to the beginning")

    def _look(self) -> None:
        self._looks += 1
        self.claimed.step(self._looks)

    def _windows(
        self, ways: list[Way], whole: set[State], most: int
    ) -> dict[State, tuple[int, int]]:
        """Return the first and the last cut where a tail may begin so that the rest still fits."""
        low, high, work = {ways[0].tail: self.last}, dict.fromkeys(whole, 0), self.work
        for tail, longer, device, stashes in ways:
            cut = low[tail]
            if device is not None:
                c = self.device_class[device]
                early = bisect_left(work, work[cut] - most // self.factor[c])
                cut = min(cut, max(early, bisect_left(self._reach(c, stashes), cut)))
            low[longer] = min(low.get(longer, cut), cut)
        for tail, longer, device, stashes in reversed(ways):
            cut = high.get(longer, -1)
            if device is not None and 0 <= cut < self.last:
                c = self.device_class[device]
                late = bisect_right(work, work[cut] + most // self.factor[c]) - 1
                cut = max(cut, min(late, self._reach(c, stashes)[cut]))
            high[tail] = max(high.get(tail, cut), cut)
        return {state: (low[state], high[state]) for state in low}

    def _reach(self, c: int, stashes: int) -> Sequence[int]:
        """Return how far a stage from each cut may go: its memory fits, no fixed cut is inside."""
        capacity = self.capacity[c]
        if capacity is None:
            stashes = 0
        if (capacity, stashes) not in self._reaches:
            if self.last * (len(self._reaches) + 1) > MOST_RANGES:
                raise UnprovedError("too many layers for so many numbers of stashes")
            self._reaches[capacity, stashes] = array("q", self._ends(capacity, stashes))
        return self._reaches[capacity, stashes]

    def _ends(self, capacity: int | None, stashes: int) -> Iterator[int]:
        """Yield the furthest end of a stage from each cut, from left to right.

        The layer of its highest peak is at the head of a queue of falling ones.
        """
        far, after, held = 0, 0, 0
        peaks, used = deque[int](), Counter[int]()
        for first in range(self.last):
            self._look()
            after += self.fixed[after] <= first
            far = max(far, first)
            if capacity is None:
                yield self.fixed[after]
                continue
            while far < self.fixed[after]:
                keys, peak = self.keys.get(far, ()), self.peak[far]
                more = sum(self.nbytes[key] for key in keys if not used[key])
                need = self.bytes[far + 1] - self.bytes[first] + held + more
                need += stashes * (self.stash[far + 1] - self.stash[first])
                if need + max(peak, self.peak[peaks[0]] if peaks else 0) > capacity:
                    break
                while peaks and self.peak[peaks[-1]] <= peak:
                    peaks.pop()
                peaks.append(far)
                used.update(keys)
                held += more
                far += 1
            yield far
            if far > first:
                used.subtract(gone := self.keys.get(first, ()))
                held -= sum(self.nbytes[key] for key in gone if not used[key])
                if peaks[0] == first:
                    peaks.popleft()

    def _starts(
        self, ends: list[int], window: tuple[int, int], c: int, stashes: int, limits: Limits
    ) -> Iterator[int]:
        """Yield the cuts in a window at which a stage may begin that has one of the ends.

        The cheapest of the ends in reach is at the head of a queue of rising prices.
        """
        queue = deque[tuple[int, int]]()
        factor, work, reach, given = self.factor[c], self.work, self._reach(c, stashes), 0
        for first in range(window[0], min(window[1], ends[-1] - 1) + 1):
            self._look()
            far, within = reach[first], work[first] + limits.cost // factor
            while given < len(ends) and (end := ends[given]) <= far and work[end] <= within:
                price = self._price(end, c, factor * work[end], limits)
                while queue and queue[-1][0] >= price:
                    queue.pop()
                queue.append((price, end))
                given += 1
            while queue and queue[0][1] <= first:
                queue.popleft()
            if queue and queue[0][0] <= self._spare(first, c, factor * work[first], limits):
                yield first

    def _price(self, end: int, c: int, time: int, limits: Limits) -> int:
        """Return what a stage pays for its end, and for `time` where both count together."""
        match self.objective:
            case "bottleneck":
                return 0
            case "overlap":
                return int(self.send[c][end] > limits.cost)
            case "sum":
                return self.send[c][end] + time
        return self.send[c][end]

    def _spare(self, first: int, c: int, time: int, limits: Limits) -> int:
        """Return what a stage that begins at a cut, and at a `time`, may pay for the rest."""
        match self.objective:
            case "bottleneck":
                return 0
            case "overlap":
                return -int(self.recv[c][first] > limits.cost)
            case "sum":
                return limits.cost - self.host - self.recv[c][first] + time
        return limits.transfer - self.host - self.recv[c][first]

    def _masks(self, c: int, stashes: int, limits: Limits) -> Iterator[int]:
        """Yield for each cut the ends of the stages that may begin there, as bits of a number."""
        needs = None if self.bytes_table is None else self.bytes_table[c]
        times = None if self.time_table is None else self.time_table[c]
        capacity, factor, reach = self.capacity[c], self.factor[c], self._reach(c, stashes)
        for first in range(self.last):
            ends, spare = 0, self._spare(first, c, 0, limits)
            for end in range(first + 1, reach[first] + 1):
                self._look()
                if needs is not None and capacity is not None:
                    stash = stashes * (self.stash[end] - self.stash[first])
                    if needs[first][end] + stash > capacity:
                        continue
                if times is None:
                    time = (self.work[end] - self.work[first]) * factor
                else:
                    time = times[first][end] * factor
                if time <= limits.cost and self._price(end, c, time, limits) <= spare:
                    ends |= 1 << end
            yield ends


def _allowed_cuts(instance: PartitionData) -> list[int]:
    """Return the cuts where a stage may begin or end."""
    crossed = [0] * (instance.n + 2)
    for variable in instance.variables:
        crossed[variable.first + 1] += 1
        crossed[variable.last + 1] -= 1
    forbidden = set(instance.forbidden_cuts)
    crossing = list(accumulate(crossed))
    inner = (c for c in range(1, instance.n) if not crossing[c] and c not in forbidden)
    return [0, *inner, instance.n]


def _at(values: list[Any], cuts: list[int]) -> list[Any]:
    return values if len(cuts) == len(values) else [values[cut] for cut in cuts]


def _grid(values: list[float]) -> int:
    """Return what makes all values whole when multiplied: a power of two for floats."""
    if all(type(value) is int for value in values):
        return 1
    return max(value.as_integer_ratio()[1] for value in values)


def _scaled(values: list[Any], unit: int) -> list[int]:
    """Return values in units of which `unit` make one."""
    if all(type(value) is int for value in values):
        return [value * unit for value in values]
    ratios = (value.as_integer_ratio() for value in values)
    return [over * (unit // under) for over, under in ratios]


RULES: Rules = {"fill": (Proof.WITNESS, fill)}

UNAIDED: tuple[str, ...] = ("fill",)
"""Rules that need no evidence, in the order in which they are tried."""
