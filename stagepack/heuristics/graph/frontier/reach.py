"""Reach of stages: the most work that the first few stages, or the last few, can contain.

Consider a single stage that starts after blocks of at most x work and is followed by blocks of at
most y work.  Whether such a stage exists within the limit is decided by labels with three parts:
the blocks before (only their work counts), the stage itself with its traffic, and the blocks after.
These steps are chained: two consecutive steps must agree on the amount of work before their cut,
but not on the blocks, so a chain of steps reaches at least as far as real stages do.  If the steps
from the first block do not meet those from the last, no partition within the limit exists.  If they
meet, they limit the stages in which each block can be.
If devices differ, a step uses the device of its stage or, if their order is free, each kind of
device; work before and after the stage is then the least over all kinds.

Labels of all stages at once are more exact, but their number grows exponentially with the stages
and with traffic.  Here the cost grows linearly with the number of stages.

Cost: stages * log2(1 / precision) decisions, of labels over the blocks that one stage can reach.
Source: own work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.graph.frontier import label_state as state
from stagepack.heuristics.graph.frontier.model import Model
from stagepack.heuristics.graph.frontier.sweeps import Guide, Sweeps
from stagepack.instances.graph.compact import UNLIMITED
from stagepack.instances.profile import Array

BEFORE, STAGE, AFTER = range(3)


@dataclass
class _Chain:
    """Steps within a limit."""

    limit: int  # ticks
    # The most work of so many first, and so many last, stages.
    first: list[int] = field(default_factory=lambda: [0])
    last: list[int] = field(default_factory=lambda: [0])
    # Between these is what the step under way reaches; -1: none is.
    low: int = -1
    high: int = -1


class _Kind(NamedTuple):
    """A device that a stage may be on."""

    load: Array  # (rows, blocks): of each block there
    pays: int  # 1 where traffic counts, else 0
    room: Array  # (0 or 1,): its bytes, where these are limited


def _kinds(models: Sequence[Model]) -> list[list[_Kind]]:
    """Return for every stage what it may be on: several where the order of devices is free."""
    first = models[0]
    if len(models) == 1:
        return [
            [_Kind(first.work[:, s], int(first.pays[s]), first.room[:, s])]
            for s in range(first.stages)
        ]
    found = []
    for c in np.unique(first.classes).tolist():
        at = [(model, s) for model in models for s in np.flatnonzero(model.classes == c).tolist()]
        load = np.min([model.work[:, s] for model, s in at], axis=0)
        model, s = at[0]
        found.append(_Kind(load, int(model.pays[s]), model.room[:, s]))
    return [found] * first.stages


class Reach:
    """Chains of steps over one graph, limit by limit; `sweeps` is told of what stages reach."""

    def __init__(self, sweeps: Sweeps) -> None:
        self._sweeps, self.tuning = sweeps, sweeps.tuning.reach
        self._least = np.min([model.work.min(axis=1) for model in sweeps.models], axis=0)
        self._work, self._all = self._least[0], int(self._least[0].sum())
        self._kinds = _kinds(sweeps.models)
        one = self._kinds[0][0]
        self._narrow = sweeps.of(self._model(self._loads(one), one))
        self._chains: dict[int, _Chain] = {}

    @staticmethod
    def applies(sweeps: Sweeps) -> bool:
        """Whether there is traffic to pay for, and more stages than labels do well with."""
        model = sweeps.models[0]
        return bool(model.pays.any() and any(model.network.cost) and model.stages > 2)

    def go_on(self, limit: int, work: float = np.inf, whole: bool = False) -> bool | None:
        """Step on within `limit` ticks for `work` seconds of work.

        With `whole` it goes on where the first and the last stages meet, to know all of them.
        False: there is no partition within the limit; True: none of it can be told here; None: the
        work is done and nothing is told yet.
        """
        chain = self._chains.setdefault(limit, _Chain(limit))
        until, stages = effort.spent() + work, self._sweeps.stages
        while True:
            first, last = len(chain.first) - 1, len(chain.last) - 1
            left = stages - first - last
            if left >= 0 and chain.first[-1] + chain.last[-1] + left * limit < self._all:
                return False
            if first == last == stages or (left == 0 and not whole):
                self._tell(chain)
                return True
            if effort.spent() > until:
                return None
            forward = chain.first[-1] <= chain.last[-1]
            if max(first, last) == stages:
                forward = last == stages
            self._step(chain, forward, until)

    def _step(self, chain: _Chain, forward: bool, until: float) -> None:
        """Halve what the next step may reach until it is known, or the work done."""
        done = chain.first if forward else chain.last
        if chain.low < 0:
            chain.low, chain.high = done[-1], min(self._all, done[-1] + chain.limit)
            for other in self._chains.values():
                rows = other.first if forward else other.last
                if len(rows) <= len(done):
                    continue
                if other.limit > chain.limit:  # which reaches no less
                    chain.high = min(chain.high, rows[len(done)])
                elif other.limit < chain.limit:  # nor is there much hope to refute this
                    chain.low = max(chain.low, rows[len(done)])
            chain.low = min(chain.low, chain.high)
        while chain.high - chain.low > self.tuning.precision * chain.limit:
            if effort.spent() > until:
                return
            middle = (chain.low + chain.high) // 2
            rest = self._all - middle - 1
            before, after = (done[-1], rest) if forward else (rest, done[-1])
            kinds = self._kinds[len(done) - 1 if forward else -len(done)]
            if all(self._refuted(chain.limit, before, after, kind) for kind in kinds):
                chain.high = middle
            else:
                chain.low = middle + 1
        done.append(chain.high)
        chain.low = -1

    def _tell(self, chain: _Chain) -> None:
        """Let sweeps over all stages know what a chain found."""
        stages = np.arange(1, self._sweeps.stages + 1)
        rows = []
        for found in (chain.first, chain.last):
            known = np.minimum(stages, len(found) - 1)
            most = np.array(found)[known] + (stages - known) * chain.limit
            rows.append(np.minimum(most, self._all))
        self._sweeps.learn(chain.limit, rows[0], rows[1])

    def _loads(self, kind: _Kind) -> Array:
        """Return the loads of three stages of which that in the middle is of a kind."""
        return np.stack([self._least, kind.load, self._least], axis=1)

    def _model(self, load: Array, kind: _Kind) -> Model:
        """Return the three stages, with loads of shape (rows, 3, blocks)."""
        model = self._sweeps.models[0]
        # Sides have no limit of bytes of their own, but so that these can be added.
        held = self._least[len(self._least) - len(kind.room) :].sum(axis=1)
        rooms = np.stack([held, kind.room, held], axis=1)
        pays = np.array([0, kind.pays, 0])
        most = np.full(3, UNLIMITED)
        return Model(np.zeros(3, dtype=int), model.network, load, model.apart, pays, rooms, most)

    def _refuted(self, limit: int, before: int, after: int, kind: _Kind) -> bool:
        """Whether no stage stands between so much work before and behind it, in ticks at most."""
        sweeps = self._narrow
        low = np.searchsorted(np.cumsum([before, limit, after]), self._sweeps.above)
        high = AFTER - np.searchsorted(np.cumsum([after, limit, before]), self._sweeps.below)
        if (low > high).any():
            return True
        # Blocks with one side to be on need no room in tables.
        load, limits = self._loads(kind), np.array([before, limit, after])
        for side, settled in ((BEFORE, high == BEFORE), (AFTER, low == AFTER)):
            limits[side] -= self._work[settled].sum()
            load[0, side, settled] = 0
        if limits.min() < 0:
            return True
        guide = Guide(self._model(load, kind), (low, high), limit, limits)
        return _empty(sweeps, guide, limit)


def _empty(sweeps: Sweeps, guide: Guide, limit: int) -> bool:
    """Whether some sweep is left without labels."""
    until = effort.spent() + sweeps.tuning.reach.patience * max(1, sweeps.blocks / 1000)
    for turn, delta in enumerate(sweeps.tuning.reach.deltas):
        work = until - effort.spent()
        swept = sweeps.run(turn % 2 == 1, limit, int(delta * limit), guide, work=work)
        if swept.guide is None:
            return swept.status == state.EMPTY
        guide = swept.guide
    return False
