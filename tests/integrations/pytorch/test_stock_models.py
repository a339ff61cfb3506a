"""Models of Hugging Face's transformers as they come, beside the layers of their config.json."""

from __future__ import annotations

import importlib
import logging
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.formats.hugging_face import costs, families
from stagepack.formats.hugging_face.fields import Fields

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
counting = importlib.import_module("stagepack.integrations.pytorch.counting")
tracing = importlib.import_module("stagepack.integrations.pytorch.tracing")

COMMON = {"vocab_size": 40, "bos_token_id": 0, "eos_token_id": 1}
PLAIN = {**COMMON, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
         "max_position_embeddings": 32, "pad_token_id": 0}  # fmt: skip
GATED = {**PLAIN, "intermediate_size": 24, "num_key_value_heads": 2}
EXPERTS = {**GATED, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
LATENT = {**GATED, "num_key_value_heads": 4, "q_lora_rank": 8, "kv_lora_rank": 8,
          "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 4, "n_routed_experts": 4,
          "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 8,
          "first_k_dense_replace": 1, "topk_group": 1}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", {**COMMON, "n_embd": 16, "n_layer": 2, "n_head": 2}),
    "llama": ("LlamaForCausalLM", GATED),
    "mistral": ("MistralForCausalLM", {**GATED, "sliding_window": 4}),
    "mixtral": ("MixtralForCausalLM", {**GATED, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2": ("Qwen2ForCausalLM", GATED),
    "qwen3": ("Qwen3ForCausalLM", {**GATED, "head_dim": 4}),
    "qwen2_moe": ("Qwen2MoeForCausalLM", {**EXPERTS, "shared_expert_intermediate_size": 8}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", {**EXPERTS, "head_dim": 4}),
    "gemma": ("GemmaForCausalLM", {**GATED, "head_dim": 4}),
    "gemma2": ("Gemma2ForCausalLM", {**GATED, "head_dim": 4}),
    "gemma3_text": ("Gemma3ForCausalLM", {**GATED, "head_dim": 4}),
    "opt": ("OPTForCausalLM", {**PLAIN, "ffn_dim": 24, "word_embed_proj_dim": 16}),
    "t5": (
        "T5ForConditionalGeneration",
        {**COMMON, "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4},
    ),
    "bert": ("BertForMaskedLM", {**PLAIN, "intermediate_size": 24}),
    "vit": ("ViTForImageClassification",
            {**PLAIN, "intermediate_size": 24, "image_size": 32, "patch_size": 16}),
    "deepseek_v2": ("DeepseekV2ForCausalLM", {**LATENT, "n_group": 1}),
    "deepseek_v3": (
        "DeepseekV3ForCausalLM", {**LATENT, "n_group": 2, "num_nextn_predict_layers": 0},
    ),
}  # fmt: skip
IDS = torch.arange(12).reshape(2, 6) % 7


def made(kind: str) -> tuple[Any, Any, tuple[Any, ...], dict[str, Any]]:
    """Return a model with its configuration and inputs, as Transformers makes it."""
    architecture, options = MODELS[kind]
    config = transformers.AutoConfig.for_model(kind, **options)
    config.architectures = [architecture]
    args = (torch.zeros(2, 3, 32, 32),) if kind == "vit" else (IDS,)
    kwargs = {"decoder_input_ids": IDS} if kind == "t5" else {}
    return getattr(transformers, architecture)(config), config, args, kwargs


@pytest.mark.parametrize("kind", MODELS)
def test_a_stock_model_has_the_layers_of_its_config(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """At the first attempt: whole decoder layers, with weights and products to the last one."""
    module, config, args, kwargs = made(kind)
    with caplog.at_level(logging.WARNING, "stagepack"):
        network = counting.network_of(tracing.trace(module, args, kwargs))
    cached = getattr(config, "use_cache", False) is True and kind not in ("bert", "vit")
    assert (f"{type(module).__name__} is taken with use_cache=False" in caplog.text) == cached
    assert getattr(config, "use_cache", None) in ((True,) if cached else (None, True, False))
    model = families.model(Fields(config.to_diff_dict(), kind))
    tokens = 5 if kind == "vit" else 6  # four patches and the class
    work = costs.Work(microbatch=2, sequence=tokens, width=4, training=True, flash=False)
    ours = costs.profile(model, work, costs.Roofline(1, None), kind).layers
    assert network.weights == model.parameters
    theirs = {block.name: block for block in network.blocks}
    layers = [
        (theirs[one.name], layer, one)
        for layer, one in zip(model.layers, ours, strict=True)
        if layer.part.causal or layer.part.scores
    ]
    assert len(layers) == (4 if kind == "t5" else 2)
    for block, layer, one in layers:
        assert (block.weights, block.flops) == (layer.part.weights, one.forward)
        # What each operator by itself keeps is more than what fused ones do; GPT's dropout is
        # where ours is a byte, and in evaluation there is none.
        assert 0.5 < block.saved / one.stash < 3


def test_a_model_says_what_its_figures_are_of(caplog: pytest.LogCaptureFixture) -> None:
    """Inference, as all else, unless training is asked for."""
    module, _, args, _ = made("llama")
    for training, said in ((False, "inference"), (True, "training")):
        with caplog.at_level(logging.INFO, "stagepack"):
            profile = sp.profile_model(module, args, training=training)
        told = f"LlamaForCausalLM: 6 layers, 5,200 parameters, {said}"
        assert told in caplog.messages
        chain = sp.PipelinePartition.from_profile(profile, sp.Cluster.uniform(2))
        assert chain.training is training


def test_stages_of_a_model_return_what_it_does() -> None:
    """Of a model that returns a cache, without it; leaves come when they are asked for."""
    module, config, args, _ = made("llama")
    module.eval()
    stages, _ = sp.pipe_model(module, args, 2)
    assert config.use_cache is True
    whole = module(*args, use_cache=False)
    assert torch.equal(stages(*args).logits, whole.logits)
    names = [layer.name for layer in sp.profile_model(module, args, depth=9).layers]
    assert "model.layers.1.mlp.down_proj" in names


class Odd:
    """What torch.export does not take apart."""

    def __init__(self, value: Any) -> None:
        """Hold a tensor."""
        self.value = value


class Maker(torch.nn.Module):  # type: ignore[name-defined]
    """Makes what `make` does of a product."""

    def __init__(self, make: Any) -> None:
        """Take what it does."""
        super().__init__()
        self.linear, self.make = torch.nn.Linear(4, 4), make

    def forward(self, x: Any) -> Any:
        """Return what is made."""
        return self.make(self.linear(x))


@pytest.mark.parametrize(
    ("make", "inputs", "cure"),
    [
        (Odd, (torch.zeros(2, 4),), r"'.*Odd'> in output.*; wrap it in a module that returns"),
        (abs, (Odd(0),), r"Unsupported input type .*Odd'>; give tensors, or tuples"),
        (abs, (), r"argument: 'x'; give the inputs of its forward\(x.*\)"),
        (abs, (torch.zeros(2, 4), 1), r"; give the inputs of its forward\(x.*\)"),
        (lambda x: torch.from_numpy(x.numpy()), (torch.zeros(2, 4),), "; compute by PyTorch's"),
        (abs, (torch.zeros(2, 5),), r"; give inputs on which module\(\*sample_inputs"),
    ],
)
def test_what_cannot_be_traced_is_told_with_its_cure(make: Any, inputs: Any, cure: str) -> None:
    with pytest.raises(InputError, match=cure):
        sp.profile_model(Maker(make), inputs)
