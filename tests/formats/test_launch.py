"""What Megatron-LM, torchtitan and vLLM are told of a layout.

Torchtitan's arguments were read by its own parser (0.3.0), Megatron-LM's names are fields of
megatron-core 0.16.1.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.formats.hugging_face.layout import Layout
from stagepack.formats.megatron.arguments import arguments as megatron
from stagepack.formats.serving.arguments import arguments as vllm
from stagepack.formats.torch.titan import arguments as torchtitan

NAMES = ["model.embed_tokens", *(f"model.layers.{at}" for at in range(4)), "model.norm", "lm_head"]
CUT = sp.PipelineSolution((0, 3, 7), (0, 1))
LAYOUT = Layout(4, 2, 2, 1, 2, 8, recompute=True, zero=1, sequence=4096)


def chain(*, training: bool) -> sp.PipelinePartition:
    return sp.PipelinePartition.from_arrays(
        [1] * 7, devices=2, training=training, layer_names=NAMES, forbidden_cuts=[6]
    )


def test_megatron() -> None:
    assert megatron(LAYOUT, chain(training=True), CUT) == (
        "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 "
        "--expert-model-parallel-size 1 --micro-batch-size 2 --global-batch-size 32 "
        "--seq-length 4096 --sequence-parallel --use-distributed-optimizer "
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 "
        "--pipeline-model-parallel-layout 'Ett|ttL'\n"
    )
    with pytest.raises(InputError, match="divides weights"):
        megatron(replace(LAYOUT, zero=3), chain(training=True), CUT)


def test_torchtitan() -> None:
    given = replace(LAYOUT, zero=3, expert=2)
    assert torchtitan(given, chain(training=True), CUT) == (
        "--parallelism.tensor_parallel_degree 4 --parallelism.pipeline_parallel_degree 2 "
        "--parallelism.data_parallel_shard_degree 2 --parallelism.expert_parallel_degree 2 "
        "--parallelism.pipeline_parallel_schedule 1F1B "
        "--parallelism.pipeline_parallel_microbatch_size 2 "
        "--parallelism.module_fqns_per_model_part tok_embeddings,layers.0,layers.1 "
        "layers.2,layers.3,norm,output --training.local_batch_size 16 "
        "--training.global_batch_size 32 --training.seq_len 4096 activation-checkpoint:full\n"
    )
    whole = torchtitan(replace(given, zero=0, expert=1), chain(training=True), CUT)
    assert "--parallelism.data_parallel_replicate_degree 2" in whole
    assert "--parallelism.data_parallel_shard_degree 1" in whole
    for zero, expert, told in ((1, 1, "optimiser's state alone"), (0, 2, "hold all weights")):
        with pytest.raises(InputError, match=told):
            torchtitan(replace(given, zero=zero, expert=expert), chain(training=True), CUT)


def test_vllm() -> None:
    assert vllm(LAYOUT, chain(training=False), CUT) == (
        "VLLM_PP_LAYER_PARTITION=2,2 vllm serve MODEL --tensor-parallel-size 4 "
        "--pipeline-parallel-size 2 --data-parallel-size 2 --max-num-seqs 16 "
        "--max-model-len 4096\n"
    )
    spread = replace(LAYOUT, tensor=1, expert=2)
    assert vllm(spread, chain(training=False), CUT).endswith("--enable-expert-parallel\n")
    with pytest.raises(InputError, match="experts on 2 of 8 devices"):
        vllm(replace(LAYOUT, expert=2), chain(training=False), CUT)


def test_training_and_inference_are_not_mistaken() -> None:
    for tool, training in ((megatron, False), (torchtitan, False), (vllm, True)):
        with pytest.raises(InputError, match=r"is inference|is training"):
            tool(LAYOUT, chain(training=training), CUT)
