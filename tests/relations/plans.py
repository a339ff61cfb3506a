"""Relations between plans of chains (even seeds) and of graphs (odd ones)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import stagepack as sp
from stagepack.instances.graph import GraphPartition
from stagepack.instances.pipeline import PipelinePartition
from stagepack.planning import ModelPlan
from tests.random_graphs import random_instance
from tests.relations import graph, pipeline
from tests.relations.relation import NO_WORSE, SAME, Change, Relation

Model = PipelinePartition | GraphPartition


def instance(seed: int) -> Model:
    """Return a few layers or nodes; what a schedule cannot express is left out."""
    draw = np.random.default_rng(seed)
    if seed % 4 == 3:
        k = int(draw.integers(1, 3))
        return graph.instance(3 * seed).replace(objective="sum", accelerators=k, speeds=1)
    if seed % 4 == 1:
        return random_instance(draw, int(draw.integers(2, 6)), objective="sum", contiguous=True)
    n, k = int(draw.integers(1, 7)), int(draw.integers(1, 4))
    devices = []
    for _ in range(k):
        link = sp.Link(GBps=float(draw.choice([1, 2])), idle=int(draw.integers(0, 9)))
        memory, speed = int(draw.integers(20, 90)), float(draw.choice([1, 1, 2, 0.5]))
        devices.append(sp.Device(memory=memory, speed=speed, recv=link, send=link))
    if draw.integers(2):
        devices = devices[:1] * k
    return PipelinePartition.from_arrays(
        draw.integers(2, 25, n),
        backward=draw.integers(2, 25, n),
        exclusive=draw.integers(1, 15, n),
        stash=draw.integers(0, 9, n),
        in_bytes=draw.integers(0, 9, n + 1),
        cluster=sp.Cluster(devices=tuple(devices), clock=2**28),
        training=bool(draw.integers(2)),
        microbatches=int(draw.integers(1, 5)),
        fewer_stages=k > n or bool(draw.integers(2)),
        free_order=bool(draw.integers(2)),
    )


def answer(given: Model, limit: float) -> ModelPlan:
    """Return a plan, whose questions have a fifth of the limit.

    Graphs say how many microbatches are in flight at most: their steps have three.
    """
    many = 3 if isinstance(given, GraphPartition) else given.microbatches
    return sp.plan_model(given, microbatches=many, time_limit=limit / 5)


def either(chain: Callable[[Any], Any], nodes: Callable[[Any], Any]) -> Change:
    """Return a change of chains and of graphs."""
    return lambda given: (chain if isinstance(given, PipelinePartition) else nodes)(given)


def nothing(_: Any) -> None:
    """Say that a relation does not apply."""


RELATIONS = (
    Relation("more memory", either(pipeline.larger, graph.larger), NO_WORSE),
    Relation("one device more", either(pipeline.one_more, graph.one_more), NO_WORSE),
    Relation("faster devices", either(pipeline.faster, graph.faster), NO_WORSE),
    Relation("faster links", either(pipeline.linked, graph.linked), NO_WORSE),
    Relation("fewer stages", either(pipeline.fewer, graph.empty), NO_WORSE),
    Relation("any order", either(pipeline.any_order, graph.any_order), NO_WORSE),
    Relation("cuts anywhere", either(pipeline.anywhere, graph.uncoloured), NO_WORSE),
    Relation("five times the bytes", either(nothing, graph.heavier), SAME),
    Relation("devices in another order", either(pipeline.in_another_order, nothing), SAME),
    Relation("shuffled", either(nothing, graph.shuffled), SAME),
)
