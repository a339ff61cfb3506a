"""Optimises groups, cuts, timesteps, spills and addresses together, with free loads and stores.

1. A shortest path over lower bounds of the groups' cycles
   (:mod:`stagepack.heuristics.groups.lazy`) selects the groups that are worth solving.
2. When a group is selected for the first time, its transfers are moved to rows where they overlap
   with computation (:mod:`stagepack.heuristics.groups.moving`).
3. CP-SAT then optimises the timesteps of a group, and each solution is placed in local memory.  If
   none can be placed, timesteps and addresses are optimised in one model.

Step 1 alternates with the best path over groups that are already solved, which finds better plans
sooner.  On each path the group with the largest open gap comes first, and each time it comes its
work limit doubles.  Identical groups are solved once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from stagepack.errors import ContradictionError, InputError
from stagepack.evidence import TOLD
from stagepack.formulations.groups import CpSat
from stagepack.formulations.groups.frame import Frame
from stagepack.heuristics.effort import spend
from stagepack.heuristics.groups.lazy import UNKNOWN, Choices
from stagepack.heuristics.groups.moving import settled
from stagepack.heuristics.groups.oracle import ALONE
from stagepack.heuristics.groups.placement import Offsets, place, place_by_rule
from stagepack.heuristics.groups.tuning import TUNING
from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.instances.groups.regions import Cut, Regions
from stagepack.instances.groups.timesteps import Timetable
from stagepack.methods import Settings
from stagepack.methods.groups.offering import offer
from stagepack.methods.models import run_model
from stagepack.progress import Part, Progress
from stagepack.result import Status
from stagepack.solvers import Engine


@dataclass
class Group:
    """Groups in cuts that are alike, and the plan of the first of them alone."""

    plan: GroupingSolution  # the best that is known; without addresses: none is
    low: int  # what it takes at least
    work: float  # what it gets when it comes next
    high: int = UNKNOWN  # what it takes in `plan`
    together: bool = False  # whether timesteps and addresses are to be found together

    @property
    def open(self) -> bool:
        """Whether it is not known what it takes."""
        return self.low < self.high


class Inside(Part[GroupingSolution, GroupingSolution]):
    """A run of the model of a group within a run of the method, `whole`."""

    def __init__(self, instance: LayerGrouping, whole: Progress[GroupingSolution]) -> None:
        super().__init__(whole, lambda plan: plan.timetable(instance, 0).cycles, lambda _: ())

    def offer(self, solution: GroupingSolution, source: str) -> bool:
        """Keep what was placed, if it is better."""
        return bool(solution.offsets) and super().offer(solution, source)


@dataclass
class Joint:
    """A run that looks more closely at what may be part of the best plan."""

    instance: LayerGrouping  # with free timesteps
    choices: Choices  # all that may be part of a better plan, by numbers of `cuts`
    cuts: list[Cut]
    progress: Progress[GroupingSolution]
    settings: Settings
    engine: Engine
    proves: bool  # whether all plans pass through the ideals of `choices`

    def __post_init__(self) -> None:
        self._tuning = self.settings.tuned(TUNING)
        self._alike: dict[object, int] = {}
        self._groups: list[Group] = []
        self._number = np.full(len(self.choices.low), -1)
        self._turns = 0

    @property
    def _source(self) -> str:
        """What found the groups: CP-SAT, once it has looked at any."""
        return self.engine.name if self._turns else "transfers moved"

    def run(self) -> bool:
        """Look on until the best plan is known, or the time is over; return whether there is any.

        Where some groups are too large for the model, what is left open of them stays open.
        """
        while True:
            value = UNKNOWN if self.progress.objective is None else int(self.progress.objective)
            self._number = self._number[self.choices.narrow(value)]
            bound, path = self.choices.shortest(self.choices.low)
            if self.proves:
                source = "shortest path, CP-SAT in groups"
                self.progress.raise_bound(min(bound, value), source, TOLD)
            if bound >= value:
                return value < UNKNOWN
            if not self.progress.keep_going():
                return True
            new = sum(map(self._known, path))
            least, best = self.choices.shortest(self.choices.high)
            if least < value:
                offer(self.progress, self._plan(best), self._source, self._tuning)
                continue
            turns = [path, best if least < UNKNOWN else path]
            if self._turns % len(turns):
                turns.reverse()
            at = next((at for at in map(self._most_open, turns) if at >= 0), -1)
            if at >= 0:
                self._turn(at)
            elif not new:  # what is alike may be known to take more than the path that met it
                return True

    def _known(self, at: int) -> bool:
        """Get to know a choice, and how it may run; return whether that is new."""
        choice = self.choices.choice(at)
        if self._number[at] >= 0 or choice.cut == ALONE:
            return False
        members = self.choices.members(choice)
        plan = GroupingSolution((0, len(members)), (tuple(self.cuts[choice.cut]),), order=members)
        table = plan.timetable(self.instance, 0)
        signature = Frame(table).signature
        if signature not in self._alike:
            self._alike[signature] = len(self._groups)
            work = self._tuning.models.first_work * len(members)
            group = Group(plan, int(self.choices.low[at]), work)
            self._groups.append(group)
            found = settled(table, self.progress.keep_going, self._tuning)
            if found is not None:
                best, offsets = found
                positions = () if best is table else best.positions
                group.plan, group.high = plan.with_group(0, positions, (), offsets), best.cycles
        self._number[at] = self._alike[signature]
        self._tell(self._alike[signature])
        return True

    def _tell(self, number: int) -> None:
        """Tell the choices that are a group what is known of it."""
        group, those = self._groups[number], self._number == number
        self.choices.low[those], self.choices.high[those] = group.low, group.high

    def _most_open(self, path: list[int]) -> int:
        """Return the choice of which most is open for the work that it would get; -1: none."""
        slack: dict[int, int] = {}
        first: dict[int, int] = {}
        for at in dict.fromkeys(path):
            number = int(self._number[at])
            if number >= 0 and self._groups[number].open:
                useful = min(int(self.choices.high[at]), int(self.choices.useful[at]))
                slack[number] = slack.get(number, 0) + useful - int(self.choices.low[at])
                first.setdefault(number, at)
        if not first:
            return -1
        number = max(first, key=lambda number: slack[number] / self._groups[number].work)
        return first[number] if self._groups[number].work < math.inf else -1

    def _turn(self, at: int) -> None:
        """Look at a group for a while: whether it takes less than what is of use."""
        number, useful = int(self._number[at]), int(self.choices.useful[at])
        group = self._groups[number]
        self._turns += 1
        with self.progress.setup(f"loading {self.engine.name}"):
            self.engine.load()
        inner, unplaced = Inside(self.instance, self.progress), list[Timetable]()
        upper = min(group.high, useful - 1)

        def placed(table: Timetable) -> Offsets | None:
            offsets = place_by_rule(table, self.progress.keep_going, self._tuning.placement)
            if offsets is None:
                unplaced.append(table)
            return offsets

        def build() -> CpSat:
            free = None if group.together else placed
            return CpSat(self.instance, group.plan, 0, upper=upper, place=free)

        def infeasible() -> None:
            if group.high <= upper:
                raise ContradictionError("the model of a group has no solution: one is known")
            group.low = useful

        try:
            seconds = run_model(
                self.engine,
                build,
                "CpSat",
                inner,
                self.settings,
                start=group.plan if group.plan.offsets else None,
                work=group.work,
                conclude_infeasible=infeasible,
            )
        except InputError as error:  # figures beyond what the engine counts to
            self.progress.reason = str(error)
            group.work = math.inf
            return
        spend(seconds)
        group.work *= 2
        if unplaced and self.progress.keep_going():
            group.together = not self._place(unplaced[-1], group, inner)
        self._learn(group, inner, upper)
        self._tell(number)

    def _learn(self, group: Group, inner: Inside, upper: int) -> None:
        """Note what a run of the model found; its bound holds for what takes no more than upper."""
        self.progress.engine = inner.engine
        if inner.interrupted:
            self.progress.interrupt()
        if inner.bound is not None:
            group.low = max(group.low, min(int(inner.bound), upper + 1))
        if inner.solution is not None and inner.objective is not None:
            cycles = int(inner.objective)
            if cycles < group.high:
                group.plan, group.high = inner.solution, cycles

    def _place(self, table: Timetable, group: Group, inner: Inside) -> bool:
        """Place the last timesteps found, for which the rule did not do; return whether it did."""
        status, offsets = place(table, self.progress.keep_going, self._tuning.placement)
        if status is not Status.FEASIBLE:
            return False
        spills = tuple((spill.tensor, spill.store, spill.load) for spill in table.spills)
        inner.offer(group.plan.with_group(0, table.positions, spills, offsets), "timesteps")
        return True

    def _plan(self, path: list[int]) -> GroupingSolution:
        """Return the plan that makes some choices, of all of which a way is known."""
        members = [self.choices.members(self.choices.choice(at)) for at in path]
        numbers = [int(self._number[at]) for at in path]
        groups = [self._groups[at].plan if at >= 0 else None for at in numbers]
        order = tuple(at for some in members for at in some)
        positions = tuple(own.positions[0] if own and own.positions else () for own in groups)
        spills = tuple(self._spills(*pair) for pair in zip(members, groups, strict=True))
        return GroupingSolution(
            tuple(accumulate(map(len, members), initial=0)),
            tuple(own.slices[0] if own else () for own in groups),
            order=() if order == tuple(range(len(order))) else order,
            positions=positions if any(positions) else (),
            spills=spills if any(spills) else (),
            offsets=tuple(own.offsets[0] if own else () for own in groups),
        )

    def _spills(
        self, members: tuple[int, ...], plan: GroupingSolution | None
    ) -> tuple[tuple[int, int, int], ...]:
        """Return the spills of a plan for operators that are like its own."""
        if plan is None or not plan.spills:
            return ()
        own, like = (
            [life.tensor for life in Frame(Timetable(Regions(self.instance, some, cut))).lives]
            for cut in [Cut(*plan.slices[0])]
            for some in (plan.operators(0), members)
        )
        return tuple((like[own.index(t)], store, load) for t, store, load in plan.spills[0])
