"""Exports of graph partitions for graph viewers: DOT (Graphviz) and GraphML.

Nodes have stage, device, times and bytes as attributes, edges their tensor and its traffic.  A
tensor that several nodes read is an edge to each of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from xml.sax.saxutils import escape, quoteattr

from stagepack.contracts import Number
from stagepack.instances.base import require_instance
from stagepack.instances.graph.check import stage_order
from stagepack.instances.graph.data import GraphData, GraphSolution
from stagepack.instances.graph.instance import GraphPartition
from stagepack.instances.graph.problem import KIND
from stagepack.result import Result

Value = str | Number | bool
TYPES = {str: "string", bool: "boolean", int: "long", float: "double"}
CROSSING, WITHIN = "#aa3377", "#9aa5b4"
SCHEME, COLOURS = "set312", 12  # of Graphviz: twelve light colours
RENAMED = {"name": "operator"}  # in DOT, as pydot takes "name" for the id of the node
ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def partition_dot(instance: GraphPartition, solution: GraphSolution | Result[GraphSolution]) -> str:
    """Return a partition as DOT: a cluster a stage, its nodes in its colour."""
    require_instance(instance, KIND)
    found = instance.solution_in(solution)
    lines = [
        f"digraph {_quoted(instance.name)} {{",
        "  rankdir=LR;",
        f'  node [shape=box, style=filled, colorscheme={SCHEME}, fontname="sans-serif"];',
    ]
    order = stage_order(instance, found)
    members: list[list[str]] = [[] for _ in order]
    for at, (name, values) in enumerate(_nodes(instance, found)):
        stage = int(values["stage"])
        shown: dict[str, Value] = {
            "label": instance.node_name(at),
            "fillcolor": stage % COLOURS + 1,
        }
        said = {RENAMED.get(key, key): value for key, value in values.items()}
        # Outside its cluster, as readers such as networkx do not look into these.
        lines.append(f"  {_quoted(name)} {_attributes({**shown, **said})};")
        members[stage].append(f"    {_quoted(name)};")
    for stage, device in enumerate(order):
        label = f"stage {stage}: {instance.device_name(device)}"
        head = (f"  subgraph cluster_{stage} {{", f"    label={_quoted(label)};")
        lines += [*head, *members[stage], "  }"]
    for source, target, values in _edges(instance, found):
        colour = CROSSING if values["crosses"] else WITHIN
        ends = f"{_quoted(source)} -> {_quoted(target)}"
        lines.append(f"  {ends} {_attributes({'color': colour, **values})};")
    return "\n".join([*lines, "}", ""])


def partition_graphml(
    instance: GraphPartition, solution: GraphSolution | Result[GraphSolution]
) -> str:
    """Return a partition as GraphML."""
    require_instance(instance, KIND)
    found = instance.solution_in(solution)
    nodes, edges = list(_nodes(instance, found)), list(_edges(instance, found))
    known: dict[tuple[str, str], str] = {}
    for owner, many in (("node", [v for _, v in nodes]), ("edge", [v for _, _, v in edges])):
        for values in many:
            for key, value in values.items():
                wider = known.get((owner, key)) == "double"
                known[owner, key] = "double" if wider else TYPES[type(value)]
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
    ]
    for (owner, key), kind in known.items():
        name = f'id="{owner}-{key}" for="{owner}" attr.name="{key}"'
        lines.append(f'  <key {name} attr.type="{kind}"/>')
    lines.append(f'  <graph id={_attribute(instance.name)} edgedefault="directed">')
    for name, values in nodes:
        lines += [f"    <node id={_attribute(name)}>", *_data("node", values), "    </node>"]
    for at, (source, target, values) in enumerate(edges):
        ends = f"source={_attribute(source)} target={_attribute(target)}"
        lines += [f'    <edge id="e{at}" {ends}>', *_data("edge", values), "    </edge>"]
    return "\n".join([*lines, "  </graph>", "</graphml>", ""])


def _nodes(instance: GraphData, solution: GraphSolution) -> Iterator[tuple[str, dict[str, Value]]]:
    """Yield the id of every node, and what is said of it."""
    order = stage_order(instance, solution)
    stage = {device: at for at, device in enumerate(order)}
    columns = {
        "time": (instance.accelerator, instance.time),
        "cpu_time": (instance.cpu, instance.cpu_time),
        "memory": (None, instance.memory),
        "stash": (None, instance.stash),
        "parameters": (None, instance.parameters),
        "colour": (instance.colour >= 0, instance.colour),
    }
    for at, device in enumerate(solution.assignment.tolist()):
        said: dict[str, Value] = {"stage": stage[device], "device": instance.device_name(device)}
        if instance.names is not None and instance.names[at]:
            said["name"] = instance.names[at]
        for key, (there, figures) in columns.items():
            if there is None or there[at]:
                said[key] = figures[at].item()
        yield instance.node_id(at), {**said, "backward": bool(instance.backward[at])}


def _edges(
    instance: GraphData, solution: GraphSolution
) -> Iterator[tuple[str, str, dict[str, Value]]]:
    """Yield the ids at both ends of every edge, and what is said of it."""
    device, ends = solution.assignment, instance.consumer_ptr.tolist()
    for tensor, source in enumerate(instance.producer.tolist()):
        for target in instance.consumers[ends[tensor] : ends[tensor + 1]].tolist():
            said: dict[str, Value] = {
                "tensor": tensor,
                "traffic": instance.traffic[tensor].item(),
                "crosses": bool(device[source] != device[target]),
            }
            yield instance.node_id(source), instance.node_id(target), said


def _quoted(text: str) -> str:
    escaped = _legal(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _attributes(values: Mapping[str, Value]) -> str:
    return "[" + ", ".join(f"{key}={_quoted(_plain(value))}" for key, value in values.items()) + "]"


def _data(owner: str, values: Mapping[str, Value]) -> Iterator[str]:
    """Yield the lines of GraphML that say what is said of a node or edge."""
    for key, value in values.items():
        yield f'      <data key="{owner}-{key}">{escape(_legal(_plain(value)))}</data>'


def _plain(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _attribute(text: str) -> str:
    return quoteattr(_legal(text))


def _legal(text: str) -> str:
    r"""Return a text with escapes, like ``\x07``, for the characters that XML cannot say."""
    return ILLEGAL.sub(lambda found: ascii(found[0])[1:-1], text)
