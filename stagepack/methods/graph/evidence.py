"""Evidence that others may be able to verify, of what is known of a graph."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stagepack.evidence import Evidence, Proof, witness
from stagepack.heuristics.graph.bounds import anchored
from stagepack.heuristics.graph.rooms import prices_of
from stagepack.heuristics.graph.staging import Staging
from stagepack.instances.graph import Compact, GraphPartition, Objective
from stagepack.instances.graph.compact import FORBIDDEN
from stagepack.methods import Settings

SMALL = 4_000
"""Nodes and readers of tensors up to which it takes hundredths of a second."""


def candidates(instance: GraphPartition, settings: Settings) -> Iterator[Evidence | None]:
    """Yield evidence that may do, what takes least first; none of large graphs unasked.

    None: what needs no evidence.
    """
    if not settings.proof and instance.n + len(instance.consumers) > SMALL:
        return
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
    yield Evidence(Proof.LOG, {"rule": "ideals"}) if settings.proof else None
