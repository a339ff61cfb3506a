"""Evidence that others can verify, where a proof rests on a search of ours or on an engine."""

from __future__ import annotations

import math

from stagepack.contracts import Instance, SolutionT
from stagepack.evidence import Evidence
from stagepack.progress import Progress
from stagepack.verify import verify


def take(progress: Progress[SolutionT], evidence: Evidence) -> None:
    """Give what is known, a bound or that nothing is feasible, better evidence."""
    if progress.infeasible_reason is not None:
        progress.prove_infeasible(progress.infeasible_reason, evidence)
    else:
        progress.raise_bound(progress.bound, progress.bound_source, evidence)


def strengthened(
    instance: Instance,
    progress: Progress[SolutionT],
    seconds: float = math.inf,
    given: Evidence | None = None,
) -> bool:
    """Let the verifier show what is known, and keep what shows it; return whether it does.

    What `progress` knows is a bound, or the reason why nothing is feasible; `given` evidence is
    tried before the rules that need none.  It may take so many `seconds`, without effect on runs
    that the clock may not change; infinitely many leave it to the rules, which count steps.
    """
    bound = None if progress.infeasible_reason is not None else progress.bound
    if bound is None and progress.infeasible_reason is None:
        return False
    proof, data = (None, {}) if given is None else (given.proof, given.data)
    limit = None if math.isinf(seconds) or not progress.by_clock else max(seconds, 1e-3)
    found = verify(instance, bound, proof, data, time_limit=limit)
    if found.proof is not None:
        own = given is not None and not found.false and data["rule"] == found.detail
        take(progress, Evidence(found.proof, data if own else {"rule": found.detail}))
    return found.shown
