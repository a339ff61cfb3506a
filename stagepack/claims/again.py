"""Solves an instance again, to judge what nothing in a result lets others verify.

A better solution shows a claim to be false, whoever finds it.  What confirms a claim must share no
code with what made it: an engine for what a search of ours says, a search for what an engine says.
They have only the reading of the instance in common; a problem whose methods share more says what
(``shared`` of its folder in ``methods``), and then nothing is confirmed.
"""

from __future__ import annotations

from collections.abc import Iterator

from stagepack import kinds
from stagepack.claims.rules import Again, Case
from stagepack.contracts import Solution
from stagepack.evidence import Proof
from stagepack.result import Result

OTHER = {Proof.SEARCH: Proof.ENGINE, Proof.ENGINE: Proof.SEARCH}
"""Who confirms what."""


def solved_again(case: Case, time_limit: float | None) -> tuple[Again, ...]:
    """Solve from the solution in hand, as far as it is valid: by other code, then by the best.

    Each gets half of the time.
    """
    found: list[Again] = []
    said = case.document.get("proof")
    shared = getattr(kinds.part(case.instance.kind, "methods"), "shared", lambda _: "")
    common = shared(case.instance)
    half = None if time_limit is None else time_limit / 2
    for method in _others(case, said):
        result = _solved(case, method, half)
        if result.status != "UNKNOWN" or result.bound is not None:
            independent = not common and said in OTHER and result.proof is OTHER[Proof(said)]
            found.append(Again(result, "" if independent else common or f"{method} rests on more"))
            break
    if not any(one.result.termination == "PROVED" for one in found):
        found.append(Again(_solved(case, "auto", half), common or "it is auto"))
    return tuple(found)


def _solved(case: Case, method: str, time_limit: float | None) -> Result[Solution]:
    from stagepack.solve import solve

    start = "auto" if case.objective is None else case.solution
    result: Result[Solution] = solve(case.instance, method, time_limit=time_limit, warm_start=start)
    return result


def _others(case: Case, said: object) -> Iterator[str]:
    """Yield exact methods that can solve an instance as those of the claim do not."""
    from stagepack.solve import methods

    if said not in tuple(OTHER):
        return
    for method in methods(case.instance):
        if method.exact and method.available and method.name != "auto":
            runs_on_engine = bool(method.engines)
            if runs_on_engine == (OTHER[Proof(str(said))] is Proof.ENGINE):
                yield method.name
