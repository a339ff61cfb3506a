"""Structured networks: chains, branches, sums of all, operators that stand alone."""

from __future__ import annotations

from collections.abc import Callable

from stagepack.instances.groups import LayerGrouping, Operator, OperatorKind
from tests.instances.groups.networks import CHIP, add, conv, grouping
from tests.structured.figures import Draw, some

SMALL = 4
SIZES = (20, 63, 64, 65, 1_000, 4_096)
CHANNELS = 4


def _shape(
    operators: Callable[[int, int], list[Operator]], most: int = 10**9
) -> Callable[[Draw, int], LayerGrouping]:
    """`operators`: from how many there are, and their rows."""

    def make(draw: Draw, n: int) -> LayerGrouping:
        rows = int(draw.choice([1, 2, 4, 7]))
        memory = int(draw.choice([64, 256, 512, 1024, 4096]))
        return grouping(
            operators(min(n, most), rows),
            channels=CHANNELS,
            rows=rows,
            chip=CHIP.__class__(
                **{**{f: getattr(CHIP, f) for f in CHIP.__struct_fields__}, "memory": memory}
            ),
            timesteps="nearest" if n > 2 else str(draw.choice(["nearest", "free"])),
            order=str(draw.choice(["given", "free"])),
            slicing=str(draw.choice(["free", "n-then-h"])),
            standalone=str(draw.choice(["any", "needed"])),
            max_slices=int(draw.choice([1, 2, 8])),
            max_group=int(draw.choice([1, 2, 3, n, 64])),
            overlap_limit=0.5 if some(draw) else None,
        )

    return make


def _conv(at: int, reads: str, rows: int) -> Operator:
    return conv(f"o{at}", reads, CHANNELS, rows, kernel=min(3, 1 + 2 * (rows > 1)))


def _sum(at: int, reads: list[str], rows: int) -> Operator:
    return add(f"o{at}", *reads, channels=CHANNELS, rows=rows)


def _chain(n: int, rows: int) -> list[Operator]:
    return [_conv(at, f"o{at - 1}" if at else "x", rows) for at in range(n)]


def _branches(n: int, rows: int) -> list[Operator]:
    """All but the last read the input, the last one all of them; or the leaves of a star."""
    leaves = [_conv(at, "x", rows) for at in range(max(1, n - 1))]
    return [*leaves, _sum(n - 1, [one.name for one in leaves], rows)] if n > 1 else leaves


def _leaves(n: int, rows: int) -> list[Operator]:
    return [_conv(at, "x", rows) for at in range(n)]


def _residual(n: int, rows: int) -> list[Operator]:
    """Every other operator adds what is before it and what is two before it."""
    names = ["x", *(f"o{at}" for at in range(n))]
    return [
        _sum(at, [names[at], names[at - 1]], rows) if at % 2 else _conv(at, names[at], rows)
        for at in range(n)
    ]


def _sums(n: int, rows: int) -> list[Operator]:
    """Every operator reads the one before, twice."""
    return [_sum(at, [f"o{at - 1}" if at else "x"] * 2, rows) for at in range(n)]


def _alone(n: int, rows: int) -> list[Operator]:
    """Every third operator is no part of groups."""
    shape = (1, CHANNELS, rows, rows)
    return [
        Operator(name=one.name, kind=OperatorKind.OTHER, inputs=one.inputs, shape=shape)
        if at % 3 == 0
        else one
        for at, one in enumerate(_chain(n, rows))
    ]


SHAPES: dict[str, Callable[[Draw, int], LayerGrouping]] = {
    "chain": _shape(_chain),
    "branches": _shape(_branches, 1_000),
    "leaves": _shape(_leaves),
    "residual": _shape(_residual),
    "sums": _shape(_sums),
    "alone": _shape(_alone),
}
