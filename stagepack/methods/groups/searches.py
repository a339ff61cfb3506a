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
from stagepack.heuristics.groups.tuning import TUNING, GroupsTuning
from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.instances.groups.problem import Order, Timesteps
from stagepack.methods import Settings, counted
from stagepack.methods.groups.apart import spread
from stagepack.methods.groups.explain import explain
from stagepack.methods.groups.joint import Joint
from stagepack.methods.groups.offering import checking, offer
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


def _by_rule(name: str) -> Run:
    """Return the `run` of a rule."""

    def run(instance: LayerGrouping, progress: GroupingProgress, settings: Settings) -> None:
        spare, tuning = None, settings.tuned(TUNING)
        try:
            with progress.reserving(_checking(instance, progress, tuning)):
                _bound(instance, progress, tuning)
            if not _stands(instance):
                spare = _first(instance, progress, tuning)
            found = _found(name, instance, progress, tuning)
        except Stopped:
            if _stands(instance):
                spare = GroupingSolution.from_global_memory(instance.n)
            if spare is not None:
                progress.reason = (
                    f"there was no time for {name}: this plan has one operator in each group"
                )
                offer(progress, spare, "no time", tuning)
            return
        if found is None:
            why = explain(instance, progress.keep_going, tuning.placement)
            progress.reason = f"{name}: {why}"
        else:
            offer(progress, found, name, tuning)

    return run


def _first(
    instance: LayerGrouping, progress: GroupingProgress, tuning: GroupsTuning
) -> GroupingSolution | None:
    """Return an operator a group, each in the first cut that fits; None where one fits in none."""
    with progress.reserving(tuning.auto.check_share):
        return search.layerwise(_partition(instance, progress, tuning, eager=True, longest=1))


def _found(
    name: str, instance: LayerGrouping, progress: GroupingProgress, tuning: GroupsTuning
) -> GroupingSolution | None:
    """Return what a rule finds; with enough time left to check it."""
    rule, eager, longest = RULES[name]
    with progress.reserving(_checking_groups(instance, progress, tuning)):
        placing = PLACING.get(name, place)
        return rule(_partition(instance, progress, tuning, eager, longest, placing))


def _greedy_turns(
    instance: LayerGrouping, progress: GroupingProgress, tuning: GroupsTuning
) -> Callable[[], bool]:
    """Return the turns of ``greedy-tail``, each with what is known from those before.

    They say whether it is done.  What it has found where a turn ends before it is done is offered.
    """
    known: list[Partition] = []

    def turn() -> bool:
        with progress.reserving(_checking_groups(instance, progress, tuning)):
            if not known:
                known.append(_partition(instance, progress, tuning, eager=True))
            found = search.greedy_tail(known[0])
            done = progress.keep_going()
        if found is not None and (done or checking(found, tuning.check) <= progress.remaining):
            offer(progress, found, "greedy-tail", tuning)
        return done

    return turn


def _follow(
    name: str, instance: LayerGrouping, progress: GroupingProgress, tuning: GroupsTuning
) -> None:
    """Offer what a rule finds, if there is anything, and the time for it."""
    with contextlib.suppress(Stopped):
        found = _found(name, instance, progress, tuning)
        if found is not None:
            offer(progress, found, name, tuning)


def _checking(instance: LayerGrouping, progress: GroupingProgress, tuning: GroupsTuning) -> float:
    """Return the part of the time left that it takes to check a plan without groups, or more."""
    alone = tuning.check.alone_price
    share = alone * instance.n / max(progress.remaining, alone)
    return min(1.0, max(tuning.auto.check_share, share))


def _checking_groups(
    instance: LayerGrouping, progress: GroupingProgress, tuning: GroupsTuning
) -> float:
    """Return the part of the time left that it takes to check what a rule finds, within reason."""
    group = tuning.check.group_price
    seconds = (tuning.check.grouped_price + group) * instance.n
    return min(tuning.auto.check_share, seconds / max(progress.remaining, group))


def _stands(instance: LayerGrouping) -> bool:
    """Whether every operator may run by itself."""
    return all(map(instance.stands, range(instance.n)))


def _bound(instance: LayerGrouping, progress: GroupingProgress, tuning: GroupsTuning) -> None:
    """Raise the bound to what all operators take, however they are grouped and cut."""
    # Once a run, although it may be there already: runs repeat.
    spend(tuning.operator_price * instance.n)
    least = behind(network(instance, progress.require_time, tuning), machine(instance))
    progress.raise_bound(int(least[0]), "compute, or transfers, of all operators")


def _start(
    instance: LayerGrouping,
    progress: GroupingProgress,
    settings: Settings,
    main: Callable[[], bool] | None = None,
) -> None:
    """Offer the plan without groups, where there is one, a bound, and what the settings want.

    `main` takes turns with ``greedy-tail``, see :class:`.Turn`; if None it has half of the time.
    """
    given, tuning = settings.warm_start, settings.tuned(TUNING)
    auto = tuning.auto
    if isinstance(given, str | None) and _stands(instance):
        offer(progress, GroupingSolution.from_global_memory(instance.n), "global memory", tuning)
    _bound(instance, progress, tuning)
    turns = [Turn(_greedy_turns(instance, progress, tuning))] if auto.greedy_tail else []

    def every() -> None:
        if main is not None:
            take_turns(progress, [*turns, Turn(main, auto.main_turn, decides=True)])
            return
        with progress.lending(*LENT), effort.lending(*LENT):
            take_turns(progress, turns)

    starts = {name: lambda name=name: _follow(name, instance, progress, tuning) for name in RULES}
    offer_start(instance, progress, settings, {"auto": every, **starts})


def _intervals_prove(instance: LayerGrouping) -> bool:
    """Whether no plan is better than the best of consecutive operators, by the rule."""
    ordered = instance.order == Order.GIVEN or instance.linear
    return ordered and instance.timesteps == Timesteps.NEAREST


def dp(instance: LayerGrouping, progress: GroupingProgress, settings: Settings) -> None:
    """Prove the least cycles of groups of consecutive operators, loads and stores by the rule."""
    turn = _Path(instance, progress, settings.tuned(TUNING)).turn
    _start(instance, progress, settings, turn)
    with contextlib.suppress(Stopped):
        turn()


class _Path:
    """The shortest path over groups of consecutive operators, known further after every turn."""

    def __init__(
        self, instance: LayerGrouping, progress: GroupingProgress, tuning: GroupsTuning
    ) -> None:
        self._instance, self._progress, self._tuning = instance, progress, tuning
        self._proves = _intervals_prove(instance)
        self._partition: Partition | None = None
        self._done = False

    def turn(self) -> bool:
        """Go on; return True once the path is offered, or known not to be there."""
        progress = self._progress
        if self._done:
            return True
        if self._partition is None:
            self._partition = _partition(self._instance, progress, self._tuning)
        found = search.solve(self._partition, self._bound)
        if found is not None:
            offer(progress, found, "dp", self._tuning)
        elif self._partition.decided and self._proves:
            reason = explain(self._instance, progress.keep_going, self._tuning.placement)
            progress.prove_infeasible(reason, self._partition.evidence())
        self._done = True
        return True

    def _bound(self, cycles: int) -> None:
        """Raise the bound to the cycles of the shortest path, where that proves any."""
        if self._proves and self._partition is not None:
            self._progress.raise_bound(cycles, "shortest path", self._partition.evidence())


def milp(instance: LayerGrouping, progress: GroupingProgress, settings: Settings) -> None:
    """Solve the interval model on an engine; what it proves is what `dp` proves."""
    from stagepack.methods.groups import model

    engine = load_engine("highs", progress, settings)
    _start(instance, progress, settings)
    partition = _partition(instance, progress, settings.tuned(TUNING))
    proves = _intervals_prove(instance)
    found = True
    with contextlib.suppress(Stopped):
        found = model.solve(partition, engine, progress, settings, proves=proves)
    if not (partition.decided and proves):
        return
    if not found:
        partition.shortest()
        why = explain(instance, progress.keep_going, partition.tuning.placement)
        progress.prove_infeasible(why, partition.evidence())
    elif progress.proved:
        with contextlib.suppress(Stopped):
            cycles, _ = partition.shortest()
            progress.raise_bound(cycles, progress.bound_source, partition.evidence())


def dag(instance: LayerGrouping, progress: GroupingProgress, settings: Settings) -> None:
    """Prove the least cycles of groups that can run one after the other, whatever their order."""
    try:
        _start(instance, progress, settings)
        _search_ideals(instance, progress, settings.tuned(TUNING))
    except Stopped:
        return


def _search_ideals(
    instance: LayerGrouping, progress: GroupingProgress, tuning: GroupsTuning
) -> None:
    """Search along the order given, then along all orders where they are few enough."""
    operators, auto = ideals.Network(instance, tuning.paths), tuning.auto
    oracle = Oracle(instance, branching=True, pause=progress.require_time, tuning=tuning)
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
            offer(progress, found, "dag", tuning)
        elif upper == FAR and placements.decided and proves:
            progress.prove_infeasible(explain(instance, progress.keep_going, tuning.placement))

    def windows(sizes: Sequence[int]) -> None:
        for most in sizes if auto.windows else ():
            _search_windows(operators, progress, lambda known: better(known, False), most)

    better(ideals.chains(operators, [range(operators.n)]), instance.linear and ruled)
    progress.require_time()
    every = ideals.lattice(operators, auto.many_ideals, progress.keep_going)
    if every is None:
        progress.reason = _many(auto.many_ideals)
        windows(auto.windows_of[:1])
        every = ideals.lattice(operators, auto.most_ideals, progress.keep_going)
        progress.reason = _many(auto.most_ideals) if every is None else ""
    if every is None:
        windows(auto.windows_of[1:])
        return
    try:
        better(every, ruled)
    except convex.TooManyArcsError:
        progress.reason = (
            f"more than {tuning.paths.most_arcs:,} groups may be part of a better plan; the bound "
            "is that of those looked at"
        )
        windows(auto.windows_of)


def _many(count: int) -> str:
    """Return why only a part of the orders was looked at."""
    return (
        f"operators can run in so many orders (more than {count:,} ideals) that only the one given "
        "was looked at, and all in windows along the best plan; the bound is what all operators "
        "take at least"
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
    tuning: GroupsTuning,
    eager: bool = False,
    longest: int | None = None,
    placing: Place = place,
) -> Partition:
    """Return the groups of an instance."""
    return Partition(instance, progress.keep_going, eager, longest, placing, tuning)


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
        placement = settings.tuned(TUNING).placement
        progress.prove_infeasible(explain(instance, progress.keep_going, placement))


def _search_free(
    instance: LayerGrouping, progress: GroupingProgress, settings: Settings, engine: Engine
) -> bool:
    """Look at all that may be part of a better plan; return False where there is none at all."""
    progress.require_time()
    tuning = settings.tuned(TUNING)
    operators = ideals.Network(instance, tuning.paths)
    orders: list[Sequence[int]] = [range(operators.n)]
    known, proves = ideals.chains(operators, orders), _over_orders(instance) == "dp"
    if not proves:
        every = ideals.lattice(operators, tuning.auto.most_ideals, progress.keep_going)
        if progress.solution is not None and progress.solution.order:
            orders.append(progress.solution.order)
        known, proves = every or ideals.chains(operators, orders), every is not None
    upper = FAR if progress.objective is None else int(progress.objective) + 1
    choices = lazy.Choices(known, upper, tuning.paths)
    oracle = FreeOracle(instance, branching=True, pause=progress.require_time, tuning=tuning)

    def bound(cycles: int) -> None:
        if proves:
            progress.raise_bound(min(cycles, upper - 1), "shortest path, whatever the timesteps")

    try:
        choices.find(operators, oracle, progress.require_time, bound)
    except convex.TooManyArcsError:
        progress.reason = (
            f"more than {tuning.paths.most_choices:,} groups in cuts may be part of a better plan: "
            "timesteps were not looked at"
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
