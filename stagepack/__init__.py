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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stagepack.claims import ResultCheck as ResultCheck
    from stagepack.claims import check_result as check_result
    from stagepack.compare import Comparison as Comparison
    from stagepack.compare import compare as compare
    from stagepack.instances.catalog import entries as entries
    from stagepack.instances.catalog import load as load
    from stagepack.instances.catalog import suite as suite
    from stagepack.instances.formats import formats as formats
    from stagepack.instances.formats import read as read
    from stagepack.instances.formats import read_all as read_all
    from stagepack.instances.formats import read_solution as read_solution
    from stagepack.instances.formats import schema as schema
    from stagepack.instances.formats import write as write
    from stagepack.instances.formats import write_solution as write_solution
    from stagepack.instances.packing import Allowed as Allowed
    from stagepack.instances.packing import Banks as Banks
    from stagepack.instances.packing import Gap as Gap
    from stagepack.instances.packing import LmemPacking as LmemPacking
    from stagepack.instances.packing import Memory as Memory
    from stagepack.instances.packing import PackingSolution as PackingSolution
    from stagepack.instances.packing import measure as measure
    from stagepack.instances.phases import PhaseSchedule as PhaseSchedule
    from stagepack.instances.phases import PhaseSolution as PhaseSolution
    from stagepack.instances.phases.plan import plan as plan
    from stagepack.instances.phases.program import program as program
    from stagepack.instances.pipeline import Objective as Objective
    from stagepack.instances.pipeline import PipelinePartition as PipelinePartition
    from stagepack.instances.pipeline import PipelineSolution as PipelineSolution
    from stagepack.instances.pipeline import Variable as Variable
    from stagepack.instances.pipeline import Violation as Violation
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
    from stagepack.instances.types import Instance as Instance
    from stagepack.instances.types import Solution as Solution
    from stagepack.plots.plot import plot as plot
    from stagepack.result import CheckError as CheckError
    from stagepack.result import InputError as InputError
    from stagepack.result import Result as Result
    from stagepack.result import StagepackError as StagepackError
    from stagepack.result import Status as Status
    from stagepack.result import Termination as Termination
    from stagepack.result import Trace as Trace
    from stagepack.solve import methods as methods
    from stagepack.solve import pack as pack
    from stagepack.solve import solve as solve
    from stagepack.solve import versions as versions

__version__ = "0.1.0"

_HOME = {
    "Allowed": "stagepack.instances.packing",
    "Banks": "stagepack.instances.packing",
    "CheckError": "stagepack.result",
    "Chip": "stagepack.instances.profile",
    "Cluster": "stagepack.instances.profile",
    "Comparison": "stagepack.compare",
    "Device": "stagepack.instances.profile",
    "Gap": "stagepack.instances.packing",
    "InputError": "stagepack.result",
    "Instance": "stagepack.instances.types",
    "LayerProfile": "stagepack.instances.profile",
    "Link": "stagepack.instances.profile",
    "LmemPacking": "stagepack.instances.packing",
    "Memory": "stagepack.instances.packing",
    "ModelProfile": "stagepack.instances.profile",
    "Objective": "stagepack.instances.pipeline",
    "PackingSolution": "stagepack.instances.packing",
    "PhaseSchedule": "stagepack.instances.phases",
    "PhaseSolution": "stagepack.instances.phases",
    "PipelinePartition": "stagepack.instances.pipeline",
    "PipelineSchedule": "stagepack.instances.schedule",
    "PipelineSolution": "stagepack.instances.pipeline",
    "Result": "stagepack.result",
    "ResultCheck": "stagepack.claims",
    "ScheduleSolution": "stagepack.instances.schedule",
    "Solution": "stagepack.instances.types",
    "StagepackError": "stagepack.result",
    "Status": "stagepack.result",
    "Termination": "stagepack.result",
    "Trace": "stagepack.result",
    "Variable": "stagepack.instances.pipeline",
    "Violation": "stagepack.instances.pipeline",
    "check_result": "stagepack.claims",
    "compare": "stagepack.compare",
    "entries": "stagepack.instances.catalog",
    "estimate": "stagepack.instances.pipeline.estimate",
    "formats": "stagepack.instances.formats",
    "load": "stagepack.instances.catalog",
    "measure": "stagepack.instances.packing",
    "methods": "stagepack.solve",
    "pack": "stagepack.solve",
    "plot": "stagepack.plots.plot",
    "plan": "stagepack.instances.phases.plan",
    "program": "stagepack.instances.phases.program",
    "read": "stagepack.instances.formats",
    "read_all": "stagepack.instances.formats",
    "read_measured": "stagepack.instances.pipeline.estimate",
    "read_solution": "stagepack.instances.formats",
    "schema": "stagepack.instances.formats",
    "solve": "stagepack.solve",
    "suite": "stagepack.instances.catalog",
    "versions": "stagepack.solve",
    "write": "stagepack.instances.formats",
    "write_solution": "stagepack.instances.formats",
}
__all__ = sorted([*_HOME, "__version__"])


if not TYPE_CHECKING:  # type checkers would take it to make up any name

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'stagepack' has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__


class _Package(types.ModuleType):
    """Keeps `stagepack.solve`, `compare` and `methods` the functions.

    Importing a submodule of the same name would put the module in the function's place.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, types.ModuleType) and name in _HOME):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
