"""What is to be known of knapsacks."""

from __future__ import annotations

from stagepack.instances.problem import Export, Problem
from stagepack.instances.words import Parameter
from tests.toy_kind.instances.toy import KIND

PROBLEM = Problem(
    kind=KIND,
    instance="Knapsack",
    objectives=("left-behind",),
    solution_fields=("taken",),
    words=(
        Parameter("things", int, "number of things", 1, 100),
        Parameter("capacity", int, "room in the bag", 0, 10_000),
    ),
    export=Export(".json", "packed"),
    public={"Knapsack": "", "KnapsackSolution": "", "packed": "data"},
)
