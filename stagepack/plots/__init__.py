"""Functions that draw solutions: :func:`plot` for all of them, and further pictures of some kinds.

Each takes the instance, the solution or result, and where to draw: a file or axes; by default a new
figure.
"""

from stagepack.report.groups.picture import group_rows
from stagepack.report.pipeline.picture import device_bars, memory_bars
from stagepack.report.plot import plot
from stagepack.report.search import trace

__all__ = ["device_bars", "group_rows", "memory_bars", "plot", "trace"]
