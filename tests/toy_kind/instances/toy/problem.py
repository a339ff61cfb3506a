"""What is to be known of knapsacks."""

from __future__ import annotations

from stagepack.instances.problem import Export, Problem
from stagepack.instances.words import Parameter
from tests.toy_kind.instances.toy import KIND, Knapsack, KnapsackSolution

PROBLEM = Problem(
    kind=KIND,
    instance=Knapsack,
    solution=KnapsackSolution,
    objectives=("left-behind",),
    solution_fields=("taken",),
    words=(Parameter("things", int, "number of things", 1, 100),),
    export=Export(".json", lambda instance, solution: {"packed": list(solution.taken)}),
    public={"Knapsack": "", "KnapsackSolution": ""},
)
