"""Implementations of the methods of phase scheduling; imported, with kernels, when one runs."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from stagepack.errors import InputError
from stagepack.evidence import TOLD
from stagepack.formulations import phases as formulations
from stagepack.heuristics.effort import spend, spent
from stagepack.heuristics.phases import baselines
from stagepack.heuristics.phases.cycles import UNLIMITED
from stagepack.heuristics.phases.enumerate import Pairs
from stagepack.heuristics.phases.options import GRAPHS, REMOTE, OptionTable, assemble, group_options
from stagepack.heuristics.phases.policies import PolicyRows
from stagepack.heuristics.phases.ranges import RangeCosts
from stagepack.heuristics.phases.tuning import TUNING, ModelsTuning
from stagepack.instances.phases import PhaseSchedule, PhaseSolution, Policy
from stagepack.instances.phases.least import infeasibility
from stagepack.methods import Settings, counted
from stagepack.methods.models import load_engine, paced, run_model
from stagepack.methods.phases import METHODS, retention
from stagepack.methods.phases.explain import conclude_infeasible
from stagepack.methods.starts import offer_start
from stagepack.progress import Part, Progress, Stopped
from stagepack.solvers import Engine

PhaseProgress = Progress[PhaseSolution]
Run = Callable[[PhaseSchedule, PhaseProgress, Settings], None]


def _begin(instance: PhaseSchedule, progress: PhaseProgress, settings: Settings) -> Pairs:
    """Tell `progress` what is known without a search; return what else a run needs."""
    tuning = settings.tuned(TUNING)
    if infeasibility(instance):
        conclude_infeasible(instance, progress, tuning)
        raise Stopped
    pairs = Pairs(instance, progress, tuning)
    pairs.raise_bound()
    return pairs


# ---------------------------------------------------------------------- without an engine

Cut = Callable[[OptionTable, baselines.Going], list[int] | None]

RULES: dict[str, tuple[baselines.Policies, Cut]] = {
    "greedy-head": (baselines.one_policy, baselines.from_head),
    "layer-per-phase": (baselines.one_policy, baselines.one_layer),
    "keep-all": (baselines.keep, baselines.from_head),
    "sqrt-checkpoint": (baselines.checkpoints, baselines.from_head),
}
"""How the naive rules choose policies, and how they cut."""

STARTS = ("greedy-head", "sqrt-checkpoint", "keep-all", "layer-per-phase")
"""The rules that the start of choice applies, the last one where the others find no plan."""


def _apply_rule(name: str, pairs: Pairs) -> None:
    """Offer the plans of one naive rule: of the first of its variants that has any."""
    policies, cut = RULES[name]
    trouble = ""
    for number, attempt in enumerate(baselines.attempts(policies, pairs.instance.n)):
        found = _apply(name, attempt, cut, pairs, number > 0)
        if not found:
            break
        trouble = trouble or found
    if pairs.progress.solution is None:
        pairs.progress.reason = trouble


def _apply(
    name: str,
    policies: baselines.Policies,
    cut: Cut,
    pairs: Pairs,
    late: bool,
) -> str:
    """Offer plans with the policies of a rule; return what is wrong if there is none.

    `late`: others were tried before.
    """
    instance, progress = pairs.instance, pairs.progress
    trouble, offered = f"{name} finds no plan that fits", False
    ranked = baselines.pairs(instance)
    budgets = (instance.remote_memory, instance.graphs) != (None, None)
    doubtful = instance.training or budgets  # else the options see to all rules
    first = not late and progress.solution is None
    few = pairs.few(ranked[0][0], pairs.insist if first else pairs.keep_going)
    known: tuple[int, PolicyRows] | None = None
    for at, (microbatch, io_tiles) in enumerate(ranked):
        # The very first plan is made to its end, however late.
        keep_going = pairs.insist if first and not at else pairs.keep_going
        keep_going()
        if few.inexact:
            costs = _few(name, pairs, microbatch, io_tiles, keep_going)
            rows = None if costs is None else policies(costs, keep_going)
        else:
            costs = pairs.costs(microbatch)
            if known is None or known[0] != microbatch:
                known = microbatch, policies(costs, keep_going)
            rows = known[1]
        if costs is None or rows is None:
            continue
        table = OptionTable(costs, rows, io_tiles, keep_going=keep_going)
        chosen = cut(table, keep_going)
        if chosen is None:
            continue
        solution = assemble(table, chosen, None if table.prefetch else ())
        pairs.count_plan(solution)
        if not doubtful:
            progress.offer(solution, name)
        elif violations := progress.offer_if_valid(solution, name):
            trouble = f"{name} breaks {violations[0]}"
            continue
        offered = True
    return "" if offered else trouble


def _few(
    name: str, pairs: Pairs, microbatch: int, io_tiles: int, keep_going: Callable[[], bool]
) -> RangeCosts | None:
    """Return the costs of groups that a rule needs where all are too many; None: no plan."""
    instance = pairs.instance

    def cutting(cuts: Sequence[int]) -> RangeCosts:
        return RangeCosts(
            instance, microbatch, cuts=cuts, keep_going=keep_going, tuning=pairs.tuning
        )

    if name == "layer-per-phase":
        return cutting(range(instance.n + 1))
    if name == "sqrt-checkpoint":
        return pairs.few(microbatch, keep_going)
    policy = None
    if instance.training:
        policy = Policy.KEEP if name == "keep-all" else instance.policies[0]
    cuts = baselines.heads(instance, microbatch, io_tiles, policy, keep_going, pairs.tuning)
    return None if cuts is None else cutting(cuts)


def _rule(name: str) -> Run:
    """Return the `run` of one naive rule."""

    def run(instance: PhaseSchedule, progress: PhaseProgress, settings: Settings) -> None:
        _apply_rule(name, _begin(instance, progress, settings))

    return run


def _searching(name: str) -> Run:
    """Return the `run` of the exact search, over all pairs of microbatch and I/O tiles."""

    def run(instance: PhaseSchedule, progress: PhaseProgress, settings: Settings) -> None:
        pairs = _begin(instance, progress, settings)
        _warm_start(pairs, settings)
        _search(pairs, name)

    return run


def _search(pairs: Pairs, source: str, *, patient: bool = True) -> None:
    """Search all pairs exactly; the run hears of the answer, or why there is none.

    `patient`: take all the time that may help; else leave it to others.
    """
    progress, auto = pairs.progress, pairs.tuning.auto
    if auto.retention and not retention.unsupported(pairs.instance):
        retention.retain(pairs, source)
    if not progress.proved and not pairs.none_fits:
        pairs.run(source, patient=patient)
    if progress.solution is None and pairs.none_fits:
        conclude_infeasible(pairs.instance, progress, pairs.tuning)
    elif pairs.inexact and not progress.proved:
        progress.reason = f"{source} proves nothing more here: {pairs.inexact}"


# ---------------------------------------------------------------------- on an engine


class Choices:
    """Problems one of which must be solved.

    By `bounds` no plan of a choice takes fewer cycles; 2**62 where it has none.
    """

    def __init__(self, pairs: Pairs, bounds: Mapping[Any, int]) -> None:
        self.pairs, self.progress = pairs, pairs.progress
        self.bounds: dict[Hashable, int] = dict(bounds)

    def raised(self, choice: Hashable, bound: int) -> int | None:
        """Note the bound of one choice, and return that of all; None where there are no plans."""
        self.bounds[choice] = max(self.bounds[choice], bound)
        least = min(self.bounds.values())
        best = self.progress.objective
        if best is not None:
            least = min(least, int(best))
        return least if least < UNLIMITED else None

    def solve(
        self,
        choice: Hashable,
        build: Callable[[int | None], Any],
        name: str,
        engine: Engine,
        settings: Settings,
        *,
        start: PhaseSolution | None,
        safe: bool,
    ) -> None:
        """Solve the model of one `choice`; it may cut off what is no better than the best plan.

        `build` makes it, given the cycles of the best plan, if any; answers have its `name`.
        `start` is a plan of this choice.  Unless the model is `safe`, leaving out no plan, the
        bound is not raised.
        """
        progress, tuning = self.progress, self.pairs.tuning.models
        upper = None if progress.objective is None else int(progress.objective)

        def without() -> None:
            if safe:
                value = self.raised(choice, UNLIMITED if upper is None else upper)
                progress.raise_bound(value, f"{progress.engine or name} ({name})", TOLD)

        try:
            seconds = run_model(
                engine,
                lambda: build(upper),
                name,
                progress,
                paced(settings, engine, progress.remaining, tuning.pace),
                start=start,
                start_value=None if start is None else upper,
                bound_value=lambda bound: self.raised(choice, bound) if safe else None,
                pace=tuning.pace,
                overdue=tuning.overdue * progress.remaining if settings.deterministic else math.inf,
                conclude_infeasible=without,
            )
        except InputError as error:  # figures that the engine cannot hold
            if progress.solution is None:
                raise
            progress.reason = str(error)  # what is known stays known
            return
        spend(seconds)

    def conclude(self) -> None:
        """Say so when every choice was proved to have no plan."""
        if min(self.bounds.values()) >= UNLIMITED:
            conclude_infeasible(self.pairs.instance, self.progress, self.pairs.tuning)


def _of_options(model: Any, instance: PhaseSchedule, table: OptionTable, upper: int | None) -> Any:
    """Return the model of a table of options."""
    return model(instance, table, upper=upper)


def _of_group(
    model: Any, instance: PhaseSchedule, choice: tuple[int, int, str], upper: int | None
) -> Any:
    """Return the model of recomputation with some I/O tiles, microbatch and mode."""
    io_tiles, microbatch, mode = choice
    return model(instance, io_tiles=io_tiles, microbatch=microbatch, mode=mode, upper=upper)


def _presolving(tuning: ModelsTuning) -> dict[str, float]:
    """Return the seconds in which engines presolve a term of a model."""
    return {"highs": tuning.highs_price, "cp-sat": tuning.cp_sat_price}


def _terms(table: OptionTable) -> int:
    """Return about how many terms the rows of a model of options have."""
    kept, count = int((table.kept > 0).sum()), len(table)
    length, beyond = int((table.end - table.first).sum()), int((table.n - table.end).sum())
    terms = 4 * count
    if kept:
        terms += length + int((table.n - table.end[table.kept > 0]).sum())
    if table.prefetch:
        terms += 6 * count + 2 * table.n * kept
    if table.instance.remote_memory is not None:
        terms += 4 * (length + beyond)
    return terms


def _columns(pairs: Pairs, engine: Engine, settings: Settings, name: str, model: Any) -> None:
    """Solve models whose columns are the options of groups, one for each pair."""
    instance, progress = pairs.instance, pairs.progress
    choices, tuning = Choices(pairs, pairs.bounds), pairs.tuning
    presolving = _presolving(tuning.models)[engine.name]
    budgets = {REMOTE: instance.remote_memory, GRAPHS: instance.graphs}
    wanted = {key for key, budget in budgets.items() if budget is not None}
    doubt = ""
    for pair in pairs.ranked():
        if progress.objective is not None and choices.bounds[pair] >= progress.objective:
            continue
        table = group_options(
            instance, *pair, distinguish=wanted, keep_going=pairs.keep_going, tuning=tuning
        )
        best = progress.solution
        here = best is not None and (best.microbatch, best.io_tiles) == pair
        terms = _terms(table)
        endless = settings.deterministic or engine.name == "highs"  # its presolve hears of no end
        if endless and presolving * terms > progress.remaining:
            # Time is better spent on the search than on a model that would not get far.
            progress.reason = f"a model of about {terms:,} terms takes more time than is left"
            pairs.run("enumerate", patient=False)
            return
        spend(tuning.models.build_price * terms)
        progress.require_time()
        choices.solve(
            pair,
            functools.partial(_of_options, model, instance, table),
            name,
            engine,
            settings,
            start=best if here else None,
            safe=not table.inexact,
        )
        doubt = doubt or table.inexact
        progress.require_time()
    choices.conclude()
    if doubt and not progress.proved:
        progress.reason = f"{name} proves nothing more here: {doubt}"


def _recomputing(pairs: Pairs, engine: Engine, settings: Settings, name: str, model: Any) -> None:
    """Solve models of recomputation within one group, one for each pair and mode."""
    instance, progress = pairs.instance, pairs.progress
    found = {choice: pairs.bounds[choice[1], choice[0]] for choice in model.choices(instance)}
    choices = Choices(pairs, found)
    for choice in sorted(found, key=lambda choice: (found[choice], choice)):
        if progress.objective is not None and choices.bounds[choice] >= progress.objective:
            continue
        best = progress.solution
        here = best is not None and choice == (best.io_tiles, best.microbatch, best.mode[0])
        choices.solve(
            choice,
            functools.partial(_of_group, model, instance, choice),
            name,
            engine,
            settings,
            start=best if here else None,
            safe=True,
        )
        progress.require_time()
    choices.conclude()


def _modelled(
    name: str,
    engine: str,
    solve: Callable[[Pairs, Engine, Settings, str, Any], None],
    model: Any,
) -> Run:
    """Return the `run` of a model on an engine, from a start."""

    def run(instance: PhaseSchedule, progress: PhaseProgress, settings: Settings) -> None:
        loaded = load_engine(engine, progress, settings)
        pairs = _begin(instance, progress, settings)
        _warm_start(pairs, settings, searched=True)
        progress.require_time()
        solve(pairs, loaded, settings, name, model)

    return run


milp = _modelled("milp", "highs", _columns, formulations.Milp)
milp_remat = _modelled("milp-remat", "highs", _recomputing, formulations.RematMilp)
_options_on_cp_sat = _modelled("cp-sat", "cp-sat", _columns, formulations.CpSat)
_retention_on_cp_sat = _modelled("cp-sat", "cp-sat", _recomputing, formulations.RematCpSat)


def _cp_sat(instance: PhaseSchedule, progress: PhaseProgress, settings: Settings) -> None:
    """Retention intervals where all layers are one group, options of groups otherwise."""
    options = bool(formulations.RematCpSat.unsupported(instance))
    (_options_on_cp_sat if options else _retention_on_cp_sat)(instance, progress, settings)


# ---------------------------------------------------------------------- where to start


def _warm_start(pairs: Pairs, settings: Settings, *, searched: bool = False) -> None:
    """Offer the start that the settings ask for; the exact search may belong to it (`searched`).

    It then gets a part of the time, where the choice is ours.
    """
    instance, progress = pairs.instance, pairs.progress

    def of_choice() -> None:
        for name in STARTS:
            if not getattr(pairs.tuning.auto, name.replace("-", "_")):
                continue
            spared = name == STARTS[-1] and progress.solution is not None
            if not (spared or unsupported[name](instance)):
                if name != STARTS[0]:
                    progress.require_time()
                _apply_rule(name, pairs)
        progress.reason = ""
        if searched:
            _look_for_start(pairs, settings)

    unsupported = {method.name: method.unsupported for method in METHODS}
    rules = {name: functools.partial(_apply_rule, name, pairs) for name in RULES}
    exact = {name: functools.partial(_search, pairs, name) for name in SEARCHES}
    offer_start(instance, progress, settings, {"auto": of_choice, **rules, **exact})


class _Start(Part[PhaseSolution, PhaseSolution]):
    """A part of a run, of which counts what it finds and not what it proves."""

    def __init__(self, instance: PhaseSchedule, whole: PhaseProgress, seconds: float) -> None:
        super().__init__(whole, instance.evaluate, instance.check, time_limit=seconds)
        if whole.solution is not None:
            super()._take(whole.solution, "start")

    def _take(self, solution: PhaseSolution, source: str) -> tuple[bool, tuple[object, ...]]:
        """Take a plan, and offer it to the whole run if it is better."""
        better, violations = super()._take(solution, source)
        if better:
            self.whole.offer(solution, source)
        return better, violations


def _look_for_start(pairs: Pairs, settings: Settings) -> None:
    """Search exactly in a part of the time, so that a model has a good plan to start from.

    Bounds are the model's own business.
    """
    progress, tuning = pairs.progress, pairs.tuning.models
    seconds = min(tuning.start_seconds, tuning.start_share * progress.remaining)
    part = _Start(pairs.instance, progress, seconds)
    if settings.deterministic:
        began = spent()
        part.limit_by(lambda: spent() - began, seconds)
    with contextlib.suppress(Stopped):
        inner = pairs.within(part)
        if pairs.tuning.auto.retention and not retention.unsupported(pairs.instance):
            retention.retain(inner, "enumerate")
        inner.run("enumerate", patient=False)
    progress.require_time()


# ---------------------------------------------------------------------- composed


def _auto(instance: PhaseSchedule, progress: PhaseProgress, settings: Settings) -> None:
    """Apply rules, search exactly, and solve models where the search proves nothing.

    A plan of the exact search starts the models: those of recomputation where all layers are one
    group, those of options where budgets tie phases together.
    """
    if settings.engine is not None:
        if settings.engine == "cp-sat":
            _cp_sat(instance, progress, settings)
        elif formulations.RematMilp.unsupported(instance):
            milp(instance, progress, settings)
        else:
            milp_remat(instance, progress, settings)
        return
    pairs = _begin(instance, progress, settings)
    _warm_start(pairs, settings)
    progress.require_time()
    one_group = not formulations.RematCpSat.unsupported(instance)
    _search(pairs, "enumerate", patient=instance.chain or not one_group)
    progress.require_time()
    if not pairs.tuning.auto.models:
        return
    if one_group:
        progress.reason = ""
        engine = load_engine("cp-sat", progress, settings)
        _recomputing(pairs, engine, settings, "cp-sat", formulations.RematCpSat)
    elif instance.remote_memory is None and instance.graphs is None:
        return
    elif formulations.Milp.unsupported(instance):
        progress.reason = formulations.Milp.unsupported(instance)
    else:
        progress.reason = ""
        engine = load_engine("highs", progress, settings)
        _columns(pairs, engine, settings, "milp", formulations.Milp)


SEARCHES = ("dp", "enumerate")

RUNS: dict[str, Run] = {
    name: counted(run)
    for name, run in {
        "auto": _auto,
        **{name: _rule(name) for name in RULES},
        **{name: _searching(name) for name in SEARCHES},
        "milp": milp,
        "milp-remat": milp_remat,
        "cp-sat": _cp_sat,
    }.items()
}
