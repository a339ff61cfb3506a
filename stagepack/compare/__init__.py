"""Comparing methods on instances: :func:`compare` runs, :class:`Comparison` keeps and shows."""

from stagepack.compare.comparison import Cell, Comparison, Failure
from stagepack.compare.run import compare, labels

__all__ = ["Cell", "Comparison", "Failure", "compare", "labels"]
