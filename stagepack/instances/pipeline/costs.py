"""What layers and cuts cost, in whole *ticks*; what :mod:`.ranges` is made of.

Compute of layers and transfers at cuts add up.  Two costs do not, and have tables of all ranges:
reductions of tied weights, and the bytes of shared keys that a device has to load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from stagepack.errors import InputError
from stagepack.instances.pipeline.choices import cycles_of_options
from stagepack.instances.pipeline.data import SharedBytes
from stagepack.instances.pipeline.instance import PipelinePartition
from stagepack.instances.pipeline.problem import Objective
from stagepack.instances.profile import Array, Link
from stagepack.instances.ticks import (
    LARGEST_TICKS,
    ROUNDING,
    binary_grid,
    decimal_grid,
    on_binary_grid,
    running_on_binary_grid,
    ticks,
)

MANY_LAYERS = 100_000
"""From there on a compiled pass finds what fits, which needs no table."""
CELLS = 2_000_000  # entries of a table between two pauses
Changes = tuple[Array, Array, Array]
"""Of ranges: where they begin, where they end, and by how much they differ from those before."""
FEW = 1000  # values, sooner looked at than sifted


def furthest_fit(per_layer: Array, peak: Array, capacity: int) -> Array:
    """Return, shape (n,), the greatest end by start of what fits a `capacity`; else the start.

    A range holds the sum of its `per_layer` and the most of its `peak`, bytes of shape (n,).  By
    bisection for all starts at once; range maxima come from a sparse table.  O(n log n).
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


def smallest(values: Array, count: int) -> Array:
    """Return the `count` least values, in no order; a few of many are soon found.

    One of every block of values is among those looked at closely, so that they are enough.
    """
    few = values
    if len(values) > FEW:
        blocks = values[: len(values) // count * count].reshape(count, -1)
        few = values[values <= blocks.min(axis=1).max()]
    return np.asarray(np.partition(few, count - 1)[:count])


def peaks(per_layer: Array) -> Array:
    """Return, shape (n + 1, n + 1), the most of any layer of [a, b).  O(n^2)."""
    n = len(per_layer)
    found = np.zeros((n + 1, n + 1), dtype=np.int64)
    found[:n, 1:] = per_layer[None, :]
    found[:n, 1:][np.tri(n, k=-1, dtype=bool)] = 0
    np.maximum.accumulate(found, axis=1, out=found)
    return found


def blocks(n: int, pause: Callable[[], object]) -> Iterator[slice]:
    """Yield rows of a table of all ranges, as many as soon are written; `pause` before each."""
    for first in range(0, n + 1, at_once := 1 + CELLS // (n + 1)):
        pause()
        yield slice(first, min(first + at_once, n + 1))


def held_once(shared: SharedBytes, n: int, pause: Callable[[], object] = lambda: None) -> Array:
    """Return, shape (n + 1, n + 1), the bytes of the keys that [a, b) uses, each once.

    Of differences between the ranges that contain a use but not the previous one; O(n^2 + uses).
    `pause` is called now and then.
    """
    return _summed([_uses(shared)], n, pause)


def held_in_part(shared: SharedBytes, n: int, pause: Callable[[], object] = lambda: None) -> Array:
    """Return, shape (n + 1, n + 1), the bytes of keys that [a, b) uses as other layers do, too.

    `shared`, `n` and `pause` are as :func:`held_once` takes them.
    """
    order = np.lexsort((shared.layer, shared.key))
    key, layer = shared.key[order], shared.layer[order]
    first = layer[np.flatnonzero(np.diff(key, prepend=-1))]
    last = layer[np.flatnonzero(np.diff(key, append=-1))]
    nbytes = shared.nbytes[np.unique(key)]
    # All of them are in the ranges with a <= first and last < b.
    whole = np.zeros_like(first), last + 1, -nbytes
    return _summed([_uses(shared), whole, (first + 1, last + 1, nbytes)], n, pause)


def _uses(shared: SharedBytes) -> Changes:
    """Return by how much the bytes of used keys change from one range to the next."""
    nbytes, after = shared.nbytes[shared.key], shared.layer + 1
    # A use at layer l adds its key to the ranges with previous < a <= l < b.
    begins = np.concatenate([shared.previous() + 1, after])
    return begins, np.tile(after, 2), np.concatenate([nbytes, -nbytes])


def _summed(changes: Sequence[Changes], n: int, pause: Callable[[], object]) -> Array:
    """Return, shape (n + 1, n + 1), the running sums of changes along both axes."""
    begins, ends, amounts = map(np.concatenate, zip(*changes, strict=True))
    order = np.argsort(begins, kind="stable")
    first = np.searchsorted(begins[order], np.arange(n + 2))
    found, row = np.empty((n + 1, n + 1), dtype=np.int64), np.zeros(n + 2, dtype=np.int64)
    for rows in blocks(n, pause):
        for a in range(rows.start, rows.stop):
            here = order[first[a] : first[a + 1]]
            np.add.at(row, ends[here], amounts[here])
            if len(here) or not a:
                np.cumsum(row[:-1], out=found[a])
            else:
                found[a] = found[a - 1]
    return found


def first_uses(shared: SharedBytes, n: int) -> Array:
    """Return, shape (n + 1,), the first use of a shared key at each layer or after it."""
    first = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(shared.layer, minlength=n), out=first[1:])
    return first


def next_of(fixed_cuts: Sequence[int], n: int) -> Array:
    """Return, shape (n,), the first fixed cut after each layer, or n: stages end there at last."""
    if not fixed_cuts:
        return np.full(n, n, dtype=np.int64)
    fixed = np.array([*fixed_cuts, n], dtype=np.int64)
    return np.asarray(fixed[np.searchsorted(fixed, np.arange(n), side="right")])


def needs_kernels(shared: SharedBytes, n: int) -> bool:
    """Whether memory is looked up by the compiled kernel: shared keys, or very many layers."""
    return bool(len(shared.layer)) or n >= MANY_LAYERS


LARGEST_TABLE = 2**27  # entries of a row of all layers for every class of devices, and of ranges


class CostsInTicks:
    """Compute and transfers of an instance in ticks; those that could overflow are refused."""

    instance: PipelinePartition
    _chain: PipelinePartition
    n: int
    k: int
    classes: int
    scale: int | Fraction  # ticks per cycle
    rounding: int  # by how many ticks rounding may change a value: 0 for exact ticks
    # Shape (classes, n + 1): running sum of the layers' ticks on a device of each class, so that
    # [a, b) computes for prefix[:, b] - prefix[:, a] ticks.  Of no use with a compute table.
    prefix: Array
    # Shape (classes, n + 1): ticks to receive at the begin, and to send at the end of a stage;
    # recv[:, 0] and send[:, n] are 0, so that first and last stages need no special case.
    recv: Array
    send: Array
    host: int  # ticks of the exchange with the host, added to every transfer, of `latency` to all
    # Of shape (n + 1, n + 1): ticks that [a, b) transfers on top, by class, where transfers count
    # by themselves and gradients of tied weights are reduced; else empty.
    extra: list[Array]
    tabular: bool  # whether ranges have tables; of use without are `prefix` and reaches
    _example: list[int]
    _speeds: list[Fraction]
    _work: list[Array]

    def _set_ticks(self, slowest: float, pause: Callable[[], object]) -> None:
        instance, table = self.instance, self.instance.compute_table
        self.extra = []
        self.tabular = table is not None or instance.memory_table is not None
        if instance.objective is Objective.MOVES:
            self._set_moves(pause)
            return
        reduced = self._reduction_cycles() if instance.reduces else ()
        if not instance.objective.counts_transfers:
            # Not part of the objective: they must not make the ticks coarser.
            recv = send = np.zeros((self.classes, self.n + 1), dtype=np.int64)
            host = np.zeros(0, dtype=np.int64)
        else:
            recv, send, host = self._transfer_cycles(pause)
        pause()
        cycles = cycles_of_options(instance) if table is None else table
        total = float(cycles.max(axis=0).sum() if table is None else table.max())
        stages = min(self.n, self.k) if instance.objective is Objective.LATENCY else 1
        largest = stages * (float(recv.max()) + float(send.max())) + float(host.max(initial=0))
        largest += total / slowest * (stages if table is not None else 1)
        largest += stages * sum(float(row.sum(axis=1).max()) for row in reduced)
        grids = [decimal_grid(row, pause) for row in (cycles, recv, send, host, *reduced)]
        self.scale: int | Fraction = max(grids) * instance.speed_scale if all(grids) else 0
        exact = bool(self.scale) and largest * float(self.scale) < LARGEST_TICKS
        if not exact and instance.whole and instance.speed_scale:
            raise InputError(
                "cycles and transfers together exceed the exact range of 64-bit integers",
                field="forward",
                remedy="use a coarser unit",
            )
        pause()
        self.rounding = 0 if exact else ROUNDING * stages + self.n * bool(instance.alternatives)
        if exact:
            self._set_work_exactly(int(self.scale), pause)
            rows = [recv, send, host, *reduced]
            if self.scale != 1 or not instance.whole:
                rows = [ticks(row, self.scale) for row in rows]
        else:
            # No common unit: round, and keep what that may change out of every bound.
            exponent = binary_grid(largest)
            self.scale = Fraction(2) ** exponent
            self._set_work_rounded(exponent, slowest, pause)
            rows = [on_binary_grid(row, exponent) for row in (recv, send, host, *reduced)]
            self.rounding += stages * sum(row.shape[1] for row in reduced)
        pause()
        self.recv, self.send, hosts, *more = rows
        self.recv[:, 0] = 0
        self.send[:, self.n] = 0
        self.host = int(hosts.sum())
        if more:
            self._add_reductions(more, pause)

    def _reduction_cycles(self) -> tuple[Array, Array]:
        """Return in how many cycles of a microbatch each tied weight's gradient is received, and
        sent, both (classes, weights).
        """
        instance, devices = self.instance, self.instance.cluster.devices
        assert instance.tied is not None
        nbytes, m = instance.tied.nbytes, instance.microbatches
        both = []
        for name in ("recv", "send"):
            links = [getattr(devices[d], name) for d in self._example]
            each = np.array([self._link_cycles(link, nbytes) for link in links])
            both.append(each // m if instance.whole else each / m)
        return both[0], both[1]

    def _add_reductions(self, reduced: list[Array], pause: Callable[[], object]) -> None:
        """Add ticks of reductions, (classes, weights), to what ranges compute, or transfer."""
        tied, objective = self.instance.tied, self.instance.objective
        assert tied is not None
        self._require_tables("tied", "ranges of layers have tables of reductions")
        work = []
        for c, (recv, send) in enumerate(zip(*reduced, strict=True)):
            own, overlap = self._work[c], objective is Objective.OVERLAP
            several = (recv, send) if overlap else (recv + send,)
            tables = [held_in_part(replace(tied, nbytes=t), self.n, pause) for t in several]
            if objective is Objective.TRANSFER_BOUNDED:
                self.extra += tables
                continue
            for rows in blocks(self.n, pause):
                computed = own[rows] if own.ndim == 2 else own - own[rows, None]
                if overlap:
                    received, sent = (table[rows] for table in tables)
                    received += self.recv[c][rows, None]
                    np.maximum(received, sent + self.send[c], out=received)
                    np.maximum(received, computed, out=received)
                else:
                    tables[0][rows] += computed
            work.append(tables[0])
        self._work, self.tabular = work or self._work, True

    def _set_moves(self, pause: Callable[[], object]) -> None:
        """Set as ticks of compute the bytes of layers that devices of each class do not hold."""
        instance, shared = self.instance, self.instance.shared
        held, nbytes = np.array(instance.previous), sum(instance.exclusive.values())
        self.scale, self.rounding, self.host = 1, 0, 0
        self.recv, self.send = np.zeros((2, self.classes, self.n + 1), dtype=np.int64)
        self.prefix = np.zeros_like(self.recv)
        for c, device in enumerate(self._example):
            pause()
            np.cumsum(np.where(held == device, 0, nbytes), out=self.prefix[c, 1:])
        self._work = list(self.prefix)
        largest = int(np.sum(nbytes)) + self.k * int(shared.nbytes.sum())
        if largest >= LARGEST_TICKS:
            raise InputError(
                "all layers together have 2**60 bytes or more",
                field="exclusive",
                remedy="use a coarser unit",
            )
        if shared.nbytes[shared.key].any():
            self._require_tables("shared", "shared keys are loaded by ranges of layers")
            for c, device in enumerate(self._example):
                fresh = shared.nbytes.copy()
                fresh[shared.key[held[shared.layer] == device]] = 0
                once = held_once(replace(shared, nbytes=fresh), self.n, pause)
                self._work[c] = self.compute_matrix(c) + once
                pause()
            self.tabular = True

    def _require_tables(self, field: str, why: str) -> None:
        """Refuse more layers than there is room for tables of all ranges."""
        if self.classes * (self.n + 1) ** 2 > LARGEST_TABLE:
            raise InputError(
                f"{why}: {self.classes:,} x {self.n:,} x {self.n:,} entries are too many",
                field=field,
                remedy="join layers, leave it out of memory, or minimise the bottleneck",
            )

    def compute_matrix(
        self, device_class: int, pause: Callable[[], object] = lambda: None
    ) -> Array:
        """Return, shape (n + 1, n + 1), the ticks of [a, b); meaningless for b <= a.

        `pause` is called now and then.
        """
        work = self._work[device_class]
        if work.ndim == 2:
            return work
        found = np.empty((self.n + 1, self.n + 1), dtype=np.int64)
        for rows in blocks(self.n, pause):
            np.subtract(work, work[rows, None], out=found[rows])
        return found

    def _set_work_exactly(self, scale: int, pause: Callable[[], object]) -> None:
        """Set `prefix` (and `_work`) in ticks of a grid on which all are whole."""
        instance, table = self.instance, self.instance.compute_table
        self.prefix = np.zeros((self.classes, 1 if table is not None else self.n + 1), np.int64)
        if table is not None:
            self._work = [
                ticks(self._class_table(table, c), scale / speed)
                for c, speed in enumerate(self._speeds)
            ]
            return
        # Layers are whole in units of a grid in which every class's ticks are whole, too.
        running = np.zeros(self.n + 1, dtype=np.int64)
        each = ticks(self._chain.cycles, scale // instance.speed_scale)
        np.cumsum(each, out=running[1:])
        for c, speed in enumerate(self._speeds):
            pause()
            whole = instance.speed_scale // speed.numerator * speed.denominator
            self.prefix[c] = ticks(running, whole)
        self._work = list(self.prefix)

    def _set_work_rounded(self, exponent: int, slowest: float, pause: Callable[[], object]) -> None:
        """Set `prefix` (and `_work`) on a binary grid."""
        table = self.instance.compute_table
        ratios = [slowest / float(speed) for speed in self._speeds]
        if table is not None:
            self.prefix = np.zeros((self.classes, 1), dtype=np.int64)
            self._work = []
            for c, ratio in enumerate(ratios):
                pause()
                scaled = np.ldexp(self._class_table(table, c), exponent) / slowest
                self._work.append(np.rint(scaled * ratio).astype(np.int64))
            return
        running = running_on_binary_grid(self._chain.cycles, exponent, slowest, pause)
        self.prefix = np.empty((self.classes, self.n + 1), dtype=np.int64)
        for c, ratio in enumerate(ratios):
            pause()
            self.prefix[c] = np.rint(running if ratio == 1 else running * ratio)
        self._work = list(self.prefix)

    def _transfer_cycles(self, pause: Callable[[], object]) -> tuple[Array, Array, Array]:
        """Return receive (classes, n + 1), send (classes, n + 1) and host (2,) cycles."""
        instance, cluster = self.instance, self.instance.cluster
        devices = [cluster.devices[d] for d in self._example]
        given = (instance.recv_cycles, instance.send_cycles)
        nbytes = (instance.in_bytes, instance.out_bytes)
        links = ([device.recv for device in devices], [device.send for device in devices])
        ends = ((cluster.host_recv, 0), (cluster.host_send, self.n))
        rows, host = [], []
        for cycles, moved, each, (host_link, cut) in zip(given, nbytes, links, ends, strict=True):
            if cycles is not None:
                rows.append(cycles[self._example])
                host.append(cycles[0 if cut == 0 else -1, cut])
                continue
            table = np.empty((self.classes, self.n + 1), np.int64 if instance.whole else np.float64)
            for c, link in enumerate(each):
                pause()
                np.multiply(self._link_cycles(link, moved), instance.trips, out=table[c])
            rows.append(table)
            host.append(self._link_cycles(host_link, moved[cut : cut + 1])[0])
        return rows[0], rows[1], np.array(host if instance.host_transfer else [])

    def _link_cycles(self, link: Link | None, nbytes: Array) -> Array:
        """Return the cycles in which a link moves bytes; a missing link takes no time."""
        if link is None:
            return np.zeros(len(nbytes), dtype=np.int64)
        cycles = nbytes / (link.GBps * 2**30 / self.instance.cluster.clock)
        cycles += link.idle
        if not self.instance.whole:
            return np.asarray(cycles)
        if cycles.max() >= LARGEST_TICKS:
            raise InputError(
                "a transfer takes more than 2**60 cycles",
                field="in_bytes",
                remedy="use a coarser unit or a faster link",
            )
        return cycles.astype(np.int64)

    def _class_table(self, table: Array, device_class: int) -> Array:
        return np.asarray(table if table.ndim == 2 else table[self._example[device_class]])
