"""Methods for the objective latency: cuts of orders and annealing, CP-SAT, and both in turn."""

from __future__ import annotations

import math

from stagepack.errors import InputError
from stagepack.formulations.graph import Latency
from stagepack.heuristics import effort
from stagepack.heuristics.graph.latency.path_bound import FAR, path_bound
from stagepack.heuristics.graph.latency.sample import Sample
from stagepack.heuristics.graph.latency.search import PlaceSearch
from stagepack.heuristics.graph.tuning import TUNING
from stagepack.instances.graph import GraphPartition, GraphSolution
from stagepack.methods import Settings
from stagepack.methods.models import load_engine, paced, run_model
from stagepack.methods.starts import offer_start
from stagepack.progress import Progress

GraphProgress = Progress[GraphSolution]
UNPLACED = (
    "no places of the blocks keep within the memory of all accelerators; give more memory, more "
    "accelerators, or CPUs that may run them"
)


class _Run:
    """What the searches of one run share."""

    def __init__(
        self, instance: GraphPartition, progress: GraphProgress, settings: Settings
    ) -> None:
        self.instance, self.progress, self.settings = instance, progress, settings
        self.tuning = settings.tuned(TUNING)
        self.sample = Sample.of(instance, progress.require_time)
        effort.spend(self.tuning.compact_price * (instance.n + len(instance.consumers)))
        self.search = PlaceSearch(
            self.sample, settings.seed, progress.require_time, self.tuning.latency
        )
        reason = self.sample.impossible()
        self.impossible = bool(reason)
        if reason:
            progress.prove_infeasible(reason)
            return
        head, _ = self.sample.heads(self.sample.least(), progress.require_time)
        self.least = int(head.max())
        progress.raise_bound(self.sample.bound(self.least), "critical path")

    def start(self) -> None:
        """Offer a first solution as the settings want it."""
        starts = {"auto": self.cuts, "local-search": self.anneal}
        offer_start(self.instance, self.progress, self.settings, starts)
        if self.progress.solution is not None:
            self.search.take(self.sample.places(self.progress.solution))
        self._raise_bound()

    def _raise_bound(self) -> None:
        """Look at the cuts of two paths: the longest, and that with most to send, too."""
        sample, progress = self.sample, self.progress
        least, longest = sample.least(), self.tuning.latency.longest_path
        for weight in (least, least + sample.sent()):
            progress.require_time()
            ticks = path_bound(sample, weight, longest, progress.require_time)
            if ticks >= FAR:
                progress.prove_infeasible(UNPLACED)
                return
            self.least = max(self.least, ticks)
            progress.raise_bound(sample.bound(ticks), "cuts of a path")

    def cuts(self) -> None:
        """Offer the best cuts of orders."""
        for better in self.search.cuts():
            if better:
                self._offer("cuts of orders")
            self.progress.require_time()

    def anneal(self, rounds: float = math.inf) -> None:
        """Anneal until a few rounds find nothing; so many `rounds` at most."""
        tuning = self.tuning.latency
        if self.search.best is None:
            self.cuts()
        fruitless = 0
        while self.search.best is not None and fruitless < tuning.fruitless and rounds > 0:
            seconds = tuning.share * self.progress.remaining / min(rounds, tuning.first_rounds)
            try:
                fruitless = 0 if self.search.round(seconds) else fruitless + 1
            finally:
                self._offer("local-search")
            rounds -= 1
            self.progress.require_time()

    def everything(self) -> bool:
        """Prove the best places of a few blocks; return whether there were few enough."""
        few = self.tuning.everything
        if not self.search.everything(few.most_placements, few.often):
            return False
        if self.search.best is None:
            self.progress.prove_infeasible(UNPLACED)
        else:
            self._offer("trying everything")
            self.progress.raise_bound(self.sample.bound(self.search.value), "trying everything")
        return True

    def _offer(self, source: str) -> None:
        """Offer the best places."""
        if self.search.best is not None:
            self.progress.offer(self.sample.solution(self.search.best), source)

    def model(self) -> None:
        """Let CP-SAT go on from what is known, to the end."""
        progress, settings, tuning = self.progress, self.settings, self.tuning.models
        engine = load_engine("cp-sat", progress, settings)
        known, value = progress.solution, progress.objective
        upper = None if value is None else self.sample.most_ticks(value)
        try:
            run_model(
                engine,
                lambda: Latency(self.sample, upper=upper, lower=self.least, tuning=tuning),
                Latency.__name__,
                progress,
                paced(settings, engine, progress.remaining, tuning.pace),
                start=known,
                start_value=value,
                bound_value=self.sample.bound,
                pace=tuning.pace,
                overdue=tuning.overdue * progress.remaining if settings.deterministic else math.inf,
                conclude_infeasible=lambda: progress.prove_infeasible(UNPLACED),
            )
        except InputError as error:  # too large a model
            if known is None:
                raise
            progress.reason = str(error)


def _auto(run: _Run) -> None:
    """Try everything where blocks are few; else anneal, and let CP-SAT prove what it can."""
    if run.everything():
        return
    steps, sample, progress = run.tuning.latency, run.sample, run.progress
    run.anneal(steps.first_rounds)
    progress.require_time()
    size = run.instance.n + len(sample.cost) + len(sample.edges)
    if progress.solution is None or size * len(sample.room) <= steps.cp_sat_places:
        run.model()
    if not progress.proved and progress.keep_going():
        run.anneal()


def _local_search(run: _Run) -> None:
    run.anneal()
    if run.progress.solution is None:
        run.progress.reason = "local-search: no cut of an order keeps within the memory of devices"


RUNS = {"auto": _auto, "cp-sat": _Run.model, "local-search": _local_search}
"""What methods do from the best cuts of orders, by name."""


def solve(name: str, instance: GraphPartition, progress: GraphProgress, settings: Settings) -> None:
    """Solve an instance by the method of a `name`, one of `RUNS`."""
    if name == "cp-sat":
        load_engine(name, progress, settings)
    elif settings.engine not in (None, "cp-sat"):
        raise InputError(
            f"{settings.engine} has no model of latency", field="engine", remedy="use cp-sat"
        )
    run = _Run(instance, progress, settings)
    if not run.impossible:
        run.start()
        progress.require_time()
        RUNS[name](run)
