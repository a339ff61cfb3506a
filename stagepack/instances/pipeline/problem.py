"""Pipeline partitions: kind, objectives, words, and what is registered as `PROBLEM`."""

from __future__ import annotations

from enum import StrEnum

from stagepack.instances.problem import Change, Problem, Tool
from stagepack.instances.words import CAPACITIES, Parameter

KIND = "pipeline-partition"


class Objective(StrEnum):
    """Objectives of a partition; compute and transfer are in cycles."""

    BOTTLENECK = "bottleneck"
    """The largest compute."""
    TRANSFER_BOUNDED = "transfer-bounded"
    """The largest compute plus the largest transfer: devices exchange after all have computed."""
    SUM = "sum"
    """The largest sum of compute and transfer: each device exchanges when it is ready."""
    OVERLAP = "overlap"
    """The largest single term of compute, receive and send: transfers hide behind compute."""
    LATENCY = "latency"
    """The sum of all compute and transfers: one sample, or token, goes through the pipeline."""
    HEADROOM = "headroom"
    """The tokens whose KV cache fits on every device, negative: the most of them is minimised."""
    MOVES = "moves"
    """The bytes of layers that devices do not hold of a previous cut, within a limit."""

    @property
    def counts_transfers(self) -> bool:
        """Whether transfers are part of it."""
        return self not in (Objective.BOTTLENECK, Objective.HEADROOM, Objective.MOVES)

    @property
    def additive(self) -> bool:
        """Whether it is the sum of what all stages cost, not the largest of these."""
        return self in (Objective.LATENCY, Objective.MOVES)


LIMITABLE = (
    Objective.BOTTLENECK, Objective.TRANSFER_BOUNDED, Objective.SUM, Objective.OVERLAP
)  # fmt: skip
"""Objectives within a limit of which `moves` can be minimised."""

TIED = ("copied", "together")
"""A weight that several layers use: on every stage that uses it, or these on one stage."""


MEMORY = ("exclusive", "shared", "temporary", "carry", "stash", "received")
"""The terms of a stage's memory; `received` counts in schedules and plans only."""

WORDS = (
    Parameter(
        "host_transfer",
        bool,
        "every device waits for the exchange with the host",
        option="machine",
    ),
    Parameter(
        "order",
        str,
        "which order of a graph makes the chain: the best of some dozens, or that of the file",
        choices=("best", "file"),
        option="instance",
    ),
    Parameter(
        "backward_transfers",
        bool,
        "count the gradients that come back over the links; by default in training",
        option="machine",
    ),
    Parameter(
        "memory",
        str,
        "terms of memory that count: exclusive (or its categories), shared, temporary, carry, "
        "stash, received (in schedules and plans), commas between; by default all",
        option="machine",
    ),
    Parameter(
        "kv_bytes",
        list,
        "bytes of KV cache that a token takes in every layer, or in each",
        unit="bytes",
        option="machine",
    ),
    Parameter("tokens", int, "tokens whose KV cache fits on every device", option="machine"),
    Parameter("limited", str, "of moves, the objective that `limit` limits", choices=LIMITABLE),
    Parameter("limit", float, "of moves, the most that this objective may be"),
    Parameter("fewer_stages", bool, "devices may stay unused, stages be empty", option="freedom"),
    Parameter("free_order", bool, "stages may run on the devices in any order", option="freedom"),
    Parameter("stages_per_device", int, "stages of each device", 1, 2**10, option="machine"),
    Parameter(
        "placement",
        str,
        "devices of the stages: loop (round after round), v (every second round backwards), or the "
        "device of each stage, as 0,1,1,0",
        option="machine",
    ),
    Parameter(
        "recompute",
        str,
        "layers may be recomputed in the backward pass, from what crosses the cut before them",
        choices=("none", "full"),
        option="freedom",
    ),
    Parameter(
        "alternatives_per",
        str,
        "whether each layer takes one of its alternatives, or all layers of a stage the same",
        choices=("layer", "stage"),
        option="freedom",
    ),
)

SKIPS = {"skips": "true where ranks have or make what skips a stage, as masks and positions"}
LETTERS_ALONE = {"letters": "E, t, m or L for each layer, where names do not tell: Et*24L"}
LETTERS = {**LETTERS_ALONE, **SKIPS}
RANKS = {"ranks": "ranks of the pipeline, each with several stages"}

PROBLEM = Problem(
    kind=KIND,
    instance="PipelinePartition",
    objectives=tuple(Objective),
    solution_fields=("boundaries",),
    words=(*WORDS, CAPACITIES),
    frees=True,
    changes=(
        Change("fixed_cuts", "--fix-cut", "layer", "a stage begins here; repeatable"),
        Change("forbidden_cuts", "--forbid-cut", "layer", "no stage begins here; repeatable"),
        Change(
            "previous",
            "--previous",
            "file",
            "the cut in place (result, solution, or devices by layer): few bytes should move",
            "cuts.read_previous",
        ),
    ),
    tools={
        "megatron": Tool(
            "megatron.layout.layout",
            "--pipeline-model-parallel-layout of Megatron-LM",
            {**RANKS, **LETTERS},
            requires="require_layout",
        ),
        "megatron-recompute": Tool(
            "megatron.layout.recompute",
            "--recompute-granularity and what goes with it, of Megatron-LM",
            LETTERS_ALONE,
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
            requires="require_names",
        ),
        "torch-recompute": Tool(
            "torch.modules.recompute",
            "layers wrapped in torch.utils.checkpoint, in Python",
        ),
        "accelerate": Tool(
            "torch.modules.accelerate",
            "device_map of Accelerate",
            {
                "inside": "true where parts of layers.3, say, may be on several devices",
                "modules": "file with the names of the model's modules, a line each, to check",
            },
            requires="require_items",
        ),
        "vllm": Tool(
            "serving.layers.vllm", "VLLM_PP_LAYER_PARTITION", LETTERS, requires="require_layers"
        ),
        "vllm-offload": Tool(
            "serving.offload.vllm",
            "--cpu-offload-gb of vLLM",
            LETTERS_ALONE,
            requires="require_alone",
        ),
        "llama.cpp": Tool(
            "serving.offload.llama",
            "--tensor-split and --override-tensor of llama.cpp",
            {**LETTERS_ALONE, "tensors": "tensors of a layer that are on the CPU: ffn_.*_exps"},
            requires="require_alone",
        ),
        "sglang": Tool(
            "serving.layers.sglang", "SGLANG_PP_LAYER_PARTITION", LETTERS, requires="require_layers"
        ),
        "deepspeed": Tool(
            "deepspeed.module.module",
            "a PipelineModule of DeepSpeed in Python",
            requires="require_placed",
        ),
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
