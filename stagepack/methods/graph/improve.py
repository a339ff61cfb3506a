"""Methods of graph partitioning that start from a given partition: local search and models."""

from __future__ import annotations

import math
from collections.abc import Callable

from stagepack.contracts import Number
from stagepack.errors import InputError
from stagepack.formulations.graph.model import GraphModel
from stagepack.heuristics import effort
from stagepack.heuristics.graph.local_search import PartitionSearch
from stagepack.heuristics.graph.tuning import TUNING, AnnealingTuning
from stagepack.instances.graph import Compact, GraphPartition, GraphSolution
from stagepack.methods import Settings
from stagepack.methods.graph.explain import explain
from stagepack.methods.models import load_engine, paced, run_model
from stagepack.progress import Progress
from stagepack.solvers import Engine

GraphProgress = Progress[GraphSolution]


class Annealing:
    """Local search from the best partition known to `progress`; without one there is none.

    A call goes on where the last one ended: several calls find what one call of as many rounds
    finds, unless another search has found a better partition in between.  All is drawn by `seed`.
    """

    def __init__(
        self,
        compact: Compact,
        progress: GraphProgress,
        seed: int,
        tuning: AnnealingTuning = TUNING.annealing,
    ) -> None:
        self._compact, self._progress, self._seed = compact, progress, seed
        self.tuning = tuning
        self._search: PartitionSearch | None = None
        self._known: Number | None = None

    def run(
        self,
        rounds: float = math.inf,
        seconds: float = math.inf,
        patience: float | None = None,
    ) -> None:
        """Anneal until several rounds find nothing: so many as `patience` says, or as is usual.

        At most so many `rounds`, and none begins after so many `seconds` of work.
        """
        progress = self._progress
        if progress.solution is None or not progress.keep_going():
            return
        reason = PartitionSearch.unsupported(self._compact, self.tuning)
        if reason:
            progress.reason = progress.reason or f"no local search: {reason}"
            return
        search = self._search
        if search is None or progress.objective != self._known:
            search = self._begin(progress.solution)
        patience = self.tuning.fruitless if patience is None else patience
        fruitless, done, end = 0, 0, effort.spent() + seconds
        while fruitless < patience and done < rounds and effort.spent() < end:
            fruitless = 0 if search.round(self._pause) else fruitless + 1
            done += 1
            self._offer()

    def begin(self, start: GraphSolution) -> None:
        """Begin at another partition than the best one known, where local search applies."""
        if not PartitionSearch.unsupported(self._compact, self.tuning):
            self._begin(start)

    def _begin(self, start: GraphSolution) -> PartitionSearch:
        """Return a new search."""
        compact, pause = self._compact, self._progress.require_time
        search = PartitionSearch(
            compact, *compact.stages(start), seed=self._seed, pause=pause, tuning=self.tuning
        )
        self._search, self._known = search, self._progress.objective
        self._seed += 1
        return search

    def _offer(self) -> None:
        """Offer the best partition of the search."""
        search = self._search
        if search is not None:
            found = self._compact.assignment(search.stages, search.classes)
            if self._progress.offer(found, "local-search"):
                self._known = self._progress.objective

    def _pause(self) -> None:
        """End the run where it should end, with what was found."""
        if not self._progress.keep_going():
            self._offer()
            self._progress.require_time()


def on_engine(
    formulation: type[GraphModel],
    own_engine: str,
    start: Callable[[GraphPartition, GraphProgress, Settings], Compact | None],
) -> Callable[[GraphPartition, GraphProgress, Settings], None]:
    """Return the `run` of a method that solves a model, `formulation`, on an engine.

    It is `own_engine` unless the settings name another one.  `start` offers a first solution and a
    bound, and returns the compact form, None where nothing fits.
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
    """Solve a model, `formulation`, from the best partition known; return seconds of the engine's
    work.

    On a small graph it goes on without the engine after so many `seconds` of work; if there is no
    such limit, the engine ends with the run.
    """
    tuning = settings.tuned(TUNING).models
    pace = tuning.pace if seconds is None else tuning.small_pace
    known, value = progress.solution, progress.objective
    upper = None if value is None else compact.most_ticks(value)
    try:
        return run_model(
            engine,
            lambda: formulation(compact, upper=upper, tuning=tuning),
            formulation.__name__,
            progress,
            paced(settings, engine, progress.remaining, tuning.pace),
            start=known,
            start_value=value,
            bound_value=compact.bound,
            work=None if seconds is None else pace * seconds,
            pace=pace,
            overdue=tuning.overdue * progress.remaining if settings.deterministic else math.inf,
            conclude_infeasible=lambda: progress.prove_infeasible(
                explain(compact, settings.tuned(TUNING))
            ),
        )
    except InputError as error:  # too large a model
        if known is None and seconds is None:
            raise
        progress.reason = str(error)  # what is known stays known
        return 0.0
