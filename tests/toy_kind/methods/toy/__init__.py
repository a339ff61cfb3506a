"""Methods of knapsacks: greedy by value, and trying everything."""

from __future__ import annotations

from itertools import combinations

from stagepack.methods import Method, Settings
from stagepack.progress import Progress
from tests.toy_kind.instances.toy import KIND, Knapsack, KnapsackSolution

ToyProgress = Progress[KnapsackSolution]


def greedy(instance: Knapsack, progress: ToyProgress, _: Settings) -> None:
    """Take what is worth most, as long as it fits."""
    room, taken = instance.capacity, []
    for i in sorted(range(instance.n), key=lambda i: -instance.values[i]):
        if instance.sizes[i] <= room:
            room -= instance.sizes[i]
            taken.append(i)
    progress.offer(KnapsackSolution(tuple(sorted(taken))), "greedy")


def everything(instance: Knapsack, progress: ToyProgress, settings: Settings) -> None:
    """Look at all sets of things."""
    greedy(instance, progress, settings)
    for count in range(instance.n + 1):
        for taken in combinations(range(instance.n), count):
            if not progress.keep_going():
                return
            if sum(instance.sizes[i] for i in taken) <= instance.capacity:
                progress.offer(KnapsackSolution(taken), "all sets")
    progress.raise_bound(progress.objective, "exhausted search")


METHODS = (
    Method(name="auto", kind=KIND, exact=True, description="all sets", run=everything),
    Method(name="greedy", kind=KIND, exact=False, description="by value", run=greedy),
)
