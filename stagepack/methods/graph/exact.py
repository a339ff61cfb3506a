"""Exact methods: dynamic programs over many topological orders, all ideals, and labels."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from stagepack.evidence import SEARCHED
from stagepack.heuristics import effort
from stagepack.heuristics.graph import dp as ideal_dp
from stagepack.heuristics.graph import everything
from stagepack.heuristics.graph.baselines import equal_work, work_bound
from stagepack.heuristics.graph.bounds import objective_bound
from stagepack.heuristics.graph.frontier import beam
from stagepack.heuristics.graph.frontier.label_search import LabelSearch
from stagepack.heuristics.graph.frontier.model import Model, unproved
from stagepack.heuristics.graph.frontier.sweeps import Sweeps
from stagepack.heuristics.graph.ideals import TooManyError, nearly_chain
from stagepack.heuristics.graph.linear import Hunt
from stagepack.heuristics.graph.stage_kernels import FAR
from stagepack.heuristics.graph.staging import Found, Staging
from stagepack.heuristics.graph.tuning import TUNING
from stagepack.heuristics.graph.ways import spread, states
from stagepack.instances.graph import Compact, GraphPartition, GraphSolution
from stagepack.instances.profile import Array
from stagepack.methods import Settings
from stagepack.methods.graph.evidence import by_work, in_line, raise_by_rows, row_count
from stagepack.methods.graph.explain import explain, impossible
from stagepack.methods.graph.improve import Annealing
from stagepack.methods.models import load_engine
from stagepack.methods.starts import LENT, offer_start
from stagepack.progress import Progress
from stagepack.solvers import Limits
from stagepack.verify.graph import OBJECTIVES

GraphProgress = Progress[GraphSolution]


class CompactSearch:
    """The searches of one run, which share the compact form of the graph and what is known.

    `impossible`: it is plain to see that there is no partition; the reason is told then.  `known`
    are the ticks of the best partition met; `annealing` goes on where it was left.
    """

    _unlisted = 0.0
    """Seconds of work that were too few to list all ideals, the last time."""
    _pending: Found | None = None
    """The best partition along orders that is not offered yet."""
    _source = ""
    """Who found it."""

    def __init__(
        self, instance: GraphPartition, progress: GraphProgress, settings: Settings
    ) -> None:
        self.instance, self.progress, self.settings = instance, progress, settings
        self.tuning = settings.tuned(TUNING)
        self.compact, self.known = Compact.of(instance, progress.require_time), FAR
        self.annealing = Annealing(self.compact, progress, settings.seed, self.tuning.annealing)
        self._size = instance.n + len(instance.consumers)
        effort.spend(self.tuning.compact_price * self._size)
        reason = impossible(self.compact)
        self.impossible = bool(reason)
        # The rule joins nodes of a colour, but not blocks along circles.
        colours = np.unique(instance.colour[instance.colour >= 0])
        plain = len(self.compact.size) == len(colours) + int((instance.colour < 0).sum())
        plain &= instance.objective.value in OBJECTIVES
        least = None if reason else self.compact.bound(work_bound(self.compact))
        evidence = by_work(instance, least, self.tuning.evidence_size) if plain else SEARCHED
        if least is None:
            progress.prove_infeasible(reason, evidence)
        else:
            progress.raise_bound(least, "work bound", evidence)

    @functools.cached_property
    def staging(self) -> Staging:
        """What the linear order works on."""
        sequence = spread(self.compact, self.tuning.ideals.most_states)
        staging = Staging.of(self.compact, sequence=sequence, tuning=self.tuning)
        staging.prepare(self.progress.require_time)
        return staging

    @functools.cached_property
    def _least(self) -> int:
        """Ticks that no partition is below, found once."""
        return objective_bound(self.staging)

    def least(self) -> int:
        """Return ticks that no partition is below, and tell `progress` of them."""
        self.raise_bound(self._least, "work bound")
        self.progress.require_time()
        return self._least

    def start(self, chain: Callable[[], object] | None = None) -> None:
        """Offer a first solution as the settings want it.

        Where ideals are hardly more than those of a chain, `chain` does so by itself: these tell
        more than orders in less time.
        """

        def quick() -> None:
            ideals = self.tuning.ideals
            few = states(self.compact) <= ideals.most_states
            if chain is not None and few and nearly_chain(self.compact, ideals):
                chain()
            else:
                self.along_few_orders()

        starts = {"auto": quick, "linear-dp": self.along_many_orders}
        offer_start(self.instance, self.progress, self.settings, starts)
        self.learn()

    def learn(self) -> None:
        """Take over the value of the best partition known, whoever found it."""
        if self.progress.objective is not None:
            self.known = min(self.known, self.compact.most_ticks(self.progress.objective) + 1)

    def equal_work(self) -> tuple[object, ...]:
        """Offer partitions in equal shares; return what the last bad one breaks."""
        broken: tuple[object, ...] = ()
        for solution in equal_work(self.compact):
            broken = self.progress.offer_if_valid(solution, "equal-work") or broken
            effort.spend(self.tuning.check_price * self._size)
            self.progress.require_time()
        return broken

    def along_few_orders(self) -> None:
        """Look for partitions along a few orders, before other searches."""
        few = self.tuning.orders
        self._along_orders(few.quick_patience, few.quick_seconds, 1)

    def along_many_orders(self, seconds: float | None = None) -> None:
        """Look for partitions along many orders; a later call goes on where the last one ended.

        It ends after so many `seconds` of work, by default the usual ones where orders are all.
        """
        many = self.tuning.orders
        self._along_orders(many.patience, many.seconds if seconds is None else seconds, many.starts)

    def _along_orders(self, patience: int, seconds: float, starts: int) -> None:
        """Cut in equal shares where nothing is known; then see :meth:`Hunt.search`."""
        orders = self.tuning.orders.orders
        if self.progress.solution is None:
            self.equal_work()
        self.hunt(lambda hunt: hunt.search(orders, patience, seconds, starts), "linear-dp")

    def hunt(self, look: Callable[[Hunt], object], source: str) -> None:
        """Offer, as found by `source`, what `look` finds along orders.

        All calls share one hunt: a later one goes on with other orders, from the best so far.
        """
        self.least()
        hunt, before = self._hunt, self._hunt.best
        self._source = source
        try:
            look(hunt)
        finally:
            if hunt.best is not before:  # how often one was offered, the wall clock decides
                effort.spend(self.tuning.check_price * self._size)
            self._offer_pending()

    @functools.cached_property
    def _hunt(self) -> Hunt:
        """The search along orders that all calls share."""
        return Hunt(self.staging, self.progress.require_time, self._better, self.settings.seed)

    def _better(self, found: Found) -> None:
        """Take what the hunt found; offer it at once unless others were offered just now."""
        self.known = min(self.known, found.whole)
        self._pending = found
        if self.progress.stale:
            self._offer_pending()

    def _offer_pending(self) -> None:
        """Offer what was found last and not offered yet."""
        found, self._pending = self._pending, None
        if found is not None:
            self.progress.offer(self.staging.solution(found), self._source)

    def hopeless(self, seconds: float) -> bool:
        """Return whether the ideals were too many for nearly as much work before."""
        return seconds < self.tuning.auto.retry_factor * self._unlisted

    def over_ideals(self, seconds: float = math.inf, few: float = 0.0) -> None:
        """Prove the best partition, or that there is none, in so many `seconds` of work.

        A list of ideals that is short enough to be swept in `few` seconds gets these.  Raises
        `TooManyError` when that is not enough, or memory.
        """
        end = effort.spent() + seconds
        reserve = self.tuning.auto.ideals_reserve * self.progress.remaining
        reserve = min(reserve, self.progress.remaining - seconds)
        self._unlisted = seconds

        def pause() -> None:
            self.progress.require_time()
            if effort.spent() > end or self.progress.remaining < reserve:
                raise TooManyError("there are too many ideals for the time")

        def listed(count: int) -> None:
            nonlocal end
            self._unlisted = 0.0
            if self.tuning.ideals.pair_estimate * count**2 < few:
                end = max(end, effort.spent() + few)

        def bound(ticks: int) -> None:
            self.raise_bound(ticks, "exhausted search")

        if not ideal_dp.solve(
            self.compact, self.known, pause, self._take_best, bound, listed, self.tuning
        ):
            self.progress.prove_infeasible(explain(self.compact, self.tuning))
        self._tell_coarse()

    def _tell_coarse(self) -> None:
        """Say why the best partition of all is not proved to be that: loads are too small."""
        if self.compact.rounding and not self.progress.proved:
            step = float(self.compact.value(1))
            self.progress.reason = (
                f"loads are counted in steps of {step:.2g}, as fine as the largest times allow"
            )

    def try_everything(self) -> bool:
        """Prove the best partition of a small graph; return whether it did.

        For figures that no common unit of 64 bits tells apart, and rules that ideals do not know.
        """
        if self.compact.blocks > self.tuning.everything.most_blocks:
            return False

        def pause(seconds: float) -> None:
            effort.spend(seconds)
            self.progress.require_time()

        found = everything.best(self.compact, pause, self.tuning.everything)
        if found is None:
            return False
        (best,) = found
        if best is None:
            self.progress.prove_infeasible(explain(self.compact, self.tuning))
            return True
        self.progress.offer(best, "trying everything")
        self.progress.raise_bound(self.progress.objective, "trying everything")
        return True

    def best_of_ideals(self) -> None:
        """Offer the best partition, and leave the proof to others.

        Where it is not found in a part of the time, look along orders.
        """
        self.equal_work()
        self.least()
        self.learn()
        pause = self.progress.require_time
        with (
            contextlib.suppress(TooManyError),
            self.progress.lending(*LENT),
            effort.lending(*LENT),
        ):
            tell, nobody = self._take_best, lambda *_: None
            ideal_dp.solve(self.compact, self.known, pause, tell, nobody, tuning=self.tuning)
            return
        pause()
        self.along_few_orders()

    def _take_best(self, staging: Staging, found: Found) -> bool:
        """Offer what is best over ideals; return whether it keeps all limits."""
        solution = staging.solution(found)
        if staging.light:
            return not self.progress.offer_if_valid(solution, "dp")
        self.progress.offer(solution, "dp")
        return True

    def by_rows(self, part: float) -> None:
        """Raise the bound by a linear program, in a part of what is left, if that will do."""
        seconds = self.tuning.models.row_seconds * row_count(self.compact)
        steps = min(self.tuning.models.row_programs, int(part * self.progress.remaining / seconds))
        if steps < 1 or self.progress.objective is None or not in_line(self.instance):
            return
        load_engine("highs", self.progress, self.settings)

        def limits() -> Limits:
            self.progress.require_time()
            effort.spend(seconds)
            left = None if self.settings.deterministic else part * self.progress.remaining
            return Limits(time_limit=left, seed=self.settings.seed)

        raise_by_rows(self.instance, self.progress, steps, limits)
        if not self.compact.rounding and self.progress.bound is not None:
            least = Fraction(self.progress.bound) * (1 - Fraction(self.instance.tolerance))
            self._least = max(self.least(), math.floor(least * self.compact.scale))

    def by_labels(self, aside: bool = True) -> None:
        """Improve the best partition and prove bounds, in turns, with local search `aside` or
        without.
        """

        def bound(ticks: int) -> None:
            self.raise_bound(ticks, "frontier labels")

        def take() -> None:
            if self.progress.solution is not None:
                search.take(*self._placed(self.progress.solution, search.sweeps.models))

        def anneal(seconds: float) -> None:
            known = self.progress.objective
            self.annealing.run(seconds=seconds, patience=math.inf)
            if self.progress.objective != known:
                take()

        least, sweeps = self.least(), self._sweeps()
        search = LabelSearch(sweeps, least, self._take, bound, anneal if aside else None)
        take()
        search.run()
        if search.impossible:
            self.progress.prove_infeasible(explain(self.compact, self.tuning))
        elif self.progress.solution is None:
            self.progress.reason = (
                "frontier: no label keeps all rules, nor is it proved that none can"
            )
        elif search.bound < search.value:
            why = unproved(self.instance) or "labels that are left take too much room"
            self.progress.reason = f"frontier proves only the bound: {why}"
        else:
            self._tell_coarse()

    def by_beams(self) -> None:
        """Look for partitions with the most promising labels only."""
        least, sweeps = self.least(), self._sweeps()
        value = min(self.known, sweeps.most)
        take = functools.partial(self._take, source="beam")
        beam.search(sweeps, least, value, take, self.tuning.beam)

    def _sweeps(self) -> Sweeps:
        """Return sweeps over the graph, one model for each order of devices."""
        models = Model.all_of(self.compact, self.progress.require_time)
        self.progress.require_time()
        return Sweeps(models, self.progress.require_time, self.settings.seed, self.tuning.labels)

    def _take(self, stages: Array, model: Model, source: str = "frontier") -> int | None:
        """Offer a partition; return its ticks, None if it breaks a rule that labels do not know."""
        solution = self.compact.assignment(stages, model.classes)
        if self.progress.offer_if_valid(solution, source):
            return None
        return int(self.compact.loads(stages, model.classes).max(axis=1).sum())

    def _placed(self, solution: GraphSolution, models: Sequence[Model]) -> tuple[Array, Model]:
        """Return the stages of a partition in the first order of devices that has its classes."""
        stages, classes = self.compact.stages(solution)
        for model in models:
            at = 0
            places = []
            for c in classes.tolist():
                rest = np.flatnonzero(model.classes[at:] == c)
                if not len(rest):
                    break
                places.append(at + int(rest[0]))
                at = places[-1] + 1
            else:
                return np.array(places)[stages], model
        raise AssertionError("some order of the devices has all stages")

    def raise_bound(self, ticks: int, source: str) -> None:
        """Tell that no partition is below so many `ticks`, as `source` proved; where that is the
        value known up to rounding, tell that value.
        """
        bound, objective = self.compact.bound(ticks), self.progress.objective
        if objective is not None and objective < bound <= objective * (1 + 1e-9):
            bound = objective
        self.progress.raise_bound(bound, source)


def linear_dp(search: CompactSearch) -> None:
    """Cut many orders in the best way."""
    search.along_many_orders()
    if search.progress.solution is None:
        search.progress.reason = "linear-dp tried several orders, none with stages that fit"


def dp(search: CompactSearch) -> None:
    """Go through all ideals."""
    progress = search.progress
    try:
        search.start(chain=search.equal_work)
        progress.require_time()
        search.over_ideals()
    except TooManyError as error:
        progress.reason = f"dp: {error}"
