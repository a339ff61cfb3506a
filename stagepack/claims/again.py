"""Solves an instance again, to judge what nothing in a result lets others verify."""

from __future__ import annotations

from stagepack.claims.rules import Again, Case
from stagepack.contracts import Solution
from stagepack.result import Result


def solved_again(case: Case, time_limit: float | None) -> Again:
    """Solve from the solution in hand, as far as it is valid.

    A better solution shows a claim to be false, whoever finds it; what confirms it must share no
    code with what made it.
    """
    from stagepack.solve import solve

    start = "auto" if case.objective is None else case.solution
    result: Result[Solution] = solve(case.instance, time_limit=time_limit, warm_start=start)
    return Again(result, independent=False)
