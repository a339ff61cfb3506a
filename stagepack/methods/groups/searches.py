"""Implementations of the methods of layer grouping; imported, with their kernels, when one runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from stagepack.heuristics import effort
from stagepack.heuristics.effort import spend
from stagepack.heuristics.groups import dag as convex
from stagepack.heuristics.groups import dp as search
from stagepack.heuristics.groups import ideals, lazy
from stagepack.heuristics.groups.dp import FAR, Partition
from stagepack.heuristics.groups.free import FreeOracle
from stagepack.heuristics.groups.least import behind
from stagepack.heuristics.groups.network import machine, network
from stagepack.heuristics.groups.oracle import Oracle
from stagepack.heuristics.groups.placement import Place, Placements, place
from stagepack.heuristics.groups.seed_order import place_in_order
from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.instances.groups.problem import Order, Timesteps
from stagepack.methods import Settings, counted
from stagepack.methods.groups.apart import spread
from stagepack.methods.groups.explain import explain
from stagepack.methods.groups.joint import Joint
from stagepack.methods.groups.offering import ALONE, GROUP, GROUPED, checking, offer
from stagepack.methods.models import find_engine, load_engine
from stagepack.methods.starts import LENT, Turn, offer_start, take_turns
from stagepack.progress import Progress, Stopped
from stagepack.solvers import Engine

GroupingProgress = Progress[GroupingSolution]
Run = Callable[[LayerGrouping, GroupingProgress, Settings], None]
Rule = Callable[[Partition], GroupingSolution | None]

RULES: dict[str, tuple[Rule, bool, int | None]] = {
    "layerwise": (search.layerwise, False, 1),
    "greedy-tail": (search.greedy_tail, True, None),
    "dp-first-fit": (search.clustered, True, None),
    "seed-order": (lambda partition: search.solve(partition, lambda _: None), False, None),
}
"""What partitions by each rule, whether the first cut that fits will do, the longest group."""

PLACING: dict[str, Place] = {"seed-order": place_in_order}
"""Rules that place buffers by a rule, too, and leave them there."""

QUICK, OTHERS, MAIN = {"greedy-tail": 1, "dp-first-fit": 2}, ("layerwise", "seed-order"), 3
"""Rules that take turns with the exact search: those that have theirs before it, and how long these
are, those that have them behind it; and how long its own are."""

CHECKED = 0.3
"""Part of the time that is kept, at most, to check what a rule finds."""

KNOWN = 1.2e-5
"""Seconds to bring an operator into its normal form."""

MANY_IDEALS, MOST_IDEALS = 10_000, 100_000
"""Ideals beyond which windows come first, and beyond which not all are looked at; 400 bytes each,
and their pairs take too long."""

WINDOWS = 100, 400, 1_600
"""Ideals of a window along a plan, where there are many; larger ones once smaller ones end."""


def _by_rule(name: str) -> Run:
    """Return the `run` of a rule."""

    def run(instance: LayerGrouping, progress: GroupingProgress, _: Settings) -> None:
        spare = None
        try:
            with progress.reserving(_checking(instance, progress)):
                _bound(instance, progress)
            if not _stands(instance):
                spare = _first(instance, progress)
            found = _found(name, instance, progress)
        except Stopped:
            if _stands(instance):
                spare = GroupingSolution.from_global_memory(instance.n)
            if spare is not None:
                progress.reason = (
                    f"there was no time for {name}: this plan has one operator in each group"
                )
                offer(progress, spare, "no time")
            return
        if found is None:
            progress.reason = f"{name}: {explain(instance, progress.keep_going)}"
        else:
            offer(progress, found, name)

    return run


def _first(instance: LayerGrouping, progress: GroupingProgress) -> GroupingSolution | None:
    """Return an operator a group, each in the first cut that fits; None where one fits in none."""
    with progress.reserving(CHECKED):
        return search.layerwise(_partition(instance, progress, eager=True, longest=1))


def _found(
    name: str, instance: LayerGrouping, progress: GroupingProgress
) -> GroupingSolution | None:
    """Return what a rule finds; with enough time left to check it."""
    rule, eager, longest = RULES[name]
    with progress.reserving(_checking_groups(instance, progress)):
        placing = PLACING.get(name, place)
        return rule(_partition(instance, progress, eager, longest, placing))


class _Turns:
    """Rules that take turns: each goes on with what it knows from the turn before.

    Those that take the first cut that fits know the same groups.

    Parameters
    ----------
    instance : LayerGrouping
    progress : Progress
        Is offered what they find, and what they have found where a turn ends before they do.
    """

    def __init__(self, instance: LayerGrouping, progress: GroupingProgress) -> None:
        self._instance, self._progress = instance, progress
        self._known: dict[tuple[bool, int | None, Place], Partition] = {}

    def of(self, name: str) -> Callable[[], bool]:
        """Return the turns of a rule; they say whether it is done."""
        return lambda: self._turn(name)

    def _turn(self, name: str) -> bool:
        progress = self._progress
        rule, eager, longest = RULES[name]
        with progress.reserving(_checking_groups(self._instance, progress)):
            known = eager, longest, PLACING.get(name, place)
            if known not in self._known:
                self._known[known] = _partition(self._instance, progress, *known)
            found = rule(self._known[known])
            done = progress.keep_going()
        if found is not None and (done or checking(found) <= progress.remaining):
            offer(progress, found, name)
        return done


def _follow(name: str, instance: LayerGrouping, progress: GroupingProgress) -> None:
    """Offer what a rule finds, if there is anything, and the time for it."""
    with contextlib.suppress(Stopped):
        found = _found(name, instance, progress)
        if found is not None:
            offer(progress, found, name)


def _checking(instance: LayerGrouping, progress: GroupingProgress) -> float:
    """Return the part of the time left that it takes to check a plan without groups, or more."""
    return min(1.0, max(CHECKED, ALONE * instance.n / max(progress.remaining, ALONE)))


def _checking_groups(instance: LayerGrouping, progress: GroupingProgress) -> float:
    """Return the part of the time left that it takes to check what a rule finds, within reason."""
    return min(CHECKED, (GROUPED + GROUP) * instance.n / max(progress.remaining, GROUP))


def _stands(instance: LayerGrouping) -> bool:
    """Whether every operator may run by itself."""
    return all(map(instance.stands, range(instance.n)))


def _bound(instance: LayerGrouping, progress: GroupingProgress) -> None:
    """Raise the bound to what all operators take, however they are grouped and cut."""
    spend(KNOWN * instance.n)  # once a run, although it may be there already: runs repeat
    least = behind(network(instance, progress.require_time), machine(instance))
    progress.raise_bound(int(least[0]), "compute, or transfers, of all operators")


def _start(
    instance: LayerGrouping,
    progress: GroupingProgress,
    settings: Settings,
    main: Callable[[], bool] | None = None,
) -> None:
    """Offer the plan without groups, where there is one, a bound, and what the settings want.

    Parameters
    ----------
    instance, progress, settings
        Of the run.
    main : callable, optional
        What takes turns with the rules, see :class:`.Turn`; None: they have half of the time.
    """
    given = settings.warm_start
    if isinstance(given, str | None) and _stands(instance):
        offer(progress, GroupingSolution.from_global_memory(instance.n), "global memory")
    _bound(instance, progress)
    turns = _Turns(instance, progress)

    def every() -> None:
        quick = [Turn(turns.of(name), length) for name, length in QUICK.items()]
        others = [Turn(turns.of(name)) for name in OTHERS]
        if main is not None:
            take_turns(progress, [*quick, Turn(main, MAIN, decides=True), *others])
            return
        with progress.lending(*LENT), effort.lending(*LENT):
            take_turns(progress, [*quick, *others])

    starts = {name: lambda name=name: _follow(name, instance, progress) for name in RULES}
    offer_start(instance, progress, settings, {"auto": every, **starts})


def _intervals_prove(instance: LayerGrouping) -> bool:
    """Whether no plan is better than the best of consecutive operators, by the rule."""
    ordered = instance.order == Order.GIVEN or instance.linear
    return ordered and instance.timesteps == Timesteps.NEAREST


def dp(instance: LayerGrouping, progress: GroupingProgress, settings: Settings) -> None:
    """Prove the least cycles of groups of consecutive operators, loads and stores by the rule."""
    turn = _Path(instance, progress).turn
    _start(instance, progress, settings, turn)
    with contextlib.suppress(Stopped):
        turn()


class _Path:
    """The shortest path over groups of consecutive operators, known further after every turn."""

    def __init__(self, instance: LayerGrouping, progress: GroupingProgress) -> None:
        self._instance, self._progress = instance, progress
        self._proves = _intervals_prove(instance)
        self._partition: Partition | None = None
        self._done = False

    def turn(self) -> bool:
        """Go on; return True once the path is offered, or known not to be there."""
        progress = self._progress
        if self._done:
            return True
        if self._partition is None:
            self._partition = _partition(self._instance, progress)
        found = search.solve(self._partition, self._bound)
        if found is not None:
            offer(progress, found, "dp")
        elif self._partition.decided and self._proves:
            reason = explain(self._instance, progress.keep_going)
            progress.prove_infeasible(reason, self._partition.evidence())
        self._done = True
        return True

    def _bound(self, cycles: int) -> None:
        if self._proves and self._partition is not None:
            self._progress.raise_bound(cycles, "shortest path", self._partition.evidence())


def milp(instance: LayerGrouping, progress: GroupingProgress, settings: Settings) -> None:
    """Solve the interval model on an engine; what it proves is what `dp` proves."""
    from stagepack.methods.groups import model

    engine = load_engine("highs", progress, settings)
    _start(instance, progress, settings)
    partition = _partition(instance, progress)
    proves = _intervals_prove(instance)
    found = True
    with contextlib.suppress(Stopped):
        found = model.solve(partition, engine, progress, settings, proves=proves)
    if not (partition.decided and proves):
        return
    if not found:
        partition.shortest()
        progress.prove_infeasible(explain(instance, progress.keep_going), partition.evidence())
    elif progress.proved:
        with contextlib.suppress(Stopped):
            cycles, _ = partition.shortest()
            progress.raise_bound(cycles, progress.bound_source, partition.evidence())


def dag(instance: LayerGrouping, progress: GroupingProgress, settings: Settings) -> None:
    """Prove the least cycles of groups that can run one after the other, whatever their order."""
    try:
        _start(instance, progress, settings)
        _search_ideals(instance, ideals.Network(instance), progress)
    except Stopped:
        return


def _search_ideals(
    instance: LayerGrouping, operators: ideals.Network, progress: GroupingProgress
) -> None:
    """Search along a few topological orders, then along all of them where they are few enough."""
    oracle = Oracle(instance, branching=True, pause=progress.require_time)
    placements = Placements(oracle, progress.keep_going)
    paths = convex.IdealSearch(operators, oracle, placements, progress.keep_going)
    ruled = instance.timesteps == Timesteps.NEAREST

    def better(known: ideals.Lattice, proves: bool) -> None:
        def bound(cycles: int) -> None:
            if proves:
                progress.raise_bound(cycles, "shortest path over ideals")

        upper = FAR if progress.objective is None else int(progress.objective)
        found = paths.better(known, upper, bound)
        if found is not None:
            offer(progress, found, "dag")
        elif upper == FAR and placements.decided and proves:
            progress.prove_infeasible(explain(instance, progress.keep_going))

    def windows(sizes: Sequence[int]) -> None:
        for most in sizes:
            _search_windows(operators, progress, lambda known: better(known, False), most)

    given, *others = ideals.orders(operators)
    better(ideals.chains(operators, [given]), instance.linear and ruled)
    progress.require_time()
    better(ideals.chains(operators, [given, *others]), False)
    every = ideals.lattice(operators, MANY_IDEALS, progress.keep_going)
    if every is None:
        progress.reason = _many(MANY_IDEALS)
        windows(WINDOWS[:1])
        every = ideals.lattice(operators, MOST_IDEALS, progress.keep_going)
        progress.reason = _many(MOST_IDEALS) if every is None else ""
    if every is None:
        windows(WINDOWS[1:])
        return
    try:
        better(every, ruled)
    except convex.TooManyArcsError:
        progress.reason = (
            f"more than {convex.MOST_ARCS:,} groups may be part of a better plan; the bound is "
            "that of those looked at"
        )
        windows(WINDOWS)


def _many(count: int) -> str:
    return (
        f"operators can run in so many orders (more than {count:,} ideals) that only a few were "
        "looked at, and all in windows along the best; the bound is what all operators take at "
        "least"
    )


def _search_windows(
    operators: ideals.Network,
    progress: GroupingProgress,
    better: Callable[[ideals.Lattice], None],
    most: int,
) -> None:
    """Search windows of at most so many ideals along the best plan, until none improves it."""
    first = quiet = 0
    while progress.solution is not None and quiet < operators.n:
        plan, before = progress.solution, progress.objective
        order = plan.order or range(operators.n)
        known, end = ideals.around(operators, order, plan.boundaries, first, most)
        better(known)
        progress.require_time()
        after = first + (end - first + 1) // 2 if end < operators.n else operators.n
        quiet = quiet + after - first if progress.objective == before else 0
        first = after % operators.n


def _partition(
    instance: LayerGrouping,
    progress: GroupingProgress,
    eager: bool = False,
    longest: int | None = None,
    placing: Place = place,
) -> Partition:
    """Return the groups of an instance."""
    return Partition(instance, progress.keep_going, eager, longest, placing)


def _over_orders(instance: LayerGrouping) -> str:
    """Return the method that looks at all orders of operators that the instance allows."""
    return "dp" if instance.order == Order.GIVEN or instance.linear else "dag"


def cp_sat(instance: LayerGrouping, progress: GroupingProgress, settings: Settings) -> None:
    """Prove the least cycles of groups, cuts, timesteps, spills and addresses together."""
    engine = find_engine("cp-sat", settings)
    WORKING[_over_orders(instance)](instance, progress, settings)
    try:
        found = _search_free(instance, progress, settings, engine)
    except Stopped:
        return
    if not found:
        progress.prove_infeasible(explain(instance, progress.keep_going))


def _search_free(
    instance: LayerGrouping, progress: GroupingProgress, settings: Settings, engine: Engine
) -> bool:
    """Look at all that may be part of a better plan; return False where there is none at all."""
    progress.require_time()
    operators = ideals.Network(instance)
    orders = ideals.orders(operators)
    known, proves = ideals.chains(operators, orders[:1]), _over_orders(instance) == "dp"
    if not proves:
        every = ideals.lattice(operators, MOST_IDEALS, progress.keep_going)
        if progress.solution is not None and progress.solution.order:
            orders.append(list(progress.solution.order))
        known, proves = every or ideals.chains(operators, orders), every is not None
    upper = FAR if progress.objective is None else int(progress.objective) + 1
    choices = lazy.Choices(known, upper)
    oracle = FreeOracle(instance, branching=True, pause=progress.require_time)

    def bound(cycles: int) -> None:
        if proves:
            progress.raise_bound(min(cycles, upper - 1), "shortest path, whatever the timesteps")

    try:
        choices.find(operators, oracle, progress.require_time, bound)
    except convex.TooManyArcsError:
        progress.reason = (
            f"more than {lazy.MOST:,} groups in cuts may be part of a better plan: timesteps were "
            "not looked at"
        )
        return True
    run = Joint(instance, choices, oracle.cuts, progress, settings, engine, proves)
    return run.run() or not proves


def _auto(instance: LayerGrouping, progress: GroupingProgress, settings: Settings) -> None:
    """Answer what the instance asks: over the order given, or over all."""
    name = _over_orders(instance)
    if instance.timesteps == Timesteps.FREE and settings.engine in (None, "cp-sat"):
        name = "cp-sat"
    elif settings.engine is not None:
        name = "milp"
    WORKING[name](instance, progress, settings)


WORKING: dict[str, Run] = {
    "auto": _auto,
    "dp": dp,
    "milp": milp,
    "dag": dag,
    "cp-sat": cp_sat,
    **{name: _by_rule(name) for name in RULES},
}


def _minding_banks(run: Run) -> Run:
    """Return a run that ends with the plan of equal cycles in which few buffers share banks."""

    def runs(instance: LayerGrouping, progress: GroupingProgress, settings: Settings) -> None:
        run(instance, progress, settings)
        spread(instance, progress, settings)

    return runs


RUNS: dict[str, Run] = {
    name: counted(run if name in PLACING else _minding_banks(run)) for name, run in WORKING.items()
}
