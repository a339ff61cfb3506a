"""Solves an instance again, to judge what nothing in a result lets others verify.

A better solution shows a claim to be false, whoever finds it.  Evidence of the new result may show
the claim.  Otherwise, what confirms it must share no code with what made it: an engine for what a
search of ours says, a search for what an engine says.  These have the normal form of the instance
in common; a problem whose methods share more says what (``shared`` of its folder in ``methods``),
and then nothing is confirmed.  Where that leaves a claim open, all solutions of a small instance
are tried (:mod:`stagepack.claims.every`).
"""

from __future__ import annotations

from collections.abc import Iterator

from stagepack import kinds
from stagepack.claims.every import Tried, tried
from stagepack.claims.rules import Again, Case
from stagepack.contracts import JsonObject, Number, Solution
from stagepack.errors import InputError
from stagepack.evidence import Proof
from stagepack.result import SHORTEST, Result, Status, Termination
from stagepack.verify import verify

ENDLESS = (Proof.SEARCH, Proof.ENGINE)
"""Kinds of proof of which nothing is left to verify."""


def solved_again(case: Case, bound: Number | None, time_limit: float | None) -> tuple[Again, ...]:
    """Solve from the solution in hand, as far as it is valid: by other code, then by the best.

    The claim is a `bound`; None: that nothing is feasible.  Each gets half of `time_limit`, and so
    does verifying what it shows.
    """
    found: list[Again] = []
    makers = _makers(case.document)
    shared = getattr(kinds.part(case.instance.kind, "methods"), "shared", lambda _: "")
    common = shared(case.instance)
    half = _half(time_limit)

    def solved(method: str) -> Again:
        result = _solved(case, method, half)
        apart = result.proof in ENDLESS and result.proof not in makers
        shares = common or ("" if apart else f"what {method} proves may rest on the same code")
        return Again(result, shares, _how(case, bound, result, half))

    for method in _others(case, makers):
        try:
            again = solved(method)
        except InputError:  # too large a model, or too many digits
            continue
        if again.result.status is not Status.UNKNOWN or again.result.bound is not None:
            found.append(again)
            break
    ended = (Termination.PROVED, Termination.INTERRUPTED)
    if not any(one.result.termination in ended for one in found):
        found.append(solved("auto"))
    return tuple(found)


def tried_all(case: Case, bound: Number | None, time_limit: float | None) -> Tried | None:
    """Try every solution where solving again left a claim open; None: it did not, or too many.

    The `bound` is as for :func:`solved_again`, to whose findings the case has come; half of the
    `time_limit` is spent.
    """
    if case.settled(bound) or (bound is None and case.document.get("status") != Status.INFEASIBLE):
        return None
    return tried(case.instance, bound, _half(time_limit))


def _half(time_limit: float | None) -> float | None:
    """Return half of a limit, but no less than a limit may be."""
    return None if time_limit is None else max(time_limit / 2, SHORTEST)


def _makers(document: JsonObject) -> set[Proof]:
    """Return what may have made a claim: a search of ours, an engine, or both."""
    said = document.get("proof")
    makers = {Proof(str(said))} if said in ENDLESS else set(ENDLESS)
    return makers | {Proof.ENGINE} if document.get("engine") else makers


def _solved(case: Case, method: str, time_limit: float | None) -> Result[Solution]:
    from stagepack.solve import solve

    start = "auto" if case.objective is None else case.solution
    result: Result[Solution] = solve(case.instance, method, time_limit=time_limit, warm_start=start)
    return result


def _how(
    case: Case, bound: Number | None, result: Result[Solution], time_limit: float | None
) -> str:
    """Return which evidence of a result shows a claim; "" for none."""
    found = verify(case.instance, bound, result.proof, result.evidence, time_limit=time_limit)
    return found.how if found.shown else ""


def _others(case: Case, makers: set[Proof]) -> Iterator[str]:
    """Yield exact methods that can solve an instance as those of the claim do not."""
    from stagepack.solve import methods

    for method in methods(case.instance):
        by = Proof.ENGINE if method.engines else Proof.SEARCH
        if method.exact and method.available and method.name != "auto" and by not in makers:
            yield method.name
