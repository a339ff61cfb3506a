"""What is to be known of pipeline partitions: see :class:`stagepack.instances.problem.Problem`."""

from __future__ import annotations

from stagepack.instances.pipeline.words import KIND, WORDS, Objective
from stagepack.instances.problem import Change, Problem, Tool

SKIPS = {"skips": "true where ranks have or make what skips a stage, as masks and positions"}
LETTERS = {"letters": "E, t, m or L for each layer, where names do not tell: Et*24L", **SKIPS}
RANKS = {"ranks": "ranks of the pipeline, each with several stages"}

PROBLEM = Problem(
    kind=KIND,
    instance="PipelinePartition",
    objectives=tuple(Objective),
    solution_fields=("boundaries",),
    words=WORDS,
    changes=(
        Change("fixed_cuts", "--fix-cut", "layer", "a stage begins here; repeatable"),
        Change("forbidden_cuts", "--forbid-cut", "layer", "no stage begins here; repeatable"),
    ),
    tools={
        "megatron": Tool(
            "megatron.layout.layout",
            "--pipeline-model-parallel-layout of Megatron-LM",
            {**RANKS, **LETTERS},
            requires="require_layout",
        ),
        "torchtitan": Tool(
            "torch.modules.torchtitan",
            "module_fqns_per_model_part of torchtitan",
            {
                "modules": "file with the names of the model's modules, a line each, to check",
                **RANKS,
                **SKIPS,
            },
            requires="require_modules",
        ),
        "torch": Tool(
            "torch.modules.torch",
            "split_spec of torch.distributed.pipelining",
            requires="module_names",
        ),
        "accelerate": Tool(
            "torch.modules.accelerate",
            "device_map of Accelerate",
            {"inside": "true where parts of layers.3, say, may be on several devices"},
            requires="require_items",
        ),
        "vllm": Tool(
            "serving.layers.vllm", "VLLM_PP_LAYER_PARTITION", LETTERS, requires="require_layers"
        ),
        "sglang": Tool(
            "serving.layers.sglang", "SGLANG_PP_LAYER_PARTITION", LETTERS, requires="require_layers"
        ),
        "deepspeed": Tool("deepspeed.module.module", "a PipelineModule of DeepSpeed in Python"),
    },
    becomes={"pipeline-schedule": "PipelineSchedule.from_partition"},
    public={
        "Objective": "",
        "PipelinePartition": "",
        "PipelineSolution": "",
        "Variable": "",
        "estimate": "estimate",
        "read_measured": "estimate",
    },
)
