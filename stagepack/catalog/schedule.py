"""Pipeline schedules of the catalog: hard cases of the literature, uniform ones, real networks.

In generated instances F of a microbatch takes 2 units of memory, of which B and W release one
each, or B both where the backward pass is whole; a capacity is the limit of every device in
these units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from stagepack.catalog import networks
from stagepack.catalog import pipeline as pipelines
from stagepack.catalog.generator import Generator
from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.instances.schedule import PipelineSchedule
from stagepack.instances.schedule.instance import with_whole_first
from stagepack.instances.schedule.partition import balanced
from stagepack.instances.words import Words

UNITS: Words = {"forward": 1, "backward": 1, "weight": 1, "latency": 0}
# Where the networks that do not train on four IPUs are trained.
CLUSTERS = {
    "bert-large": "ipu-pod8",
    "vit-l-16": "ipu-pod8",
    "gpt2-medium": "ipu-pod16",
    "gpt2-large": "generic-8",
    "gpt2-xl": "generic-8",
}
ZERO_BUBBLE = "sail-sg/zero-bubble-pipeline-parallelism"


def _stages(
    name: str,
    devices: Sequence[int],
    microbatches: Any,
    *,
    forward: int,
    backward: int,
    weight: int,
    latency: int,
    edges: Any = None,
) -> PipelineSchedule:
    """Return stages all alike; without `weight` B is whole, without `backward` it is inference."""
    p = len(devices)
    if weight and not backward:
        raise InputError(
            "is 0 though weight is not", field="backward", remedy="give both, or no weight"
        )
    arguments: JsonObject = {"backward": None, "weight": None}
    if backward:
        arguments = {
            "backward": np.full(p, backward),
            "weight": np.full(p, weight) if weight else None,
            "memory_forward": 2,
            "memory_backward": -1 if weight else -2,
            "memory_weight": -1 if weight else 0,
        }
    return PipelineSchedule.from_arrays(
        np.full(p, forward),
        microbatches=microbatches,
        devices=devices,
        edges=edges,
        latency=latency,
        name=name,
        **arguments,
    )


def _uniform(devices: int, microbatches: int, **units: int) -> PipelineSchedule:
    """One stage a device."""
    return _stages(f"uniform-{devices}x{microbatches}", range(devices), microbatches, **units)


def _interleaved(devices: int, microbatches: int, chunks: int, **units: int) -> PipelineSchedule:
    """Stages dealt to the devices round after round, `chunks` a device (Narayanan et al. 2021)."""
    name = f"interleaved-{devices}x{chunks}x{microbatches}"
    return _stages(name, list(range(devices)) * chunks, microbatches, **units)


def _v_shaped(devices: int, microbatches: int, **units: int) -> PipelineSchedule:
    """Two stages a device, down and up again: the first device has the last stage, too.

    Source: Qi, Wan, Huang, Lin, *Zero Bubble Pipeline Parallelism*, 2024 (ZB-V).
    """
    there_and_back = [*range(devices), *reversed(range(devices))]
    return _stages(f"v-shaped-{devices}x{microbatches}", there_and_back, microbatches, **units)


def _bidirectional(devices: int, microbatches: int, **units: int) -> PipelineSchedule:
    """Two replicas of a pipeline that run in opposite directions, half of the microbatches each.

    Source: Li, Hoefler, *Chimera*, 2021.
    """
    if microbatches < 2:
        raise InputError("is 1", field="microbatches", remedy="give at least one a direction")
    down = [(s, s + 1) for s in range(devices - 1)]
    up = [(devices + s, devices + s + 1) for s in range(devices - 1)]
    half = microbatches // 2
    return _stages(
        f"bidirectional-{devices}x{microbatches}",
        [*range(devices), *reversed(range(devices))],
        [microbatches - half] * devices + [half] * devices,
        edges=down + up,
        **units,
    )


def _unlike(devices: int, microbatches: int, latency: int, seed: int) -> PipelineSchedule:
    """Draw the cycles of every stage and every edge's latency; B and W are near F, as in networks.

    Every device may hold one microbatch more than 1F1B holds on the first: 2 * devices + 2 units.
    """
    rng = np.random.default_rng(seed)
    forward = rng.integers(40, 100, devices)
    return PipelineSchedule.from_arrays(
        forward,
        forward * rng.integers(90, 120, devices) // 100,
        forward * rng.integers(60, 100, devices) // 100,
        microbatches=microbatches,
        latency=rng.integers(0, latency + 1, devices - 1),
        memory_forward=2,
        memory_backward=-1,
        memory_weight=-1,
        limit=2 * devices + 2,
        name=f"unlike-{devices}x{microbatches}",
    )


def _zero_bubble(
    name: str,
    p: int,
    m: int,
    times: tuple[int, int, int],
    latency: int,
    memory: tuple[int, int, int],
    capacity: int,
) -> PipelineSchedule:
    """Return `p` stages and `m` microbatches of Zero Bubble: times and memory of F, B and W."""
    forward, backward, weight = (np.full(p, cycles) for cycles in times)
    return PipelineSchedule.from_arrays(
        forward,
        backward,
        weight,
        microbatches=m,
        latency=latency,
        memory_forward=memory[0],
        memory_backward=memory[1],
        memory_weight=memory[2],
        limit=capacity,
        post_validation=True,
        name=name,
    )


def _of_network(name: str, microbatches: int, split: bool, **parameters: Any) -> PipelineSchedule:
    """Schedule a network whose layers are cut into stages of about equal cycles.

    The stages are those of the least bottleneck; memory and latency follow from the layers and
    the cluster.
    """
    usual = pipelines.parameters(name)
    fixed = {"objective": "bottleneck", "host_transfer": False}
    partition = pipelines.of_network(
        name, **{**usual, "microbatches": microbatches, **parameters, **fixed}
    )
    return PipelineSchedule.from_partition(
        partition, balanced(partition), split=split, name=f"{name}-{partition.k}x{microbatches}"
    )


def _network_parameters(name: str) -> JsonObject:
    unused = pipelines.TRAINED.keys() - {"microbatches"}
    recipe = networks.NETWORKS[name]
    kept = {key: value for key, value in pipelines.parameters(name).items() if key not in unused}
    fits = {"cluster": CLUSTERS.get(name, recipe.cluster)}
    return {**kept, "batch": 1, "training": True, "split": True, **fits}


# Every schedule may have another objective, and count the backward pass as PyTorch runs it.
GIVEN = {"objective": None, "steps": 1, "whole_first": False}


def _changed(
    make: Callable[..., PipelineSchedule],
    *,
    objective: str | None,
    steps: int,
    whole_first: bool,
    limit: str = "",
    **own: Any,
) -> PipelineSchedule:
    """Return a schedule with what any may have; `limit` names the parameter that is its limit."""
    most = own.pop(limit, None)
    instance = make(**own)
    changed = instance.replace(
        limit=instance.limit if most is None else most,
        objective=instance.objective if objective is None else objective,
        steps=steps,
    )
    return with_whole_first(changed) if whole_first else changed


def _entry(make: Callable[..., PipelineSchedule], own: Words, description: str) -> Generator:
    """Return a generator with parameters of its own, perhaps a capacity, and those of all."""
    if "capacity" in own:
        return Generator(partial(_changed, make), {**GIVEN, **own}, description)
    limited = partial(_changed, make, limit="capacity")
    return Generator(limited, {"capacity": None, **GIVEN, **own}, description)


GENERATORS: dict[str, Generator] = {
    **{
        name: _entry(
            partial(_of_network, name),
            _network_parameters(name),
            f"stages of {recipe.description.partition(',')[0].partition(':')[0]} of equal cycles",
        )
        for name, recipe in networks.NETWORKS.items()
    },
    "uniform": _entry(
        _uniform,
        {"devices": 4, "microbatches": 8, **UNITS},
        "one stage a device, all alike",
    ),
    "interleaved": _entry(
        _interleaved,
        {"devices": 4, "microbatches": 8, "chunks": 2, **UNITS},
        "stages dealt to the devices round after round",
    ),
    "v-shaped": _entry(
        _v_shaped,
        {"devices": 4, "microbatches": 8, **UNITS},
        "two stages a device, down and up again",
    ),
    "bidirectional": _entry(
        _bidirectional,
        {"devices": 4, "microbatches": 8, **UNITS},
        "two pipelines in opposite directions on the same devices",
    ),
    "unlike": _entry(
        _unlike,
        {"devices": 4, "microbatches": 8, "latency": 10, "seed": 0},
        "stages of unlike cycles, little memory",
    ),
    "zero-bubble/small": _entry(
        partial(_zero_bubble, "zero-bubble-4x12", 4, 12, (5, 6, 4), 0, (2, -1, -1)),
        {"capacity": 10},
        "p = 4, m = 12, F, B, W of 5, 6, 4 cycles: no rule comes near the optimum",
    ),
    # Measured by the authors of Zero Bubble, who left a gap.
    "zero-bubble/measured-4x12": _entry(
        partial(
            _zero_bubble,
            "zero-bubble-measured-4x12",
            4,
            12,
            (5478, 5806, 3534),
            200,
            (2, -1, -1),
            32,
        ),
        {},
        f"p = 4, m = 12, measured times ({ZERO_BUBBLE})",
    ),
    "zero-bubble/measured-8x32": _entry(
        partial(
            _zero_bubble,
            "zero-bubble-measured-8x32",
            8,
            32,
            (29850, 29767, 18868),
            466,
            (3720, -2048, -1672),
            59520,
        ),
        {},
        f"p = 8, m = 32, measured times ({ZERO_BUBBLE})",
    ),
}

SUITE: tuple[tuple[str, JsonObject], ...] = (
    ("zero-bubble/small", {}),
    ("interleaved", {}),
    ("bert-large", {}),
)

TOUR: tuple[str, JsonObject, tuple[str, ...]] = (
    "bert-large",
    {},
    ("1f1b", "zb-h1", "auto", "cp-sat"),
)
"""What a first comparison shows: an instance, and methods from a rule to a proof."""
