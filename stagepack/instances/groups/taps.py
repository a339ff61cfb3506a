"""The input ranges of an operator, computed from the first tap of the first value and the last tap.

For checkers: :func:`.operators.reads` and the kernels, from which plans are made, compute the same
in other ways, and share no code with this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from stagepack.instances.groups.operators import AXES, Operator, Shape
from stagepack.instances.groups.problem import Coordinates, Interpolation, OperatorKind

Box = tuple[tuple[int, int], ...]
"""Ranges [from, to) on n, c, d, h, w."""


def needed(operator: Operator, which: int, box: Box, sources: Sequence[Shape]) -> Box:
    """Return the ranges of input `which` that the ranges `box` of the output are computed from.

    Some are empty.  `sources` are the shapes of all inputs.
    """
    return tuple(
        needed_along(operator, which, axis, part, sources) for axis, part in enumerate(box)
    )


def needed_along(
    operator: Operator, which: int, axis: int, part: tuple[int, int], sources: Sequence[Shape]
) -> tuple[int, int]:
    """Return the range [from, to) of an input on one `axis` for a `part` [from, to) of the output.

    Otherwise as :func:`needed`, with `which` and `sources`.
    """
    low, high = _taps(operator, which, axis, *part, sources)
    return max(low, 0), min(high, sources[which][axis])


def held_along(
    operator: Operator, which: int, axis: int, part: tuple[int, int], sources: Sequence[Shape]
) -> tuple[int, int]:
    """Return the range [from, to) of an input that a slice holds for a range of the output.

    That is what it needs, and at least one value; of windows and interpolations up to where the
    next row begins to read; all channels, unless each is computed by itself.  Takes `which`,
    `axis`, `part` and `sources` like :func:`needed_along`.
    """
    kind, letter, size = operator.kind, AXES[axis], sources[which][axis]
    joined = kind == OperatorKind.CONCAT or (
        kind in (OperatorKind.CONV, OperatorKind.DECONV)
        and not 1 < operator.groups == operator.full[1]
    )
    if letter == "c" and joined:
        return 0, size
    low, high = _taps(operator, which, axis, *part, sources)
    windows = kind in (OperatorKind.CONV, OperatorKind.POOL)
    if letter in "hw" and (
        windows or (kind == OperatorKind.INTERPOLATE and part[1] < operator.full[axis])
    ):
        high = max(high, _taps(operator, which, axis, part[1], part[1] + 1, sources)[0])
    low = min(max(low, 0), size - 1)
    return low, max(min(high, size), low + 1)


def _taps(
    operator: Operator, which: int, axis: int, first: int, end: int, sources: Sequence[Shape]
) -> tuple[int, int]:
    """Return where the first tap of the first value lies, and the last of the last, on an axis."""
    kind, letter, size = operator.kind, AXES[axis], sources[which][axis]
    if letter == "d" or letter in operator.whole:
        return 0, size
    if letter in "hw":
        at = "hw".index(letter)
        stride, before = operator.stride[at], operator.padding[2 * at]
        reach = (operator.kernel[at] - 1) * operator.dilation[at]
        match kind:
            case OperatorKind.GLOBAL_POOL:
                return 0, size
            case OperatorKind.CONV | OperatorKind.POOL:
                return first * stride - before, (end - 1) * stride - before + reach + 1
            case OperatorKind.DECONV:  # row r of the input adds to r * stride - before + tap
                return -((reach - before - first) // stride), (end - 1 + before) // stride + 1
            case OperatorKind.UPSAMPLE:
                return first // operator.scale[at], (end - 1) // operator.scale[at] + 1
            case OperatorKind.INTERPOLATE if operator.full[axis] != size:
                far = operator.interpolation == Interpolation.CUBIC
                low, high = (_position(operator, axis, row, size) for row in (first, end - 1))
                return math.floor(low) - far, math.ceil(high) + far + 1
            case OperatorKind.MATMUL if letter == "wh"[which]:
                return 0, size
    if letter == "c" and kind in (OperatorKind.CONV, OperatorKind.DECONV):
        made, read = operator.full[1] // operator.groups, size // operator.groups
        return first // made * read, ((end - 1) // made + 1) * read
    if letter == "c" and kind == OperatorKind.CONCAT:
        before = sum(source[1] for source in sources[:which])
        return first - before, end - before
    return (0, 1) if size == 1 else (first, end)


def _position(operator: Operator, axis: int, row: int, size: int) -> Fraction:
    """Return where a row or column of an interpolation lies among those that it reads."""
    made = operator.full[axis]
    match operator.coordinates:
        case Coordinates.ALIGN_CORNERS:
            return Fraction(row * (size - 1), made - 1) if made > 1 else Fraction(0)
        case Coordinates.ASYMMETRIC:
            return Fraction(row * size, made)
        case Coordinates.PYTORCH_HALF_PIXEL if made == 1:
            return Fraction(0)
    return (row + Fraction(1, 2)) * Fraction(size, made) - Fraction(1, 2)
