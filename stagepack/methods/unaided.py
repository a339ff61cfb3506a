"""Evidence that a rule of the verifier finds by itself, where a search or an engine proved."""

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


def strengthened(instance: Instance, progress: Progress[SolutionT], seconds: float) -> bool:
    """Let a rule that needs no evidence show what is known; return whether one does.

    Parameters
    ----------
    instance : instance of any problem
    progress : Progress
        With a bound, or the reason why nothing is feasible.
    seconds : float
        That it may take; infinite for no limit.
    """
    bound = None if progress.infeasible_reason is not None else progress.bound
    if bound is None and progress.infeasible_reason is None:
        return False
    found = verify(instance, bound, time_limit=None if math.isinf(seconds) else seconds)
    if found.proof is not None:
        take(progress, Evidence(found.proof, {"rule": found.detail}))
    return found.shown
