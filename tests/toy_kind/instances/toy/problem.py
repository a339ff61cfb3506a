"""What is to be known of knapsacks."""

from __future__ import annotations

from stagepack.instances.problem import Export, Problem, Tool
from stagepack.instances.words import Parameter

KIND = "toy-knapsack"
OBJECTIVES = ("left-behind",)
WORDS = (
    Parameter("things", int, "number of things", 1, 100),
    Parameter("capacity", int, "room in the bag", 0, 10_000),
)

PROBLEM = Problem(
    kind=KIND,
    instance="Knapsack",
    objectives=OBJECTIVES,
    solution_fields=("taken",),
    words=WORDS,
    export=Export(".json", "packed"),
    tools={"labels": Tool("labels.labels", "a line a thing", {"mark": "what a line begins with"})},
    public={"Knapsack": "", "KnapsackSolution": "", "packed": "data"},
)
