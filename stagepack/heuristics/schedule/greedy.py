"""List scheduling: whichever device is free first starts the operation it likes best.

What a device likes is a policy: how far F may run ahead of B, how far W may fall behind, what
comes before what, and how long to wait for something better.  F starts only where memory leaves a
way to finish everything, so no policy runs into a deadlock.  A first round tries the policies
behind the known rules, and lists with fixed sequences; then annealing moves single operations of
the best, and now and then a climb changes the best policies.

Cost: O(log d + stages of a device) for each operation of a list schedule, where memory is not
unusual; policies and climbs are many list schedules.

Sources: the greedy of Qi et al. 2024, Zero bubble pipeline parallelism (arXiv 2401.10241, section
4); the banker's algorithm, Dijkstra 1965.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

import numpy as np

from stagepack.heuristics.effort import lending, spend, spent
from stagepack.heuristics.schedule import annealing, bounds, effort, sequences, timing
from stagepack.heuristics.schedule.effort import RATE, Looks, Settings
from stagepack.heuristics.schedule.greedy_kernels import Plan, Policy, Shop, list_schedule
from stagepack.heuristics.schedule.ramps import Ramps
from stagepack.heuristics.schedule.rules import depths
from stagepack.heuristics.schedule.timing_kernels import FAR
from stagepack.instances.profile import Array
from stagepack.instances.schedule import Objective, PipelineSchedule, ScheduleSolution
from stagepack.progress import Progress, Stopped

F, B, W = range(3)

ROUND = 2.0
"""Seconds of work between two looks of a search at what else there is."""

FIRST_ROUND = 1.5
"""Seconds of work for lists, and a first cooling, where there is a solution."""

CLIMBED = 5
"""Coolings of a turn before its climb."""

FOLLOWED = 2
"""Coolings from orders that were found elsewhere."""

ROUNDS = 12
"""Climbs and coolings of a run that is to repeat without any limit."""

CLIMB = 600_000
"""Operations placed in one climb: about a second."""

NEAR = 1.02
"""Times the best value known up to which changing a policy may lead below it."""

FEWEST, MOST = 20, 400
"""Policies tried in one climb."""

STAGE, EDGE = 1500, 5
"""Steps that a stage and an edge take where they are set up."""

STEPS = 10_000_000
"""Steps of a kernel call: less than a tenth of a second,"""

LIGHT = 0.6
"""and how many of :data:`.effort.RATE` each is."""

ELITE = 6
"""Orders from which coolings begin."""

GOOD = 8
"""Policies of the first round to which a search returns."""

SHARES = (0.3, 0.4, 0.5, 0.6, 0.75)
"""Parts of the number of stages below that are tried as caps, for little memory."""

PERIODS = 20
"""Times a microbatch may take from which caps are made."""


class Lists:
    """List schedules of one instance.

    Parameters
    ----------
    instance : PipelineSchedule
    careful : bool
        Start only what leaves a way to finish microbatch after microbatch.  Where finished ones
        still hold memory, there may be no such way, and luck is the only one.
    look : callable, optional
        See :class:`.timing.Timing`.
    """

    def __init__(
        self,
        instance: PipelineSchedule,
        *,
        careful: bool = True,
        look: Callable[[int], object] | None = None,
    ) -> None:
        self.instance = instance
        self.careful = careful
        self.timing = timing.Timing(instance, look)
        self.shop = shop_of(instance, look)
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
            order=np.zeros(n, dtype=np.int64),
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
            count = list_schedule(self.shop, policy, plan, n - placed, STEPS)
            steps = int(plan.work[0]) - before
            placed += count
            going = keep_going is None or keep_going(int(LIGHT * steps))
            if count < 0 or (placed < n and not going):
                return None
        return plan.order


def search(
    instance: PipelineSchedule,
    progress: Progress[ScheduleSolution],
    settings: Settings,
) -> None:
    """Report ever better schedules to `progress` until it says stop.

    It goes on from the solution that `progress` has, if any, and ends whenever the bound of
    :mod:`.bounds` is met.

    Parameters
    ----------
    instance : PipelineSchedule
    progress : Progress
    settings : Settings
        With `deterministic` it ends after a fixed amount of work.
    """
    if progress.bound is None:
        with progress.setup("loading kernels"):
            bounds.warm_up()
        progress.raise_bound(*bounds.bound(instance, effort.asking(progress)))
    with contextlib.suppress(Stopped):
        _search(instance, progress, settings)


def _search(
    instance: PipelineSchedule, progress: Progress[ScheduleSolution], settings: Settings
) -> None:
    run = OrderSearch(instance, progress, settings.seed)
    if progress.solution is not None:
        run.adopt(progress.solution)
    run.first_round(FIRST_ROUND)
    if run.policy is None and progress.solution is None:
        if progress.keep_going() and not progress.reason:
            progress.reason = "no order keeps within the memory limits that list schedules find"
        return
    for _ in rounds(settings):
        if not progress.keep_going():
            return
        run.improve(ROUND)


def rounds(settings: Settings) -> Iterable[int]:
    """Return the rounds of a search: any number, within its limit; some, where it has none."""
    if settings.deterministic and settings.time_limit is None:
        return range(ROUNDS)
    return itertools.count()


class OrderSearch:
    """A search under way: the best policy, the best orders, and whom to tell.

    Parameters
    ----------
    instance : PipelineSchedule
    progress : Progress
        Where every improvement is offered.
    seed : int
    """

    def __init__(
        self, instance: PipelineSchedule, progress: Progress[ScheduleSolution], seed: int
    ) -> None:
        self.instance = instance
        self.progress = progress
        self._looked = effort.looking(progress)
        self.lists = Lists(instance, look=self._looked)
        self._keep_going = effort.asking(progress)
        self.policy: Policy | None = None
        self._random = np.random.default_rng(seed)
        self._value = FAR  # of the best policy
        self._good: list[tuple[int, Policy]] = []  # values and policies, the best first
        self._stuck = False
        self._untried: Iterator[Policy] = iter(())
        self._seed = seed
        self._cooled = 0
        self._best = FAR
        self._elite: list[tuple[int, Array]] = []  # values and orders, the best first

    def first_round(self, work: float = math.inf) -> None:
        """Try the policies behind the known rules; carefully, then, if none works, boldly.

        The very first one is tried to its end where there is no solution yet, unless the run is
        interrupted.  Once there is a solution, lists with fixed sequences and a cooling come
        before, and policies that `work` does not suffice for, in seconds, are left for climbs.
        """
        with self.progress.setup("loading kernels"):
            warm_up(self.instance.objective is Objective.SPAN)
        end = spent() + work
        self._merge(spent() + work / 4)
        with contextlib.suppress(Stopped), lending(1, work / 4):
            self.anneal()
        lower = self.progress.bound
        known = None if lower is None else int(lower)
        for careful in (True, False):
            if not careful:
                self.lists = Lists(self.instance, careful=False, look=self._looked)
            self._untried = policies(self.instance, known, Looks(self._look))
            self._try_all(end, first=careful and self.progress.solution is None)
            if self.policy is not None or not self.progress.keep_going():
                return

    def _try_all(self, end: float, *, first: bool = False) -> None:
        """Try the policies that are left, until work comes to `end` and there is a solution."""
        for policy in self._untried:
            if not first and not self.progress.keep_going():
                return
            value = self._try(policy, first)
            first = False
            if value < FAR:
                good = [*self._good, (value, policy)]
                self._good = sorted(good, key=lambda row: row[0])[:GOOD]
            if spent() >= end and self.progress.solution is not None:
                return

    def _merge(self, end: float) -> None:
        """Try lists with fixed sequences, where there is a solution already, until `end`."""
        if self.progress.solution is None or sequences.unsupported(self.instance):
            return
        with self.progress.setup("loading kernels"):
            sequences.warm_up()
        found = sequences.lists(
            self.lists.timing, lambda steps: self._keep_going(steps) and spent() < end
        )
        for order in found[:GOOD]:
            if self.progress.keep_going():
                self._offer(order, "list scheduling of sequences")

    def _look(self, steps: int) -> bool:
        self._looked(steps)
        return True

    def adopt(self, solution: ScheduleSolution) -> None:
        """Anneal from the orders of a better solution that was found elsewhere."""
        value = int(self.instance.evaluate(solution))
        if value < self._best:
            self._keep_in_mind(value, self.lists.timing.order_of(solution.start))

    def improve(self, work: float) -> None:
        """Anneal, and climb once a turn of coolings, for so many seconds of work."""
        end = spent() + work
        while self.progress.keep_going() and spent() < end:
            before = spent()
            if self._cooled % len(annealing.KINDS) == CLIMBED:
                self.climb()
            self.anneal()
            if spent() == before:
                return

    def climb(self) -> None:
        """Change a good policy at random, and keep what is not worse.

        It goes on from the best one; after a climb in vain, from one of the best of the first
        round, whose rest is tried before.  None where policies come nowhere near what is known.
        """
        self._try_all(spent() + ROUND)
        far = self._value > NEAR * self._best
        if self.policy is None or far or not self.progress.keep_going():
            return
        policy, value, best = self.policy, self._value, self._value
        if self._stuck:
            value, policy = self._good[int(self._random.integers(len(self._good)))]
        tries = CLIMB // len(self.instance.operations)
        for _ in range(min(max(tries, FEWEST), MOST)):
            if not self.progress.keep_going():
                return
            changed = _changed(policy, self.lists.shop, self._random)
            found = self._try(changed)
            if found <= value:
                policy, value = changed, found
        self._stuck = self._value == best and not self._stuck

    @property
    def best(self) -> list[Array]:
        """The best orders known, of different values, the best first."""
        return [order for _, order in self._elite]

    def follow(self, order: Array, source: str) -> None:
        """Offer orders that were found elsewhere, and cool from them."""
        self._offer(order, source)
        for _ in range(FOLLOWED):
            self.anneal(order)

    def anneal(self, order: Array | None = None) -> None:
        """Cool from `order`, or from a good one.

        Of these each in turn first, then twice of three times the best.
        """
        if not (self._elite or order is not None) or not annealing.affordable(self.lists.timing):
            return
        number = self._cooled
        self._cooled += 1
        place = number if number < len(self._elite) else 0
        if number >= ELITE and number % 3 == 2:
            place = int(self._random.integers(len(self._elite)))
        if not self.progress.keep_going():
            return
        with self.progress.setup("loading kernels"):
            annealing.warm_up()
        found = annealing.improve(
            self.lists.timing,
            self._elite[place][1] if order is None else order,
            seed=self._seed + number,
            settings=annealing.cooling(number, self.lists.timing),
            least=int(self.progress.bound or 0),
            keep_going=self._keep_going,
            on_order=self._keep,
        )
        value = self.lists.timing.value(found)
        assert value is not None
        self._keep_in_mind(value, found)

    def _keep(self, order: Array) -> None:
        self._offer(order, "annealing")

    def _keep_in_mind(self, value: int, order: Array) -> None:
        """Let coolings begin from some orders, one of each value, if they are among the best."""
        self._best = min(self._best, value)
        if all(value != known for known, _ in self._elite):
            self._elite = sorted([*self._elite, (value, order)], key=lambda row: row[0])[:ELITE]

    def _try(self, policy: Policy, late: bool = False) -> int:
        """Return what a policy is worth, FAR where it gets stuck or time ends, unless `late`."""
        order = self.lists.order(policy, self._uninterrupted if late else self._keep_going)
        if order is None:
            return FAR
        value = self._offer(order, "list scheduling")
        if value <= self._value:
            self.policy, self._value = policy, value
        return value

    def _uninterrupted(self, steps: int) -> bool:
        spend(steps / RATE)
        return not self.progress.interrupted

    def _offer(self, order: Array, source: str) -> int:
        start = self.lists.timing.best(order)
        if start is None:
            raise ValueError("orders contradict one another")
        solution = ScheduleSolution.of(self.instance, start)
        value = int(self.instance.evaluate(solution))
        self._keep_going(evaluation(self.instance))
        if value < self._best:
            effort.offer(self.instance, self.progress, solution, source)
        self._keep_in_mind(value, order)
        return value


def evaluation(instance: PipelineSchedule) -> int:
    """Return the steps of making a solution and evaluating it."""
    return 20_000 + 100 * instance.p + 2 * len(instance.operations)


def policies(
    instance: PipelineSchedule, lower: int | None = None, looks: Looks | None = None
) -> Iterator[Policy]:
    """Yield policies that may well be the best, the most promising first.

    Parameters
    ----------
    instance : PipelineSchedule
    lower : int, optional
        A bound on the objective; found here when absent.
    looks : Looks, optional
    """
    looks = looks or Looks()
    if lower is None:
        lower = bounds.bound(instance)[0]
    depth = depths(instance)
    debts = [np.full(instance.p, FAR, dtype=np.int64)]
    if instance.split:
        debts += [depth.max() - depth, np.zeros(instance.p, dtype=np.int64)]
    caps = _caps(instance, depth, lower, looks)
    combined = [policies_of(instance, depth, *both) for both in itertools.product(caps, debts)]
    for row in zip(*combined, strict=True):
        yield from row


def policies_of(
    instance: PipelineSchedule, depth: Array, cap: Array, debt: Array
) -> Iterator[Policy]:
    """Yield policies with these caps and debts, the most promising first.

    Parameters
    ----------
    instance : PipelineSchedule
    depth : ndarray of int64, shape (p,)
        Of :func:`.rules.depths`.
    cap, debt : ndarray of int64, shape (p,)
        How many F's may run ahead of B's, and B's ahead of W's.
    """
    p, d = instance.p, instance.d
    ranks = [_rank(depth, turn) for turn in ((F, B, W), (B, F, W))]
    if d < p:
        ranks += [_rank(-depth, turn) for turn in ((F, B, W), (B, F, W))]
    waits = [np.zeros((p, 3), dtype=np.int64)]
    if instance.weight is not None:
        waits.append(waits[0].copy())
        waits[1][:, W] = instance.weight
    stricts = (0, 1) if instance.split else (0,)
    for rank, strict, wait in itertools.product(ranks, stricts, waits):
        yield Policy(cap, debt, rank, wait, np.full(d, strict, dtype=np.int64))


def _caps(instance: PipelineSchedule, depth: Array, lower: int, looks: Looks) -> list[Array]:
    """Return caps on the F's ahead of the B's, each of shape (p,).

    What the least ramps of :class:`.ramps.Ramps` need; the number of stages below (1F1B), almost
    twice that (zero bubble H2), parts of it; as many as fit; and, where a microbatch takes T
    cycles, as many as start between an F and its B, for T from a third of the work to all in
    sequence: the lifetimes of Qi et al. 2024, Pipeline parallelism with controllable memory (arXiv
    2405.15362).
    """
    most = instance.microbatches.astype(np.int64)
    if not instance.training or instance.backward is None:
        return [most]
    caps = [depth, 2 * depth - 1, most]
    least = Ramps(instance, looks).warm_up(lower)
    if least is not None:
        caps.insert(0, least)
    trip = np.zeros(instance.p, dtype=np.int64)  # from the start of F to that of B
    consumers, first = instance.consumers, instance.consumers.first.tolist()
    for s in reversed(instance.order):
        here = slice(first[s], first[s + 1])
        then = consumers.stage[here]
        ways = trip[then] + instance.backward[then] + 2 * consumers.lag[here]
        trip[s] = instance.forward[s] + ways.max(initial=0)
        looks.at(STAGE + EDGE * len(then))
    shortest = float((instance.work / most.max()).max()) / 3
    longest = max(shortest, float(trip.max()))
    periods = np.geomspace(shortest, longest, PERIODS)
    shares = [share * depth for share in SHARES] + [trip / period for period in periods]
    distinct = {
        tuple(np.clip(np.ceil(share), 1, most).astype(np.int64).tolist()) for share in shares
    }
    rest = [np.array(cap, dtype=np.int64) for cap in sorted(distinct, reverse=True)]
    return [np.clip(cap, 1, most) for cap in caps] + rest


def _rank(depth: Array, turn: tuple[int, int, int]) -> Array:
    """Return ranks by kind, the last of `turn` lowest and B before F for (F, B, W); then by depth.

    The F's of stages near the end come first, and the B's of stages near the beginning.
    """
    rank = np.zeros((len(depth), 3), dtype=np.int64)
    scale = 2 * int(np.abs(depth).max()) + 2
    place = {turn[1]: 2, turn[0]: 1, turn[2]: 0}
    for kind in (F, B, W):
        rank[:, kind] = place[kind] * scale + (depth if kind else -depth)
    return rank


def _changed(policy: Policy, shop: Shop, random: np.random.Generator) -> Policy:
    """Return a policy that differs from `policy` in one to three places."""
    cap, debt, rank, wait, strict = (column.copy() for column in policy)
    p = len(cap)
    for _ in range(int(random.integers(1, 4))):
        s = int(random.integers(p))
        what = int(random.integers(7))
        if what == 6:
            cap = np.clip(np.rint(cap * random.uniform(0.8, 1.25)), 1, shop.microbatches)
            cap = cap.astype(np.int64)
        elif what <= 1:
            cap[s] = np.clip(cap[s] + random.integers(-2, 3), 1, shop.microbatches[s])
        elif what == 2:
            debt[s] = FAR if random.random() < 0.3 else random.integers(shop.microbatches[s] + 1)
        elif what == 3:
            kind = int(random.integers(shop.kinds))
            wait[s, kind] = int(random.random() ** 2 * shop.duration[s].max())
        elif what == 4:
            one, two = random.integers(p, size=2)
            kind = int(random.integers(shop.kinds))
            other = int(random.integers(shop.kinds))
            rank[one, kind], rank[two, other] = rank[two, other], rank[one, kind]
        else:
            at = int(shop.device[s])
            strict[at] = 1 - strict[at]
    return Policy(cap, debt, rank, wait, strict)


def shop_of(instance: PipelineSchedule, look: Callable[[int], object] | None = None) -> Shop:
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
    look(STAGE * instance.p + EDGE * len(instance.edges))
    own: list[list[int]] = [[] for _ in range(instance.d)]
    for s in instance.order:
        own[int(instance.devices[s])].append(s)
    parts = [stages for row in own for stages in _together(row, chain)]
    ends = np.cumsum([len(stages) for stages in parts])
    releases = (delta[:, F] >= 0) & (delta[:, B] <= 0) & (delta[:, W] <= 0)
    plain = [len(stages) == 1 and bool(releases[stages[0]]) for stages in own]
    limit = np.full(instance.d, FAR) if instance.limit is None else instance.limit
    look(STAGE // 10 * instance.p)
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
    return np.array(values, dtype=np.int64)


@cache
def warm_up(spans: bool = True) -> None:
    """Run every kernel of list schedules once, so that all are compiled; see `timing.warm_up`."""
    timing.warm_up(spans)
    tiny = PipelineSchedule.from_arrays([1], microbatches=1)
    Lists(tiny).order(next(policies(tiny, 1)))
