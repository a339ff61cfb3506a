"""What a model serves on a cluster: latency against throughput, and what fits."""

from stagepack.planning.serving.answer import Room, Serving, ServingPoint
from stagepack.planning.serving.search import plan_serving

__all__ = ["Room", "Serving", "ServingPoint", "plan_serving"]
