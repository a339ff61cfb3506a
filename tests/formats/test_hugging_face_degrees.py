"""Layers that several devices share: what each has, and what they exchange, by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.formats.hugging_face.config import Named, roofline, shares_of, work_of
from stagepack.formats.hugging_face.costs import profile
from stagepack.instances.profile import LayerProfile
from tests.imports import ROOT

EXAMPLES = ROOT / "examples"
LLAMA, MIXTRAL = EXAMPLES / "llama.json", EXAMPLES / "mixtral.json"
GATHER = 7 * (3400 + 2 * 4096 * 8192 / 8 / 450)
"""Nanoseconds in which eight H100 gather 4,096 tokens of 8,192 values in 16 bits."""


def layer(path: Path, at: int, **given: Any) -> LayerProfile:
    named = Named.read(path.read_bytes(), path.name)
    words = {"cluster": "2x8xh100", "sequence": 4096, **given}
    work, shares = work_of(named, words), shares_of(named, words)
    return profile(named.model, work, roofline(words)[0], "", shares).layers[at]


def test_a_tensor_group_by_hand() -> None:
    alone, shared = layer(LLAMA, 1), layer(LLAMA, 1, tensor=8)
    flops = 2 * 4096 * 855_638_016 + 4 * 8192 * (4096 * 4097 // 2)
    computed = math.ceil(flops / 8 / (0.5 * 989_500))
    # Attention and feed-forward each gather before and sum up behind.
    assert shared.forward == computed + math.ceil(4 * GATHER)
    assert shared.exclusive == {"parameters": 2 * 855_654_400 // 8}
    assert shared.kv_bytes == alone.kv_bytes // 8


def test_heads_of_keys_and_values_have_copies() -> None:
    config = json.loads(LLAMA.read_text()) | {"num_key_value_heads": 2}
    named = Named.read(json.dumps(config).encode(), "config.json")
    words: dict[str, Any] = {"cluster": "8xh100", "tensor": 8}
    work, shares = work_of(named, words), shares_of(named, words)
    found = profile(named.model, work, roofline(words)[0], "", shares).layers[1]
    assert found.kv_bytes == 2 * 2 * 128 * 2 // 2  # in two parts, four times each


@pytest.mark.parametrize(
    ("zero", "parameters", "gradients", "state"),
    [(0, 2, 2, 12), (1, 2, 2, 3), (2, 2, 0.5, 3), (3, 0.5, 0.5, 3)],
)
def test_what_copies_divide(zero: int, parameters: float, gradients: float, state: float) -> None:
    found = layer(LLAMA, 1, training=True, tensor=4, data=4, zero=zero)
    weights = 855_654_400 // 4
    assert found.exclusive == {
        "parameters": parameters * weights,
        "gradients": gradients * weights,
        "optimiser state": state * weights,
    }


def test_weights_are_gathered_and_gradients_summed_up() -> None:
    given: dict[str, Any] = {"training": True, "data": 8, "overlap": 0}
    whole, parts = (layer(LLAMA, 1, zero=zero, **given) for zero in (1, 3))
    gather = 7 * (3400 + 2 * 855_654_400 / 8 / 450)
    assert parts.forward - whole.forward == math.ceil(gather)
    assert parts.backward - whole.backward == 2 * math.ceil(gather)
    named = Named.read(LLAMA.read_bytes(), "llama.json")
    words = {"cluster": "2x8xh100", "sequence": 4096, **given}
    shares = shares_of(named, {**words, "zero": 1})
    reduced = shares.reduction(named.model.layers[1], work_of(named, words))
    assert reduced == pytest.approx(2 * gather)
    hidden = shares_of(named, {**words, "zero": 1, "overlap": 0.75})
    assert hidden.reduction(named.model.layers[1], work_of(named, words)) == pytest.approx(
        gather / 2
    )


def test_experts_get_their_tokens_and_send_them_back() -> None:
    alone, shared = (layer(MIXTRAL, 1, data=8, expert=e) for e in (1, 8))
    # Of each token's two copies seven eighths leave a device, twice.
    sent = 3400 + 2 * 4096 * 2 * 4096 * 7 / 8 / 450
    assert shared.forward - alone.forward == pytest.approx(2 * sent, abs=2)
    expert = 3 * 4096 * 14_336
    assert alone.exclusive["parameters"] - shared.exclusive["parameters"] == 2 * 7 * expert


def test_degrees_that_are_given_make_chains() -> None:
    chain = sp.read(LLAMA, kind="pipeline-partition", cluster="2x8xh100", tensor=8)
    assert (chain.k, chain.device_name(1)) == (2, "h100 8-15")
    assert sp.solve(chain).status == "OPTIMAL"
    unlike = sp.read(LLAMA, kind="pipeline-partition", cluster="h100:4+a100-40:4", tensor=4)
    assert [one.memory for one in unlike.cluster.devices] == [80 * 10**9, 40 * 10**9]
    assert unlike.cluster.devices[1].speed < 0.5


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"tensor": 3}, "tensor"),
        ({"data": 3}, "data"),
        ({"expert": 2}, "expert"),
        ({"tensor": 2, "pipeline": 4}, "pipeline"),
        ({"tensor": 2, "cluster": "generic-4"}, "tensor"),
        ({"tensor": 2, "devices": 4}, "tensor"),
        ({"tensor": 0}, "tensor"),
        ({"overlap": 2}, "overlap"),
    ],
)
def test_degrees_that_do_not_divide_are_refused(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        sp.read(LLAMA, **{"kind": "pipeline-partition", "cluster": "2x8xh100", **given})
    assert caught.value.field == field


def test_a_tensor_group_that_divides_no_heads_is_refused() -> None:
    with pytest.raises(InputError, match="3 do not divide"):
        sp.read(LLAMA, kind="pipeline-partition", cluster="6xh100", tensor=3)
