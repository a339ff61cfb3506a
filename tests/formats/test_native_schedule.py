from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.formats import door, solutions
from stagepack.instances.schedule import PipelineSchedule
from tests.random_schedules import by_list, random_schedule

BY_HAND: dict[str, Any] = {
    "problem": "pipeline-schedule",
    "version": 1,
    "name": "hand",
    "forward": [3, 4, 3],
    "backward": [5, 6, 5],
    "weight": [2, 2, 2],
    "microbatches": 4,
    "devices": [0, 1, 0],
    "edges": [[0, 1], [1, 2]],
    "latency": [2, 3],
    "memory_forward": 4,
    "memory_backward": [-2, -2, -1],
    "memory_weight": -1,
    "limit": 40,
    "optimizer": [1, 2],
    "post_validation": True,
    "steps": 10,
    "stage_names": ["a", "b", "c"],
}


def written(tmp_path: Path, document: Any) -> Path:
    path = tmp_path / "file.json"
    path.write_text(json.dumps(document))
    return path


def test_a_file_by_hand(tmp_path: Path) -> None:
    path = written(tmp_path, BY_HAND)
    instance = door.read(path)
    assert (instance.kind, instance.name, instance.p, instance.d) == (
        "pipeline-schedule", "hand", 3, 2,
    )  # fmt: skip
    assert instance.latency.tolist() == [2, 3]
    assert instance.memory_backward.tolist() == [-2, -2, -1]
    assert instance.memory_weight.tolist() == [-1, -1, -1]
    assert instance.limit.tolist() == [40, 40]
    assert instance.objective == "span"
    assert instance.steps == 10
    assert instance.stage_name(2) == "c"
    least = {key: BY_HAND[key] for key in ("problem", "version", "forward", "microbatches")}
    inference = door.read(written(tmp_path, least))
    assert inference.kinds == ("F",)
    assert inference.edges == ((0, 1), (1, 2))


@pytest.mark.parametrize("seed", range(40))
def test_what_is_written_is_read(seed: int, tmp_path: Path) -> None:
    instance = random_schedule(seed, source="drawn")
    for path in (tmp_path / "file.json", tmp_path / "file.json.gz"):
        door.write(instance, path)
        again = door.read(path, kind="pipeline-schedule")
        assert again.digest == instance.digest
        assert (again.name, again.source) == (instance.name, "drawn")
    msgspec.json.decode((tmp_path / "file.json").read_bytes())
    assert sp.schema("pipeline-schedule")["title"] == "Stagepack pipeline-schedule, version 1"


def test_what_is_said_beside_a_file(tmp_path: Path) -> None:
    path = written(tmp_path, BY_HAND)
    instance = door.read(
        path, microbatches=6, capacity="99", latency=0, steps=2, objective="makespan"
    )
    assert instance.microbatches.tolist() == [6, 6, 6]
    assert instance.limit.tolist() == [99, 99]
    assert instance.latency.tolist() == [0, 0]
    assert (instance.steps, instance.objective) == (2, "makespan")
    for given, words in (
        ({"devices": 3}, "do not understand 'devices'"),
        ({"objective": "sum"}, "unknown objective 'sum' for pipeline-schedule"),
        ({"steps": 0}, "0 will not do as steps"),
        ({"kind": "lmem-packing"}, "holds pipeline-schedule, not lmem-packing"),
    ):
        with pytest.raises(InputError, match=words):
            door.read(path, **given)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"forward": None}, "forward"),
        ({"forward": []}, "no stages"),
        ({"forward": [1, 0, 1]}, r"forward\[1\]"),
        ({"forward": [1, 2.5, 1]}, r"forward\[1\]"),
        ({"backward": [1, 1]}, "backward: has shape"),
        ({"backward": None}, "though weight is given"),
        ({"microbatches": 0}, "microbatches"),
        ({"microbatches": [4, 4, 3]}, r"joined by edges\[1\]"),
        ({"steps": 0}, "steps"),
        ({"edges": [[0, 1], [1, 0]]}, "cycle 0 -> 1 -> 0"),
        ({"edges": [[0, 1, 2]]}, r"edges\[0\]"),
        ({"devices": [0, 2, 0]}, "device 1 runs no stage"),
        ({"latency": -1}, "latency"),
        ({"memory_backward": -9}, "would hold -5"),
        ({"limit": [1]}, "2 in all"),
        ({"objective": "sum"}, "makespan, span"),
        ({"latencies": 1}, "did you mean latency"),
        ({"version": 2}, "newer than 1"),
    ],
)
def test_wrong_files_name_the_field(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = written(tmp_path, {**BY_HAND, **changes})
    with pytest.raises(InputError, match=words) as caught:
        door.read(path)
    assert caught.value.file == str(path)
    assert caught.value.remedy


def test_solutions(tmp_path: Path) -> None:
    path = tmp_path / "solution.json"
    instance = PipelineSchedule.from_arrays([1, 1], [2, 2], microbatches=3)
    solution = by_list(instance)
    solutions.write_solution(instance, solution, path)
    assert solutions.read_solution(path, instance) == solution
    assert json.loads(path.read_text()) == solution.to_dict()
    document = {"digest": instance.digest, "solution": solution.to_dict(), "status": "OPTIMAL"}
    path.write_text(json.dumps(document))
    assert solutions.read_solution(path, instance) == solution
    for other, words in (
        (None, "only be read with their instance"),
        (sp.PipelinePartition.from_arrays([1], devices=1), "result for another instance"),
        (instance.replace(latency=1), "result for another instance"),
    ):
        with pytest.raises(InputError, match=words):
            solutions.read_solution(path, other)
    solutions.write_solution(instance, solution, path)
    with pytest.raises(
        InputError, match="holds a solution of pipeline-schedule, no solution for pip"
    ):
        solutions.read_solution(path, sp.PipelinePartition.from_arrays([1], devices=1))
    with pytest.raises(InputError, match=r"start\[0\]\[0\]: has 3 entries for 4 microbatches"):
        solutions.read_solution(path, instance.replace(microbatches=4))
    for content, words in (
        ('{"start": [[[0.5, 0, 0], [0, 0, 0]], [[0, 0, 0], [0, 0, 0]]]}', r"start\[0\]\[0\]\[0\]"),
        ('{"start": 3}', "start"),
        ('{"boundaries": [0, 1]}', "boundaries: holds a solution of pipeline-partition, no"),
        ('{"status": "UNKNOWN"}', "holds no solution"),
        ('{"solution": {"start": [[[0]]]}}', "solution.start: has 1 entries for 2 stages"),
    ):
        path.write_text(content)
        with pytest.raises(InputError, match=words):
            solutions.read_solution(path, instance)
