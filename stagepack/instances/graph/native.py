"""Native files of graph partitions: ``{"problem": "graph-partition", "version": 1, ...}``.

``nodes`` is a list of :class:`Node`; what they write is either in ``tensors``, a list of
:class:`Tensor`, or one output of each node, of its ``traffic``, with ``edges`` to who reads it.
All other fields are those of :class:`stagepack.instances.graph.GraphPartition`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np

from stagepack.contracts import JsonObject, Number
from stagepack.errors import InputError, suggest
from stagepack.instances.documents.lines import Items, unusual
from stagepack.instances.documents.strict import FEW
from stagepack.instances.graph.data import GraphData
from stagepack.instances.graph.instance import GraphPartition
from stagepack.instances.graph.problem import DeviceOrder, Objective
from stagepack.instances.profile import Array, Bytes
from stagepack.instances.words import Words

Amount = (
    Annotated[int, msgspec.Meta(ge=0, le=2**62)] | Annotated[float, msgspec.Meta(ge=0, le=2.0**62)]
)
Pace = Annotated[int, msgspec.Meta(gt=0, le=2**60)] | Annotated[float, msgspec.Meta(gt=0, le=1e18)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
JOB = ("objective", "microbatches", "device_order", "empty_devices", "contiguous")
GIVEN = frozenset({*JOB, "devices", "cpus", "capacity", "speed", "bandwidth", "levels"})
"""What may be said beside a file."""


class Node(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An operator.

    `id` is its name in solutions, `name` what people call it.  `time` is that on an accelerator of
    speed 1, null where it may run on none; `cpu_time` that on a CPU, likewise.  `memory` is held
    where it runs, `stash` for every microbatch in flight, `parameters` are exchanged by replicas;
    all in bytes.  Nodes of one `colour` share a device; `backward` is of the backward pass.
    `traffic` is of its one output, whose readers are in ``edges``.
    """

    id: str
    time: Amount | None = 0
    cpu_time: Amount | None = None
    memory: Bytes = 0
    stash: Bytes = 0
    parameters: Bytes = 0
    colour: Annotated[int, msgspec.Meta(ge=0, lt=2**62)] | None = None
    backward: bool = False
    traffic: Amount = 0
    name: str = ""


class Tensor(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"source": "from"}
):
    """What a node writes and others read: `traffic` where it crosses, in bytes, or as it is."""

    source: str
    to: list[str]
    traffic: Amount = 0


class Level(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A level of links: groups of `devices`, with `bandwidth` among them."""

    devices: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    bandwidth: Pace


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A graph-partition instance."""

    ELSEWHERE: ClassVar[Mapping[str, str]] = {
        "stages": "leave it out: accelerators says how many there may be"
    }

    problem: Literal["graph-partition"]
    version: Literal[1]
    nodes: Annotated[list[Node], msgspec.Meta(min_length=1)]
    tensors: list[Tensor] = []
    edges: list[tuple[str, str]] = []
    accelerators: Count
    cpus: Count = 0
    speeds: Pace | list[Pace] = 1
    capacity: Bytes | list[Bytes] | None = None
    bandwidth: Pace | list[list[Amount]] | None = None
    levels: list[Level] | None = None
    device_order: DeviceOrder = DeviceOrder.ANY
    empty_devices: bool = True
    contiguous: bool = True
    microbatches: Annotated[int, msgspec.Meta(ge=1, lt=2**31)] = 1
    objective: Objective = Objective.SUM
    time_unit: str = ""
    clock: Pace | None = None
    name: str = "graph"
    source: str = ""
    uncounted: dict[str, Bytes] = {}


def parse(document: Document, given: Words) -> GraphPartition:
    """Return the instance of a document, changed as is `given` beside it."""
    nodes = document.nodes
    place = {node.id: at for at, node in enumerate(nodes)}
    if len(place) < len(nodes):
        at = next(at for at, node in enumerate(nodes) if place[node.id] != at)
        raise InputError(
            f"{nodes[at].id!r} comes twice",
            field=f"nodes[{place[nodes[at].id]}].id",
            remedy="give every node its own",
        )
    producer, consumers, traffic = _tensors(document, place)
    fields = (
        "speeds",
        "capacity",
        "bandwidth",
        "cpus",
        "time_unit",
        "clock",
        "name",
        "source",
        "uncounted",
        *JOB,
    )
    whole: JsonObject = {
        **{field: getattr(document, field) for field in fields},
        "time": [node.time or 0 for node in nodes],
        "accelerator": [node.time is not None for node in nodes],
        "cpu_time": [node.cpu_time or 0 for node in nodes],
        "cpu": [node.cpu_time is not None for node in nodes],
        "memory": [node.memory for node in nodes],
        "stash": [node.stash for node in nodes],
        "parameters": [node.parameters for node in nodes],
        "colour": [-1 if node.colour is None else node.colour for node in nodes],
        "backward": [node.backward for node in nodes],
        "ids": [node.id for node in nodes],
        "names": [node.name for node in nodes] if any(node.name for node in nodes) else None,
        "producer": producer,
        "consumers": consumers,
        "traffic": traffic,
        "accelerators": document.accelerators,
    }
    if document.levels is not None:
        whole["levels"] = [(level.devices, level.bandwidth) for level in document.levels]
    return GraphPartition.from_arrays(**{**whole, **changes(given, whole)})


def changes(given: Words, known: Words) -> JsonObject:
    """Return what was said beside a file as arguments of a constructor; `known` are in the file.

    Refuses another number of devices where the file tells them apart.
    """
    found = {name: given[name] for name in (*JOB, "cpus", "capacity", "bandwidth") if name in given}
    if "bandwidth" in given:
        found["levels"] = None
    if "levels" in given:
        found |= {"bandwidth": found.get("bandwidth"), "levels": _pairs(given["levels"])}
    if "speed" in given:
        found["speeds"] = given["speed"] if len(given["speed"]) > 1 else given["speed"][0]
    if "devices" in given:
        found["accelerators"] = given["devices"]
        for name in ("speeds", "capacity", "bandwidth"):
            if isinstance({**known, **found}.get(name), list) and name not in found:
                raise InputError(
                    "tells devices apart, so that their number is as it is",
                    field=name,
                    remedy="leave out --devices",
                )
    return found


def _pairs(figures: list[Number]) -> list[tuple[int, Number]]:
    """Return the levels that are said as numbers in a row."""
    counts, paces = figures[::2], figures[1::2]
    if len(counts) != len(paces) or any(count != int(count) for count in counts):
        raise InputError(
            "are no pairs of a number of devices and a bandwidth",
            field="levels",
            remedy="write 4,100,2,10: 100 within four devices, 10 between two such groups",
        )
    return [(int(count), pace) for count, pace in zip(counts, paces, strict=True)]


def _tensors(
    document: Document, place: Mapping[str, int]
) -> tuple[list[int], list[list[int]], list[Any]]:
    """Return producers, readers and traffic of the tensors, and of what edges lead from."""
    readers: dict[int, list[int]] = {}
    for at, (source, target) in enumerate(document.edges):
        _require(place, source, f"edges[{at}][0]")
        _require(place, target, f"edges[{at}][1]", apart_from=source)
        readers.setdefault(place[source], []).append(place[target])
    for at, tensor in enumerate(document.tensors):
        _require(place, tensor.source, f"tensors[{at}].from")
        for which, reader in enumerate(tensor.to):
            _require(place, reader, f"tensors[{at}].to[{which}]", apart_from=tensor.source)
    tensors = document.tensors
    return (
        [*readers, *(place[tensor.source] for tensor in tensors)],
        [*readers.values(), *([place[reader] for reader in tensor.to] for tensor in tensors)],
        [*(document.nodes[u].traffic for u in readers), *(tensor.traffic for tensor in tensors)],
    )


def _require(
    place: Mapping[str, int], node: str, field: str, apart_from: str | None = None
) -> None:
    """Refuse what is no node, and a node that would read what it writes."""
    if node not in place:
        few = len(place) <= FEW
        remedy = suggest(node, place) if few else "name one of nodes"
        raise InputError(f"there is no node {node[:40]!r}", field=field, remedy=remedy)
    if node == apart_from:
        raise InputError(f"node {node[:40]!r} reads itself", field=field, remedy="leave it out")


def dump(instance: GraphData) -> JsonObject:
    """Return what the document of an instance says: a node or tensor a line, defaults left out."""
    bandwidth = instance.bandwidth
    return {
        **unusual(instance, Document, ("time_unit", "clock", "cpus", "uncounted", *JOB)),
        "objective": instance.objective,
        "accelerators": instance.accelerators,
        "speeds": _one(instance.speeds, 1),
        "capacity": None if instance.capacity is None else _one(instance.capacity),
        "bandwidth": bandwidth if isinstance(bandwidth, np.ndarray) or bandwidth != 1 else None,
        "nodes": Items(_nodes(instance)),
        "tensors": Items(_written(instance)),
    }


def _one(figures: Array, usual: int | None = None) -> Any:
    """Return figures, one where all are the same, None for none or the usual one."""
    known = set(figures.tolist())
    if len(known) > 1:
        return figures
    return next((value for value in known if value != usual), None)


def _nodes(instance: GraphData) -> Iterator[JsonObject]:
    ids = instance.ids or map(str, range(instance.n))
    names = instance.names or ("",) * instance.n
    time = _unless(instance.time, instance.accelerator)
    cpu_time = _unless(instance.cpu_time, instance.cpu)
    columns = (instance.memory, instance.stash, instance.parameters, instance.colour)
    rows = zip(*(column.tolist() for column in columns), instance.backward.tolist(), strict=True)
    for one, name, on_accelerator, on_cpu, row in zip(
        ids, names, time, cpu_time, rows, strict=True
    ):
        memory, stash, parameters, colour, backward = row
        said = {
            "cpu_time": on_cpu,
            "memory": memory or None,
            "stash": stash or None,
            "parameters": parameters or None,
            "colour": colour if colour >= 0 else None,
            "backward": backward or None,
            "name": name or None,
        }
        found: JsonObject = {"id": one, "time": on_accelerator}
        yield found | {key: value for key, value in said.items() if value is not None}


def _unless(figures: Array, allowed: Array) -> Iterable[Any]:
    """Return figures, None where they are not allowed."""
    pairs = zip(figures.tolist(), allowed.tolist(), strict=True)
    return [figure if may else None for figure, may in pairs]


def _written(instance: GraphData) -> Iterator[JsonObject]:
    ids = instance.ids or tuple(map(str, range(instance.n)))
    readers = instance.consumers.tolist()
    ends = instance.consumer_ptr.tolist()
    for at, (source, traffic) in enumerate(
        zip(instance.producer.tolist(), instance.traffic.tolist(), strict=True)
    ):
        to = [ids[reader] for reader in readers[ends[at] : ends[at + 1]]]
        yield {"from": ids[source], "to": to, "traffic": traffic}
