"""Label setting for chains: decides, stage by stage, which F's run before each B.

F's and B's pass the chain in opposite directions.  The B of one microbatch after the other goes
back from the last stage to the first.  A label states for each stage how many F's, and W's, run
before this B; these F's run as early as possible, since no later B can delay them.  The remaining
schedule depends only on what is done and on when stages and F's are finished.  So a label dominates
another one with equally many F's done on every stage if nothing in it is later, once it has run the
W's that the other one has done.  Labels are also dropped if an operation could be completed in an
idle gap before an earlier one, or if two operations can be exchanged without delaying anything.

If all labels are kept, the best final label is an optimal schedule.  If there are too many, a
label may represent others that are slightly earlier: if it keeps its own times, the result is a
schedule; if it is given the earliest time of each, the result is a bound.  Sweeps of both sorts
keep more and more labels, in the end all.  Sweeps for bounds begin with W's that may be
interrupted, which fill idle time and leave few decisions; when those are complete, the W's of one
more stage at a time may not be interrupted.  Further sweeps for schedules stay near a route, which
is the number of F's before each B: first that of the best label with interruptible W's, then those
with the W's of more and more stages in one piece, and that of the best known schedule.  Labels of
the first k microbatches alone are a bound on any k consecutive microbatches; they are used for the
microbatches that have not begun.

Cost: O(labels * places of microbatches under way) a step, m p steps.  With F and B as single
operations there are a few hundred labels at 8 stages, with separate W's some 10,000 at 6.  Source:
ours; labels as in Held and Karp 1962, A dynamic programming approach to sequencing problems; sweeps
near a route as in Sniedovich and Voß 2006, The corridor method.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Iterator
from typing import NamedTuple

import numpy as np

from stagepack.heuristics.effort import left, spent
from stagepack.heuristics.schedule import effort
from stagepack.heuristics.schedule import trips_kernels as kernels
from stagepack.heuristics.schedule.effort import PART, ScheduleProgress
from stagepack.heuristics.schedule.timing import Timing
from stagepack.heuristics.schedule.timing_kernels import FAR
from stagepack.heuristics.schedule.tuning import TUNING, LabelsTuning, Way
from stagepack.instances.profile import Array
from stagepack.instances.schedule import Objective, PipelineSchedule, ScheduleSolution

SOURCE = "labels of a chain"


def unsupported(instance: PipelineSchedule, tuning: LabelsTuning = TUNING.labels) -> str:
    """Return why there are no labels of `instance`, or ''."""
    order, limit = instance.order, instance.limit
    if not instance.training or instance.objective is not Objective.MAKESPAN:
        return "is for the makespan of training"
    if instance.d < instance.p or set(instance.edges) != set(itertools.pairwise(order)):
        return "is for a chain of stages with a device each"
    stages, operations = tuning.stages, tuning.operations
    if instance.p > stages or len(instance.operations) > operations or limit is None:
        return f"is for up to {stages} stages and {operations:,} operations, within a memory"
    taken, given, later = _memory(instance)
    if (taken <= 0).any() or (given < 0).any() or (later < 0).any():
        return "is for F's that allocate memory, and B's and W's that do not"
    if not 1 <= _ahead(instance) <= tuning.ahead:
        return f"is for up to {tuning.ahead} microbatches under way"
    return ""


def _memory(instance: PipelineSchedule) -> tuple[Array, Array, Array]:
    """Return bytes that F takes, B and W give back, first stage first."""
    order = np.array(instance.order)
    given = -instance.memory_backward[order]
    later = -instance.memory_weight[order] if instance.split else np.zeros_like(given)
    return instance.memory_forward[order], given, later


def _ahead(instance: PipelineSchedule) -> int:
    """Return how many F's the first stage runs at most, the last F after which no B has ended."""
    assert instance.limit is not None
    first = instance.order[0]
    room = int(instance.limit[instance.devices[first]] // instance.memory_forward[first])
    return min(room, int(instance.microbatches[0]))


def chain_of(instance: PipelineSchedule) -> kernels.Chain:
    """Return an instance that is not :func:`unsupported` as kernels take it."""
    order = np.array(instance.order)
    lags = dict(zip(instance.edges, instance.lag.tolist(), strict=True))
    lag = [lags[edge] for edge in itertools.pairwise(instance.order)]
    after = instance.after[instance.devices[order]]
    backward, weight = instance.backward, instance.weight
    limit = instance.limit
    assert backward is not None
    assert limit is not None
    m, path = int(instance.microbatches[0]), after.copy()
    f, b = instance.forward[order], backward[order]
    for s in range(1, instance.p):
        path[s] = max(path[s], path[s - 1] + b[s - 1] + lag[s - 1])
    ways = np.concatenate([[0], np.cumsum(f[:-1] + b[:-1] + 2 * np.array(lag, dtype=np.int64))])
    rest = (ways + np.arange(m + 1)[:, None] * (f + b)).max(axis=1) + after[0]
    taken, given, later = _memory(instance)
    return kernels.Chain(
        m,
        _ahead(instance),
        f,
        b,
        np.zeros_like(f) if weight is None else weight[order],
        np.ones_like(f),
        instance.split,
        np.array([*lag, 0], dtype=np.int64),
        taken,
        given,
        later,
        limit[instance.devices[order]],
        after,
        path,
        rest,
    )


def route_of(instance: PipelineSchedule, solution: ScheduleSolution) -> Array:
    """Return how many F's a solution has before each B on its stage, shape (m, p)."""
    rows = [
        [
            solution.start[instance.operations.op(s, kind, 0) :][: instance.microbatches[s]]
            for kind in (0, 1)
        ]
        for s in instance.order
    ]
    return np.array([np.searchsorted(forward, backward) for forward, backward in rows]).T


def interrupted(chain: kernels.Chain, whole: int) -> kernels.Chain:
    """Return a chain that asks for no more: W's may be interrupted, but for those of some stages.

    A piece of W gives back its part of the memory; bytes are counted in the largest unit that F, B
    and W of a stage have in common, times its pieces.  All W's of `chain` are whole; those of
    `whole` stages stay in one piece: those with least memory beside what 1F1B holds there; and
    others whose memory could not be counted in 64 bits.
    """
    p, m = len(chain.lag), chain.m
    unit = np.gcd(np.gcd(chain.taken, chain.given), chain.later)
    taken, given, later = chain.taken // unit, chain.given // unit, chain.later // unit
    limit = np.minimum(chain.limit // unit, taken * m)
    missing = p - np.arange(p) - limit // taken
    large = (taken + given + later + limit) > FAR // (4 * (m + 1) * np.maximum(chain.weight, 1))
    apart = ~large & (chain.weight > 0)
    apart[np.argsort(-missing, kind="stable")[:whole]] = False
    pieces = np.where(apart, chain.weight, 1)
    return chain._replace(
        weight=np.where(apart, 1, chain.weight),
        pieces=pieces,
        taken=taken * pieces,
        given=given * pieces,
        later=later,
        limit=limit * pieces,
    )


class Step(NamedTuple):
    """Labels made by one step of a sweep."""

    # int32: whose child each label is, and which of them.
    parent: Array
    child: Array
    done: Array  # int32: F's of the stage before its B


class Trips:
    """Labels of an instance that is not :func:`unsupported`, sweep by sweep.

    Schedules are offered and bounds raised where `progress` is told.
    """

    def __init__(
        self,
        instance: PipelineSchedule,
        progress: ScheduleProgress,
        tuning: LabelsTuning = TUNING.labels,
    ) -> None:
        self._instance, self._progress, self._tuning = instance, progress, tuning
        self._chain = self._sweeping = chain = chain_of(instance)
        self._p = len(chain.lag)
        self._going = effort.asking(progress)
        columns = 3 * self._p + chain.ahead
        self._stack = self._scratch(columns + 2)
        self._out = np.zeros((tuning.room, columns), dtype=np.int64)
        self._parent, self._child = np.zeros((2, tuning.room), dtype=np.int32)
        self._whole = 0 if chain.split else self._p  # stages whose W's no sweep may interrupt
        self._cut = self._hopeless = False  # labels were too many, or what becomes of one
        self._fruitless = 0  # sweeps since one found a schedule or a bound
        self._route: Array | None = None  # of the last sweep's best label, unmerged
        self._least, self._most = np.zeros((2, chain.m, self._p), dtype=np.int64)  # F's before B's
        self._sweeps = self._all()

    def rest(self, count: int) -> int:
        """Return what is proved of so many microbatches in turn, from the first F to the end."""
        return int(self._chain.rest[count])

    def _scratch(self, columns: int) -> Array:
        """Return a stack for the labels on the way to a B."""
        # More than a row for each F on the way to the next B: see `kernels.expand`.
        return np.zeros((2 * self._p * self._chain.ahead + 64, columns), dtype=np.int64)

    def find(self, work: float) -> None:
        """Look at labels for so many seconds of work, and go on there the next time."""
        begin, work = spent(), min(work, left())
        for _ in self._sweeps:
            tuning = self._tuning
            share = 1.0 if self._fruitless < tuning.patience else tuning.fruitless
            if not self._progress.keep_going() or spent() >= begin + share * work:
                return

    def _all(self) -> Iterator[None]:
        """Sweep after sweep, until one had all labels, or cannot; yield to look at the clock."""
        for width, way in zip(self._tuning.widths, self._tuning.ways, strict=True):
            before = self._progress.objective, self._progress.bound
            if way is Way.NEAR:
                yield from self._gradually(width)
                yield from self._near_best(width)
            elif (yield from self._to_the_end(width, way)):
                return
            if self._hopeless:
                return
            after = self._progress.objective, self._progress.bound
            self._fruitless = self._fruitless + 1 if before == after else 0

    def _to_the_end(self, width: int, way: Way) -> Generator[None, None, bool]:
        """Sweep, for bounds with W's of ever more stages in one piece; return whether all is known.

        Once labels are too many, more such stages only make more of them.
        """
        whole = self._whole if way is Way.MERGED else self._p
        while True:
            yield from self._sweep(width, way, whole)
            if self._hopeless or self._cut or whole == self._p:
                return not self._cut
            self._whole = whole = self._next(whole)

    def _next(self, whole: int) -> int:
        """Return how many stages have W's in one piece after so many: one makes no difference."""
        return min(max(2, whole + 1), self._p)

    def _gradually(self, width: int) -> Iterator[None]:
        """Sweep near a route from sweep to sweep, with W's of ever more stages in one piece.

        After each of them a sweep with the W's of all stages in one piece looks whether its route
        is good.  Where nothing shorter is left near a route, nor will more such stages find it.
        """
        route, whole = None, self._whole
        while whole < self._p and not self._hopeless:
            way = Way.BEST if route is None else Way.NEAR
            yield from self._sweep(width, way, whole, route, self._tuning.near)
            route, whole = self._route, self._next(whole)
            if route is None:
                break
            yield from self._sweep(self._tuning.rounded, Way.NEAR, self._p, route, 0)

    def _near_best(self, width: int) -> Iterator[None]:
        """Sweep near the best schedule, while that finds better ones."""
        before = None
        while not self._hopeless and self._progress.objective not in (None, before):
            before, best = self._progress.objective, self._progress.solution
            assert best is not None
            route = route_of(self._instance, best)
            yield from self._sweep(width, Way.NEAR, self._p, route, self._tuning.near)

    # ------------------------------------------------------------------ a sweep

    def _sweep(
        self, width: int, way: Way, whole: int, route: Array | None = None, near: int = 0
    ) -> Iterator[None]:
        """Sweep once, with `width` labels of a step; `way` says what becomes of more.

        The W's of `whole` stages may not be interrupted.  `route`, int64 (m, p), are F's before
        B's, from which labels are apart by `near` at most: no bound comes of these.
        """
        value = self._progress.objective
        upper = FAR if value is None or way is Way.ALL else int(value)
        shape = self._chain.m, self._p
        self._least = np.zeros(shape, dtype=np.int64) if route is None else route - near
        self._most = np.full(shape, FAR) if route is None else route + near
        width = min(width, self._tuning.parents // math.prod(shape))
        yield from self._swept(width, way, upper, whole)

    def _swept(self, width: int, way: Way, upper: int, whole: int) -> Iterator[None]:
        """Make labels step after step; offer the best last one, and raise the bound."""
        p, labels = self._p, self._first()
        self._route = None
        asked = whole == p  # nothing is allowed that the instance does not
        self._sweeping = self._chain if asked else interrupted(self._chain, whole)
        steps: list[Step] = []
        self._cut = False
        for i, s in self._turns():
            made = yield from self._step(labels, i, s, upper, width, way)
            if made > len(self._out) // 2:
                return
            labels = self._out[:made].copy()
            done = labels[:, s].astype(np.int32)
            steps.append(Step(self._parent[:made].copy(), self._child[:made].copy(), done))
            if way is Way.ALL and self._cut:
                return
            if not made:
                break
            if s == 0:
                if way is Way.ALL:
                    self._learn(i + 1, int(labels[:, 2 * p].min()))
                self._forget(labels)
        best = upper
        if len(labels):
            values = self._values(labels)
            best = int(values.min())
            if way is not Way.MERGED:  # merged labels have many parents
                self._route = self._counts(steps, int(values.argmin()))
            if asked and (way is not Way.MERGED or not self._cut):
                self._offer(self._orders(steps, int(values.argmin()), upper))
        proves = way is Way.MERGED or (way is not Way.NEAR and not self._cut)
        if proves and best < FAR:
            how = ", merged" if self._cut else "" if asked else ", W's interrupted"
            self._progress.raise_bound(best, SOURCE + how)

    def _counts(self, steps: list[Step], last: int) -> Array:
        """Return the F's of stages before B's, shape (m, p), on the way to a last label."""
        counts = np.zeros((self._chain.m, self._p), dtype=np.int64)
        for step, turn in zip(reversed(steps), reversed([*self._turns()]), strict=True):
            counts[turn], last = step.done[last], int(step.parent[last])
        return counts

    def _turns(self) -> Iterator[tuple[int, int]]:
        """Yield microbatch and stage of B's, in the order of steps."""
        for i in range(self._chain.m):
            for s in range(self._p - 1, -1, -1):
                yield i, s

    def _first(self) -> Array:
        """Return the label with which nothing is done."""
        labels = np.zeros((1, self._out.shape[1]), dtype=np.int64)
        labels[:, 3 * self._p :] = -1
        return labels

    def _forget(self, labels: Array) -> None:
        """Let labels begin with the next microbatch, once B of one is done everywhere."""
        labels[:, 3 * self._p :] = np.roll(labels[:, 3 * self._p :], -1, axis=1)
        labels[:, -1] = -1

    def _values(self, labels: Array) -> Array:
        """Return the makespans of last labels: W's that are left come at the end."""
        p, chain = self._p, self._sweeping
        weights = chain.pieces * chain.m - labels[:, p : 2 * p] if chain.split else 0
        ends = labels[:, 2 * p : 3 * p] + weights * chain.weight + chain.after
        best: Array = ends.max(axis=1)
        return best

    def _step(
        self, labels: Array, i: int, s: int, upper: int, width: int, way: Way
    ) -> Generator[None, None, int]:
        """Write what becomes of labels when B of i runs on stage s; return how many are kept."""
        state = np.zeros(3, dtype=np.int64)
        places = self._stack, self._out, self._parent, self._child
        while state[0] < len(labels):
            roomy = bool(state[1] <= len(self._out) // 2)
            state[2], before = 0, int(state[0])
            near = int(self._least[i, s]), int(self._most[i, s])
            full = kernels.expand(self._sweeping, i, s, upper, near, labels, state, PART, *places)
            self._going(int(self._tuning.entry_price * state[2]))
            yield
            if full:
                state[1] = yield from self._needed(int(state[1]), width, way)
                self._hopeless = roomy and bool(state[0] == before)
                if self._hopeless or state[1] > len(self._out) // 2:
                    return len(self._out)
        return (yield from self._needed(int(state[1]), width, way))

    def _needed(self, made: int, width: int, way: Way) -> Generator[None, None, int]:
        """Keep the labels that no other makes needless, at most so many; return how many."""
        p, labels, tuning = self._p, self._out[:made], self._tuning
        key, weight = self._key(labels), self._sweeping.weight
        worth = labels[:, 2 * p :].sum(axis=1) - labels[:, p : 2 * p] @ weight
        order = np.lexsort((worth, key))
        keep, kept = np.zeros(made, dtype=np.bool_), np.zeros(made, dtype=np.int64)
        self._going(tuning.sort_price * made)
        state = np.zeros(3, dtype=np.int64)
        while state[0] < made:
            state[2] = 0
            kernels.undominated(p, labels, weight, order, key, keep, kept, state, PART)
            self._going(int(tuning.entry_price * state[2]))
            yield
        order = order[keep[order]]
        if len(order) > width:
            self._cut = True
            if way is not Way.MERGED:
                order = self._least_idle(labels, order, key, worth, tuning.tried * width)
            merged, place = yield from self._fewer(labels[order], key[order], width, way)
            order = order[place]
            if way is Way.MERGED:
                self._out[: len(order)] = merged
                return len(order)
            order = self._least_idle(labels, order, key, worth, width)
        for table in (self._out, self._parent, self._child):
            table[: len(order)] = table[order]
        return len(order)

    def _least_idle(
        self, labels: Array, order: Array, key: Array, worth: Array, most: int
    ) -> Array:
        """Return so many labels of `order`, least idle ones of each key in turn; by key."""
        if len(order) <= most:
            return order
        other = np.diff(key[order], prepend=-1) != 0
        place = np.arange(len(order))
        turn = place - np.maximum.accumulate(np.where(other, place, 0))
        idle = worth[order] - labels[order, : self._p] @ self._chain.forward
        best: Array = order[np.sort(np.lexsort((idle, turn))[:most])]
        return best

    def _fewer(
        self, labels: Array, key: Array, width: int, way: Way
    ) -> Generator[None, None, tuple[Array, Array]]:
        """Return so many labels, and their places: some stand for others of the same key, too.

        First those that are little later than these.  Where labels are merged, they become as
        early as each of these, once they have run the W's that these have done.  More are left
        where there are more keys.
        """
        p, weight, window = self._p, self._sweeping.weight, self._tuning.window
        place = np.arange(len(labels))
        while len(labels) > width:
            whose, least = np.full(len(labels), -1), np.full(len(labels), FAR)
            state = np.zeros(2, dtype=np.int64)
            while state[0] < len(labels):
                state[1] = 0
                kernels.nearest(p, labels, weight, key, window, whose, least, state, PART)
                self._going(int(self._tuning.entry_price * state[1]))
                yield
            order = np.argsort(least, kind="stable")
            gone, many = np.zeros(len(labels), dtype=np.bool_), len(labels) - width
            if not kernels.absorb(p, labels, weight, order, whose, gone, many, way is Way.MERGED):
                break
            labels, key, place = labels[~gone], key[~gone], place[~gone]
        return labels, place

    def _key(self, labels: Array) -> Array:
        """Return numbers that are equal for labels with as many F's done everywhere."""
        key, size = np.zeros(len(labels), dtype=np.int64), 1
        base = int(labels[:, : self._p].max(initial=0)) + 1
        for column in range(self._p):
            if size > FAR // base:
                size, key = len(labels), np.unique(key, return_inverse=True)[1].reshape(-1)
            key, size = key * base + labels[:, column], size * base
        return key

    def _learn(self, count: int, cycles: int) -> None:
        """Note what any so many microbatches in turn need, and what follows for more of them.

        Another one takes F or B of the first stage more; and the first stage starts a microbatch
        where B of one so many before it is back.
        """
        chain, rest = self._chain, self._chain.rest
        after, each = int(chain.after[0]), int(max(chain.forward[0], chain.backward[0]))
        rest[count] = max(int(rest[count]), cycles + after)
        for k in range(count + 1, chain.m + 1):
            others = k - chain.ahead + 1 - count
            both = rest[count] + rest[others] - after if others > 0 else 0
            rest[k] = max(rest[k], rest[k - 1] + each, both)
        self._progress.raise_bound(int(rest[chain.m]), f"{SOURCE}, of fewer microbatches")

    # ------------------------------------------------------------------ back to schedules

    def _offer(self, order: Array) -> None:
        """Offer the best times for orders of all devices."""
        start = Timing(self._instance).best(order)
        assert start is not None
        solution = ScheduleSolution.of(self._instance, start)
        effort.offer(self._instance, self._progress, solution, SOURCE)

    def _orders(self, steps: list[Step], last: int, upper: int) -> Array:
        """Return the orders, flat, that lead to a last label; all on the way to it is made anew."""
        chain, p, instance = self._chain, self._p, self._instance
        stage, runs = instance.order, [[0] * 0 for _ in range(p)]
        done = np.zeros((p, 3), dtype=np.int64)

        def run(t: int, kind: int, times: int = 1) -> None:
            for i in range(done[t, kind], done[t, kind] + times):
                runs[instance.devices[stage[t]]].append(instance.operations.op(stage[t], kind, i))
            done[t, kind] += times

        for notes in self._notes(steps, last, upper):
            for place, (t, weights) in enumerate(notes, 1):
                run(t, 2, weights)
                run(t, 1 if place == len(notes) else 0)
        for t in range(p if chain.split else 0):
            run(t, 2, chain.m - int(done[t, 2]))
        return np.concatenate([np.array(row, dtype=np.int64) for row in runs])

    def _notes(self, steps: list[Step], last: int, upper: int) -> Iterator[list[list[int]]]:
        """Yield what every step runs until a last label: stages of F's, at last a B, and W's."""
        turns = []
        for step in reversed(steps):
            turns.append(int(step.child[last]))
            last = int(step.parent[last])
        label = self._first()
        columns = label.shape[1]
        wide = columns + 2 + 2 * (self._p * self._chain.ahead + 2)
        out = np.zeros((max(turns) + 3, wide), dtype=np.int64)  # room for one more than wanted
        stack, state = self._scratch(wide), np.zeros(3, dtype=np.int64)
        whose = np.zeros(len(out), dtype=np.int32)
        for (i, s), turn in zip(self._turns(), reversed(turns), strict=True):
            state[:] = 0
            near = int(self._least[i, s]), int(self._most[i, s])
            kernels.expand(
                self._chain, i, s, upper, near, label, state, FAR, stack, out, whose, whose.copy()
            )
            row = out[turn]
            label[0] = row[:columns]
            yield row[columns + 2 :][: 2 * row[columns + 1]].reshape(-1, 2).tolist()
            if s == 0:
                self._forget(label)
