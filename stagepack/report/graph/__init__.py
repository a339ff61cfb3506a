"""Reports on graph partitions."""

from stagepack.report.graph.view import VIEW

__all__ = ["VIEW"]
