"""Reports on pipeline partitions."""

from stagepack.report.pipeline.view import VIEW

__all__ = ["VIEW"]
