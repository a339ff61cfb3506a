"""Integer range costs: what algorithms and models need to know of every stage [a, b).

All times are whole *ticks*, so that every method compares integers.  Integer cycles and rational
speeds give exact ticks; floating-point cycles are scaled by a power of ten where that makes them
whole; what has no common unit is rounded to a grid far finer than the instance's tolerance.

Devices that differ in nothing but their name form a *class*.  The structure of the partition
("which device may run the next stage, and how many microbatches does it stash") is a small
automaton that reads the chain from its tail, see :class:`StageOrder`.
"""

from __future__ import annotations

import copy
import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from stagepack.instances.pipeline.arrays import LARGEST
from stagepack.instances.pipeline.instance import Objective, PipelinePartition
from stagepack.instances.pipeline.solution import PipelineSolution
from stagepack.instances.profile import Array
from stagepack.result import InputError, Number

LARGEST_TICKS = 2**60
FINEST = 2**52  # what has no common unit is rounded to 1 / FINEST of the largest figure
LARGEST_AUTOMATON = 200_000


class RangeCosts:
    """Compute, memory and transfer of all ranges of an instance, in ticks and bytes.

    Nothing of size n x n is built unless asked for (:meth:`compute_matrix`,
    :meth:`memory_matrix`, :meth:`fits_matrix`).

    Attributes
    ----------
    scale : int
        Ticks per cycle.
    rounding : int
        By how many ticks rounding may change a value: 0 for exact ticks.
    device_class : ndarray of int64, shape (k,)
        Class of each device, numbered by first appearance.
    capacity : list of int or None
        Bytes of each class.
    prefix : ndarray of int64, shape (classes, n + 1)
        Running sum of the layers' ticks on a device of each class: the stage [a, b) computes for
        prefix[:, b] - prefix[:, a] ticks.  Of no use with a compute table.
    recv, send : ndarray of int64, shape (classes, n + 1)
        Ticks to receive at the beginning, to send at the end of a stage; recv[:, 0] and
        send[:, n] are 0, so that first and last stages need no special case.
    host : int
        Ticks of the exchange with the host, added to every transfer.
    allowed : ndarray of bool, shape (n + 1,)
        Cuts where a stage may begin or end.

    Raises
    ------
    InputError
        When the ticks of a solution could overflow.
    """

    def __init__(self, instance: PipelinePartition) -> None:
        self.instance = instance
        self.n, self.k = instance.n, instance.k
        self.allowed = instance.allowed_cuts
        self.tabular = instance.compute_table is not None or instance.memory_table is not None
        per_device = (
            instance.recv_cycles is not None
            or instance.send_cycles is not None
            or any(
                table is not None and table.ndim == 3
                for table in (instance.compute_table, instance.memory_table)
            )
        )
        known: dict[object, int] = {}
        classes = [
            known.setdefault((device.kind, index if per_device else None), len(known))
            for index, device in enumerate(instance.cluster.devices)
        ]
        self.device_class = np.array(classes, dtype=np.int64)
        self.classes = len(known)
        self._reach_cache: dict[tuple[int, int], Array] = {}
        # One device stands for its class.
        self._example = [classes.index(c) for c in range(self.classes)]
        devices = [instance.cluster.devices[d] for d in self._example]
        # All bytes of an instance are fewer than 2**62: more capacity is no limit.
        self.capacity = [
            None if device.memory is None or device.memory >= LARGEST else device.memory
            for device in devices
        ]
        self._speeds = [_exactly(device.speed) for device in devices]
        self._set_ticks(float(min(device.speed for device in devices)))

    # ------------------------------------------------------------------ ticks

    def _set_ticks(self, slowest: float) -> None:
        instance, table = self.instance, self.instance.compute_table
        if instance.objective is Objective.BOTTLENECK:
            # Not part of the objective: they must not make the ticks coarser.
            recv = send = np.zeros((self.classes, self.n + 1), dtype=np.int64)
            host = np.zeros(0, dtype=np.int64)
        else:
            recv, send, host = self._transfer_cycles()
        cycles = instance.cycles if table is None else table
        total = float(cycles.sum() if table is None else table.max())
        largest = float(recv.max()) + float(send.max()) + float(host.max(initial=0))
        largest += total / slowest
        grids = [_decimal_grid(row) for row in (cycles, recv, send, host)]
        self.scale = max(grids) * instance.speed_scale if all(grids) else 0
        exact = bool(self.scale) and largest * self.scale < LARGEST_TICKS
        if not exact:
            if instance.whole and instance.speed_scale:
                raise InputError(
                    "cycles and transfers together exceed the exact range of 64-bit integers",
                    field="forward",
                    remedy="use a coarser unit",
                )
            # No common unit: round, and keep what that may change out of every bound.
            self.scale = 1 << max(0, math.floor(math.log2(FINEST / largest)))
        self.rounding = 0 if exact else 4 + self.k
        if table is None:
            # Exact layers are whole in units of a grid in which every class's ticks are whole, too.
            layers = _ticks(cycles, self.scale // instance.speed_scale) if exact else cycles
            running = np.zeros(self.n + 1, dtype=layers.dtype)
            np.cumsum(layers, out=running[1:])
            self.prefix = np.empty((self.classes, self.n + 1), dtype=np.int64)
            for c, speed in enumerate(self._speeds):
                whole = exact and instance.speed_scale // speed.numerator * speed.denominator
                self.prefix[c] = _ticks(running, whole or self.scale / speed)
            self._work = list(self.prefix)
        else:
            self.prefix = np.zeros((self.classes, 1), dtype=np.int64)
            self._work = [
                _ticks(self._class_table(table, c), self.scale / speed)
                for c, speed in enumerate(self._speeds)
            ]
        self.recv, self.send, hosts = (_ticks(row, self.scale) for row in (recv, send, host))
        self.recv[:, 0] = 0
        self.send[:, self.n] = 0
        self.host = int(hosts.sum())

    def _transfer_cycles(self) -> tuple[Array, Array, Array]:
        """Return receive (classes, n + 1), send (classes, n + 1) and host (2,) cycles."""
        instance, cluster = self.instance, self.instance.cluster
        devices = [cluster.devices[d] for d in self._example]
        links = (
            *(device.recv for device in devices),
            cluster.host_recv,
            *(device.send for device in devices),
            cluster.host_send,
        )
        # A missing link takes no time.
        idle = [0.0 if link is None else link.idle for link in links]
        rate = [math.inf if link is None else link.GBps * 2**30 / cluster.clock for link in links]
        # A row a class and one for the host, which moves the bytes of one cut only.
        cycles = np.zeros((2, self.classes + 1, self.n + 1))
        if instance.recv_cycles is None:
            cycles[0, :-1], cycles[0, -1, 0] = instance.in_bytes, instance.in_bytes[0]
        if instance.send_cycles is None:
            cycles[1, :-1], cycles[1, -1, -1] = instance.out_bytes, instance.out_bytes[-1]
        cycles /= np.array(rate, dtype=np.float64).reshape(2, -1, 1)
        cycles += np.array(idle, dtype=np.float64).reshape(2, -1, 1)
        if instance.whole:
            if cycles.max() >= LARGEST_TICKS:
                raise InputError(
                    "a transfer takes more than 2**60 cycles",
                    field="in_bytes",
                    remedy="use a coarser unit or a faster link",
                )
            cycles = cycles.astype(np.int64)
        recv, send = cycles[0, :-1], cycles[1, :-1]
        host = [cycles[0, -1, 0], cycles[1, -1, -1]]
        if instance.recv_cycles is not None:
            recv, host[0] = instance.recv_cycles[self._example], instance.recv_cycles[0, 0]
        if instance.send_cycles is not None:
            send, host[1] = instance.send_cycles[self._example], instance.send_cycles[-1, -1]
        return recv, send, np.array(host if instance.host_transfer else [])

    def bound(self, ticks: int) -> Number:
        """Return a lower bound in ticks as one in cycles, safe whatever rounding there was."""
        return self.value(ticks - self.rounding)

    def value(self, ticks: int) -> Number:
        """Return `ticks` in cycles: an int when whole."""
        return ticks // self.scale if ticks % self.scale == 0 else ticks / self.scale

    # ------------------------------------------------------------------ one stage

    def compute(self, first: int, end: int, device_class: int) -> int:
        """Return the ticks of the layers [first, end) on a device of a class."""
        work = self._work[device_class]
        return int(work[first, end] if work.ndim == 2 else work[end] - work[first])

    def transfer(self, first: int, end: int, device_class: int) -> int:
        """Return the transfer ticks of a stage: receive, send and the host's share."""
        return int(self.recv[device_class, first] + self.send[device_class, end]) + self.host

    def objective(self, solution: PipelineSolution) -> int:
        """Return the objective value of a partition in ticks."""
        compute, transfer = 0, 0
        for first, end, device in solution.stages:
            c = int(self.device_class[device])
            work, moved = self.compute(first, end, c), self.transfer(first, end, c)
            match self.instance.objective:
                case Objective.SUM:
                    work += moved
                case Objective.OVERLAP:
                    work = max(work, int(self.recv[c, first]), int(self.send[c, end]))
                case Objective.TRANSFER_BOUNDED:
                    transfer = max(transfer, moved)
            compute = max(compute, work)
        return compute + transfer

    # ------------------------------------------------------------------ limits and matrices

    def with_more_memory(self, extra: int) -> RangeCosts:
        """Return the same costs with `extra` bytes more on every device."""
        more = copy.copy(self)
        more.capacity = [None if c is None else c + extra for c in self.capacity]
        more._reach_cache = {}
        return more

    def reach(self, device_class: int, stashes: int) -> Array:
        """Return, shape (n,), the furthest end of a stage that begins at each layer.

        The stage [a, b) fits a device of the class, with activations of `stashes` microbatches,
        and contains no fixed cut, exactly for the ends b in (a, reach[a]] (a, when no end will
        do).  Non-decreasing.  O(n + uses of shared keys).  Only for instances without tables.
        """
        assert not self.tabular
        capacity = self.capacity[device_class]
        if capacity is None:
            return self._next_fixed
        key = (capacity, stashes)
        if key not in self._reach_cache:
            shared, per_layer = self.instance.shared, self._exclusive
            if stashes:
                per_layer = per_layer + stashes * self.instance.stash
            peak = self.instance.temporary + self.instance.carry
            if len(shared.layer):
                from stagepack.instances.pipeline.kernels import furthest_fit

                start = np.searchsorted(shared.layer, np.arange(self.n + 1))
                fit = furthest_fit(per_layer, peak, start, shared.key, shared.nbytes, capacity)
            else:
                fit = _furthest_fit(per_layer, peak, capacity)
            self._reach_cache[key] = np.minimum(fit, self._next_fixed)
        return self._reach_cache[key]

    def compute_matrix(self, device_class: int) -> Array:
        """Return, shape (n + 1, n + 1), the ticks of [a, b); meaningless for b <= a."""
        work = self._work[device_class]
        return np.asarray(work if work.ndim == 2 else work[None, :] - work[:, None])

    def compute_bound(self) -> int:
        """Return a lower bound on the largest compute of a partition, in ticks.

        The larger of: all work spread over all devices without loss; the costliest span that no
        cut may split, on the fastest device.  0 for a compute table, whose ranges need not add
        up.  O(n), once.
        """
        return self._compute_bound

    @cached_property
    def _compute_bound(self) -> int:
        if self.instance.compute_table is not None:
            return 0
        cuts = np.flatnonzero(self.allowed)
        totals = self.prefix[:, -1].tolist()
        fastest = self.prefix[totals.index(min(totals))][cuts]
        # Speeds in a unit that makes them whole.
        unit = math.lcm(*(speed.denominator for speed in self._speeds))
        speeds = [speed.numerator * (unit // speed.denominator) for speed in self._speeds]
        together = sum(speeds[c] for c in self.device_class.tolist())
        spread: int = -(-totals[0] * speeds[0] // together)
        return max(0, spread - self.rounding, int((fastest[1:] - fastest[:-1]).max()))

    def memory_matrix(self, device_class: int, stashes: int) -> Array:
        """Return, shape (n + 1, n + 1), the bytes of [a, b) with `stashes` microbatches in flight.

        Vectorised: prefix sums, a running maximum, and for shared keys one difference array over
        the ranges that contain a use but not the previous one.  O(n^2 + uses).
        """
        instance, n = self.instance, self.n
        stash = np.concatenate([[0], np.cumsum(instance.stash)]) * stashes
        memory = stash[None, :] - stash[:, None]
        table = instance.memory_table
        if table is not None:
            return np.asarray(memory + self._class_table(table, device_class))
        exclusive = np.concatenate([[0], np.cumsum(self._exclusive)])
        memory += exclusive[None, :] - exclusive[:, None]
        peak = np.zeros((n, n), dtype=np.int64)
        peak[:] = (instance.temporary + instance.carry)[None, :]
        peak[np.tri(n, k=-1, dtype=bool)] = 0
        memory[:n, 1:] += np.maximum.accumulate(peak, axis=1)
        shared = instance.shared
        if len(shared.layer):
            previous, nbytes = shared.previous(), shared.nbytes[shared.key]
            delta = np.zeros((n + 2, n + 2), dtype=np.int64)
            # A use at layer l adds its key to the ranges with previous < a <= l < b.
            np.add.at(delta, (previous + 1, shared.layer + 1), nbytes)
            np.add.at(delta, (shared.layer + 1, shared.layer + 1), -nbytes)
            memory += delta.cumsum(axis=0).cumsum(axis=1)[: n + 1, : n + 1]
        return np.asarray(memory)

    def fits_matrix(self, device_class: int, stashes: int) -> Array:
        """Return, shape (n + 1, n + 1), whether [a, b) may be a stage on a device of a class."""
        n = self.n
        fits = ~np.tri(n + 1, dtype=bool) & self.allowed[:, None] & self.allowed[None, :]
        fits[:n] &= np.arange(n + 1)[None, :] <= self._next_fixed[:, None]
        capacity = self.capacity[device_class]
        if capacity is not None:
            fits &= self.memory_matrix(device_class, stashes) <= capacity
        return np.asarray(fits)

    @cached_property
    def _exclusive(self) -> Array:
        total = np.zeros(self.n, dtype=np.int64)
        for column in self.instance.exclusive.values():
            total += column
        return total

    @cached_property
    def _next_fixed(self) -> Array:
        """The first fixed cut after each layer, or n: stages end there at the latest."""
        if not self.instance.fixed_cuts:
            return np.full(self.n, self.n, dtype=np.int64)
        fixed = np.array([*self.instance.fixed_cuts, self.n], dtype=np.int64)
        return np.asarray(fixed[np.searchsorted(fixed, np.arange(self.n), side="right")])

    def _class_table(self, table: Array, device_class: int) -> Array:
        return np.asarray(table if table.ndim == 2 else table[self._example[device_class]])

    # ------------------------------------------------------------------ the order of devices

    @cached_property
    def order(self) -> StageOrder:
        """Which device may run the next stage, read from the tail of the chain."""
        return StageOrder.of(self)


@dataclass(frozen=True)
class StageOrder:
    """An automaton over devices: each transition places one stage before those placed so far.

    Reading the chain from its tail makes the number of stashed microbatches a matter of the state
    alone: stage i of k stashes min(m, k - i), the number of stages from it to the end.

    Attributes
    ----------
    states : int
        State 0 has placed nothing; transitions lead to higher states.
    source, target, device_class, stashes : ndarray of int64, shape (transitions,)
        Sorted by target.
    accepting : ndarray of bool, shape (states,)
        Whether the chain may begin here.
    """

    states: int
    source: Array
    target: Array
    device_class: Array
    stashes: Array
    accepting: Array

    @classmethod
    def of(cls, costs: RangeCosts) -> StageOrder:
        """Build the automaton of an instance.

        Fixed order: k transitions; with devices that may stay unused O(k^2), times the stages
        placed when they stash.  Free order: one state for every choice of how many devices of
        each class are in use.

        Raises
        ------
        InputError
            When the states are too many (free order of many unlike devices).
        """
        instance, k = costs.instance, costs.k
        stashing = instance.training and instance.stash.any()
        limited = any(capacity is not None for capacity in costs.capacity)
        m = instance.microbatches if stashing and limited else 0
        classes = costs.device_class.tolist()
        alike = len(set(classes)) == 1
        edges: list[tuple[tuple[int, ...], tuple[int, ...], int, int]] = []
        full: tuple[int, ...]
        if instance.free_order and not alike:
            # A state counts the devices of each class in use.
            counts = np.bincount(costs.device_class).tolist()
            size = math.prod(count + 1 for count in counts)
            if size * len(counts) > LARGEST_AUTOMATON:
                raise InputError(
                    f"{size} ways to choose among {k} devices of {len(counts)} kinds are too many",
                    field="free_order",
                    remedy="fix the order of the devices or use fewer kinds",
                )
            start, full = (0,) * len(counts), tuple(counts)
            for used in np.ndindex(*(count + 1 for count in counts)):
                stashes = min(m, sum(used) + 1)
                for c, count in enumerate(counts):
                    if used[c] < count:
                        edges.append((used, (*used[:c], used[c] + 1, *used[c + 1 :]), c, stashes))
        elif not instance.fewer_stages or alike:
            # A state counts the stages placed.
            start, full = (0,), (k,)
            edges = [((j,), (j + 1,), classes[k - 1 - j], min(m, j + 1)) for j in range(k)]
        else:
            # A state is the device used last and the stages placed, as far as they matter.
            if k * k * max(1, min(m, k)) // 2 > LARGEST_AUTOMATON:
                raise InputError(
                    f"{k} unlike devices that may stay unused make too many combinations",
                    field="fewer_stages",
                    remedy="use all devices, or devices of one kind",
                )
            start = full = (k, 0)
            states: list[tuple[int, ...]] = [start]
            for device in reversed(range(k)):
                arrivals: dict[tuple[int, ...], None] = {}
                for state in states:
                    stashes = min(m, state[1] + 1)
                    edges.append((state, (device, stashes), classes[device], stashes))
                    arrivals[device, stashes] = None
                states += arrivals
        number = {start: 0}
        for _, then, _, _ in edges:
            number.setdefault(then, len(number))
        rows = sorted((number[then], number[state], c, stash) for state, then, c, stash in edges)
        table = np.array(rows, dtype=np.int64).reshape(-1, 4)
        return cls(
            states=len(number),
            source=table[:, 1].copy(),
            target=table[:, 0].copy(),
            device_class=table[:, 2].copy(),
            stashes=table[:, 3].copy(),
            accepting=np.array(
                [state != start and (instance.fewer_stages or state == full) for state in number]
            ),
        )


@functools.cache
def load_kernels() -> None:
    """Compile the kernel for shared keys or load it from the cache, once per process."""
    instance = PipelinePartition.from_arrays([1], devices=1, capacity=1, shared={"key": (1, [0])})
    RangeCosts(instance).reach(0, 0)


def assign_devices(
    costs: RangeCosts, boundaries: list[int], classes: list[int]
) -> PipelineSolution:
    """Return the solution that puts stage j on a device of class classes[j].

    In a fixed order the stages take the first devices that will do (any choice among devices of
    one class is as good as another); the classes must come from a path of the automaton.
    """
    order = costs.device_class.tolist()
    devices: list[int] = []
    if costs.instance.free_order:
        free = {c: [d for d in range(costs.k) if order[d] == c] for c in set(order)}
        devices = [free[c].pop(0) for c in classes]
    else:
        device = 0
        for c in classes:
            device = order.index(c, device)
            devices.append(device)
            device += 1
    return PipelineSolution(tuple(boundaries), tuple(devices))


def _decimal_grid(values: Array) -> int:
    """Return the least power of ten that makes all values whole; 0: none does."""
    if values.dtype.kind == "i":
        return 1
    for digits in range(10):
        scale: int = 10**digits
        scaled = values * scale
        if scaled.max(initial=0.0) >= 2**53:
            break
        # Whole up to the last bits of a double, each value by its own size.
        if (np.abs(scaled - np.rint(scaled)) <= 4 * np.spacing(scaled)).all():
            return scale
    return 0


def _exactly(speed: Number) -> Fraction:
    """Return a speed as it is written: 0.1 as 1/10."""
    return Fraction(speed if isinstance(speed, int) else str(speed))


def _ticks(values: Array, factor: Fraction | int) -> Array:
    """Return values times `factor` as integers: exactly when that is whole, else rounded."""
    if values.dtype.kind == "i" and factor.denominator == 1 and factor < LARGEST_TICKS:
        return np.asarray(values * factor.numerator)
    return np.rint(values * float(factor)).astype(np.int64)


def _furthest_fit(per_layer: Array, peak: Array, capacity: int) -> Array:
    """Return the furthest end whose memory fits, by bisection for all starts at once.

    Range maxima come from a sparse table; O(n log n).
    """
    n = len(per_layer)
    prefix = np.concatenate([[0], np.cumsum(per_layer)])
    starts = np.arange(n)
    if not peak.any():
        ends = np.searchsorted(prefix, prefix[:-1] + capacity, side="right") - 1
        return np.asarray(ends)
    levels = [peak]
    while 2 ** len(levels) <= n:
        step = 2 ** (len(levels) - 1)
        levels.append(np.maximum(levels[-1][:-step], levels[-1][step:]))
    # Lengthen every range by descending powers of two while it still fits.
    ends, top = starts.copy(), np.zeros(n, dtype=np.int64)
    for level in range(len(levels) - 1, -1, -1):
        further = ends + 2**level
        may = further <= n
        highest = np.where(may, levels[level][np.minimum(ends, len(levels[level]) - 1)], 0)
        highest = np.maximum(top, highest)
        fits = may & (prefix[np.minimum(further, n)] - prefix[starts] + highest <= capacity)
        ends = np.where(fits, further, ends)
        top = np.where(fits, highest, top)
    return ends
