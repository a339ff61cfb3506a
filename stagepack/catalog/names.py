"""The names of the catalog as types: which kind of instance each one makes.

Editors complete them, and type checkers know what :func:`stagepack.load` returns.
``python -m tests.tell_types`` writes this file.
"""

from __future__ import annotations

from typing import Literal

PipelineName = Literal[
    "pipeline/bert-base",
    "pipeline/bert-large",
    "pipeline/gpt2-small",
    "pipeline/gpt2-medium",
    "pipeline/gpt2-large",
    "pipeline/gpt2-xl",
    "pipeline/vit-b-16",
    "pipeline/vit-l-16",
    "pipeline/resnet-50",
    "pipeline/vgg-16",
    "pipeline/random/bert-like",
    "pipeline/random/heterogeneous",
    "pipeline/random/adversarial",
    "pipeline/random/shared-variables",
    "pipeline/random/tight-memory",
    "pipeline/random/infeasible",
    "pipeline/random/unlike-devices",
    "pipeline/interleaved",
]

PackingName = Literal[
    "packing/activations/bert-base",
    "packing/activations/bert-large",
    "packing/activations/gpt2-small",
    "packing/activations/gpt2-medium",
    "packing/activations/gpt2-large",
    "packing/activations/gpt2-xl",
    "packing/activations/vit-b-16",
    "packing/activations/vit-l-16",
    "packing/activations/resnet-50",
    "packing/activations/vgg-16",
    "packing/random/powerlaw",
    "packing/random/training",
    "packing/random/constant-load",
    "packing/random/planted",
    "packing/random/pinwheel",
    "packing/random/evolved",
    "packing/relative",
    "packing/random/pipelined",
    "packing/above-load",
    "packing/adversarial/size",
    "packing/adversarial/start",
    "packing/adversarial/lifetime",
    "packing/adversarial/all",
]

ScheduleName = Literal[
    "schedule/bert-base",
    "schedule/bert-large",
    "schedule/gpt2-small",
    "schedule/gpt2-medium",
    "schedule/gpt2-large",
    "schedule/gpt2-xl",
    "schedule/vit-b-16",
    "schedule/vit-l-16",
    "schedule/resnet-50",
    "schedule/vgg-16",
    "schedule/uniform",
    "schedule/interleaved",
    "schedule/v-shaped",
    "schedule/bidirectional",
    "schedule/unlike",
    "schedule/zero-bubble/small",
    "schedule/zero-bubble/measured-4x12",
    "schedule/zero-bubble/measured-8x32",
]

PhaseName = Literal[
    "phases/bert-base",
    "phases/bert-large",
    "phases/gpt2-small",
    "phases/gpt2-medium",
    "phases/gpt2-large",
    "phases/gpt2-xl",
    "phases/mnist",
    "phases/six-layers",
    "phases/random/heterogeneous",
    "phases/random/chain-remat",
    "phases/random/skip-remat",
]

GroupingName = Literal[
    "groups/alexnet",
    "groups/densenet121",
    "groups/inception-v1",
    "groups/inception-v2",
    "groups/resnet50",
    "groups/shufflenet",
    "groups/squeezenet",
    "groups/vgg19",
    "groups/zfnet512",
    "groups/random/blocks",
    "groups/examples/balanced-rows",
    "groups/examples/schedule-then-place",
]

GraphName = Literal[
    "graph/alexnet",
    "graph/densenet121",
    "graph/inception-v1",
    "graph/inception-v2",
    "graph/resnet50",
    "graph/shufflenet",
    "graph/squeezenet",
    "graph/vgg19",
    "graph/zfnet512",
    "graph/bert-base",
    "graph/bert-large",
    "graph/gpt2-small",
    "graph/gpt2-medium",
    "graph/gpt2-large",
    "graph/gpt2-xl",
    "graph/vit-b-16",
    "graph/vit-l-16",
    "graph/resnet-50",
    "graph/vgg-16",
    "graph/random/blocks",
    "graph/random/branchy",
    "graph/random/layered",
]
