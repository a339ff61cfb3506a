"""What a chain minimises where nobody says: transfers count where they take time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from tests.cli.shell import run

BYTES = {"in_bytes": [0, 4, 4, 0], "out_bytes": [0, 4, 4, 0]}
EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize(
    ("given", "objective"),
    [
        ({}, "bottleneck"),
        ({"bandwidth": 2}, "bottleneck"),
        (BYTES, "bottleneck"),
        ({"bandwidth": 2, "in_bytes": [9, 0, 0, 0], "out_bytes": [0, 0, 0, 9]}, "bottleneck"),
        ({"bandwidth": 2, **BYTES}, "sum"),
        ({"bandwidth": 2, "out_bytes": [0, 1, 0, 0]}, "sum"),
        ({"recv_cycles": [[0] * 4] * 2}, "sum"),
        ({"send_cycles": [[0, 5, 5, 0]] * 2}, "sum"),
        ({"bandwidth": 2, **BYTES, "stages_per_device": 2, "fewer_stages": True}, "bottleneck"),
        ({"bandwidth": 2, **BYTES, "objective": "bottleneck"}, "bottleneck"),
        ({"bandwidth": 2, **BYTES, "objective": "overlap"}, "overlap"),
    ],
)
def test_transfers_that_take_time_count(
    given: dict[str, Any], objective: str, tmp_path: Path
) -> None:
    instance = sp.PipelinePartition.from_arrays([3, 1, 2], devices=2, **given)
    assert instance.objective == objective
    assert objective in str(instance)
    if "recv_cycles" in given or "bandwidth" in given:
        assert instance.replace(name="other").objective == objective
    sp.write(instance, tmp_path / "chain.json")
    again = sp.read(tmp_path / "chain.json")
    assert (again.objective, again.digest) == (objective, instance.digest)
    document = json.loads((tmp_path / "chain.json").read_text())
    del document["objective"]  # as people write it
    (tmp_path / "chain.json").write_text(json.dumps(document))
    usual = {name: value for name, value in given.items() if name != "objective"}
    expected = sp.PipelinePartition.from_arrays([3, 1, 2], devices=2, **usual).objective
    assert sp.read(tmp_path / "chain.json").objective == expected


def test_the_default_is_that_of_a_graph_and_of_chains_made_from_one() -> None:
    layers = [
        sp.LayerProfile(forward=3, outputs=("a",)),
        sp.LayerProfile(forward=4, inputs=("a",), outputs=("b",)),
    ]
    profile = sp.ModelProfile(layers=tuple(layers), tensors={"a": 8, "b": 2})
    linked = sp.Cluster.uniform(2, link=sp.Link(GBps=1))
    kinds = (sp.PipelinePartition, sp.GraphPartition)
    assert [kind.from_profile(profile, linked).objective for kind in kinds] == ["sum", "sum"]
    free = sp.PipelinePartition.from_profile(profile, sp.Cluster.uniform(2))
    assert free.objective == "bottleneck"


def test_answers_begin_with_the_objective() -> None:
    table = str(EXAMPLES / "layers.csv")
    counted = run("solve", table, "--devices", "3", "--bandwidth", "10GB/s").stdout
    assert counted.startswith("layers: 6 layers, 3 devices, inference, sum\n")
    assert "objective (sum) " in counted
    assert "objective (bottleneck) " in run("solve", table, "--devices", "3").stdout
    graph = str(EXAMPLES / "operators_graph.txt")
    shown = run("solve", graph, "--kind", "pipeline", "--devices", "3", "--bandwidth", "10GB/s")
    assert "objective (sum) " in shown.stdout


def test_advice_tells_of_what_the_default_does_not_assume() -> None:
    """Of transfers beside compute, and of several stages a device, what is saved by each."""
    table = str(EXAMPLES / "layers.csv")
    shown = run("solve", table, "--devices", "3", "--bandwidth", "1GB/s").stdout
    words = "With --objective overlap, where transfers run beside compute 65,536, 50.5 % less"
    assert words in " ".join(shown.split())
    shown = run("solve", table, "--devices", "3").stdout
    assert "With --stages-per-device 2 --fewer-stages 3,200, 14.7 % less" in " ".join(shown.split())
    twice = sp.read(table, devices=3, stages_per_device=2, fewer_stages=True)
    assert sp.solve(twice).objective == 3200


def test_a_placement_beside_stages_a_device_is_refused_with_what_helps(tmp_path: Path) -> None:
    instance = sp.PipelinePartition.from_arrays([1] * 6, devices=2, stages_per_device=2)
    sp.write(instance, tmp_path / "two.json")
    with pytest.raises(sp.InputError, match="beside 2 stages a device; say 1 of stages_per_device"):
        sp.read(tmp_path / "two.json", placement="0,1,1,0")
    table = sp.read(tmp_path / "two.json", placement="0,1,1,0", stages_per_device=1)
    assert table.stage_devices == (0, 1, 1, 0)
