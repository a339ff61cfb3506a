"""Models of Hugging Face's transformers, small and with random weights: in, and out as stages."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterator
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
counting = importlib.import_module("stagepack.integrations.pytorch.counting")
staging = importlib.import_module("stagepack.integrations.pytorch.stages")
tracing = importlib.import_module("stagepack.integrations.pytorch.tracing")
alone = importlib.import_module("tests.integrations.pytorch.alone")

WIDTH = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2,
         "intermediate_size": 32, "hidden_dropout_prob": 0.0,
         "attention_probs_dropout_prob": 0.0}  # fmt: skip
GPT2 = {"n_embd": 16, "n_layer": 3, "n_head": 2, "vocab_size": 40, "n_positions": 8,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "use_cache": False,
        "bos_token_id": 0, "eos_token_id": 1}  # fmt: skip
IDS = torch.arange(12).reshape(2, 6) % 7
IMAGES = torch.linspace(-1, 1, 2 * 3 * 32 * 32).reshape(2, 3, 32, 32)
MASK = {"attention_mask": torch.tensor([[1] * 6, [1] * 4 + [0] * 2])}
MODELS: dict[str, tuple[str, dict[str, Any], tuple[Any, ...], dict[str, Any]]] = {
    "BertForSequenceClassification": ("BertConfig", {**WIDTH, "vocab_size": 40}, (IDS,), MASK),
    "GPT2LMHeadModel": ("GPT2Config", {**GPT2, "tie_word_embeddings": False}, (IDS,), MASK),
    "ViTForImageClassification": (
        "ViTConfig", {**WIDTH, "image_size": 32, "patch_size": 16}, (IMAGES,), {},
    ),
    "ResNetForImageClassification": (
        "ResNetConfig",
        {"embedding_size": 4, "hidden_sizes": [4, 8, 8, 8], "depths": [1, 1, 1, 1]},
        (IMAGES,), {},
    ),
}  # fmt: skip


def made(name: str, **more: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return a model with its inputs."""
    config, options, args, kwargs = MODELS[name]
    torch.manual_seed(0)
    module = getattr(transformers, name)(getattr(transformers, config)(**{**options, **more}))
    return module.train(), args, kwargs


@pytest.fixture(scope="module", autouse=True)
def _group() -> Iterator[None]:
    yield from alone.group()


@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_out_as_stages(name: str) -> None:
    """Of its balanced plan, two and four: results, gradients and buffers of a step are its own."""
    ours, args, kwargs = made(name)
    state = copy.deepcopy(ours.state_dict())
    traced = tracing.trace(ours, args, kwargs)  # once for all that follows
    profile = counting.counted(traced, "generic-1", training=True, state_bytes=8)
    parameters = sum(layer.exclusive.get("parameters", 0) for layer in profile.layers)
    assert parameters == 4 * sum(p.numel() for p in ours.parameters())
    for count in (2, 4):
        chain = sp.PipelinePartition.from_profile(profile, sp.Cluster.uniform(count), training=True)
        result = sp.solve(chain)
        assert result.status is sp.Status.OPTIMAL
        ours.load_state_dict(state)
        ours.zero_grad()
        module = copy.deepcopy(ours)
        stages = staging.staged(traced, result.solution.boundaries)
        assert len(stages) == count
        assert stages.state_dict().keys() == state.keys()
        alone.require_same(module, ours, stages, args, kwargs)


def test_tied_weights_are_copied_or_keep_layers_together() -> None:
    """A head that shares the embedding has a copy, or holds all layers between them together."""
    module, args, kwargs = made("GPT2LMHeadModel", tie_word_embeddings=True)
    stages, _ = sp.pipe_model(module, args, 4, kwargs)
    assert [users for _, users in stages.tied] == [(0, 3)]
    alone.require_same(copy.deepcopy(module), module, stages, args, kwargs)
    with pytest.raises(InputError, match=r"2 at most, as variable 'transformer\.wte\.weight'"):
        sp.pipe_model(module, args, 4, kwargs, tied="together")
