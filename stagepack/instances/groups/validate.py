"""Validates the arguments of layer groupings; errors name the field."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from operator import index
from typing import SupportsFloat, TypeVar

import msgspec

from stagepack.errors import InputError, suggest
from stagepack.instances.documents import strict
from stagepack.instances.groups.chip import LaneChip
from stagepack.instances.groups.data import HALF, GroupingData, Source
from stagepack.instances.groups.limits import refuse_large
from stagepack.instances.groups.operators import (
    AXES,
    C,
    D,
    H,
    N,
    Operator,
    Shape,
    W,
    channelwise,
)
from stagepack.instances.groups.problem import OperatorKind

MOST_ROWS = 2**31 + 1
"""One more than any tensor has."""
T = TypeVar("T")


@dataclass(frozen=True)
class Parts:
    """What an instance is made of, every field of its type and range."""

    operators: tuple[Operator, ...]
    inputs: tuple[Source, ...]
    outputs: tuple[str, ...]
    chip: LaneChip


def parts(
    operators: Iterable[Operator],
    inputs: Iterable[Source],
    outputs: Iterable[str],
    chip: LaneChip,
) -> Parts:
    """Return `operators`, in the order in which they run, `inputs` and `outputs` (names) and the
    chip, read as strictly as a file.
    """
    known = {
        "operators": _structs(operators, Operator, "operators"),
        "inputs": _structs(inputs, Source, "inputs"),
        "outputs": tuple(outputs),
        "chip": _struct(chip, LaneChip, "chip"),
    }
    return strict.convert(msgspec.to_builtins(known, enc_hook=_plain), Parts)


def _plain(given: object) -> object:
    """Return what JSON has no type for: a number of another library, or its name."""
    if hasattr(given, "__index__"):
        return index(given)
    return float(given) if isinstance(given, SupportsFloat) else f"a {type(given).__name__}"


def _structs(given: Iterable[T], kind: type[T], name: str) -> tuple[T, ...]:
    found = tuple(given)
    for at, one in enumerate(found):
        _struct(one, kind, f"{name}[{at}]")
    return found


def _struct(given: T, kind: type[T], name: str) -> T:
    if not isinstance(given, kind):
        raise InputError(
            f"is of type {type(given).__name__}",
            field=name,
            remedy=f"give {kind.__module__}.{kind.__name__}",
        )
    return given


def count(given: int, name: str) -> int:
    """Return an integer of at least 1."""
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= 2**31:
        raise InputError(f"{given!r} will not do", field=name, remedy="give an integer from 1")
    return given


def limit(given: float | str | None) -> float | None:
    """Return the part of rows that may be read again, None for any."""
    words = {"half": HALF, "none": None, None: None}
    if isinstance(given, str | None) and given in words:
        return words[given]
    try:
        found = float(given) if given is not None else -1.0
    except (TypeError, ValueError):
        found = -1.0
    if not 0 <= found <= 2**31:
        raise InputError(
            f"{given!r} is no part of the rows",
            field="overlap_limit",
            remedy='give "half", "none" or a number from 0',
        )
    return found


def sorted_operators(
    operators: tuple[Operator, ...], inputs: tuple[Source, ...]
) -> tuple[Operator, ...]:
    """Return operators in topological order, as they are where that is one.

    Refuses names that come twice, unknown inputs and circles.
    """
    if not operators:
        raise InputError("no operators", field="operators", remedy="give at least one")
    given = {source.name for source in inputs}
    if len(given) < len(inputs):
        at = next(at for at, one in enumerate(inputs) if one.name in [i.name for i in inputs[:at]])
        raise _twice(inputs[at].name, f"inputs[{at}].name")
    names: dict[str, int] = {}
    for at, operator in enumerate(operators):
        if operator.name in names or operator.name in given:
            raise _twice(operator.name, f"operators[{at}].name")
        names[operator.name] = at
    ready = True
    for at, operator in enumerate(operators):
        for which, name in enumerate(operator.inputs):
            if name not in names and name not in given:
                raise InputError(
                    f"nobody writes {name!r}",
                    field=f"operators[{at}].inputs[{which}]",
                    remedy=suggest(name, [*names, *given]) or "give it among the inputs",
                )
            ready &= names.get(name, -1) < at
    if ready:
        return operators
    before = {at: [names[i] for i in op.inputs if i in names] for at, op in enumerate(operators)}
    try:
        order = list(TopologicalSorter(before).static_order())
    except CycleError as error:
        circle = " -> ".join(operators[at].name for at in reversed(error.args[1]))
        raise InputError(
            f"operators read one another in a circle: {circle}",
            field="operators",
            remedy="remove the cycle",
        ) from None
    return tuple(operators[at] for at in order)


def _twice(name: str, field: str) -> InputError:
    return InputError(
        f"{name!r} comes twice", field=field, remedy="give every tensor a name of its own"
    )


def instance(whole: GroupingData) -> None:
    """Refuse unknown names, names that come twice, shapes that do not propagate, large sizes."""
    names = {operator.name for operator in whole.operators}
    for at, name in enumerate(whole.outputs):
        if name not in names:
            raise InputError(
                f"nobody writes {name!r}", field=f"outputs[{at}]", remedy=suggest(name, names)
            )
    for at, source in enumerate(whole.inputs):
        if len(source.shape) not in (4, 5):
            raise _of_rank(source.shape, f"inputs[{at}].shape")
    for at, operator in enumerate(whole.operators):
        if len(operator.shape) not in (4, 5):
            raise _of_rank(operator.shape, f"operators[{at}].shape")
        for letter in operator.whole:
            if letter not in AXES:
                raise InputError(
                    f"{letter!r} is no axis",
                    field=f"operators[{at}].whole",
                    remedy=f"give letters of {AXES}",
                )
    for at, operator in enumerate(whole.operators):
        wrong = misshaped(operator, whole.sources(at))
        if wrong:
            raise InputError(
                f"{operator.name}: {wrong}",
                field=f"operators[{at}].shape",
                remedy="give the shape that follows from its inputs",
            )
    refuse_large(whole)


def _of_rank(shape: tuple[int, ...], field: str) -> InputError:
    return InputError(
        f"{shape} has {len(shape)} axes", field=field, remedy="give (n, c, h, w) or (n, c, d, h, w)"
    )


def _said(*shapes: Shape) -> str:
    """Return shapes as they are given: without a depth of 1."""
    return ", ".join(
        str(tuple(s[axis] for axis in (N, C, H, W)) if s[D] == 1 else s) for s in shapes
    )


def misshaped(operator: Operator, sources: tuple[Shape, ...]) -> str:
    """Return why the shape of an operator does not follow from those of its inputs, or ""."""
    kind, own = operator.kind, operator.full
    few = 2 if kind == OperatorKind.MATMUL else 1
    many = kind in (OperatorKind.ELEMENTWISE, OperatorKind.CONCAT, OperatorKind.OTHER)
    if kind != OperatorKind.OTHER and (len(sources) < few or (len(sources) > few and not many)):
        return f"a {kind} reads {few} tensors, not {len(sources)}"
    if kind == OperatorKind.OTHER:
        return ""
    if kind == OperatorKind.CONCAT:
        total = sum(source[C] for source in sources)
        alike = all(source[axis] == own[axis] for source in sources for axis in (N, D, H, W))
        return (
            ""
            if alike and total == own[C]
            else f"inputs {_said(*sources)} do not make {_said(own)}"
        )
    if kind in (OperatorKind.ELEMENTWISE, OperatorKind.ROWS):
        fits = all(s[axis] in (1, own[axis]) for s in sources for axis in range(len(AXES)))
        reaches = all(own[a] == max(s[a] for s in sources) for a in range(len(AXES)))
        return "" if fits and reaches else f"inputs {_said(*sources)} do not make {_said(own)}"
    first = sources[0]
    if kind == OperatorKind.MATMUL:
        left, right = sources
        fits = left[W] == right[H] and own[H] == left[H] and own[W] == right[W]
        return (
            ""
            if fits and own[:H] == left[:H]
            else f"{_said(left)} times {_said(right)} is not {_said(own)}"
        )
    if first[N] != own[N] or any(
        own[axis] not in _spatial(operator, first, axis) for axis in (H, W)
    ):
        return f"{_said(own)} does not follow from {_said(first)}"
    if kind in (OperatorKind.CONV, OperatorKind.DECONV):
        if first[C] % operator.groups or own[C] % operator.groups:
            return f"{operator.groups} groups do not divide {first[C]} and {own[C]} channels"
        if channelwise(operator) and first[C] != own[C]:
            return f"{operator.groups} groups of {first[C]} channels"
        return ""
    return "" if first[C] == own[C] else f"{first[C]} channels become {own[C]}"


def _spatial(operator: Operator, source: Shape, axis: int) -> range:
    """Return how many rows or columns an operator may write."""
    kind, at, size = operator.kind, axis - H, source[axis]
    if kind == OperatorKind.GLOBAL_POOL:
        return range(1, 2)
    if kind == OperatorKind.UPSAMPLE:
        return range(size * operator.scale[at], size * operator.scale[at] + 1)
    if kind == OperatorKind.INTERPOLATE:
        return range(1, MOST_ROWS)
    kernel = (operator.kernel[at] - 1) * operator.dilation[at] + 1
    padding, stride = sum(operator.padding[2 * at : 2 * at + 2]), operator.stride[at]
    if kind == OperatorKind.DECONV:  # with or without output padding
        least = (size - 1) * stride + kernel - padding
        return range(least, least + stride)
    least, rest = divmod(size + padding - kernel, stride)
    rounded = kind == OperatorKind.POOL and rest > 0  # some round up
    return range(least + 1, least + 2 + rounded)
