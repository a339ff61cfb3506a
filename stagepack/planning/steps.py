"""Proofs of plans: why no step is shorter, whatever the stages and their schedule, or none fits.

**labels**: which stages of a chain may stay below the bound, see :mod:`.step_labels`.

**schedules**: all stages whose values are below the bound are listed, or all partitions of a graph;
the rules of schedules show of each that its schedule is no shorter, or has no memory.

**path**: stages of a graph that follow one another hold the nodes of a path in its order, so a step
takes no less than one of the path as a chain, a layer a node and what shares its colour, on devices
that are all like the largest and the fastest.

**work**: some device does its share of the work of a graph for all microbatches, and all of any
node.

**networks**: groups of all stages are a plan of the whole network on one chip, if this may have any
order that stages may: together they take as long at least, and some device its share.  Of a chain
the groups of a stage take what the verified potentials rise along it: labels of these.

**part**: what every plan solves, its partition with one microbatch in flight or its network on one
chip, has no solution.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise
from types import SimpleNamespace
from typing import Any

from stagepack.claims.every import TooManyError
from stagepack.claims.every import graph as every
from stagepack.errors import InputError
from stagepack.evidence import Proof
from stagepack.instances.graph import GraphPartition
from stagepack.instances.groups import LayerGrouping
from stagepack.instances.groups.backward import is_weights, recovered
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.profile import Cluster, Device
from stagepack.instances.schedule import PipelineSchedule
from stagepack.planning.step_labels import FEW, MANY, Chain, Network, Whole, labels
from stagepack.verify import Claimed, Rules, UnprovedError, verify

FEW_LEAVES, MANY_LEAVES = 100, 5_000
"""Schedules, likewise; of partitions of graphs, including those that are not valid."""

ROUNDING = Fraction(1, 2**52)
"""Relative, of times of graphs that are no whole numbers, before they are rounded up."""

_Given = Mapping[str, Any]


def left(claimed: Claimed) -> float | None:
    """Return the seconds that are left; None: no end."""
    return None if math.isinf(claimed.until) else max(claimed.until - time.monotonic(), 1e-9)


# ---------------------------------------------------------------------- schedules of all stages


def schedules(whole: Whole, claimed: Claimed, most: int, leaves: int) -> Iterator[PipelineSchedule]:
    """Yield the schedules of all stages that may have a step below the bound.

    At most `most` stages are looked at, and `leaves` schedules, or partitions of a graph.
    """
    model = whole.model
    if not whole.resident or whole.grouped:
        raise UnprovedError("what is inside stages is unknown")
    given: dict[str, Any] = {"microbatches": whole.microbatches, "split": whole.split}
    if isinstance(model, GraphPartition):
        if not model.contiguous:  # devices are served in the order of their names
            raise UnprovedError("the names of devices that are alike matter")
        given["cycles"] = 1 if model.whole else 1000
        make: Any = PipelineSchedule.from_graph
        if model.objective in ("replicated", "memory"):
            model = model.replace(objective="sum")
        found: Iterator[Any] = every.candidates(model, None)
    else:
        make, found = PipelineSchedule.from_partition, _partitions(whole, claimed, most)
    seen = set[Any]()
    try:
        for count, solution in enumerate(found):
            if count >= leaves:
                raise UnprovedError("there are too many stages")
            claimed.step(0)
            if solution in seen or model.check(solution):
                continue
            seen.add(solution)
            try:
                yield make(model, solution, **given)
            except InputError:  # stages without cycles, without room, or without a way back
                if claimed.bound is None and isinstance(model, GraphPartition):
                    raise UnprovedError("a partition has no schedule") from None
    except TooManyError:
        raise UnprovedError("there are too many partitions") from None


def _partitions(whole: Whole, claimed: Claimed, most: int) -> Iterator[PipelineSolution]:
    """Yield the stages of a chain that may stay below the bound, on the first devices of a kind."""
    chain = Chain(whole, claimed, most)
    for stages in chain.stages(chain.turns[0][0], 0, (0, 0)):
        devices = list[int]()
        for kind, _ in stages:
            behind = -1 if whole.model.free_order else max(devices, default=-1)
            devices.append(
                next(
                    d
                    for d, one in enumerate(chain.device)
                    if one == kind and d > behind and d not in devices
                )
            )
        yield PipelineSolution((0, *(chain.cuts[end] for _, end in stages)), tuple(devices))


def every_schedule(
    whole: Whole, evidence: _Given, claimed: Claimed, most: int, leaves: int
) -> None:
    """Show of the schedule of all stages that it is not shorter than the bound.

    At most `most` stages are looked at, and `leaves` schedules.
    """
    bound = None if claimed.bound is None else math.ceil(claimed.bound)
    for schedule in schedules(whole, claimed, most, leaves):
        if not verify(schedule, bound, time_limit=left(claimed)).shown:
            raise UnprovedError("some stages may have a shorter step")


# ---------------------------------------------------------------------- graphs


def work(whole: Whole, evidence: _Given, claimed: Claimed) -> None:
    """Show that devices cannot do the work of a graph sooner."""
    graph = whole.model
    if claimed.bound is None or not isinstance(graph, GraphPartition) or whole.grouped:
        raise UnprovedError("is about steps of graphs")
    least = _least_times(graph)
    share = max(sum(least) / graph.devices, *least) * (1 if graph.whole else 1000)
    if math.ceil(whole.microbatches * share * (1 - ROUNDING)) < claimed.bound:
        raise UnprovedError("devices may do the work sooner")


def _least_times(graph: GraphPartition) -> list[Fraction]:
    """Return the least time of each node on any device."""
    fastest = max(map(Fraction, map(str, graph.speeds.tolist())), default=Fraction(1))
    columns = (graph.time, graph.accelerator, graph.cpu_time, graph.cpu)
    return [
        min(
            [Fraction(t) / fastest] * may + [Fraction(c)] * (other and graph.cpus > 0),
            default=Fraction(0),
        )
        for t, may, c, other in zip(*(column.tolist() for column in columns), strict=True)
    ]


def path(whole: Whole, evidence: _Given, claimed: Claimed, most: int = MANY) -> None:
    """Show that no step of a path of a graph is shorter, looking at `most` stages of it."""
    graph, nodes = whole.model, evidence["path"]
    if not isinstance(graph, GraphPartition) or not graph.contiguous or whole.grouped:
        raise UnprovedError("is about graphs whose stages follow one another")
    steps, backward = set(map(tuple, graph.edges.tolist())), graph.backward.tolist()
    if not nodes or not steps.issuperset(pairwise(nodes)) or any(backward[v] for v in nodes):
        raise UnprovedError("is no path of forward nodes")
    cycles, least, colours = 1 if graph.whole else 1000, _least_times(graph), graph.colour.tolist()
    layer = {v: at for at, v in enumerate(nodes)}
    owner = {colours[v]: at for at, v in reversed([*enumerate(nodes)]) if colours[v] >= 0}
    of = [layer.get(v, owner.get(c, -1)) for v, c in enumerate(colours)]
    ends, readers = graph.consumer_ptr.tolist(), graph.consumers.tolist()
    bandwidth: Any = graph.bandwidth
    fastest = Fraction(str(bandwidth if graph.uniform else bandwidth.max().item()))
    then, crossing = dict(pairwise(nodes)), [Fraction(0)] * (len(nodes) + 1)
    rows = zip(graph.producer.tolist(), graph.traffic.tolist(), strict=True)
    for t, (node, amount) in enumerate(rows):
        if then.get(node, -1) in readers[ends[t] : ends[t + 1]]:
            crossing[layer[node] + 1] += Fraction(amount) / fastest
    table = [[math.floor(cycles * lag) for lag in crossing]] * graph.devices

    def summed(values: list[Any], back: bool | None = None) -> list[Any]:
        found = [0] * len(nodes)
        for v, at in enumerate(of):
            if at >= 0 and back in (None, backward[v]):
                found[at] += values[v]
        return found

    rooms = None if graph.cpus or graph.capacity is None else int(graph.capacity.max())
    chain = PipelinePartition.from_arrays(
        [math.floor(cycles * time) for time in summed(least, back=False)],
        backward=[math.floor(cycles * time) for time in summed(least, back=True)],
        cluster=Cluster(devices=(Device(memory=rooms),) * graph.devices, clock=1),
        exclusive=summed(graph.memory.tolist()),
        stash=summed(graph.stash.tolist()),
        recv_cycles=table,
        send_cycles=table,
        training=bool(graph.backward.any()),
        microbatches=1,
        backward_transfers=False,
        objective="bottleneck",
        fewer_stages=True,
    )
    labels(replace(whole, model=chain, path=True), {}, claimed, most)


# ---------------------------------------------------------------------- networks on chips


def networks(whole: Whole, evidence: _Given, claimed: Claimed, most: int = MANY) -> None:
    """Show that groups of stages cannot take less than whole networks do.

    At most `most` stages are looked at.
    """
    model, known, m = whole.model, whole.networks, whole.microbatches
    if claimed.bound is None or not known:
        raise UnprovedError("no bound of a whole network is verified")
    graph = isinstance(model, GraphPartition)
    once, k = sum(one.bound for one in known), model.devices if graph else model.k
    row = not graph and not model.training  # a microbatch passes all stages
    if (once if row else 0) + (m - row) * -(-once // k) >= claimed.bound:
        return
    given = all(one.potentials and _in_order(one.instance) for one in known)
    if graph or len(known) <= model.training or not given:
        raise UnprovedError("devices may do their share sooner")
    back = _back(*known) if model.training else [0] * (model.n + 1)
    rises = {"forward": known[0].potentials, "backward": back}
    labels(replace(whole, grouped=False, rises=rises), {}, claimed, most)


def _in_order(instance: LayerGrouping) -> bool:
    return instance.order == "given" or instance.linear


def _back(network: Network, behind: Network) -> list[int | None]:
    """Return for each cut of a network what potentials of its backward pass rise up to there.

    Gradients of weights come last, and stand alone.
    """
    assert behind.potentials is not None
    back = recovered(network.instance, behind.instance)
    end = sum(not is_weights(operator) for operator in behind.instance.operators)
    if back is None or [*back.of[:end]] != sorted(back.of[:end], reverse=True):
        raise UnprovedError("the backward pass has another order")
    weights = [0] * (network.instance.n + 1)
    for at, (before, after) in enumerate(pairwise(behind.potentials)):
        if at >= end:
            weights[back.of[at] + 1] += (after or 0) - (before or 0)
    found = list[int | None]()
    for cut, own in enumerate(accumulate(weights)):
        p = behind.potentials[sum(layer >= cut for layer in back.of[:end])]
        found.append(None if p is None else own - p)
    return found


# ---------------------------------------------------------------------- nothing fits


def part(whole: Whole, evidence: _Given, claimed: Claimed) -> None:
    """Show that what every plan solves has no solution."""
    if claimed.bound is not None or not whole.resident:
        raise UnprovedError("is about what fits nowhere")
    given, proof = evidence.get("evidence", {}), str(evidence.get("proof"))
    found = verify(whole.model, None, proof, given, time_limit=left(claimed))
    if not found.shown:
        raise UnprovedError(found.detail)


RULES: Rules = {
    "work": (Proof.WITNESS, work),
    "networks": (Proof.LOG, networks),
    "part": (Proof.LOG, part),
    "path": (Proof.LOG, path),
    "labels": (Proof.LOG, labels),
    "few-labels": (Proof.LOG, functools.partial(labels, most=FEW)),
    "schedules": (Proof.LOG, functools.partial(every_schedule, most=MANY, leaves=MANY_LEAVES)),
    "few-schedules": (Proof.LOG, functools.partial(every_schedule, most=FEW, leaves=FEW_LEAVES)),
}

UNAIDED = ("work", "networks", "part", "few-labels", "few-schedules")
"""Rules that need no evidence, in the order in which they are tried."""

QUICK = SimpleNamespace(
    RULES=RULES
    | {
        "networks": (Proof.LOG, functools.partial(networks, most=FEW)),
        "path": (Proof.LOG, functools.partial(path, most=FEW)),
    },
    UNAIDED=UNAIDED,
)
"""The rules for plans as they are made: all look at few stages, so that their counts end them
before a clock does, and equal plans have equal proofs."""
