"""LMEM rectangle packing: instances, solutions, their checker and their normal form."""

from stagepack.instances.packing.check import Measure, check, evaluate, measure
from stagepack.instances.packing.instance import (
    KIND,
    Allowed,
    Banks,
    Gap,
    LmemPacking,
    Memory,
    Objective,
    PackingSolution,
)
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
