"""Irreducible infeasible subsets (IIS), by a deletion filter.

A chunk of members is dropped if the rest is still infeasible.  Chunks are halved down to single
members.

Cost: between n and 2n feasibility tests if the subset is large, k log n if it has k members.
Source: Chinneck and Dravnieks 1991.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from stagepack.result import Status

T = TypeVar("T")


def reduce(
    members: Sequence[T],
    decide: Callable[[list[T]], Status],
    keep_going: Callable[[], bool] | None = None,
    *,
    least: int = 1,
) -> tuple[list[T], bool]:
    """Return the members that are left, and whether every chunk of them is proved to be needed.

    All `members` together are infeasible.  Those that come first are tried first: what is hardly
    ever superfluous comes last.  `decide` says whether some members, one at least, are FEASIBLE,
    INFEASIBLE or UNKNOWN. `keep_going` is asked before each question; once it says no, what is left
    by then is the answer.  The smallest chunks have `least` members.
    """
    kept, chunk = list(members), max(least, len(members) // 2)
    while True:
        begin, needed = 0, True
        while begin < len(kept):
            if keep_going is not None and not keep_going():
                return kept, False
            rest = kept[:begin] + kept[begin + chunk :]
            status = decide(rest) if rest else Status.FEASIBLE
            if status is Status.INFEASIBLE:
                kept = rest
                continue
            needed = needed and status is Status.FEASIBLE
            begin += chunk
        if chunk == least:
            return kept, needed
        chunk = max(least, chunk // 2)
