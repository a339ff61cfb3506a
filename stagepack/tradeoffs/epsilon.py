"""Pareto fronts: the function `pareto`, its axes and its limits."""

from __future__ import annotations

import math
from typing import Any

from stagepack.contracts import Instance, Number
from stagepack.errors import InputError
from stagepack.instances.arrays import integer
from stagepack.instances.base import require_instance
from stagepack.instances.tradeoffs import axis
from stagepack.interrupts import Interrupts
from stagepack.result import Result, Termination
from stagepack.solve import deterministic, require_keywords, require_time, solve
from stagepack.tradeoffs.front import Front, FrontPoint
from stagepack.tradeoffs.staircase import Staircase

PART = 1 / 8
"""Part of what is left of the limit that a solve gets, where time is counted."""
EACH = 2
"""Solves a point among which the limit is shared out where work is counted: runs repeat so."""
LEAST = 0.01
"""Seconds that must be left for a solve to begin, but for the first."""


class _Limit:
    """One limit that all solves share."""

    def __init__(self, seconds: float | None, points: int, by_work: bool) -> None:
        self._left = math.inf if seconds is None else seconds
        self._each = self._left / (EACH * points) if by_work else None

    def part(self) -> float | None:
        """Return the seconds of the next solve."""
        if math.isinf(self._left):
            return None
        return max(LEAST, PART * self._left) if self._each is None else self._each

    def took(self, result: Result[Any]) -> None:
        """Take off what a solve took."""
        self._left -= result.runtime if self._each is None else self._each
        if result.termination is Termination.INTERRUPTED:
            self._left = 0

    def goes_on(self) -> bool:
        """Whether there is time for another one."""
        return self._left > (LEAST if self._each is None else self._each / 2)


def pareto(
    instance: Instance,
    x: str = "memory",
    y: str | None = None,
    *,
    points: int = 32,
    method: str = "auto",
    time_limit: float | None = 60,
    **options: Any,
) -> Front:
    """Return the exact Pareto front of the objective and a limited resource; each point is proved.

    By the epsilon-constraint method: the instance is solved under one limit after the other.

    Parameters
    ----------
    x : str
        The limited resource: "memory" of pipelines, graphs, schedules, layer groupings (per lane)
        and packings (the first of several memories), "devices" of pipelines, or "remote-memory" of
        phase schedules.
    y : str, optional
        The objective; by default that of the instance.
    points : int
        Largest number of points; if the front has more, those returned are spread over it.
    method : str
        One of :func:`stagepack.methods`.
    time_limit : float, optional
        Seconds of all solves together; each gets a part of the remaining time.  If the time is not
        sufficient, points have bounds instead of proofs, or there are fewer.
    **options
        Other arguments of :func:`stagepack.solve`: engine, threads, seed, options.

    Returns
    -------
    Front

    Raises
    ------
    InputError
        If this kind of problem has no such resource, and as :func:`stagepack.solve`.
    """
    require_instance(instance, remedy="give an instance; tune has fronts of plans")
    time_limit, points = require_time(time_limit), integer(points, "points", 1)
    if "objective" in options:
        raise InputError("is called y here", field="objective", remedy="give it as y")
    own = "x", "y", "points"
    require_keywords(options, "pareto", own, without=("objective", "target", "warm_start"))
    known = axis(instance.kind, x)
    if y is not None:
        instance = instance.replace(objective=y)
    if known.objective and str(instance.objective) != known.objective:
        raise InputError(
            f"{instance.objective} cannot be had for {x}",
            field="objective",
            remedy=f"minimise {known.objective}",
        )
    lacking = known.lacking(instance)
    if lacking:
        raise InputError(lacking, field="x", remedy="choose another axis or instance")
    shared = _Limit(time_limit, points, deterministic(options.get("options")))

    def ask(limit: int | None, start: Result[Any] | None, target: Number | None) -> Result[Any]:
        answer = solve(
            instance if limit is None else known.within(instance, limit),
            method,
            time_limit=shared.part(),
            target=target,
            warm_start="auto" if start is None else start.solution,
            **options,
        )
        shared.took(answer)
        return answer

    search = Staircase(ask, lambda r: known.used(instance, r.solution), instance.tolerance)
    with Interrupts() as interrupts:
        result = search.climb(points, lambda: shared.goes_on() and not interrupts.asked)
    left_open = {stretch.high + 1 for stretch in search.open()}
    found = []
    for point in search.known:
        bound = search.bound(point.used)
        found.append(
            FrontPoint(
                x=point.used,
                y=point.value,
                bound=bound if math.isfinite(bound) else None,
                proved=search.proved(point),
                least=point.used not in left_open,
                result=point.result,
            )
        )
    nothing = [limit for limit, bound in search.bounds.items() if bound == math.inf]
    return Front(
        instance=instance,
        x=x,
        unit=known.unit,
        points=tuple(found),
        infeasible=max(nothing, default=None),
        complete=bool(found) and not left_open and all(point.proved for point in found),
        solves=search.questions,
        result=result,
    )
