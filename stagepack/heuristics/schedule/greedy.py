"""List scheduling: the device that is free first starts its operation of highest priority.

The priorities are given by a policy: how far F may run ahead of B, how far W may lag behind, the
order of kinds, and how long to wait for an operation of higher priority.  An F is started only if
memory then still suffices to finish everything, so that no policy causes a deadlock.  The first
round tries the policies behind the known rules, and lists with fixed sequences.  Then annealing
moves single operations of the best schedules, and policies that are left are tried in between.

Cost: O(log d + stages of a device) for each operation of a list schedule, unless memory is unusual;
policies are many list schedules.

Sources: the greedy of Qi et al. 2024, Zero bubble pipeline parallelism (arXiv 2401.10241, section
4); the banker's algorithm, Dijkstra 1965.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from stagepack.heuristics.effort import lending, spend, spent
from stagepack.heuristics.schedule import annealing, effort, sequences, timing
from stagepack.heuristics.schedule.effort import PART, RATE, Looks
from stagepack.heuristics.schedule.greedy_kernels import B, F, Plan, Policy, Shop, W, list_schedule
from stagepack.heuristics.schedule.policies import policies
from stagepack.heuristics.schedule.timing_kernels import FAR
from stagepack.heuristics.schedule.tuning import TUNING, ListsTuning, ScheduleTuning
from stagepack.instances.profile import Array
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.progress import Progress, Stopped


class Lists:
    """List schedules of one instance; `look` is that of :class:`.timing.Timing`.

    If `careful` they start only what leaves a way to finish microbatch after microbatch.  Where
    finished ones still hold memory, there may be no such way, and luck is the only one.
    """

    def __init__(
        self,
        instance: PipelineSchedule,
        *,
        careful: bool = True,
        look: Callable[[int], object] | None = None,
        tuning: ListsTuning = TUNING.lists,
    ) -> None:
        self.instance, self._tuning = instance, tuning
        self.timing = timing.Timing(instance, look)
        self.shop = shop_of(instance, look, tuning)
        if not careful:
            self.shop = self.shop._replace(plain=np.ones(instance.d, dtype=np.int64))
        leaves = 1 << (instance.d - 1).bit_length()
        self._turn = np.full(leaves, FAR, dtype=np.int64)
        self._turn[: instance.d] = 0
        rows = [np.arange(leaves)]
        while len(rows[-1]) > 1:
            rows.append(rows[-1][::2])  # of equal turns the first comes first
        self._first = np.concatenate([[0], *reversed(rows)])

    def order(
        self, policy: Policy, keep_going: Callable[[int], bool] | None = None
    ) -> Array | None:
        """Return what each device runs, flat, shape (n,).

        None when `keep_going`, asked several times a second with the steps taken, says no; and
        when `policy` gets stuck, which happens only where a single microbatch does not fit, or
        where one that is finished still holds memory.
        """
        n, d = len(self.instance.operations), self.instance.d
        plan = Plan(
            order=np.zeros(n, dtype=np.int64),  # a device's part is as long as its operations
            end=np.zeros(n, dtype=np.int64),
            done=np.zeros((self.instance.p, 3), dtype=np.int64),
            met=np.zeros((self.instance.p, 3), dtype=np.int64),
            latest=np.zeros((self.instance.p, 3), dtype=np.int64),
            place=self.timing.ptr[:-1].copy(),
            held=np.zeros(d, dtype=np.int64),
            free=np.zeros(d, dtype=np.int64),
            turn=self._turn.copy(),
            first=self._first.copy(),
            work=np.zeros(1, dtype=np.int64),
        )
        placed = 0
        while placed < n:
            before = int(plan.work[0])
            count = list_schedule(self.shop, policy, plan, n - placed, PART)
            steps = int(plan.work[0]) - before
            placed += count
            going = keep_going is None or keep_going(int(self._tuning.step_price * steps))
            if count < 0 or (placed < n and not going):
                return None
        return plan.order


class OrderSearch:
    """A search under way: policies that are left, the best orders, and whom to tell.

    Every improvement is offered to `progress`; coolings follow from `seed`.
    """

    def __init__(
        self,
        instance: PipelineSchedule,
        progress: Progress[ScheduleSolution],
        seed: int,
        tuning: ScheduleTuning = TUNING,
    ) -> None:
        self.instance, self._tuning = instance, tuning
        self.progress = progress
        self._looked = effort.looking(progress)
        self.lists = Lists(instance, look=self._looked, tuning=tuning.lists)
        self._keep_going = effort.asking(progress)
        self._listed = False  # whether a policy has not got stuck
        self._random = np.random.default_rng(seed)
        self._untried: Iterator[Policy] = iter(())
        self._seed = seed
        self._cooled = 0
        self._best = FAR
        self._elite: list[tuple[int, Array]] = []  # values and orders, the best first

    def first_round(self, work: float = math.inf) -> None:
        """Try the policies behind the known rules; carefully, then, if none works, boldly.

        The very first one is tried to its end where there is no solution yet, unless the run is
        interrupted.  Once there is a solution, lists with fixed sequences and a cooling come
        before all policies, or all but the first where it is large, and those that `work` does not
        suffice for, in seconds, are left for later turns.
        """
        end, opened, tuning = spent() + work, False, self._tuning.lists
        if self._tuning.auto.sequences:
            self._merge(spent() + tuning.sequences_share * work)
        many = len(self.instance.operations) > tuning.large
        if many and self.progress.solution is not None and self.progress.keep_going():
            opened = True
            self._open(careful=True)
            self._try_all(spent() + tuning.tried_share * work)
        with contextlib.suppress(Stopped), lending(1, tuning.cooled_share * work):
            self.anneal()
        if self.progress.solution is not None and not self.progress.keep_going():
            return
        for careful in (True, False):
            if not (careful and opened):
                self._open(careful=careful)
            self._try_all(end, first=careful and self.progress.solution is None)
            if self._listed or not self.progress.keep_going():
                return

    def _open(self, *, careful: bool) -> None:
        """Begin with the policies that are known to be good."""
        if not careful:
            self.lists = Lists(
                self.instance, careful=False, look=self._looked, tuning=self._tuning.lists
            )
        lower = self.progress.bound
        known = None if lower is None else int(lower)
        every = policies(self.instance, known, Looks(self._look), self._tuning.lists)
        self._untried = every if self._tuning.auto.policies else itertools.islice(every, 1)

    def _try_all(self, end: float, *, first: bool = False) -> None:
        """Try the policies that are left, until work comes to `end` and there is a solution."""
        for policy in self._untried:
            if not first and not self.progress.keep_going():
                return
            self._try(policy, first)
            first = False
            if spent() >= end and self.progress.solution is not None:
                return

    def _merge(self, end: float) -> None:
        """Try lists with fixed sequences, where there is a solution already, until `end`."""
        tuning = self._tuning.lists
        if self.progress.solution is None or sequences.unsupported(self.instance, tuning):
            return
        enough = int(self.progress.bound or 0) - int(self.instance.after.max())
        found = sequences.lists(
            self.lists.timing,
            lambda steps: self._keep_going(steps) and spent() < end,
            tuning,
            enough,
        )
        for order in found[: tuning.good]:
            if self.progress.keep_going():
                self._offer(order, "list scheduling of sequences")

    def _look(self, steps: int) -> bool:
        """Count steps; the run goes on, or :class:`Stopped` is raised."""
        self._looked(steps)
        return True

    def adopt(self, solution: ScheduleSolution) -> None:
        """Anneal from the orders of a better solution that was found elsewhere."""
        value = int(self.instance.evaluate(solution))
        if value < self._best:
            self._keep_in_mind(value, self.lists.timing.order_of(solution.start))

    def improve(self, work: float) -> None:
        """Anneal, and try policies that are left once a turn of coolings, for so many seconds."""
        end, every = spent() + work, self._tuning.lists.elite
        while self.progress.keep_going() and spent() < end:
            before = spent()
            if self._cooled % every == every - 1:
                self._try_all(spent() + self._tuning.auto.turn)
            self.anneal()
            if spent() == before:
                return

    def anneal(self) -> None:
        """Cool from a good order: from each in turn first, then twice of three times the best."""
        tuning = self._tuning.annealing
        affordable = annealing.affordable(self.lists.timing, tuning)
        if not (self._elite and affordable and self._tuning.auto.annealing):
            return
        number = self._cooled
        self._cooled += 1
        place = number if number < len(self._elite) else 0
        if number >= self._tuning.lists.elite and number % 3 == 2:
            place = int(self._random.integers(len(self._elite)))
        if not self.progress.keep_going():
            return
        found = annealing.improve(
            self.lists.timing,
            self._elite[place][1],
            seed=self._seed + number,
            settings=annealing.cooling(number, self.lists.timing, tuning),
            least=int(self.progress.bound or 0),
            keep_going=self._keep_going,
            on_order=self._keep,
            tuning=tuning,
        )
        value = self.lists.timing.value(found)
        assert value is not None
        self._keep_in_mind(value, found)

    def _keep(self, order: Array) -> None:
        """Offer what a cooling found on the way."""
        self._offer(order, "annealing")

    def _keep_in_mind(self, value: int, order: Array) -> None:
        """Let coolings begin from some orders, one of each value, if they are among the best."""
        self._best = min(self._best, value)
        if all(value != known for known, _ in self._elite):
            elite = sorted([*self._elite, (value, order)], key=lambda row: row[0])
            self._elite = elite[: self._tuning.lists.elite]

    def _try(self, policy: Policy, late: bool = False) -> None:
        """Offer what a policy gives, unless it gets stuck or time ends, which `late` does not."""
        order = self.lists.order(policy, self._uninterrupted if late else self._keep_going)
        if order is not None:
            self._listed = True
            self._offer(order, "list scheduling")

    def _uninterrupted(self, steps: int) -> bool:
        """Count steps; go on, even late, unless the run is interrupted."""
        spend(steps / RATE)
        return not self.progress.interrupted

    def _offer(self, order: Array, source: str) -> None:
        """Offer the best times for orders, and remember these."""
        start = self.lists.timing.best(order)
        if start is None:
            raise ValueError("orders contradict one another")
        solution = ScheduleSolution.of(self.instance, start)
        value = int(self.instance.evaluate(solution))
        self._keep_going(evaluation(self.instance))
        if value < self._best:
            effort.offer(self.instance, self.progress, solution, source)
        self._keep_in_mind(value, order)


def evaluation(instance: PipelineSchedule) -> int:
    """Return the steps of making a solution and evaluating it."""
    return 20_000 + 100 * instance.p + 2 * len(instance.operations)


def shop_of(
    instance: PipelineSchedule,
    look: Callable[[int], object] | None = None,
    tuning: ListsTuning = TUNING.lists,
) -> Shop:
    """Return the stages and devices of `instance` as the kernels see them; `look` as in `Lists`."""
    look = look or (lambda _: None)
    look(0)
    p, kinds = instance.p, len(instance.kinds)
    duration = np.zeros((p, 3), dtype=np.int64)
    delta = np.zeros((p, 3), dtype=np.int64)
    cycles = (instance.forward, instance.backward, instance.weight)
    changes = (instance.memory_forward, instance.memory_backward, instance.memory_weight)
    for kind in range(kinds):
        column = cycles[kind]
        assert column is not None
        duration[:, kind] = column
        delta[:, kind] = changes[kind]
    chain = _chains(instance)
    look(tuning.setup_price * instance.p + len(instance.edges))
    own: list[list[int]] = [[] for _ in range(instance.d)]
    for s in instance.order:
        own[int(instance.devices[s])].append(s)
    parts = [stages for row in own for stages in _together(row, chain)]
    ends = np.cumsum([len(stages) for stages in parts])
    releases = (delta[:, F] >= 0) & (delta[:, B] <= 0) & (delta[:, W] <= 0)
    plain = [len(stages) == 1 and bool(releases[stages[0]]) for stages in own]
    limit = np.full(instance.d, FAR) if instance.limit is None else instance.limit
    return Shop(
        device=_column(instance.devices),
        base=_column(instance.operations.base[:-1]),
        microbatches=_column(instance.microbatches),
        duration=duration,
        delta=delta,
        in_first=instance.producers.first,
        in_stage=instance.producers.stage,
        in_lag=instance.producers.lag,
        out_first=instance.consumers.first,
        out_stage=instance.consumers.stage,
        out_lag=instance.consumers.lag,
        own_first=_column(np.concatenate([[0], np.cumsum([len(stages) for stages in own])])),
        own_stage=_column(np.concatenate(own)),
        part_stage=_column(np.concatenate(parts)),
        part_end=np.repeat(ends, [len(stages) for stages in parts]).astype(np.int64),
        limit=_column(limit),
        plain=_column(np.array(plain)),
        kinds=kinds,
    )


def _chains(instance: PipelineSchedule) -> list[int]:
    """Return for each stage the least stage that it is connected with.  O(p + edges)."""
    ways = [
        (edges.first.tolist(), edges.stage) for edges in (instance.producers, instance.consumers)
    ]
    chain = np.full(instance.p, -1)
    for s in range(instance.p):
        stack = [s] if chain[s] < 0 else []
        chain[stack] = s
        while stack:
            a = stack.pop()
            for first, stage in ways:
                near = stage[first[a] : first[a + 1]]
                near = near[chain[near] < 0]
                chain[near] = s
                stack += near.tolist()
    return chain.tolist()


def _together(stages: list[int], chain: list[int]) -> list[list[int]]:
    """Return stages by their chain, the chains in the order in which they come up."""
    found: dict[int, list[int]] = {}
    for s in stages:
        found.setdefault(chain[s], []).append(s)
    return list(found.values())


def _column(values: Sequence[int] | Array) -> Array:
    """Return values as kernels take them."""
    return np.array(values, dtype=np.int64)
