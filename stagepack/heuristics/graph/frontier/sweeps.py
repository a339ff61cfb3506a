"""Decides whether all loads of a partition can be within a limit, by labels along an order.

The blocks are swept along a narrow order, alternately in both directions.  A label describes a
partial partition by everything that matters to the remaining blocks: for each live net the stages
that a remaining member may still share, and whether the net is cut; for each block with remaining
successors the lowest stage allowed for them; and the loads of the open stages.

*Merging.*  If a label's loads, including the possible cost of its nets, exceed those of another
label by little, the two are merged: the first is kept with loads lowered to cover both.  Since no
label is dropped without such a replacement, an empty set of labels proves that no partition within
the limit exists.  Sweeps with a *beam* do not merge and keep only the most promising labels; a
label that reaches the end is a partition.

*Guides.*  Each sweep leaves data for the next one in the opposite direction: the stages that blocks
were in, a table of the least loads beyond each cut, and, at cuts with few labels, the labels
themselves.  All of them are used to drop labels that cannot be completed.  Each sweep can therefore
merge less than the one before.

Cost: labels * stages * (nets and anchors of a block) a step, exponentially many labels at worst.
Source: own work; the sweep is that of frontier (transfer-matrix) dynamic programs, the merging that
of relaxed decision diagrams.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.graph.frontier import label_state as state
from stagepack.heuristics.graph.frontier import sweeps_kernels as kernels
from stagepack.heuristics.graph.frontier.label_state import UNREACHED, Labels, Plan, Question
from stagepack.heuristics.graph.frontier.match_kernels import match
from stagepack.heuristics.graph.frontier.model import Model
from stagepack.heuristics.graph.frontier.orders import narrow_order
from stagepack.heuristics.graph.frontier.plan import Passes, with_sources
from stagepack.heuristics.graph.frontier.tuning import LabelsTuning, SweepTuning
from stagepack.heuristics.graph.tuning import TUNING
from stagepack.instances.graph.compact import FORBIDDEN
from stagepack.instances.profile import Array

LATE = -1
"""Status of a sweep that took more work than it was given."""

Windows = tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class Guide:
    """What sweeps know of partitions within a limit."""

    model: Model  # of the order of devices that is looked at
    windows: Windows  # lowest and highest stage of each block
    limit: int  # ticks; all but the table is true of lower limits, too
    limits: Array | None = None  # of every stage, where it is not the same
    table: Array | None = None  # see :class:`.label_state.Question`
    # Words and loads of labels, by the number of blocks before the cut.
    kept: dict[int, tuple[Array, Array]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Swept:
    """How a sweep ended."""

    status: int  # `DONE`, `EMPTY`, `FULL` where labels took too much room, `LATE`
    guide: Guide | None = None  # for sweeps the other way
    stages: Array | None = None  # of a sweep with a beam: the stage of each block


class Sweeps:
    """Sweeps over the blocks of one graph.

    `models` are those of the orders of devices to look at; the graph is the same.  `pause` is
    called between chunks of work; what it raises ends the sweep.  All that is drawn follows from
    `seed`.
    """

    def __init__(
        self,
        models: Sequence[Model],
        pause: Callable[[], object],
        seed: int,
        tuning: LabelsTuning = TUNING.labels,
    ) -> None:
        self.models, self._pause, self.tuning = models, pause, tuning
        model = models[0]
        self.stages, self.blocks, network = model.stages, model.blocks, model.network
        order = narrow_order(network, seed, pause, tuning.order).tolist()
        self._passes = Passes(network, order, pause, tuning.order)
        self.plans = self._passes.plans(model.stages, len(model.work), model.apart)
        self._buckets = tuning.sweeps.buckets
        least = np.min([model.work[0].min(axis=0) for model in models], axis=0)
        self.above = with_sources(network.before, order, least)
        self.below = with_sources(network.after, order[::-1], least)
        self._reached: list[tuple[int, Array, Array]] = []

    def of(self, model: Model) -> Sweeps:
        """Return sweeps over the same blocks on other stages, with coarse tables."""
        other = copy.copy(self)
        other.models, other.stages, other._reached = [model], model.stages, []
        other.plans = self._passes.plans(model.stages, len(model.work), model.apart)
        other._buckets = self.tuning.sweeps.coarse_buckets
        return other

    @property
    def most(self) -> int:
        """Ticks that all partitions stay below."""
        times = [np.where(model.work[0] < FORBIDDEN, model.work[0], 0) for model in self.models]
        return int(np.max(times, axis=(0, 1)).sum()) + sum(self.models[0].network.cost) + 1

    def windows(self, limit: int) -> Windows:
        """Return the lowest and highest stage of blocks that work before and after them allows."""
        first, last = self.most_work(limit)
        low = np.searchsorted(first, self.above)
        return low, self.stages - 1 - np.searchsorted(last, self.below)

    def most_work(self, limit: int) -> Windows:
        """Return the most work of the first, and of the last, one stage, two stages, ... ."""
        first = limit * np.arange(1, self.stages + 1)
        last = first
        for most, one, other in self._reached:
            if limit <= most:
                first, last = np.minimum(first, one), np.minimum(last, other)
        return first, last

    def learn(self, limit: int, first: Array, last: Array) -> None:
        """Keep the most work of the first, and the last, stages that take at most `limit` ticks.

        `first` and `last` are as :meth:`most_work` returns them.
        """
        self._reached.append((limit, first, last))

    def guide(self, limit: int, model: Model | None = None) -> Guide:
        """Return what is known of partitions within a limit before the first sweep.

        `model` is one of several, the first one if left out.
        """
        return Guide(model or self.models[0], self.windows(limit), limit)

    def run(
        self,
        reverse: bool,
        limit: int,
        delta: int,
        guide: Guide,
        beam: int = 0,
        work: float = np.inf,
    ) -> Swept:
        """Sweep once, for at most `work` seconds of work.

        No stage may exceed `limit` ticks; loads that differ by at most `delta` ticks are merged.
        `reverse` is from the last block to the first, and the guide that of a sweep the other way.
        `beam` labels are kept a step, 0: all.
        """
        return self.begin(reverse, limit, delta, guide, beam).go_on(work)

    def begin(self, reverse: bool, limit: int, delta: int, guide: Guide, beam: int = 0) -> Sweep:
        """Return a sweep of which nothing is done yet.

        `reverse`, `limit`, `delta`, `guide` and `beam` are as for :meth:`run`.
        """
        ask = self._question(reverse, limit, delta, guide, beam)
        plan, other = self.plans[reverse], self.plans[not reverse]
        return Sweep(plan, ask, other, reverse, limit, guide, self.tuning.sweeps, self._pause)

    def _question(self, reverse: bool, limit: int, delta: int, guide: Guide, beam: int) -> Question:
        """Return what the kernel is asked."""
        model, plan, n, k = guide.model, self.plans[reverse], self.blocks, self.stages
        low, high = guide.windows
        if guide.limits is None:
            known = self.windows(limit)
            low, high = np.maximum(low, known[0]), np.minimum(high, known[1])
        turn = slice(None, None, -1) if reverse else slice(None)
        if reverse:
            low, high = k - 1 - high, k - 1 - low
        order = plan.order
        least = model.work.min(axis=1)[:, order, None]
        stage = np.arange(k)
        upto = _still(least * (stage >= high[order, None]))
        onward = _still(least * (stage <= low[order, None]))
        network = model.network
        sources = np.array([not row for row in (network.after if reverse else network.before)])
        source_low = np.full(n + 1, k, dtype=np.int64)
        source_low[:n] = np.where(sources[order], low[order], k)
        source_low = np.minimum.accumulate(source_low[::-1])[::-1]
        each = np.full(k, limit) if guide.limits is None else guide.limits
        each = np.minimum(each, model.most)
        bucket, buckets = self._bucketed(int(each.max()))
        table = guide.table if guide.limit == limit else None
        made = np.zeros((1, 1, 1, 1), dtype=np.int32)
        if not beam:
            made = np.full((n + 1, k, buckets, buckets), UNREACHED, dtype=np.int32)
            effort.spend(self.tuning.sweeps.entry_price * made.size)
            made[0] = 0
        timed = len(model.work) - len(model.room)
        limits = np.concatenate((np.tile(each, (timed, 1)), model.room))[:, turn]
        finest = np.full(len(model.work), delta)
        # Bytes are merged as loads are, in proportion.
        finest[timed:] = [
            int(room) * delta // max(1, limit) // 2 for room in model.room.min(axis=1)
        ]
        cut = np.arange(n - 1, -1, -1) if reverse else np.arange(1, n + 1)
        return Question(
            np.ascontiguousarray(model.work[:, turn]),
            np.ascontiguousarray(model.pays[turn]),
            int(model.pays.all()),
            np.ascontiguousarray(limits).reshape(-1),
            np.ascontiguousarray(low, dtype=np.int64),
            np.ascontiguousarray(high, dtype=np.int64),
            upto,
            onward,
            np.ascontiguousarray(source_low),
            finest,
            made if table is None else table,
            made,
            table is not None,
            not beam,
            np.full(n, k, dtype=np.int64),
            np.full(n, -1, dtype=np.int64),
            ((cut % self.tuning.sweeps.every == 0) & (cut > 0) & (cut < n)).astype(np.int8),
            bucket,
            max(1, int(each.sum()) >> 30),
            beam,
            self.tuning.sweeps.compared,
        )

    def _bucketed(self, limit: int) -> tuple[int, int]:
        """Return by how many bits loads are shifted in tables, and the buckets there."""
        each = (self.blocks + 1) * self.stages * 4
        most = min(self._buckets, max(4, int((self.tuning.sweeps.memory / 16 / each) ** 0.5)))
        bucket = 0
        while (limit >> bucket) + 1 > most:
            bucket += 1
        return bucket, (limit >> bucket) + 1


class Sweep:
    """A sweep under way, which can be interrupted: see :meth:`Sweeps.begin`.

    `plan` is that of this direction, `other` of the other one; `ask` has the limits, windows and
    tables.  Labels take a twelfth of the bytes of `tuning`.  `pause` is called several times a
    second; what it raises ends the sweep.  The rest is as for :meth:`Sweeps.run`: `reverse`,
    `limit`, `guide`.
    """

    def __init__(
        self,
        plan: Plan,
        ask: Question,
        other: Plan,
        reverse: bool,
        limit: int,
        guide: Guide,
        tuning: SweepTuning,
        pause: Callable[[], object],
    ) -> None:
        self._plan, self._ask, self._other, self._pause = plan, ask, other, pause
        self._reverse, self._given, self._limit = reverse, guide.kept, limit
        self.tuning = tuning
        self._model, self._limits = guide.model, guide.limits
        self._keeps: dict[int, tuple[Array, Array]] = {}
        self._labels = _labels(plan, tuning.first_room, tuning.first_room if ask.beam else 1)
        self._labels.alive[0, 0] = 1
        self._labels.entry[0, 0] = -1
        self._control = np.zeros(13, dtype=np.int64)
        self._control[state.COUNT], self._control[state.STAGE] = 1, -1
        width, memory = len(ask.limit), tuning.memory // 12
        self._most = memory // (8 * (2 * plan.words + 3 * width + 6))
        self._room = memory

    def go_on(self, work: float = np.inf) -> Swept:
        """Sweep on to the end, or for so many seconds of work: then the status is `LATE`."""
        ask, k = self._ask, self._plan.stages
        status = self._finish(effort.spent() + work) if (ask.low <= ask.high).all() else state.EMPTY
        if status != state.DONE:
            return Swept(status)
        if ask.beam:
            stages = self._stages()
            return Swept(status, stages=k - 1 - stages if self._reverse else stages)
        seen = ask.lowest, ask.highest
        if self._reverse:
            seen = k - 1 - ask.highest, k - 1 - ask.lowest
        guide = Guide(self._model, seen, self._limit, self._limits, ask.made, self._keeps)
        return Swept(status, guide)

    def _finish(self, until: float) -> int:
        """Go on; return `DONE`, `EMPTY`, `FULL` or `LATE`."""
        control, tuning = self._control, self.tuning
        while True:
            tried = kernels.sweep(self._plan, self._ask, self._labels, control, tuning.tried)
            effort.spend(tuning.call_price + tuning.label_price * tried)
            self._pause()
            status = int(control[state.STATUS])
            if status in (state.DONE, state.EMPTY):
                return status
            if status == state.PAUSED:
                self._meet()
            elif status == state.WIDE:
                self._thin()
            elif status == state.OVERFLOW:
                # A step logs no more labels than the beam is wide.
                self._grow(len(self._labels.next), 2 * len(self._labels.log_entry) + self._ask.beam)
            elif status == state.FULL and not self._make_room():
                return state.FULL
            if effort.spent() > until:
                return LATE

    def _stages(self) -> Array:
        """Return the stages of the blocks in the first label that is left."""
        labels, control = self._labels, self._control
        side = int(control[state.SIDE])
        left = np.flatnonzero(labels.alive[side, : control[state.COUNT]])
        row = int(labels.entry[side, left[0]])
        found = np.empty(len(self._plan.order), dtype=np.int64)
        for v in self._plan.order[::-1].tolist():
            found[v] = labels.log_stage[row]
            row = int(labels.log_entry[row])
        return found

    def _meet(self) -> None:
        """Drop labels that nothing kept by the other direction completes; keep the others."""
        labels, control, tuning = self._labels, self._control, self.tuning
        effort.spend(tuning.meeting_price)
        side, new = 1 - int(control[state.SIDE]), int(control[state.NEW])
        swept = int(control[state.STEP]) + 1
        cut = len(self._plan.order) - swept if self._reverse else swept
        alive = labels.alive[side, :new]
        words, loads = self._given.get(cut, (None, None))
        if words is not None and loads is not None:
            count = int(alive.sum()) * len(words)
            at = 0 if count <= tuning.matched else new
            while at < new:
                at = match(
                    self._plan,
                    self._ask,
                    labels,
                    control,
                    self._other,
                    words,
                    loads,
                    at,
                    tuning.pairs,
                )
                effort.spend(tuning.pair_price * min(tuning.pairs, count))
                self._pause()
        left = np.flatnonzero(alive)
        size = len(left) * (labels.words.shape[2] + labels.loads.shape[2]) * 8
        if not self._ask.beam and len(left) <= tuning.kept and size <= self._room:
            self._room -= size
            self._keeps[cut] = labels.words[side, left], labels.loads[side, left]

    def _thin(self) -> None:
        """Let only the most promising labels live, as many as the beam is wide."""
        labels, control = self._labels, self._control
        side, new = 1 - control[state.SIDE], control[state.NEW]
        alive = np.flatnonzero(labels.alive[side, :new])
        ranked = alive[np.argsort(-labels.value[alive], kind="stable")]
        effort.spend(self.tuning.thinning_price + self.tuning.ranking_price * new)
        labels.alive[side, ranked[self._ask.beam :]] = 0

    def _make_room(self) -> bool:
        """Grow, or begin the step anew and merge more; False: there is no room."""
        labels, control = self._labels, self._control
        count = len(labels.next)
        if 2 * count <= self._most:
            self._grow(2 * count, len(labels.log_entry))
            return True
        control[state.COARSER] += 1
        control[state.NEW], control[state.LABEL], control[state.STAGE] = 0, 0, -1
        labels.head[:] = -1
        return bool(control[state.COARSER] <= self.tuning.coarsest and self._ask.delta[0] > 0)

    def _grow(self, count: int, log: int) -> None:
        """Make room for more labels, or a longer log."""
        old, new = self._labels, _labels(self._plan, count, log)
        for name in Labels._fields:
            if name != "head":
                was = getattr(old, name)
                getattr(new, name)[tuple(map(slice, was.shape))] = was
        kernels.link(new, int(self._control[state.NEW]))
        self._labels = new


def _labels(plan: Plan, count: int, log: int) -> Labels:
    """Return room for labels, and for a log."""
    width = plan.rows * plan.stages
    long, short, byte = np.int64, np.int32, np.int8
    return Labels(
        np.zeros((2, count, plan.words), dtype=long),
        np.zeros((2, count, width), dtype=long),
        np.zeros((count, width), dtype=long),
        np.zeros(count, dtype=long),
        np.full(1 << (2 * count - 1).bit_length(), -1, dtype=short),
        np.zeros(count, dtype=short),
        np.zeros((2, count), dtype=byte),
        np.zeros(count, dtype=long),
        np.zeros((2, count), dtype=short),
        np.zeros(count, dtype=long),
        np.zeros(log, dtype=short),
        np.zeros(log, dtype=byte),
        np.zeros(plan.words, dtype=long),
        np.zeros(width, dtype=long),
        np.zeros(width, dtype=long),
    )


def _still(needs: Array) -> Array:
    """Return, shape (n + 1, rows * stages), the sums of what comes at or after each step."""
    rows, n, stages = needs.shape
    found = np.zeros((n + 1, rows, stages), dtype=np.int64)
    found[:n] = needs.transpose(1, 0, 2)[::-1].cumsum(axis=0)[::-1]
    return found.reshape(n + 1, rows * stages)
