"""Reports on pipeline schedules."""

from stagepack.report.schedule.view import VIEW

__all__ = ["VIEW"]
