"""What steers searches: numbers with names, one frozen dataclass a family, handed down.

``heuristics/<family>/tuning.py`` holds it; its fields say their unit, what they mean, and how they
were chosen.  None of them makes an answer wrong: they say how long something is tried, how widely,
in which order, and what a step of work costs.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from stagepack import kinds
from stagepack.errors import InputError, suggest

TuningT = TypeVar("TuningT", bound="Tuning")

MOST_MADE = 2**24
"""Entries that are made at once, whatever else there is: more are gigabytes."""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Numbers that steer the searches of a family, or of a part of it."""

    not_zero: ClassVar[tuple[str, ...]] = ()
    """Fields that are divided by, stepped by or made room for, or that keep loops going."""

    at_once: ClassVar[tuple[str, ...]] = ()
    """Fields that say how many entries are made at once: up to `MOST_MADE`."""

    alike: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Fields that are gone through side by side, and are of equal length therefore."""

    def changed(self: TuningT, changes: object, field: str = "options.tuning") -> TuningT:
        """Return these numbers with some of them changed.

        `changes` are names of fields and their values, those of a part in a mapping of their own;
        messages call them `field`.  An `InputError` names what is no field, suggesting the nearest,
        values of another type, and fields that belong together but are not of equal length.
        """
        if not isinstance(changes, Mapping):
            raise InputError(f"{changes!r}", field=field, remedy="give a mapping: name to value")
        known = [one.name for one in dataclasses.fields(self)]
        new: dict[str, Any] = {}
        for name, value in changes.items():
            if name not in known:
                raise InputError(
                    f"unknown name {name!r}", field=field, remedy=suggest(str(name), known)
                )
            new[name] = _like(getattr(self, name), value, f"{field}.{name}")
            each = new[name] if isinstance(new[name], tuple) else (new[name],)
            if name in self.not_zero and 0 in each:
                raise InputError(f"{value!r}", field=f"{field}.{name}", remedy="give more than 0")
            if name in self.at_once and new[name] > MOST_MADE:
                most = f"give at most {MOST_MADE:,}"
                raise InputError(f"{value!r}", field=f"{field}.{name}", remedy=most)
        result = dataclasses.replace(self, **new)
        for pair in self.alike:
            one, other = (len(getattr(result, name)) for name in pair)
            if one != other:
                raise InputError(
                    f"{one} and {other} values",
                    field=f"{field}.{pair[0]}, {pair[1]}",
                    remedy="give as many of both",
                )
        return result


def _like(now: Any, value: Any, field: str) -> Any:
    """Return `value` as the type of what it replaces; refuse what is none."""
    if isinstance(now, Tuning):
        return now.changed(value, field)
    if isinstance(now, tuple) and isinstance(value, list | tuple) and value:
        return tuple(_like(now[0], one, f"{field}[{at}]") for at, one in enumerate(value))
    if isinstance(now, enum.Enum):
        words = [one.value for one in type(now)]
        if value not in words:
            raise InputError(f"{value!r}", field=field, remedy=suggest(value, words))
        return type(now)(value)
    whole = type(value) is int and 0 <= value < 2**62
    if isinstance(now, bool):
        kind, fits = "true or false", isinstance(value, bool)
    elif isinstance(now, int):
        kind, fits = "an integer >= 0", whole
    elif isinstance(now, float):
        kind = "a number >= 0"
        fits = whole or (type(value) is float and value >= 0)
    else:
        kind = "numbers" if isinstance(now, tuple) else f"a {type(now).__name__}"
        fits = isinstance(value, type(now)) and not isinstance(now, tuple)
    if not fits:
        raise InputError(f"{value!r}", field=field, remedy=f"give {kind}; now it is {now!r}")
    return float(value) if isinstance(now, float) else value


def tuned(kind: str, changes: object) -> Tuning | None:
    """Return the numbers that steer the searches of a kind with `changes`; None for the usual.

    Errors are those of :meth:`Tuning.changed`, and one where the kind has no such numbers.
    """
    if changes is None:
        return None
    try:
        usual: Tuning = kinds.part(kind, "heuristics", "tuning").TUNING
    except ModuleNotFoundError:
        nothing = f"{kind} has none"
        raise InputError(nothing, field="options.tuning", remedy="leave it out") from None
    return usual.changed(changes)
