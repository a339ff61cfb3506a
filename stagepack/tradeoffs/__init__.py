"""Trade-offs (floor 6): exact Pareto fronts, and what one change of the limits would gain."""

from stagepack.tradeoffs.changes import Explanation, explain
from stagepack.tradeoffs.depths import DepthChoice, choose_depths
from stagepack.tradeoffs.epsilon import pareto
from stagepack.tradeoffs.front import Front, FrontPoint
from stagepack.tradeoffs.moves import Recut, recut

__all__ = [
    "DepthChoice",
    "Explanation",
    "Front",
    "FrontPoint",
    "Recut",
    "choose_depths",
    "explain",
    "pareto",
    "recut",
]
