"""Evaluates and checks graph partitions, directly from the definitions.

Sums of integers are exact, sums of fractions up to rounding.  No algorithm uses this code.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, pairwise
from typing import assert_never

import numpy as np

from stagepack.contracts import Number
from stagepack.instances import joining
from stagepack.instances.arrays import distinct
from stagepack.instances.graph.data import GraphData, GraphSolution
from stagepack.instances.graph.problem import DeviceOrder, Objective
from stagepack.instances.profile import Array
from stagepack.instances.violation import Violation
from stagepack.shown import some

SHOWN = 10  # violations of a rule that are told one by one
Exactly = Number | Fraction


@dataclass(frozen=True)
class Load:
    """What a device does for one sample; times are fractions where they are exact.

    A CPU waits for no traffic; `memory` is bytes.  `replicas` are devices that share this work:
    times are those of each.
    """

    device: int
    stage: int
    nodes: int
    time: Exactly
    received: Exactly
    sent: Exactly
    memory: int
    replicas: int = 1

    @property
    def sum(self) -> Exactly:
        """Computing and communicating one after the other."""
        return self.time + self.received + self.sent

    @property
    def overlap(self) -> Exactly:
        """All at once."""
        return max(self.time, self.received, self.sent)


def evaluate(instance: GraphData, solution: GraphSolution) -> Number:
    """Return the objective value of a `solution`, an int whenever it is integral.

    O((n + edges) log(edges)).
    """
    value: Exactly
    match instance.objective:
        case Objective.MEMORY:
            value = max(load.memory for load in loads(instance, solution))
        case Objective.SUM:
            value = max(load.sum for load in loads(instance, solution))
        case Objective.FORWARD_BACKWARD:
            value = sum(
                max((load.sum for load in loads(instance, solution, backward)), default=0)
                for backward in (False, True)
            )
        case Objective.OVERLAP | Objective.REPLICATED:
            value = max(load.overlap for load in loads(instance, solution))
        case Objective.LATENCY:
            value = max(finishes(instance, solution).values())
        case unknown:
            assert_never(unknown)
    return plain(value)


def finishes(instance: GraphData, solution: GraphSolution) -> dict[int, Exactly]:
    """Return when each accelerator that holds nodes ends, and each node of a CPU, in their order.

    An accelerator is known by its number, a node by its own after those of all devices.  Where some
    wait for one another, it is one after the other: what that would take at most.
    """
    groups, pairs = _groups(instance, solution), _quotient(instance, solution)
    names = distinct(groups).tolist()
    load = {one.device: one.sum for one in loads(instance, solution)}
    k = instance.devices
    before: dict[int, list[int]] = {name: [] for name in names}
    order = _sorted(names, pairs)
    if order is None:
        order, pairs = names, list(pairwise(names))
    for a, b in pairs:
        before[b].append(a)
    found: dict[int, Exactly] = {}
    for name in order:
        time = load[name] if name < k else instance.cpu_time[name - k].item()
        found[name] = max((found[a] for a in before[name]), default=0) + _exactly(time)
    return found


def _exactly(time: Exactly) -> Exactly:
    return Fraction(time) if isinstance(time, int) else time


def loads(instance: GraphData, solution: GraphSolution, backward: bool | None = None) -> list[Load]:
    """Return what each device that holds nodes does, in the order of stages.

    `backward` counts one pass alone: its nodes, and the tensors that they write.
    """
    devices = solution.assignment
    order = stage_order(instance, solution)
    everything = backward is None
    nodes = np.ones(instance.n, dtype=bool) if everything else instance.backward == backward
    tensors = nodes[instance.producer]
    on_cpu = devices >= instance.accelerators
    time = _sums(instance.time, devices, nodes & ~on_cpu)
    cpu_time = _sums(instance.cpu_time, devices, nodes & on_cpu)
    received, sent = _traffic(instance, devices, tensors)
    held = _sums(instance.memory, devices)
    stash = _sums(instance.stash, devices)
    exchanged = _sums(instance.parameters, devices)
    counts = Counter(devices.tolist())
    found = []
    for stage, device in enumerate(order):
        m = solution.replicas[stage] if solution.replicas else 1
        flying = min(instance.microbatches, len(order) - stage)
        compute: Exactly = cpu_time.get(device, 0)
        if device < instance.accelerators:
            compute = _divided(time.get(device, 0), instance.speeds[device].item())
        if m > 1:
            assert not isinstance(instance.bandwidth, np.ndarray)
            exchange = _divided(4 * (m - 1) * exchanged[device], instance.bandwidth)
            compute = _shared(compute + _shared(exchange, m), m)
        found.append(
            Load(
                device=device,
                stage=stage,
                nodes=counts[device],
                time=compute,
                received=_shared(received.get(device, 0), m),
                sent=_shared(sent.get(device, 0), m),
                memory=int(held[device]) + flying * int(stash[device]),
                replicas=m,
            )
        )
    return found


def _traffic(
    instance: GraphData, devices: Array, counted: Array
) -> tuple[dict[int, Exactly], dict[int, Exactly]]:
    """Return the time in which each accelerator receives, and sends, what crosses its boundary.

    A tensor is received once by every other device that reads it, and sent once, at the pace of
    the slowest of these.
    """
    tensor = np.repeat(np.arange(len(instance.producer)), np.diff(instance.consumer_ptr))
    source, target = devices[instance.producer[tensor]], devices[instance.consumers]
    crossing = np.flatnonzero((source != target) & counted[tensor])
    k = instance.devices
    pairs = distinct(tensor[crossing] * k + target[crossing])
    tensor, target = pairs // k, pairs % k
    source = devices[instance.producer[tensor]]
    if isinstance(instance.bandwidth, np.ndarray):
        pace = instance.bandwidth[source, target]
        slowest_first = np.lexsort((target, pace, tensor))
        tensor, source, target = (a[slowest_first] for a in (tensor, source, target))
    _, first = np.unique(tensor, return_index=True)
    received = _link_times(instance, tensor, source * k + target)
    sent = _link_times(instance, tensor[first], source[first] * k + target[first])
    into: dict[int, Exactly] = {}
    out: dict[int, Exactly] = {}
    for pair, time in received.items():
        into[pair % k] = into.get(pair % k, 0) + time
    for pair, time in sent.items():
        out[pair // k] = out.get(pair // k, 0) + time
    paying = range(instance.accelerators)
    return {d: into[d] for d in into if d in paying}, {d: out[d] for d in out if d in paying}


def _link_times(instance: GraphData, tensor: Array, link: Array) -> dict[int, Exactly]:
    """Return the time of the tensors on each link, which is source * devices + target."""
    bandwidth, k = instance.bandwidth, instance.devices
    found = {}
    for at, amount in _sums(instance.traffic[tensor], link).items():
        pace = bandwidth[at // k, at % k].item() if isinstance(bandwidth, np.ndarray) else bandwidth
        found[at] = _divided(amount, pace)
    return found


def _sums(values: Array, groups: Array, counted: Array | None = None) -> dict[int, Number]:
    """Return the sum of the values of each group that has any: exact, or rounded once."""
    if counted is not None:
        values, groups = values[counted], groups[counted]
    order = np.argsort(groups, kind="stable")
    values, groups = values[order], groups[order]
    names, first = np.unique(groups, return_index=True)
    total: Iterable[Number]
    if values.dtype.kind == "i":
        total = np.add.reduceat(values, first).tolist() if len(first) else ()
    else:
        total = (math.fsum(part.tolist()) for part in np.split(values, first[1:]))
    return dict(zip(names.tolist(), total, strict=False))


def _divided(amount: Number, pace: Number) -> Exactly:
    """Return an amount over a pace, a Fraction where the amount is an integer."""
    if isinstance(amount, int):
        return Fraction(amount) / Fraction(str(pace))
    return amount / pace


def _shared(amount: Exactly, devices: int) -> Exactly:
    return amount if devices == 1 else amount / devices


def plain(value: Exactly) -> Number:
    """Return a Fraction, int or float as an int when it is one, else as a float."""
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else float(value)
    return int(value) if isinstance(value, int) else float(value)


def shape(instance: GraphData, solution: GraphSolution) -> tuple[Violation, ...]:
    """Return why there are no stages to speak of: ``assignment``, ``order``, ``replicas``."""
    devices, k = solution.assignment, instance.devices
    if devices.shape != (instance.n,):
        detail = f"{len(devices):,} devices for {instance.n:,} nodes"
        return (Violation("assignment", detail),)
    wrong = (devices < 0) | (devices >= k)
    if wrong.any():
        at = int(np.argmax(wrong))
        detail = f"node {instance.node_name(at)} on device {devices[at]}, of 0..{k - 1:,}"
        return (Violation("assignment", detail),)
    used = distinct(devices).tolist()
    if solution.order and sorted(solution.order) != used:
        detail = f"[{some(solution.order)}] does not name each device with nodes once: {some(used)}"
        return (Violation("order", detail),)
    if solution.replicas and len(solution.replicas) != len(used):
        detail = f"{len(solution.replicas):,} numbers for {len(used):,} stages"
        return (Violation("replicas", detail),)
    if min(solution.replicas, default=1) < 1:
        return (Violation("replicas", "a stage runs on at least one device"),)
    return ()


def check(instance: GraphData, solution: GraphSolution) -> tuple[Violation, ...]:
    """Return every rule that `solution` breaks, by name; () when it is valid.

    The names: those of :func:`shape`; ``device`` (a node where it may not run), ``colour`` (nodes
    of one colour apart), ``contiguity`` (a stage that is both before and after another, or out of
    order), ``order`` (stages are not in the order of the devices), ``empty`` (a device without
    nodes), ``replicas`` (more devices than there are, or none may be shared), ``capacity``.
    O((n + edges) log(edges)).
    """
    found = shape(instance, solution)
    if found:
        return found
    rules = {
        "device": _misplaced(instance, solution),
        "colour": _torn(instance, solution),
        "contiguity": _tangled(instance, solution),
        "order": _disordered(instance, solution),
        "empty": _empty(instance, solution),
        "replicas": _too_many(instance, solution),
        "capacity": _overfull(instance, solution),
    }
    return tuple(violation for rule in rules for violation in _some(rule, rules[rule]))


def _some(rule: str, details: Iterator[str]) -> Iterator[Violation]:
    """Yield the first violations of a rule, and how many more there are."""
    yield from (Violation(rule, detail) for detail in islice(details, SHOWN))
    more = sum(1 for _ in details)
    if more:
        yield Violation(rule, f"and {more:,} more of this kind")


def _misplaced(instance: GraphData, solution: GraphSolution) -> Iterator[str]:
    devices = solution.assignment
    allowed = np.where(devices < instance.accelerators, instance.accelerator, instance.cpu)
    for at in np.flatnonzero(~allowed).tolist():
        kind = "accelerator" if devices[at] < instance.accelerators else "CPU"
        name = instance.device_name(int(devices[at]))
        yield f"node {instance.node_name(at)} may run on no {kind}, but is on {name}"


def _torn(instance: GraphData, solution: GraphSolution) -> Iterator[str]:
    """Yield colours of which nodes are on several devices."""
    order = np.argsort(instance.colour, kind="stable")
    colour, device = instance.colour[order], solution.assignment[order]
    torn = (colour[1:] == colour[:-1]) & (device[1:] != device[:-1]) & (colour[1:] >= 0)
    _, first = np.unique(colour[1:][torn], return_index=True)
    for at in np.flatnonzero(torn)[first].tolist():
        ends = (instance.node_name(int(order[at + j])) for j in (0, 1))
        where = (instance.device_name(int(device[at + j])) for j in (0, 1))
        (u, v), (a, b) = ends, where
        yield f"nodes {u} and {v}, of colour {colour[at]}, are on {a} and {b}"


def _tangled(instance: GraphData, solution: GraphSolution) -> Iterator[str]:
    """Yield edges against the order of stages or, where none is said, a circle of devices."""
    if not instance.contiguous:
        return
    edges, devices = instance.precedence, solution.assignment
    apart = instance.objective == Objective.LATENCY
    if apart:  # on CPUs, every node has a place of its own
        edges = edges[(devices[edges] < instance.accelerators).all(axis=1)]
    if solution.order or instance.device_order == DeviceOrder.FIXED:
        stage = np.empty(instance.devices, dtype=np.int64)
        order = stage_order(instance, solution)
        stage[order] = np.arange(len(order))
        for at in np.flatnonzero(stage[devices[edges[:, 0]]] > stage[devices[edges[:, 1]]]):
            u, v = (instance.node_name(int(node)) for node in edges[at])
            a, b = (instance.device_name(int(devices[node])) for node in edges[at])
            yield f"{u} is before {v}, but its {a} is after {b}"
        if not apart:
            return
    pairs = _quotient(instance, solution)
    if _sorted(distinct(_groups(instance, solution)).tolist(), pairs) is None:
        circle = joining.circle(pairs)
        k = instance.devices
        names = (
            instance.device_name(at) if at < k else f"node {instance.node_name(at - k)}"
            for at in [*circle, circle[0]]
        )
        yield f"devices wait for one another: {' -> '.join(islice(names, 2 * SHOWN))}"


def _disordered(instance: GraphData, solution: GraphSolution) -> Iterator[str]:
    fixed = instance.device_order == DeviceOrder.FIXED
    if fixed and list(solution.order) != sorted(solution.order):
        yield f"[{some(solution.order)}] is not the order of the devices"


def _empty(instance: GraphData, solution: GraphSolution) -> Iterator[str]:
    if instance.empty_devices:
        return
    if instance.objective == Objective.REPLICATED:
        used = sum(solution.replicas) if solution.replicas else len(set(solution.assignment))
        if used < instance.devices:
            yield f"{used:,} of {instance.devices:,} devices used"
        return
    used_devices = set(solution.assignment.tolist())
    yield from (
        f"{instance.device_name(device)} has no nodes"
        for device in range(instance.devices)
        if device not in used_devices
    )


def _too_many(instance: GraphData, solution: GraphSolution) -> Iterator[str]:
    if not solution.replicas:
        return
    if instance.objective != Objective.REPLICATED and max(solution.replicas) > 1:
        yield f"stages run on one device each where the objective is {instance.objective}"
    elif sum(solution.replicas) > instance.devices:
        yield f"{sum(solution.replicas):,} devices, of {instance.devices:,}"


def _overfull(instance: GraphData, solution: GraphSolution) -> Iterator[str]:
    if instance.capacity is None:
        return
    for load in loads(instance, solution):
        if load.device >= instance.accelerators:
            continue
        capacity = int(instance.capacity[load.device])
        if load.memory > capacity:
            name = instance.device_name(load.device)
            over = load.memory - capacity
            yield f"{name} needs {load.memory:,} bytes of {capacity:,}: {over:,} too many"


def stage_order(instance: GraphData, solution: GraphSolution) -> list[int]:
    """Return the devices that hold nodes, in the order of their stages.

    As the solution says; else by their numbers or, where stages may be on any devices but follow
    one another, as the graph says, the lowest number first where it leaves a choice.
    """
    if solution.order:
        return list(solution.order)
    used: list[int] = distinct(solution.assignment).tolist()
    if instance.device_order == DeviceOrder.FIXED or not instance.contiguous:
        return used
    groups = distinct(_groups(instance, solution)).tolist()
    found = _sorted(groups, _quotient(instance, solution))
    if found is None or instance.objective != Objective.LATENCY:
        return found or used
    k, devices = instance.devices, solution.assignment.tolist()
    return list(dict.fromkeys(at if at < k else devices[at - k] for at in found))


def _groups(instance: GraphData, solution: GraphSolution) -> Array:
    """Return of each node its device; for `latency`, on a CPU a number of its own after these."""
    devices = solution.assignment
    if instance.objective != Objective.LATENCY:
        return devices
    alone = instance.devices + np.arange(instance.n)
    return np.where(devices < instance.accelerators, devices, alone)


def _quotient(instance: GraphData, solution: GraphSolution) -> list[tuple[int, int]]:
    """Return the pairs of devices (a, b) of which a has to be before b; see :func:`_groups`."""
    groups = _groups(instance, solution)
    u, v = groups[instance.precedence].T
    k = int(groups.max()) + 1
    pairs = distinct((u * k + v)[u != v])
    return list(zip((pairs // k).tolist(), (pairs % k).tolist(), strict=True))


def _sorted(devices: list[int], pairs: list[tuple[int, int]]) -> list[int] | None:
    """Return devices in topological order, the lowest first; None where there is a circle."""
    after: dict[int, list[int]] = {device: [] for device in devices}
    waiting = dict.fromkeys(devices, 0)
    for a, b in pairs:
        after[a].append(b)
        waiting[b] += 1
    ready = [device for device in devices if not waiting[device]]
    heapq.heapify(ready)
    order = []
    while ready:
        order.append(heapq.heappop(ready))
        for b in after[order[-1]]:
            waiting[b] -= 1
            if not waiting[b]:
                heapq.heappush(ready, b)
    return order if len(order) == len(devices) else None
