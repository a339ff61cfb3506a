"""The step of packing methods that solves a model on an engine."""

from __future__ import annotations

from stagepack.errors import InputError
from stagepack.formulations import packing as formulations
from stagepack.heuristics import effort
from stagepack.instances.profile import Array
from stagepack.methods import Settings
from stagepack.methods.models import paced, run_model
from stagepack.methods.packing.attempt import Attempt
from stagepack.methods.packing.explain import conclude_infeasible
from stagepack.solvers import Engine


def solve(
    attempt: Attempt,
    low: Array | None,
    engine: Engine,
    formulation: str,
    settings: Settings,
    work: float | None = None,
) -> None:
    """Solve the model `formulation` on an engine, from the best answer known.

    `low` has the offsets of the lowest placement known; `work` limits the engine's, besides
    `settings`.
    """
    instance, progress = attempt.instance, attempt.progress
    upper = progress.objective
    lower = progress.bound
    model = getattr(formulations, formulation)
    building = model.building(instance, attempt.tuning)
    if building > progress.remaining:
        progress.reason = (
            f"{formulation} would take about {building:,.0f} s to build, more than is left"
        )
        return
    try:
        seconds = run_model(
            engine,
            effort.carried(
                lambda: model(
                    instance, upper=upper, lower=lower, spend=effort.spend, tuning=attempt.tuning
                )
            ),
            formulation,
            progress,
            paced(settings, engine, progress.remaining),
            start=progress.solution,
            start_value=upper,
            work=work,
            overdue=attempt.overdue(settings.deterministic),
            conclude_infeasible=lambda: conclude_infeasible(attempt, low, engine.name),
        )
    except InputError as error:  # figures that the engine cannot hold
        if progress.solution is None:
            raise
        progress.reason = str(error)  # what is known stays known
        return
    effort.spend(seconds)
