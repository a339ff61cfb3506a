"""Layers of a ``config.json``, beside the modules that Transformers makes of it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from stagepack.formats.hugging_face import families
from stagepack.formats.hugging_face.fields import Fields
from tests.formats.test_hugging_face import FACTS

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

SIZES = ("vocab_size", "num_hidden_layers", "n_layer", "num_layers", "intermediate_size", "d_ff")
SIDE = ("max_position_embeddings", "n_positions", "moe_intermediate_size", "ffn_dim")
TINY = [config for _, config in FACTS["tiny"]]


@pytest.mark.parametrize("at", range(len(TINY)), ids=lambda at: TINY[at]["model_type"])
def test_layers_have_the_weights_of_their_modules(at: int) -> None:
    rng = random.Random(at)
    config: dict[str, Any] = dict(TINY[at])
    for name in (*SIZES, *SIDE):
        if name in config:
            config[name] += rng.randrange(3)
    config.pop("layer_types", None)
    kind, (architecture,) = config.pop("model_type"), config.pop("architectures")
    made = transformers.AutoConfig.for_model(kind, **config)
    made.architectures = [architecture]
    with torch.device("meta"):
        module = getattr(transformers, architecture)(made)
    told = made.to_diff_dict()
    found = families.model(Fields(told, kind))
    assert found.parameters == sum(values.numel() for values in module.parameters())
    modules = dict(module.named_modules())
    for layer in found.layers:
        if not layer.mtp and kind != "opt":  # whose projections are modules of their own
            own = layer.part.weights + sum(layer.tied.values())
            assert own == sum(values.numel() for values in modules[layer.name].parameters()), layer
