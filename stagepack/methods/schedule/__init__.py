"""Methods of pipeline schedules: the rules, greedy and periodic search, CP-SAT, and ``auto``."""

from __future__ import annotations

from stagepack.formulations import schedule as formulations
from stagepack.heuristics.schedule.rules import RULES, Rule
from stagepack.instances.schedule import KIND, PipelineSchedule, ScheduleSolution
from stagepack.methods import Deferred, Method


def _run(name: str) -> Deferred:
    return Deferred("stagepack.methods.schedule.searches", name)


class _Periodic:
    """The `unsupported` of the search for a period, which loads its module when it is called."""

    def __call__(self, instance: PipelineSchedule) -> str:
        from stagepack.heuristics.schedule.modulo import unsupported

        return unsupported(instance)


def _rule(rule: Rule) -> Method[PipelineSchedule, ScheduleSolution]:
    return Method(
        name=rule.name,
        kind=KIND,
        exact=False,
        description=f"{rule.description} ({rule.source})",
        limited_by_work=True,
        run=_run(rule.name),
        unsupported=rule.unsupported,
    )


METHODS: tuple[Method[PipelineSchedule, ScheduleSolution], ...] = (
    Method(
        name="auto",
        kind=KIND,
        exact=True,
        description="rules and list schedules, then search and CP-SAT in turns",
        limited_by_work=True,
        run=_run("auto"),
        default=False,
    ),
    *map(_rule, RULES.values()),
    Method(
        name="greedy",
        kind=KIND,
        exact=False,
        description="list schedules within the memory, then annealing over the orders of devices",
        limited_by_work=True,
        run=_run("greedy"),
    ),
    Method(
        name="modulo",
        kind=KIND,
        exact=False,
        description="one period for the steady state, then ramp-up and ramp-down; for many "
        "microbatches",
        limited_by_work=True,
        run=_run("modulo"),
        unsupported=_Periodic(),
    ),
    Method(
        name="cp-sat",
        kind=KIND,
        exact=True,
        description="CP-SAT: an interval an operation, in the time of its device",
        limited_by_work=True,
        run=_run("cp-sat"),
        unsupported=lambda instance: formulations.CpSat.unsupported(instance),
        engines=("cp-sat",),
    ),
)
