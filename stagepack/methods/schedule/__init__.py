"""Methods of pipeline schedules: the rules, greedy search, CP-SAT, and ``auto``."""

from __future__ import annotations

from collections.abc import Callable

from stagepack.evidence import Evidence, Proof
from stagepack.formulations import schedule as formulations
from stagepack.heuristics.schedule.rules import RULES, Rule
from stagepack.heuristics.schedule.tuning import TUNING
from stagepack.instances.schedule import KIND, Objective, PipelineSchedule, ScheduleSolution
from stagepack.methods import Method, Settings, Table
from stagepack.methods.evidence import strengthened
from stagepack.progress import Progress

TABLE: Table[PipelineSchedule, ScheduleSolution] = Table(
    KIND, __name__, (Objective.MAKESPAN, Objective.SPAN)
)


def _rule(rule: Rule) -> Method[PipelineSchedule, ScheduleSolution]:
    """Return the method of a rule."""
    return TABLE.method(
        rule.name,
        exact=False,
        description=f"{rule.description} ({rule.source})",
        unsupported=rule.unsupported,
    )


def strengthen(
    instance: PipelineSchedule,
    progress: Progress[ScheduleSolution],
    settings: Settings,
    keep_going: Callable[[], bool],
) -> None:
    """Look for evidence that others can verify, where a proof rests on a search or an engine."""
    if settings.proof and keep_going():
        if not strengthened(instance, progress, progress.remaining) and keep_going():
            orders = Evidence(Proof.LOG, {"rule": "orders"})
            strengthened(instance, progress, progress.remaining, orders)
    elif instance.p <= settings.tuned(TUNING).evidence_stages and keep_going():
        strengthened(instance, progress)


METHODS: tuple[Method[PipelineSchedule, ScheduleSolution], ...] = (
    TABLE.method(
        "auto",
        exact=True,
        description="rules and list schedules, then search and CP-SAT in turns",
        default=False,
    ),
    *map(_rule, RULES.values()),
    TABLE.method(
        "greedy",
        exact=False,
        description="list schedules within the memory, then annealing over the orders of devices",
    ),
    TABLE.method(
        "cp-sat",
        exact=True,
        description="CP-SAT: one interval for each operation; those of a device do not overlap",
        unsupported=lambda instance: formulations.CpSat.unsupported(instance),
        engines=("cp-sat",),
    ),
)
