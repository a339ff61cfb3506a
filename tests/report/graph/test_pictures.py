from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from stagepack.catalog import load
from stagepack.instances.graph import GraphPartition, GraphSolution, Objective
from stagepack.plots import plot
from stagepack.report.graph import VIEW, picture
from stagepack.report.graph import numbers as data
from stagepack.report.graph.figure import partition_charts
from stagepack.report.graph.layers import SLIM, Layered, layered
from stagepack.report.graph.numbers import flows
from stagepack.solve import solve
from tests.random_graphs import OBJECTIVES, random_instance

PAGE = (11.0, 7.0)


def trained(**options: Any) -> GraphPartition:
    """Two branches and a skip, trained: the backward pass mirrors the forward pass."""
    edges = [(0, 1), (1, 2), (0, 3), (2, 4), (3, 4), (0, 4)]
    back = [(v + 5, u + 5) for u, v in edges] + [(4, 9), (1, 6)]
    given: dict[str, Any] = {
        "time": [3, 1, 2, 4, 5] * 2,
        "traffic": [2] * 10,
        "memory": [10] * 10,
        "backward": [False] * 5 + [True] * 5,
        "colour": [*range(5)] * 2,
        "accelerators": 2,
        "capacity": 80,
        "name": "trained",
    }
    return GraphPartition.from_edges(10, edges + back, **{**given, **options})


def found(instance: GraphPartition) -> GraphSolution:
    result = solve(instance, "equal-work")
    assert result.solution is not None
    return result.solution


def column(page: Layered) -> npt.NDArray[np.float64]:
    return np.asarray(page.x + page.row * page.columns)


def test_edges_lead_to_the_right_and_back_in_the_backward_pass() -> None:
    instance = trained()
    place = column(layered(instance, *PAGE))
    for u, v in instance.edges.tolist():
        if not instance.backward[v]:
            assert place[u] < place[v]
        elif instance.backward[u]:
            assert place[u] > place[v]


@pytest.mark.parametrize("name", ["graph/inception-v1", "graph/resnet50", "graph/random/branchy"])
def test_no_node_stands_on_another_and_bends_have_room(name: str) -> None:
    instance = load(name)
    page = layered(instance, *PAGE)
    order = np.lexsort((page.y, column(page)))
    room = np.where(order < instance.n, 1.0, SLIM)
    below = np.diff(column(page)[order]) == 0
    least = (room[1:] + room[:-1]) / 2
    assert (np.diff(page.y[order])[below] >= least[below] - 1e-6).all()
    assert page.y.min() >= 0
    assert page.y.max() <= page.height


def test_long_networks_are_broken_into_rows_that_do_not_overlap() -> None:
    page = layered(load("graph/resnet50"), *PAGE)
    rows = [page.y[page.row == row] for row in range(page.row.max() + 1)]
    assert len(rows) > 1
    for upper, lower in pairwise(rows):
        assert upper.max() + 1 <= lower.min()
    assert page.x.max() < page.columns


def test_every_edge_is_drawn_and_lines_that_cross_are_told() -> None:
    instance = load("graph/inception-v1")
    device = np.arange(instance.n) % 3
    page = layered(instance, *PAGE)
    before = {int(end): int(begin) for begin, end in zip(page.begin, page.end, strict=True)
              if end >= instance.n}  # fmt: skip
    crossing = page.crossing(device)
    marked = {(int(b), int(e)): bool(c)
              for b, e, c in zip(page.begin, page.end, crossing, strict=True)}  # fmt: skip
    edges = set()
    for begin, end, writer, reader in zip(
        page.begin.tolist(), page.end.tolist(), page.writer.tolist(), page.reader.tolist(),
        strict=True,
    ):  # fmt: skip
        if reader < 0:
            continue
        edges.add((writer, reader))
        apart = device[writer] != device[reader]
        assert marked[begin, end] == apart
        while begin >= instance.n:  # back along the bends to the writer
            assert marked[before[begin], begin] >= apart
            begin = before[begin]
        assert begin == writer
    assert edges == set(map(tuple, instance.edges.tolist()))


def test_a_row_ends_and_begins_with_stubs() -> None:
    page = layered(load("graph/resnet50"), *PAGE)
    lines = page.lines(np.arange(len(page.begin)), 4)
    over = int((page.row[page.begin] != page.row[page.end]).sum())
    assert len(lines) == len(page.begin) + over
    assert lines[:, :, 0].min() >= -0.5
    assert lines[:, :, 0].max() <= page.columns - 0.5


def test_flows_count_each_tensor_once_for_each_device_that_reads_it() -> None:
    rng = np.random.default_rng(7)
    for _ in range(40):
        instance = random_instance(rng, int(rng.integers(1, 9)))
        device = rng.integers(0, instance.devices, instance.n)
        traffic: Counter[tuple[int, int]] = Counter()
        tensors: Counter[tuple[int, int]] = Counter()
        ends = instance.consumer_ptr.tolist()
        for at, source in enumerate(instance.producer.tolist()):
            readers = instance.consumers[ends[at] : ends[at + 1]]
            for target in set(device[readers].tolist()) - {int(device[source])}:
                traffic[int(device[source]), target] += instance.traffic[at].item()
                tensors[int(device[source]), target] += 1
        told = flows(instance, GraphSolution.of(instance, device))
        assert {(flow.source, flow.target): flow.tensors for flow in told} == tensors
        for flow in told:
            assert flow.traffic == pytest.approx(traffic[flow.source, flow.target])


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_bars_are_the_loads_of_the_checker(objective: str) -> None:
    instance = trained(objective=objective)
    solution = GraphSolution.of(instance, [0, 0, 1, 1, 1] * 2)
    assert instance.check(solution) == ()
    drawn = data.partition_drawing(instance, solution)
    worth = instance.evaluate(solution)
    if objective == Objective.FORWARD_BACKWARD:
        passes = {bar.name for bar in drawn.bars}
        assert passes == {"forward", "backward"}
        assert worth == sum(
            max(sum(bar.parts) for bar in drawn.bars if bar.name == name) for name in passes
        )
    elif objective == Objective.MEMORY:
        assert drawn.largest == 80
        assert worth == max(load.memory for load in drawn.loads)
    else:
        assert drawn.top == worth


def test_stages_stand_where_the_solution_orders_them_and_cpus_are_grey() -> None:
    instance = trained(cpus=1, cpu_time=[1] * 10, contiguous=False)
    drawn = data.partition_drawing(
        instance, GraphSolution.of(instance, [2, 2, 0, 0, 0] * 2, order=(2, 0))
    )
    assert drawn.stage.tolist() == [0, 0, 1, 1, 1] * 2
    assert drawn.colours[0] == data.CPU
    assert drawn.label(drawn.loads[0]) == "CPU 0"
    assert drawn.limits == [None, 80]
    assert {(flow.source, flow.target) for flow in drawn.flows} == {(0, 1), (1, 0)}
    back = next(flow for flow in drawn.flows if flow.source == 1)
    assert data.summit(back) < 0


@pytest.mark.parametrize(
    ("traffic", "text"),
    [(0.00195, "0.00195"), (17, "17"), (999.9, "1 k"), (12_582_912, "12.6 M"), (3e9, "3 G")],
)
def test_traffic_is_written_with_three_digits(traffic: float, text: str) -> None:
    assert data.amount(traffic) == text


@pytest.mark.parametrize(
    ("options", "title", "written"),
    [
        ({"bandwidth": 8}, "Traffic (bytes)", "2.0 KiB"),
        ({}, "Traffic (time)", "2 k"),
        ({"bandwidth": 8, "traffic": [2000.5] * 2}, "Traffic", "2 k"),
    ],
)
def test_what_goes_between_stages_has_a_unit(
    options: dict[str, Any], title: str, written: str, tmp_path: Path
) -> None:
    given = {"time": [1, 2], "traffic": [2000, 0], "accelerators": 2, **options}
    instance = GraphPartition.from_edges(2, [(0, 1)], **given)
    solution = GraphSolution.of(instance, [0, 1])
    between = plot(instance, solution).figure.axes[1]
    assert between.get_ylabel().split() == title.split()
    assert between.texts[0].get_text() == written
    charts = partition_charts(instance, [solution])["stages"].figures[0].to_plotly_json()
    assert charts["layout"]["yaxis"]["title"]["text"] == title
    hover = "stage 0 to stage 1: 1 tensor, traffic 2,00"
    assert any(hover in str(trace.get("hovertext")) for trace in charts["data"])


@pytest.mark.parametrize("name", ["branchy", "layered", "blocks"])
def test_fifty_nodes_are_boxes_with_their_names_inside(name: str) -> None:
    instance = load(f"graph/random/{name}", operators=50)
    ax = plot(instance, found(instance))
    ax.figure.canvas.draw()
    boxes = [patch for patch in ax.patches if hasattr(patch, "get_boxstyle")]
    assert [text.get_text() for text in ax.texts] == list(map(str, range(50)))
    for box, text in zip(boxes, ax.texts, strict=True):
        outer, inner = (one.get_window_extent() for one in (box, text))
        assert outer.x0 <= inner.x0
        assert inner.x1 <= outer.x1
    graph = partition_charts(instance, [found(instance)])["graph"].figures[0].to_plotly_json()
    assert all(graph["data"][-1]["text"])


@pytest.mark.parametrize("name", ["branchy", "layered", "blocks"])
def test_a_thousand_nodes_are_dots_that_do_not_touch(name: str) -> None:
    instance = load(f"graph/random/{name}", operators=1000)
    ax = plot(instance, found(instance))
    ax.figure.canvas.draw()
    assert not [patch for patch in ax.patches if hasattr(patch, "get_boxstyle")]
    assert not ax.texts
    dots = [one for one in ax.collections if hasattr(one, "get_sizes") and len(one.get_sizes())]
    place = ax.transData.transform(np.concatenate([one.get_offsets() for one in dots]))
    size = np.sqrt(np.concatenate([one.get_sizes() for one in dots])) * ax.figure.dpi / 72
    assert len(place) == len(size) == 1000
    assert size.min() >= 2  # pixels on paper of usual resolution
    apart = np.linalg.norm(place[:, None] - place[None], axis=2)
    room = (size[:, None] + size[None]) / 2
    np.fill_diagonal(room, 0)
    assert (apart >= 0.99 * room).all()
    graph = partition_charts(instance, [found(instance)])["graph"].figures[0].to_plotly_json()
    assert graph["data"][-1]["mode"] == "markers"


def test_names_that_have_no_room_are_left_out_together() -> None:
    """One name of ten letters among short ones in a graph of 25 layers: dots for all."""
    edges = [(v, v + 1) for v in range(20)]
    names = [*map(str, range(20)), "convolution"]
    given: dict[str, Any] = {"time": [1] * 21, "accelerators": 2}
    short = GraphPartition.from_edges(21, edges, **given)
    assert len(plot(short, found(short)).texts) == 21
    assert picture._names(short, letters=5) == list(map(str, range(21)))
    long = GraphPartition.from_edges(21, edges, ids=names, **given)
    assert not all(picture._names(long, letters=5))


def test_pictures_of_random_graphs_are_drawn(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    drawn = 0
    for at, objective in enumerate(OBJECTIVES * 2):
        instance = random_instance(rng, int(rng.integers(1, 12)), objective=objective)
        result = solve(instance, "equal-work")
        if result.solution is None:
            continue
        path = tmp_path / f"{at}.png"
        assert plot(instance, result, path) == path
        assert path.stat().st_size > 5_000
        charts = partition_charts(instance, [result.solution])
        for one in charts.values():
            json.loads(one.figures[0].to_json())
        drawn += 1
    assert drawn >= 5


def test_charts_of_several_solutions_are_on_equal_axes() -> None:
    instance = trained()
    solutions = [GraphSolution.of(instance, [0] * 10), found(instance)]
    for one in partition_charts(instance, solutions).values():
        first, second = (figure.to_plotly_json()["layout"] for figure in one.figures)
        for axis in ("xaxis", "yaxis"):
            assert first[axis]["range"] == second[axis]["range"]


def test_names_are_written_as_they_are(tmp_path: Path) -> None:
    names = ["$x^2$", "<b>a</b>", "a/very/long/name/of/a/node/conv2d", "", "e"]
    instance = GraphPartition.from_edges(
        5, [(0, 1), (1, 2), (2, 3)], time=[1] * 5, names=names, accelerators=2, name="odd"
    )
    ax = plot(instance, found(instance))
    texts = [text.get_text() for text in ax.texts]
    assert r"\$x^2\$" in texts
    assert "3" in texts  # a node without a name has its number
    plot(instance, found(instance), tmp_path / "odd.html")
    page = (tmp_path / "odd.html").read_text()
    assert "&lt;b>a" in page or "\\u0026lt;b\\u0026gt;a" in page or "&lt;b&gt;a" in page


def test_the_section_lets_people_choose() -> None:
    instance = trained()
    solved = {name: solve(instance, name) for name in ("equal-work", "dp")}
    section = VIEW.section(instance, solved, solved["dp"], "s0")
    assert {"s0-graph", "s0-stages"} <= set(section.figures)
    assert "Partition of" in section.html
