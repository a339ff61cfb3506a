"""Methods of phase scheduling: rules, exact searches, models on engines, and ``auto``."""

from __future__ import annotations

from stagepack.instances.phases import KIND, PhaseSchedule, PhaseSolution, Policy
from stagepack.methods import Deferred, Method


def _run(name: str) -> Deferred:
    return Deferred("stagepack.methods.phases.searches", name)


def _keeping(instance: PhaseSchedule) -> str:
    if not instance.training:
        return "nothing is kept for a backward pass in inference"
    return "" if Policy.KEEP in instance.policies else "keeping products on chip is not allowed"


def _dropping(instance: PhaseSchedule) -> str:
    if not instance.training:
        return "nothing is computed again in inference"
    if Policy.RECOMPUTE not in instance.policies or not instance.recomputations:
        return "computing again is not allowed"
    return "" if len(instance.policies) > 1 else "checkpoints can be neither kept nor stashed"


def _one_pair(instance: PhaseSchedule) -> str:
    if len(instance.microbatches) * len(instance.io_tile_choices) > 1:
        return "several microbatches or numbers of I/O tiles; use enumerate"
    return ""


def _one_group(instance: PhaseSchedule) -> str:
    from stagepack.formulations.phases import RematMilp

    return RematMilp.unsupported(instance)


def _columns(instance: PhaseSchedule) -> str:
    from stagepack.formulations.phases import Milp

    return Milp.unsupported(instance)


def _intervals(instance: PhaseSchedule) -> str:
    from stagepack.formulations.phases import CpSat, RematCpSat

    return CpSat.unsupported(instance) and RematCpSat.unsupported(instance)


METHODS: tuple[Method[PhaseSchedule, PhaseSolution], ...] = (
    Method(
        name="auto",
        kind=KIND,
        exact=True,
        description="rules, then exact search; models where that does not prove its answer",
        run=_run("auto"),
        limited_by_work=True,
        default=False,
    ),
    Method(
        name="greedy-head",
        kind=KIND,
        exact=False,
        description="as many layers into each group as fit, from the first layer on",
        run=_run("greedy-head"),
        limited_by_work=True,
    ),
    Method(
        name="layer-per-phase",
        kind=KIND,
        exact=False,
        description="every layer a group of its own",
        run=_run("layer-per-phase"),
        limited_by_work=True,
    ),
    Method(
        name="keep-all",
        kind=KIND,
        exact=False,
        description="everything kept on chip for the backward pass, groups filled from the head",
        run=_run("keep-all"),
        limited_by_work=True,
        unsupported=_keeping,
    ),
    Method(
        name="sqrt-checkpoint",
        kind=KIND,
        exact=False,
        description="every sqrt(m)-th layer of a group saved, the others computed again",
        run=_run("sqrt-checkpoint"),
        limited_by_work=True,
        unsupported=_dropping,
    ),
    Method(
        name="dp",
        kind=KIND,
        exact=True,
        description="labels over boundaries, for one microbatch and number of I/O tiles",
        run=_run("dp"),
        limited_by_work=True,
        unsupported=_one_pair,
    ),
    Method(
        name="enumerate",
        kind=KIND,
        exact=True,
        description="labels over boundaries, for every microbatch and number of I/O tiles",
        run=_run("enumerate"),
        limited_by_work=True,
    ),
    Method(
        name="milp",
        kind=KIND,
        exact=True,
        description="MILP: one binary an option of a group, a path through them",
        run=_run("milp"),
        unsupported=_columns,
        engines=("highs",),
    ),
    Method(
        name="milp-remat",
        kind=KIND,
        exact=True,
        description="MILP of recomputation and paging within one group (Checkmate)",
        run=_run("milp-remat"),
        unsupported=_one_group,
        engines=("highs",),
    ),
    Method(
        name="cp-sat",
        kind=KIND,
        exact=True,
        description="CP-SAT: options of groups; retention intervals within one group (MOCCASIN)",
        run=_run("cp-sat"),
        unsupported=_intervals,
        engines=("cp-sat",),
    ),
)
