"""Layouts of a model on accelerators: all degrees of parallelism, each cut and scheduled."""

from stagepack.planning.layouts.answer import LayoutPlan
from stagepack.planning.layouts.search import plan_layout

__all__ = ["LayoutPlan", "plan_layout"]
