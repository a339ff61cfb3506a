"""What happens inside the groups of a plan, improved group by group with CP-SAT.

Where loads and stores are free, every group of the best plan by the rule is improved by itself:
first timesteps alone, placed as they are found; where these cannot be placed, timesteps and
addresses together.  The group of which most is still open comes first, and each time it comes it
gets twice the work.  Groups that are alike are one.

What CP-SAT proves of a group holds for its operators in that cut and order alone: it is told, but
it is no bound on all plans.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from stagepack.errors import CheckError
from stagepack.formulations.groups import CpSat
from stagepack.formulations.groups.frame import Frame
from stagepack.heuristics.effort import spend
from stagepack.heuristics.groups.bounds import least_cycles
from stagepack.heuristics.groups.placement import Offsets, place, place_by_rule
from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.instances.groups.check import group_cycles
from stagepack.instances.groups.timesteps import Timetable
from stagepack.methods import Settings
from stagepack.methods.models import load_engine, run_model
from stagepack.progress import Progress
from stagepack.result import Status
from stagepack.solvers import Engine

WORK = 0.2
"""Work of CP-SAT on a group when it first comes, about 2 s."""


@dataclass
class Group:
    """Groups of a plan that are alike.

    Attributes
    ----------
    places : list of int
        Which.
    bound : int
        Cycles that each takes at least.
    work : float
        What it gets when it comes next.
    together : bool
        Whether timesteps and addresses are to be found together.
    """

    places: list[int]
    bound: int
    work: float = WORK
    together: bool = False


@dataclass
class Inside:
    """A run that improves the groups of a plan.

    Parameters
    ----------
    instance : LayerGrouping
        With free timesteps.
    plan : GroupingSolution
    progress, settings, engine
        Of the run.
    before_search : callable
        See :func:`.placement.place`.
    """

    instance: LayerGrouping
    plan: GroupingSolution
    progress: Progress[GroupingSolution]
    settings: Settings
    engine: Engine
    before_search: Callable[[bool], None]
    groups: list[Group] = field(init=False)

    def __post_init__(self) -> None:
        alike: dict[object, Group] = {}
        for at, table in self.plan.timetables(self.instance):
            if table is not None:
                base = Timetable(table.regions)
                group = Group([], least_cycles(base))
                alike.setdefault(Frame(base).signature, group).places.append(at)
        self.groups = list(alike.values())

    def run(self) -> None:
        """Improve until every group is as good as it can be, or the time is over."""
        while self.progress.keep_going():
            cycles = group_cycles(self.instance, self.plan)
            self.progress.reason = self._told(cycles)
            left = [(cycles[one.places[0]] - one.bound, one) for one in self.groups]
            open_ = [(slack * len(one.places) / one.work, one) for slack, one in left if slack > 0]
            if not open_:
                return
            _, group = max(open_, key=lambda pair: pair[0])
            self._turn(group, cycles[group.places[0]])

    def _told(self, cycles: list[int]) -> str:
        least = sum(cycles)
        for group in self.groups:
            least -= sum(cycles[at] - group.bound for at in group.places)
        return f"no plan with these groups, in these cuts, takes less than {least:,} cycles"

    def _turn(self, group: Group, cycles: int) -> None:
        """Work on a group for a while, and let those that are alike follow."""
        first, before = group.places[0], self.plan
        unplaced: list[Timetable] = []

        def placed(table: Timetable) -> Offsets | None:
            offsets = place_by_rule(table, self.progress.keep_going)
            if offsets is None:
                unplaced.append(table)
            return offsets

        def bound(cycles: int) -> None:
            group.bound = max(group.bound, cycles)

        def build() -> CpSat:
            free = None if group.together else placed
            return CpSat(self.instance, before, first, upper=cycles, place=free)

        seconds = run_model(
            self.engine,
            build,
            "CpSat",
            self.progress,
            self.settings,
            start=before,
            bound_value=bound,
            work=group.work,
            conclude_infeasible=_contradict,
        )
        spend(seconds)
        group.work *= 2
        if unplaced and self.progress.keep_going():
            group.together = not self._place(unplaced[-1], group)
        best = self.progress.solution
        if best is not None and best.slices == before.slices:
            self.plan = self._followed(best, group)

    def _place(self, table: Timetable, group: Group) -> bool:
        """Place the last timesteps found, for which the rule did not do; return whether it did."""
        status, offsets = place(table, self.progress.keep_going, self.before_search)
        if status is not Status.FEASIBLE:
            return False
        spills = tuple((spill.tensor, spill.store, spill.load) for spill in table.spills)
        found = self.plan.with_group(group.places[0], table.positions, spills, offsets)
        self.progress.offer(found, f"{self.engine.name} (timesteps)")
        return True

    def _followed(self, plan: GroupingSolution, group: Group) -> GroupingSolution:
        """Return a plan in which groups that are alike do as the first of them."""
        first, *others = group.places
        if not others or not plan.positions:
            return plan
        own = Frame(plan.timetable(self.instance, first)).lives
        number = {life.tensor: at for at, life in enumerate(own)}
        spills = plan.spills[first] if plan.spills else ()
        for at in others:
            lives = Frame(plan.timetable(self.instance, at)).lives
            moved = tuple((lives[number[t]].tensor, store, load) for t, store, load in spills)
            plan = plan.with_group(at, plan.positions[first], moved, plan.offsets[first])
        self.progress.offer(plan, f"{self.engine.name} (groups that are alike)")
        return plan


def _contradict() -> None:
    raise CheckError("the model of a group has no solution, although one is known")


def improve(
    instance: LayerGrouping,
    progress: Progress[GroupingSolution],
    settings: Settings,
    before_search: Callable[[bool], None],
) -> None:
    """Improve the groups of the best plan known, where there is one.

    Parameters
    ----------
    instance, progress, settings
        Of the run.
    before_search : callable
        See :func:`.placement.place`.
    """
    if progress.solution is None:
        return
    engine = load_engine("cp-sat", progress, settings)
    Inside(instance, progress.solution, progress, settings, engine, before_search).run()
