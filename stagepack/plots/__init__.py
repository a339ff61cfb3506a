"""Plots with matplotlib, one function a file; each draws on `ax`, or on a figure of its own."""

from stagepack.plots.device_bars import device_bars
from stagepack.plots.memory_bars import memory_bars
from stagepack.plots.memory_map import memory_map
from stagepack.plots.phase_chart import phase_chart
from stagepack.plots.schedule_chart import schedule_chart
from stagepack.plots.stage_map import stage_map
from stagepack.plots.trace import trace

__all__ = [
    "device_bars",
    "memory_bars",
    "memory_map",
    "phase_chart",
    "schedule_chart",
    "stage_map",
    "trace",
]
