"""Sizes of the inputs of ONNX models: those of the file, and those that are said beside it.

Of what is said, the shape of an input (``shape.x``) comes first, also where the file has another
one; then named dimensions (``dim.seq``); then the words `batch`, `sequence` and `image`, which
stand for axes that are called so or, without a name, lie where these do.  A batch that nobody says
is 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from stagepack.errors import InputError, shown
from stagepack.formats.onnx.shapes import bodies

if TYPE_CHECKING:
    from onnx import GraphProto, ValueInfoProto

NAMES = {
    "batch": ("batch", "n", "b", "bs", "bsz"),
    "sequence": ("seq", "len", "token", "time", "t", "s"),
    "image": ("height", "width", "h", "w"),
}
"""What axes are called that stand for a word: shorter than three letters alone, else as a part."""
WHOLE, ONE = "shape.", "dim."
"""What words begin with that say the shape of an input, and a named dimension."""


def close(graph: GraphProto, given: Mapping[str, Any]) -> None:
    """Give all axes of the inputs the sizes that are `given`, and name those that lack one."""
    constants = {weight.name for weight in graph.initializer}
    inputs = {value.name: value for value in graph.input if value.name not in constants}
    shapes, named = _said(given, WHOLE), _said(given, ONE)
    called = {dim.dim_param for value in inputs.values() for dim in _dims(value) if dim.dim_param}
    _require(shapes, inputs, WHOLE, "input")
    _require(named, called, ONE, "named dimension of the inputs")
    whole = [_reshape(inputs[name], said, named) for name, said in shapes.items()]
    if any(whole):
        _forget(graph)
    missing = [one for value in inputs.values() for one in _fill(value, given, named)]
    if missing:
        lacking, remedies = zip(*missing, strict=True)
        raise InputError(
            f"no size for {', '.join(lacking)}",
            field="graph.input",
            remedy="say it: " + " ".join(dict.fromkeys(remedies)),
        )


def _said(given: Mapping[str, Any], first: str) -> dict[str, Any]:
    return {n.removeprefix(first): value for n, value in given.items() if n.startswith(first)}


def _dims(value: ValueInfoProto) -> Any:
    return value.type.tensor_type.shape.dim


def _require(said: Iterable[str], known: Iterable[str], first: str, what: str) -> None:
    for name in said:
        if name not in known:
            raise InputError(
                f"{name!r} is no {what}",
                field=f"{first}{name}",
                remedy="there are " + (", ".join(map(shown, sorted(known))) or "none"),
            )


def _reshape(value: ValueInfoProto, said: str, named: dict[str, int]) -> bool:
    """Give an input the shape that is `said`, and its `named` dimensions to the others.

    Return whether it had another one.
    """
    sizes, dims = said.split("x") if said else [], _dims(value)
    field = f"{WHOLE}{value.name}"
    if not all(re.fullmatch("[1-9][0-9]{0,17}", size) for size in sizes):
        raise InputError(
            f"{said[:60]!r} is no shape", field=field, remedy="write sizes: 1x3x48x320"
        )
    kind = value.type.tensor_type
    if not value.type.HasField("tensor_type") or (
        kind.HasField("shape") and len(dims) != len(sizes)
    ):
        raise InputError(
            f"{said} has {len(sizes)} axes, and the input {len(dims)}",
            field=field,
            remedy="give each axis a size",
        )
    kind.shape.SetInParent()
    changed = False
    for size, dim in zip(map(int, sizes), list(dims) or [dims.add() for _ in sizes], strict=True):
        if dim.dim_param and named.setdefault(dim.dim_param, size) != size:
            raise InputError(
                f"dimension {dim.dim_param!r} is {size} here and {named[dim.dim_param]} elsewhere",
                field=field,
                remedy="give it one size",
            )
        changed |= bool(dim.HasField("dim_value")) and dim.dim_value not in (0, size)
        dim.dim_value = size
    return changed


def _forget(graph: GraphProto) -> None:
    """Take away shapes that the file has of what is computed: they are of other inputs."""
    inside = [body for node in graph.node for body in bodies(node)]
    for one in (graph, *inside):
        del one.value_info[:]
        results = (*one.output, *(one.input if one is not graph else ()))
        for value in results:
            value.type.tensor_type.ClearField("shape")


def _fill(
    value: ValueInfoProto, given: Mapping[str, Any], named: Mapping[str, int]
) -> Iterable[tuple[str, str]]:
    """Give the open axes of an input their sizes; yield those without one, and what says it."""
    dims = _dims(value)
    for axis, dim in enumerate(dims):
        if dim.dim_value > 0 or (dim.HasField("dim_value") and not dim.dim_param):
            continue
        name, word = dim.dim_param, _word(dim.dim_param, axis, len(dims))
        size = named.get(name) or given.get(word, 1 if word == "batch" else None)
        if size is not None:
            dim.dim_value = size
            continue
        shape = "x".join(str(d.dim_value or "N") for d in dims)
        yield (
            f"axis {axis} ({name or 'without a name'}) of {value.name}",
            f"--set {word}=N" + (f" or --set {ONE}{name}=N" if name else "")
            + f" or --set {WHOLE}{value.name}={shape}",
        )  # fmt: skip


def _word(name: str, axis: int, rank: int) -> str:
    """Return the word that says the size of an open axis."""
    plain = name.lower()
    for word, called in NAMES.items():
        if plain in called or any(len(part) > 2 and part in plain for part in called):
            return word
    if axis == 0:
        return "batch"
    return "image" if rank == 4 and axis > 1 else "sequence"
