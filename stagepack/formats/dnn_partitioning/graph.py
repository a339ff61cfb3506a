"""Operator graphs of *dnn-partitioning*: JSON with ``nodes``, ``edges`` and a number of devices.

The format (github.com/msr-fiddle/dnn-partitioning, *Efficient Algorithms for Device Placement of
DNN Graph Operators*, NeurIPS 2020): ``maxFPGAs`` accelerators with ``maxSizePerFPGA`` bytes each,
``maxCPUs`` CPUs; a node has ``id``, ``fpgaLatency``, ``cpuLatency``, ``size``, ``isBackwardNode``,
``supportedOnFpga`` and perhaps a ``colorClass``, whose nodes share a device; an edge leads from
``sourceId`` to ``destId`` and has a ``cost``, that of the one tensor of its source.

What becomes of it: the load of an accelerator is the time of its nodes and, once for each node with
an edge across its boundary, the cost of that; a CPU computes alone; devices may stay empty.  Nodes
are called by their ids.  Its latency inputs are files of the same format, to be solved for the
objective ``latency``.  Whatever else nodes and edges say (``layerId``, ``size`` of edges) is left
out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import numpy as np

from stagepack.contracts import JsonObject
from stagepack.errors import InputError, suggest
from stagepack.formats.known import stem_of
from stagepack.instances.documents import strict
from stagepack.instances.documents.lines import Items, lines
from stagepack.instances.graph import KIND, GraphPartition
from stagepack.instances.graph.native import GIVEN, Amount, changes
from stagepack.instances.words import Words

Id = int | str
Flag = bool | Annotated[int, msgspec.Meta(ge=0, le=1)]


class Node(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An operator."""

    id: Id
    name: str = ""
    fpga_latency: Amount | None
    cpu_latency: Amount | None = None
    supported_on_fpga: Flag = True
    is_backward_node: Flag = False
    color_class: Annotated[int, msgspec.Meta(ge=0, lt=2**62)] | None = None
    size: Amount = 0


class Edge(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who reads the tensor of whom."""

    source_id: Id
    dest_id: Id
    cost: Amount = 0


class Document(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"accelerators": "maxFPGAs", "cpus": "maxCPUs", "capacity": "maxSizePerFPGA"},
):
    """A graph and its devices."""

    accelerators: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    cpus: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] = 0
    capacity: Amount | None = None
    nodes: Annotated[list[Node], msgspec.Meta(min_length=1)]
    edges: list[Edge]


def parse(data: bytes, given: Words, file: str) -> list[GraphPartition]:
    """Return the one instance of a file, named after it."""
    document = strict.decode(data, Document)
    nodes = document.nodes
    place = {node.id: at for at, node in enumerate(nodes)}
    if len(place) < len(nodes):
        at = next(at for at, node in enumerate(nodes) if place[node.id] != at)
        where = f"nodes[{place[nodes[at].id]}].id"
        raise InputError(f"{nodes[at].id!r} comes twice", field=where, remedy="number the nodes")
    edges, cost = _edges(document, place)
    capacity = document.capacity
    whole: JsonObject = {
        "time": [node.fpga_latency or 0 for node in nodes],
        "accelerator": [
            bool(node.supported_on_fpga) and node.fpga_latency is not None for node in nodes
        ],
        "cpu_time": [node.cpu_latency or 0 for node in nodes],
        "cpu": [node.cpu_latency is not None for node in nodes],
        "memory": [math.ceil(node.size) for node in nodes],
        "backward": [bool(node.is_backward_node) for node in nodes],
        "colour": [-1 if node.color_class is None else node.color_class for node in nodes],
        "traffic": cost,
        "ids": [str(node.id) for node in nodes],
        "names": [node.name for node in nodes],
        "accelerators": document.accelerators,
        "cpus": document.cpus,
        "capacity": None if capacity is None else math.floor(capacity),
    }
    whole |= changes(given, whole)
    return [GraphPartition.from_edges(len(nodes), edges, name=stem_of(file), source=file, **whole)]


def _edges(document: Document, place: Mapping[Id, int]) -> tuple[list[tuple[int, int]], list[Any]]:
    """Return the edges, and of every node what its tensor costs."""
    cost: list[Any] = [0] * len(place)
    said: dict[int, int] = {}
    found = []
    for at, edge in enumerate(document.edges):
        for field, node in (("sourceId", edge.source_id), ("destId", edge.dest_id)):
            if node not in place:
                few = len(place) <= strict.FEW
                remedy = suggest(str(node), map(str, place)) if few else "name one of nodes"
                raise InputError(
                    f"there is no node {str(node)[:40]!r}",
                    field=f"edges[{at}].{field}",
                    remedy=remedy,
                )
        u, v = place[edge.source_id], place[edge.dest_id]
        if u == v:
            raise InputError(
                f"leads from node {edge.source_id} to itself",
                field=f"edges[{at}]",
                remedy="leave it out",
            )
        first = said.setdefault(u, at)
        if edge.cost != document.edges[first].cost:
            raise InputError(
                f"is {edge.cost}, but edges[{first}] says {document.edges[first].cost} of the "
                f"same tensor, that of node {edge.source_id}",
                field=f"edges[{at}].cost",
                remedy="give all edges from one node one cost",
            )
        cost[u] = edge.cost
        found.append((u, v))
    return found, cost


def dump(instance: GraphPartition, file: str) -> bytes:
    """Return the file of an instance whose nodes have one tensor each, on accelerators alike."""
    del file
    _require_plain(instance)
    ids = _numbers(instance)
    cost = np.zeros(instance.n)
    cost[instance.producer] = instance.traffic / instance.bandwidth
    speed = float(instance.speeds[0]) if instance.accelerators else 1.0
    capacity = instance.capacity
    nodes = [
        {
            "id": ids[at],
            "name": instance.node_id(at) if instance.names is None else instance.names[at],
            "fpgaLatency": float(instance.time[at]) / speed,
            "cpuLatency": float(instance.cpu_time[at]) if instance.cpu[at] else None,
            "supportedOnFpga": bool(instance.accelerator[at]),
            "isBackwardNode": bool(instance.backward[at]),
            "colorClass": int(instance.colour[at]) if instance.colour[at] >= 0 else None,
            "size": int(instance.memory[at]),
        }
        for at in range(instance.n)
    ]
    edges = [
        {"sourceId": ids[u], "destId": ids[v], "cost": cost[u]} for u, v in instance.edges.tolist()
    ]
    limit = int(instance.memory.sum()) if capacity is None else int(capacity[0])
    head = {
        "maxSizePerFPGA": limit,
        "maxFPGAs": instance.accelerators,
        "maxCPUs": instance.cpus,
    }
    return lines({**head, "nodes": Items(nodes), "edges": Items(edges)}).encode() + b"\n"


def _require_plain(instance: GraphPartition) -> None:
    """Refuse an instance that the format cannot say."""
    unlike = instance.capacity is not None and len(set(instance.capacity.tolist())) > 1
    wrong = {
        "objective": instance.objective != "sum",
        "contiguous": not instance.contiguous,
        "empty_devices": not instance.empty_devices,
        "device_order": instance.device_order != "any",
        "speeds": len(set(instance.speeds.tolist())) > 1,
        "capacity": unlike,
        "bandwidth": not instance.uniform,
        "stash": bool(instance.stash.any()),
        "producer": len(set(instance.producer.tolist())) < len(instance.producer),
    }
    for field, cannot in wrong.items():
        if cannot:
            raise InputError(
                "is nothing that dnn-partitioning files can say",
                field=field,
                remedy="write a native file",
            )


def _numbers(instance: GraphPartition) -> list[int]:
    """Return ids as the integers that they are, or those of the nodes."""
    ids = instance.ids or ()
    if ids and all(one.isascii() and one.isdigit() and str(int(one)) == one for one in ids):
        return [int(one) for one in ids]
    return list(range(instance.n))


CONTEXTS = {KIND: GIVEN}
