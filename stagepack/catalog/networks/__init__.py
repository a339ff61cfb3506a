"""Real networks as chains of layers, from the formulas of their architectures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from stagepack.catalog.networks import convolutional, transformers
from stagepack.instances.network import Block, Network

__all__ = ["NETWORKS", "Block", "Network", "Recipe", "network"]


@dataclass(frozen=True)
class Recipe:
    """How to make a network: its function, what that takes, and what it usually runs on."""

    make: Callable[..., Network]
    shape: Mapping[str, object]
    description: str
    cluster: str = "ipu-pod4"
    state_bytes: int = 4  # two moments in half precision


_TEXT = {"batch": 8, "sequence": 128, "bytes_per_value": 2, "granularity": "block"}
_PATCHES = {"batch": 8, "image": 224, "bytes_per_value": 2, "granularity": "block"}
_IMAGE = {"batch": 16, "image": 224, "bytes_per_value": 2}

NETWORKS: dict[str, Recipe] = {
    **{
        f"bert-{size}": Recipe(
            partial(transformers.bert, size),
            _TEXT,
            f"BERT-{size}, {of.layers} layers of width {of.width}, with a classifier",
        )
        for size, of in transformers.BERT.items()
    },
    **{
        f"gpt2-{size}": Recipe(
            partial(transformers.gpt2, size),
            {**_TEXT, "batch": 1 if size in ("large", "xl") else 4, "sequence": 512, "tied": False},
            f"GPT-2 {size}, {of.layers} layers of width {of.width}",
            cluster="ipu-pod8" if size == "xl" else "ipu-pod4",
        )
        for size, of in transformers.GPT2.items()
    },
    **{
        f"vit-{size}": Recipe(
            partial(transformers.vit, size),
            _PATCHES,
            f"ViT-{size.upper().replace('-', '/')}, {of.layers} layers of width {of.width}",
        )
        for size, of in transformers.VIT.items()
    },
    "resnet-50": Recipe(
        convolutional.resnet50,
        {**_IMAGE, "granularity": "block"},
        "ResNet-50: stem, 16 bottlenecks, classifier",
        state_bytes=2,  # momentum
    ),
    "vgg-16": Recipe(
        convolutional.vgg16,
        _IMAGE,
        "VGG-16: 13 convolutions, 5 poolings, 3 full layers",
        state_bytes=2,
    ),
}


def network(name: str, **parameters: object) -> Network:
    """Return a network without any hardware; parameters left out have their defaults."""
    recipe = NETWORKS[name]
    return recipe.make(**{"training": False, **recipe.shape, **parameters})
