"""Plans for whole models (floor 6): stages, the schedule of microbatches, and addresses."""

from stagepack.planning.document import read_plan, read_tuning
from stagepack.planning.explained import PlanExplanation, explain_plan
from stagepack.planning.layouts import LayoutPlan, plan_layout
from stagepack.planning.model_plan import ModelPlan
from stagepack.planning.search import plan_model
from stagepack.planning.stages import Level
from stagepack.planning.tuned import Evaluation, Tuning
from stagepack.planning.tuning import tune

__all__ = [
    "Evaluation",
    "LayoutPlan",
    "Level",
    "ModelPlan",
    "PlanExplanation",
    "Tuning",
    "explain_plan",
    "plan_layout",
    "plan_model",
    "read_plan",
    "read_tuning",
    "tune",
]
