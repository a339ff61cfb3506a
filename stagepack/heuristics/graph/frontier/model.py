"""The graph in the form that the frontier method uses, and the instances it supports.

Cost: O(edges * blocks / 64) to remove redundant edges, and O(stages * blocks) for each order of the
devices.  Source: see :mod:`.sweeps`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stagepack.heuristics.graph.frontier.plan import WORD_BITS, Network, reduced, rows
from stagepack.heuristics.graph.frontier.tuning import LabelsTuning
from stagepack.heuristics.graph.tuning import TUNING
from stagepack.instances.graph import Compact, Objective
from stagepack.instances.graph.compact import FORBIDDEN, UNLIMITED
from stagepack.instances.graph.data import GraphData
from stagepack.instances.graph.problem import DeviceOrder
from stagepack.instances.profile import Array


def unsupported(instance: GraphData, tuning: LabelsTuning = TUNING.labels) -> str:
    """Return why the method cannot answer for a graph, or ""."""
    if instance.objective == Objective.REPLICATED:
        return "labels are for stages on one device each, but stages may be replicated"
    if not instance.contiguous:
        return "labels are for contiguous stages only, but the instance allows others"
    if not instance.uniform:
        return "links are unlike: traffic depends on the devices at both ends"
    if instance.devices >= WORD_BITS:
        return f"{instance.devices:,} devices are more than the {WORD_BITS - 1} that fit a label"
    most = tuning.most_nodes
    if instance.n > most:
        return f"{instance.n:,} nodes are more than the {most:,} that labels are for"
    orders = _orders(instance)
    if instance.device_order == DeviceOrder.ANY and orders > tuning.most_device_orders:
        return f"devices are unlike and their order is free: {orders:,} are too many"
    return ""


def unproved(instance: GraphData) -> str:
    """Return why labels prove no more than bounds for a graph, or ""."""
    if instance.objective == Objective.FORWARD_BACKWARD and instance.backward.any():
        return "labels add up the loads of both passes, which may be largest on different stages"
    if not instance.empty_devices and instance.devices > 1:
        return "labels do not record which devices are in use, but all must be"
    if instance.empty_devices and instance.microbatches > 1 and instance.stash.any():
        return "labels do not record how many later stages keep stashes"
    return ""


def _orders(instance: GraphData) -> int:
    """Return how many orders of the devices differ."""
    capacity = np.zeros(instance.accelerators) if instance.capacity is None else instance.capacity
    alike = Counter(zip(instance.speeds.tolist(), capacity.tolist(), strict=True))
    counts = [*alike.values(), instance.cpus]
    return math.factorial(sum(counts)) // math.prod(map(math.factorial, counts))


def sequences(compact: Compact) -> list[tuple[int, ...]]:
    """Return the orders of the devices to try, as the class of each stage."""
    if compact.sequence is not None:
        return [tuple(compact.sequence.tolist())]
    found: list[tuple[int, ...]] = [()]
    counts = compact.class_count.tolist()
    for _ in range(compact.devices):
        found = [(*row, c) for row in found for c in range(len(counts)) if row.count(c) < counts[c]]
    return found


@dataclass(frozen=True, eq=False)
class Model:
    """A graph for sweeps."""

    classes: Array  # (stages,): class of the device of each stage
    network: Network
    # int64 (rows, stages, blocks): load of every block by stage: ticks, and bytes where memory is
    # limited; where what is received and sent counts apart these come between, and are 0.
    work: Array
    apart: bool  # whether they do
    pays: Array  # int64 (stages,): 1 where traffic counts
    room: Array  # int64 (0 or 1, stages): bytes of each stage, where they are limited
    # int64 (stages,): what loads must not exceed within any limit: memory, where bytes are the
    # load.
    most: Array

    @classmethod
    def all_of(cls, compact: Compact, pause: Callable[[], object] = lambda: None) -> list[Model]:
        """Return the models of a supported graph, one for each order of the devices.

        `pause` is called now and then; what it raises ends this.
        """
        before = rows(compact.before_ptr, compact.before)
        pause()
        before, after = reduced(before)
        pause()
        members = rows(compact.net_ptr, compact.net)
        pause()
        network = Network(before, after, members, compact.net_cost.tolist())
        return [cls._of(compact, network, np.array(each)) for each in sequences(compact)]

    @classmethod
    def _of(cls, compact: Compact, network: Network, classes: Array) -> Model:
        """Return the model of one order, given as the class of the device of each stage.

        How often a stage holds its stashes depends on how many follow it: with empty devices it is
        taken to be once.  Under ``forward+backward`` the loads of both passes of a stage are added,
        which may be less than the greatest of each.  Both are safe for bounds.
        """
        k = compact.devices
        flying = np.ones(k, dtype=np.int64)
        if compact.exact_stages:
            flying = np.minimum(compact.microbatches, k - np.arange(k))
        held = flying[:, None] * compact.stash
        time = np.minimum(compact.time[:, classes].sum(axis=0), FORBIDDEN)
        pays = compact.class_pays[classes].astype(np.int64)
        room, most = compact.class_memory[classes][None], np.full(k, UNLIMITED)
        if compact.objective == Objective.MEMORY:
            return cls(classes, network, (time + held)[None], False, pays, room[:0], room[0])
        if (room == UNLIMITED).all():
            room = room[:0]
        apart = compact.objective == Objective.OVERLAP
        loads = [time, *2 * apart * [np.zeros_like(time)], *len(room) * [compact.size + held]]
        return cls(classes, network, np.stack(loads), apart, pays, room, most)

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.pays)

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return int(self.work.shape[2])
