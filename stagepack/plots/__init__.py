"""Functions that draw the solutions of each problem, and :func:`plot` for all of them.

Each takes the instance, the solution or result, and where to draw: a file or axes; by default a new
figure.
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
