"""Keys given twice: refused by name, in what people write and in large documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.instances.documents import keys

PLAIN = '{"problem": "lmem-packing", "version": 1, "buffers": %s, "capacity": 9, "capacity": 8}'
LARGE = 2**16
MANY = json.dumps({"size": [1] * LARGE, "start": [0] * LARGE, "end": [1] * LARGE})
ROWS = json.dumps([{"size": 1, "start": 0, "end": 1}] * 2_000)


@pytest.mark.parametrize("buffers", ['[{"size": 1, "start": 0, "end": 1}]', MANY, ROWS])
def test_files_with_a_key_given_twice_are_refused(buffers: str, tmp_path: Path) -> None:
    path = tmp_path / "twice.json"
    path.write_text(PLAIN % buffers)
    with pytest.raises(InputError, match="capacity: is given twice; keep one of them"):
        sp.read(path)


def test_solutions_and_proofs_with_a_key_given_twice_are_refused(tmp_path: Path) -> None:
    instance = sp.load("pipeline/random/heterogeneous", layers=3, devices=2)
    path = tmp_path / "twice.json"
    path.write_text('{"boundaries": [0, 1, 3], "devices": [0, 1], "boundaries": [0, 2, 3]}')
    with pytest.raises(InputError, match="boundaries: is given twice"):
        sp.read_solution(path, instance)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (r'{"a": {"b": 1}, "c": [{"b": 1}, {"b": 2}], "d": "x", "b": {}}', ""),
        (r'{"a": [",", ": x", "}", "{", ":0", "a : b"], "b\"": 1, "\"b": 1, "b\\": "b\\\":"}', ""),
        (r'{"a" : 1, "c": {"a": {}, "b": {"b" :2, "d": [{}], "b": 3}}}', "b"),
        (r'[{"a": 1}, {"e\\": 1, "a": {"a": 2}, "e\\" : "{"}]', r"e\\"),
    ],
)
@pytest.mark.parametrize("room", [0, 2 * LARGE])
def test_what_is_twice_and_what_looks_like_it(text: str, key: str, room: int) -> None:
    data = f"[{text},{' ' * room}0]".encode()
    if key:
        with pytest.raises(InputError) as caught:
            keys.require_single(data)
        assert caught.value.field == json.loads(f'"{key}"')
    else:
        keys.require_single(data)
