"""Methods of LMEM packing: greedy rules, local search, exact search, models, and ``auto``."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Mapping

import numpy as np

from stagepack.formulations import packing as formulations
from stagepack.heuristics.packing import annealing, bounds, conflict, dive, exact, greedy
from stagepack.heuristics.packing import repair as repairing
from stagepack.heuristics.packing import replan as replanning
from stagepack.heuristics.packing import spill as spilling
from stagepack.heuristics.packing import windows as narrowing
from stagepack.heuristics.packing.greedy_kernels import BANKS
from stagepack.instances.packing import KIND, LmemPacking, Objective, PackingSolution
from stagepack.instances.packing.blocks import Blocks
from stagepack.instances.profile import Array
from stagepack.methods import Method, Settings
from stagepack.methods.models import load_engine, run_model
from stagepack.result import CheckError, InputError, Progress, Status, Stopped
from stagepack.solvers import Engine

PackingProgress = Progress[PackingSolution]

COMPARED = ("best-fit-lifetime", "first-fit-lifetime-size", "greedy-by-size", "bank-aware")
"""Greedy rules that comparisons run unasked."""

LARGE = 20_000
"""Blocks from which on `auto` keeps to methods whose cost grows like a sort."""

MODELLED = 2_000
"""Blocks up to which `auto` builds a model."""


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

    def within(self, share: float) -> Callable[[], bool]:
        """Return a `keep_going` that also ends after a share of the time that is left."""
        left = self.progress.remaining
        if math.isinf(left):
            return self.progress.keep_going
        end = time.perf_counter() + share * left
        return lambda: time.perf_counter() < end and self.progress.keep_going()


# ---------------------------------------------------------------------- without an engine


def run_rule(name: str) -> Callable[[LmemPacking, PackingProgress, Settings], None]:
    """Return the `run` of one greedy rule."""

    def run(instance: LmemPacking, progress: PackingProgress, _: Settings) -> None:
        search = Search(instance, progress)
        _compile(progress)
        banks = instance.banks
        pairs = None if banks is None else greedy.BankPairs.of(search.blocks, banks)
        offsets = greedy.place(
            search.blocks, greedy.RULES[name], banks=pairs, keep_going=search.keep_going
        )
        if offsets is None:
            progress.reason = progress.reason or f"{name} finds no place for some buffer"
            return
        search.offer(offsets, name)

    return run


def portfolio(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Run the greedy rules that suit the instance and keep the best."""
    _start(Search(instance, progress), settings)


def diving(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Place the block with the lowest place first, in several orders."""
    search = Search(instance, progress)
    _compile(progress)
    _dive(search, settings)


def anneal(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Anneal over first-fit orders, from the best greedy placement."""
    search = Search(instance, progress)
    _start(search, settings)
    _anneal(search, settings, search.keep_going)


def searching(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Search exhaustively, from the best greedy placement."""
    search = Search(instance, progress)
    low = _start(search, settings)
    _exact(search, low, search.keep_going)


def repair(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Pack windows of time anew, from the best dive or greedy placement."""
    search = Search(instance, progress)
    _start(search, settings)
    _dive(search, settings)
    _repair(search, settings, search.keep_going)


def replan(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Keep what can stay where it was, and place the rest greedily."""
    search = Search(instance, progress)
    _replan(search)


def spill(instance: LmemPacking, progress: PackingProgress, _: Settings) -> None:
    """Choose memories by value, then place each memory's buffers greedily."""
    search = Search(instance, progress)
    _compile(progress)
    placed = spilling.place(instance, search.keep_going)
    if placed is None:
        progress.reason = "spill-by-value finds no memory for some buffers"
    else:
        search.offer_buffers(placed[0], "spill-by-value", placed[1])


def _replan(search: Search) -> None:
    ceiling = search.instance.capacity
    assert ceiling is not None
    _compile(search.progress)
    replanning.place(
        search.instance,
        ceiling,
        keep_going=search.keep_going,
        on_solution=lambda offsets: search.offer_buffers(offsets, "replan"),
    )


def _compile(progress: PackingProgress) -> None:
    """Compile kernels (the first time) outside of the time limit."""
    with progress.setup("compiling kernels"):
        _warm_up()


@functools.cache
def _warm_up() -> None:
    """Run every heuristic on three buffers, so that its kernels are compiled or loaded."""
    tiny = LmemPacking.from_arrays([2, 3, 2], [0, 1, 2], [2, 3, 4])
    blocks = Blocks.of(tiny)
    tiny.check(PackingSolution.of(tiny, [0, 2, 0]))
    offsets = greedy.portfolio(blocks)
    assert offsets is not None
    for rule in greedy.RULES.values():
        if rule.policy != BANKS:
            greedy.place(blocks, rule, ceiling=9)


def _start(search: Search, settings: Settings) -> Array | None:
    """Offer a first solution as the settings want it; return the lowest placement found.

    The placement, shape (b,), may exceed the capacity: searches start from it all the same.
    """
    wanted, instance, progress = settings.warm_start, search.instance, search.progress
    _compile(progress)
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
    low = greedy.portfolio(search.blocks, keep_going=search.keep_going, on_solution=search.offer)
    if instance.banks is not None and instance.objective is Objective.BANK_CONFLICTS:
        pairs = greedy.BankPairs.of(search.blocks, instance.banks)
        apart = greedy.place(
            search.blocks, greedy.RULES["bank-aware"], banks=pairs, ceiling=instance.ceiling
        )
        if apart is not None:
            search.offer(apart, "bank-aware")
    return low


def _method_start(
    wanted: object, instance: LmemPacking, progress: PackingProgress, settings: Settings
) -> None:
    by_name = {m.name: m for m in METHODS if not m.engines and m.name != "auto"}
    if not isinstance(wanted, str) or wanted not in by_name:
        raise InputError(
            f"unknown warm start {wanted!r}",
            field="warm_start",
            remedy="choose auto, none, or one of " + ", ".join(by_name),
        )
    reason = by_name[wanted].unsupported(instance)
    if reason:
        raise InputError(f"{wanted}: {reason}", field="warm_start")
    by_name[wanted].run(instance, progress, dataclasses.replace(settings, warm_start="auto"))
    progress.reason = ""


# ---------------------------------------------------------------------- searches


def _exact(search: Search, low: Array | None, keep_going: Callable[[], bool]) -> None:
    """Search exhaustively: for any placement within the capacity, else for the least peak."""
    instance, progress, blocks = search.instance, search.progress, search.blocks
    if not keep_going():
        return
    if instance.objective is Objective.FIT:
        assert instance.ceiling is not None
        found = exact.decide(blocks, instance.ceiling, keep_going=keep_going, warm=low)
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
        keep_going=keep_going,
    )
    beyond = status is Status.OPTIMAL and progress.solution is None  # all end above the last bank
    if status is Status.INFEASIBLE or beyond:
        _conclude_infeasible(search, low, "exhausted search")


def _anneal(search: Search, settings: Settings, keep_going: Callable[[], bool]) -> None:
    low = search.lowest
    if low is None or not keep_going():
        return
    annealing.improve(
        search.blocks,
        low,
        target=int(search.progress.bound or 0),
        seed=settings.seed,
        keep_going=keep_going,
        on_solution=lambda offsets: search.offer(offsets, "anneal"),
    )


def _dive(search: Search, settings: Settings) -> None:
    dive.best(
        search.blocks,
        target=search.instance.goal,
        seed=settings.seed,
        keep_going=search.keep_going,
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


def _conclude_infeasible(search: Search, low: Array | None, source: str) -> None:
    """Report that nothing fits, and why: an irreducible set of buffers, found in little time."""
    instance, blocks, progress = search.instance, search.blocks, search.progress
    if progress.solution is not None:
        raise CheckError(f"{source} calls an instance infeasible that has a valid placement")
    ceiling = instance.ceiling
    if ceiling is None:
        progress.prove_infeasible(f"{source}: fixed and limited buffers leave others no place")
        return
    reason = f"{source}: no placement within the capacity of {ceiling}"
    if not exact.unsupported(blocks):
        end = time.perf_counter() + min(2.0, max(0.0, progress.remaining))
        found = conflict.explain(blocks, ceiling, keep_going=lambda: time.perf_counter() < end)
        if found is not None:
            reason = f"{source}: {_described(instance, blocks, found, ceiling)}"
    if low is not None and not exact.unsupported(blocks):
        reason += f"; {int((low + blocks.size).max())} would do"
    progress.prove_infeasible(reason)


def _described(
    instance: LmemPacking, blocks: Blocks, found: conflict.Conflict, ceiling: int
) -> str:
    """Return which buffers cannot be packed together, and when they are alive."""
    members = np.flatnonzero(np.isin(blocks.block, found.blocks))
    shown = ", ".join(instance.buffer_id(int(i)) for i in members[:12])
    if len(members) > 12:
        shown += f" and {len(members) - 12} more"
    when = ""
    if blocks.linear:
        when = f" (alive between {blocks.time[found.first]} and {blocks.time[found.end - 1]})"
    fewer = "; any one fewer fits" if found.irreducible else ""
    return f"buffers {shown}{when} do not fit together in {ceiling} bytes{fewer}"


# ---------------------------------------------------------------------- on an engine


def _on_engine(
    formulation: str, own_engine: str
) -> Callable[[LmemPacking, PackingProgress, Settings], None]:
    """Return the `run` of a method that solves a model on an engine."""

    def run(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
        engine = load_engine(own_engine, progress, settings)
        search = Search(instance, progress)
        low = _start(search, settings)
        if progress.keep_going():
            _model(search, low, engine, formulation, settings)

    return run


def _model(
    search: Search, low: Array | None, engine: Engine, formulation: str, settings: Settings
) -> None:
    instance, progress = search.instance, search.progress
    upper = progress.objective
    lower = progress.bound
    run_model(
        engine,
        lambda: getattr(formulations, formulation)(instance, upper=upper, lower=lower),
        f"packing {formulation}",
        progress,
        settings,
        start=progress.solution,
        start_value=upper,
        conclude_infeasible=lambda: _conclude_infeasible(search, low, engine.name),
    )


# ---------------------------------------------------------------------- composed


def auto(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Run greedy rules, then what proves: the exact search, or a model where there is more to say.

    Placements too many to search are dived for, then improved window by window.
    """
    if settings.engine is not None:
        name = "milp" if settings.engine != "cp-sat" else "cp-sat"
        next(method for method in METHODS if method.name == name).run(instance, progress, settings)
        return
    search = Search(instance, progress)
    if search.peak_only and search.blocks.b > LARGE and not dive.unsupported(search.blocks):
        if settings.warm_start != "auto":
            _start(search, settings)
        _compile(progress)
        _dive(search, settings)  # runs the rules that scale, too
        return
    low = _start(search, settings)
    if search.peak_only and not exact.unsupported(search.blocks):
        _search_all(search, low, settings)
    elif search.keep_going() and search.blocks.b <= MODELLED:
        engine = load_engine("cp-sat", progress, settings)
        _model(search, low, engine, "CpSat", settings)
    if search.peak_only and (instance.previous >= 0).any() and progress.solution is not None:
        _settle(search)


def _search_all(search: Search, low: Array | None, settings: Settings) -> None:
    """Take turns: exhaustive search, local search from the best so far, bounds from windows."""
    _exact(search, low, search.within(0.5))
    if search.keep_going() and not annealing.unsupported(search.blocks):
        _anneal(search, settings, search.within(0.5))
    if search.keep_going() and not narrowing.unsupported(search.blocks):
        _narrow(search, search.within(0.5))
    if search.keep_going():
        _exact(search, search.lowest if search.lowest is not None else low, search.keep_going)


def _narrow(search: Search, keep_going: Callable[[], bool]) -> None:
    """Raise the bound by windows of time that provably need more than the load."""
    for window in narrowing.windows(
        search.blocks, int(search.progress.bound or 0), keep_going=keep_going
    ):
        first, last = search.blocks.time[window.first], search.blocks.time[window.end - 1]
        search.progress.raise_bound(window.bound, f"exhausted window [{first}, {last}]")
        ceiling = search.instance.ceiling
        if ceiling is not None and window.bound > ceiling:
            _conclude_infeasible(search, search.lowest, f"exhausted window [{first}, {last}]")
            return


def _settle(search: Search) -> None:
    """Among placements as low as the best, find one that moves less from the previous offsets."""
    instance, progress = search.instance, search.progress
    assert progress.objective is not None
    peak = instance.capacity if instance.objective is Objective.FIT else int(progress.objective)
    end = time.perf_counter() + max(0.0, min(progress.remaining, 2.0))
    assert peak is not None
    replanning.place(
        instance.replace(objective=Objective.MOVES, capacity=peak),
        peak,
        keep_going=lambda: time.perf_counter() < end,
        on_solution=lambda offsets: search.offer_buffers(offsets, "replan"),
    )


# ---------------------------------------------------------------------- what applies


def _placing(instance: LmemPacking) -> str:
    """Say what a rule that only places buffers cannot do."""
    if instance.objective is Objective.SPILL:
        return "places buffers in one memory; use spill-by-value or cp-sat"
    return ""


def _peak_search(unsupported: Callable[[Blocks], str]) -> Callable[[LmemPacking], str]:
    def reason(instance: LmemPacking) -> str:
        if instance.objective not in (Objective.PEAK, Objective.FIT):
            return f"looks at the peak, not at {instance.objective}; use cp-sat"
        return unsupported(Blocks.of(instance))

    return reason


def _replannable(instance: LmemPacking) -> str:
    if instance.objective is not Objective.MOVES:
        return "re-plans for the objective moves"
    return ""


def _spilling(instance: LmemPacking) -> str:
    return "" if instance.memories else "needs several memories"


def _expressible(formulation: str) -> Callable[[LmemPacking], str]:
    def unsupported(instance: LmemPacking) -> str:
        reason: str = getattr(formulations, formulation).unsupported(instance)
        return reason

    return unsupported


def _rule_method(rule: greedy.Rule) -> Method:
    def unsupported(instance: LmemPacking) -> str:
        if rule.policy == BANKS and instance.banks is None:
            return "needs banks"
        return _placing(instance)

    return Method(
        name=rule.name,
        kind=KIND,
        exact=False,
        description=f"{rule.description} ({rule.source})",
        run=run_rule(rule.name),
        unsupported=unsupported,
        default=rule.name in COMPARED,
    )


METHODS = (
    Method(
        name="auto",
        kind=KIND,
        exact=True,
        description="greedy rules, then exact search or CP-SAT; dives and repairs when large",
        run=auto,
        default=False,
    ),
    *map(_rule_method, greedy.RULES.values()),
    Method(
        name="portfolio",
        kind=KIND,
        exact=False,
        description="the best of all greedy rules",
        run=portfolio,
        unsupported=_placing,
    ),
    Method(
        name="dive",
        kind=KIND,
        exact=False,
        description="always the block that can lie lowest; for up to millions of buffers",
        run=diving,
        unsupported=_peak_search(dive.unsupported),
    ),
    Method(
        name="repair",
        kind=KIND,
        exact=False,
        description="packs windows of time anew, where the peak is",
        run=repair,
        unsupported=_peak_search(repairing.unsupported),
        default=False,
    ),
    Method(
        name="anneal",
        kind=KIND,
        exact=False,
        description="annealing over first-fit orders, from the best greedy placement",
        run=anneal,
        unsupported=_peak_search(annealing.unsupported),
        default=False,
    ),
    Method(
        name="replan",
        kind=KIND,
        exact=False,
        description="keeps what can stay where it was, places the rest greedily",
        run=replan,
        unsupported=_replannable,
    ),
    Method(
        name="spill-by-value",
        kind=KIND,
        exact=False,
        description="the buffers that save most per byte go to the cheapest memory",
        run=spill,
        unsupported=_spilling,
    ),
    Method(
        name="exact",
        kind=KIND,
        exact=True,
        description="branch and bound over placements from the bottom up",
        run=searching,
        unsupported=_peak_search(exact.unsupported),
    ),
    Method(
        name="milp",
        kind=KIND,
        exact=True,
        description="MILP: who lies below whom (Pyomo)",
        run=_on_engine("Milp", "pyomo:highs"),
        unsupported=_expressible("Milp"),
        engines=("pyomo:highs", "highs", "pyomo:NAME"),
        default=False,
    ),
    Method(
        name="cp-sat",
        kind=KIND,
        exact=True,
        description="CP-SAT: rectangles in time and address that do not overlap",
        run=_on_engine("CpSat", "cp-sat"),
        unsupported=_expressible("CpSat"),
        engines=("cp-sat",),
    ),
)
