"""What is to be known of knapsacks."""

from __future__ import annotations

from stagepack.instances.problem import Export, Problem, Tool
from tests.toy_kind.instances.toy.words import KIND, OBJECTIVES, WORDS

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
