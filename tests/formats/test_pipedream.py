from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.formats import door
from stagepack.instances.graph import GraphPartition
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution


def read(path: Path, **given: Any) -> PipelinePartition:
    found: PipelinePartition = door.read(path, kind="pipeline-partition", **given)
    return found


def node(name: str, what: str = "Layer", forward: Any = "1.000", backward: Any = "2.000",
         size: Any = "8.000", weights: Any = "16.000") -> str:  # fmt: skip
    return (
        f"{name} -- {what} -- forward_compute_time={forward}, backward_compute_time={backward}, "
        f"activation_size={size}, parameter_size={weights}"
    )


def graph(place: Path, *lines: str) -> Path:
    path = place / "small_graph.txt"
    path.write_text("\n".join(lines))
    return path


SMALL = (
    node("node1", "Input0", size="1000.0"),
    node("node10", "Last", size="4.0"),
    node("node2", "LSTM(2, 2)", size="[10.0; 20.0; 40.0]"),
    node("node3", "__getitem__(0)", size="10.0"),
    node("node4", "__getitem__(1)", size="20.0"),
    node("node5", "__getitem__(2)", size="40.0"),
    node("node6", "Concat -- of two", forward="0.0015", backward="0.0021") + " -- stage_id=3",
    "\tnode1 -- node2",
    "\tnode2 -- node3",
    "\tnode2 -- node4",
    "\tnode2 -- node5",
    "\tnode3 -- node6",
    "\tnode4 -- node6",
    "\tnode4 -- node6",
    "\tnode6 -- node10",
    "\tnode2 -- node10",
)


def test_a_small_graph(tmp_path: Path) -> None:
    instance = read(graph(tmp_path, *SMALL), devices=2, training=True, capacity=10**6)
    assert instance.name == "small"
    assert instance.layer_names is not None
    # Inputs and the unused __getitem__(2) are gone; node10 comes after node6.
    assert [name.split()[0] for name in instance.layer_names] == [
        "node2", "node3", "node4", "node6", "node10"
    ]  # fmt: skip
    # node10 reads all three elements: 70 bytes cross every cut before it, each once.
    assert instance.in_bytes.tolist() == [0, 70, 80, 100, 78, 4]
    assert instance.carry.tolist() == [0, 70, 80, 70, 0]
    assert instance.temporary.tolist() == [70, 20, 40, 38, 82]
    assert instance.stash.tolist() == [70, 10, 20, 8, 4]
    assert instance.exclusive["gradients"].tolist() == [16] * 5
    # 1.5 and 2.1 microseconds: 2 + 2, the sum 3.6 rounded.
    assert (instance.forward[3], instance.backward[3]) == (2, 2)
    assert instance.cluster.clock == 1_000_000
    assert set(read(graph(tmp_path, *SMALL), devices=2).exclusive) == {"parameters"}


def test_units(tmp_path: Path) -> None:
    path = graph(tmp_path, *SMALL)
    ms = read(path, devices=1, unit="ms", bandwidth=1)
    assert ms.forward.dtype == np.float64
    assert ms.forward.tolist() == [1, 1, 1, 0.0015, 1]
    assert read(path, devices=1, unit="ns").forward[3] == 1500
    seconds = []
    for unit, clock in (("us", 1e6), ("ns", 1e9), ("ms", 1e3)):
        instance = read(path, cluster="ipu-pod2", unit=unit, objective="sum")
        value = instance.evaluate(PipelineSolution.in_order([0, 2, 5]))
        seconds.append(value / clock)
    assert seconds == pytest.approx([seconds[2]] * 3, rel=2e-3)
    with pytest.raises(InputError, match="unknown unit 'h'"):
        read(path, devices=1, unit="h")


def test_the_order_does_not_depend_on_the_lines(tmp_path: Path) -> None:
    digest = read(graph(tmp_path, *SMALL), devices=2).digest
    assert read(graph(tmp_path, *reversed(SMALL)), devices=2).digest == digest


@pytest.mark.parametrize(
    ("lines", "field", "words"),
    [
        ((node("a"), node("a")), "line 2", "given twice"),
        ((node("a"), "\ta -- b"), "line 2", "unknown node 'b'"),
        ((node("a"), "\ta"), "line 2", "not an edge"),
        ((node("a"), node("b"), "\ta -- b", "\tb -- a"), "line 1", "on a cycle"),
        ((node("a"), node("b"), "\ta -- b", "\tb -- b"), "line 2", "on a cycle"),
        ((node("a"), "b -- what"), "line 2", "not an operator"),
        ((node("a"), node("b", forward="nan")), "line 2", "forward_compute_time is 'nan'"),
        ((node("a", backward="-1.0"),), "line 1", "backward_compute_time is '-1.0'"),
        ((node("a", size="1e30"),), "line 1", "2**62"),
        ((node("a", size="1e400"),), "line 1", "activation_size"),
        ((node("a", size="[1; x]"),), "line 1", "'x'"),
        ((node("a", size="1.5"),), "line 1", "not whole bytes"),
        ((node("a").replace("parameter_size", "size"),), "line 1", "'size=16.000'"),
        ((node("a").rsplit(",", 1)[0],), "line 1", "parameter_size is missing"),
        ((node("a", size="4e18"), node("b", size="4e18")), "activation_size", "2**62"),
        ((node("a", "Input"),), "layers", "no layers"),
        ((node("a", size="[1; 2]"), node("b", "__getitem__(2)"), node("c"),
          "\ta -- b", "\tb -- c"), "line 2", "element 2 of 2"),
    ],
)  # fmt: skip
def test_bad_lines_are_named(
    tmp_path: Path, lines: tuple[str, ...], field: str, words: str
) -> None:
    path = graph(tmp_path, *lines)
    with pytest.raises(InputError) as caught:
        read(path, devices=2)
    assert caught.value.field == field
    assert words in str(caught.value)
    assert caught.value.file == str(path)
    assert caught.value.remedy


def test_devices_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--devices") as caught:
        read(graph(tmp_path, *SMALL))
    assert caught.value.field == "devices"


def least_bottleneck(cycles: list[int], k: int) -> int:
    """The plainest dynamic program over prefixes."""
    ends = [0]
    for c in cycles:
        ends.append(ends[-1] + c)
    best: list[float] = [0, *[float("inf")] * len(cycles)]
    for _ in range(k):
        best = [float("inf")] + [
            min(max(best[a], ends[b] - ends[a]) for a in range(b)) for b in range(1, len(ends))
        ]
    return int(best[-1])


def test_vgg16(data_dir: Path) -> None:
    path = data_dir / "pipedream" / "vgg16_graph.txt"
    instance = read(path, devices=4, training=True, unit="us", objective="bottleneck")
    assert (instance.name, instance.n, instance.k) == ("vgg16", 40, 4)
    assert least_bottleneck(instance.cycles.tolist(), 4) == 216450
    assert instance.evaluate(PipelineSolution.in_order([0, 3, 8, 12, 40])) >= 216450


@pytest.mark.parametrize(
    ("name", "layers"),
    [("alexnet", 22), ("gnmt", 37), ("nasnetamobile", 920), ("resnet50", 176),
     ("squeezenet1_0", 67), ("vgg16", 40)],
)  # fmt: skip
def test_public_profiles(data_dir: Path, name: str, layers: int) -> None:
    path = data_dir / "pipedream" / f"{name}_graph.txt"
    instance = read(path, devices=4, bandwidth=10, training=True, objective="sum")
    assert instance.n == layers
    kept = [
        line.split(" -- ")
        for line in path.read_text().splitlines()
        if not line.startswith("\t") and " -- Input" not in line
    ]
    listed = {row[0]: row for row in kept}
    assert instance.layer_names is not None
    place = {text.split()[0]: i for i, text in enumerate(instance.layer_names)}
    total = 0
    for key in place:
        fields = dict(part.split("=") for part in listed[key][2].split(", "))
        total += round(
            1000 * (float(fields["forward_compute_time"]) + float(fields["backward_compute_time"]))
        )
    assert instance.cycles.sum() == total
    # Crossing bytes by the definition: a set of tensors for every cut.
    crossing: list[dict[str, int]] = [{} for _ in range(layers)]
    for line in path.read_text().splitlines():
        if line.startswith("\t"):
            source, user = line.strip().split(" -- ")
            if source not in place or user not in place:
                continue
            text = listed[source][2].split("activation_size=")[1].split(", parameter")[0]
            sizes = [int(float(item)) for item in text.strip("[]").split(";")]
            item = listed[user][1].removeprefix("__getitem__(").removesuffix(")")
            picked = range(len(sizes))
            if listed[user][1].startswith("__getitem__") and text.startswith("["):
                picked = range(int(item), int(item) + 1)
            for cut in range(place[source] + 1, place[user] + 1):
                crossing[cut].update({f"{source}.{j}": sizes[j] for j in picked})
    assert instance.in_bytes[:-1].tolist() == [sum(cut.values()) for cut in crossing]


def test_training_fills_the_pipeline(data_dir: Path) -> None:
    path = data_dir / "pipedream" / "vgg16_graph.txt"
    limited = {"devices": 4, "training": True, "capacity": 11_000_000_000}
    filled = read(path, **limited)
    assert filled.microbatches == 4
    assert filled.backward_transfers
    # The best with one microbatch in flight does not fit with four.
    found = PipelineSolution.in_order((0, 3, 8, 17, 40))
    assert read(path, microbatches=1, **limited).check(found) == ()
    assert {violation.rule for violation in filled.check(found)} == {"capacity"}


def test_bandwidths_of_profiles_have_units(tmp_path: Path) -> None:
    path = graph(tmp_path, *SMALL)
    link = read(path, devices=2, bandwidth="10GB/s").cluster.devices[0].recv
    assert link is not None
    assert link.GBps * 2**30 == 10e9
    both: list[GraphPartition] = [
        door.read(path, kind="graph-partition", devices=2, bandwidth=bandwidth)
        for bandwidth in ("10GB/s", "10", 10)
    ]
    assert [instance.bandwidth for instance in both] == [10_000, 10 * 2**30 / 1e6, 10 * 2**30 / 1e6]


def test_training_fills_the_pipeline_of_a_graph(tmp_path: Path) -> None:
    path = graph(tmp_path, *SMALL)
    given: dict[str, Any] = {"kind": "graph-partition", "devices": 3, "bandwidth": 10}
    assert sp.read(path, **given, objective="sum").microbatches == 1
    assert sp.read(path, **given, training=True).microbatches == 3
    assert sp.read(path, **given, training=True, microbatches=2).microbatches == 2


def test_a_profile_asks_the_question_of_pipedream(tmp_path: Path) -> None:
    given: dict[str, Any] = {"devices": 3, "bandwidth": 10}
    usual = sp.read(graph(tmp_path, *SMALL), **given)
    assert isinstance(usual, GraphPartition)
    assert (usual.objective, usual.microbatches) == ("replicated", 3)
    assert usual.parameters.any()
    there = sp.read(graph(tmp_path, *SMALL), **given, training=False)
    assert (there.objective, there.microbatches) == ("sum", 1)
    assert (2 * there.time <= usual.time).all()
    for word, figures in (("speed", [1, 2, 2]), ("capacity", [10**6, 10**9, 10**9])):
        given[word] = figures
        assert sp.read(graph(tmp_path, *SMALL), **given).objective == "sum"


def test_vgg16_as_pipedream_asks(data_dir: Path) -> None:
    instance = sp.read(data_dir / "pipedream/vgg16_graph.txt", devices=4, bandwidth="1GB/s")
    result = sp.solve(instance)
    assert result.status == "OPTIMAL"
    assert result.objective == pytest.approx(205_521, abs=0.5)


def test_what_is_read_as_inference_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given: dict[str, Any] = {"kind": "graph-partition", "devices": 2, "bandwidth": 10}
    path = graph(tmp_path, *SMALL)
    sp.read(path, **given)
    sp.read(path, **given, objective="sum", training=True)
    sp.read(path, **given, objective="sum", training=False)
    assert not caplog.messages
    sp.read(path, **given, objective="sum")
    assert caplog.messages[0].startswith("inference: backward passes of the profile do not count")
