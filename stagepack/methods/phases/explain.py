"""Why a phase schedule has no plan, and what a user can change."""

from __future__ import annotations

from collections.abc import Callable

from stagepack.heuristics.phases.feasibility import enough_memory, fitting
from stagepack.heuristics.phases.tuning import PhasesTuning
from stagepack.instances.phases import PhaseSchedule, PhaseSolution
from stagepack.instances.phases.least import infeasibility
from stagepack.instances.phases.plan import plan
from stagepack.progress import Progress, Stopped


def conclude_infeasible(
    instance: PhaseSchedule, progress: Progress[PhaseSolution], tuning: PhasesTuning
) -> None:
    """Report that there is no plan, and why; then find in little time what would do.

    Raises `CheckError` when there is a plan.
    """
    alone = infeasibility(instance)
    if alone:
        progress.prove_infeasible(alone)
        return
    cause = _summary(instance)
    # Established before a remedy is looked for, which may be interrupted.
    progress.prove_infeasible(cause)
    try:
        remedy = _remedy(instance, _patience(progress, tuning.rules.patience), tuning)
    except Stopped:
        return
    progress.prove_infeasible(f"{cause}; {remedy}")


def _patience(progress: Progress[PhaseSolution], seconds: float) -> Callable[[], bool]:
    """Return a `keep_going` that raises :class:`Stopped` in the end, and never says no."""
    until = progress.spent + seconds

    def going() -> bool:
        if progress.interrupted or progress.remaining <= 0 or progress.spent > until:
            raise Stopped
        return True

    return going


def _summary(instance: PhaseSchedule) -> str:
    """Return which limits leave no plan."""
    limits = []
    if instance.chip.memory is not None:
        limits.append(f"{instance.chip.memory:,} bytes of memory")
    if instance.remote_memory is not None:
        limits.append(f"{instance.remote_memory:,} bytes of remote memory")
    if instance.graphs is not None:
        limits.append(f"{instance.graphs:,} phase graphs")
    if not limits:
        return "the policies and modes allowed leave no plan"
    return f"no plan keeps within {' and '.join(limits)}"


def _remedy(instance: PhaseSchedule, keep_going: Callable[[], bool], tuning: PhasesTuning) -> str:
    """Return what is known to mend it; the plan that shows it was checked."""
    memory = instance.chip.memory
    limited = (instance.remote_memory, instance.graphs) != (None, None)
    if limited:
        found = fitting(instance, keep_going, tuning)
        if found is not None:
            uses = plan(instance, found)
            return (
                f"{uses.remote_bytes:,} bytes of remote memory and {uses.graphs:,} phase graphs "
                "would do"
            )
    enough = None if memory is None else enough_memory(instance, keep_going, tuning)
    if enough is None:
        return "more memory alone does not help"
    least, found = enough
    assert memory is not None
    would = f"it would be feasible with {least:,} bytes of memory instead of {memory:,}"
    return f"without the budgets {would}" if instance.replace(memory=least).check(found) else would
