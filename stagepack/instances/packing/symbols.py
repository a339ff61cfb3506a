"""Sizes as expressions of named dimensions: ``4*batch*seq``, ``(seq+63)//64*64``.

Where every size grows with every dimension, or stays, all sizes are largest at once: where all
dimensions are.  A placement for these sizes is one for all others, since a smaller buffer at the
same offset uses some of the same bytes; and none for all values can do with less.  Whether sizes
grow is shown by the rules of signs, for the ranges of the dimensions: what these cannot tell is
refused.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple, NoReturn

from stagepack import files
from stagepack.errors import InputError, shown
from stagepack.instances.arrays import integer

LONGEST = 500  # characters of an expression
FUNCTIONS: Mapping[str, Callable[..., int]] = {"max": max, "min": min}
FORMS = "write integers, names of dimensions, + - * // max(,) min(,) and parentheses"
BOTH = "?"
"""Of a dimension with which a part of an expression may grow and may fall."""


class _Part(NamedTuple):
    """A part of an expression: its least and largest value, and with what it grows or falls.

    `ways` has 1 and -1 by dimension, or BOTH.
    """

    low: int
    high: int
    ways: Mapping[str, int | str]

    @property
    def sign(self) -> int | str:
        """1 where it is never below 0, -1 where it is never above, else BOTH."""
        return 1 if self.low >= 0 else -1 if self.high <= 0 else BOTH


class Dimensions:
    """Named dimensions, each with a range or with the values that it takes.

    Parameters
    ----------
    given : mapping of str to (int, int) or list of int
        By name: the least and the largest value as a tuple, or a list of all values.

    Raises
    ------
    InputError
        For what is no name in an expression, or no range of integers from 0.
    """

    def __init__(self, given: Mapping[str, Sequence[int]]) -> None:
        self.values: dict[str, tuple[int, ...]] = {}
        self.listed: set[str] = set()
        if not isinstance(given, Mapping):
            _refuse(f"{given!r} is no mapping", "dimensions")
        for name, said in given.items():
            if not str(name).isidentifier() or keyword.iskeyword(name) or name in FUNCTIONS:
                raise InputError(
                    f"{name!r} is no name of a dimension",
                    field="dimensions",
                    remedy="give letters and digits, no word of Python",
                )
            field = f"dimensions.{name}"
            if not isinstance(said, tuple | list) or (isinstance(said, tuple) and len(said) != 2):
                _refuse(f"{said!r} is no range", field)
            values = tuple(integer(value, field) for value in said)
            if not values or min(values) < 0 or (isinstance(said, tuple) and values[0] > values[1]):
                _refuse(f"{list(values)[:8]} is empty or negative", field)
            self.values[name] = tuple(sorted(set(values)))
            if isinstance(said, list):
                self.listed.add(name)

    def __repr__(self) -> str:
        return f"<Dimensions: {', '.join(self.values)}>"

    def buckets(self) -> Iterator[dict[str, int]]:
        """Yield all combinations of listed values, with the largest of each range."""
        lists = (v if name in self.listed else v[-1:] for name, v in self.values.items())
        for values in product(*lists):
            yield dict(zip(self.values, values, strict=True))

    def sizes(
        self,
        given: Sequence[int | str],
        at: Mapping[str, int] | None = None,
        ids: Sequence[str] | None = None,
    ) -> list[int]:
        """Return the largest sizes: those that hold for all values of the dimensions.

        Parameters
        ----------
        given : sequence of int or str, shape (n,)
            Numbers of bytes, texts with units ("4KiB"), or expressions of the dimensions.
        at : mapping of str to int, optional
            Values of some dimensions: sizes are for these alone, and for all of the others.
        ids : sequence of str, optional
            Names of the buffers, for messages.

        Raises
        ------
        InputError
            Naming the buffer: for what is no expression, falls where a dimension grows (or may,
            as far as signs tell), or is below 0; for values that a dimension does not take.
        """
        return [high for _, high in self.ends(given, at, ids)]

    def ends(
        self,
        given: Sequence[int | str],
        at: Mapping[str, int] | None = None,
        ids: Sequence[str] | None = None,
    ) -> list[tuple[int, int]]:
        """Return of each buffer the smallest size and the largest.

        Parameters
        ----------
        given, at, ids
            As :meth:`sizes` takes them.
        """
        ends = {name: (known[0], known[-1]) for name, known in self.values.items()}
        for name, value in (at or {}).items():
            field = f"dim.{name}"
            if name not in ends:
                known = ", ".join(ends) or "none"
                raise InputError("is no dimension", field=field, remedy=f"there are {known}")
            low, high = ends[name]
            listed = name in self.listed and value not in self.values[name]
            if not low <= integer(value, field) <= high or listed:
                told = ", ".join(map(str, self.values[name])) if listed else f"{low} to {high}"
                told = f"give {'one of ' if listed else ''}{told}"
                raise InputError(f"{value} is not among its values", field=field, remedy=told)
            ends[name] = (value, value)
        names = map(str, range(len(given))) if ids is None else ids
        return [_size(size, ends, shown(name)) for size, name in zip(given, names, strict=True)]


def symbolic(size: object) -> bool:
    """Whether a size is an expression, no number of bytes."""
    if not isinstance(size, str):
        return False
    try:
        files.size_of(size)
    except ValueError:
        return True
    return False


def _refuse(problem: str, field: str) -> NoReturn:
    raise InputError(problem, field=field, remedy="give (least, largest), or a list of values >= 0")


def _size(size: int | str, ends: Mapping[str, tuple[int, int]], whose: str) -> tuple[int, int]:
    """Return the least and the largest value of the size of a buffer, as messages call it."""
    if not isinstance(size, str):
        return (size, size)
    if not symbolic(size):
        return (files.size_of(size),) * 2
    text = f"{size[:60]!r} of buffer {whose}"
    try:
        tree = ast.parse(size.strip() if len(size) <= LONGEST else "", mode="eval").body
        part = _read(tree, ends)
        lowest, highest = (
            _read(tree, {name: (pair[at],) * 2 for name, pair in ends.items()}).low for at in (0, 1)
        )
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        told = f": {error}" if type(error) is ValueError else ""
        raise InputError(f"{text} is no size{told}", field="size", remedy=FORMS) from None
    except ZeroDivisionError:
        raise InputError(
            f"{text} may divide by 0", field="size", remedy="divide by what is never 0"
        ) from None
    for name, way in part.ways.items():
        if way != 1:
            raise InputError(
                f"{text} falls, or may fall, where {name} grows",
                field="size",
                remedy=f"write a size that only grows with it, or say one value of {name}",
            )
    if lowest < 0:
        raise InputError(f"{text} may be {lowest}", field="size", remedy="give sizes from 0")
    return lowest, highest


def _read(node: ast.expr, ends: Mapping[str, tuple[int, int]]) -> _Part:
    """Return what a part of an expression can be, with dimensions within their `ends`."""
    match node:
        case ast.Constant(value=value) if type(value) is int:
            return _Part(value, value, {})
        case ast.Name(id=name):
            if name not in ends:
                raise ValueError(f"there is no dimension {name}")
            low, high = ends[name]
            return _Part(low, high, {name: 1} if low < high else {})
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _negative(_read(operand, ends))
        case ast.BinOp(left=left, op=op, right=right):
            return _joined(op, _read(left, ends), _read(right, ends))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if (
            name in FUNCTIONS and len(args) > 1
        ):
            parts = [_read(arg, ends) for arg in args]
            chosen = FUNCTIONS[name]
            lows, highs = [part.low for part in parts], [part.high for part in parts]
            return _Part(chosen(lows), chosen(highs), _ways((part.ways, 1) for part in parts))
    raise ValueError(f"{ast.unparse(node)[:40]} is more than sizes need")


def _negative(part: _Part) -> _Part:
    return _Part(-part.high, -part.low, _ways([(part.ways, -1)]))


def _joined(op: ast.operator, left: _Part, right: _Part) -> _Part:
    """Return the sum, difference, product or quotient of two parts."""
    if isinstance(op, ast.Sub):
        op, right = ast.Add(), _negative(right)
    if isinstance(op, ast.Add):
        ways = _ways([(left.ways, 1), (right.ways, 1)])
        return _Part(left.low + right.low, left.high + right.high, ways)
    if isinstance(op, ast.Mult):
        corners = [a * b for a in left[:2] for b in right[:2]]
        ways = _ways([(left.ways, right.sign), (right.ways, left.sign)])
    elif isinstance(op, ast.FloorDiv):
        if right.low <= 0 <= right.high:
            raise ZeroDivisionError
        corners = [a // b for a in left[:2] for b in right[:2]]
        falls = -left.sign if isinstance(left.sign, int) else BOTH  # a / b, where b grows
        ways = _ways([(left.ways, right.sign), (right.ways, falls)])
    else:
        raise ValueError("operators are + - * //")
    return _Part(min(corners), max(corners), ways)


def _ways(parts: Iterable[tuple[Mapping[str, int | str], int | str]]) -> dict[str, int | str]:
    """Return how a whole goes with each dimension, which goes with its parts or against them."""
    found: dict[str, int | str] = {}
    for ways, sign in parts:
        for name, way in ways.items():
            turned = way * sign if isinstance(way, int) and isinstance(sign, int) else BOTH
            found[name] = turned if found.get(name, turned) == turned else BOTH
    return found
