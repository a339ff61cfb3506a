"""Old spellings of parameters, and sizes as texts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.spelling import renamed


def test_an_old_spelling_is_taken_and_told_once() -> None:
    @renamed(old="new")
    def taking(one: int, *, new: int = 0) -> int:
        return one + new

    old: Callable[..., int] = taking
    with pytest.warns(FutureWarning, match="taking: old is called new now"):
        assert old(1, old=2) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert old(1, old=3) == 4
        assert taking(1, new=1) == 2
    with pytest.raises(sp.InputError, match="old: is new by its old name"):
        old(1, old=2, new=3)


def test_what_was_called_otherwise_still_works(tmp_path: Path) -> None:
    old: dict[str, Any] = {"as_": "megatron"}
    chain = sp.PipelinePartition.from_arrays([1] * 8, devices=2)
    solved = sp.solve(chain)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sp.write_solution(chain, solved, tmp_path / "old", **old)
        sp.write_solution(chain, solved, tmp_path / "new", format="megatron")
        assert (tmp_path / "old").read_bytes() == (tmp_path / "new").read_bytes()
        width: dict[str, Any] = {"width": 1}
        one = sp.tune(lambda devices: chain, {"devices": [2]}, **width)
    assert one.best is not None


MAKERS: dict[str, Callable[[Any], Any]] = {
    "capacity of a chain": lambda size: sp.PipelinePartition.from_arrays(
        [1, 2], devices=2, capacity=size
    ),
    "bytes of layers": lambda size: sp.PipelinePartition.from_arrays(
        [1, 2], devices=2, exclusive=[size, 7], kv_bytes=size
    ),
    "a device": lambda size: sp.Device(memory=size),
    "a cluster": lambda size: sp.Cluster.uniform(2, memory=size),
    "a chip": lambda size: sp.Chip(memory=size),
    "a chip of lanes": lambda size: sp.LaneChip(lanes=2, memory=size),
    "a graph": lambda size: sp.GraphPartition.from_edges(
        ["a", "b"], [("a", "b")], time=[1, 2], accelerators=2, capacity=size
    ),
    "a schedule": lambda size: sp.PipelineSchedule.from_arrays(
        [1, 2], [2, 2], microbatches=2, limit=size
    ),
    "phases": lambda size: sp.PhaseSchedule.from_arrays(
        [1, 2], [1, 1], [1, 1, 1], memory=size, remote_memory=size
    ),
    "a memory": lambda size: sp.LmemPacking.from_arrays(
        [1], [0], [1], memories=[sp.Memory("fast", size)]
    ),
}


@pytest.mark.parametrize("what", MAKERS)
def test_sizes_may_be_texts(what: str) -> None:
    make = MAKERS[what]
    text, number = make("12KiB"), make(12 * 1024)
    if hasattr(text, "digest"):
        assert text.digest == number.digest
    assert repr(text) == repr(number)
    with pytest.raises(sp.InputError, match="no number of bytes"):
        make("a dozen")


def test_rates_and_limits_of_files_may_be_texts(tmp_path: Path) -> None:
    cut: dict[str, Any] = {"devices": 2, "in_bytes": [0, 8, 0], "out_bytes": [0, 8, 0]}
    text = sp.PipelinePartition.from_arrays([1, 2], bandwidth="10GiB/s", **cut)
    assert text.digest == sp.PipelinePartition.from_arrays([1, 2], bandwidth=10.0, **cut).digest
    with pytest.raises(sp.InputError, match="bandwidth"):
        sp.PipelinePartition.from_arrays([1, 2], bandwidth="fast", **cut)
    path = tmp_path / "packing.json"
    sp.write(sp.LmemPacking.from_arrays(np.arange(1, 99), np.zeros(98), np.ones(98)), path)
    assert sp.read(path, max_bytes="1MiB").n == 98
    with pytest.raises(sp.InputError, match="100"):
        sp.read(path, max_bytes="0.1kB")
