"""The normal form of graph partitioning: blocks of nodes, nets between them, integer ticks.

Nodes that must share a stage are one block: those of one colour, and those on a cycle of colours.
Blocks are numbered topologically.  A net is a tensor that several blocks share.  Times and traffic
are integers, so that all algorithms compare exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from stagepack.errors import InputError
from stagepack.instances.arrays import distinct
from stagepack.instances.graph.check import stage_order
from stagepack.instances.graph.components import numbered, rows
from stagepack.instances.graph.data import GraphData, GraphSolution
from stagepack.instances.graph.nets import Nets, nets
from stagepack.instances.graph.problem import DeviceOrder, Objective
from stagepack.instances.graph.ticking import Ticking, Timed, paces, summed, ticking
from stagepack.instances.profile import Array
from stagepack.instances.ticks import exactly

FORBIDDEN = 2**60
"""Ticks of a block where it must not run; all loads are below."""
UNLIMITED = 2**62
"""Bytes of a device without a limit."""
EXCHANGES = 4  # times that replicas of a stage move its parameters, in all
KEPT_AS = "_compact"  # with an instance, outside its fields
LARGEST_TABLE = 2**28  # times of all blocks on all kinds of devices


@dataclass(frozen=True, eq=False, kw_only=True)
class Compact(Timed):
    """An instance in the form on which algorithms work; use :meth:`of`.

    Devices of one class are alike in all.  There is one pass, or two under the objective
    ``forward+backward``.  Under ``memory`` ticks are bytes, nets none, and the load of a stage is
    its time plus its stashes.
    """

    instance: GraphData  # what blocks and ticks stand for
    # (passes, classes, blocks): ticks on a device of the class; `FORBIDDEN` where the block must
    # not be.
    time: Array
    # (blocks,): bytes: held; for each microbatch in flight; exchanged by replicas.
    size: Array
    stash: Array
    parameters: Array
    sync: Fraction  # ticks that m replicas of a stage exchange: sync * parameters * (m - 1) / m
    # int32: blocks whose stage must not be later, and earlier, than that of block b:
    # before[before_ptr[b]:before_ptr[b + 1]]; none where stages need not be contiguous.
    before_ptr: Array
    before: Array
    after_ptr: Array
    after: Array
    # int32: blocks of each net: the producer first, then the others, rising.
    net_ptr: Array
    net: Array
    net_cost: Array  # (nets,): ticks; where links are unlike, at the fastest of them
    # int8 (nets,): 0 where the forward pass pays for it, 1 where the backward pass does.
    net_pass: Array
    # int32: nets of each block.
    of_ptr: Array
    of_net: Array
    # (classes,): devices, and bytes of each (`UNLIMITED` without a limit).
    class_count: Array
    class_memory: Array
    class_pays: Array  # bool (classes,): whether traffic counts
    device_class: Array  # int32 (devices,): class of each device
    sequence: Array | None  # int32 (devices,): class of the device of each stage, where it is fixed
    exact_stages: bool  # whether every device must hold blocks
    microbatches: int  # in flight at most
    objective: Objective
    # `uniform`: links are alike.  Otherwise every device is a class of its own.
    contiguous: bool
    uniform: bool
    # (devices, devices): kind of the link from row to column, where links are unlike.
    level: Array | None
    level_cost: Array | None  # (kinds, nets): ticks of each net on it
    block_of: Array  # (nodes,): block of each node

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return len(self.size)

    @property
    def nets(self) -> int:
        """Number of nets."""
        return len(self.net_cost)

    @property
    def passes(self) -> int:
        """Number of passes with loads of their own."""
        return len(self.time)

    @property
    def devices(self) -> int:
        """Number of devices, and the most stages."""
        return len(self.device_class)

    @classmethod
    def of(cls, instance: GraphData, pause: Callable[[], object] = lambda: None) -> Compact:
        """Return the compact form of an instance, made when it is first asked for.

        `pause` is called now and then.  Refuses too many kinds of devices for so many blocks.
        O((nodes + edges) log(edges)).
        """
        kept: dict[str, Compact] = vars(instance)
        if KEPT_AS not in kept:
            kept[KEPT_AS] = cls._made(instance, pause)
        return kept[KEPT_AS]

    @classmethod
    def _made(cls, instance: GraphData, pause: Callable[[], object]) -> Compact:
        """Make the compact form of an instance."""
        memory = instance.objective == Objective.MEMORY
        block_of = _blocks(instance)
        pause()
        count = int(block_of.max()) + 1
        device_class, first = _classes(instance)
        grid = Ticking(Fraction(1), exact=True) if memory else ticking(instance)
        pause()
        u, v = block_of[instance.precedence].T if instance.contiguous else np.zeros((2, 0), int)
        u, v = u[u != v], v[u != v]
        before_ptr, before = rows(count, v, u)
        after_ptr, after = rows(count, u, v)
        pause()
        found = nets(instance, block_of, pause)
        of_ptr, of_net = rows(count, found.members, np.repeat(np.arange(found.nets), found.size))
        level_cost = _level_costs(instance, found, grid)
        pause()
        limits = np.full(instance.devices, UNLIMITED)
        if instance.capacity is not None:
            limits[: instance.accelerators] = instance.capacity
        fixed = instance.device_order == DeviceOrder.FIXED
        unlike = not instance.uniform and not memory
        return cls(
            instance=instance,
            time=_times(instance, block_of, count, first, grid),
            size=summed(instance.memory, block_of, count),
            stash=summed(instance.stash, block_of, count),
            parameters=summed(instance.parameters, block_of, count),
            sync=_exchange(instance, grid),
            before_ptr=_short(before_ptr),
            before=_short(before),
            after_ptr=_short(after_ptr),
            after=_short(after),
            net_ptr=_short(found.ptr),
            net=_short(found.members),
            net_cost=level_cost.min(axis=0),
            net_pass=found.which.astype(np.int8),
            of_ptr=_short(of_ptr),
            of_net=_short(of_net),
            class_count=np.bincount(device_class),
            class_memory=limits[first],
            class_pays=np.asarray(first < instance.accelerators),
            device_class=_short(device_class),
            sequence=_short(device_class) if fixed else None,
            exact_stages=not instance.empty_devices,
            microbatches=instance.microbatches,
            objective=instance.objective,
            contiguous=instance.contiguous,
            uniform=not unlike,
            level=_levels(instance) if unlike else None,
            level_cost=level_cost if unlike else None,
            block_of=block_of,
            scale=grid.scale,
            rounding=0 if grid.exact else instance.n + len(instance.producer),
        )

    def assignment(
        self, stages: npt.ArrayLike, classes: npt.ArrayLike, replicas: Sequence[int] = ()
    ) -> GraphSolution:
        """Return the solution with each block on a stage, each stage on a device of a class.

        Devices of a class are taken in order; stages without blocks take none.  Where the order of
        devices is fixed, stage s is device s.  Of `stages` there is one a block, of `classes` one a
        stage, and of `replicas` one a stage that has blocks.
        """
        chosen, class_of = np.asarray(stages, dtype=np.int64), np.asarray(classes).tolist()
        used: list[int] = distinct(chosen).tolist()
        device = np.arange(len(class_of))
        if self.sequence is None:
            kinds = range(len(self.class_count))
            free = [iter(np.flatnonzero(self.device_class == kind).tolist()) for kind in kinds]
            device[used] = [next(free[class_of[stage]]) for stage in used]
        order = device[used].tolist()
        return GraphSolution.of(self.instance, device[chosen[self.block_of]], order, replicas)

    def stages(self, solution: GraphSolution) -> tuple[Array, Array]:
        """Return the stage of each block in a valid solution, and the class of each stage.

        Where the order of devices is fixed, stages are devices; else those that hold blocks.
        """
        if self.sequence is not None:
            order = list(range(self.devices))
        else:
            order = stage_order(self.instance, solution)
        stage = np.zeros(self.devices, dtype=np.int64)
        stage[order] = np.arange(len(order))
        found = np.empty(self.blocks, dtype=np.int64)
        found[self.block_of] = stage[solution.assignment]
        return found, self.device_class[order].astype(np.int64)

    def loads(
        self, stages: npt.ArrayLike, classes: npt.ArrayLike, replicas: Sequence[int] = ()
    ) -> Array:
        """Return the load of each stage in ticks, shape (passes, stages).

        `stages`, `classes` and `replicas` are those of :meth:`assignment`; loads of replicas are
        rounded.
        """
        chosen, kinds = np.asarray(stages, dtype=np.int64), np.asarray(classes, dtype=np.int64)
        used, position = np.unique(chosen, return_inverse=True)
        if self.objective == Objective.MEMORY:
            flying = np.minimum(self.microbatches, len(used) - position)
            held = self.time[0, kinds[chosen], np.arange(self.blocks)] + flying * self.stash
            return summed(held, chosen, len(kinds))[None]
        shape = (self.passes, len(kinds))
        time, received, sent = (np.zeros(shape, dtype=np.int64) for _ in range(3))
        for which in range(self.passes):
            node_time = self.time[which, kinds[chosen], np.arange(self.blocks)]
            np.add.at(time[which], chosen, node_time)
        source, target, cost, net = self._crossings(chosen, kinds)
        np.add.at(received, (self.net_pass[net], target), cost)
        slowest = np.zeros(self.nets, dtype=np.int64)
        np.maximum.at(slowest, net, cost)
        crossed, at = np.unique(net, return_index=True)
        np.add.at(sent, (self.net_pass[crossed], source[at]), slowest[crossed])
        for traffic in (received, sent):
            traffic[:, ~self.class_pays[kinds]] = 0
        if self.objective in (Objective.SUM, Objective.FORWARD_BACKWARD):
            return time + received + sent
        if replicas:
            m = np.ones(len(kinds), dtype=np.int64)
            m[used] = replicas
            # Whole where ticks are exact: their scale is a multiple of every m * m.
            exchanged = float(self.sync) * summed(self.parameters, chosen, len(kinds)) * (m - 1) / m
            time += np.rint(exchanged).astype(np.int64)
            return np.maximum(np.maximum(time, received), sent) // m
        return np.maximum(np.maximum(time, received), sent)

    def _crossings(self, chosen: Array, kinds: Array) -> tuple[Array, Array, Array, Array]:
        """Return stage of the producer and of a reader, ticks, and net of all that crosses."""
        net = np.repeat(np.arange(self.nets), np.diff(self.net_ptr))
        pairs = distinct(net * len(kinds) + chosen[self.net])
        net, target = pairs // len(kinds), pairs % len(kinds)
        source = chosen[self.net[self.net_ptr[net]]]
        net, source, target = (a[source != target] for a in (net, source, target))
        cost = self.net_cost[net]
        if self.level is not None and self.level_cost is not None:
            cost = self.level_cost[self.level[kinds[source], kinds[target]], net]
        return source, target, cost, net


def _short(array: Array) -> Array:
    return array.astype(np.int32)


def _blocks(instance: GraphData) -> Array:
    """Return the block of each node: numbered topologically, or by their first nodes."""
    first_of = np.arange(instance.n)
    coloured = np.flatnonzero(instance.colour >= 0)
    _, first, colour = np.unique(instance.colour[coloured], return_index=True, return_inverse=True)
    first_of[coloured] = coloured[first][colour]
    leads = first_of == np.arange(instance.n)
    firsts = np.flatnonzero(leads)
    block: Array = (np.cumsum(leads) - 1)[first_of]
    if not instance.contiguous:
        return block
    pairs = block[instance.precedence]
    return numbered(len(firsts), pairs[pairs[:, 0] != pairs[:, 1]])[block]


def _classes(instance: GraphData) -> tuple[Array, Array]:
    """Return the class of each device, and the first device of each class.

    Devices are alike that have one speed, memory and kind, if links are alike, too.
    """
    k = instance.accelerators
    if not instance.uniform and instance.objective != Objective.MEMORY:
        return np.arange(instance.devices), np.arange(instance.devices)
    capacity = np.zeros(k) if instance.capacity is None else instance.capacity
    _, speed = np.unique(instance.speeds, return_inverse=True)
    _, room = np.unique(capacity, return_inverse=True)
    kind = np.concatenate((speed * (k + 1) + room, np.full(instance.cpus, (k + 1) ** 2)))
    _, first, kind = np.unique(kind, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[kind], first[order]


def _times(instance: GraphData, block_of: Array, count: int, first: Array, grid: Ticking) -> Array:
    """Return the ticks of each block in each pass on each class of devices."""
    passes = 2 if instance.objective == Objective.FORWARD_BACKWARD else 1
    if passes * len(first) * count > LARGEST_TABLE:
        raise InputError(
            f"{len(first):,} kinds of devices for {count:,} nodes that may part",
            field="speeds",
            remedy="give devices of fewer kinds, or links of one bandwidth",
        )
    found = np.zeros((passes, len(first), count), dtype=np.int64)
    for at, device in enumerate(first.tolist()):
        allowed = instance.accelerator if device < instance.accelerators else instance.cpu
        if instance.objective == Objective.MEMORY:
            ticks = instance.memory
        elif device < instance.accelerators:
            ticks = grid.ticks(instance.time, instance.speeds[device].item())
        else:
            ticks = grid.ticks(instance.cpu_time, 1)
        for which in range(passes):
            nodes = instance.backward == which if passes > 1 else slice(None)
            np.add.at(found[which, at], block_of[nodes], ticks[nodes])
        found[:, at, block_of[~allowed]] = FORBIDDEN
    return found


def _exchange(instance: GraphData, grid: Ticking) -> Fraction:
    """Return the ticks that a byte of parameters takes; 0 where none are exchanged."""
    if instance.objective != Objective.REPLICATED or not instance.parameters.any():
        return Fraction(0)
    return grid.scale * EXCHANGES / exactly(paces(instance)[0])


def _levels(instance: GraphData) -> Array:
    """Return the kind of the link between devices."""
    return np.searchsorted(paces(instance), instance.bandwidth)


def _level_costs(instance: GraphData, found: Nets, grid: Ticking) -> Array:
    """Return the ticks of each net on each kind of link."""
    kinds = paces(instance)
    if not found.nets:
        return np.zeros((len(kinds), 0), dtype=np.int64)
    return np.array([found.total(grid.ticks(instance.traffic, pace)) for pace in kinds])
