"""The normal form of a graph for the objective latency: blocks on devices, nodes on CPUs, in ticks.

Only nodes of one colour are a block: what is between them may go to a CPU.  A net is a tensor that
several blocks share: an accelerator that holds some of them but not all pays for it once.
Cost: O((nodes + edges) log(edges)).  Source: Tarnawski et al., *Efficient Algorithms for Device
Placement of DNN Graph Operators*, NeurIPS 2020, for the objective.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stagepack.instances.arrays import distinct
from stagepack.instances.graph.compact import UNLIMITED
from stagepack.instances.graph.components import numbered
from stagepack.instances.graph.data import GraphData, GraphSolution
from stagepack.instances.graph.nets import nets
from stagepack.instances.graph.ticking import Timed, paces, summed, ticking
from stagepack.instances.profile import Array

OFTEN = 20_000
"""Nodes or edges looked at between two looks at the clock."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Sample(Timed):
    """An instance for latency; use :meth:`of`."""

    instance: GraphData
    block_of: Array  # (nodes,): block of each node, numbered by their first nodes
    order: Array  # (nodes,): the nodes in a topological order
    edges: Array  # (edges, 2): pairs of nodes, (writer, reader), each once
    node_time: Array  # (classes, nodes): ticks of a node on an accelerator of a class
    time: Array  # (classes, blocks): the same of blocks
    cpu_time: Array  # (nodes,): ticks of a node on a CPU
    # bool (blocks,): whether all nodes of a block may run on an accelerator, and on a CPU that
    # there is.
    fast: Array
    slow: Array
    size: Array  # (blocks,): bytes
    # (accelerators,): class and bytes (`UNLIMITED` without a limit) of each accelerator.
    kind: Array
    room: Array
    # Blocks of net j are net[net_ptr[j]:net_ptr[j + 1]]; it costs cost[j] ticks.
    net_ptr: Array
    net: Array
    cost: Array

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return len(self.size)

    @classmethod
    def of(cls, instance: GraphData, pause: Callable[[], object] = lambda: None) -> Sample:
        """Return the form of an instance; `pause` is called now and then."""
        colour = np.where(instance.colour >= 0, instance.colour, -1 - np.arange(instance.n))
        _, first, block_of = np.unique(colour, return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(first))
        block_of, count = rank[block_of], len(first)
        pause()
        k = instance.accelerators
        room = np.full(k, UNLIMITED) if instance.capacity is None else instance.capacity
        alike = list(zip(instance.speeds.tolist(), room.tolist(), strict=True))
        kinds = list(dict.fromkeys(alike))
        grid = ticking(instance)
        node_time = np.array([grid.ticks(instance.time, speed) for speed, _ in kinds])
        node_time = node_time.reshape(len(kinds), instance.n)
        pause()
        found = nets(instance, block_of, pause)
        cost = grid.ticks(instance.traffic, *paces(instance))
        pairs = distinct(instance.edges[:, 0] * instance.n + instance.edges[:, 1])
        edges = np.column_stack((pairs // instance.n, pairs % instance.n))
        return cls(
            instance=instance,
            block_of=block_of,
            order=np.argsort(numbered(instance.n, edges), kind="stable"),
            edges=edges,
            node_time=node_time,
            time=np.array([summed(row, block_of, count) for row in node_time]).reshape(-1, count),
            cpu_time=grid.ticks(instance.cpu_time, 1)
            if instance.cpus
            else np.zeros(instance.n, int),
            fast=summed(~instance.accelerator, block_of, count) == (0 if k else -1),
            slow=summed(~instance.cpu, block_of, count) == (0 if instance.cpus else -1),
            size=summed(instance.memory + instance.stash, block_of, count),
            kind=np.array([kinds.index(one) for one in alike], dtype=np.int64),
            room=np.array(room, dtype=np.int64),
            net_ptr=found.ptr,
            net=found.members,
            cost=found.total(cost),
            scale=grid.scale,
            rounding=0 if grid.exact else instance.n + (k + 1) * len(instance.producer),
        )

    def solution(self, places: Array) -> GraphSolution:
        """Return the solution with each block on an accelerator, or on a CPU where that is -1."""
        devices = np.where(places >= 0, places, self.instance.accelerators)
        return GraphSolution.of(self.instance, devices[self.block_of])

    def places(self, solution: GraphSolution) -> Array:
        """Return the accelerator of each block, -1 for a CPU."""
        found = np.full(self.blocks, -1, dtype=np.int64)
        device = solution.assignment
        found[self.block_of] = np.where(device < self.instance.accelerators, device, -1)
        return found

    def least(self) -> Array:
        """Return the fewest ticks of each node, where its block may run."""
        far = np.iinfo(np.int64).max
        on_fast = self.node_time.min(axis=0, initial=far)
        fast = np.where(self.fast[self.block_of], on_fast, far)
        least = np.minimum(fast, np.where(self.slow[self.block_of], self.cpu_time, far))
        return np.where(least < far, least, 0)

    def sent(self) -> Array:
        """Return the ticks of all that each node writes, int64 of shape (nodes,)."""
        grid = ticking(self.instance)
        cost = grid.ticks(self.instance.traffic, *paces(self.instance))
        return summed(cost, self.instance.producer, self.instance.n)

    def heads(
        self, weight: Array, pause: Callable[[], object] = lambda: None
    ) -> tuple[Array, Array]:
        """Return the heaviest path that ends at each node, itself included; the node before it.

        `weight` is that of each node; -1 stands for no node before.  `pause` is called now and
        then.
        """
        head, before = weight.tolist(), [-1] * len(weight)
        own = weight.tolist()
        after: list[list[int]] = [[] for _ in own]
        for u, v in self.edges.tolist():
            after[u].append(v)
        for at, u in enumerate(self.order.tolist()):
            if at % OFTEN == 0:
                pause()
            for v in after[u]:
                if head[u] + own[v] > head[v]:
                    head[v], before[v] = head[u] + own[v], u
        return np.array(head, dtype=np.int64), np.array(before, dtype=np.int64)

    def path(self, head: Array, before: Array) -> list[int]:
        """Return the nodes of the heaviest path, of what :meth:`heads` returned."""
        path = [int(head.argmax())]
        while before[path[-1]] >= 0:
            path.append(int(before[path[-1]]))
        return path[::-1]

    def impossible(self) -> str:
        """Return a reason that there is no partition; "" where none is plain to see."""
        largest = int(self.room.max(initial=0))
        lost = np.flatnonzero(~self.slow & ~(self.fast & (self.size <= largest)))
        if not len(lost):
            return ""
        instance, b = self.instance, int(lost[0])
        nodes = np.flatnonzero(self.block_of == b)
        name = instance.node_name(int(nodes[0]))
        who = (
            f"node {name}"
            if len(nodes) == 1
            else f"the {len(nodes):,} nodes of one colour as {name}"
        )
        if self.fast[b]:
            return (
                f"{who}: {int(self.size[b]):,} bytes, more than the {largest:,} of the largest "
                "accelerator, and no CPU may run it; give more memory"
            )
        return f"{who}: no device that there is may run it; give one on which it may"
