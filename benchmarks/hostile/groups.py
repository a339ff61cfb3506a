"""Hostile networks: the largest, smallest and strangest instances of layer grouping."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from benchmarks.hostile.families import count, family
from stagepack.instances.groups import LayerGrouping, Operator, OperatorKind, Source, Weight
from stagepack.instances.groups.chip import GENERIC

SHAPE = (1, 64, 56, 56)


def _network(
    operators: Sequence[Operator], shape: Sequence[int] = SHAPE, **more: Any
) -> LayerGrouping:
    source = Source(name="x", shape=tuple(shape))
    return LayerGrouping.from_arrays(operators, [source], **{"chip": GENERIC, **more})


def _conv(name: str, reads: str, shape: Sequence[int] = SHAPE, **more: Any) -> Operator:
    """Return a convolution of 3 x 3 that keeps rows and columns, unless more is said."""
    fields: dict[str, Any] = {"kernel": (3, 3), "padding": (1, 1, 1, 1)}
    return Operator(
        name=name,
        kind=OperatorKind.CONV,
        inputs=(reads,),
        shape=tuple(shape),
        weights=(Weight(channels=shape[1], values=9),),
        **{**fields, **more},
    )


def _chain(n: int, shape: Sequence[int] = SHAPE, **fields: Any) -> list[Operator]:
    names = ["x", *(f"o{at}" for at in range(n))]
    return [
        _conv(own, read, shape, **fields) for own, read in zip(names[1:], names[:-1], strict=True)
    ]


def _plain(n: int, kind: OperatorKind, shape: Sequence[int]) -> list[Operator]:
    """Return operators without geometry in a chain."""
    names = ["x", *(f"o{at}" for at in range(n))]
    return [
        Operator(name=own, kind=kind, inputs=(read,), shape=tuple(shape))
        for own, read in zip(names[1:], names[:-1], strict=True)
    ]


@family
def one_operator(_: float) -> LayerGrouping:
    """One operator."""
    return _network(_chain(1))


@family
def operators_of_many(share: float) -> LayerGrouping:
    """A chain of 10,000 operators."""
    return _network(_chain(count(share, 10_000)), standalone="needed")


@family
def operators_of_very_many(share: float) -> LayerGrouping:
    """A chain of 100,000 operators."""
    return _network(_chain(count(share, 100_000)))


@family
def operators_in_one_group(share: float) -> LayerGrouping:
    """A chain of 3,000 operators, all of which may be one group."""
    return _network(_chain(count(share, 3_000)), max_group=3_000, standalone="needed")


@family
def operators_that_stand_alone(share: float) -> LayerGrouping:
    """10,000 operators that no group takes."""
    return _network(_plain(count(share, 10_000), OperatorKind.OTHER, SHAPE))


@family
def channels_of_many(share: float) -> LayerGrouping:
    """One operator of a million channels, cut in every way."""
    shape = (1, count(share, 1_000_000), 4, 4)
    return _network(
        _plain(1, OperatorKind.ELEMENTWISE, shape), shape, slicing="free", standalone="needed"
    )


@family
def branches_of_many(share: float) -> LayerGrouping:
    """1,000 branches beside one another, joined by one concatenation."""
    n = count(share, 1_000)
    branches = [_conv(f"b{at}", "x") for at in range(n)]
    joined = Operator(
        name="all",
        kind=OperatorKind.CONCAT,
        inputs=tuple(branch.name for branch in branches),
        shape=(1, 64 * n, 56, 56),
    )
    return _network([*branches, joined])


@family
def branches_in_one_group(share: float) -> LayerGrouping:
    """300 branches and their concatenation, all of which may be one group, in any order."""
    n = count(share, 300)
    shape = (1, 8, 16, 16)
    branches = [_conv(f"b{at}", "x", shape) for at in range(n)]
    joined = Operator(
        name="all",
        kind=OperatorKind.CONCAT,
        inputs=tuple(branch.name for branch in branches),
        shape=(1, 8 * n, 16, 16),
    )
    return _network([*branches, joined], shape, max_group=n + 1, order="free")


@family
def batch_of_many(share: float) -> LayerGrouping:
    """A batch of a million samples."""
    shape = (count(share, 1_000_000), 64, 7, 7)
    return _network(_chain(40, shape), shape)


@family
def slices_of_many(share: float) -> LayerGrouping:
    """As many slices as there may be of 64 operators."""
    most = count(share, 32_000)
    shape = (1, 16, most, 4)
    return _network(
        _chain(64, shape), shape, max_slices=most, overlap_limit=None, standalone="needed"
    )


@family
def ways_of_many(share: float) -> LayerGrouping:
    """As many ways to cut as there may be."""
    shape = (64, 64, 64, 64)
    return _network(_chain(30, shape), shape, max_slices=count(share, 700), slicing="free")


@family
def memory_of_little(share: float) -> LayerGrouping:
    """Lanes into which hardly anything fits, and nothing runs from elsewhere."""
    chip = replace(GENERIC, memory=400, lanes=64)
    return _network(_chain(count(share, 500)), chip=chip, standalone="needed", slicing="free")


@family
def lanes_of_one(share: float) -> LayerGrouping:
    """One lane, one byte at a time."""
    chip = replace(GENERIC, lanes=1, eu_bytes=1, channels=1, pixels=1)
    return _network(_chain(count(share, 300)), chip=chip, slicing="free")


@family
def windows_of_many(share: float) -> LayerGrouping:
    """Dilations of a thousand, kernels larger than what they read, strides of a thousand."""
    tall = (1, 8, 4000, 8)
    wide = {"kernel": (3, 1), "dilation": (1000, 1), "padding": (1000, 1000, 0, 0)}
    names = ["x", *(f"o{at}" for at in range(count(share, 60)))]
    found = []
    for at, (read, own) in enumerate(pairwise(names)):
        large = {"kernel": (8001, 1), "padding": (4000, 4000, 0, 0)} if at % 2 else wide
        found.append(_conv(own, read, tall, **large))
    last = {"kernel": (1, 1), "padding": (0, 0, 0, 0), "stride": (1000, 1)}
    found.append(_conv("few", names[-1], (1, 8, 4, 8), **last))
    return _network(found, tall, overlap_limit=None)


@family
def residues_of_many(share: float) -> LayerGrouping:
    """A chain of 400 whose last operator adds to what the first one made, and so on inwards."""
    n = count(share, 400)
    chain = _chain(n)
    names = [operator.name for operator in chain]
    sums = [
        Operator(
            name=f"s{at}",
            kind=OperatorKind.ELEMENTWISE,
            inputs=(f"s{at - 1}" if at else names[-1], names[n - 2 - at]),
            shape=SHAPE,
        )
        for at in range(n - 1)
    ]
    return _network([*chain, *sums], standalone="needed")


@family
def pixels_of_one(share: float) -> LayerGrouping:
    """2,000 operators on a single pixel of 4,096 channels: nothing can be cut but these."""
    shape = (1, 4_096, 1, 1)
    one = {"kernel": (1, 1), "padding": (0, 0, 0, 0)}
    return _network(_chain(count(share, 2_000), shape, **one), shape, slicing="free")
