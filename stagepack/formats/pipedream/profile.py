r"""PipeDream profiles (``graph.txt``), read as a chain of layers, or as the graph that they are.

The format (github.com/msr-fiddle/pipedream, *PipeDream: Generalized Pipeline Parallelism for DNN
Training*, SOSP 2019): a line for each operator ::

    id -- description -- forward_compute_time=ms, backward_compute_time=ms,
        activation_size=bytes or [a; b; c], parameter_size=bytes

(in one line, optionally followed by `` -- stage_id=s``, which is ignored), and for each edge a
line of a tab and ``id1 -- id2``.

What becomes of it as a chain, ``pipeline-partition``:

- ``Input*`` nodes and their edges are dropped, then ``__getitem__`` nodes that nobody uses.
- The chain follows a topological order: with ``order="file"`` that of Kahn's algorithm, ties by id
  with numbers compared as numbers; with ``order="best"``, the default, the best of that one and
  some dozens of others (:mod:`stagepack.instances.pipeline.orders`), always the same for one file.
- A scalar activation is one tensor.  Each element of a list is a tensor of its own: a
  ``__getitem__(j)`` node uses element j, every other consumer all of them.  A tensor that crosses
  a cut counts once there, however many consumers it has; the last layer's output returns to the
  host.
- Memory: ``parameters``, always alive (training adds as many bytes of ``gradients``); while a
  layer runs, its inputs and outputs (``temporary``) and the tensors that pass by (``carry``; an
  input that is used again later counts in both, never too little); for the backward pass its
  outputs (``stash``).
- Times: in microseconds (``unit="us"``), rounded per layer so that forward + backward is the
  rounded sum; the files have three decimals of a millisecond, so nothing is lost.  ``"ns"`` rounds
  to nanoseconds, ``"ms"`` keeps floats.  The cluster's clock is that unit, so that bandwidths
  remain GB/s.

As a graph, ``graph-partition``, which is how it is read unless the chain is asked for: the same
nodes, tensors and times, and no order.  Unless an objective is named, training is declined, or
devices or links differ, the question is PipeDream's own: training with the objective
``replicated``.  Any other objective is of inference where ``training`` is not said.
Training adds forward and backward time, bytes of gradients, stashed outputs, and counts traffic
twice: what goes forward comes back as a gradient.  Under ``forward+backward``, which is of
training, every operator is two nodes of one colour instead, ``id`` and ``id.backward``, each with
its own time and traffic counted once: a gradient comes back from each reader of what was read.
``bandwidth`` is needed, unless bytes alone are the objective.

Devices are not in the file: they must be given beside it: ``devices`` or, for a chain, ``cluster``.
"""

from __future__ import annotations

import heapq
import logging
import re
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from graphlib import CycleError, TopologicalSorter

from stagepack.contracts import JsonObject, Number
from stagepack.errors import InputError
from stagepack.formats.known import stem_of
from stagepack.instances import clusters
from stagepack.instances.documents import strict
from stagepack.instances.graph import KIND as GRAPH
from stagepack.instances.graph import GraphPartition
from stagepack.instances.graph.native import GIVEN as GRAPH_GIVEN
from stagepack.instances.graph.native import changes
from stagepack.instances.graph.profiled import uncounted
from stagepack.instances.pipeline import KIND, PipelinePartition
from stagepack.instances.pipeline.native import GIVEN, job
from stagepack.instances.problem import VOCABULARY
from stagepack.instances.profile import LayerProfile, Lifetimes, ModelProfile
from stagepack.instances.words import LARGEST, Words

log = logging.getLogger("stagepack")
NODE = re.compile(r"(\S+) -- (.*) -- (forward_compute_time=.*?)(?: -- stage_id=[-\w]*)?")
NUMBER = re.compile(r"[0-9]{1,25}(\.[0-9]{0,25})?([eE][+-]?[0-9]{1,2})?")
GETITEM = re.compile(r"__getitem__\((-?[0-9]{1,9})\)")
FIELDS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
CLOCK = {"us": 1_000_000, "ms": 1_000, "ns": 1_000_000_000}
LINE = "write id -- description -- " + ", ".join(f"{name}=..." for name in FIELDS)


@dataclass
class Node:
    """One operator: times in ms, sizes in bytes, its neighbours by id."""

    id: str
    description: str
    line: int
    forward: Decimal
    backward: Decimal
    sizes: list[int]
    listed: bool
    parameters: int
    sources: list[str] = field(default_factory=list)
    users: list[str] = field(default_factory=list)

    @property
    def tensors(self) -> list[str]:
        """Names of its output tensors."""
        if not self.listed:
            return [self.id]
        return [f"{self.id}[{j}]" for j in range(len(self.sizes))]


def parse(data: bytes, given: Words, file: str) -> list[PipelinePartition]:
    """Return the one instance of a profile, named after its file."""
    unit = given.get("unit", "us")
    cluster = clusters.asked(given, CLOCK[unit])
    nodes = _in_order(_pruned(_read_nodes(strict.text(data))))
    profile = _chain(nodes, unit, training=given.get("training", False))
    name = stem_of(file).removesuffix("_graph")

    def build(profile: ModelProfile) -> PipelinePartition:
        return PipelinePartition.from_profile(
            profile, cluster, name=name, source=file, **job(given)
        )

    if given.get("order") == "file":
        return [build(profile)]
    from stagepack.instances.pipeline.orders import best_order  # it loads compiled kernels

    return [best_order(profile, build)]


def _read_nodes(text: str) -> dict[str, Node]:
    """Return the operators of a profile by id, joined by their edges."""
    nodes: dict[str, Node] = {}
    edges: list[tuple[int, str]] = []
    for number, line in enumerate(text.split("\n"), 1):
        row = line.rstrip()
        if not row:
            continue
        if row.startswith("\t"):
            edges.append((number, row.strip()))
            continue
        node = _node(number, row)
        if node.id in nodes:
            raise _at(number, f"node {node.id!r} is given twice (line {nodes[node.id].line})")
        nodes[node.id] = node
    for number, row in edges:
        ends = row.split(" -- ")
        if len(ends) != 2:
            raise _at(number, "is not an edge", "write a tab, then id1 -- id2")
        for end in ends:
            if end not in nodes:
                raise _at(number, f"unknown node {end[:40]!r}", "name a node of the file")
        source, user = nodes[ends[0]], nodes[ends[1]]
        if user.id not in source.users:
            source.users.append(user.id)
            user.sources.append(source.id)
    return nodes


def _node(number: int, row: str) -> Node:
    found = NODE.fullmatch(row)
    if found is None:
        raise _at(number, f"{row[:40]!r} is not an operator", LINE)
    values: dict[str, str] = {}
    for entry in found[3].split(","):
        name, equals, value = entry.strip().partition("=")
        if not equals or name not in FIELDS or name in values:
            raise _at(number, f"{entry.strip()[:40]!r} is not one field of {FIELDS}", LINE)
        values[name] = value
    for name in FIELDS:
        if name not in values:
            raise _at(number, f"{name} is missing", LINE)
    sizes = values["activation_size"]
    listed = sizes.startswith("[") and sizes.endswith("]")
    items = sizes[1:-1].split(";") if listed else [sizes]
    return Node(
        id=found[1],
        description=found[2],
        line=number,
        forward=_number(number, "forward_compute_time", values["forward_compute_time"]),
        backward=_number(number, "backward_compute_time", values["backward_compute_time"]),
        sizes=[_bytes(number, "activation_size", item.strip()) for item in items],
        listed=listed,
        parameters=_bytes(number, "parameter_size", values["parameter_size"]),
    )


def _number(line: int, name: str, text: str) -> Decimal:
    if not NUMBER.fullmatch(text):
        raise _at(line, f"{name} is {text[:40]!r}", "give a finite number >= 0")
    value = Decimal(text)
    if value >= LARGEST:
        raise _at(line, f"{name} is {text[:40]}", "give a number below 2**62")
    return value


def _bytes(line: int, name: str, text: str) -> int:
    value = _number(line, name, text)
    if value != int(value):
        raise _at(line, f"{name} is {text}, not whole bytes", "give integers")
    return int(value)


def _pruned(nodes: dict[str, Node]) -> dict[str, Node]:
    """Drop the inputs, then the ``__getitem__`` nodes that nobody uses."""
    doomed = [node for node in nodes.values() if node.description.startswith("Input")]
    kept = dict(nodes)
    while doomed:
        for node in doomed:
            del kept[node.id]
            for source in node.sources:
                if source in kept:
                    kept[source].users.remove(node.id)
            for user in node.users:
                if user in kept:
                    kept[user].sources.remove(node.id)
        doomed = [
            node
            for node in kept.values()
            if node.description.startswith("__getitem__") and not node.users
        ]
    if not kept:
        raise InputError("no layers", field="layers", remedy="give at least one operator")
    return kept


def _in_order(nodes: dict[str, Node]) -> list[Node]:
    """Return the nodes in the topological order that takes the smallest id first.

    O((nodes + edges) log nodes).
    """
    sorter = TopologicalSorter({node.id: node.sources for node in nodes.values()})
    try:
        sorter.prepare()
    except CycleError as error:
        at = min((nodes[name] for name in error.args[1]), key=lambda node: node.line)
        raise _at(at.line, f"node {at.id!r} is on a cycle", "give an acyclic graph") from None
    ready = [(_natural(name), name) for name in sorter.get_ready()]
    heapq.heapify(ready)
    order: list[Node] = []
    while ready:
        _, name = heapq.heappop(ready)
        order.append(nodes[name])
        sorter.done(name)
        for user in sorter.get_ready():
            heapq.heappush(ready, (_natural(user), user))
    return order


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    return tuple(
        (0, int(part), part) if part.isascii() and part.isdigit() else (1, 0, part)
        for part in re.split(r"([0-9]{1,18})", name)
        if part
    )


def _chain(order: list[Node], unit: str, *, training: bool) -> ModelProfile:
    """Return the profile of operators that run one after the other in this order."""
    tensors: dict[str, int] = {}
    layers = []
    by_id = {node.id: node for node in order}
    for node in order:
        inputs = [tensor for source in node.sources for tensor in _used(by_id[source], node)]
        tensors.update(zip(node.tensors, node.sizes, strict=True))
        outputs = sum(node.sizes)
        forward, backward = _times(node, unit)
        exclusive = {"parameters": node.parameters}
        if training:
            exclusive["gradients"] = node.parameters
        layers.append(
            LayerProfile(
                name=f"{node.id} {node.description}"[:80],
                forward=forward,
                backward=backward,
                exclusive=exclusive,
                temporary=sum(tensors[tensor] for tensor in inputs) + outputs,
                stash=outputs,
                inputs=tuple(inputs),
                outputs=tuple(node.tensors),
            )
        )
    if sum(tensors.values()) >= LARGEST:
        raise InputError(
            "the sum of all bytes exceeds 2**62", field="activation_size", remedy="check the file"
        )
    return ModelProfile(layers=tuple(layers), tensors=tensors)


def _parse_graph(data: bytes, given: Words, file: str) -> list[GraphPartition]:
    """Return the graph of a profile, named after its file."""
    needed = {"devices": "--devices N"}
    if given.get("objective") != "memory" and "levels" not in given:
        needed["bandwidth"] = "--bandwidth 10GB/s"
    for word, option in needed.items():
        if word not in given:
            raise InputError("is not in the file", field=word, remedy=f"give {option}")
    unit, passes = given.get("unit", "us"), given.get("objective") == "forward+backward"
    told_apart = "levels" in given or not _alike(given)
    if given.get("training", True) and "objective" not in given and not told_apart:
        given = {**given, "objective": "replicated"}
    training = bool(given.get("training", given.get("objective") == "replicated"))
    if passes and not training:
        raise InputError(
            "is not asked for, but forward+backward counts the backward pass",
            field="training",
            remedy="give --training, or objective sum",
        )
    if not training and "training" not in given:
        log.warning("inference: backward passes of the profile do not count; --training adds them")
    nodes = _in_order(_pruned(_read_nodes(strict.text(data))))
    whole = _two_passes(nodes, unit) if passes else _one_pass(nodes, unit, training)
    whole |= changes(given, whole)
    profile = _chain(nodes, unit, training=training)
    whole["uncounted"] = uncounted(profile, Lifetimes.of(profile), training)
    if training:
        whole.setdefault("microbatches", whole["accelerators"])
    if "levels" in given:
        whole["levels"] = [(units, _paced(pace, unit)) for units, pace in whole["levels"]]
    else:
        whole["bandwidth"] = _paced(given.get("bandwidth", 1), unit)
    name = stem_of(file).removesuffix("_graph")
    return [GraphPartition.from_arrays(**whole, time_unit=unit, name=name, source=file)]


def _alike(given: Words) -> bool:
    """Return whether devices have one speed and one capacity: stages are replicated on such."""
    capacity = given.get("capacity", 0)
    said = given.get("speed", [1]), capacity if isinstance(capacity, list) else [capacity]
    return all(len({*figures}) == 1 for figures in said)


def _paced(gbytes: Number, unit: str) -> Number:
    """Return a bandwidth in GiB/s as bytes in a unit of time."""
    pace = Fraction(gbytes) * 2**30 / CLOCK[unit]
    return pace.numerator if pace.denominator == 1 else float(pace)


def _one_pass(nodes: list[Node], unit: str, training: bool) -> JsonObject:
    """Return a graph with a node an operator, in which training goes there and back at once."""
    place = {node.id: at for at, node in enumerate(nodes)}
    readers: dict[str, list[int]] = {name: [] for node in nodes for name in node.tensors}
    for at, node in enumerate(nodes):
        for source in node.sources:
            for name in _used(nodes[place[source]], node):
                readers[name].append(at)
    times = [_times(node, unit) for node in nodes]
    return {
        "time": [sum(both) if training else both[0] for both in times],
        "memory": [(1 + training) * node.parameters for node in nodes],
        "stash": [training * sum(node.sizes) for node in nodes],
        "parameters": [node.parameters for node in nodes],
        "producer": [at for at, node in enumerate(nodes) for _ in node.tensors],
        "consumers": list(readers.values()),
        "traffic": [(1 + training) * size for node in nodes for size in node.sizes],
        "ids": list(place),
        "names": [node.description for node in nodes],
    }


def _two_passes(nodes: list[Node], unit: str) -> JsonObject:
    """Return a graph with two nodes an operator: forward ones first, then backward ones.

    Parameters and stashes are the forward node's, bytes of gradients the backward node's.
    """
    once = _one_pass(nodes, unit, training=False)
    n, place = len(nodes), {node.id: at for at, node in enumerate(nodes)}
    gradients = []
    for at, node in enumerate(nodes):
        for source in node.sources:
            writer = nodes[place[source]]
            sizes = dict(zip(writer.tensors, writer.sizes, strict=True))
            read = sum(sizes[name] for name in _used(writer, node))
            gradients.append((n + at, [n + place[source]], read))
    backward = [_times(node, unit)[1] for node in nodes]
    return {
        "time": once["time"] + backward,
        "memory": 2 * once["memory"],
        "stash": [sum(node.sizes) for node in nodes] + [0] * n,
        "parameters": once["parameters"] + [0] * n,
        "colour": 2 * list(range(n)),
        "backward": [False] * n + [True] * n,
        "producer": once["producer"] + [writer for writer, _, _ in gradients],
        "consumers": once["consumers"] + [readers for _, readers, _ in gradients],
        "traffic": once["traffic"] + [size for _, _, size in gradients],
        "ids": once["ids"] + [f"{node.id}.backward" for node in nodes],
        "names": 2 * once["names"],
    }


def _used(source: Node, user: Node) -> list[str]:
    """Return the output tensors of `source` that `user` reads."""
    element = GETITEM.fullmatch(user.description)
    if element is None or not source.listed:
        return source.tensors
    j = int(element[1])
    if not -len(source.sizes) <= j < len(source.sizes):
        raise _at(
            user.line,
            f"takes element {j} of {len(source.sizes)} of node {source.id!r}",
            "correct its index or the list",
        )
    return [source.tensors[j]]


def _times(node: Node, unit: str) -> tuple[int, int] | tuple[float, float]:
    """Return forward and backward time; integers add up to the rounded sum where possible."""
    if unit == "ms":
        return float(node.forward), float(node.backward)
    scale = CLOCK[unit] // 1_000
    forward = _rounded(node.forward * scale)
    return forward, max(0, _rounded((node.forward + node.backward) * scale) - forward)


def _rounded(value: Decimal) -> int:
    return int(value.to_integral_value(ROUND_HALF_EVEN))


def _at(line: int, problem: str, remedy: str = "correct the line") -> InputError:
    return InputError(problem, field=f"line {line}", remedy=remedy)


CONTEXTS = {
    KIND: GIVEN - {"tied"} | {"unit", "order"},
    GRAPH: (GRAPH_GIVEN - {"cpus"}) | {"unit", "training"},
}
WORDS = {"bandwidth": VOCABULARY["bandwidth"]}
PARSERS = {GRAPH: _parse_graph}
