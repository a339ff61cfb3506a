"""What the methods of LMEM packing do; loaded, with its compiled kernels, when one runs."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping

import numpy as np

from stagepack.formulations import packing as formulations
from stagepack.heuristics.packing import annealing, bounds, conflict, dive, exact, greedy
from stagepack.heuristics.packing import repair as repairing
from stagepack.heuristics.packing import replan as replanning
from stagepack.heuristics.packing import spill as spilling
from stagepack.heuristics.packing import windows as narrowing
from stagepack.heuristics.packing.rules import BANKS, RULES
from stagepack.instances.packing import LmemPacking, Objective, PackingSolution
from stagepack.instances.packing.blocks import Blocks
from stagepack.instances.profile import Array
from stagepack.methods import Settings
from stagepack.methods.models import load_engine, run_model
from stagepack.result import CheckError, InputError, Progress, Status, Stopped, Termination
from stagepack.solvers import Engine

PackingProgress = Progress[PackingSolution]
Run = Callable[[LmemPacking, PackingProgress, Settings], None]

DIVED, DIVE_STEPS = 500, 20
"""Blocks from which on a short dive comes before the greedy rules, and how short it is."""

NODES, LEGS = 500_000, 10
"""Effort of the first turn of `auto`: nodes of the exact search, kernel calls of annealing."""

LARGE = 20_000
"""Blocks from which on `auto` keeps to methods whose cost grows like a sort."""

MODELLED = 20_000
"""Blocks up to which `auto` builds a model where nothing else knows the rules."""

PROPAGATED = 400
"""Blocks up to which a model takes turns with the exact search."""


class Search:
    """One instance being solved: its normal form, and how answers get to `progress`.

    Raises
    ------
    Stopped
        When a look at the loads shows that nothing fits; `progress` has the reason.
    """

    def __init__(self, instance: LmemPacking, progress: PackingProgress) -> None:
        self.instance = instance
        self.progress = progress
        self.blocks = Blocks.of(instance)
        reason = bounds.overload(instance, self.blocks)
        if reason:
            progress.prove_infeasible(reason)
            raise Stopped
        progress.raise_bound(bounds.objective_bound(instance, self.blocks), "load bound")

    @property
    def keep_going(self) -> Callable[[], bool]:
        """Whether the run has a reason and the time to go on."""
        return self.progress.keep_going

    @property
    def peak_only(self) -> bool:
        """Whether only the peak counts."""
        return self.instance.objective in (Objective.PEAK, Objective.FIT)

    @property
    def lowest(self) -> Array | None:
        """The best placement known, shape (b,)."""
        solution = self.progress.solution
        if solution is None:
            return None
        offsets = np.empty(self.blocks.b, dtype=np.int64)
        offsets[self.blocks.block] = solution.offsets
        return offsets

    def offer(self, offsets: Array, source: str) -> None:
        """Offer offsets of all blocks if they respect the capacity; else say what they need."""
        self.offer_buffers(self.blocks.expand(offsets), source)

    def offer_buffers(self, offsets: Array, source: str, memory: Array | None = None) -> None:
        """Offer offsets of all buffers if they respect the capacity; else say what they need."""
        ceiling = self.instance.ceiling
        peak = int((offsets + self.instance.size).max())
        if memory is None and ceiling is not None and peak > ceiling:
            if self.progress.solution is None:
                self.progress.reason = (
                    f"{source} needs {peak} bytes, {peak - ceiling} more than the capacity"
                )
            return
        self.progress.reason = ""
        self.progress.offer(PackingSolution.of(self.instance, offsets, memory), source)

    def for_a_while(self, steps: int) -> Callable[[], bool]:
        """Return a `keep_going` that also ends after so many looks: the same on any machine."""
        left = [steps]

        def go_on() -> bool:
            left[0] -= 1
            return left[0] >= 0 and self.progress.keep_going()

        return go_on


# ---------------------------------------------------------------------- without an engine


def run_rule(name: str) -> Run:
    """Return the `run` of one greedy rule."""

    def run(instance: LmemPacking, progress: PackingProgress, _: Settings) -> None:
        search = Search(instance, progress)
        _compile(search, "greedy", *(["lists"] if RULES[name].policy == BANKS else []))
        banks = instance.banks
        pairs = None if banks is None else greedy.BankPairs.of(search.blocks, banks)
        offsets = greedy.place(
            search.blocks, RULES[name], banks=pairs, keep_going=search.keep_going
        )
        if offsets is None:
            progress.reason = progress.reason or f"{name} finds no place for some buffer"
            return
        search.offer(offsets, name)

    return run


def portfolio(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Run the greedy rules that suit the instance and keep the best."""
    if _start(Search(instance, progress), settings) is None and progress.solution is None:
        progress.reason = progress.reason or "no greedy rule finds a place for every buffer"


def diving(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Place the block with the lowest place first, in several orders."""
    search = Search(instance, progress)
    _dive(search, settings, _patience(search, settings))
    _out_of_work(search, settings)


def anneal(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Anneal over first-fit orders, from the best greedy placement."""
    search = Search(instance, progress)
    low = _start(search, settings)
    _anneal(search, low, settings.seed, _work(settings, LEGS))
    _out_of_work(search, settings)


def searching(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Search exhaustively, from the best greedy placement."""
    search = Search(instance, progress)
    low = _start(search, settings)
    _exact(search, low, _work(settings, NODES))
    _out_of_work(search, settings)


def _work(settings: Settings, a_second: int) -> int | None:
    """Return the limit of a run in work, where it should not be the clock."""
    if not settings.deterministic or settings.time_limit is None:
        return None
    return max(1, int(settings.time_limit * a_second))


def _patience(search: Search, settings: Settings) -> Callable[[], bool]:
    looks = _work(settings, LEGS)
    return search.keep_going if looks is None else search.for_a_while(looks)


def _out_of_work(search: Search, settings: Settings) -> None:
    """Say why a run that is limited by work has ended."""
    if settings.deterministic and search.keep_going():
        search.progress.stop(Termination.TIME_LIMIT)


def repair(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Pack windows of time anew, from the best dive or greedy placement."""
    search = Search(instance, progress)
    _start(search, settings)
    patience = _patience(search, settings)
    _dive(search, settings, patience)
    _repair(search, settings, patience)
    _out_of_work(search, settings)


def replan(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Keep what can stay where it was, and place the rest greedily."""
    search = Search(instance, progress)
    _replan(search)


def spill(instance: LmemPacking, progress: PackingProgress, _: Settings) -> None:
    """Choose memories by value, then place each memory's buffers greedily."""
    search = Search(instance, progress)
    _compile(search, "greedy", "lists")
    placed = spilling.place(instance, search.keep_going)
    if placed is None:
        progress.reason = "spill-by-value finds no memory for some buffers"
    else:
        search.offer_buffers(placed[0], "spill-by-value", placed[1])


def _replan(search: Search) -> None:
    ceiling = search.instance.capacity
    assert ceiling is not None
    _compile(search, "greedy", "lists")
    replanning.place(
        search.instance,
        ceiling,
        keep_going=search.keep_going,
        on_solution=lambda offsets: search.offer_buffers(offsets, "replan"),
    )
    if search.progress.solution is None:
        search.progress.reason = "replan finds no placement within the capacity"


def _compile(search: Search, *parts: str) -> None:
    """Compile what a method needs (the first time) outside of the time limit."""
    if "greedy" in parts and not search.blocks.plain:
        parts += ("lists",)
    with search.progress.setup("compiling kernels"):
        warm_up(*parts)


@functools.cache
def warm_up(*parts: str) -> None:
    """Run heuristics on few buffers, so that their kernels are compiled or loaded.

    Parameters
    ----------
    *parts : str
        Out of "greedy", "lists" (greedy for more than plain blocks), "dive", "exact", "anneal".
    """
    # Its load is 16 and its optimum 17, so that nothing is decided without a search.
    instance = LmemPacking.from_arrays(
        [4, 6, 5, 4, 2, 7, 7, 8], [0, 0, 0, 1, 1, 2, 3, 4], [2, 1, 3, 2, 4, 5, 4, 5]
    )
    blocks = Blocks.of(instance)
    rule = RULES["classes"]
    low = np.array([0, 4, 10, 4, 15, 0, 7, 7])
    instance.check(PackingSolution.of(instance, low))
    if "greedy" in parts:
        greedy.place(blocks, rule)
    if "lists" in parts:
        greedy.place(Blocks.of(instance.replace(fixed=[0] + [-1] * 7)), rule)
    if "dive" in parts:
        dive.place(blocks, np.arange(8))
    if "exact" in parts:
        exact.decide(blocks, 16)
    if "anneal" in parts:
        annealing.improve(blocks, low, target=16, legs=1)


def _start(search: Search, settings: Settings) -> Array | None:
    """Offer a first solution as the settings want it; return the lowest placement found.

    The placement, shape (b,), may exceed the capacity: searches start from it all the same.
    """
    wanted, instance, progress = settings.warm_start, search.instance, search.progress
    extended = instance.objective not in (Objective.PEAK, Objective.FIT)
    _compile(search, "greedy", *(["lists"] if extended else []))
    if wanted is None:
        return None
    if isinstance(wanted, Mapping):  # as a result records it
        wanted = PackingSolution.from_dict(wanted, instance)
    if isinstance(wanted, PackingSolution):
        violations = instance.check(wanted)
        if violations:
            raise InputError(
                f"the solution given breaks {violations[0]}",
                field="warm_start",
                remedy="give a valid one or none",
            )
        progress.offer(wanted, "warm start")
        return search.lowest
    if wanted != "auto":
        _method_start(wanted, instance, progress, settings)
        return search.lowest
    if (instance.hint >= 0).all() and not instance.memories:
        hinted = PackingSolution.of(instance, instance.hint)
        if not instance.check(hinted):
            progress.offer(hinted, "hint of the instance")
    if instance.objective is Objective.SPILL:
        placed = spilling.place(instance, search.keep_going)
        if placed is not None:
            search.offer_buffers(placed[0], "spill-by-value", placed[1])
        return None
    if instance.objective is Objective.MOVES:
        _replan(search)
        return None
    if search.blocks.b >= DIVED and not dive.unsupported(search.blocks.rounded):
        _dive(search, settings, search.for_a_while(DIVE_STEPS))
        progress.require_time()
    low = greedy.portfolio(search.blocks, keep_going=search.keep_going, on_solution=search.offer)
    if instance.banks is not None and instance.objective is Objective.BANK_CONFLICTS:
        pairs = greedy.BankPairs.of(search.blocks, instance.banks)
        apart = greedy.place(
            search.blocks, RULES["bank-aware"], banks=pairs, ceiling=instance.ceiling
        )
        if apart is not None:
            search.offer(apart, "bank-aware")
    best = search.lowest
    if low is None or best is None:
        return best if low is None else low
    size = search.blocks.size
    return low if (low + size).max() <= (best + size).max() else best


def _method_start(
    wanted: object, instance: LmemPacking, progress: PackingProgress, settings: Settings
) -> None:
    if not isinstance(wanted, str) or wanted not in STARTS:
        raise InputError(
            f"unknown warm start {wanted!r}",
            field="warm_start",
            remedy="choose auto, none, or one of " + ", ".join(STARTS),
        )
    RUNS[wanted](instance, progress, dataclasses.replace(settings, warm_start="auto"))
    progress.reason = ""


# ---------------------------------------------------------------------- searches


def _exact(search: Search, low: Array | None, node_limit: int | None = None) -> None:
    """Search exhaustively: for any placement within the capacity, else for the least peak."""
    instance, progress, blocks = search.instance, search.progress, search.blocks
    if not progress.keep_going():
        return
    _compile(search, "exact")
    if instance.objective is Objective.FIT:
        assert instance.ceiling is not None
        found = exact.decide(
            blocks,
            instance.ceiling,
            keep_going=search.keep_going,
            node_limit=node_limit,
            warm=low,
        )
        if found.status is Status.INFEASIBLE:
            _conclude_infeasible(search, low, "exhausted search")
        elif found.offsets is not None:
            search.offer(found.offsets, "exact")
        return
    status = exact.minimise(
        blocks,
        upper=low,
        lower=int(progress.bound or 0),
        on_solution=lambda offsets: search.offer(offsets, "exact"),
        on_bound=lambda bound: progress.raise_bound(bound, "exhausted search"),
        keep_going=search.keep_going,
        node_limit=node_limit,
    )
    beyond = status is Status.OPTIMAL and progress.solution is None  # all end above the last bank
    if status is Status.INFEASIBLE or beyond:
        _conclude_infeasible(search, low, "exhausted search")


def _anneal(search: Search, low: Array | None, seed: int, legs: int | None = None) -> Array | None:
    """Return the best placement that annealing comes to; it may exceed the capacity."""
    progress = search.progress
    if low is None or not progress.keep_going():
        return low
    _compile(search, "anneal")
    goal = search.instance.goal
    return annealing.improve(
        search.blocks,
        low,
        target=max(int(progress.bound or 0), 0 if goal is None else goal),
        seed=seed,
        legs=legs,
        keep_going=search.keep_going,
        on_solution=lambda offsets: search.offer(offsets, "anneal"),
    )


def _dive(search: Search, settings: Settings, keep_going: Callable[[], bool] | None = None) -> None:
    _compile(search, "greedy", "dive", "anneal")
    dive.best(
        search.blocks.rounded,
        target=search.instance.goal,
        seed=settings.seed,
        keep_going=keep_going or search.keep_going,
        on_solution=search.offer,
    )


def _repair(search: Search, settings: Settings, keep_going: Callable[[], bool]) -> None:
    low = search.lowest
    if low is None or repairing.unsupported(search.blocks):
        return
    repairing.improve(
        search.blocks,
        low,
        target=int(search.progress.bound or 0),
        seed=settings.seed,
        keep_going=keep_going,
        on_solution=lambda offsets: search.offer(offsets, "repair"),
    )


def _conclude_infeasible(
    search: Search, low: Array | None, source: str, within: tuple[int, int] | None = None
) -> None:
    """Report that nothing fits, and why: an irreducible set of buffers, found in little time."""
    instance, blocks, progress = search.instance, search.blocks, search.progress
    if progress.solution is not None:
        raise CheckError(f"{source} calls an instance infeasible that has a valid placement")
    ceiling = instance.ceiling
    if instance.memories:
        progress.prove_infeasible(
            f"{source}: the buffers do not fit into the memories, however they are spread; "
            "give one of them more"
        )
        return
    if ceiling is None:
        progress.prove_infeasible(f"{source}: fixed and limited buffers leave others no place")
        return
    room = f"{ceiling} bytes" if ceiling == instance.capacity else f"the banks' {ceiling} bytes"
    reason = f"{source}: no placement within {room}"
    if not exact.unsupported(blocks):
        found = conflict.explain(
            blocks,
            ceiling,
            within=within,
            keep_going=lambda: progress.remaining > 0,
            node_limit=NODES // 10,
        )
        if found is not None:
            reason = f"{source}: {_described(instance, blocks, found, room)}"
        least = _least_capacity(search, low)
        if least is not None and ceiling == instance.capacity:
            reason += f"; a capacity of {least} would do"
    progress.prove_infeasible(reason)


def _least_capacity(search: Search, low: Array | None) -> int | None:
    """Return the least peak that a short search finds; None without any packing."""
    peaks = [] if low is None else [int((low + search.blocks.size).max())]
    exact.minimise(
        search.blocks,
        upper=low,
        on_solution=lambda offsets: peaks.append(int((offsets + search.blocks.size).max())),
        keep_going=lambda: search.progress.remaining > 0,
        node_limit=NODES // 10,
    )
    return min(peaks, default=None)


def _described(instance: LmemPacking, blocks: Blocks, found: conflict.Conflict, room: str) -> str:
    """Return which buffers cannot be packed together, and when they are alive."""
    members = np.flatnonzero(np.isin(blocks.block, found.blocks))
    shown = ", ".join(instance.buffer_id(int(i)) for i in members[:12])
    if len(members) > 12:
        shown += f" and {len(members) - 12} more"
    when = ""
    if instance.conflicts is None:
        first, last = blocks.time[found.first], blocks.time[found.end - 1]
        when = f" (alive at time {first})" if first == last else f" (alive from {first} to {last})"
    fewer = "; any one fewer fits" if found.irreducible else ""
    return f"buffers {shown}{when} do not fit together in {room}{fewer}"


# ---------------------------------------------------------------------- on an engine


def _on_engine(formulation: str, own_engine: str) -> Run:
    """Return the `run` of a method that solves a model on an engine."""

    def run(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
        engine = load_engine(own_engine, progress, settings)
        search = Search(instance, progress)
        low = _start(search, settings)
        if progress.keep_going():
            _model(search, low, engine, formulation, settings)

    return run


def _model(
    search: Search,
    low: Array | None,
    engine: Engine,
    formulation: str,
    settings: Settings,
    work: float | None = None,
) -> None:
    instance, progress = search.instance, search.progress
    upper = progress.objective
    lower = progress.bound
    run_model(
        engine,
        lambda: getattr(formulations, formulation)(instance, upper=upper, lower=lower),
        formulation,
        progress,
        settings,
        start=progress.solution,
        start_value=upper,
        work=work,
        conclude_infeasible=lambda: _conclude_infeasible(search, low, engine.name),
    )


# ---------------------------------------------------------------------- composed


def auto(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Run greedy rules, then what proves: the exact search, or a model where there is more to say.

    Placements too many to search are dived for, then improved window by window.
    """
    if settings.engine is not None:
        RUNS["cp-sat" if settings.engine == "cp-sat" else "milp"](instance, progress, settings)
        return
    search = Search(instance, progress)
    if instance.objective is Objective.FIT and (instance.previous >= 0).any():
        _fit_near_previous(search)
        if not progress.keep_going():
            return
    large = search.blocks.b > LARGE
    if search.peak_only and large and not dive.unsupported(search.blocks.rounded):
        if settings.warm_start != "auto":
            _start(search, settings)
        _dive(search, settings, _patience(search, settings))  # runs the rules that scale, too
        _out_of_work(search, settings)
        return
    low = _start(search, settings)
    if search.peak_only and not large and not exact.unsupported(search.blocks):
        _search_all(search, low, settings)
    elif search.keep_going() and search.blocks.b <= MODELLED:
        engine = load_engine("cp-sat", progress, settings)
        _model(search, low, engine, "CpSat", settings)
    moving = instance.objective is Objective.PEAK and (instance.previous >= 0).any()
    if moving and progress.solution is not None:
        _settle(search)


def _search_all(search: Search, low: Array | None, settings: Settings) -> None:
    """Take turns, each longer: exhaustive search, local search, bounds from windows of time.

    Turns are measured in work, not in seconds, so that runs that end by themselves repeat.
    """
    blocks, seed = search.blocks, settings.seed
    nodes, legs = NODES, LEGS
    work, spent = _work(settings, NODES), 0
    for turn in itertools.count(1):
        if work is not None:
            nodes = min(nodes, work - spent)
        _exact(search, low, nodes)
        low = search.lowest if search.lowest is not None else low
        if blocks.b <= LARGE and not annealing.unsupported(blocks):
            low = _anneal(search, low, seed + turn, legs)
        if search.keep_going() and not narrowing.unsupported(blocks):
            _narrow(search, turn)
        if turn > 1 and blocks.b <= PROPAGATED and search.keep_going():
            engine = load_engine("cp-sat", search.progress, settings)
            _model(search, low, engine, "CpSat", settings, work=2.0**turn)
        spent += 2 * nodes  # the rest of a turn takes about as long
        if not search.keep_going() or (work is not None and spent >= work):
            _out_of_work(search, settings)
            return
        nodes, legs = 3 * nodes, 2 * legs


def _narrow(search: Search, passes: int) -> None:
    """Raise the bound by windows of time that provably need more than the load."""
    ceiling = search.instance.ceiling
    for window in narrowing.windows(
        search.blocks,
        int(search.progress.bound or 0),
        keep_going=search.keep_going,
        passes=passes,
    ):
        first, last = search.blocks.time[window.first], search.blocks.time[window.end - 1]
        source = f"exhausted window [{first}, {last}]"
        search.progress.raise_bound(window.bound, source)
        if ceiling is not None and window.bound > ceiling:
            within = window.first, window.end
            _conclude_infeasible(search, search.lowest, source, within)
            return


def _fit_near_previous(search: Search) -> None:
    """Offer the placement within the capacity that moves least, of those that re-planning finds."""
    instance, progress = search.instance, search.progress
    assert instance.ceiling is not None
    _compile(search, "greedy", "lists")
    found: list[Array] = []
    replanning.place(
        instance.replace(objective=Objective.MOVES),
        instance.ceiling,
        keep_going=lambda: progress.remaining > 0 and not progress.interrupted,
        on_solution=found.append,
    )
    if found:
        search.offer_buffers(found[-1], "replan")


def _settle(search: Search) -> None:
    """Among placements as low as the best, find one that moves less from the previous offsets."""
    instance, progress = search.instance, search.progress
    assert progress.objective is not None
    peak = int(progress.objective)
    replanning.place(
        instance.replace(objective=Objective.MOVES, capacity=peak),
        peak,
        keep_going=lambda: progress.remaining > 0 and not progress.interrupted,
        on_solution=lambda offsets: search.offer_buffers(offsets, "replan"),
    )


RUNS: dict[str, Run] = {
    "auto": auto,
    **{name: run_rule(name) for name in RULES},
    "portfolio": portfolio,
    "dive": diving,
    "repair": repair,
    "anneal": anneal,
    "replan": replan,
    "spill-by-value": spill,
    "exact": searching,
    "milp": _on_engine("Milp", "pyomo:highs"),
    "cp-sat": _on_engine("CpSat", "cp-sat"),
}
"""What each method does."""

STARTS = tuple(name for name in RUNS if name not in ("auto", "milp", "cp-sat"))
"""Methods whose answer another one may start from."""

SEARCHES: dict[str, Callable[[Blocks], str]] = {
    "dive": lambda blocks: dive.unsupported(blocks.rounded),
    "repair": repairing.unsupported,
    "anneal": annealing.unsupported,
    "exact": exact.unsupported,
}
"""Why the methods that look at the peak alone cannot take some blocks, or ''."""
