"""Phase plans for people."""

from stagepack.report.phases.view import VIEW

__all__ = ["VIEW"]
