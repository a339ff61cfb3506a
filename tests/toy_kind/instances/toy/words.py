"""Words of knapsacks: their kind, their objective, what may be said of them."""

from __future__ import annotations

from stagepack.instances.words import Parameter

KIND = "toy-knapsack"
OBJECTIVES = ("left-behind",)
WORDS = (
    Parameter("things", int, "number of things", 1, 100),
    Parameter("capacity", int, "room in the bag", 0, 10_000),
)
