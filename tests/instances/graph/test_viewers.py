from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from itertools import pairwise

import numpy as np

from stagepack.instances.graph import GraphPartition, GraphSolution
from stagepack.instances.graph.check import stage_order
from stagepack.instances.graph.viewers import partition_dot, partition_graphml
from tests.random_graphs import random_instance

STRING = r'"((?:[^"\\]|\\.)*)"'
STATEMENT = re.compile(rf"^ *{STRING}(?: -> {STRING})? \[(.*)\];$")
PAIR = re.compile(rf"(\w+)={STRING}(?:, |$)")
NAMESPACE = "{http://graphml.graphdrawing.org/xmlns}"

Parsed = tuple[dict[str, dict[str, str]], list[tuple[str, str, dict[str, str]]]]


def unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), text)


def parsed(text: str) -> Parsed:
    """Return nodes and edges of DOT, and see that every line of it is understood."""
    nodes: dict[str, dict[str, str]] = {}
    edges: list[tuple[str, str, dict[str, str]]] = []
    placed: list[str] = []
    depth = clusters = 0
    for line in text.splitlines():
        statement = STATEMENT.match(line)
        if statement:
            source, target, rest = statement.groups()
            assert PAIR.sub("", rest) == ""
            said = {key: unquoted(value) for key, value in PAIR.findall(rest)}
            if target is None:
                nodes[unquoted(source)] = said
            else:
                edges.append((unquoted(source), unquoted(target), said))
            continue
        member = re.fullmatch(rf"    {STRING};", line)
        if member:
            assert depth == 2
            placed.append(unquoted(member[1]))
            assert int(nodes[placed[-1]]["stage"]) == clusters - 1
            continue
        clusters += "subgraph" in line
        known = (
            rf"digraph {STRING} {{", r" *subgraph cluster_\d+ {", rf" *label={STRING};", r" *}",
            r"  rankdir=LR;", r"  node \[.*\];",
        )  # fmt: skip
        assert any(re.fullmatch(one, line) for one in known), line
        depth += line.endswith("{") - line.endswith("}")
    assert depth == 0
    assert sorted(placed) == sorted(nodes)
    return nodes, edges


def read_graphml(text: str) -> Parsed:
    root = ET.fromstring(text.encode())
    keys = {key.get("id"): key for key in root.iter(f"{NAMESPACE}key")}
    types = {"long": int, "double": float, "string": str, "boolean": str}

    def said(element: ET.Element) -> dict[str, str]:
        found = {}
        for data in element:
            key = keys[data.get("key")]
            assert element.tag == f"{NAMESPACE}{key.get('for')}"
            types[str(key.get("attr.type"))](data.text or "")
            found[str(key.get("attr.name"))] = data.text or ""
        return found

    nodes = {str(node.get("id")): said(node) for node in root.iter(f"{NAMESPACE}node")}
    edges = [
        (str(edge.get("source")), str(edge.get("target")), said(edge))
        for edge in root.iter(f"{NAMESPACE}edge")
    ]
    return nodes, edges


def agree(instance: GraphPartition, solution: GraphSolution, read: Parsed) -> None:
    nodes, edges = read
    order = stage_order(instance, solution)
    assert sorted(nodes) == sorted(instance.node_id(at) for at in range(instance.n))
    for at, device in enumerate(solution.assignment.tolist()):
        said = nodes[instance.node_id(at)]
        assert order[int(said["stage"])] == device
        assert said["device"] == instance.device_name(device)
        if instance.accelerator[at]:
            assert float(said["time"]) == instance.time[at]
        assert int(said["memory"]) == instance.memory[at]
        assert said["backward"] == str(bool(instance.backward[at])).lower()
    pairs = Counter((source, target) for source, target, _ in edges)
    ids = map(instance.node_id, range(instance.n))
    name = dict(enumerate(ids))
    assert pairs == Counter((name[u], name[v]) for u, v in instance.edges.tolist())
    for _, _, said in edges:
        assert float(said["traffic"]) == instance.traffic[int(said["tensor"])]


def test_both_say_what_the_instance_and_the_solution_say() -> None:
    rng = np.random.default_rng(5)
    for _ in range(60):
        instance = random_instance(rng, int(rng.integers(1, 10)))
        devices = rng.integers(0, instance.devices, instance.n)
        solution = GraphSolution.of(instance, devices)
        agree(instance, solution, parsed(partition_dot(instance, solution)))
        agree(instance, solution, read_graphml(partition_graphml(instance, solution)))


def test_names_stay_what_they_are() -> None:
    ids = ['a "quoted" one', "back\\slash\\", "<&>'", "two\nlines", "ends [x=1];"]
    instance = GraphPartition.from_edges(
        5, [(0, 1), (1, 2), (2, 3), (3, 4)], time=[1] * 5, ids=ids, names=["$", *"bcd", ""],
        accelerators=2, name='odd "name" -> {',
    )  # fmt: skip
    solution = GraphSolution.of(instance, [0, 0, 1, 1, 1])
    nodes, edges = parsed(partition_dot(instance, solution))
    assert list(nodes) == ids
    assert nodes[ids[0]]["operator"] == "$"
    assert not any("name" in said for said in nodes.values()), "pydot, networkx: refused"
    assert [edge[:2] for edge in edges] == list(pairwise(ids))
    nodes, edges = read_graphml(partition_graphml(instance, solution))
    assert list(nodes) == ids
    assert [said["crosses"] for _, _, said in edges] == ["false", "true", "false", "false"]


def test_what_xml_cannot_say_is_escaped_and_stays_apart() -> None:
    instance = GraphPartition.from_arrays([1, 1], accelerators=1, ids=["a\x07", "a\x1b[31m"])
    solution = GraphSolution.of(instance, [0, 0])
    for nodes, _ in (
        read_graphml(partition_graphml(instance, solution)),
        parsed(partition_dot(instance, solution)),  # of which Graphviz makes SVG
    ):
        assert list(nodes) == ["a\\x07", "a\\x1b[31m"]
