"""Evidence changed at random: numbers, entries, types, and the bounds it is to show."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from stagepack.contracts import Instance, JsonObject, Number
from stagepack.verify import Claimed, verify


def claim(bound: Number | None) -> Claimed:
    """Return what is to be shown, for however long."""
    return Claimed(None if bound is None else Fraction(bound), math.inf)


WRONG: tuple[object, ...] = (None, "x", -1, 2**70, 0.5, [], {}, True, [[]], float("nan"))


def mutated(evidence: JsonObject, rng: random.Random) -> JsonObject:
    """Return evidence in which one thing is changed."""
    found = copy.deepcopy(evidence)
    places = [place for place in _places(found) if place != (found, "rule")]
    if not places:
        return found
    holder, key = rng.choice(places)
    value = holder[key]
    kind = rng.randrange(6)
    if kind == 0 or (kind == 1 and not isinstance(value, list)):
        holder[key] = rng.choice(WRONG)
    elif isinstance(value, list):
        if kind == 1:
            value.append(copy.deepcopy(rng.choice(value)) if value else 0)
        elif kind == 2 and value:
            del value[rng.randrange(len(value))]
        elif kind == 3:
            rng.shuffle(value)
        elif value:
            at, other = rng.randrange(len(value)), rng.randrange(len(value))
            value[at] = copy.deepcopy(value[other])
    elif isinstance(value, int | float):
        holder[key] = value + rng.choice((-2, -1, 1, 2, 6, value))
    else:
        del holder[key]
    return found


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every holder and key of what evidence consists of."""
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in keys:
        yield value, key
        yield from _places(value[key])


def attacked(
    instance: Instance,
    best: Number | None,
    proof: str,
    evidence: JsonObject,
    rng: random.Random,
    times: int,
) -> int:
    """Claim bounds above the optimum, and mutate evidence; return how much of it was refused.

    Parameters
    ----------
    instance : instance of any problem
    best : int or float or None
        The optimum; None: nothing is feasible.
    proof : str
    evidence : dict
        To be mutated, of this instance or another one.
    rng : Random
    times : int
        Mutations.
    """
    refused = 0
    for _ in range(times):
        changed = mutated(evidence, rng) if rng.random() < 0.9 else evidence
        if best is None:
            verify(instance, rng.choice([None, 1, 10**6]), proof, changed)  # all is true
            continue
        bound = rng.choice([None, best, best + 1, best + 1, best + rng.randrange(2, 9)])
        found = verify(instance, bound, proof, changed)
        true = bound is not None and bound <= best
        assert true or not found.shown, (instance, bound, best, changed, found)
        refused += not found.shown
    return refused
