"""Relations between groupings of layers."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from stagepack.instances.groups import LayerGrouping, Operator
from tests.instances.groups.networks import CHIP, add, conv, grouping
from tests.relations.relation import NO_WORSE, SAME, Relation, at_most


def instance(seed: int) -> LayerGrouping:
    """Return convolutions, poolings and sums, with skips, on a chip with little memory."""
    draw = np.random.default_rng(seed)
    rows, channels = int(draw.integers(4, 17)), int(draw.choice([4, 8, 16]))
    operators: list[Operator] = []
    alike = ["x"]
    for at in range(int(draw.integers(1, 6))):
        read, other = (str(draw.choice(alike[-3:])) for _ in range(2))
        kind = str(draw.choice(["conv", "conv", "add", "point"]))
        if kind == "add" and read != other:
            operators.append(add(f"o{at}", read, other, channels=channels, rows=rows))
        else:
            kernel = 1 if kind == "point" else 3
            operators.append(conv(f"o{at}", read, channels, rows, kernel))
        alike.append(f"o{at}")
    memory = int(draw.choice([512, 1024, 2048, 4096]))
    return grouping(
        operators,
        channels=channels,
        rows=rows,
        chip=msgspec.structs.replace(CHIP, memory=memory, overlap=float(draw.choice([1, 0.5]))),
        slicing=str(draw.choice(["free", "n-then-h"])),
        timesteps="free" if seed % 5 == 4 else "nearest",
        order="free" if seed % 5 == 3 else "given",
        overlap_limit=None if draw.integers(2) else 0.5,
        max_slices=4,
        max_group=int(draw.choice([2, 64])),
        standalone=str(draw.choice(["any", "needed"])),
    )


def on_chip(given: LayerGrouping, **changes: Any) -> LayerGrouping:
    """Return a grouping on a changed chip."""
    return given.replace(chip=msgspec.structs.replace(given.chip, **changes))


def larger(given: LayerGrouping) -> LayerGrouping:
    return on_chip(given, memory=2 * given.chip.memory)


def faster(given: LayerGrouping) -> LayerGrouping:
    """Return a grouping whose transfers take half as long."""
    chip = given.chip
    return on_chip(
        given,
        load_rate=2 * chip.load_rate,
        store_rate=2 * chip.store_rate,
        load_latency=chip.load_latency // 2,
        store_latency=chip.store_latency // 2,
    )


def renamed(given: LayerGrouping) -> LayerGrouping:
    """Return a grouping whose operators have other names."""
    names = {one.name: f"z{at}" for at, one in enumerate(given.operators)}
    operators = [
        msgspec.structs.replace(
            one, name=names[one.name], inputs=tuple(names.get(name, name) for name in one.inputs)
        )
        for one in given.operators
    ]
    return given.replace(operators=operators, outputs=[names[name] for name in given.outputs])


def twice(given: LayerGrouping) -> LayerGrouping | None:
    """Return a grouping twice, of operators that have nothing to do with those before."""
    names = {one.name for one in given.operators}

    def other(name: str) -> str:
        return f"{name}'" if name in names or name == "x" else name

    more = [
        msgspec.structs.replace(one, name=other(one.name), inputs=tuple(map(other, one.inputs)))
        for one in given.operators
    ]
    inputs = [
        *given.inputs,
        *(msgspec.structs.replace(one, name=other(one.name)) for one in given.inputs),
    ]
    return given.replace(
        operators=[*given.operators, *more],
        inputs=inputs,
        outputs=[*given.outputs, *map(other, given.outputs)],
    )


RELATIONS = (
    Relation("more memory", larger, NO_WORSE),
    Relation("faster transfers", faster, NO_WORSE),
    Relation("no startup", lambda given: on_chip(given, startup=0), NO_WORSE),
    Relation("all transfers hidden", lambda given: on_chip(given, overlap=1.0), NO_WORSE),
    Relation("any overlap", lambda given: given.replace(overlap_limit=None), NO_WORSE),
    Relation("more slices", lambda given: given.replace(max_slices=6), NO_WORSE),
    Relation("larger groups", lambda given: given.replace(max_group=64), NO_WORSE),
    Relation("any slices", lambda given: given.replace(slicing="free"), NO_WORSE),
    Relation("any timesteps", lambda given: given.replace(timesteps="free"), NO_WORSE),
    Relation("any order", lambda given: given.replace(order="free"), NO_WORSE),
    Relation("all by themselves", lambda given: given.replace(standalone="any"), NO_WORSE),
    Relation("renamed", renamed, SAME),
    Relation("twice", twice, at_most(2)),
)
