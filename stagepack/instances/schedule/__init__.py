"""Pipeline schedules: instances, operations, solutions, their checker and their timing."""

from stagepack.instances.schedule.check import Measure, check, evaluate
from stagepack.instances.schedule.data import KIND, Objective
from stagepack.instances.schedule.instance import PipelineSchedule, measure
from stagepack.instances.schedule.memory import memory_arcs
from stagepack.instances.schedule.operations import Operations
from stagepack.instances.schedule.reasons import least_memory, reasons
from stagepack.instances.schedule.solution import ScheduleSolution
from stagepack.instances.schedule.timing import earliest
from stagepack.instances.violation import Violation

__all__ = [
    "KIND",
    "Measure",
    "Objective",
    "Operations",
    "PipelineSchedule",
    "ScheduleSolution",
    "Violation",
    "check",
    "earliest",
    "evaluate",
    "least_memory",
    "measure",
    "memory_arcs",
    "reasons",
]
