"""Reports on packings."""

from stagepack.report.packing.view import VIEW

__all__ = ["VIEW"]
