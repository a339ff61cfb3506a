"""Evidence that others can verify, for bounds that rest on a search of ours or on an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from stagepack.evidence import Evidence, Proof, witness
from stagepack.heuristics.graph.bounds import anchored
from stagepack.heuristics.graph.rooms import prices_of
from stagepack.heuristics.graph.staging import Staging
from stagepack.instances.graph import Compact, GraphPartition, GraphSolution, Objective
from stagepack.instances.graph.compact import FORBIDDEN
from stagepack.methods import Settings
from stagepack.progress import Progress
from stagepack.verify import verify

SMALL = 4_000
"""Nodes and readers of tensors up to which it takes hundredths of a second."""


def strengthen(
    instance: GraphPartition,
    progress: Progress[GraphSolution],
    settings: Settings,
    keep_going: Callable[[], bool],
) -> None:
    """Give the proof at hand evidence that has been verified, if some is found.

    Parameters
    ----------
    instance, progress, settings, keep_going
        As `strengthen` of a problem is given them.
    """
    nothing = progress.infeasible_reason is not None
    if not settings.proof and instance.n + len(instance.consumers) > SMALL:
        return
    bound = None if nothing else progress.bound
    for given in _candidates(instance, settings.proof):
        if not keep_going():
            return
        found = verify(
            instance,
            bound,
            None if given is None else given.proof,
            None if given is None else given.data,
            time_limit=progress.remaining if settings.proof else None,
        )
        if found.shown and found.proof is not None:
            rule = given.data if given and given.data["rule"] == found.detail else None
            evidence = Evidence(found.proof, rule or {"rule": found.detail})
            if nothing:
                progress.prove_infeasible(progress.infeasible_reason or "", evidence)
            else:
                progress.raise_bound(progress.bound, progress.bound_source, evidence)
            return


def _candidates(instance: GraphPartition, thorough: bool) -> Iterator[Evidence | None]:
    """Yield evidence that may do, what takes least first; None: what needs none is tried anyway."""
    compact = Compact.of(instance)
    if instance.objective == Objective.SUM:
        staging = Staging.of(compact)
        _, block = anchored(staging)
        if block >= 0:
            yield witness("anchor", node=int(np.argmax(staging.number[compact.block_of] == block)))
    if len(compact.class_count) > 1 and instance.objective != Objective.MEMORY:
        priced = [
            prices_of(np.where(time < FORBIDDEN, time, np.inf).astype(np.float64))
            for time in compact.time
        ]
        for prices in zip(*priced, strict=True):
            by_device = [row[compact.device_class].tolist() for row in prices]
            yield Evidence(Proof.DUAL, {"rule": "prices", "prices": by_device})
    yield Evidence(Proof.LOG, {"rule": "ideals"}) if thorough else None
