from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from stagepack.errors import InputError
from stagepack.formats import door
from stagepack.instances.packing import LmemPacking, Objective, PackingSolution

GROUPS: dict[str, Any] = {
    "source": "somewhere",
    "model": "tiny FLOPs 5",
    "groups": [
        {
            "group": 3, "timestep_table": [[0], [1, 2], [3]], "swpipl_stages": 3,
            "lmem_bytes": 1024, "banks": 4, "eu_bytes": 16, "ops": [],
            "buffers": [
                {"name": "%1", "kind": "Load", "size": 100, "start_ts": 2, "life": 2},
                {"name": "%2", "kind": "Conv", "size": 16, "start_ts": 0, "life": 3},
                {"name": "%2_buf", "kind": "imm", "size": 1, "start_ts": 1, "life": 1},
            ],
            "npu_gdma_pairs": [["%2", "%1"], ["%2", "%2_buf"]],
        }
    ],
}  # fmt: skip


def saved(place: Path, document: Any) -> Path:
    path = place / "tiny_chip.json"
    path.write_text(json.dumps(document))
    return path


def test_a_group(tmp_path: Path) -> None:
    instance = door.read(saved(tmp_path, GROUPS))
    assert instance.name == "tiny-g3"
    assert instance.ids == ("%1", "%2", "%2_buf")
    assert instance.size.tolist() == [112, 16, 16]
    assert instance.period == 3
    assert list(zip(instance.start.tolist(), instance.end.tolist(), strict=True)) == [
        (2, 4), (0, 3), (1, 2),
    ]  # fmt: skip
    assert instance.alignment.tolist() == [16] * 3
    assert instance.capacity == 1024
    assert instance.objective is Objective.FIT
    assert instance.banks is not None
    assert (instance.banks.count, instance.banks.nbytes) == (4, 256)
    assert instance.banks.pairs.tolist() == [[0, 1], [1, 2]]
    # The first and the third never live together: the one is alive at times 2 and 0.
    assert instance.check(PackingSolution.of(instance, [16, 0, 16])) == ()
    assert instance.check(PackingSolution.of(instance, [0, 0, 16])) != ()
    conflicts = door.read(saved(tmp_path, GROUPS), objective="bank-conflicts")
    assert conflicts.evaluate(PackingSolution.of(conflicts, [256, 0, 16])) == 10_000 + 368
    assert door.read(saved(tmp_path, GROUPS), capacity=512, alignment=32).capacity == 512


def changed(where: tuple[Any, ...], value: Any) -> dict[str, Any]:
    document = copy.deepcopy(GROUPS)
    target: Any = document
    for step in where[:-1]:
        target = target[step]
    target[where[-1]] = value
    return document


BUFFERS = ("groups", 0, "buffers")


@pytest.mark.parametrize(
    ("document", "field", "words"),
    [
        (changed((*BUFFERS, 0, "life"), 0), "groups[0].buffers[0].life", "0 timesteps"),
        (changed((*BUFFERS, 0, "life"), 4), "groups[0].buffers[0].life", "in a loop of 3"),
        (changed((*BUFFERS, 0, "start_ts"), 3), "groups[0].buffers[0].start_ts", "timestep 3"),
        (changed((*BUFFERS, 0, "size"), 0), "groups[0].buffers[0].size", "is 0"),
        (changed((*BUFFERS, 0, "name"), "%2"), "groups[0].buffers", "two buffers are named '%2'"),
        (changed(("groups", 0, "npu_gdma_pairs"), [["%1", "%9"]]),
         "groups[0].npu_gdma_pairs[0]", "'%9' is no buffer"),
        (changed(("groups", 0, "npu_gdma_pairs"), [["%1", "%1"]]),
         "groups[0].banks.pairs[0]", "with itself"),
        (changed(("groups", 0, "banks"), 5), "groups[0].banks", "not 5 equal banks"),
        (changed(("groups", 0, "timestep_table"), []), "groups[0].timestep_table", ""),
    ],
)  # fmt: skip
def test_errors_name_the_field(tmp_path: Path, document: Any, field: str, words: str) -> None:
    path = saved(tmp_path, document)
    with pytest.raises(InputError) as caught:
        door.read(path)
    assert caught.value.file == str(path)
    assert caught.value.field == field
    assert words in str(caught.value)
    assert caught.value.remedy


def test_the_public_file(data_dir: Path) -> None:
    path = data_dir / "tpu-mlir" / "blazeface_bm1688.json"
    groups = json.loads(path.read_text())["groups"]
    instances: list[LmemPacking] = door.read_all(path)
    assert [instance.name for instance in instances] == [f"blazeface-g{i}" for i in range(13)]
    for group, instance in zip(groups, instances, strict=True):
        names = [buffer["name"] for buffer in group["buffers"]]
        assert instance.ids == tuple(names)
        assert instance.period == len(group["timestep_table"])
        assert instance.capacity == 131_072
        assert instance.banks is not None
        assert (instance.banks.count, instance.banks.nbytes) == (16, 8192)
        pairs = {frozenset(names[i] for i in pair) for pair in instance.banks.pairs.tolist()}
        assert pairs == {frozenset(pair) for pair in group["npu_gdma_pairs"]}
        assert len(instance.banks.pairs) == len(pairs)
        for at, buffer in enumerate(group["buffers"]):
            assert instance.size[at] % 16 == 0
            assert 0 <= instance.size[at] - buffer["size"] < 16
            assert instance.end[at] - instance.start[at] == buffer["life"]
    assert door.read(f"{path}#blazeface-g11").n == 45
    assert door.read(f"{path}#11").digest == instances[11].digest
