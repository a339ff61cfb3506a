"""Evidence with something wrong in it."""

from __future__ import annotations

import copy
import random
from typing import Any

WRONG: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    0.5,
    10**30,
    "",
    "1/3",
    "x",
    [],
    {},
    [[]],
    float("inf"),
)


def mutated(evidence: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """Return evidence with one thing changed: a number, an entry, the type of a value, a field."""
    found: dict[str, Any] = copy.deepcopy(evidence)
    holders = [place for place in _places(found, ()) if place != ("rule",)]
    if not holders or draw.random() < 0.05:
        found[draw.choice(["transfers", "potentials", "more"])] = draw.choice(WRONG)
        return found
    *path, last = draw.choice(holders)
    holder = found
    for step in path:
        holder = holder[step]
    value = holder[last]
    if isinstance(value, list) and value and draw.random() < 0.8:
        at, other = draw.randrange(len(value)), draw.randrange(len(value))
        match draw.randrange(4):
            case 0:
                value.insert(other, copy.deepcopy(value[at]))
            case 1:
                del value[at]
            case 2:
                value[at], value[other] = value[other], value[at]
            case _:
                del value[min(at, other) : max(at, other)]
    elif isinstance(value, int | float) and not isinstance(value, bool) and draw.random() < 0.8:
        holder[last] = draw.choice([value + 1, value - 1, 2 * value, -value, value // 2])
    else:
        holder[last] = draw.choice(WRONG)
    return found


def _places(value: Any, path: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return the ways to all values within a document."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    places = [path] if path else []
    for key, part in items:
        places += _places(part, (*path, key))
    return places
