"""Packings of the catalog: activations of networks, and generated ones with known optima."""

from __future__ import annotations

from functools import partial
from typing import Any

from stagepack.catalog.generator import Generator
from stagepack.catalog.networks import NETWORKS, network
from stagepack.catalog.packing import (
    adversarial,
    dissections,
    evolved,
    random,
    relatives,
    training,
)
from stagepack.contracts import JsonObject
from stagepack.instances import clusters
from stagepack.instances.packing.instance import LmemPacking
from stagepack.instances.packing.problem import Objective

__all__ = ["GENERATORS", "SUITE", "TOUR"]

# Every packing may have a capacity and another objective.
GIVEN = {"capacity": None, "objective": None}


def _shape(name: str) -> JsonObject:
    """Return the parameters of a network, as fine as it can be taken."""
    shape = dict(NETWORKS[name].shape)
    return {**shape, "granularity": "matmul"} if "granularity" in shape else shape


def _activations(name: str, *, training: bool, **shape: Any) -> LmemPacking:
    """Return the activations of a network; `shape` is what its recipe takes."""
    made = network(name, training=training, **shape)
    profile = made.profile(
        clusters.preset("generic-1"), bytes_per_value=1, training=training, state_bytes=0
    )
    return LmemPacking.from_profile(profile, training=training, name=f"activations-{made.name}")


def _limited(
    made: Generator, *, capacity: int | None, objective: str | None, **own: Any
) -> LmemPacking:
    """Return a packing with another capacity or objective, where they are not None.

    A capacity asks for a packing that fits it, unless something else is minimised.
    """
    instance: LmemPacking = made.make(**own)
    if capacity is None and objective is None:
        return instance
    if objective is None and instance.objective is Objective.PEAK:
        objective = Objective.FIT
    return instance.replace(
        capacity=instance.capacity if capacity is None else capacity,
        objective=instance.objective if objective is None else objective,
    )


_OWN: dict[str, Generator] = {
    **{
        f"activations/{name}": Generator(
            partial(_activations, name),
            {**_shape(name), "training": False},
            f"activations of {recipe.description.partition(',')[0].partition(':')[0]}",
        )
        for name, recipe in NETWORKS.items()
    },
    "random/powerlaw": Generator(
        random.powerlaw,
        {"buffers": 1000, "seed": 0},
        "lifetimes and sizes over many orders of magnitude, up to millions of buffers",
    ),
    "random/training": Generator(
        training.training,
        {"buffers": 18_692, "layers": 32, "kept": 36, "spread": 2.5, "seed": 0},
        "a training step of a large transformer: nested lives, each meeting thousands of others",
    ),
    "random/constant-load": Generator(
        random.constant_load,
        {"buffers": 20, "seed": 0},
        "small and tight: what ends is refilled at once; the optimum may exceed the load",
    ),
    "random/planted": Generator(
        dissections.planted,
        {"buffers": 60, "seed": 0, "peak": 2**20},
        "a rectangle cut by straight cuts: a packing without any waste exists",
    ),
    "random/pinwheel": Generator(
        dissections.pinwheel,
        {"buffers": 45, "seed": 0, "peak": 2**20},
        "a rectangle cut into pinwheels: a packing without any waste exists",
    ),
    "random/evolved": Generator(
        evolved.evolved,
        {"buffers": 40, "seed": 0},
        "the optimum exceeds the load: no packing is as low as the load at its highest",
    ),
    "relative": Generator(
        relatives.relative_of,
        {"of": "pinwheel", "buffers": 160, "changes": 2, "seed": 0, "number": 0},
        "a packing changed a little, perfect or a file's, to be put into its load: some are hard",
    ),
    "random/pipelined": Generator(
        random.pipelined,
        {"buffers": 9, "seed": 0, "banks": 4},
        "a software-pipelined loop: circular lifetimes, banks, pairs that should not share one",
    ),
    "above-load": Generator(
        evolved.smallest, {}, "the smallest packing known whose optimum exceeds its load"
    ),
    "adversarial/size": Generator(
        adversarial.against_size,
        {"copies": 3},
        "twice the optimum for first fit by size and TFLite's greedies by size and breadth",
    ),
    "adversarial/start": Generator(
        adversarial.against_start,
        {"levels": 4},
        "1 + levels / 2 times the optimum for first and best fit by start",
    ),
    "adversarial/lifetime": Generator(
        adversarial.against_lifetime,
        {"levels": 4},
        "1 + levels / 2 times the optimum for first and best fit by lifetime or area",
    ),
    "adversarial/all": Generator(
        adversarial.against_all,
        {"levels": 3},
        "the three others one after the other: against portfolios of greedies",
    ),
}

GENERATORS: dict[str, Generator] = {
    name: Generator(partial(_limited, made), {**made.parameters, **GIVEN}, made.description)
    for name, made in _OWN.items()
}

SUITE: tuple[tuple[str, JsonObject], ...] = (
    ("activations/bert-base", {"training": True}),
    ("activations/resnet-50", {"training": True}),
    ("random/planted", {}),
    ("random/pinwheel", {}),
    ("random/evolved", {}),
    ("random/pipelined", {}),
    ("adversarial/all", {}),
)

TOUR: tuple[str, JsonObject, tuple[str, ...]] = (
    "random/pinwheel",
    {},
    ("first-fit-size", "portfolio", "exact", "cp-sat"),
)
"""What a first comparison shows: an instance, and methods from a rule to a proof."""
