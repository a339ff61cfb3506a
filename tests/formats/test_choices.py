"""Choices of alternatives for the tools that take them, and refused by name by all others."""

from __future__ import annotations

import json
import sys
import types
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.formats.solutions import written_for
from stagepack.instances.problem import PROBLEMS

LLAMA = ["tok_embeddings", *(f"layers.{i}" for i in range(6)), "output"]
CUTS = (0, 4, 8)
"""Three transformer layers on each of two devices, with the embedding and the output."""


def chain(*names: str) -> sp.PipelinePartition:
    return sp.PipelinePartition.from_arrays(
        [1] * 8,
        devices=2,
        exclusive=[100] * 8,
        layer_names=LLAMA,
        own_alternative="none",
        alternatives={name: {"forward": 2, "exclusive": 40} for name in names},
    )


def written(tool: str, choices: str, **options: Any) -> str:
    """Return what a tool reads of layers that take f(ull), s(elective), c(pu), d(isk), or none."""
    known = {"f": "full", "s": "selective", "c": "cpu", "d": "disk", ".": "none", "o": "other"}
    instance = chain(*sorted({*known.values()} - {"none"}))
    solution = sp.PipelineSolution(CUTS, (0, 1), tuple(known[one] for one in choices))
    return written_for(instance, solution, tool, options).decode()


@pytest.mark.parametrize(
    ("choices", "line"),
    [
        ("........", ""),
        (".ssssss.", "--recompute-granularity selective"),
        (".ffffff.", "full --recompute-method uniform --recompute-num-layers 1"),
        (".ff.ff..", "full --recompute-method block --recompute-num-layers 2"),
    ],
)
def test_megatron_recomputes(choices: str, line: str) -> None:
    assert written("megatron-recompute", choices).strip().endswith(line)


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        (".ff.f...", "stage 1 recomputes 1 layers and another one 2"),
        ("..ff.ff.", "first ones of their stage"),
        (".ss.sss.", "selectively"),
        ("fffffff.", "of 'tok_embeddings', a layer 'E'"),
        (".cccccc.", "'cpu' of 'layers.0', a layer 't'"),
    ],
)
def test_megatron_cannot_say_all(choices: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        written("megatron-recompute", choices)
    assert caught.value.field == "choices"
    assert caught.value.remedy


def test_what_megatron_cannot_recompute_is_kept_from_recomputing() -> None:
    def recomputing(**more: Any) -> sp.PipelinePartition:
        return sp.PipelinePartition.from_arrays(
            [1, 2, 2, 2, 2, 2, 2, 2], backward=[2] * 8, stash=[9] * 8, in_bytes=[1] * 9, devices=2,
            layer_names=LLAMA, training=True, microbatches=2, recompute="full", capacity=70, **more,
        )  # fmt: skip

    taken = sp.PipelineSolution(CUTS, (0, 1), (*["full"] * 4, *["own"] * 4))
    with pytest.raises(InputError) as caught:
        written_for(recomputing(), taken, "megatron-recompute", {})
    assert '{"full": {"layers": [1, ..., 6]}}' in caught.value.remedy
    again = recomputing(alternatives={"full": {"layers": range(1, 7)}})
    assert again.alternatives["full"].layers.tolist() == [False] + [True] * 6 + [False]
    assert again.alternatives["full"].stash.tolist() == [9, *[1] * 6, 9]
    every = sp.PipelineSolution(CUTS, (0, 1), ("own", *["full"] * 6, "own"))
    assert not again.check(every)
    assert b"uniform" in written_for(again, every, "megatron-recompute", {})


def test_layouts_tell_what_to_write_besides(caplog: pytest.LogCaptureFixture) -> None:
    assert written("megatron", ".ff.f...") == "Et*3|t*3L\n"
    assert "megatron-recompute" in caplog.text


def test_torch_wraps_the_layers_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def checkpoint(forward: Any, *args: Any, use_reentrant: bool) -> Any:
        calls.append(use_reentrant)
        return forward(*args)

    fake = types.SimpleNamespace(checkpoint=checkpoint)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torch.utils", types.SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torch.utils.checkpoint", fake)
    made: dict[str, Any] = {}
    exec(written("torch-recompute", ".ff....."), made)
    assert made["LAYERS"] == {"layers.0", "layers.1"}
    modules = {name: types.SimpleNamespace(forward=lambda x: x + 1) for name in LLAMA}
    made["recompute"](types.SimpleNamespace(named_modules=modules.items))
    assert [modules[name].forward(1) for name in LLAMA] == [2] * 8
    assert calls == [False, False]
    assert "LAYERS = set()" in written("torch-recompute", "........")
    with pytest.raises(InputError, match="takes 'selective'"):
        written("torch-recompute", ".s......")


def test_accelerate_has_layers_on_the_cpu_and_on_disk() -> None:
    found = json.loads(written("accelerate", ".c..d..."))
    assert found["layers.0"] == "cpu"
    assert found["layers.3"] == "disk"
    assert (found["layers.1"], found["output"]) == (0, 1)
    with pytest.raises(InputError, match="takes 'full'"):
        written("accelerate", ".f......")


def test_vllm_has_as_many_bytes_of_first_layers_on_the_cpu() -> None:
    assert written("vllm-offload", ".c..c...") == f"--cpu-offload-gb {60 / 2**30!r}\n"
    assert written("vllm", ".c..c...") == "VLLM_PP_LAYER_PARTITION=3,3\n"
    for choices, said in ((".cc.c...", "one number"), ("..c.c...", "not its first ones")):
        with pytest.raises(InputError, match=said):
            written("vllm-offload", choices)


def test_llama_overrides_where_tensors_are() -> None:
    line = written("llama.cpp", ".c....c.")
    assert line == (
        "--n-gpu-layers 7 --tensor-split 3,4 "
        r'--override-tensor "blk\.(0|5)\.ffn_.*_exps=CPU"' + "\n"
    )
    assert r"blk\.(0)\..*=CPU" in written("llama.cpp", ".c......", tensors=".*")
    assert "override" not in written("llama.cpp", "........")
    with pytest.raises(InputError, match=r"llama\.cpp has no 'disk'"):
        written("llama.cpp", ".d......")


def test_all_other_tools_refuse_choices_by_name() -> None:
    takes = {"megatron", "torch", "vllm", "accelerate", "llama.cpp", "vllm-offload"}
    takes |= {"megatron-recompute", "torch-recompute"}
    for tool in {*PROBLEMS["pipeline-partition"].tools} - takes:
        with pytest.raises(InputError, match="is told nothing") as caught:
            written(tool, ".c......")
        assert caught.value.field == "choices"


def test_stages_are_not_written_for_a_tool_that_cannot_have_the_choices() -> None:
    for tool, choices in (("megatron", ".c......"), ("torch", ".d......"), ("vllm", ".f......")):
        with pytest.raises(InputError, match=f"{tool}-") as caught:
            written(tool, choices)
        assert caught.value.field == "choices"
