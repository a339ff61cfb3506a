"""Floor 6: what can be had for what: exact fronts, and what one change would buy."""

from stagepack.tradeoffs.changes import Explanation, explain
from stagepack.tradeoffs.epsilon import pareto
from stagepack.tradeoffs.front import Front, FrontPoint

__all__ = ["Explanation", "Front", "FrontPoint", "explain", "pareto"]
