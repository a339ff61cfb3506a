"""Reports on phase schedules."""

from stagepack.report.phases.view import VIEW

__all__ = ["VIEW"]
