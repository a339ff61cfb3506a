"""The common unit of time of an instance: of nodes on all devices and of tensors on links."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from stagepack.contracts import Number
from stagepack.instances.arrays import distinct
from stagepack.instances.graph.data import GraphData
from stagepack.instances.graph.problem import Objective
from stagepack.instances.profile import Array
from stagepack.instances.ticks import decimal_grid, exactly, on_binary_grid

SUM_BITS = 58
"""Bits of the sum of all times in ticks: no load comes near the end of 64 bits."""


@dataclass(frozen=True)
class Ticking:
    """How times become whole ticks: `scale` is ticks of a unit of time.

    Where not all times are `exact`, that is whole in ticks, they are rounded, and a power of two is
    the scale.
    """

    scale: Fraction
    exact: bool

    def ticks(self, amounts: Array, pace: Number) -> Array:
        """Return the ticks of amounts at a pace."""
        if not self.exact:
            exponent = self.scale.numerator.bit_length() - self.scale.denominator.bit_length()
            return on_binary_grid(amounts / pace, exponent)
        grid = decimal_grid(amounts, _no_pause)
        whole = amounts if amounts.dtype.kind == "i" else np.rint(amounts * grid).astype(np.int64)
        factor = self.scale / exactly(pace) / grid
        return np.asarray(whole // factor.denominator * factor.numerator)


@dataclass(frozen=True, eq=False, kw_only=True)
class Timed:
    """Values of an instance in ticks."""

    scale: Fraction  # ticks of a unit of time
    rounding: int  # ticks by which a value may be off: 0 where all is exact

    def value(self, ticks: int) -> Number:
        """Return ticks in units of the instance, an int where they are whole."""
        exact = int(ticks) / self.scale
        return exact.numerator if exact.denominator == 1 else float(exact)

    def most_ticks(self, value: Number) -> int:
        """Return ticks that no partition of at most this value exceeds.

        Beyond 53 bits a value says less than its ticks: each sum in it may be a bit off.
        """
        ticks = math.ceil(Fraction(value) * self.scale)
        off = 0 if isinstance(value, int) else ticks >> sys.float_info.mant_dig
        return ticks + self.rounding + off * (1 + self.rounding)

    def bound(self, ticks: int) -> Number:
        """Return a lower bound in units of the instance, safe however ticks were rounded."""
        return self.value(max(0, int(ticks) - self.rounding))


def summed(values: Array, groups: Array, count: int) -> Array:
    """Return the sum of the `values` of each of `count` `groups`, int64."""
    found = np.zeros(count, dtype=np.int64)
    np.add.at(found, groups, values)
    return found


def ticking(instance: GraphData) -> Ticking:
    """Return ticks in which all times are whole, as long as their sum has `SUM_BITS` bits.

    Else a power of two, rounded to: the finest with which it has.
    """
    columns = list(_columns(instance))
    total = sum(float(np.sum(amounts, dtype=np.float64)) / float(pace) for amounts, pace in columns)
    scale, shares = 1, _shares(instance)
    for amounts, pace in columns:
        grid = decimal_grid(amounts, _no_pause)
        if not grid or total * scale * shares >= 2.0**SUM_BITS:
            break
        whole = amounts if amounts.dtype.kind == "i" else np.rint(amounts * grid).astype(np.int64)
        common = int(np.gcd.reduce(whole)) if len(whole) else 0
        scale = math.lcm(scale, (Fraction(common, grid) / exactly(pace)).denominator)
    else:
        if total * scale * shares < 2.0**SUM_BITS:
            return Ticking(Fraction(scale * shares), exact=True)
    return Ticking(Fraction(2) ** (SUM_BITS - math.frexp(total)[1]), exact=False)


def _shares(instance: GraphData) -> int:
    """Return a number that everything a stage does can be divided by, where devices share it.

    The time of m of them is an m-th of it, and what they exchange an m-th of that.
    """
    if instance.objective != Objective.REPLICATED:
        return 1
    shares = 1
    for m in range(2, instance.accelerators + 1):
        shares = math.lcm(shares, m)
        if shares**2 > 2**SUM_BITS:
            break
    return shares**2


def paces(instance: GraphData) -> list[Number]:
    """Return the different bandwidths between devices, rising."""
    table = instance.bandwidth
    if not isinstance(table, np.ndarray):
        return [table]
    found: list[Number] = distinct(table[~np.eye(len(table), dtype=bool)]).tolist()
    return found


def _columns(instance: GraphData) -> Iterable[tuple[Array, Number]]:
    """Yield all amounts, and the paces at which they may pass."""
    for speed in np.unique(instance.speeds).tolist():
        yield instance.time, speed
    if instance.cpus:
        yield instance.cpu_time, 1
    for pace in paces(instance):
        yield instance.traffic, pace
        if instance.objective == Objective.REPLICATED:
            yield 4 * instance.parameters, pace


def _no_pause() -> None:
    """Ask nobody: one pass over the arrays takes no time worth asking about."""
