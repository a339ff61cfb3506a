"""Reports on layer groupings."""

from stagepack.report.groups.view import VIEW

__all__ = ["VIEW"]
