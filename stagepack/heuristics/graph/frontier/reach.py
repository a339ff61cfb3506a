"""How far stages reach: the most work that the first, or the last, few of them can hold.

Whether one stage within a limit can stand between blocks of at most so much work before it and of
at most so much behind it is asked of labels with three stages: what comes before, of which only the
work counts, the stage itself with its traffic, and what comes after.  Neighbours in a chain of such
steps agree on the work before their cut alone, not on the blocks, so that steps lead at least as
far as stages do.  Where those from the first block do not meet those from the last, there is no
partition within the limit; where they meet, they narrow the stages that every block can take.

Labels of all stages at once know more, but there are ever more of them the more stages there are,
and the more traffic they may carry; here cost grows with the number of stages only.

Cost: stages * log2(1 / `PRECISION`) decisions, of labels over the blocks that one stage can reach.
Source: own work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.graph.frontier import label_state as state
from stagepack.heuristics.graph.frontier.model import Model
from stagepack.heuristics.graph.frontier.sweeps import Guide, Sweeps
from stagepack.instances.profile import Array

PRECISION = 0.01
"""Part of the limit to which the work that a step reaches is found."""
DELTAS = (0.08, 0.04, 0.02, 0.01)
"""Parts of the limit within which loads are merged, sweep after sweep."""
PATIENCE = 0.3
"""Seconds of work for one decision, on a graph of a thousand blocks; without an answer a step is
taken to reach that far."""
BEFORE, STAGE, AFTER = range(3)


@dataclass
class _Chain:
    """Steps within a limit.

    Attributes
    ----------
    limit : int
        Ticks.
    first, last : list of int
        The most work of so many first, and so many last, stages.
    low, high : int
        Between these is what the step under way reaches; -1: none is.
    """

    limit: int
    first: list[int] = field(default_factory=lambda: [0])
    last: list[int] = field(default_factory=lambda: [0])
    low: int = -1
    high: int = -1


class Reach:
    """Chains of steps over one graph, limit by limit.

    Parameters
    ----------
    sweeps : Sweeps
        Of alike devices; it is told of what stages reach.
    """

    def __init__(self, sweeps: Sweeps) -> None:
        self._sweeps, model = sweeps, sweeps.models[0]
        self._load = model.work.min(axis=1)
        self._work, self._all = self._load[0], int(self._load[0].sum())
        self._room = model.room.max(axis=1)
        # Without a limit of bytes of their own, but so that these can be added.
        held = self._load[len(self._load) - len(self._room) :].sum(axis=1)
        self._rooms = np.stack([held, self._room, held], axis=1)
        self._narrow = sweeps.of(self._model(self._load[:, None].repeat(3, axis=1)))
        self._chains: dict[int, _Chain] = {}

    @staticmethod
    def applies(sweeps: Sweeps) -> bool:
        """Whether stages are alike, pay for traffic, and are more than labels do well with."""
        model = sweeps.models[0]
        alike = len(sweeps.models) == 1 and (model.work[0] == model.work[0, :1]).all()
        return bool(alike and model.pays.all() and any(model.network.cost) and model.stages > 2)

    def go_on(self, limit: int, work: float = np.inf, whole: bool = False) -> bool | None:
        """Step on for so many seconds of work.

        Parameters
        ----------
        limit : int
            Ticks.
        work : float
        whole : bool
            Whether to go on where the first and the last stages meet, to know all of them.

        Returns
        -------
        bool or None
            False: there is no partition within the limit; True: none of it can be told here;
            None: the work is done and nothing is told yet.
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
        while chain.high - chain.low > PRECISION * chain.limit:
            if effort.spent() > until:
                return
            middle = (chain.low + chain.high) // 2
            rest = self._all - middle - 1
            before, after = (done[-1], rest) if forward else (rest, done[-1])
            if self._refuted(chain.limit, before, after):
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

    def _model(self, load: Array) -> Model:
        """Return the three stages, with loads of shape (rows, 3, blocks)."""
        model = self._sweeps.models[0]
        pays = np.array([0, 1, 0])
        return Model(np.zeros(3, dtype=int), model.network, load, model.apart, pays, self._rooms)

    def _refuted(self, limit: int, before: int, after: int) -> bool:
        """Whether no stage stands between so much work before and behind it, in ticks at most."""
        sweeps = self._narrow
        low = np.searchsorted(np.cumsum([before, limit, after]), self._sweeps.above)
        high = AFTER - np.searchsorted(np.cumsum([after, limit, before]), self._sweeps.below)
        if (low > high).any():
            return True
        # Blocks with one side to be on need no room in tables.
        load, limits = self._load[:, None].repeat(3, axis=1), np.array([before, limit, after])
        for side, settled in ((BEFORE, high == BEFORE), (AFTER, low == AFTER)):
            limits[side] -= self._work[settled].sum()
            load[0, side, settled] = 0
        if limits.min() < 0:
            return True
        guide = Guide(self._model(load), (low, high), limit, limits)
        return _empty(sweeps, guide, limit)


def _empty(sweeps: Sweeps, guide: Guide, limit: int, deltas: Sequence[float] = DELTAS) -> bool:
    """Whether some sweep is left without labels."""
    until = effort.spent() + PATIENCE * max(1, sweeps.blocks / 1000)
    for turn, delta in enumerate(deltas):
        work = until - effort.spent()
        swept = sweeps.run(turn % 2 == 1, limit, int(delta * limit), guide, work=work)
        if swept.guide is None:
            return swept.status == state.EMPTY
        guide = swept.guide
    return False
