"""A ``config.json`` of Hugging Face as a chain."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.formats.hugging_face import costs, families, parts
from stagepack.formats.hugging_face.fields import Fields
from tests.cli.shell import run
from tests.imports import ROOT

FACTS = json.loads((ROOT / "tests" / "data" / "hugging_face.json").read_text())
"""Configurations, and the number of parameters of the models that Transformers makes of them."""
LLAMA, MIXTRAL, DEEPSEEK = (
    ROOT / "examples" / f"{name}.json" for name in ("llama", "mixtral", "deepseek")
)
TINY = {
    "model_type": "llama", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 3,
    "num_attention_heads": 2, "vocab_size": 50, "tie_word_embeddings": True,
}  # fmt: skip


def read(path: Path, config: dict[str, Any], **given: Any) -> sp.PipelinePartition:
    file = path / "config.json"
    file.write_text(json.dumps(config))
    found = sp.read(file, **{"kind": "pipeline-partition", "cluster": "2xh100", **given})
    assert isinstance(found, sp.PipelinePartition)
    return found


def model(config: dict[str, Any]) -> families.Model:
    return families.model(Fields(config, config["model_type"]))


@pytest.mark.parametrize("family", sorted(families.FAMILIES))
def test_parameters_are_those_of_transformers(family: str) -> None:
    tiny = [(count, config) for count, config in FACTS["tiny"] if config["model_type"] == family]
    assert len(tiny) >= 5 or family == "gemma3"
    for count, config in tiny:
        assert model(config).parameters == count, config
        if family == "gemma3_text":
            outer = {"model_type": "gemma3", "text_config": config}
            assert model(outer).parameters == count


@pytest.mark.parametrize("name", sorted(FACTS["published"]))
def test_parameters_are_those_published(name: str) -> None:
    count, config = FACTS["published"][name]
    assert model(config).parameters == count


@pytest.mark.parametrize(
    ("name", "billions"),
    [("Mixtral-8x7B", 12.9), ("DeepSeek-V2", 21), ("DeepSeek-V3", 37), ("Qwen3-30B-A3B", 3.3)],
)
def test_a_token_meets_as_many_parameters_as_published(name: str, billions: float) -> None:
    layers = [layer for layer in model(FACTS["published"][name][1]).layers if not layer.mtp]
    met = sum(layer.part.products + layer.part.weights * layer.table for layer in layers)
    assert met == pytest.approx(billions * 1e9, rel=0.025)


def test_a_layer_by_hand() -> None:
    """The worked example of docs/howto/config.md: a layer of Llama 2 70B on an H100."""
    h, f, q, kv, s = 8192, 28672, 64 * 128, 8 * 128, 4096
    matrices = h * (q + 2 * kv) + q * h + 3 * h * f
    weights = matrices + 2 * h
    assert weights == 855_654_400
    pairs = s * (s + 1) // 2
    flops = 2 * matrices * s + 2 * 2 * q * pairs
    assert flops == 7_284_331_642_880
    moved = 2 * (weights + s * 2 * h)
    computed, carried = flops / (0.5 * 989.5e12), moved / 3350e9
    assert (round(computed * 1e3, 2), round(carried * 1e3, 2)) == (14.72, 0.55)
    stash = s * 2 * (2 * h + h + (q + 2 * kv) + q + h + 3 * f)
    assert stash == 1_124_073_472
    serving = sp.read(LLAMA, cluster="4xh100")
    training = sp.read(LLAMA, cluster="4xh100", training=True)
    for found in (serving, training):
        assert found.forward[1] == math.ceil(computed * 1e9) == 14_723_258
        assert found.exclusive["parameters"][1] == 2 * weights == 1_711_308_800
        # 4,096 tokens of 8,192 values of 2 bytes on NVLink 4: 149 us.
        assert found.out_bytes[1] == s * h * 2 == 67_108_864
    assert training.backward[1] == 2 * 14_723_258
    assert sum(column[1] for column in training.exclusive.values()) == 16 * weights
    assert (training.stash[1], serving.stash[1]) == (stash, 0)
    assert serving.kv_bytes is not None
    assert serving.kv_bytes[1] == 2 * kv * 2
    assert serving.tokens == 4 * s  # four microbatches of a sample
    result = sp.solve(serving)
    stage = sp.estimate(serving, result).stages[1]
    assert (stage.end - stage.first, stage.compute) == (20, 294_465_160)
    assert stage.recv == 152_530  # 3.4 us before it


@pytest.mark.parametrize("flash", [True, False])
def test_what_is_kept_of_gpt_is_what_korthikanti_and_others_count(flash: bool) -> None:
    s, b, h, a = 64, 3, 48, 4
    layer = parts.norm(h, bias=True, count=2)
    layer += parts.attention(h, a, h // a, bias=True, dropout=(True, True))
    layer += parts.feed_forward(h, 4 * h, gated=False, bias=True, dropout=True)
    made = families.Model((families.Layer("h.0", layer),), h)
    work = costs.Work(microbatch=b, sequence=s, width=2, training=True, flash=flash)
    found = costs.profile(made, work, costs.Roofline(1, None), "gpt").layers[0]
    assert found.stash == 34 * s * b * h + (not flash) * 5 * a * s * s * b
    assert layer.weights == 12 * h * h + 13 * h


def test_experts_and_tables_are_read_as_far_as_tokens_meet_them() -> None:
    made = model(json.loads(MIXTRAL.read_text()))
    table, layer = made.layers[:2]
    one = costs.Work(microbatch=1, sequence=4096, width=2, decoding=True)
    h, f, kv = 4096, 14336, 1024
    # Two of eight experts, the cache of 4,096 tokens, a token in and out.
    read_once = layer.part.weights - 6 * 3 * h * f + 4096 * 2 * kv + 2 * h
    assert costs.moved(layer, made, one, 1) == 2 * read_once
    assert costs.moved(table, made, one, 1) == 2 * 3 * h
    many = costs.Work(microbatch=1, sequence=4096, width=2)
    assert costs.moved(layer, made, many, 4096) == 2 * (layer.part.weights + 4096 * 2 * h)


def test_pairs_of_tokens_are_counted_one_by_one() -> None:
    for s in range(1, 9):
        for window in range(s + 2):
            seen = sum(max(0, at - (window or s)) < other <= at
                       for at in range(1, s + 1) for other in range(1, s + 1))  # fmt: skip
            work = costs.Work(microbatch=2, sequence=s, width=2)
            assert work.causal_pairs(window) == 2 * seen


def test_tied_weights_are_copied_where_they_are_used(tmp_path: Path) -> None:
    found = read(tmp_path, TINY, training=True)
    assert found.tied is not None
    uses = found.tied.uses()
    assert list(uses.values()) == [(50 * 8 * 2, [0, 5])]
    assert found.layer_names == (
        "model.embed_tokens", "model.layers.0", "model.layers.1", "model.layers.2", "model.norm",
        "lm_head",
    )  # fmt: skip
    assert found.forbidden_cuts == (5,)
    assert found.name == "llama"
    together = read(tmp_path, TINY, tied=True, devices=None, cluster="1xh100")
    assert together.tied is None


def test_layers_that_are_recomputed_keep_their_inputs(tmp_path: Path) -> None:
    config = {**TINY, "tie_word_embeddings": False}
    whole = read(tmp_path, config, training=True)
    again = read(tmp_path, config, training=True, keep="inputs")
    chosen = read(tmp_path, config, training=True, recompute="full")
    other = chosen.alternatives["full"]
    for at in (1, 2, 3):
        assert again.stash[at] == other.stash[at] == 8 * 4096 * 2
        assert again.backward[at] == other.backward[at] == whole.backward[at] + whole.forward[at]
        assert again.temporary[at] == other.temporary[at]


def test_what_is_said_beside_the_file(tmp_path: Path) -> None:
    half = read(tmp_path, TINY)
    full = read(tmp_path, {**TINY, "torch_dtype": "float32"}, training=True)
    assert full.exclusive["parameters"][1] == 2 * half.exclusive["parameters"][1]
    assert full.exclusive["optimiser state"][1] == 2 * full.exclusive["parameters"][1]
    assert (
        read(tmp_path, TINY, dtype="float8").exclusive["parameters"][1] * 2
        == (half.exclusive["parameters"][1])
    )
    two = read(tmp_path, TINY, microbatch=2, sequence="100")
    assert two.out_bytes[1] == 2 * 100 * 8 * 2
    assert two.digest == read(tmp_path, TINY, batch=2, sequence=100).digest
    eager = read(tmp_path, TINY, training=True, attention="eager")
    flash = read(tmp_path, TINY, training=True)
    # No dropout: the softmax alone, two heads of 2 bytes a pair.
    assert eager.stash[1] - flash.stash[1] == 2 * 2 * 4096**2
    decode = read(tmp_path, TINY, phase="decode")
    assert decode.out_bytes[1] == 8 * 2
    assert decode.tokens == 2 * 4097
    slow = read(tmp_path, TINY, utilisation=0.25, sequence=2**16)
    assert slow.forward[1] > 1.9 * read(tmp_path, TINY, sequence=2**16).forward[1]
    assert read(tmp_path, TINY, tokens=7).tokens == 7
    assert read(tmp_path, TINY, objective="headroom").tokens == 0


def test_multi_token_prediction_is_trained_and_not_served() -> None:
    serving = sp.read(DEEPSEEK, cluster="2x8xh200")
    training = sp.read(DEEPSEEK, cluster="2x8xh200", training=True)
    assert (serving.n, training.n) == (1 + 61 + 2, 1 + 61 + 1 + 2)
    assert training.layer_name(62) == "model.mtp.0"
    # Twice h, of which the head reads both; three dense layers, then those of experts.
    assert training.out_bytes[63] == 2 * training.out_bytes[62]
    assert len(set(serving.forward[1:4])) == len(set(serving.forward[4:62])) == 1
    # 576 values of 2 bytes a token and layer.
    assert serving.kv_bytes is not None
    assert set(serving.kv_bytes[1:62]) == {1152}


@pytest.mark.parametrize(
    ("change", "given", "told"),
    [
        ({"model_type": "mamba"}, {}, "model_type: 'mamba' is not known here; known are llama, "),
        ({"model_type": 3}, {}, "model_type: is no text"),
        ({"hidden_size": None}, {}, "hidden_size: is missing; a config.json of llama has it"),
        ({"hidden_size": "8"}, {}, "hidden_size: '8' is not a whole number from 1"),
        ({"num_hidden_layers": 10**6}, {}, "num_hidden_layers: '1000000' is not a whole number"),
        (
            {**json.loads(DEEPSEEK.read_text()), "num_nextn_predict_layers": 2**31},
            {},
            "num_nextn_predict_layers: '2147483648' is not a whole number from 0 to 16,384",
        ),
        ({"num_key_value_heads": 3}, {}, "num_key_value_heads: 3 do not divide 2 heads"),
        ({"tie_word_embeddings": 1}, {}, "tie_word_embeddings: '1' is no switch"),
        ({"dtype": "int3"}, {}, "dtype: 'int3' is not known here; say it by --set dtype="),
        ({"architectures": ["LlamaForTokenClassification"]}, {}, "architectures: 'LlamaFor"),
        ({"layer_types": ["full_attention"]}, {}, "layer_types: has 1 items for 3 layers"),
        ({}, {"cluster": None}, "cluster: is missing: the file does not say on what the model run"),
        ({}, {"cluster": "4xh10"}, "cluster: unknown accelerator 'h10'"),
        ({}, {"phase": "decode", "training": True}, "phase: is decode, but training computes"),
        ({}, {"dtype": "int3"}, "dtype: unknown dtype 'int3'; choose one of float32"),
        ({}, {"kv_bytes": 3}, "do not understand 'kv_bytes'"),
        (FACTS["published"]["GPT-2"][1], {"sequence": 2000}, "the model has positions for 1,024"),
        (FACTS["published"]["ViT-B/16"][1], {"sequence": 2}, "the model always has 197"),
        (FACTS["published"]["T5-small"][1], {"phase": "decode"}, "not all layers run token by tok"),
        ({"hidden_size": 2**30}, {}, "'model.layers.0' has more than"),
        ({"model_type": "gemma3"}, {}, "text_config: is missing"),
    ],
)
def test_bad_fields_are_refused_by_name(
    tmp_path: Path, change: dict[str, Any], given: dict[str, Any], told: str
) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, {**TINY, **change}, **given)
    assert told in str(error.value)


@pytest.mark.parametrize("name", ["T5-small", "BERT-base", "ViT-B/16", "Gemma-2-2B", "OPT-350M"])
def test_every_kind_of_model_is_cut_and_trained(tmp_path: Path, name: str) -> None:
    config = FACTS["published"][name][1]
    for training in (False, True):
        found = read(tmp_path, config, training=training, cluster="2xh100")
        result = sp.solve(found)
        assert result.status == "OPTIMAL"
        assert (
            sum(found.exclusive["parameters"])
            + sum(nbytes for nbytes, _ in (found.tied.uses() if found.tied else {}).values())
            == 2 * FACTS["published"][name][0]
        )


def test_unlike_devices_have_the_speed_of_the_whole_model(tmp_path: Path) -> None:
    found = sp.read(LLAMA, cluster="h100:1+a100-80:1")
    assert found.cluster.devices[1].speed == pytest.approx(312 / 989.5, rel=1e-3)
    decode = sp.read(LLAMA, cluster="h100:1+a100-80:1", phase="decode")
    assert decode.cluster.devices[1].speed == pytest.approx(2039 / 3350, rel=1e-3)


def test_the_shell_says_training_or_inference_and_times_in_ms(tmp_path: Path) -> None:
    done = run("solve", LLAMA, "--cluster", "4xh100", "--set", "sequence=4096,microbatch=1")
    assert "83 layers, 4 devices, inference" in done.stdout.splitlines()[0]
    assert "294.5 ms" in done.stdout
    assert "34.4 GiB  74.5 GiB" in done.stdout
    assert "68,976,648,192 parameters" in done.stderr
    done = run("solve", LLAMA, "--cluster", "2x8xh100", "--training")
    assert done.returncode == 3
    assert "or with 40 devices or with --recompute full" in " ".join(done.stdout.split())
    done = run("solve", DEEPSEEK, "--cluster", "2x8xh200", "--set", "sequence=2048")
    assert done.returncode == 0
    told = run("solve", LLAMA, "--cluster", "4xh10").stderr
    assert "choose one of a100-40, a100-80, h100, h800, h200, b200, l40s" in " ".join(told.split())


@pytest.mark.parametrize(
    ("tool", "options", "told"),
    [
        ("megatron", ["--cluster", "2x4xh200"], "Et*10|(t*10|)*6t*10L\n"),
        ("vllm", ["--cluster", "4xh100"], "VLLM_PP_LAYER_PARTITION=20,20,20,20\n"),
    ],
)
def test_plans_and_exports(tmp_path: Path, tool: str, options: list[str], told: str) -> None:
    made = tmp_path / "made"
    words = ("--microbatches", "16", "--export", made, "--as", tool)
    done = run("plan", LLAMA, *options, *words)
    assert done.returncode == 0, done.stderr
    assert made.read_text() == told


def test_torchtitan_calls_modules_by_other_names() -> None:
    found = sp.read(LLAMA, cluster="2xh100", capacity="100GB")
    from stagepack.formats.solutions import written_for

    stages = json.loads(
        written_for(found, sp.PipelineSolution.in_order([0, 41, 83]), "torchtitan", {})
    )
    assert stages[0] == ["tok_embeddings", *(f"layers.{at}" for at in range(40))]
    assert stages[1] == [*(f"layers.{at}" for at in range(40, 80)), "norm", "output"]
