"""Operators of a network: what each computes, what it reads for a part of what it writes.

Shapes are (n, c, d, h, w); axes are numbered so.  A part of a tensor is one range on every axis,
and which range of its inputs an operator reads for a range of its output depends on that axis
alone (*Backward-H* of the seed, for all axes)::

    convolution, pooling   start * s - p, length (len - 1) * s + max(k_e, s), k_e = (k - 1) * d + 1
    deconvolution          from ceil((start - pt) / s) to floor((start + len + k_e - 2 - pt) / s),
                           pt = k_e - p - 1
    upsampling by u        from floor(start / u) to floor((start + len - 1) / u)
    interpolation          from floor(x(start)) - q to ceil(x(start + len - 1)) + q, or up to where
                           row start + len begins, if there is one; row r lies at x(r), see
                           :class:`.words.Coordinates`; q = 0 (linear) or 1 (cubic)
    everything else        the same range, or all of what the operator needs whole

clipped to what there is.  Of an input that has size 1 where the output has more, all is read.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import msgspec

from stagepack.instances.groups.chip import LaneChip, aligned, exact
from stagepack.instances.groups.problem import Coordinates, Interpolation, OperatorKind

N, C, D, H, W = range(5)
AXES = "ncdhw"
Shape = tuple[int, int, int, int, int]
Size = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
Pair = tuple[Size, Size]
Few = Annotated[int, msgspec.Meta(ge=0, le=2**31)]


class Weight(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A constant that an operator reads: values per output channel, and the number of channels.

    `lane_bytes` gives the bytes per lane if they differ from those of a tensor
    (1, channels, 1, 1, values).
    """

    channels: Size
    values: Size = 1
    dtype_bytes: Size = 1
    lane_bytes: Few | None = None

    def nbytes(self, channels: int) -> int:
        """Return the bytes in global memory for this number of output channels."""
        return channels * self.values * self.dtype_bytes

    def local(self, chip: LaneChip, channels: int) -> int:
        """Return the bytes per lane for this number of output channels."""
        if self.lane_bytes is None:
            return chip.lane_bytes((1, channels, 1, 1, self.values), self.dtype_bytes)
        share = -(-channels // chip.lanes), -(-self.channels // chip.lanes)
        return aligned(-(-self.lane_bytes * share[0] // share[1]), chip.eu_bytes)


class Operator(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One operator; it writes one tensor, which has the operator's name.

    Attributes
    ----------
    name : str
        Of the operator and of the tensor that it writes.
    kind : OperatorKind
    inputs : tuple of str
        Names of earlier operators or of inputs of the network, without weights.
    shape : tuple of int
        Shape of its output: (n, c, h, w) or (n, c, d, h, w).
    dtype_bytes : int
        Bytes of one value of its output.
    kernel, stride, dilation : (int, int)
        Along H and W.
    padding : (int, int, int, int)
        Rows before and after, and columns before and after the input.
    groups : int
        Number of groups of channels of a convolution.
    depth : int
        Size of the kernel along D.
    scale : (int, int)
        Factors of an upsampling along H and W.
    interpolation : Interpolation
    coordinates : Coordinates
        Coordinate transformation of an interpolation; along an axis whose size stays the same it
        copies.
    even : bool
        Whether the slices of an upsampling must begin and end at multiples of its factor.
    whole : str
        Axes along which the operator cannot be cut, such as "w" or "hw".
    in_place : bool
        Whether the output may overwrite the first input, if this operator is the input's last
        reader.
    adds : bool
        Whether the output is the sum of the inputs, so that gradients pass through unchanged.
    weights : tuple of Weight
        What it loads beside its inputs.
    buffer : int
        Bytes of working memory per lane for the whole output; slices need a proportional part.
    passes : int
        Number of passes over the values, for elementwise operators and those on rows.
    cycles : int, optional
        Cycles for the whole output, instead of those of the model; slices take a proportional part.
    """

    name: str
    kind: OperatorKind
    inputs: tuple[str, ...]
    shape: tuple[Size, ...]
    dtype_bytes: Size = 1
    kernel: Pair = (1, 1)
    stride: Pair = (1, 1)
    dilation: Pair = (1, 1)
    padding: tuple[Few, Few, Few, Few] = (0, 0, 0, 0)
    groups: Size = 1
    depth: Size = 1
    scale: Pair = (1, 1)
    interpolation: Interpolation = Interpolation.LINEAR
    coordinates: Coordinates = Coordinates.HALF_PIXEL
    even: bool = False
    whole: str = ""
    in_place: bool = False
    adds: bool = False
    weights: tuple[Weight, ...] = ()
    buffer: Few = 0
    passes: Size = 1
    cycles: Few | None = None

    @property
    def full(self) -> Shape:
        """The shape of the output on all five axes."""
        return five(self.shape)


def five(shape: tuple[int, ...]) -> Shape:
    """Return (n, c, h, w) with a depth of 1, or (n, c, d, h, w) as it is."""
    if len(shape) == 4:
        n, c, h, w = shape
        return n, c, 1, h, w
    n, c, d, h, w = shape
    return n, c, d, h, w


AROUND = {Interpolation.LINEAR: 0, Interpolation.CUBIC: 1}
"""Rows that an interpolation reads beyond those between which it lies."""


def cuttable(operator: Operator, axis: int) -> bool:
    """Whether parts of what it writes along an axis can be made by themselves."""
    return AXES[axis] not in operator.whole and axis != D and operator.kind != OperatorKind.OTHER


def reads(
    operator: Operator, which: int, axis: int, start: int, length: int, size: int
) -> tuple[int, int]:
    """Return start and length, at least 1, of what is read for a range of the output on an `axis`.

    The range is [`start`, `start` + `length`); input `which` has a `size` on that axis.
    """
    kind = operator.kind
    if needs_all(operator, which, axis):
        return 0, size
    if axis in (H, W) and kind in (OperatorKind.CONV, OperatorKind.POOL):
        kernel, stride, before = _window(operator, axis)
        first = start * stride - before
        end = first + (length - 1) * stride + max(kernel, stride)
    elif axis in (H, W) and kind == OperatorKind.DECONV:
        kernel, stride, before = _window(operator, axis)
        lead = kernel - before - 1
        first = -((lead - start) // stride)
        end = (start + length + kernel - 2 - lead) // stride + 1
    elif axis in (H, W) and kind == OperatorKind.UPSAMPLE:
        factor = operator.scale[axis - H]
        first, end = start // factor, (start + length - 1) // factor + 1
    elif axis in (H, W) and interpolates(operator, axis, size):
        step, shift, unit = grid(operator, axis, size)
        around, behind = AROUND[operator.interpolation], start + length
        first = (start * step + shift) // unit - around
        end = -(-((behind - 1) * step + shift) // unit) + around + 1
        if behind < operator.full[axis]:
            end = max(end, (behind * step + shift) // unit - around)
    else:
        first, end = start, start + length
        if size == 1 and operator.full[axis] > 1:
            first, end = 0, 1
    first = min(max(first, 0), size - 1)
    return first, max(min(end, size) - first, 1)


def _window(operator: Operator, axis: int) -> tuple[int, int, int]:
    """Return the kernel with its holes, the stride and the padding before, along H or W."""
    at = axis - H
    kernel = (operator.kernel[at] - 1) * operator.dilation[at] + 1
    return kernel, operator.stride[at], operator.padding[2 * at]


def interpolates(operator: Operator, axis: int, size: int) -> bool:
    """Whether an operator interpolates along an `axis`, of which its input has a `size`."""
    return operator.kind == OperatorKind.INTERPOLATE and operator.full[axis] != size


def grid(operator: Operator, axis: int, size: int) -> tuple[int, int, int]:
    """Return step, shift, unit: row r of an interpolation lies at (r * step + shift) / unit.

    `size` is that of the input on `axis`, H or W.
    """
    made, where = operator.full[axis], operator.coordinates
    if where == Coordinates.ALIGN_CORNERS:
        return size - 1, 0, max(made - 1, 1)
    if where == Coordinates.ASYMMETRIC or (made == 1 and where == Coordinates.PYTORCH_HALF_PIXEL):
        return size, 0, made
    return 2 * size, size - made, 2 * made


def needs_all(operator: Operator, which: int, axis: int) -> bool:
    """Whether every part of the output along an `axis` needs all of the input `which`."""
    kind = operator.kind
    if AXES[axis] in operator.whole or axis == D:
        return True
    if kind == OperatorKind.GLOBAL_POOL:
        return axis in (H, W)
    if kind == OperatorKind.MATMUL:
        return axis == (W if which == 0 else H)
    if kind in (OperatorKind.CONV, OperatorKind.DECONV):
        return axis == C and not channelwise(operator)
    return kind == OperatorKind.CONCAT and axis == C


def channelwise(operator: Operator) -> bool:
    """Whether a convolution computes every channel from the one channel of the same number."""
    return operator.groups > 1 and operator.groups == operator.full[C]


def macs(operator: Operator, sources: tuple[Shape, ...]) -> int:
    """Return the multiply-accumulates of all that it writes, given the shapes of its inputs."""
    n, c, d, h, w = operator.full
    taps = operator.kernel[0] * operator.kernel[1] * operator.depth
    if operator.kind == OperatorKind.CONV:
        return n * c * d * h * w * (sources[0][C] // operator.groups) * taps
    if operator.kind == OperatorKind.DECONV:
        wide = sources[0]
        return wide[N] * wide[D] * wide[H] * wide[W] * wide[C] * (c // operator.groups) * taps
    if operator.kind == OperatorKind.MATMUL:
        return n * c * d * h * w * sources[0][W]
    return 0


class Pace(NamedTuple):
    """How the cycles of an operator follow from a part of what it writes.

    A lane goes over each of its planes in so many `turns`, each time in ``ceil(p * times / per)``
    cycles for p values.  `plane` is rows and columns of one, where they are not those of the part.
    """

    turns: int
    times: int
    per: int
    plane: tuple[int, int] | None = None


def pace(operator: Operator, sources: tuple[Shape, ...], chip: LaneChip) -> Pace:
    """Return the pace of an operator by the model of its chip, or by the chip's table of rates.

    `sources` are whole shapes of its inputs.
    """
    kind, wide, plane = operator.kind, operator.dtype_bytes, None
    taps = operator.kernel[0] * operator.kernel[1] * operator.depth
    inner, dense = 1, False  # multiply-accumulates of one tap, and whether on all channels at once
    if kind == OperatorKind.MATMUL:
        inner, taps, dense = sources[0][W], 1, True
    elif kind in (OperatorKind.CONV, OperatorKind.DECONV) and not channelwise(operator):
        if kind == OperatorKind.DECONV:  # every output sees only each stride-th tap
            (kh, kw), (sh, sw) = operator.kernel, operator.stride
            taps = -(-kh // sh) * -(-kw // sw) * operator.depth
        inner, dense = sources[0][C] // operator.groups, True
    elif kind == OperatorKind.GLOBAL_POOL:
        plane = sources[0][H], sources[0][W]
    elif kind == OperatorKind.INTERPOLATE:
        each = 2 + 2 * AROUND[operator.interpolation]
        taps = math.prod(each for axis in (H, W) if interpolates(operator, axis, sources[0][axis]))
    elif kind not in (OperatorKind.CONV, OperatorKind.DECONV, OperatorKind.POOL):
        taps = operator.passes
    if kind in chip.rates:
        done, cycles = exact(chip.rates[kind]).as_integer_ratio()
        return Pace(1, taps * inner * wide * cycles, done, plane)
    if dense:
        return Pace(taps * -(-inner // -(-chip.channels // wide)), 1, chip.pixels)
    return Pace(taps, wide, chip.eu_bytes, plane)


def compute_cycles(
    operator: Operator, sources: tuple[Shape, ...], part: Shape, chip: LaneChip
) -> int:
    """Return the cycles of computing a `part` of the output; `sources` as :func:`pace` has them."""
    if operator.cycles is not None:
        return chip.startup + -(-operator.cycles * _values(part) // _values(operator.full))
    n, c, d, h, w = part
    known = pace(operator, sources, chip)
    if operator.kind == OperatorKind.MATMUL:  # rows of the left one are dealt out to lanes
        planes, values = n * d * c * -(-h // chip.lanes), w
    else:
        planes, values = n * d * -(-c // chip.lanes), math.prod(known.plane or (h, w))
    return chip.startup + planes * known.turns * -(-values * known.times // known.per)


def buffer_bytes(operator: Operator, part: Shape, chip: LaneChip) -> int:
    """Return the bytes in every lane that computing a `part` takes besides inputs and output."""
    share = -(-operator.buffer * _values(part) // _values(operator.full))
    return aligned(share, chip.eu_bytes)


def _values(shape: Shape) -> int:
    """Return how many values a shape has."""
    n, c, d, h, w = shape
    return n * c * d * h * w
