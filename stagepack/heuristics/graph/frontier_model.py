"""What the frontier method can answer, and the graph as it sees it: loads by stage, and ties."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stagepack.heuristics.graph.frontier_plan import WORD_BITS, Network, reduced, rows
from stagepack.instances.graph import Compact, Objective
from stagepack.instances.graph.compact import UNLIMITED
from stagepack.instances.graph.data import GraphData
from stagepack.instances.graph.words import DeviceOrder
from stagepack.instances.profile import Array


def unsupported(instance: GraphData) -> str:
    """Return why the method cannot answer for a graph, or ""."""
    if instance.objective not in (Objective.SUM, Objective.MEMORY):
        return f"the objective {instance.objective} is not supported, sum and memory are"
    if not instance.contiguous:
        return "stages need not be contiguous, but labels take them to be"
    if not instance.uniform:
        return "links are unlike: traffic depends on the devices at both ends"
    if instance.devices >= WORD_BITS:
        return f"{instance.devices:,} devices are more than the {WORD_BITS - 1} that fit a label"
    if instance.device_order == DeviceOrder.ANY and not _alike(instance):
        return "devices are unlike, and their order is not fixed"
    return ""


def _alike(instance: GraphData) -> bool:
    capacity = instance.capacity
    kinds = bool(instance.accelerators) + bool(instance.cpus)
    same = capacity is None or len(set(capacity.tolist())) <= 1
    return kinds == 1 and same and len(set(instance.speeds.tolist())) <= 1


@dataclass(frozen=True, eq=False)
class Model:
    """A graph for sweeps.

    Attributes
    ----------
    classes : ndarray, shape (stages,)
        Class of the device of each stage.
    network : Network
    work : ndarray of int64, shape (rows, stages, blocks)
        Load of every block by stage: ticks, and bytes where memory is limited.
    pays : ndarray of int64, shape (stages,)
        1 where traffic counts.
    room : ndarray of int64, shape (rows - 1, stages)
        Bytes of each stage.
    """

    classes: Array
    network: Network
    work: Array
    pays: Array
    room: Array

    @classmethod
    def of(cls, compact: Compact) -> Model:
        """Return the model of a supported graph.

        How often a stage holds its stashes depends on how many follow it: with empty devices it is
        taken to be once, which is safe for bounds.
        """
        k = compact.devices
        classes = np.zeros(k, np.int64) if compact.sequence is None else compact.sequence
        before, after = reduced(rows(compact.before_ptr, compact.before))
        members = rows(compact.net_ptr, compact.net)
        network = Network(before, after, members, compact.net_cost.tolist())
        flying = np.ones(k, dtype=np.int64)
        if compact.exact_stages:
            flying = np.minimum(compact.microbatches, k - np.arange(k))
        held = flying[:, None] * compact.stash
        time = compact.time[0, classes]
        room = compact.class_memory[classes][None]
        if compact.objective == Objective.MEMORY:
            work = (time + held)[None]
        else:
            work = np.stack((time, compact.size + held))
        if compact.objective == Objective.MEMORY or (room == UNLIMITED).all():
            work, room = work[:1], room[:0]
        pays = compact.class_pays[classes].astype(np.int64)
        return cls(classes, network, work, pays, room)

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.pays)

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return int(self.work.shape[2])
