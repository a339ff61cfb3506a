"""From a previous cut of a chain: the best one, and the one near it for which the least moves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from stagepack.contracts import Number
from stagepack.errors import InputError
from stagepack.instances.base import require_instance
from stagepack.instances.pipeline import KIND, Objective, PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.previous import Previous, held_by, names_of
from stagepack.instances.profile import Cluster
from stagepack.result import Result
from stagepack.solve import require_number, solve


class Recut(NamedTuple):
    """Two answers about a chain that is cut anew.

    Attributes
    ----------
    best : Result
        The best cut by the chain's own objective, whatever moves.
    moves : Result or None
        The cut for which the fewest bytes move, of those whose objective is at most `limit`; None
        where no cut was found.
    limit : int or float or None
        The objective of the best cut, and the tolerance.
    """

    best: Result[PipelineSolution]
    moves: Result[PipelineSolution] | None
    limit: Number | None


def recut(
    instance: PipelinePartition,
    previous: Previous,
    tolerance: float = 0.0,
    *,
    devices: Sequence[str] | Cluster | None = None,
    **options: Any,
) -> Recut:
    """Cut a chain anew, moving as few bytes as a cut needs that is nearly the best.

    For devices that fail or are added, and profiles that change.

    Parameters
    ----------
    previous, devices
        The cut that is in place, see :meth:`.PipelinePartition.from_previous`.
    tolerance : float
        By which share the objective may be worse than the best found: 0.05 is 5 %.
    **options
        As for :func:`solve`, for both searches; each has the whole time limit.

    Raises
    ------
    InputError
        As :func:`solve` and :meth:`.PipelinePartition.from_previous`.
    """
    require_instance(instance, KIND)
    share = require_number(tolerance, "tolerance", "a share such as 0.05", 0)
    if share is None:
        raise InputError("None", field="tolerance", remedy="give a share such as 0.05, or 0")
    instance.from_previous(previous, devices=devices, limit=0)  # refused before time is spent
    best = solve(instance, **options)
    if best.solution is None or best.objective is None:
        return Recut(best, None, None)
    held = instance.replace(previous=held_by(instance, previous, devices))
    question = nearly(held, best, tolerance)
    moves = solve(question, **{**options, "warm_start": best.solution})
    return Recut(best, moves, allowed(question))


def nearly(instance: PipelinePartition, best: Result[Any], tolerance: float) -> PipelinePartition:
    """Return the question of the fewest moves within a tolerance of what was found to be best.

    `best` is a result of its own objective, with a solution; the `tolerance` is that of
    :func:`recut`.
    """
    assert best.objective is not None
    assert instance.previous is not None
    names: list[str | None] = [None, *names_of(instance.cluster)]
    held = [names[at + 1] for at in instance.previous]
    return instance.from_previous(held, limit=_limit(instance, best.objective, tolerance))


def allowed(question: PipelinePartition) -> Number | None:
    """Return what the limited objective may be: of headroom, minus the tokens that must fit."""
    return -question.tokens if question.limited is Objective.HEADROOM else question.limit


def _limit(instance: PipelinePartition, best: Number, tolerance: float) -> Number:
    """Return the most that an objective may be within a `tolerance` of the `best` one.

    Whole where all its values are.
    """
    exact = Fraction(best) + abs(Fraction(best)) * Fraction(str(tolerance))
    whole = instance.whole and all(device.speed == 1 for device in instance.cluster.devices)
    if whole or instance.objective is Objective.HEADROOM:
        return math.floor(exact)
    return max(best, float(exact))


def share_of(text: str) -> float:
    """Return a tolerance as people write it: ``5%`` or ``0.05``."""
    number, percent, rest = text.strip().partition("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = -1.0
    if rest or not 0 <= share < math.inf:
        raise InputError(f"{text!r}", field="tolerance", remedy="give a share: 5% or 0.05")
    return share
