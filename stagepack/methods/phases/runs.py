"""What the methods of phase scheduling do; loaded, with its compiled kernels, when one runs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from stagepack.formulations import phases as formulations
from stagepack.heuristics.phases import baselines, dp
from stagepack.heuristics.phases.feasibility import explain
from stagepack.heuristics.phases.options import GRAPHS, REMOTE, OptionTable, assemble, group_options
from stagepack.heuristics.phases.policies import find_policies
from stagepack.heuristics.phases.ranges import RangeCosts
from stagepack.heuristics.phases.sweep import Sweep
from stagepack.instances.phases import PhaseSchedule, PhaseSolution, Policy
from stagepack.methods import Settings
from stagepack.methods.models import load_engine, run_model
from stagepack.methods.phases import METHODS
from stagepack.result import CheckError, InputError, Progress

PhaseProgress = Progress[PhaseSolution]
Run = Callable[[PhaseSchedule, PhaseProgress, Settings], None]

# ---------------------------------------------------------------------- without an engine


def rule(
    name: str,
    policies: baselines.Rule,
    cut: Callable[[OptionTable], list[int] | None] = baselines.from_head,
) -> Run:
    """Return the `run` of one naive rule."""

    def run(instance: PhaseSchedule, progress: PhaseProgress, _: Settings) -> None:
        compile_kernels(instance, progress)
        Sweep(instance, progress).raise_bound()
        trouble = f"{name} finds no plan that fits"
        rows = functools.cache(lambda microbatch: policies(RangeCosts(instance, microbatch)))
        costs = functools.cache(functools.partial(RangeCosts, instance))
        for microbatch, io_tiles in baselines.pairs(instance):
            progress.require_time()
            table = OptionTable(costs(microbatch), rows(microbatch), io_tiles)
            chosen = cut(table)
            if chosen is None:
                continue
            solution = assemble(table, chosen, None if table.prefetch else ())
            violations = instance.check(solution)
            if violations:
                trouble = f"{name} breaks {violations[0]}"
                continue
            progress.offer(solution, name)
        if progress.solution is None:
            progress.reason = trouble

    return run


greedy_head = rule("greedy-head", baselines.one_policy)
layer_per_phase = rule("layer-per-phase", baselines.one_policy, baselines.one_layer)
keep_all = rule("keep-all", baselines.keep)
sqrt_checkpoint = rule("sqrt-checkpoint", baselines.checkpoints)


def sweep(name: str) -> Run:
    """Return the `run` of the exact search, over all pairs of microbatch and I/O tiles."""

    def run(instance: PhaseSchedule, progress: PhaseProgress, settings: Settings) -> None:
        compile_kernels(instance, progress)
        warm_start(instance, progress, settings)
        search(instance, progress, name)

    return run


def search(
    instance: PhaseSchedule, progress: PhaseProgress, source: str, *, patient: bool = True
) -> Sweep:
    """Search all pairs exactly; `progress` hears of the answer, or why there is none.

    `patient`: take all the time that may help; else leave it to others.
    """
    found = Sweep(instance, progress)
    found.run(source, patient=patient)
    if progress.solution is None and found.none_fits:
        progress.prove_infeasible(explain(instance, progress))
    elif found.inexact and not progress.proved:
        progress.reason = f"{source} proves nothing more here: {found.inexact}"
    return found


@functools.cache
def _warm_up(labels: bool) -> None:
    """Solve something small; `labels`: something with policies to choose."""
    instance = PhaseSchedule.from_arrays([1, 1], [1, 1], [1, 1, 1], backward=[1, 1], training=True)
    if labels:
        instance = instance.replace(policies=list(Policy))
    dp.search(table := group_options(instance, 1, 0), dp.rest(table))
    if labels:
        find_policies(RangeCosts(instance, 1), bounding=True)


def compile_kernels(instance: PhaseSchedule, progress: PhaseProgress) -> None:
    """Compile what a method needs (the first time) outside of the time limit."""
    with progress.setup("compiling kernels"):
        _warm_up(False)
        if instance.training and len(instance.policies) > 1:
            _warm_up(True)


# ---------------------------------------------------------------------- on an engine


class Choices:
    """Problems one of which must be solved, each with a bound of its own.

    Attributes
    ----------
    bounds : dict of hashable to int
        Cycles that no plan of a choice goes below; 2**61 where it has none.
    """

    def __init__(self, progress: PhaseProgress, bounds: Mapping[Any, int]) -> None:
        self.progress = progress
        self.bounds: dict[Hashable, int] = dict(bounds)
        self.safe = True

    def raised(self, choice: Hashable, bound: int) -> int | None:
        """Note the bound of one choice, and return that of all; None where it is not safe."""
        self.bounds[choice] = max(self.bounds[choice], bound)
        least = min(self.bounds.values())
        best = self.progress.objective
        if best is not None:
            least = min(least, int(best))
        return least if self.safe and least < dp.INFINITE else None

    def solve(
        self,
        choice: Hashable,
        build: Callable[[int | None], Any],
        name: str,
        engine: Any,
        settings: Settings,
        *,
        start: PhaseSolution | None,
        safe: bool,
    ) -> None:
        """Solve the model of one choice; it may cut off what is no better than the best plan.

        Parameters
        ----------
        build : callable
            Makes the model, given the cycles of the best plan, if any.
        start : PhaseSolution, optional
            A plan of this choice.
        safe : bool
            Whether the model leaves out no plan: bounds of others are not raised.
        """
        progress = self.progress
        upper = None if progress.objective is None else int(progress.objective)

        def without() -> None:
            if safe:
                value = self.raised(choice, dp.INFINITE if upper is None else upper)
                progress.raise_bound(value, f"{progress.engine or name} ({name})")

        self.safe &= safe
        run_model(
            engine,
            lambda: build(upper),
            name,
            progress,
            settings,
            start=start,
            start_value=None if start is None else upper,
            bound_value=lambda bound: self.raised(choice, bound) if safe else None,
            conclude_infeasible=without,
        )

    def conclude(self, instance: PhaseSchedule, source: str) -> None:
        """Say so when every choice was proved to have no plan."""
        if not self.safe or min(self.bounds.values()) < dp.INFINITE:
            return
        if self.progress.solution is not None:
            raise CheckError(f"{source} calls an instance infeasible that has a plan")
        self.progress.prove_infeasible(explain(instance, self.progress))


def _of_options(model: Any, instance: PhaseSchedule, table: OptionTable, upper: int | None) -> Any:
    return model(instance, table, upper=upper)


def _of_group(model: Any, instance: PhaseSchedule, choice: Any, upper: int | None) -> Any:
    io_tiles, microbatch, mode = choice
    return model(instance, io_tiles=io_tiles, microbatch=microbatch, mode=mode, upper=upper)


def columns(name: str, formulation: str, own_engine: str) -> Run:
    """Return the `run` of a model whose columns are the options of groups."""

    def run(instance: PhaseSchedule, progress: PhaseProgress, settings: Settings) -> None:
        engine = load_engine(own_engine, progress, settings)
        compile_kernels(instance, progress)
        warm_start(instance, progress, settings)
        progress.require_time()
        pairs = Sweep(instance, progress)
        choices = Choices(progress, pairs.bounds)
        budgets = {REMOTE: instance.remote_memory, GRAPHS: instance.graphs}
        wanted = {key for key, budget in budgets.items() if budget is not None}
        model = getattr(formulations, formulation)
        for pair in sorted(pairs.bounds, key=lambda pair: (pairs.bounds[pair], pair)):
            if progress.objective is not None and choices.bounds[pair] >= progress.objective:
                continue
            progress.require_time()
            table = group_options(
                instance, *pair, distinguish=wanted, keep_going=progress.keep_going
            )
            progress.require_time()
            best = progress.solution
            here = best is not None and (best.microbatch, best.io_tiles) == pair
            choices.solve(
                pair,
                functools.partial(_of_options, model, instance, table),
                name,
                engine,
                settings,
                start=best if here else None,
                safe=not table.inexact,
            )
            if table.inexact:
                progress.reason = f"{name} proves nothing more here: {table.inexact}"
            progress.require_time()
        choices.conclude(instance, name)

    return run


def recomputing(name: str, formulation: str, own_engine: str) -> Run:
    """Return the `run` of a model of recomputation within one group."""

    def run(instance: PhaseSchedule, progress: PhaseProgress, settings: Settings) -> None:
        engine = load_engine(own_engine, progress, settings)
        compile_kernels(instance, progress)
        warm_start(instance, progress, settings)
        progress.require_time()
        model = getattr(formulations, formulation)
        bounds = Sweep(instance, progress).bounds
        found = {choice: bounds[choice[1], choice[0]] for choice in model.choices(instance)}
        choices = Choices(progress, found)
        for choice in sorted(found, key=lambda choice: (found[choice], choice)):
            if progress.objective is not None and choices.bounds[choice] >= progress.objective:
                continue
            progress.require_time()
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
        choices.conclude(instance, name)

    return run


milp = columns("milp", "Milp", "highs")
milp_remat = recomputing("milp-remat", "RematMilp", "highs")


def cp_sat(instance: PhaseSchedule, progress: PhaseProgress, settings: Settings) -> None:
    """Retention intervals where all layers are one group, options of groups otherwise."""
    if formulations.RematCpSat.unsupported(instance):
        columns("cp-sat", "CpSat", "cp-sat")(instance, progress, settings)
    else:
        recomputing("cp-sat", "RematCpSat", "cp-sat")(instance, progress, settings)


# ---------------------------------------------------------------------- composed


def warm_start(instance: PhaseSchedule, progress: PhaseProgress, settings: Settings) -> None:
    """Offer the start that the settings ask for.

    Raises
    ------
    InputError
        For a solution that is not valid, or the name of no method without an engine.
    """
    wanted = settings.warm_start
    if wanted is None:
        return
    if isinstance(wanted, Mapping):  # as a result records it
        wanted = PhaseSolution.from_dict(wanted)
    if isinstance(wanted, PhaseSolution):
        violations = instance.check(wanted)
        if violations:
            raise InputError(
                f"the solution given breaks {violations[0]}",
                field="warm_start",
                remedy="give a valid one or none",
            )
        progress.offer(wanted, "warm start")
        return
    if wanted == "auto":
        rules(instance, progress, settings)
        return
    known = {name: run for name, run in RUNS.items() if name in WITHOUT_ENGINE}
    if not isinstance(wanted, str) or wanted not in known:
        raise InputError(
            f"unknown warm start {wanted!r}",
            field="warm_start",
            remedy="choose auto, none, or one of " + ", ".join(known),
        )
    reason = next(method.unsupported(instance) for method in METHODS if method.name == wanted)
    if reason:
        raise InputError(f"{wanted}: {reason}", field="warm_start")
    known[wanted](instance, progress, dataclasses.replace(settings, warm_start=None))
    progress.reason = ""


def rules(instance: PhaseSchedule, progress: PhaseProgress, settings: Settings) -> None:
    """Apply the naive rules that are allowed, as long as there is a reason to go on."""
    greedy_head(instance, progress, settings)
    dropping = Policy.RECOMPUTE in instance.policies and instance.recomputations > 0
    if instance.training and dropping and len(instance.policies) > 1:
        sqrt_checkpoint(instance, progress, settings)
    if instance.training and Policy.KEEP in instance.policies:
        keep_all(instance, progress, settings)
    progress.reason = ""


def auto(instance: PhaseSchedule, progress: PhaseProgress, settings: Settings) -> None:
    """Apply rules, search exactly, and solve models where the search proves nothing.

    A plan of the exact search starts the models: those of recomputation where all layers are one
    group, those of options where budgets tie phases together.
    """
    if settings.engine is not None:
        if settings.engine == "cp-sat":
            cp_sat(instance, progress, settings)
        elif formulations.RematMilp.unsupported(instance):
            milp(instance, progress, settings)
        else:
            milp_remat(instance, progress, settings)
        return
    compile_kernels(instance, progress)
    warm_start(instance, progress, settings)
    if settings.warm_start is None:
        rules(instance, progress, settings)
    progress.require_time()
    modelled = not formulations.RematCpSat.unsupported(instance)
    search(instance, progress, "enumerate", patient=instance.chain or not modelled)
    progress.require_time()
    following = dataclasses.replace(settings, warm_start=None)
    if modelled:
        progress.reason = ""
        recomputing("cp-sat", "RematCpSat", "cp-sat")(instance, progress, following)
    elif instance.remote_memory is None and instance.graphs is None:
        return
    elif formulations.Milp.unsupported(instance):
        progress.reason = formulations.Milp.unsupported(instance)
    else:
        progress.reason = ""
        milp(instance, progress, following)


WITHOUT_ENGINE = (
    "greedy-head",
    "layer-per-phase",
    "keep-all",
    "sqrt-checkpoint",
    "dp",
    "enumerate",
)

RUNS: dict[str, Run] = {
    "auto": auto,
    "greedy-head": greedy_head,
    "layer-per-phase": layer_per_phase,
    "keep-all": keep_all,
    "sqrt-checkpoint": sqrt_checkpoint,
    "dp": sweep("dp"),
    "enumerate": sweep("enumerate"),
    "milp": milp,
    "milp-remat": milp_remat,
    "cp-sat": cp_sat,
}
