"""Methods of graph partitioning that start from a partition: local search, models on engines."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from stagepack.errors import InputError
from stagepack.formulations.graph.model import GraphModel
from stagepack.heuristics import effort
from stagepack.heuristics.graph.local_search import PartitionSearch
from stagepack.instances.graph import Compact, GraphPartition, GraphSolution
from stagepack.methods import Settings
from stagepack.methods.graph.explain import explain
from stagepack.methods.models import PACE, load_engine, paced, run_model
from stagepack.progress import Progress
from stagepack.solvers import Engine

GraphProgress = Progress[GraphSolution]

FRUITLESS = 6
"""Rounds of local search in a row that find nothing better before it ends."""
SMALL_PACE = 0.25
"""Work of CP-SAT in a second, in the models of small graphs."""
OVERDUE = 1.8
"""Of CPU seconds to seconds of work, after which an engine is ended by the clock."""


def local_search(
    compact: Compact,
    progress: GraphProgress,
    seed: int,
    rounds: float = math.inf,
    seconds: float = math.inf,
) -> None:
    """Anneal from the best partition known, until several rounds find nothing.

    Parameters
    ----------
    compact : Compact
    progress : Progress
        Its solution is where the search starts; without one there is no search.
    seed : int
    rounds : float
        At most so many,
    seconds : float
        and none begun after so many of work.
    """
    start = progress.solution
    if start is None or not progress.keep_going():
        return
    reason = PartitionSearch.unsupported(compact)
    if reason:
        progress.reason = progress.reason or f"no local search: {reason}"
        return
    search = PartitionSearch(compact, *compact.stages(start), seed=seed)

    def offer() -> None:
        progress.offer(compact.assignment(search.stages, search.classes), "local-search")

    def pause() -> None:
        if not progress.keep_going():
            offer()
            progress.require_time()

    fruitless, done, end = 0, 0, effort.spent() + seconds
    with progress.setup("compiling local search"):
        search.warm_up()
    while fruitless < FRUITLESS and done < rounds and effort.spent() < end:
        fruitless = 0 if search.round(pause) else fruitless + 1
        done += 1
        offer()


def on_engine(
    formulation: type[GraphModel],
    own_engine: str,
    start: Callable[[GraphPartition, GraphProgress, Settings], Compact | None],
) -> Callable[[GraphPartition, GraphProgress, Settings], None]:
    """Return the `run` of a method that solves a model on an engine.

    Parameters
    ----------
    formulation : type
    own_engine : str
    start : callable
        Offers a first solution and a bound; returns the compact form, None where nothing fits.
    """

    def run(instance: GraphPartition, progress: GraphProgress, settings: Settings) -> None:
        engine = load_engine(own_engine, progress, settings)
        compact = start(instance, progress, settings)
        if compact is not None:
            solve_model(formulation, engine, compact, progress, settings)

    return run


def solve_model(
    formulation: type[GraphModel],
    engine: Engine,
    compact: Compact,
    progress: GraphProgress,
    settings: Settings,
    seconds: float | None = None,
) -> float:
    """Solve a model on an engine, from the best partition known; return seconds of its work.

    Parameters
    ----------
    formulation : type
    engine : Engine
    compact : Compact
    progress : Progress
    settings : Settings
    seconds : float, optional
        Of work on a small graph, after which to go on without; left out, the engine ends with the
        run.
    """
    known, value = progress.solution, progress.objective
    ticks = None if value is None else math.ceil(Fraction(value) * compact.scale)
    upper = None if ticks is None else ticks + compact.rounding
    try:
        return run_model(
            engine,
            lambda: formulation(compact, upper=upper),
            formulation.__name__,
            progress,
            paced(settings, engine, progress.remaining, PACE),
            start=known,
            start_value=value,
            bound_value=compact.bound,
            work=None if seconds is None else SMALL_PACE * seconds,
            pace=PACE if seconds is None else SMALL_PACE,
            overdue=OVERDUE * progress.remaining if settings.deterministic else math.inf,
            conclude_infeasible=lambda: progress.prove_infeasible(explain(compact)),
        )
    except InputError as error:  # too large a model
        if known is None and seconds is None:
            raise
        progress.reason = str(error)  # what is known stays known
        return 0.0
