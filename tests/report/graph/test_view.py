"""What people see of graph partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.report.graph import VIEW

GIVEN: dict[str, Any] = {
    "time": [10, 20, 30, 40],
    "producer": [0, 1, 2],
    "consumers": [[1, 2], [3], [3]],
    "traffic": [6, 2, 4],
    "memory": [1, 2, 3, 4],
    "accelerators": 2,
}


def diamond(**changes: Any) -> sp.GraphPartition:
    return sp.GraphPartition.from_arrays(**{**GIVEN, **changes})


def test_facts_are_of_the_whole() -> None:
    unlike = diamond(
        speeds=[1, 2], capacity=[8, 9], bandwidth=[[0, 3], [4, 0]], cpus=0, stash=[1] * 4,
        microbatches=3, empty_devices=False, device_order="fixed", contiguous=False,
    )  # fmt: skip
    given = VIEW.facts(unlike)
    assert (given["nodes"], given["edges"], given["tensors"]) == (4, 4, 3)
    assert (given["time"], given["traffic"], given["memory"]) == (100, 12, 10)
    lines = dict(VIEW.lines(given))
    assert lines["Bandwidth"] == "3 to 4"
    assert lines["Capacity"] == "8 B to 9 B"
    assert lines["Speeds"] == "1 to 2"
    assert lines["Stash"] == "4 B a microbatch, 3 in flight at most"
    assert lines["Devices"] == "each has nodes"
    assert lines["Stages"] == "anywhere in the graph"
    with_cpu = diamond(cpus=2, cpu_time=[1] * 4, colour=[0, 0, 1, 2])
    lines = dict(VIEW.lines(VIEW.facts(with_cpu)))
    assert lines["CPUs"] == "2, 4 on one"
    assert lines["Colours"] == "3"
    assert VIEW.headline(with_cpu) == "4 nodes on 2 accelerators and 2 CPUs, sum"


def test_a_line_a_device() -> None:
    instance = diamond()
    solution = sp.GraphSolution.of(instance, [0, 0, 1, 1])
    assert VIEW.rows(instance, solution) == [
        {"stage": 0, "device": "device 0", "devices": 1, "nodes": 2, "load": 38, "time": 30,
         "received": 0, "sent": 8, "memory": 3, "limit": None},
        {"stage": 1, "device": "device 1", "devices": 1, "nodes": 2, "load": 78, "time": 70,
         "received": 8, "sent": 0, "memory": 7, "limit": None},
    ]  # fmt: skip
    account = VIEW.account(instance, solution)
    assert ("Busiest device", "78") in account.lines
    assert account.sheet is not None
    assert "limit" not in account.sheet.header
    assert "devices" not in account.sheet.header


def test_bytes_are_told_where_they_are_what_counts() -> None:
    instance = diamond(objective="memory", capacity=9)
    account = VIEW.account(instance, sp.GraphSolution.of(instance, [0, 0, 1, 1]))
    assert account.lines == [
        ("Objective", "7 bytes"),
        ("Stages", "2"),
        ("Bytes of all devices", "10"),
    ]
    assert account.sheet is not None
    assert account.sheet.header[-1] == "limit"


def test_devices_that_share_a_stage_are_counted() -> None:
    instance = diamond(objective="replicated", accelerators=3)
    solution = sp.GraphSolution.of(instance, [0, 0, 1, 1], replicas=(1, 2))
    account = VIEW.account(instance, solution)
    assert account.sheet is not None
    assert account.sheet.header[2] == "devices"
    assert [row[2] for row in account.sheet.rows] == ["1", "2"]
    assert [row["load"] for row in VIEW.rows(instance, solution)] == [30, 35]


def test_times_are_told_in_their_unit_everywhere() -> None:
    instance = diamond(time_unit="cycles")
    lines = dict(VIEW.lines(VIEW.facts(instance)))
    assert lines["Time"] == "100 cycles"
    with_cpu = diamond(time_unit="us", cpus=2, cpu_time=[1] * 4)
    assert dict(VIEW.lines(VIEW.facts(with_cpu)))["CPUs"] == "2, 4 us on one"
    solution = sp.GraphSolution.of(instance, [0, 0, 1, 1])
    account = VIEW.account(instance, solution)
    assert ("Objective", "78 cycles") in account.lines
    assert ("Busiest device", "78 cycles") in account.lines
    assert account.sheet is not None
    assert account.sheet.title == "Devices, times in cycles"
    result = sp.solve(instance, method="dp")
    assert f"objective (sum) {result.objective} cycles" in str(result)
    drawn = VIEW.charts(instance, [solution])
    assert drawn["stages"].figures[0].layout.yaxis2.title.text == "Time (cycles)"
    assert "time 10 cycles" in drawn["graph"].figures[0].data[-1].hovertext[0]
    ax = sp.plot(instance, solution)
    assert "78 cycles" in ax.get_title(loc="left") + ax.get_title()
    assert [one.get_ylabel() for one in ax.figure.axes][2] == "Time (cycles)"


def test_who_knows_the_unit_of_time_says_so(tmp_path: Path) -> None:
    whole = sp.load("graph/resnet50")
    assert whole.time_unit == "cycles"
    assert whole.replace(accelerators=2).time_unit == "cycles"
    sp.write(whole, tmp_path / "whole.json")
    assert sp.read(tmp_path / "whole.json").time_unit == "cycles"
    assert diamond().time_unit == ""
    assert diamond(time_unit="us").digest == diamond().digest  # it changes no answer
    with pytest.raises(sp.InputError, match="time_unit"):
        diamond(time_unit="<b>")
