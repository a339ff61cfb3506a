"""How knapsacks are shown."""

from __future__ import annotations

from typing import Any

from stagepack.report.canvas import Drawn, axes
from stagepack.report.table import Account, Sheet
from stagepack.report.view import View
from tests.toy_kind.instances.toy import Knapsack, KnapsackSolution


class KnapsackView(View[Knapsack, KnapsackSolution]):
    counted = "value"

    def headline(self, instance: Knapsack) -> str:
        return f"a bag for {instance.n} things"

    def account(self, instance: Knapsack, solution: KnapsackSolution) -> Account:
        rows = [[str(i), str(instance.sizes[i])] for i in solution.taken]
        return Account([("Things", str(len(rows)))], Sheet(("thing", "size"), rows))


def draw(instance: Knapsack, solution: Any, ax: Any = None) -> Drawn:
    ax = axes(ax, 4.0, 3.0)
    taken = instance.solution_in(solution).taken
    ax.bar(range(len(taken)), [instance.sizes[i] for i in taken])
    return Drawn(ax, "in the bag")


VIEW = KnapsackView(draw)
