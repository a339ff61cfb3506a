"""Which topological order of a graph makes a chain: the best of some dozens.

A network that is no chain can be read as one in many orders, and each has an optimum of its own.
What is chosen here is the order whose chain has the least optimum among those that were tried; the
optimum over *all* orders is a question of another kind, ``graph-partition``.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from stagepack.instances.pipeline.instance import PipelinePartition
from stagepack.instances.pipeline.order_kernels import (
    INFINITE,
    LATENCY,
    OVERLAP,
    PLAIN,
    SUM,
    TRANSFER,
    Stage,
    extend,
)
from stagepack.instances.pipeline.problem import Objective
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import ModelProfile

MOST_ORDERS = 48
MOST_STEPS = 100_000_000
"""Entries of all tables together: beyond, fewer orders are tried."""
NEAR = (0.02, 0.05, 0.2)  # parts of the chain by which layers move
STAIRS, MOST_STAIRS = 8, 32  # limits on transfers tried for one order
COUNTED = {
    Objective.BOTTLENECK: PLAIN,
    Objective.SUM: SUM,
    Objective.OVERLAP: OVERLAP,
    Objective.LATENCY: LATENCY,
}


def best_order(
    profile: ModelProfile, build: Callable[[ModelProfile], PipelinePartition]
) -> PipelinePartition:
    """Return the instance of the best order of a profile's layers; `build` makes one of a profile.

    The least of all by :func:`least_value`, the given order where none is better, and for
    `headroom`, of which that knows nothing.  Orders are those that go deep first from the head and
    from the tail, that which keeps few bytes alive, random ones, and then small changes of the best
    so far: always the same for one profile.  The last layer, which nothing reads, remains the last
    where the profile does not name its `results`: what returns to the host is the same in every
    order.  O(layers**2) for each.
    """
    best = build(profile)
    unknown = best.objective in (Objective.HEADROOM, Objective.MOVES)
    alone = unknown or best.placed  # no order of layers is compared
    if best.order is None or alone:
        return best
    best_value, tried = least_value(best), 1
    steps = 2 * best.n**2 + best.n * best.k
    if best.objective is Objective.TRANSFER_BOUNDED:
        steps *= STAIRS
    affordable = MOST_STEPS // steps
    graph = _Graph(profile)
    kept = list(range(graph.n))
    rng = random.Random(0)
    while tried < min(MOST_ORDERS, affordable):
        order = graph.by_rule(tried - 1, rng) if tried < MOST_ORDERS // 2 else graph.near(kept, rng)
        if profile.results is None:
            order.sort(key=(graph.n - 1).__eq__)
        layers = tuple(profile.layers[index] for index in order)
        instance = build(msgspec.structs.replace(profile, layers=layers))
        value = least_value(instance, best_value)
        tried += 1
        if value < best_value:
            best, best_value, kept = instance, value, order
    assert best.order is not None
    return best.replace(order=msgspec.structs.replace(best.order, tried=tried))


class _Graph:
    """Who reads whom, by index of the layers of a profile."""

    def __init__(self, profile: ModelProfile) -> None:
        layers = profile.layers
        self.n = len(layers)
        writer = {name: at for at, layer in enumerate(layers) for name in layer.outputs}
        self.sources = [
            sorted({writer[name] for name in layer.inputs if name in writer}) for layer in layers
        ]
        self.users: list[list[int]] = [[] for _ in layers]
        for user, sources in enumerate(self.sources):
            for source in sources:
                self.users[source].append(user)
        self.nbytes = [sum(profile.tensors[name] for name in layer.outputs) for layer in layers]

    def by_rule(self, at: int, rng: random.Random) -> list[int]:
        """Return the topological order of a rule by its number; from the fourth on by chance."""
        if at == 0:
            return self._narrow()
        chance = rng if at > 2 else None
        if at % 2:
            return self._deep(self.sources, self.users, chance)
        return self._deep(self.users, self.sources, chance)[::-1]

    def near(self, order: Sequence[int], rng: random.Random) -> list[int]:
        """Return a topological order in which layers have moved a little at random."""
        reach = self.n * rng.choice(NEAR)
        rank = [0.0] * self.n
        for place, at in enumerate(order):
            rank[at] = place + rng.uniform(0, reach)
        waiting = [len(sources) for sources in self.sources]
        ready = [(rank[at], at) for at in range(self.n) if not waiting[at]]
        heapq.heapify(ready)
        moved = []
        while ready:
            moved.append(heapq.heappop(ready)[1])
            for user in self.users[moved[-1]]:
                waiting[user] -= 1
                if not waiting[user]:
                    heapq.heappush(ready, (rank[user], user))
        return moved

    def _deep(
        self,
        before: Sequence[Sequence[int]],
        after: Sequence[Sequence[int]],
        rng: random.Random | None,
    ) -> list[int]:
        """Return the order that goes on from the layer placed last; by chance where `rng` is."""
        waiting = [len(sources) for sources in before]
        ready = [at for at in reversed(range(self.n)) if not waiting[at]]
        order = []
        while ready:
            order.append(ready.pop())
            fresh = []
            for user in after[order[-1]]:
                waiting[user] -= 1
                if not waiting[user]:
                    fresh.append(user)
            if rng is not None:
                rng.shuffle(fresh)
            ready += fresh
        return order

    def _narrow(self) -> list[int]:
        """Return the order that takes the layer after which the fewest bytes are alive."""
        waiting = [len(sources) for sources in self.sources]
        unread = [len(users) for users in self.users]
        ready = [at for at in range(self.n) if not waiting[at]]
        order: list[int] = []

        def growth(at: int) -> int:
            freed = sum(self.nbytes[s] for s in self.sources[at] if unread[s] == 1)
            return (self.nbytes[at] if self.users[at] else 0) - freed

        while ready:
            at = min(ready, key=lambda at: (growth(at), at))
            ready.remove(at)
            order.append(at)
            for source in self.sources[at]:
                unread[source] -= 1
            for user in self.users[at]:
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)
        return order


def least_value(instance: PipelinePartition, enough: int = INFINITE) -> int:
    """Return the least objective of a chain, in ticks, with its devices in the order given.

    Without reductions of tied weights, and of instances without tables.  A dynamic program over the
    last cut; with limits on compute and on transfers in turn, each just below what was found, where
    both count.  `INFINITE` where nothing fits; it only matters whether the value is less than
    `enough`.
    """
    # A reduction hangs together with where a stage begins and with where it ends: it is left out.
    plain = instance.replace(tied=None, shared=instance.shared) if instance.reduces else instance
    chain = _Chain(plain)
    if instance.objective is not Objective.TRANSFER_BOUNDED:
        return chain.least(COUNTED[instance.objective])
    best, limit, unavoidable = enough, INFINITE, chain.least(TRANSFER)
    for _ in range(MOST_STAIRS):
        compute = chain.least(PLAIN, most_transfer=limit)
        if compute + unavoidable >= best:
            break
        transfer = chain.least(TRANSFER, most_compute=compute)
        best = min(best, compute + transfer)
        limit = transfer - 1
    return best


class _Chain:
    """The stages of an instance, device by device."""

    def __init__(self, instance: PipelinePartition) -> None:
        costs = RangeCosts.of(instance)
        self.n, self.fewer = costs.n, instance.fewer_stages
        self.stages = []
        for i, c in enumerate(costs.device_class.tolist()):
            held = min(instance.microbatches, costs.k - i) if instance.training else 0
            reach = np.append(costs.reach(c, held), costs.n)
            self.stages.append(
                Stage(
                    costs.prefix[c], costs.recv[c], costs.send[c], reach, costs.allowed, costs.host
                )
            )

    def least(
        self, counted: int, most_compute: int = INFINITE, most_transfer: int = INFINITE
    ) -> int:
        """Return the least of what is counted of the dearest stage, within limits on all."""
        best = np.full(self.n + 1, INFINITE, dtype=np.int64)
        best[0] = 0
        for stage in self.stages:
            after = np.empty_like(best)
            extend(counted, stage, most_compute, most_transfer, best, after)
            best = np.minimum(best, after) if self.fewer else after
        return int(best[self.n])
