"""Phase scheduling: instances, plans, their checker, their simulator and their programs."""

from stagepack.instances.phases.check import check, evaluate
from stagepack.instances.phases.data import KIND, Figures, Objective, Policy
from stagepack.instances.phases.instance import PhaseSchedule
from stagepack.instances.phases.modes import Mode
from stagepack.instances.phases.solution import Phase, PhaseKind, PhaseSolution
from stagepack.instances.profile import Chip
from stagepack.instances.violation import Violation

__all__ = [
    "KIND",
    "Chip",
    "Figures",
    "Mode",
    "Objective",
    "Phase",
    "PhaseKind",
    "PhaseSchedule",
    "PhaseSolution",
    "Policy",
    "Violation",
    "check",
    "evaluate",
]
