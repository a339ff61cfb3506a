"""Plots with matplotlib, one function a file, and :func:`plot` for them all.

Each takes the instance, the solution or result, and where to draw: a file or axes; by default on a
figure of its own.
"""

from stagepack.plots.device_bars import device_bars
from stagepack.plots.memory_bars import memory_bars
from stagepack.plots.memory_map import memory_map
from stagepack.plots.phase_chart import phase_chart
from stagepack.plots.plot import plot
from stagepack.plots.schedule_chart import schedule_chart
from stagepack.plots.stage_map import stage_map
from stagepack.plots.trace import trace

__all__ = [
    "device_bars",
    "memory_bars",
    "memory_map",
    "phase_chart",
    "plot",
    "schedule_chart",
    "stage_map",
    "trace",
]
