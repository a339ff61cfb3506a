"""Stagepack: optimal pipeline stages, schedules and memory maps, with certificates.

>>> import stagepack as sp
>>> result = sp.solve(sp.load("pipeline/bert-large"))
>>> result.status, result.objective, result.bound  # doctest: +SKIP

Names are loaded when first used: importing the package imports no solver.
"""

from __future__ import annotations

import importlib
import sys
import types

TYPE_CHECKING = False  # type checkers know better; to ask typing takes as long as all the rest
if TYPE_CHECKING:
    from stagepack import plots as plots
    from stagepack.catalog import entries as entries
    from stagepack.catalog import load as load
    from stagepack.catalog import suite as suite
    from stagepack.claims import ProofCheck as ProofCheck
    from stagepack.claims import ResultCheck as ResultCheck
    from stagepack.claims import check_proof as check_proof
    from stagepack.claims import check_result as check_result
    from stagepack.claims import prove as prove
    from stagepack.claims import read_result as read_result
    from stagepack.compare import Comparison as Comparison
    from stagepack.compare import compare as compare
    from stagepack.compare.results import StoredResults as StoredResults
    from stagepack.compare.results import read_store as read_store
    from stagepack.compare.suite import Suite as Suite
    from stagepack.compare.suite import read_suite as read_suite
    from stagepack.contracts import Instance as Instance
    from stagepack.contracts import Solution as Solution
    from stagepack.errors import AnswerError as AnswerError
    from stagepack.errors import CheckError as CheckError
    from stagepack.errors import InputError as InputError
    from stagepack.errors import StagepackError as StagepackError
    from stagepack.formats.door import formats as formats
    from stagepack.formats.door import read as read
    from stagepack.formats.door import read_all as read_all
    from stagepack.formats.door import write as write
    from stagepack.formats.native import schema as schema
    from stagepack.formats.solutions import read_solution as read_solution
    from stagepack.formats.solutions import write_solution as write_solution
    from stagepack.instances.graph import GraphPartition as GraphPartition
    from stagepack.instances.graph import GraphSolution as GraphSolution
    from stagepack.instances.graph.chains.chain import chain as chain
    from stagepack.instances.graph.viewers import partition_dot as partition_dot
    from stagepack.instances.graph.viewers import partition_graphml as partition_graphml
    from stagepack.instances.groups import GroupingSolution as GroupingSolution
    from stagepack.instances.groups import LaneChip as LaneChip
    from stagepack.instances.groups import LayerGrouping as LayerGrouping
    from stagepack.instances.groups import Operator as Operator
    from stagepack.instances.groups import Source as Source
    from stagepack.instances.groups import Weight as Weight
    from stagepack.instances.groups.execution.execute import (
        check_group_program as check_group_program,
    )
    from stagepack.instances.groups.execution.program import group_program as group_program
    from stagepack.instances.packing import Allowed as Allowed
    from stagepack.instances.packing import Banks as Banks
    from stagepack.instances.packing import Dimensions as Dimensions
    from stagepack.instances.packing import Gap as Gap
    from stagepack.instances.packing import LmemPacking as LmemPacking
    from stagepack.instances.packing import Memory as Memory
    from stagepack.instances.packing import PackingSolution as PackingSolution
    from stagepack.instances.packing import Penalties as Penalties
    from stagepack.instances.packing import View as View
    from stagepack.instances.packing import measure as measure
    from stagepack.instances.packing import merge_programs as merge_programs
    from stagepack.instances.packing import split_programs as split_programs
    from stagepack.instances.phases import PhaseSchedule as PhaseSchedule
    from stagepack.instances.phases import PhaseSolution as PhaseSolution
    from stagepack.instances.phases.execution.execute import check_program as check_program
    from stagepack.instances.phases.execution.program import program as program
    from stagepack.instances.phases.plan import plan as plan
    from stagepack.instances.pipeline import Objective as Objective
    from stagepack.instances.pipeline import PipelinePartition as PipelinePartition
    from stagepack.instances.pipeline import PipelineSolution as PipelineSolution
    from stagepack.instances.pipeline import Variable as Variable
    from stagepack.instances.pipeline.estimate import estimate as estimate
    from stagepack.instances.pipeline.estimate import read_measured as read_measured
    from stagepack.instances.profile import Chip as Chip
    from stagepack.instances.profile import Cluster as Cluster
    from stagepack.instances.profile import Device as Device
    from stagepack.instances.profile import LayerProfile as LayerProfile
    from stagepack.instances.profile import Link as Link
    from stagepack.instances.profile import ModelProfile as ModelProfile
    from stagepack.instances.schedule import PipelineSchedule as PipelineSchedule
    from stagepack.instances.schedule import ScheduleSolution as ScheduleSolution
    from stagepack.instances.violation import Violation as Violation
    from stagepack.integrations.pytorch import build_stages as build_stages
    from stagepack.integrations.pytorch import (
        compile_partitioned_model as compile_partitioned_model,
    )
    from stagepack.integrations.pytorch import pipe_model as pipe_model
    from stagepack.integrations.pytorch import profile_model as profile_model
    from stagepack.integrations.pytorch import run_pipeline as run_pipeline
    from stagepack.integrations.pytorch import tied_gradients as tied_gradients
    from stagepack.methods.own import OwnProgress as OwnProgress
    from stagepack.planning import LayoutPlan as LayoutPlan
    from stagepack.planning import ModelPlan as ModelPlan
    from stagepack.planning import PlanExplanation as PlanExplanation
    from stagepack.planning import Tuning as Tuning
    from stagepack.planning import explain_plan as explain_plan
    from stagepack.planning import plan_layout as plan_layout
    from stagepack.planning import plan_model as plan_model
    from stagepack.planning import read_plan as read_plan
    from stagepack.planning import read_tuning as read_tuning
    from stagepack.planning import tune as tune
    from stagepack.planning.measured import measure_plan as measure_plan
    from stagepack.planning.serving import Serving as Serving
    from stagepack.planning.serving import plan_serving as plan_serving
    from stagepack.report.pages import report as report
    from stagepack.report.plot import plot as plot
    from stagepack.result import Result as Result
    from stagepack.result import Status as Status
    from stagepack.result import Termination as Termination
    from stagepack.result import Trace as Trace
    from stagepack.solve import methods as methods
    from stagepack.solve import pack as pack
    from stagepack.solve import solve as solve
    from stagepack.solve import versions as versions
    from stagepack.tradeoffs import DepthChoice as DepthChoice
    from stagepack.tradeoffs import Explanation as Explanation
    from stagepack.tradeoffs import Front as Front
    from stagepack.tradeoffs import Recut as Recut
    from stagepack.tradeoffs import choose_depths as choose_depths
    from stagepack.tradeoffs import explain as explain
    from stagepack.tradeoffs import pareto as pareto
    from stagepack.tradeoffs import recut as recut

__version__ = "0.2.0"

_NAMES = {
    "stagepack.claims": (
        "ProofCheck",
        "ResultCheck",
        "check_proof",
        "check_result",
        "prove",
        "read_result",
    ),
    "stagepack.compare": ("Comparison", "compare"),
    "stagepack.compare.results": ("StoredResults", "read_store"),
    "stagepack.compare.suite": ("Suite", "read_suite"),
    "stagepack.errors": ("AnswerError", "CheckError", "InputError", "StagepackError"),
    "stagepack.catalog": ("entries", "load", "suite"),
    "stagepack.formats.door": ("formats", "read", "read_all", "write"),
    "stagepack.formats.native": ("schema",),
    "stagepack.formats.solutions": ("read_solution", "write_solution"),
    "stagepack.instances.profile": (
        "Chip",
        "Cluster",
        "Device",
        "LayerProfile",
        "Link",
        "ModelProfile",
    ),
    "stagepack.contracts": ("Instance", "Solution"),
    "stagepack.instances.violation": ("Violation",),
    "stagepack.integrations.pytorch": (
        "build_stages",
        "compile_partitioned_model",
        "pipe_model",
        "profile_model",
        "run_pipeline",
        "tied_gradients",
    ),
    "stagepack.methods.own": ("OwnProgress",),
    "stagepack.planning": (
        "LayoutPlan",
        "ModelPlan",
        "PlanExplanation",
        "Tuning",
        "explain_plan",
        "plan_layout",
        "plan_model",
        "read_plan",
        "read_tuning",
        "tune",
    ),
    "stagepack.planning.measured": ("measure_plan",),
    "stagepack.planning.serving": ("Serving", "plan_serving"),
    "stagepack.report.pages": ("report",),
    "stagepack.report.plot": ("plot",),
    "stagepack.result": ("Result", "Status", "Termination", "Trace"),
    "stagepack.solve": ("methods", "pack", "solve", "versions"),
    "stagepack.tradeoffs": (
        "DepthChoice",
        "Explanation",
        "Front",
        "Recut",
        "choose_depths",
        "explain",
        "pareto",
        "recut",
    ),
}
_MODULES = ("plots",)
"""Modules that need no import of their own."""
_HOME = {name: module for module, names in _NAMES.items() for name in names}
"""Where names are that belong to no problem; each problem lists its own."""


def _names() -> list[str]:
    from stagepack.instances.problem import PROBLEMS

    own = (name for problem in PROBLEMS.values() for name in problem.public)
    return sorted({*_HOME, *_MODULES, *own, "__version__"})


def _found(name: str) -> object:
    """Return what a public name stands for; None for others."""
    from importlib.util import find_spec

    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name.startswith("_") or find_spec(f"{__name__}.{name}"):  # a module
        return None
    from stagepack.instances.problem import PROBLEMS

    for problem in PROBLEMS.values():
        if name in problem.public:
            return problem.named(name)
    return None


if not TYPE_CHECKING:  # type checkers would take it to make up any name

    def __getattr__(name: str) -> object:
        if name == "__all__":
            return _names()
        value = _found(name)
        if value is None:
            raise AttributeError(f"module 'stagepack' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return _names()


class _Package(types.ModuleType):
    """Keeps `stagepack.solve`, `compare` and `methods` the functions.

    Importing a submodule of the same name would put the module in the function's place.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, types.ModuleType) and name in _HOME):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        # A function that names the package is sent to another process with it; only modules of the
        # plain class are sent by name.
        return importlib.import_module, (__name__,)


sys.modules[__name__].__class__ = _Package
