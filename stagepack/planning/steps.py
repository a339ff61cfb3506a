"""Proofs of plans: why no step is shorter, whatever the stages and their schedule, or none fits.

Of a chain, let F, B and W take f, b and w cycles on a stage, H be what the first microbatch takes
to come there and, in training, the last one to return (its forward pass alone where W is split off
and may come last), and Z what one takes from there to the end and back, latencies of cuts included.
A step of training lasts H, then all operations of the stage; and as many microbatches as its device
has room for are in flight, each of which takes F, Z and B: what these leave of that time the device
idles.  In inference a microbatch passes all stages, and the longest one works m - 1 times more.
Cuts are crossed by the fastest links.

**labels**: which values below the bound stages can come to: after some stages that end at a cut, on
some of the devices, the longest f (inference; 0 in training, where each stage is compared with the
bound at once) and H.  Of two labels of one place the one that is larger in neither says all.  Where
no label reaches the end, no stages stay below the bound.

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
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import accumulate, pairwise, product
from typing import Any, NamedTuple

from stagepack.claims.every import TooManyError
from stagepack.claims.every import graph as every
from stagepack.contracts import JsonObject, Number
from stagepack.errors import InputError
from stagepack.evidence import Proof
from stagepack.instances.graph import GraphPartition
from stagepack.instances.groups import LayerGrouping
from stagepack.instances.groups.backward import is_weights, recovered
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.check import stage_memory
from stagepack.instances.profile import Cluster, Device, Link
from stagepack.instances.schedule import PipelineSchedule
from stagepack.instances.schedule.partition import waiting
from stagepack.verify import Claimed, Rules, UnprovedError, verify

FEW, MANY = 100_000, 2_000_000
"""Stages that are looked at where no evidence speaks of them, and where some does."""
FEW_LEAVES, MANY_LEAVES = 100, 5_000
"""Schedules, likewise; of partitions of graphs, including those that are not valid."""

ROUNDING = Fraction(1, 2**52)
"""Relative, of times of graphs that are no whole numbers, before they are rounded up."""

UNUSED = -1
"""Instead of a device: the next one has no stage."""

Time = int | Fraction
Label = tuple[Time, Time]
State = tuple[int, ...]
Turn = tuple[State, State, int]
"""Which devices are used before and after a stage on one of them, or without one."""
Passes = tuple[Time, Time, Time, int]
"""Of a stage f, b, all work of a microbatch, and how many of them its device has room for."""
_Given = Mapping[str, Any]


class Network(NamedTuple):
    """A whole network on one chip, whose bound is verified, and potentials if these show it."""

    instance: LayerGrouping
    bound: int
    potentials: list[int | None] | None


@dataclass(frozen=True)
class Whole:
    """What a plan is of: a claim about it speaks of all stages and all schedules.

    Attributes
    ----------
    model : PipelinePartition, GraphPartition or LayerGrouping
        With room for one microbatch in flight.
    microbatches : int
        Of a step.
    split : bool
        Whether the backward pass is split into B and W.
    resident : bool
        Whether devices hold their stages all the time, which take whole cycles.
    grouped : bool
        Whether stages consist of groups, so that layers say nothing of their cycles.
    networks : tuple of Network
        As far as their bounds are verified.
    rises : dict, optional
        Of "forward" and "backward", what stages take instead of the cycles of their layers: what
        these figures rise from cut to cut; None: no stage ends there.
    path : bool
        Whether layers are those of a path of a graph.
    """

    model: Any
    microbatches: int
    split: bool = False
    resident: bool = True
    grouped: bool = False
    networks: tuple[Network, ...] = ()
    rises: JsonObject = field(default_factory=dict)
    path: bool = False

    tolerance = 0


# ---------------------------------------------------------------------- stages of a chain


class _Chain:
    """The stages of a chain by the numbers of their cuts, and how devices come to be used."""

    def __init__(self, whole: Whole, claimed: Claimed, most: int) -> None:
        model = whole.model
        if not isinstance(model, PipelinePartition) or whole.grouped:
            raise UnprovedError("is about chains whose layers have times")
        if model.compute_table is not None and model.training:
            raise UnprovedError("nothing tells F from B")
        self.whole, self.model, self.claimed, self._left = whole, model, claimed, most
        self.m, self.bound = whole.microbatches, _limit(claimed)
        rises, self._bare = whole.rises, whole.path or bool(whole.rises)
        self.cuts = [
            c
            for c, allowed in enumerate(model.allowed_cuts.tolist())
            if allowed and all(figures[c] is not None for figures in rises.values())
        ]
        self.last = len(self.cuts) - 1
        self.trips = 1 if whole.split or not model.training else 2
        tables = model.compute_table, model.memory_table
        apart = model.recv_cycles is not None or model.send_cycles is not None
        apart |= any(table is not None and table.ndim == 3 for table in tables)
        kinds = [d if apart else one.kind for d, one in enumerate(model.cluster.devices)]
        self.device = [kinds.index(kind) for kind in kinds]
        self.speed = [
            1 if rises else Fraction(str(device.speed)) for device in model.cluster.devices
        ]
        self._sums: JsonObject = {
            name: [*accumulate(_exact(getattr(model, name).tolist()), initial=0)]
            for name in ("forward", "backward", "stash")
        } | rises
        self.lag = [0, *_latencies(model, self.cuts), 0]
        self.passes = functools.cache(self._passes)
        self.turns = [*self._turns()]
        self.final = {self.turns[-1][1]}
        if model.fewer_stages:
            self.final |= {target for _, target, _ in self.turns}
        self._behind: dict[tuple[State, int], Number | Fraction] = dict.fromkeys(
            ((state, self.last) for state in self.final), 0
        )
        back = model.training
        for source, target, d in reversed(self.turns):
            for at in range(self.last):
                ways = [self.behind(target, at)] if d == UNUSED else []
                for end in range(at + 1, self.last + 1) if d != UNUSED else ():
                    rest = self.behind(target, end)
                    if rest < math.inf and (taken := self.look(d, at, end)) is not None:
                        ways.append(sum(taken[: 1 + back]) + (1 + back) * self.lag[at] + rest)
                least = min(ways, default=math.inf)
                self._behind[source, at] = min(self.behind(source, at), least)

    def behind(self, state: State, end: int) -> Number | Fraction:
        """Return the least that a microbatch takes behind a cut, and back in training."""
        return self._behind.get((state, end), math.inf)

    def look(self, d: int, at: int, end: int) -> Passes | None:
        """Return what a stage takes; None: no microbatch fits.  So many may be looked at."""
        self._left -= 1
        self.claimed.step(64 * self._left)
        if self._left < 0:
            raise UnprovedError("there are too many stages")
        return self.passes(d, at, end)

    def _turns(self) -> Iterator[Turn]:
        """Yield how devices come to be used."""
        counts = Counter(self.device)
        if self.model.free_order or len(counts) == 1:
            for used in product(*(range(count + 1) for count in counts.values())):
                for c, d in enumerate(counts):
                    if used[c] < counts[d]:
                        yield used, (*used[:c], used[c] + 1, *used[c + 1 :]), d
            return
        for passed, d in enumerate(self.device):
            yield (passed,), (passed + 1,), d
            if self.model.fewer_stages:
                yield (passed,), (passed + 1,), UNUSED

    def _passes(self, d: int, at: int, end: int) -> Passes | None:
        """Return what :meth:`look` does."""
        first, last = self.cuts[at], self.cuts[end]
        flying = self._flying(d, first, last)
        f: Time = self._cycles("forward", d, first, last)
        both: Time = 0
        if self.model.training:
            both = self._cycles("backward", d, first, last)
        halves = self.whole.split and not self._bare  # else what is split off is unknown
        b = both if not self.whole.split else Fraction(0)
        if halves:
            b = both - both // 2 if self.whole.resident else Fraction(both) / 2
        idle = f == 0 or (self.model.training and both < 1 + self.whole.split)
        idle = idle and self.whole.resident and not self._bare
        if flying and idle and self.claimed.bound is None:
            raise UnprovedError("a stage without cycles fits, and has no schedule")
        if flying == 0 or idle:
            return None
        f += waiting(self.model)
        return f, b, f + both, flying

    def _cycles(self, name: str, d: int, first: int, last: int) -> Time:
        """Return the cycles of a pass through the layers [first, last)."""
        table = self.model.compute_table
        if table is not None:
            found: Time = Fraction((table if table.ndim == 2 else table[d])[first, last].item())
        else:
            found = max(0, self._sums[name][last] - self._sums[name][first])
        if self.speed[d] != 1:
            found = Fraction(found) / self.speed[d]
        return math.ceil(found) if self.whole.resident else found

    def _flying(self, d: int, first: int, last: int) -> int:
        """Return how many microbatches fit a device beside the layers [first, last)."""
        memory = self.model.cluster.devices[d].memory
        if memory is None or not self.whole.resident:
            return self.m
        left = memory - stage_memory(self.model, first, last, d, 0)
        sums = self._sums["stash"]
        each = self.model.training * int(
            sums[last] - sums[first] + int(self.model.kept_bytes[first])
        )
        if left < each or left < 0:
            return 0
        return min(self.m, left // each) if each else self.m

    def value(self, taken: Passes, rest: Any, longest: Time) -> Any:
        """Return what a step takes at least from when a microbatch comes to a stage."""
        f, b, w, c = taken
        if not self.model.training:
            return f + rest + (self.m - 1) * max(f, longest)
        rounds, trip = (self.m - 1) // c, f + rest
        left = self.m - rounds * c
        return max(
            self.m * w + max(0, trip - c * f),
            rounds * (trip + b) + left * w + max(0, trip - left * f),
        )

    def grown(self, turn: Turn, at: int, label: Label) -> Iterator[tuple[int, Label]]:
        """Yield the ends of stages that may stay below the bound, and their labels."""
        _, target, d = turn
        longest, before = label
        begin = before + self.trips * self.lag[at]
        for end in range(at + 1, self.last + 1):
            rest = self.behind(target, end)
            taken = self.look(d, at, end) if rest < math.inf else None
            if taken is None or begin + self.value(taken, rest, longest) >= self.bound:
                continue
            f, _, w, _ = taken
            if self.model.training:
                yield end, (0, begin + (f if self.whole.split else w))
            else:
                yield end, (max(f, longest), begin + f)

    def stages(self, state: State, at: int, label: Label) -> Iterator[list[tuple[int, int]]]:
        """Yield the stages that may stay below the bound, by device and end."""
        if at == self.last:
            if state in self.final:
                yield []
            return
        for turn in self.turns:
            if turn[0] == state and turn[2] == UNUSED:
                yield from self.stages(turn[1], at, label)
            elif turn[0] == state:
                for end, more in self.grown(turn, at, label):
                    for others in self.stages(turn[1], end, more):
                        yield [(turn[2], end), *others]


def labels(whole: Whole, evidence: _Given, claimed: Claimed, most: int = MANY) -> None:
    """Show that no stages of a chain have a value below the bound."""
    chain = _Chain(whole, claimed, most)
    reached: dict[State, dict[int, list[Label]]] = defaultdict(lambda: defaultdict(list))
    reached[chain.turns[0][0]][0] = [(0, 0)]
    for source, target, d in chain.turns:
        for at, known in [*reached[source].items()]:
            if d == UNUSED:
                reached[target][at] = _least(reached[target][at] + known)
            for label in known if d != UNUSED and at < chain.last else ():
                for end, more in chain.grown((source, target, d), at, label):
                    reached[target][end] = _least([*reached[target][end], more])
    if any(reached[state][chain.last] for state in chain.final):
        raise UnprovedError("some stages may have a shorter step, or fit")


def _least(labels: list[Label]) -> list[Label]:
    """Return the labels that no other one is at most as large as in both."""
    kept: list[Label] = []
    for label in sorted(labels):
        if not kept or label[1] < kept[-1][1]:
            kept.append(label)
    return kept


def left(claimed: Claimed) -> float | None:
    """Return the seconds that are left; None: no end.

    Parameters
    ----------
    claimed : Claimed
    """
    return None if math.isinf(claimed.until) else max(claimed.until - time.monotonic(), 1e-9)


def _limit(claimed: Claimed) -> int | float:
    return math.inf if claimed.bound is None else math.ceil(claimed.bound)


def _exact(values: list[Number]) -> list[Time]:
    return [value if isinstance(value, int) else Fraction(value) for value in values]


def _latencies(instance: PipelinePartition, cuts: list[int]) -> Iterator[int]:
    """Yield how long a tensor takes across each inner cut at least, in whole cycles."""
    clock = instance.cluster.clock
    ends = []
    for name, nbytes in (("send", instance.out_bytes), ("recv", instance.in_bytes)):
        links: set[Link | None] = {getattr(one, name) for one in instance.cluster.devices}
        table = getattr(instance, f"{name}_cycles")
        if table is not None:
            ends.append([math.ceil(min(column)) for column in table.T.tolist()])
        elif None in links:
            ends.append([0] * (instance.n + 1))
        else:
            paces = [(one.idle, one.GBps * 2**30 / clock) for one in links if one is not None]
            ends.append(
                [
                    min(math.ceil(idle + size / pace) for idle, pace in paces)
                    for size in nbytes.tolist()
                ]
            )
    for c in cuts[1:-1]:
        yield max(end[c] for end in ends)


# ---------------------------------------------------------------------- schedules of all stages


def schedules(whole: Whole, claimed: Claimed, most: int, leaves: int) -> Iterator[PipelineSchedule]:
    """Yield the schedules of all stages that may have a step below the bound.

    Parameters
    ----------
    whole : Whole
    claimed : Claimed
    most : int
        Stages that are looked at.
    leaves : int
        Schedules, or partitions of a graph.
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
    chain = _Chain(whole, claimed, most)
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
    """Show of the schedule of all stages that it is not shorter than the bound."""
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


def path(whole: Whole, evidence: _Given, claimed: Claimed) -> None:
    """Show that no step of a path of a graph is shorter."""
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
        fewer_stages=True,
    )
    labels(replace(whole, model=chain, path=True), {}, claimed)


# ---------------------------------------------------------------------- networks on chips


def networks(whole: Whole, evidence: _Given, claimed: Claimed) -> None:
    """Show that groups of stages cannot take less than whole networks do."""
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
    labels(replace(whole, grouped=False, rises=rises), {}, claimed)


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
