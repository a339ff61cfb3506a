"""Methods of LMEM packing: greedy rules, local search, exact search, models, and ``auto``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable

from stagepack.formulations import packing as formulations
from stagepack.heuristics.packing.constructive.rules import BANKS, RULES, Rule
from stagepack.instances.packing import KIND, LmemPacking, Objective, PackingSolution
from stagepack.methods import Method, Settings
from stagepack.progress import Progress, Stopped
from stagepack.result import Event, Termination

COMPARED = ("best-fit-lifetime", "greedy-by-size", "greedy-by-breadth", "bank-aware")
"""Greedy rules that comparisons run unasked."""


class _Run:
    """The `run` of a method, which loads the kernels when it is called."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(
        self, instance: LmemPacking, progress: Progress[PackingSolution], settings: Settings
    ) -> None:
        # Only where there is something to load: to watch over it costs more than a small solve.
        loaded = f"{__name__}.searches" in sys.modules
        with contextlib.nullcontext() if loaded else progress.setup("loading compiled code"):
            from stagepack.heuristics.packing import effort
            from stagepack.methods.packing.searches import RUNS

        if settings.deterministic and settings.time_limit is not None:
            progress.limit_by(effort.spent, settings.time_limit)
        try:
            with effort.counting(settings.time_limit):
                self._run(RUNS[self.name], instance, progress, settings)
                if progress.stop_reason() is Termination.TIME_LIMIT:
                    progress.stop(Termination.TIME_LIMIT)  # by a clock that stops here
        finally:
            self._conclude(instance, progress)

    def _run(
        self,
        run: Callable[[LmemPacking, Progress[PackingSolution], Settings], None],
        instance: LmemPacking,
        progress: Progress[PackingSolution],
        settings: Settings,
    ) -> None:
        """Run, and where there is an old placement see to it that little moves."""
        from stagepack.methods.packing import relocation

        if not relocation.matter(self.name, instance):
            with contextlib.suppress(Stopped):
                run(instance, progress, settings)
            return
        relocation.before(self.name, instance, progress, settings)
        if progress.keep_going():
            with relocation.reserved(instance, progress), contextlib.suppress(Stopped):
                run(instance, progress, settings)
        relocation.after(self.name, instance, progress, settings)

    def _conclude(self, instance: LmemPacking, progress: Progress[PackingSolution]) -> None:
        """Offer what is quick where nothing was found; say what is to be known."""
        from stagepack.methods.packing.attempt import nearest
        from stagepack.methods.packing.quick import last_resort, say_if_far

        if progress.solution is None and progress.infeasible_reason is None:
            last_resort(instance, progress)
        say_if_far(instance, progress)
        peak, capacity = progress.objective, instance.capacity
        near = nearest(progress)
        if near is not None and progress.solution is None and instance.ceiling is not None:
            progress.reason = _undecided(near, instance.ceiling, progress)
        if instance.objective is not Objective.PEAK or peak is None or capacity is None:
            return
        if peak > capacity:
            remark = (
                f"the peak exceeds the capacity of {capacity:,}, which only the objective fit "
                f"enforces, by {peak - capacity:,}"
            )
            progress.reason = f"{progress.reason}; {remark}" if progress.reason else remark


def _undecided(near: Event, ceiling: int, progress: Progress[PackingSolution]) -> str:
    """Return what is known where neither a placement nor a proof was found."""
    over = int(near.value) - ceiling
    bound = "" if progress.bound is None else f"; the bound is {progress.bound:,}"
    return (
        f"undecided: the best placement found needs {int(near.value):,} bytes, {over:,} "
        f"({100 * over / max(1, ceiling):.2g} %) over the capacity of {ceiling:,} ({near.source})"
        f"{bound}; the objective peak returns such a placement"
    )


class _PeakOnly:
    """The `unsupported` of a method that looks at the peak alone."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, instance: LmemPacking) -> str:
        from stagepack.instances.packing.blocks import Blocks
        from stagepack.methods.packing.searches import SEARCHES

        if instance.objective not in (Objective.PEAK, Objective.FIT):
            return f"looks at the peak, not at {instance.objective}; use cp-sat"
        return SEARCHES[self.name](Blocks.of(instance))


def _one_memory(instance: LmemPacking) -> str:
    if instance.objective is Objective.SPILL:
        return "places buffers in one memory; use spill-by-value or cp-sat"
    return ""


def _with_banks(instance: LmemPacking) -> str:
    return _one_memory(instance) if instance.banks is not None else "needs banks"


def _replannable(instance: LmemPacking) -> str:
    if instance.objective is not Objective.MOVES:
        return "re-plans for the objective moves"
    return ""


def _spilling(instance: LmemPacking) -> str:
    return "" if instance.memories else "needs several memories"


def _rule(rule: Rule) -> Method[LmemPacking, PackingSolution]:
    return Method(
        name=rule.name,
        kind=KIND,
        exact=False,
        description=f"{rule.description} ({rule.source})",
        limited_by_work=True,
        run=_Run(rule.name),
        unsupported=_with_banks if rule.policy == BANKS else _one_memory,
        default=rule.name in COMPARED,
    )


METHODS: tuple[Method[LmemPacking, PackingSolution], ...] = (
    Method(
        name="auto",
        kind=KIND,
        exact=True,
        description="greedy rules, then exact search or CP-SAT; dives when large",
        limited_by_work=True,
        run=_Run("auto"),
        default=False,
    ),
    *map(_rule, RULES.values()),
    Method(
        name="portfolio",
        kind=KIND,
        exact=False,
        description="the best of all greedy rules",
        limited_by_work=True,
        run=_Run("portfolio"),
        unsupported=_one_memory,
    ),
    Method(
        name="dive",
        kind=KIND,
        exact=False,
        description="packs the crowded times first, then fills in; up to millions of buffers",
        limited_by_work=True,
        run=_Run("dive"),
        unsupported=_PeakOnly("dive"),
    ),
    Method(
        name="repair",
        kind=KIND,
        exact=False,
        description="packs windows of time anew, where the peak is",
        limited_by_work=True,
        run=_Run("repair"),
        unsupported=_PeakOnly("repair"),
        default=False,
    ),
    Method(
        name="anneal",
        kind=KIND,
        exact=False,
        description="annealing over first-fit orders, from the best greedy placement",
        limited_by_work=True,
        run=_Run("anneal"),
        unsupported=_PeakOnly("anneal"),
        default=False,
    ),
    Method(
        name="replan",
        kind=KIND,
        exact=False,
        description="keeps what can stay where it was, places the rest greedily",
        limited_by_work=True,
        run=_Run("replan"),
        unsupported=_replannable,
    ),
    Method(
        name="spill-by-value",
        kind=KIND,
        exact=False,
        description="the buffers that save most per byte go to the cheapest memory",
        limited_by_work=True,
        run=_Run("spill-by-value"),
        unsupported=_spilling,
    ),
    Method(
        name="exact",
        kind=KIND,
        exact=True,
        description="branch and bound over placements from the bottom up",
        limited_by_work=True,
        run=_Run("exact"),
        unsupported=_PeakOnly("exact"),
    ),
    Method(
        name="milp",
        kind=KIND,
        exact=True,
        description="MILP: who lies below whom (Pyomo)",
        limited_by_work=True,
        run=_Run("milp"),
        unsupported=lambda instance: formulations.Milp.unsupported(instance),
        engines=("pyomo:highs", "highs", "pyomo:NAME"),
        default=False,
    ),
    Method(
        name="cp-sat",
        kind=KIND,
        exact=True,
        description="CP-SAT: rectangles in time and address that do not overlap",
        limited_by_work=True,
        run=_Run("cp-sat"),
        unsupported=lambda instance: formulations.CpSat.unsupported(instance),
        engines=("cp-sat",),
    ),
)
