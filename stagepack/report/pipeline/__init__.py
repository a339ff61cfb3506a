"""Pipelines for people."""

from stagepack.report.pipeline.view import VIEW

__all__ = ["VIEW"]
