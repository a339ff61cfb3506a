"""Pipeline schedules for people."""

from stagepack.report.schedule.view import VIEW

__all__ = ["VIEW"]
