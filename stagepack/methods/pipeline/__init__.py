"""Methods of pipeline partitioning: baselines, exact searches, models on engines, and ``auto``."""

from __future__ import annotations

from stagepack.formulations import pipeline as formulations
from stagepack.heuristics.pipeline import bisect, reference
from stagepack.instances.pipeline import KIND, PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.order import StageOrder
from stagepack.methods import Deferred, Method


def _run(name: str) -> Deferred:
    return Deferred("stagepack.methods.pipeline.searches", name)


def _searchable(instance: PipelinePartition) -> str:
    refusal = StageOrder.refusal(instance)
    return "" if refusal is None else str(refusal)


METHODS: tuple[Method[PipelinePartition, PipelineSolution], ...] = (
    Method(
        name="auto",
        kind=KIND,
        exact=True,
        description="greedy rules, then the fastest exact method that applies",
        run=_run("auto"),
        limited_by_work=True,
        default=False,
    ),
    Method(
        name="equal-layers",
        kind=KIND,
        exact=False,
        description="stages of equally many layers",
        run=_run("equal-layers"),
        limited_by_work=True,
    ),
    Method(
        name="greedy",
        kind=KIND,
        exact=False,
        description="fill each device to its share of the work left",
        run=_run("greedy"),
        limited_by_work=True,
    ),
    Method(
        name="bisect",
        kind=KIND,
        exact=True,
        description="plain bottleneck by bisection with greedy probes, for very long chains",
        run=_run("bisect"),
        limited_by_work=True,
        unsupported=bisect.unsupported,
        default=False,
    ),
    Method(
        name="dp-reference",
        kind=KIND,
        exact=True,
        description="the recurrence of Auto Pipeline over every transfer threshold",
        run=_run("dp-reference"),
        limited_by_work=True,
        unsupported=reference.unsupported,
        default=False,
    ),
    Method(
        name="dp",
        kind=KIND,
        exact=True,
        description="fast exact search over compute and transfer limits",
        run=_run("dp"),
        limited_by_work=True,
        unsupported=_searchable,
    ),
    Method(
        name="milp-interval",
        kind=KIND,
        exact=True,
        description="MILP: one binary a stage interval, a path through them",
        run=_run("milp-interval"),
        limited_by_work=True,
        unsupported=formulations.MilpInterval.unsupported,
        engines=("highs", "pyomo:highs", "pyomo:NAME"),
    ),
    Method(
        name="milp-assignment",
        kind=KIND,
        exact=True,
        description="MILP: which layers are on which stage (Pyomo)",
        run=_run("milp-assignment"),
        limited_by_work=True,
        unsupported=formulations.MilpAssignment.unsupported,
        engines=("highs", "pyomo:highs", "pyomo:NAME"),
    ),
    Method(
        name="cp-sat",
        kind=KIND,
        exact=True,
        description="CP-SAT: one integer variable a cut",
        run=_run("cp-sat"),
        limited_by_work=True,
        unsupported=formulations.CpSat.unsupported,
        engines=("cp-sat",),
    ),
)
