"""Methods of phase scheduling: rules, exact searches, models on engines, and ``auto``."""

from __future__ import annotations

from collections.abc import Callable

from stagepack.formulations import phases as formulations
from stagepack.instances.phases import KIND, Objective, PhaseSchedule, PhaseSolution, Policy
from stagepack.methods import Method, Settings, Table
from stagepack.methods.evidence import strengthened
from stagepack.progress import Progress

TABLE: Table[PhaseSchedule, PhaseSolution] = Table(KIND, __name__, (Objective.TIME,))


def _keeping(instance: PhaseSchedule) -> str:
    """Return why nothing is kept, '' if it may be."""
    if not instance.training:
        return "nothing is kept for a backward pass in inference"
    return "" if Policy.KEEP in instance.policies else "keeping products on chip is not allowed"


def _dropping(instance: PhaseSchedule) -> str:
    """Return why nothing is computed again, '' if it may be."""
    if not instance.training:
        return "nothing is computed again in inference"
    if Policy.RECOMPUTE not in instance.policies or not instance.recomputations:
        return "computing again is not allowed"
    return "" if len(instance.policies) > 1 else "checkpoints can be neither kept nor stashed"


def _one_pair(instance: PhaseSchedule) -> str:
    """Return why the method is for one pair alone, '' where there is one."""
    if len(instance.microbatches) * len(instance.io_tile_choices) > 1:
        return "several microbatches or numbers of I/O tiles; use enumerate"
    return ""


def _budgets(instance: PhaseSchedule) -> str:
    """Return why nothing is proved, '' if it may be."""
    limited = (instance.remote_memory, instance.graphs) != (None, None)
    return "budgets are not searched" if limited else ""


def _intervals(instance: PhaseSchedule) -> str:
    """Return why neither model applies, '' if one does."""
    reason = formulations.CpSat.unsupported(instance)
    return reason and formulations.RematCpSat.unsupported(instance)


METHODS: tuple[Method[PhaseSchedule, PhaseSolution], ...] = (
    TABLE.method(
        "auto",
        exact=True,
        description="rules, then exact search; models where that does not prove its answer",
        default=False,
    ),
    TABLE.method(
        "greedy-head",
        exact=False,
        description="as many layers into each group as fit, from the first layer on",
    ),
    TABLE.method(
        "layer-per-phase",
        exact=False,
        description="every layer a group of its own",
    ),
    TABLE.method(
        "keep-all",
        exact=False,
        description="everything kept on chip for the backward pass, groups filled from the head",
        unsupported=_keeping,
    ),
    TABLE.method(
        "sqrt-checkpoint",
        exact=False,
        description="every sqrt(m)-th layer of a group saved, the others computed again",
        unsupported=_dropping,
    ),
    TABLE.method(
        "dp",
        exact=True,
        description="labels over boundaries, for one microbatch and number of I/O tiles",
        unsupported=_one_pair,
        unproved=_budgets,
    ),
    TABLE.method(
        "enumerate",
        exact=True,
        description="labels over boundaries, for every microbatch and number of I/O tiles",
        unproved=_budgets,
    ),
    TABLE.method(
        "milp",
        exact=True,
        description="MILP: one binary for each option of a group; a plan is a path",
        unsupported=lambda instance: formulations.Milp.unsupported(instance),
        engines=("highs",),
        limited_by_work=False,
    ),
    TABLE.method(
        "milp-remat",
        exact=True,
        description="MILP of recomputation and paging within one group (Checkmate)",
        unsupported=lambda instance: formulations.RematMilp.unsupported(instance),
        engines=("highs",),
        limited_by_work=False,
    ),
    TABLE.method(
        "cp-sat",
        exact=True,
        description="CP-SAT: options of groups; retention intervals within one group (MOCCASIN)",
        unsupported=_intervals,
        engines=("cp-sat",),
        limited_by_work=False,
    ),
)


def shared(_: PhaseSchedule) -> str:
    """Return which code all methods share on which a proof rests."""
    return "all methods ask the same code what a phase may cost"


def strengthen(
    instance: PhaseSchedule,
    progress: Progress[PhaseSolution],
    settings: Settings,
    keep_going: Callable[[], bool],
) -> None:
    """Look for evidence that others can verify: shortest paths over groups."""
    from stagepack.heuristics.phases.tuning import TUNING

    tuning = settings.tuned(TUNING).evidence
    pairs = len(instance.microbatches) * len(instance.io_tile_choices)
    if settings.proof:
        strengthened(instance, progress, progress.remaining)
    elif instance.n * (instance.n + 1) // 2 * pairs <= tuning.few_groups:
        strengthened(instance, progress, tuning.seconds)
