"""LMEM rectangle packing: instances, solutions, their checker and their normal form."""

from stagepack.instances.packing.check import Measure, check, evaluate
from stagepack.instances.packing.data import KIND, Allowed, Banks, Gap, Memory, Objective
from stagepack.instances.packing.instance import LmemPacking, measure
from stagepack.instances.packing.solution import PackingSolution
from stagepack.instances.violation import Violation

__all__ = [
    "KIND",
    "Allowed",
    "Banks",
    "Gap",
    "LmemPacking",
    "Measure",
    "Memory",
    "Objective",
    "PackingSolution",
    "Violation",
    "check",
    "evaluate",
    "measure",
]
