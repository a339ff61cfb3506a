"""Tries every solution of a small instance: the definition itself confirms a claim, or refutes it.

Each problem has a module here with ``candidates(instance, below)``.  It yields solutions of which
one is better than a bound, or valid, if any solution is; and None for what it tried that leads to
none.  The instance alone says what a candidate is worth and whether it is valid.  Plain Python,
which shares nothing with heuristics, formulations, methods or the verifier's rules.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from fractions import Fraction

from stagepack import kinds
from stagepack.contracts import Instance, Number

MOST = 50_000
"""Candidates that are tried."""


class TooManyError(Exception):
    """Raised by candidates: the space is too large, or cannot be tried as a whole, and why."""


@dataclass(frozen=True)
class Tried:
    """What trying every solution has come to: how many there are, and the best value below the
    claim.
    """

    count: int
    best: Number | None


def tried(instance: Instance, bound: Number | None, time_limit: float | None) -> Tried | None:
    """Try every solution within `time_limit` seconds, as far as these are few; None: too many.

    Every objective is claimed to reach `bound`; None: nothing is feasible.
    """
    until = math.inf if time_limit is None else time.monotonic() + time_limit
    below = None
    if bound is not None:
        below = Fraction(bound) - Fraction(instance.tolerance) * abs(Fraction(bound))
    count = 0
    try:
        every = kinds.part(instance.kind, "claims.every").candidates(instance, below)
        for candidate in every:
            count += 1
            if count > MOST or time.monotonic() > until:
                return None
            if candidate is None:
                continue
            value = instance.evaluate(candidate)
            if (below is None or value < below) and not instance.check(candidate):
                return Tried(count, value)
    except (ModuleNotFoundError, TooManyError):
        return None
    return Tried(count, None)
