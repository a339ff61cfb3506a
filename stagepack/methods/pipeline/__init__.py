"""Methods of pipeline partitioning: baselines, exact searches, models on engines, and ``auto``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from stagepack.formulations import pipeline as formulations
from stagepack.heuristics import pipeline as heuristics
from stagepack.instances.pipeline import KIND, Objective, PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.order import StageOrder
from stagepack.kinds import on_demand
from stagepack.methods import Method, Settings, Table
from stagepack.progress import Progress

if TYPE_CHECKING:
    from stagepack.formulations.pipeline.model import PipelineModel
    from stagepack.methods.pipeline import evidence as evidence
    from stagepack.methods.pipeline import explain as explain
else:
    __getattr__ = on_demand(__name__)

TABLE: Table[PipelinePartition, PipelineSolution] = Table(
    KIND,
    __name__,
    tuple(Objective),
)


def _plain(
    unsupported: Callable[[PipelinePartition], str], *, chooses: bool = False
) -> Callable[[PipelinePartition], str]:
    """Return why a method of one stage a device, which perhaps `chooses`, does not apply."""

    def refusal(instance: PipelinePartition) -> str:
        if instance.placed:
            return "knows one stage on each device, in order; use rounds or cp-sat"
        if instance.alternatives and not chooses:
            return "knows no alternatives of layers; use dp"
        return unsupported(instance)

    return refusal


def _rule(instance: PipelinePartition) -> str:
    """Return why a rule of thumb does not apply, or ""."""
    moves = instance.objective is Objective.MOVES
    return "it knows nothing of a previous cut; use dp or cp-sat" if moves else ""


def cp_sat(instance: PipelinePartition) -> type[PipelineModel]:
    """Return the CP-SAT model that suits an instance."""
    return formulations.CpSatPlaced if instance.placed else formulations.CpSat


def _on_cp_sat(instance: PipelinePartition) -> str:
    """Return why no model for CP-SAT applies, or ""."""
    own = cp_sat(instance).unsupported
    return own(instance) if instance.placed else _plain(own)(instance)


def _searchable(instance: PipelinePartition) -> str:
    """Return why exact searches do not know the order of the devices, or ""."""
    refusal = StageOrder.refusal(instance)
    return "" if refusal is None else str(refusal)


METHODS: tuple[Method[PipelinePartition, PipelineSolution], ...] = (
    TABLE.method(
        "auto",
        exact=True,
        description="greedy rules, then the fastest exact method that applies",
        default=False,
    ),
    TABLE.method(
        "equal-layers",
        exact=False,
        description="stages of equally many layers",
        unsupported=_rule,
    ),
    TABLE.method(
        "greedy",
        exact=False,
        description="fills each device to its share of the remaining work",
        unsupported=_rule,
    ),
    TABLE.method(
        "greedy-repair",
        exact=False,
        description="greedy without dead ends when memory is tight; else the first partition found",
        unsupported=_plain(_rule),
    ),
    TABLE.method(
        "bisect",
        exact=True,
        description="plain bottleneck by bisection with greedy probes, for very long chains",
        unsupported=_plain(lambda instance: heuristics.bisect.unsupported(instance)),
        default=False,
    ),
    TABLE.method(
        "dp-reference",
        exact=True,
        description="the recurrence of Auto Pipeline over every transfer threshold",
        unsupported=_plain(lambda instance: heuristics.reference.unsupported(instance)),
        default=False,
    ),
    TABLE.method(
        "dp",
        exact=True,
        description="fast exact search over compute and transfer limits",
        unsupported=_plain(_searchable, chooses=True),
    ),
    TABLE.method(
        "rounds",
        exact=True,
        description="several stages a device, in a loop or a V: two rounds of them, or two in turn",
        unsupported=lambda instance: heuristics.rounds.unsupported(instance),
        unproved=lambda instance: heuristics.rounds.unproved(instance),
    ),
    TABLE.method(
        "milp-interval",
        exact=True,
        description="MILP: one binary for each stage interval; a partition is a path",
        unsupported=_plain(lambda instance: formulations.MilpInterval.unsupported(instance)),
        engines=("highs", "pyomo:highs", "pyomo:NAME"),
    ),
    TABLE.method(
        "milp-assignment",
        exact=True,
        description="MILP: which layers are on which stage (Pyomo)",
        unsupported=_plain(lambda instance: formulations.MilpAssignment.unsupported(instance)),
        engines=("highs", "pyomo:highs", "pyomo:NAME"),
    ),
    TABLE.method(
        "cp-sat",
        exact=True,
        description="CP-SAT: one integer variable for each cut",
        unsupported=_on_cp_sat,
        engines=("cp-sat",),
    ),
)


def strengthen(
    instance: PipelinePartition,
    progress: Progress[PipelineSolution],
    settings: Settings,
    keep_going: Callable[[], bool],
) -> None:
    """Look for evidence that others can verify; see :mod:`.evidence`."""
    importlib.import_module(f"{__name__}.evidence").strengthen(
        instance, progress, settings, keep_going
    )
