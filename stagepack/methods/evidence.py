"""Evidence that others can verify, for bounds that rest on a search of ours or on an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stagepack.contracts import InstanceOf, SolutionT
from stagepack.evidence import Evidence
from stagepack.methods import Settings
from stagepack.progress import Progress
from stagepack.verify import verify


def look(
    instance: InstanceOf[SolutionT],
    progress: Progress[SolutionT],
    settings: Settings,
    keep_going: Callable[[], bool],
    candidates: Iterable[Evidence | None],
) -> None:
    """Give the proof at hand evidence that has been verified, if some is found.

    Parameters
    ----------
    instance, progress, settings, keep_going
        As `strengthen` of a problem is given them.
    candidates : iterable of Evidence or None
        What may do, what takes least first.  None: what needs no evidence, which is tried with
        each of them.
    """
    nothing = progress.infeasible_reason is not None
    bound = None if nothing else progress.bound
    for given in candidates:
        if not keep_going():
            return
        proof, data = (None, None) if given is None else (given.proof, given.data)
        limit = progress.remaining if settings.proof else None
        found = verify(instance, bound, proof, data, time_limit=limit)
        if not found.shown or found.proof is None:
            continue
        if data is None or data["rule"] != found.detail:
            data = {"rule": found.detail}
        evidence = Evidence(found.proof, data)
        if nothing:
            progress.prove_infeasible(progress.infeasible_reason or "", evidence)
        else:
            progress.raise_bound(bound, progress.bound_source, evidence)
        return
