"""Chips whose local memory is cut into lanes, and what operators and transfers cost on them.

Of a tensor every lane holds its share of the channels: lane k the channels k, k + lanes, ...  So
bytes are counted per lane, and a lane has `memory` of them.  Compute and transfers run beside one
another.

Cycles of an operator follow a documented model, since no vendor publishes its own: work is dealt
out to lanes by channels, and each lane does `channels` x `pixels` multiply-accumulates a cycle on
values of one byte (a half, a quarter of that on wider ones), or `eu_bytes` bytes of anything else.
Channels, pixels and bytes that do not come out even are lost: that is the utilisation.  A table of
`rates` goes before it where figures of a kind of operators are known: of these a lane does so many
multiply-accumulates a cycle (convolutions, products of matrices), taps (pooling) or values (all
others, each time it goes over them), of one byte, and a plane takes whole cycles.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Annotated

import msgspec

from stagepack.files import in_bytes
from stagepack.instances.groups.problem import OperatorKind
from stagepack.instances.profile import Positive

Some = Annotated[int, msgspec.Meta(ge=1, le=2**40)]
Cycles = Annotated[int, msgspec.Meta(ge=0, le=2**40)]

FINEST = 2**24
"""The largest denominator of a rate."""


class LaneChip(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A chip with lanes of local memory.

    Attributes
    ----------
    lanes : int
        Lanes that compute side by side.
    memory : int
        Bytes of local memory in each lane.
    banks : int
        Number of equal parts of a lane's memory; each serves one access at a time.
    eu_bytes : int
        Bytes that a lane processes at a time; tensors are aligned to multiples of it.
    channels, pixels : int
        Input channels and output pixels (of one byte) that a lane multiplies in one cycle.
    load_rate, store_rate : number
        Bytes a cycle between global and local memory, see :func:`exact`.
    load_latency, store_latency : int
        Cycles of a transfer before its first byte.
    startup : int
        Cycles of an operator before its first result.
    overlap : number
        Fraction of the shorter of compute and transfers in a row that is hidden by the longer.
    cores : int
        Number of cores, each with all of the above; slices are dealt out to them in turn.
    rates : dict of OperatorKind to number
        Work of a lane per cycle for kinds of operators, instead of the model, see above.
    """

    lanes: Some
    memory: Some
    banks: Some = 1
    eu_bytes: Some = 1
    channels: Some = 1
    pixels: Some = 1
    load_rate: Positive = 1
    store_rate: Positive = 1
    load_latency: Cycles = 0
    store_latency: Cycles = 0
    startup: Cycles = 0
    overlap: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    cores: Some = 1
    rates: dict[OperatorKind, Positive] = {}
    name: str = ""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "memory", in_bytes(self.memory, "memory"))

    @property
    def bank_bytes(self) -> int:
        """Bytes of a bank per lane; the last bank is smaller if there is a remainder."""
        return -(-self.memory // self.banks)

    def load_cycles(self, nbytes: int) -> int:
        """Return the cycles of loading this number of bytes from global memory."""
        return self.load_latency + _ceil(nbytes, self.load_rate)

    def store_cycles(self, nbytes: int) -> int:
        """Return the cycles of storing this number of bytes to global memory."""
        return self.store_latency + _ceil(nbytes, self.store_rate)

    def row_cycles(self, compute: int, transfers: int) -> int:
        """Return the cycles of a row: the longer of both and the unhidden part of the other."""
        less = min(compute, transfers)
        hidden, whole = exact(self.overlap).as_integer_ratio()
        return max(compute, transfers) + less - hidden * less // whole

    def lane_bytes(self, shape: tuple[int, ...], dtype_bytes: int) -> int:
        """Return the bytes per lane of a tensor (n, c, d, h, w), where each (n, c) is aligned.

        Rows of channel after channel: ``n * d * ceil(c / lanes)`` planes of h * w values.
        """
        n, c, d, h, w = shape
        return n * d * -(-c // self.lanes) * aligned(h * w * dtype_bytes, self.eu_bytes)


def aligned(nbytes: int, alignment: int) -> int:
    """Return the next multiple of `alignment`."""
    return -(-nbytes // alignment) * alignment


@lru_cache(maxsize=64)
def exact(rate: float) -> Fraction:
    """Return a rate or a part as the fraction that is reckoned with: as it is written.

    Where its denominator would exceed `FINEST` it is the nearest fraction whose does not: 64-bit
    integers then count what 15 digits of a measured rate would not let them.
    """
    written = Fraction(str(rate))
    return written if written.denominator <= FINEST else Fraction(rate).limit_denominator(FINEST)


def _ceil(nbytes: int, rate: float) -> int:
    """Return the quotient, rounded up."""
    width, cycles = exact(rate).as_integer_ratio()
    return -(-nbytes * cycles // width)


GENERIC = LaneChip(
    name="generic",
    lanes=32,
    memory=128 * 1024,
    banks=8,
    eu_bytes=16,
    channels=32,
    pixels=4,
    load_rate=16,
    store_rate=16,
    load_latency=200,
    store_latency=200,
    startup=20,
)
"""A chip of no vendor, for files that name none."""
