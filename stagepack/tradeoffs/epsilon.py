"""Fronts of what can be had for what."""

from __future__ import annotations

import math
from typing import Any

from stagepack.contracts import Instance, Number
from stagepack.errors import InputError
from stagepack.instances.answer import require_instance
from stagepack.instances.tradeoffs import axis
from stagepack.result import Result
from stagepack.solve import solve
from stagepack.tradeoffs.front import Front, FrontPoint
from stagepack.tradeoffs.staircase import Staircase

POINTS = 32


def pareto(
    instance: Instance,
    x: str = "memory",
    y: str | None = None,
    *,
    points: int = POINTS,
    method: str = "auto",
    time_limit: float | None = 5,
    **options: Any,
) -> Front:
    """Return the exact front of an objective against what solutions use, each point proved.

    The epsilon-constraint method: the instance is solved within one limit after the other.

    Parameters
    ----------
    instance : instance of any problem
    x : str
        What is limited: "memory" of pipelines, graphs, schedules and packings (of these, the first
        of several memories), "devices" of pipelines, "remote-memory" of phase schedules.
    y : str, optional
        The objective; the instance's own when absent.
    points : int
        Most points; where there are more, those returned lie apart.
    method : str
    time_limit : float, optional
        Seconds of each solve; where they do not do, points come with a bound.
    **options
        What else :func:`stagepack.solve` takes: engine, threads, seed, options.

    Returns
    -------
    Front

    Raises
    ------
    InputError
        For something that the kind cannot be limited in, and what :func:`stagepack.solve` refuses.
    """
    require_instance(instance)
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
    if not isinstance(points, int) or points < 1:
        raise InputError(f"{points!r}", field="points", remedy="give an integer of at least 1")

    def ask(limit: int | None, start: Result[Any] | None, target: Number | None) -> Result[Any]:
        return solve(
            instance if limit is None else known.within(instance, limit),
            method,
            time_limit=time_limit,
            target=target,
            warm_start="auto" if start is None else start.solution,
            **options,
        )

    search = Staircase(ask, lambda r: known.used(instance, r.solution), instance.tolerance)
    result = search.climb(points)
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
