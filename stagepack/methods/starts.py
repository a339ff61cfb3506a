"""Warm starts: reads the setting `warm_start` in the same way for all problems."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from stagepack import kinds
from stagepack.contracts import InstanceOf, SolutionT
from stagepack.errors import InputError
from stagepack.heuristics import effort
from stagepack.methods import Settings
from stagepack.progress import Progress

LENT = 0.5, 10.0
"""The part of its time that a run gives to the method it starts from, and the most seconds."""

TURN, FEW = 1 / 32, 0.25
"""The first turn of a search: its part of the time left, and at least so many seconds."""
MOST = 0.6
"""The largest part of the time left that any turn takes."""


class Turn(NamedTuple):
    """A search that takes turns with others.

    `go_on` goes on from where it was, and returns whether it is done; if it `decides`, nothing is
    left to do then.  Turns have a `length` beside those of others.
    """

    go_on: Callable[[], bool]
    length: int = 1
    decides: bool = False


def take_turns(progress: Progress[SolutionT], searches: Sequence[Turn]) -> None:
    """Let several searches go on by turns, so that none takes the time of another.

    In every round turns are twice as long as in the one before; each search is stopped by its clock
    at the end of its turn, and all by `progress`.
    """
    left, waiting = progress.remaining, list(searches)
    seconds = FEW if math.isinf(left) else max(FEW, TURN * left)
    while waiting and progress.keep_going():
        for search in tuple(waiting):
            most, done = seconds * search.length, False
            with progress.lending(MOST, most), effort.lending(MOST, most):
                done = search.go_on()
            if done and search.decides:
                return
            if done:
                waiting.remove(search)
        seconds *= 2


def offer_start(
    instance: InstanceOf[SolutionT],
    progress: Progress[SolutionT],
    settings: Settings,
    starts: Mapping[str, Callable[[], object]],
    offer: Callable[[SolutionT, str], object] | None = None,
) -> None:
    """Offer the solution that the settings give, or run what they name.

    By `starts` "auto" is the problem's own choice, other names are those of methods; one that never
    ends by itself leaves the run its half of the time.  `offer` is called with a solution and its
    source, where there is more to do than to offer it.  Refuses a solution that is not valid, an
    unknown name, and a method that does not apply.
    """
    wanted = settings.warm_start
    if wanted is None:
        return
    progress.take_start()
    if not isinstance(wanted, str):
        violations = instance.check(wanted)
        if violations:
            raise InputError(
                f"the solution given breaks {violations[0]}",
                field="warm_start",
                remedy="give a valid one or none",
            )
        (offer or progress.offer)(instance.solution_in(wanted, "warm_start"), "warm start")
        return
    if wanted not in starts:
        raise InputError(
            f"unknown warm start {wanted!r}",
            field="warm_start",
            remedy="choose none, " + ", ".join(starts),
        )
    if wanted == "auto":
        starts[wanted]()
        return
    for method in kinds.part(instance.kind, "methods").METHODS:
        if method.name != wanted:
            continue
        reason = method.unsupported(instance) or method.declines(instance)
        if reason:
            raise InputError(f"{wanted}: {reason}", field="warm_start")
    with progress.lending(*LENT), effort.lending(*LENT):
        starts[wanted]()
    progress.reason = ""  # nobody asked for the answer of that method
