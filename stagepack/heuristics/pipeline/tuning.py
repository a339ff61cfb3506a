"""Numbers that steer the searches of pipeline partitions."""

from __future__ import annotations

from dataclasses import dataclass

from stagepack.heuristics.tuning import Tuning


@dataclass(frozen=True, kw_only=True)
class PipelineTuning(Tuning):
    """What steers the searches of pipeline partitions."""

    overdue: float = 1.6
    """Part of the seconds that work stands for after which engines that count none are ended."""

    pace: float = 2.0
    """Work of CP-SAT in a second, once it has loaded a model of partitions: 1.2 to 3.5."""


TUNING = PipelineTuning()
"""What is usual."""
