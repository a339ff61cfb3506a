"""Slices: which part of every tensor a slice of a group needs (*Backward-H* of the seed).

What a group gives out is dealt out to slices without overlap, the first ``size mod parts`` ranges
one longer.  From there each operator, last to first, says which ranges of its inputs it reads
(:func:`.operators.reads`); where several read one tensor the range covers them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from stagepack.instances.groups.chip import exact
from stagepack.instances.groups.data import GroupingData
from stagepack.instances.groups.operators import (
    AXES,
    C,
    D,
    H,
    N,
    Shape,
    W,
    cuttable,
    reads,
)
from stagepack.instances.groups.problem import OperatorKind

Range = tuple[int, int]
"""Start and length."""


class Cut(NamedTuple):
    """Into how many ranges a group is cut on each axis."""

    n: int = 1
    c: int = 1
    h: int = 1
    w: int = 1

    @property
    def slices(self) -> int:
        """Number of slices, one for each combination of ranges."""
        return self.n * self.c * self.h * self.w

    def along(self, axis: int) -> int:
        """Return the number of ranges on an axis of a shape."""
        return (self.n, self.c, 1, self.h, self.w)[axis]


def dealt(size: int, parts: int) -> list[Range]:
    """Return [0, size) cut into ranges, the first ``size mod parts`` of them one longer.

    >>> dealt(10, 3)
    [(0, 4), (4, 3), (7, 3)]
    """
    return [share(size, parts, at) for at in range(parts)]


def share(size: int, parts: int, at: int) -> Range:
    """Return the range `at`, from 0, of those that :func:`dealt` makes of `size` and `parts`."""
    least, longer = divmod(size, parts)
    return at * least + min(at, longer), least + (at < longer)


class Regions:
    """The ranges of all tensors of a group, `operators` rising, that its slices compute or load.

    From global memory it reads the tensors `loaded`, by first reader, and there it writes `stored`.
    """

    def __init__(self, instance: GroupingData, operators: Sequence[int], cut: Cut) -> None:
        self.instance, self.cut = instance, cut
        self.operators = tuple(operators)
        own = set(self.operators)
        read = dict.fromkeys(t for at in self.operators for t in instance.reads[at])
        self.loaded = tuple(t for t in read if t not in own)
        self.stored = tuple(
            at
            for at in self.operators
            if at in instance.kept
            or not instance.tensors[at].readers
            or any(reader not in own for reader in instance.tensors[at].readers)
        )

    def along(self, axis: int) -> dict[int, list[Range]]:
        """Return the ranges of every tensor on an axis, one for each of the axis' cuts."""
        return self._ranges[axis]

    @cached_property
    def _ranges(self) -> list[dict[int, list[Range]]]:
        return [self._along(axis) for axis in range(len(AXES))]

    def _along(self, axis: int) -> dict[int, list[Range]]:
        instance, parts = self.instance, self.cut.along(axis)
        found: dict[int, list[Range]] = {}
        for tensor in self.stored:
            found[tensor] = dealt(instance.tensors[tensor].shape[axis], parts)
        for at in reversed(self.operators):
            operator = instance.operators[at]
            for which, tensor in enumerate(instance.reads[at]):
                size = instance.tensors[tensor].shape[axis]
                wanted = [reads(operator, which, axis, *own, size) for own in found[at]]
                known = found.get(tensor)
                found[tensor] = wanted if known is None else list(map(_cover, known, wanted))
        return found

    def box(self, tensor: int, which: int, *, own: bool = False) -> tuple[Range, ...]:
        """Return the ranges of a `tensor` on all axes that the slice `which` needs.

        Slices are numbered along W first, then H, C, N.  If `own`, only what the slice gives out:
        of a stored tensor, what is its alone.
        """
        found = []
        for axis in reversed(range(len(AXES))):
            parts = self.cut.along(axis)
            which, at = divmod(which, parts)
            size = self.instance.tensors[tensor].shape[axis]
            found.append(share(size, parts, at) if own else self.along(axis)[tensor][at])
        return tuple(reversed(found))

    def part(self, tensor: int) -> Shape:
        """Return the longest range of a tensor on every axis: what it takes room for."""
        n, c, d, h, w = (
            max(length for _, length in self.along(axis)[tensor]) for axis in range(len(AXES))
        )
        return n, c, d, h, w

    def own(self, tensor: int) -> Shape:
        """Return the longest range of a stored tensor that is its slice's alone."""
        shape = self.instance.tensors[tensor].shape
        n, c, d, h, w = (-(-shape[axis] // self.cut.along(axis)) for axis in range(len(AXES)))
        return n, c, d, h, w

    def constant(self, tensor: int, axes: Sequence[int] = (N, C, D, H, W)) -> bool:
        """Whether all slices need the same part of a tensor."""
        return all(len(set(self.along(axis)[tensor])) == 1 for axis in axes)

    @property
    def allowed(self) -> bool:
        """Whether the group may be cut so."""
        return all(self._allowed(axis) for axis in (N, C, H, W) if self.cut.along(axis) > 1)

    def _allowed(self, axis: int) -> bool:
        """Whether its operators may be cut along an axis, and do not read too much again."""
        tensors, parts = self.instance.tensors, self.cut.along(axis)
        if any(tensors[t].shape[axis] < parts for t in self.stored):
            return False
        for at in self.operators:
            whole = not cuttable(self.instance.operators[at], axis)
            if (whole and not self.constant(at, (axis,))) or not self._even(at, axis):
                return False
        limit = self.instance.overlap_limit
        if limit is None or axis not in (H, W):
            return True
        return all(
            self.constant(t, (axis,))
            or self._again(t, axis) <= exact(limit) * tensors[t].shape[axis]
            for t in self.loaded
        )

    def _even(self, at: int, axis: int) -> bool:
        """Whether ranges of an upsampling begin and end where they must."""
        operator = self.instance.operators[at]
        if operator.kind != OperatorKind.UPSAMPLE or not operator.even or axis not in (H, W):
            return True
        factor = operator.scale[axis - H]
        size = operator.full[axis]
        return all(
            start % factor == 0 and ((start + length) % factor == 0 or start + length == size)
            for start, length in self.along(axis)[at]
        )

    def _again(self, tensor: int, axis: int) -> int:
        """Return how many values of an input slices read again, along an axis."""
        held = sum(length for _, length in self.along(axis)[tensor])
        return held - self.instance.tensors[tensor].shape[axis]


def _cover(one: Range, other: Range) -> Range:
    """Return the least range that holds both."""
    start = min(one[0], other[0])
    return start, max(sum(one), sum(other)) - start
