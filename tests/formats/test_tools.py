"""Stages for the tools that train and serve: what they read, and what they cannot do."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import os
import re
import sys
import types
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.formats.solutions import require_expressible, written_for
from stagepack.instances.problem import PROBLEMS
from stagepack.kinds import named

LLAMA = ["tok_embeddings", *(f"layers.{i}" for i in range(6)), "norm", "output"]


def chain(names: list[str] | None, devices: int, n: int = 0) -> sp.PipelinePartition:
    count = n or len(names or ())
    return sp.PipelinePartition.from_arrays([1] * count, devices=devices, layer_names=names)


def written(tool: str, instance: Any, cuts: list[int], **options: Any) -> str:
    solution = sp.PipelineSolution.in_order(cuts)
    return written_for(instance, solution, tool, options).decode()


def expanded(layout: str, ranks: int) -> list[list[str]]:
    """Return the stages of each rank, by the rules of Megatron-LM."""
    text = layout.strip().replace(",", "")
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        text = re.sub(pattern, lambda found: found[1] * int(found[2]), text)
    stages = text.split("|")
    assert len(stages) % ranks == 0
    return [stages[rank::ranks] for rank in range(ranks)]


def test_megatron_lays_out_what_was_cut() -> None:
    assert written("megatron", chain(LLAMA, 3), [0, 3, 6, 9]) == "Ett|t*3|tL\n"
    names = ["embedding", *(f"attention {i // 2}" if i % 2 == 0 else f"feed-forward {i // 2}"
                            for i in range(122)), "mtp", "head"]  # fmt: skip
    instance = chain(names, 32)
    cuts = [0, 7, *range(11, 123, 4), 123, 124, 125]
    text = written("megatron", instance, cuts, ranks=16)
    assert text == "Et*3|(tt|)*29m|L\n"  # the example of its documentation
    ranks = expanded(text, 16)
    assert ranks[0] == ["Ettt", "tt"]
    assert ranks[14:] == [["tt", "m"], ["tt", "L"]]
    # Unnamed layers are all transformer layers, and the ends hold embedding and loss.
    assert written("megatron", chain(None, 2, n=8), [0, 4, 8]) == "Et*4|t*4L\n"
    assert written("megatron", chain(["a"] * 4, 2), [0, 2, 4], letters="Et*2L") == "Et|tL\n"
    assert written("megatron", chain(LLAMA, 1), [0, 9]) == "Et*6L\n"


@pytest.mark.parametrize("cuts", [[0, 3, 6, 9], [0, 1, 7, 9], [0, 2, 4, 9]])
def test_megatron_takes_it(cuts: list[int]) -> None:
    module = "megatron.core.transformer.pipeline_parallel_layer_layout"
    parser = pytest.importorskip(module, reason="megatron-core is not installed")
    text = written("megatron", chain(LLAMA, 3), cuts).strip()
    read = parser.PipelineParallelLayerLayout(text, 3)
    read.validate_layer_layout(num_layers=6, mtp_num_layers=0)
    counted = [read.get_num_layers_to_build(vp_stage=0, pp_rank=rank) for rank in range(3)]
    assert counted == [sum(1 <= at <= 6 for at in range(a, b)) for a, b in pairwise(cuts)]


HALVES = ["emb", "attention 0", "mlp 0", "attention 1", "mlp 1", "head"]


@pytest.mark.parametrize(
    ("tool", "names", "cuts", "options", "words"),
    [
        ("megatron", HALVES, [0, 2, 6], {}, r"stage 1 begins with 'mlp 0', within .*-cut 2"),
        ("megatron", ["wte", "wpe", "h.0", "h.1"], [0, 1, 4], {}, "stage 1 begins with 'wpe'"),
        ("megatron", LLAMA, [0, 3, 6, 9], {"ranks": "2"}, "ranks: 3 stages on 2 ranks"),
        ("megatron", LLAMA, [0, 3, 9], {"ranks": "two"}, "ranks"),
        ("megatron", LLAMA, [0, 3, 9], {"letters": "Et"}, "is not a letter for each of 9 layers"),
        ("megatron", LLAMA, [0, 3, 9], {"letters": "tE*7L"}, "letters: layers come as tEL"),
        ("megatron", ["a", "b"], [0, 1, 2], {}, "do not tell which are transformer layers"),
        ("megatron", ["h.0", "norm", "h.1"], [0, 1, 3], {}, "'norm' stands between"),
        ("megatron", ["conv1", "block1.a", "block2.a", "fc1"], [0, 2, 4], {},
         "letters: 'fc1' is numbered 1 and comes after 2"),
        ("megatron", LLAMA, [0, 3, 9], {"letters": ["t"]}, "letters: .* will not do"),
        ("torchtitan", ["a", "b"], [0, 1, 2], {"modules": [1]}, "modules: are no names"),
        ("torchtitan", ["a", "b"], [0, 1, 2], {"modules": 5}, "modules: are no names"),
        ("megatron", ["h.0", "mtp.0", "mtp.1", "f"], [0, 2, 4], {}, "are in stages 0 and 1"),
        ("megatron", ["h.0", "mtp.0", "f", "f", "f"], [0, 2, 3, 5], {"ranks": 1},
         "begins with 'f', within"),
        ("megatron", ["h.0", "mtp.0", "f"], [0, 2, 3], {"ranks": 1}, "not the last of its rank"),
        ("vllm", LLAMA, [0, 1, 9], {}, "stage 0 has no transformer layer"),
        ("sglang", ["h.0", "mtp.0", "f"], [0, 1, 3], {}, "layers: holds layers of multi-token"),
        ("torchtitan", HALVES, [0, 2, 6], {}, "layer 1, 'attention 0', is no name of a module"),
        ("torchtitan", ["e", "layers.0.a", "layers.0.b"], [0, 2, 3], {},
         "module 'layers.0' is in stages 0 and 1"),
        ("torchtitan", ["emb", "layers.0"], [0, 1, 2], {"modules": ["embed", "layers.0"]},
         "no module 'emb'; did you mean embed"),
        ("torchtitan", ["emb", "layers.0"], [0, 1, 2],
         {"modules": ["", "emb", "layers", "layers.0", "layers.1"]}, "'layers.1' is in no stage"),
        ("accelerate", ["a", "b", "a"], [0, 2, 3], {}, "module 'a' runs on devices 0 and 1"),
        ("torch", ["a", "b", "a"], [0, 2, 3], {}, "'a', which runs more than once"),
        ("torch", ["a", "b"], [0, 1, 2], {"ranks": 2}, "torch has no option 'ranks'"),
        ("torchtitan", ["a", "b", "c"], [0, 1, 2, 3], {"ranks": "2"}, "ranks: 3 stages on 2 ranks"),
        ("megatron", ["emb", "encoder.0", "encoder.1", "decoder.0", "decoder.1"], [0, 3, 5], {},
         "numbered anew from 'decoder.0' on: an encoder and a decoder, of which the tool runs one"),
        ("vlm", ["a", "b"], [0, 1, 2], {}, "cannot be written for 'vlm'; did you mean vllm"),
        ("vllm", LLAMA, [0, 9], {}, "is not valid"),
    ],
)  # fmt: skip
def test_what_a_tool_cannot_do_is_named(
    tool: str, names: list[str], cuts: list[int], options: dict[str, Any], words: str
) -> None:
    instance = chain(names, max(2, len(cuts) - 1))
    with pytest.raises(InputError, match=words):
        written(tool, instance, cuts, **options)


@pytest.mark.parametrize(
    ("tool", "names", "devices", "options", "words"),
    [
        ("megatron", ["a", "b"], 2, {}, "do not tell which are transformer layers"),
        ("megatron", LLAMA, 3, {"ranks": "2"}, "ranks: 3 stages on 2 ranks"),
        ("vllm", LLAMA, 7, {}, "devices: 6 transformer layers for 7 ranks"),
        ("sglang", LLAMA, 2, {"letters": "Et"}, "is not a letter for each of 9 layers"),
        ("torchtitan", HALVES, 2, {}, "'attention 0', is no name of a module"),
        ("torchtitan", ["emb", "head"], 2, {"modules": ["embed", "head"]}, "no module 'emb'"),
        ("torch", HALVES, 2, {}, "'attention 0', is no name of a module"),
        ("accelerate", HALVES, 2, {}, "'attention 0', is no name of a module"),
    ],
)
def test_what_no_cut_could_mend_is_told_before_any(
    tool: str, names: list[str], devices: int, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        require_expressible(chain(names, devices), tool, options)


def test_fewer_stages_may_suit_where_all_devices_do_not() -> None:
    few = sp.PipelinePartition.from_arrays(
        [1] * len(LLAMA), devices=7, layer_names=LLAMA, fewer_stages=True
    )
    require_expressible(few, "vllm", {})
    require_expressible(few, "megatron", {"ranks": "2"})


@pytest.mark.parametrize("kind", PROBLEMS)
def test_what_is_required_before_takes_the_options_of_what_is_written(kind: str) -> None:
    for tool in PROBLEMS[kind].tools.values():
        module, _, writer = tool.writer.rpartition(".")
        names = {name for name in (tool.requires, writer) if name}
        for name in names:
            function = named(kind, "formats", f"{module}.{name}")
            takes = inspect.signature(function).parameters
            assert set(tool.options) <= set(takes)


@pytest.mark.parametrize("tool", ["megatron", "vllm", "sglang", "deepspeed", "torchtitan", "torch"])
def test_ranks_are_put_on_the_devices_of_a_free_order(
    tool: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Tools put rank i on device i: with the list it is the one of stage i."""
    instance = chain(LLAMA, 3).replace(free_order=True)
    text = written_for(instance, sp.PipelineSolution((0, 4, 6, 9), (2, 0, 1)), tool, {}).decode()
    line = "CUDA_VISIBLE_DEVICES=2,0,1"
    assert caplog.messages == [f"ranks are not on devices 0, 1, ...: run with {line} (of one host)"]
    assert (line in text) == (tool not in ("megatron", "torchtitan"))
    if tool in ("vllm", "sglang"):
        assert text == f"{tool.upper()}_PP_LAYER_PARTITION=3,2,1\n{line}\n"
    elif tool in ("deepspeed", "torch"):
        assert ast.parse(text)
    caplog.clear()
    same = written_for(instance, sp.PipelineSolution((0, 4, 6, 9), (0, 1, 2)), tool, {}).decode()
    assert "CUDA" not in same
    assert not caplog.messages


@pytest.mark.parametrize(
    "tool", ["vllm", "sglang", "deepspeed", "torch", "llama.cpp", "vllm-offload"]
)
def test_several_stages_a_device_are_refused_before_anything_is_solved(tool: str) -> None:
    instance = chain(LLAMA, 2).replace(stages_per_device=2)
    with pytest.raises(InputError, match="placement: devices have several stages"):
        require_expressible(instance, tool, {})


@pytest.mark.parametrize("tool", ["megatron", "vllm", "llama.cpp"])
def test_layers_without_names_are_told_to_be_all_the_same(
    tool: str, caplog: pytest.LogCaptureFixture
) -> None:
    instance = sp.PipelinePartition.from_arrays([3, *[10] * 4, 8], devices=2)
    cut = sp.PipelineSolution.in_order([0, 3, 6])
    written_for(instance, cut, tool, {})
    (told,) = caplog.messages
    assert told.startswith("layers have no names: all count as transformer layers")
    caplog.clear()
    written_for(instance, cut, tool, {"letters": "Et*4L"})
    assert not caplog.messages


def test_devices_without_a_stage_are_told(caplog: pytest.LogCaptureFixture) -> None:
    instance = chain(LLAMA, 4).replace(fewer_stages=True)
    for used, idle in (((0, 1), "2, 3"), ((1, 3), "0, 2")):
        text = written_for(instance, sp.PipelineSolution((0, 4, 9), used), "vllm", {}).decode()
        listed = "" if used == (0, 1) else "CUDA_VISIBLE_DEVICES=1,3\n"
        assert text == f"VLLM_PP_LAYER_PARTITION=3,3\n{listed}"
        assert caplog.messages[0] == f"for 2 ranks: devices without a stage are left out ({idle})"
        caplog.clear()


def test_values_that_skip_a_stage_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a mask, a skip connection and a result, the mask is the largest that passes stage 1."""
    reads_and_writes = {
        "emb": (("ids",), ("x", "mask", "kept")),
        "layers.0": (("x", "mask"), ("y",)),
        "layers.1": (("y", "x"), ("z",)),
        "layers.2": (("z", "mask", "ids"), ("result",)),
    }
    layers = tuple(
        sp.LayerProfile(name=name, forward=1, inputs=reads, outputs=writes)
        for name, (reads, writes) in reads_and_writes.items()
    )
    nbytes = {"ids": 99, "x": 7, "mask": 9, "kept": 50, "y": 4, "z": 4, "result": 4}
    profile = sp.ModelProfile(layers=layers, tensors=nbytes, results=("result", "kept"))
    instance = sp.PipelinePartition.from_profile(profile, sp.Cluster.uniform(3))
    for tool in ("megatron", "vllm", "sglang", "torchtitan"):
        words = r"tensors: 'mask' \(9 bytes\) of stage 0 is read in stage 2: "
        with pytest.raises(InputError, match=words):
            written(tool, instance, [0, 2, 3, 4])
        assert written(tool, instance, [0, 2, 3, 4], skips="true")
    assert written("megatron", instance, [0, 1, 2, 4], skips=True) == "E|t|ttL\n"
    assert "BEGINNING" in written("torch", instance, [0, 2, 3, 4])
    assert "several stages a rank refuse" in caplog.messages[-1]
    sp.write(instance, tmp_path / "chain.json")
    for again in (
        sp.read(tmp_path / "chain.json"),
        sp.read(tmp_path / "chain.json", memory="stash"),
    ):
        with pytest.raises(InputError, match=r"tensors: 'mask' .* of stage 0 is read in stage 2: "):
            written("megatron", again, [0, 2, 3, 4])
    untold = instance.replace(tensors=None)  # columns tell how much is carried, but not of whom
    with pytest.raises(InputError, match="carry: up to 158 bytes may pass stage 1 by: Megatron"):
        written("megatron", untold, [0, 2, 3, 4])
    assert written("megatron", untold, [0, 2, 3, 4], skips=True) == "Et|t|tL\n"
    caplog.clear()
    two = sp.PipelinePartition.from_profile(profile, sp.Cluster.uniform(2))
    assert written("vllm", two, [0, 2, 4]) == "VLLM_PP_LAYER_PARTITION=1,2\n"


def test_serving_counts_transformer_layers() -> None:
    instance = chain(None, 2, n=78)
    assert written("vllm", instance, [0, 42, 78]) == "VLLM_PP_LAYER_PARTITION=42,36\n"
    assert written("sglang", chain(LLAMA, 2), [0, 5, 9]) == "SGLANG_PP_LAYER_PARTITION=4,2\n"


def test_modules_go_where_their_layers_are(tmp_path: Path) -> None:
    text = written("torchtitan", chain(LLAMA, 2), [0, 4, 9], modules=["layers", *LLAMA])
    assert json.loads(text) == [LLAMA[:4], LLAMA[4:]]
    names = tmp_path / "names.txt"
    names.write_text("\n".join(LLAMA))
    assert written("torchtitan", chain(LLAMA, 2), [0, 4, 9], modules=str(names)) == text
    leaves = ["emb", "h.0.a", "h.0.b", "h.1.a", "h.1.b", "head"]
    assert json.loads(written("accelerate", chain(leaves, 2), [0, 3, 6])) == {
        "emb": 0, "h.0": 0, "h.1": 1, "head": 1,
    }  # fmt: skip
    assert json.loads(written("accelerate", chain(leaves, 2), [0, 4, 6], inside=True)) == {
        "emb": 0, "h.0": 0, "h.1.a": 0, "h.1.b": 1, "head": 1,
    }  # fmt: skip
    assert json.loads(written("accelerate", chain(leaves, 1), [0, 6])) == {"": 0}


def test_accelerate_keeps_items_of_lists_whole() -> None:
    """What a transformer layer adds to its parts stays where it is: a forward pass ended there."""
    parts = [f"model.layers.{at}.{part}" for at in range(3) for part in ("self_attn.q_proj", "mlp")]
    instance = chain(["model.embed", *parts, "model.norm", "head"], 2)
    words = "'model.layers.1.mlp' is on another device than 'model.layers.1.self_attn.q_proj'"
    with pytest.raises(InputError, match=words):
        written("accelerate", instance, [0, 4, 9])
    for cut in (1, 3, 5, 7, 8):
        assert written("accelerate", instance, [0, cut, 9])
    deep = [f"layers.{at}.blocks.{part}" for at in range(2) for part in range(3)]
    with pytest.raises(InputError, match=r"of the same 'layers\.0'"):
        written("accelerate", chain(deep, 2), [0, 2, 6])
    with pytest.raises(InputError, match="devices: 2 modules that must stay whole for 3 devices"):
        require_expressible(chain(deep, 3), "accelerate", {})
    require_expressible(chain(deep, 3), "accelerate", {"inside": "true"})


def test_accelerate_calls_devices_by_the_names_of_pytorch() -> None:
    devices = [sp.Device(name=name) for name in ("first", "cpu", "second", "cuda:3")]
    names = ["a", "b", "c", "d"]
    instance = sp.PipelinePartition.from_arrays(
        [1] * 4, layer_names=names, cluster=sp.Cluster(devices=tuple(devices))
    )
    found = json.loads(written("accelerate", instance, [0, 1, 2, 3, 4]))
    assert found == {"a": 0, "b": "cpu", "c": 1, "d": "cuda:3"}


class ModuleDict:
    """As PyTorch's: what torchtitan takes apart, whatever its items are called."""


class Sequential:
    """As PyTorch's: what torchtitan keeps whole, though its items are numbered."""


def test_torchtitan_takes_dictionaries_apart_and_keeps_the_rest_whole() -> None:
    names = ["emb", "h.first", "h.last.a", "h.last.b", "head.0", "head.1"]
    modules: dict[str, object] = {"": None, **dict.fromkeys([*names, "h.last"])}
    modules |= {"h": ModuleDict(), "head": Sequential()}
    text = written("torchtitan", chain(names, 2), [0, 2, 6], modules=modules)
    assert json.loads(text) == [["emb", "h.first"], ["h.last", "head"]]
    with pytest.raises(InputError, match="module 'head' is in stages 0 and 1"):
        written("torchtitan", chain(names, 2), [0, 5, 6], modules=modules)


def test_torch_cuts_a_model_there() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pipelining = pytest.importorskip("torch.distributed.pipelining")
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(6)))
    said: dict[str, Any] = {}
    exec(written("torch", chain([str(i) for i in range(6)], 3), [0, 1, 4, 6]), said)
    x = torch.randn(2, 4)
    pipe = pipelining.pipeline(model, mb_args=(x,), split_spec=said["split_spec"])
    assert pipe.num_stages == 3
    y = x
    for stage in range(3):
        held = [name for name, _ in pipe.get_stage_module(stage).named_parameters()]
        assert len(held) == 2 * (1, 3, 2)[stage]
        y = pipe.get_stage_module(stage)(y)
    torch.testing.assert_close(y, model(x))


def test_accelerate_finds_every_parameter() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    layers = [torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2), "b": torch.nn.Linear(2, 2)})
              for _ in range(2)]  # fmt: skip
    model = torch.nn.ModuleDict({"h": torch.nn.ModuleList(layers), "head": torch.nn.Linear(2, 2)})
    instance = chain(["h.0.a", "h.0.b", "h.1.a", "h.1.b", "head"], 2)
    accelerate.utils.check_device_map(
        model, json.loads(written("accelerate", instance, [0, 3, 5], inside=True))
    )


def decoder() -> Any:
    """Return a decoder of Transformers of four layers, on the CPU."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=4, num_attention_heads=2,
        num_key_value_heads=2, vocab_size=50,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def mapped(model: Any, cuts: list[int], *names: str, whole: bool = True) -> dict[str, Any]:
    """Return the device_map of a decoder's leaves, or halves of layers, on devices so called."""
    parts = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")
    halves = [f"model.layers.{at}.{part}" for at in range(4) for part in parts]
    layers = ["model.embed_tokens", "model.rotary_emb", *halves, "model.norm", "lm_head"]
    instance = sp.PipelinePartition.from_arrays(
        [1] * len(layers),
        layer_names=layers,
        cluster=sp.Cluster(devices=tuple(sp.Device(name=name) for name in names)),
    )
    modules = dict(model.named_modules())
    text = written("accelerate", instance, cuts, modules=modules, inside=not whole)
    found: dict[str, Any] = json.loads(text)
    return found


def on_two_devices(model: Any, placed: dict[str, int]) -> None:
    """Let Accelerate's hooks run device 0 on the CPU and 1 as a meta device; results stay there."""
    accelerate = pytest.importorskip("accelerate")
    places = {name: ("cpu", "meta")[at] for name, at in placed.items()}
    accelerate.dispatch_model(model, places, main_device="cpu")
    accelerate.hooks.remove_hook_from_module(model)  # that of the whole brings results back


def test_accelerate_runs_whole_decoder_layers_with_its_own_hooks(tmp_path: Path) -> None:
    """Layers on the CPU and on disk give the same logits; on a meta device they get there."""
    model, torch = decoder(), pytest.importorskip("torch")
    accelerate = pytest.importorskip("accelerate")
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    with torch.no_grad():
        expected = model(ids).logits
    placed = mapped(model, [0, 10, 20], "cpu", "disk")
    blocks = {name for name, module in model.named_modules()
              if type(module).__name__ in model._no_split_modules}  # fmt: skip
    assert len(blocks) == 4
    assert blocks <= placed.keys()  # none is split
    accelerate.utils.check_device_map(model, placed)
    accelerate.dispatch_model(model, placed, offload_dir=tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, expected)
    # Where devices are numbered: number 1 is a meta device here, to which hooks move what it reads.
    model = decoder()
    numbered = mapped(model, [0, 10, 20], "", "")
    assert set(numbered.values()) == {0, 1}
    on_two_devices(model, numbered)
    with torch.no_grad():
        logits = model(ids).logits
    assert (logits.device.type, logits.shape) == ("meta", expected.shape)


def test_accelerate_would_not_run_what_is_refused() -> None:
    model, torch = decoder(), pytest.importorskip("torch")
    with pytest.raises(InputError, match=r"of the same 'model\.layers\.1', whose sums"):
        mapped(model, [0, 8, 20], "", "")
    split = mapped(model, [0, 8, 20], "", "", whole=False)
    on_two_devices(model, split)
    with torch.no_grad(), pytest.raises(RuntimeError, match="meta"):
        model(torch.tensor([[3, 1, 4, 1, 5]]))


def test_classes_that_are_not_split_are_those_that_a_model_names() -> None:
    class Block:
        pass

    class Model:
        _no_split_modules = ("Block",)

    names = ["emb", "h.0.a", "h.0.b", "h.1.a", "h.1.b"]
    modules: dict[str, object] = {"": Model(), **dict.fromkeys(names)}
    modules |= {"h": Model(), "h.0": Block(), "h.1": Model()}
    instance = chain(names, 2)
    with pytest.raises(InputError, match=r"of the same 'h\.0'"):
        written("accelerate", instance, [0, 2, 5], modules=modules)
    assert json.loads(written("accelerate", instance, [0, 4, 5], modules=modules)) == {
        "emb": 0, "h.0": 0, "h.1.a": 0, "h.1.b": 1,
    }  # fmt: skip
    few = chain(names, 5)
    with pytest.raises(InputError, match="4 modules that must stay whole for 5 devices"):
        require_expressible(few, "accelerate", {"modules": modules})
    with pytest.raises(InputError, match="the model has no module 'emb'; did you mean embed"):
        written("accelerate", instance, [0, 3, 5], modules=["embed", *names[1:]])
    with pytest.raises(InputError, match="module 'head' is on no device"):
        written("accelerate", instance, [0, 3, 5], modules=[*names, "head"])


def pp_indices(text: str, layers: int, rank: int, ranks: int) -> tuple[int, int]:
    """Return the layers of a rank as get_pp_indices of vLLM 0.33 and SGLang 0.5.23 tells."""
    counts = [int(count) for count in text.split(",")]
    assert len(counts) == ranks
    assert sum(counts) == layers
    first = sum(counts[:rank])
    return first, first + counts[rank]


def their_indices(package: str, variable: str) -> Any:
    """Return the very function of a package that is installed, or else one that does the same."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        return pp_indices
    inside = "distributed" if package == "vllm" else "srt/distributed"
    tree = ast.parse((Path(found.submodule_search_locations[0]) / inside / "utils.py").read_text())
    tree.body = [part for part in tree.body if getattr(part, "name", "") == "get_pp_indices"]

    def asked(text: str, layers: int, rank: int, ranks: int) -> tuple[int, int]:
        known: dict[str, Any] = {
            "envs": types.SimpleNamespace(**{variable: text}), "os": os, "Tuple": tuple
        }  # fmt: skip
        exec(compile(tree, package, "exec"), known)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(variable, text)
            answer: tuple[int, int] = known["get_pp_indices"](layers, rank, ranks)
        return answer

    return asked


@pytest.mark.parametrize("tool", ["vllm", "sglang"])
def test_ranks_serve_the_layers_of_their_stage(tool: str) -> None:
    variable = f"{tool.upper()}_PP_LAYER_PARTITION"
    indices = their_indices(tool, variable)
    for cuts in ([0, 2, 4, 9], [0, 5, 6, 9], [0, 3, 6, 9]):
        name, _, text = written(tool, chain(LLAMA, 3), cuts).strip().partition("=")
        assert name == variable
        inner = [0, cuts[1] - 1, cuts[2] - 1, 6]  # in transformer layers
        assert [indices(text, 6, rank, 3) for rank in range(3)] == list(pairwise(inner))


class Balancer:
    """What DeepSpeed 0.19.8's own class has done when it asks for the parts."""

    def __init__(self, layers: int, stages: int, stage: int) -> None:
        self._layer_specs, self.num_stages, self.stage_id = [None] * layers, stages, stage
        self._partition_layers()

    def _partition_layers(self, method: str = "uniform") -> None:
        raise AssertionError("its own balancer")

    def _set_bounds(self, start: int, stop: int) -> None:
        self.bounds = (start, stop)


def test_deepspeed_keeps_to_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("deepspeed.runtime.pipe.module")
    monkeypatch.setattr(module, "PipelineModule", Balancer, raising=False)
    for name in ("deepspeed", "deepspeed.runtime", "deepspeed.runtime.pipe"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    weights = [2, 8, 2, 2, 1, 1, 2, 1, 3]  # its balancer reaches 10
    instance = sp.PipelinePartition.from_arrays(weights, devices=4)
    result = sp.solve(instance, time_limit=1)
    assert result.objective == 8
    assert result.solution is not None
    said: dict[str, Any] = {}
    exec(written_for(instance, result.solution, "deepspeed", {}).decode(), said)
    found = [said["PartedPipelineModule"](9, 4, stage).bounds for stage in range(4)]
    assert [max(sum(weights[a:b]) for a, b in found)] == [8]
    assert [bound for pair in found for bound in pair][1:-1:2] == said["PARTS"][1:-1]
    with pytest.raises(ValueError, match="8 layers in 4 stages: PARTS are for 9 in 4"):
        said["PartedPipelineModule"](8, 4, 0)
