"""What can be traded in a problem, and what might be changed: the contract of its `tradeoffs`.

``instances/<family>/tradeoffs.py`` defines ``AXES``, what may be limited further, ``what_ifs``, the
changes that users ask about, and ``critical``, which part of a solution decides its value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from stagepack import kinds
from stagepack.contracts import Instance
from stagepack.errors import InputError

MORE = 10  # percent
BESIDE = "where transfers run beside compute"
"""What the objective ``overlap`` asks for in place of ``sum``, in words."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Something that a solution uses, and that an instance can be given less of."""

    unit: str  # what it is counted in, in whole numbers
    description: str
    # ``(instance, limit) -> instance`` whose solutions are those that use at most `limit`, which is
    # at least 1.
    within: Callable[[Any, int], Any]
    # ``(instance, solution) -> int``: the least limit that the solution keeps.
    used: Callable[[Any, Any], int]
    objective: str = ""  # what must be minimised beside it; "": anything
    # ``instance -> str``: why the instance has nothing to limit; "" where it has.
    lacking: Callable[[Any], str] = lambda instance: ""


@dataclass(frozen=True)
class WhatIf:
    """An instance with one thing changed for the better ("10 % more memory").

    Its optimum is no worse than that of the instance at hand.  `option` is what the command line
    calls the change, if it asks for no other machine, but only allows more.
    """

    change: str
    instance: Instance
    option: str = ""


class TradeOffs(Protocol):
    """The module of a problem's trade-offs."""

    AXES: Mapping[str, Axis]

    def what_ifs(self, instance: Any) -> Iterable[WhatIf]:
        """Yield the changes that users ask about."""

    def critical(self, instance: Any, solution: Any) -> Iterable[tuple[str, str]]:
        """Yield what decides the value of a solution: what it is, and its figures."""


def tradeoffs(kind: str) -> TradeOffs:
    """Return the trade-offs of a kind of problem; refuse one that says none."""
    try:
        return cast("TradeOffs", kinds.part(kind, "instances", "tradeoffs"))
    except ModuleNotFoundError as missing:
        if not str(missing.name).endswith(".tradeoffs"):
            raise
        raise InputError(
            f"nothing is known of what can be traded in a {kind}",
            field="instance",
            remedy="give an instance of another kind",
        ) from None


def axis(kind: str, name: str) -> Axis:
    """Return what a kind of problem can be limited in; an unknown name is refused with the known
    ones.
    """
    known = tradeoffs(kind).AXES
    if name not in tuple(known):  # whatever it is, a list even
        raise InputError(
            f"{name!r} is nothing that a {kind} can be limited in",
            field="x",
            remedy=f"choose {' or '.join(known)}" if known else "there is none",
        )
    return known[name]


def least(limit: int | None, other: int) -> int:
    """Return the smaller of a limit, which may be none, and another one."""
    return other if limit is None else min(limit, other)


def more(figure: int) -> int:
    """Return a figure and `MORE` percent of it, rounded down, but one more at least."""
    return max(figure + 1, figure * (100 + MORE) // 100)


def percent(part: float, whole: float) -> str:
    """Return which share of a whole a part is."""
    return f"{100 * part / whole:.0f} %" if whole else "all"
