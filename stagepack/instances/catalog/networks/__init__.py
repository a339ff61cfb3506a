"""Real networks as chains of layers, from the formulas of their architectures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from stagepack.instances.catalog import clusters
from stagepack.instances.catalog.networks import convolutional, transformers
from stagepack.instances.catalog.networks.network import Block, Network
from stagepack.instances.pipeline.instance import PipelinePartition

__all__ = ["NETWORKS", "Block", "Network", "Recipe", "build", "network"]

MACHINE = {"cluster": "ipu-pod4", "devices": None, "bandwidth": None, "capacity": None,
           "speed": None, "utilisation": None}  # fmt: skip
JOB = {"training": False, "microbatches": 16, "objective": "transfer-bounded",
       "host_transfer": True, "fewer_stages": False, "free_order": False}  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """How to make a network: its function, what that takes, and the defaults of an instance."""

    make: Callable[..., Network]
    shape: Mapping[str, Any]
    description: str
    cluster: str = "ipu-pod4"
    state_bytes: int = 4  # two moments in half precision

    @property
    def parameters(self) -> dict[str, Any]:
        """Every parameter of the instance with its default."""
        own = {"cluster": self.cluster, "state_bytes": self.state_bytes}
        return {**self.shape, **JOB, **MACHINE, **own}


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


def network(name: str, **parameters: Any) -> Network:
    """Return a network without any hardware; parameters left out have their defaults."""
    recipe = NETWORKS[name]
    return recipe.make(**{"training": False, **recipe.shape, **parameters})


def build(name: str, **given: Any) -> PipelinePartition:
    """Return the instance of a network on a cluster, all its parameters `given`.

    Raises
    ------
    InputError
        Naming the parameter.
    """
    recipe = NETWORKS[name]
    preset = clusters.preset(given["cluster"])
    cluster = clusters.changed(
        preset.cluster,
        **{fact: given[fact] for fact in ("devices", "capacity", "bandwidth", "speed")},
    )
    shape = {key: given[key] for key in recipe.shape}
    made = network(name, training=given["training"], **shape)
    profile = made.profile(
        preset,
        bytes_per_value=given["bytes_per_value"],
        training=given["training"],
        state_bytes=given["state_bytes"],
        utilisation=given["utilisation"],
    )
    return PipelinePartition.from_profile(profile, cluster, **{key: given[key] for key in JOB})
