"""The pictures of all problems, and :func:`plot` for them all; they are drawn in `report`.

Each takes the instance, the solution or result, and where to draw: a file or axes; by default on a
figure of its own.
"""

from stagepack.report.graph.picture import partition_chart
from stagepack.report.groups.picture import group_chart, group_rows
from stagepack.report.packing.picture import memory_map
from stagepack.report.phases.picture import phase_chart
from stagepack.report.pipeline.picture import device_bars, memory_bars, stage_map
from stagepack.report.plot import plot
from stagepack.report.schedule.picture import schedule_chart
from stagepack.report.search import trace

__all__ = [
    "device_bars",
    "group_chart",
    "group_rows",
    "memory_bars",
    "memory_map",
    "partition_chart",
    "phase_chart",
    "plot",
    "schedule_chart",
    "stage_map",
    "trace",
]
