"""Implementations of the methods of graph partitioning; imported when one runs."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from stagepack.formulations.graph import CpSat, Milp
from stagepack.heuristics import effort
from stagepack.heuristics.graph.ideals import TooManyError, nearly_chain
from stagepack.heuristics.graph.peers import metis
from stagepack.heuristics.graph.peers.pipedream import Recurrence, TooManyStatesError
from stagepack.instances.graph import Compact, GraphPartition, GraphSolution, Objective
from stagepack.methods import Settings, counted
from stagepack.methods.graph import METHODS, latency
from stagepack.methods.graph.exact import CompactSearch, dp, linear_dp
from stagepack.methods.graph.improve import on_engine, solve_model
from stagepack.methods.models import load_engine
from stagepack.methods.starts import offer_start
from stagepack.progress import Progress, Stopped

GraphProgress = Progress[GraphSolution]
Run = Callable[[GraphPartition, GraphProgress, Settings], None]


def _equal_work(search: CompactSearch) -> None:
    """Give every accelerator its share."""
    broken = search.equal_work()
    if broken and search.progress.solution is None:
        search.progress.reason = f"equal-work: {'; '.join(map(str, broken[:3]))}"


def _start(instance: GraphPartition, progress: GraphProgress, settings: Settings) -> Compact | None:
    """Offer a first solution as the settings want it; return the compact form, None: nothing fits.

    Models prove what is nearly a chain in less time than a round of local search takes.
    """
    search = CompactSearch(instance, progress, settings)
    if search.impossible:
        return None
    search.start(chain=search.best_of_ideals if _supported("dp", instance) else None)
    if settings.warm_start == "auto" and not nearly_chain(search.compact, search.tuning.ideals):
        search.annealing.run(rounds=1)
        progress.reason = ""
    return search.compact


def _supported(name: str, instance: GraphPartition) -> bool:
    """Whether a method applies."""
    return any(method.name == name and not method.unsupported(instance) for method in METHODS)


def _improve(search: CompactSearch, rounds: int, patience: int) -> None:
    """Give local search its share, of so many rounds at most, until some in a row find nothing."""
    steps = search.tuning.auto
    if steps.local_search:
        search.annealing.run(rounds, steps.local_share * search.progress.remaining, patience)


def _frontier(search: CompactSearch) -> None:
    """Decide limits by labels."""
    progress = search.progress
    search.start()
    if search.settings.warm_start == "auto":
        _improve(search, search.tuning.auto.rounds, search.tuning.auto.patience)
        progress.reason = ""
    progress.require_time()
    search.by_labels()


def _beam(search: CompactSearch) -> None:
    """Place blocks one after the other, and go on from the most promising."""
    progress = search.progress
    search.start()
    progress.require_time()
    search.by_beams()
    if progress.solution is None:
        progress.reason = "beam found no stages that fit"


def _local_search(search: CompactSearch) -> None:
    """Improve the best partition along a few orders by annealing."""
    search.start()
    if search.settings.warm_start == "auto":
        search.annealing.run(rounds=1)
        search.progress.reason = ""
    search.annealing.run()


def _metis(search: CompactSearch) -> None:
    """Let METIS make the parts; sort blocks by them and cut again."""
    _by_metis(search)
    if search.progress.solution is None:
        search.progress.reason = "the parts of METIS give no stages that fit"


def _by_metis(search: CompactSearch) -> None:
    """Offer METIS's parts, sorted into stages and cut again."""
    compact, progress = search.compact, search.progress
    part = metis.parts(
        compact,
        compact.devices,
        search.settings.seed,
        progress.require_time,
        search.tuning.peers,
    )
    if not search.instance.contiguous:
        progress.offer_if_valid(compact.assignment(part, compact.device_class), "metis")
    search.hunt(lambda hunt: hunt.along(metis.ranked(compact, part)), "metis")


def _pipedream(search: CompactSearch) -> None:
    """Run PipeDream's own recurrence."""
    instance, progress = search.instance, search.progress
    replicated = instance.objective == Objective.REPLICATED
    try:
        recurrence = Recurrence(search.compact, progress.require_time, search.tuning.peers)
        found = recurrence.best(replicated)
    except TooManyStatesError:
        most = search.tuning.peers.pipedream_states
        progress.reason = f"pipedream: more than {most:,} blocks, or too many states"
        return
    if found is None:
        progress.reason = "pipedream: no stages fit"
        return
    if search.compact.uniform:
        classes, stages = [0] * len(found.first), found.stage
    else:  # every device is a class of its own, and a stage is where the recurrence has it
        classes, stages = list(range(instance.devices)), np.array(found.first)[found.stage]
    solution = search.compact.assignment(stages, classes, found.replicas if replicated else ())
    for violation in progress.offer_if_valid(solution, "pipedream"):
        progress.reason = f"pipedream: its stages break {violation}"
    own = search.compact.value(math.ceil(found.value))
    same = instance.objective in (Objective.OVERLAP, Objective.REPLICATED)
    if same and progress.objective is not None and own < progress.objective:
        progress.reason = (
            f"PipeDream itself counts {own:,.10g} for these stages: not what the first one sends"
        )


def _auto(instance: GraphPartition, progress: GraphProgress, settings: Settings) -> None:
    """Run the exact search that applies; where it is slow, improve what is known first."""
    if settings.engine is not None:
        name = "cp-sat" if settings.engine == "cp-sat" else "milp"
        RUNS[name](instance, progress, settings)
        return
    _searching(_search_by_turns)(instance, progress, settings)


def _search_by_turns(search: CompactSearch) -> None:
    """Take the steps of ``auto``, each with its share of the time."""
    instance, progress, steps = search.instance, search.progress, search.tuning.auto
    dp, labels, peer = (_supported(name, instance) for name in ("dp", "frontier", "metis"))
    labels &= steps.labels
    modelled = _cp_sat_share(search) if steps.cp_sat else 0.0
    search.start()
    progress.require_time()
    if steps.everything and (search.compact.rounding or not dp) and search.try_everything():
        return
    # What is known makes the exact search faster, but most graphs need no more than this.
    given_up = _by_ideals(search, steps.first_try) if dp else ""
    if given_up is None:
        return
    if steps.rows:
        search.by_rows(steps.rows_share)
    if dp:
        if steps.metis and peer and _few_pins(search):
            _by_metis(search)
        if steps.many_orders:
            _along_many_orders(search, steps.orders_share if labels else steps.orders_share_alone)
    rounds = steps.rounds if dp else steps.rounds_before_models
    _improve(search, rounds, steps.patience if labels else rounds)
    if modelled and dp:
        progress.require_time()
        _by_cp_sat(search, modelled * progress.remaining)
    _begin_anew(search, given_up)
    if dp:
        again = _by_ideals(search)
        if again is None:
            return
        given_up = again or given_up
    if labels:
        search.by_labels(aside=steps.local_search)
    else:
        if dp:
            _improve(search, rounds, rounds)
            _begin_anew(search, given_up)
        if modelled or (steps.cp_sat and not dp):
            progress.reason = ""
            _by_cp_sat(search)
    progress.require_time()
    if steps.local_search:
        search.annealing.run()


def _by_ideals(search: CompactSearch, seconds: float = math.inf) -> str | None:
    """Give all ideals their share of so many seconds at most; None: that answered everything.

    Otherwise return why not, "" where it is too much work to try.
    """
    steps, left = search.tuning.auto, search.progress.remaining
    seconds = min(seconds, steps.ideals_share * left)
    if not steps.ideals or search.hopeless(seconds):
        return ""
    try:
        search.over_ideals(seconds, steps.few_ideals_share * left)
    except TooManyError as error:
        return f"dp: {error}"
    return None


def _begin_anew(search: CompactSearch, reason: str) -> None:
    """Take what the last searches found, and forget all that they said but `reason`."""
    search.learn()
    search.progress.reason = reason
    search.progress.require_time()


def _cp_sat_share(search: CompactSearch) -> float:
    """Return CP-SAT's part of what is left: none but on small graphs, and hardly connected ones.

    Loads are balanced there, for which labels and moves are no match.
    """
    compact, steps = search.compact, search.tuning.auto
    loose = steps.loose * compact.nets <= compact.blocks
    places = compact.blocks * compact.devices
    if places <= (steps.cp_sat_places_loose if loose else steps.cp_sat_places_few):
        return steps.cp_sat_share
    return steps.cp_sat_share_more if places <= steps.cp_sat_places else 0.0


def _few_pins(search: CompactSearch) -> bool:
    """Whether METIS takes next to no time."""
    compact = search.compact
    return compact.blocks + len(compact.net) <= search.tuning.auto.metis_pins


def _along_many_orders(search: CompactSearch, part: float) -> None:
    """Give many orders a part of what is left: of large graphs they bring more than small moves."""
    progress, steps = search.progress, search.tuning.auto
    few, value, bound = progress.solution, progress.objective, progress.bound
    left = progress.remaining
    least = min(steps.orders_least, steps.orders_most_share * left)
    search.along_many_orders(max(part * left, least))
    if few is None or value is None or bound is None or progress.objective is None:
        return
    if value - progress.objective < steps.little * (value - bound):
        search.annealing.begin(few)


def _by_cp_sat(search: CompactSearch, seconds: float | None = None) -> None:
    """Let CP-SAT go on from what is known, for so many seconds of work or to the end."""
    progress, settings = search.progress, search.settings
    engine = load_engine("cp-sat", progress, settings)
    effort.spend(solve_model(CpSat, engine, search.compact, progress, settings, seconds))


def _searching(run: Callable[[CompactSearch], None]) -> Run:
    """Return the method that makes a search, and runs it unless nothing fits."""

    def runs(instance: GraphPartition, progress: GraphProgress, settings: Settings) -> None:
        search = CompactSearch(instance, progress, settings)
        if not search.impossible:
            run(search)

    return runs


def _by_objective(name: str, run: Run) -> Run:
    """Return a method of a `name` that leaves the objective latency to its own `run`."""

    def runs(instance: GraphPartition, progress: GraphProgress, settings: Settings) -> None:
        if instance.objective == Objective.LATENCY:
            latency.solve(name, instance, progress, settings)
        else:
            run(instance, progress, settings)

    return runs


def _until_stopped(run: Run) -> Run:
    """Return a method that counts its work, and ends wherever the run should stop."""

    def runs(instance: GraphPartition, progress: GraphProgress, settings: Settings) -> None:
        try:
            if not isinstance(settings.warm_start, str):  # before anything takes time
                offer_start(instance, progress, settings, {})
            run(instance, progress, settings)
        except Stopped:
            if progress.solution is None and not progress.reason:
                progress.reason = "ended before there was a first partition"
        if progress.proved:
            progress.reason = ""  # why one search gave up, while another one did not

    return counted(runs)


RUNS: dict[str, Run] = {
    name: _until_stopped(_by_objective(name, run))
    for name, run in {
        "auto": _auto,
        "equal-work": _searching(_equal_work),
        "local-search": _searching(_local_search),
        "linear-dp": _searching(linear_dp),
        "dp": _searching(dp),
        "frontier": _searching(_frontier),
        "beam": _searching(_beam),
        "metis": _searching(_metis),
        "pipedream": _searching(_pipedream),
        "milp": on_engine(Milp, "highs", _start),
        "cp-sat": on_engine(CpSat, "cp-sat", _start),
    }.items()
}
