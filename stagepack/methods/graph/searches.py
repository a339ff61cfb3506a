"""Implementations of the methods of graph partitioning; imported when one runs."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from stagepack.formulations.graph import CpSat, Milp
from stagepack.heuristics import effort
from stagepack.heuristics.graph import metis
from stagepack.heuristics.graph.ideals import TooManyError, nearly_chain
from stagepack.heuristics.graph.pipedream import MOST_STATES, Recurrence, TooManyStatesError
from stagepack.instances.graph import Compact, GraphPartition, GraphSolution, Objective
from stagepack.methods import Settings
from stagepack.methods.effort import counted
from stagepack.methods.graph import METHODS
from stagepack.methods.graph.exact import LONG, CompactSearch, dp, linear_dp
from stagepack.methods.graph.improve import on_engine, solve_model
from stagepack.methods.models import load_engine
from stagepack.methods.starts import offer_start
from stagepack.progress import Progress, Stopped

GraphProgress = Progress[GraphSolution]
GLANCE = 1.5
"""Seconds of work in which `auto` tries to prove what a few orders give, but at most"""
LOOK = 0.15
"""this part of what is left; the same part when it tries again once local search has lowered it,
or,"""
FEW = 0.6
"""where ideals are few enough for that, this one."""
ROUNDS, SHARE = 8, 0.3
"""Of local search at most, and the part of what is left after which none begins, before what
proves more: a better partition makes that cheaper;"""
LITTLE = 0.1
"""the part of what is open that many orders are to close beyond a few; else local search begins
with these, as it does by itself;"""
PATIENCE = 2
"""rounds in a row that may find nothing, where labels go on in turns with local search;"""
ROUNDS_BEFORE = 2
"""and rounds where nothing but a model proves anything."""
MODELLED, MODEL = 1_000, 0.5
"""Blocks times devices up to which CP-SAT has its share of what is left: this part."""
LOOSE, MODELLED_LOOSE = 10, 10_000
"""Blocks for each net of graphs that are hardly connected, and up to which the same holds there."""
RELAXED = 0.2
"""The part of what is left for a linear program of which the bound is verified;"""
ORDERS, ORDERS_ALONE = 0.1, 0.5
"""the same for many orders of blocks; the same where labels do not apply;"""
SHORT = 1.5, 0.9
"""in short runs so many seconds of work, but at most this part."""
MOST_PINS = 20_000
"""Blocks and members of nets up to which `auto` asks METIS, too: in hundredths of a second."""
Run = Callable[[GraphPartition, GraphProgress, Settings], None]


def _equal_work(instance: GraphPartition, progress: GraphProgress, settings: Settings) -> None:
    """Give every accelerator its share."""
    search = CompactSearch(instance, progress, settings)
    broken = () if search.impossible else search.equal_work()
    if broken and progress.solution is None:
        progress.reason = f"equal-work: {'; '.join(map(str, broken[:3]))}"


def _start(instance: GraphPartition, progress: GraphProgress, settings: Settings) -> Compact | None:
    """Offer a first solution as the settings want it; return the compact form, None: nothing fits.

    Models prove what is nearly a chain in less time than a round of local search takes.
    """
    search = CompactSearch(instance, progress, settings)
    if search.impossible:
        return None
    search.start(chain=search.best_of_ideals if _supported("dp", instance) else None)
    if settings.warm_start == "auto" and not nearly_chain(search.compact):
        search.annealing.run(rounds=1)
        progress.reason = ""
    return search.compact


def _supported(name: str, instance: GraphPartition) -> bool:
    """Whether a method applies."""
    return any(method.name == name and not method.unsupported(instance) for method in METHODS)


def _improve(search: CompactSearch, rounds: int = ROUNDS, patience: int = PATIENCE) -> None:
    """Give local search its share, of so many rounds at most, until some in a row find nothing."""
    search.annealing.run(rounds, SHARE * search.progress.remaining, patience)


def _frontier(instance: GraphPartition, progress: GraphProgress, settings: Settings) -> None:
    """Decide limits by labels, and search within windows."""
    search = CompactSearch(instance, progress, settings)
    if search.impossible:
        return
    search.start()
    if settings.warm_start == "auto":
        _improve(search)
        progress.reason = ""
    progress.require_time()
    search.by_labels()


def _beam(instance: GraphPartition, progress: GraphProgress, settings: Settings) -> None:
    """Place blocks one after the other, and go on from the most promising."""
    search = CompactSearch(instance, progress, settings)
    if search.impossible:
        return
    search.start()
    progress.require_time()
    search.by_beams()
    if progress.solution is None:
        progress.reason = "beam found no stages that fit"


def _local_search(instance: GraphPartition, progress: GraphProgress, settings: Settings) -> None:
    """Improve the best partition along a few orders by annealing."""
    search = CompactSearch(instance, progress, settings)
    if search.impossible:
        return
    search.start()
    if settings.warm_start == "auto":
        search.annealing.run(rounds=1)
        progress.reason = ""
    search.annealing.run()


def _metis(instance: GraphPartition, progress: GraphProgress, settings: Settings) -> None:
    """Let METIS make the parts; sort blocks by them and cut again."""
    search = CompactSearch(instance, progress, settings)
    if search.impossible:
        return
    _by_metis(search)
    if progress.solution is None:
        progress.reason = "the parts of METIS give no stages that fit"


def _by_metis(search: CompactSearch) -> None:
    """Offer METIS's parts, sorted into stages and cut again."""
    compact, progress = search.compact, search.progress
    part = metis.parts(compact, compact.devices, search.settings.seed, progress.require_time)
    if not search.instance.contiguous:
        progress.offer_if_valid(compact.assignment(part, compact.device_class), "metis")
    search.hunt(lambda hunt: hunt.along(metis.ranked(compact, part)), "metis")


def _pipedream(instance: GraphPartition, progress: GraphProgress, settings: Settings) -> None:
    """Run PipeDream's own recurrence."""
    search = CompactSearch(instance, progress, settings)
    if search.impossible:
        return
    replicated = instance.objective == Objective.REPLICATED
    try:
        found = Recurrence(search.compact, progress.require_time).best(replicated)
    except TooManyStatesError:
        progress.reason = f"pipedream: more than {MOST_STATES:,} blocks, or too many states"
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
    search = CompactSearch(instance, progress, settings)
    if search.impossible:
        return
    supports = {method.name: not method.unsupported(instance) for method in METHODS}
    modelled = _is_modelled(search.compact)
    given_up = ""
    search.start()
    progress.require_time()
    if (search.compact.rounding or not supports["dp"]) and search.try_everything():
        return
    # What is known makes the exact search faster, but most graphs need no more than this.
    for most in (GLANCE, math.inf):
        if supports["dp"] and not search.hopeless(min(most, LOOK * progress.remaining)):
            try:
                left = progress.remaining
                search.over_ideals(min(most, LOOK * left), FEW * left)
            except TooManyError as error:
                given_up = f"dp: {error}"
            else:
                return
        if most > GLANCE and (supports["frontier"] or not supports["dp"]):
            break  # labels, or models, need what is left
        if most == GLANCE:
            search.by_rows(RELAXED)
        if most == GLANCE and supports["dp"]:
            if supports["metis"] and _few_pins(search.compact):
                _by_metis(search)
            part = ORDERS if supports["frontier"] else ORDERS_ALONE
            _along_many_orders(search, part)
        rounds = ROUNDS if supports["dp"] else ROUNDS_BEFORE
        _improve(search, rounds, PATIENCE if supports["frontier"] else rounds)
        if most == GLANCE and modelled and supports["dp"]:
            progress.require_time()
            _by_cp_sat(search, MODEL * progress.remaining)
        search.learn()
        progress.reason = given_up
        progress.require_time()
    if supports["frontier"]:
        search.by_labels()
    elif modelled or not supports["dp"]:
        progress.reason = ""
        _by_cp_sat(search)
    progress.require_time()
    search.annealing.run()


def _is_modelled(compact: Compact) -> bool:
    """Whether CP-SAT has its share: on small graphs, and where hardly any block waits for others.

    Loads are balanced then, for which labels and moves are no match.
    """
    size = compact.blocks * compact.devices
    loose = LOOSE * compact.nets <= compact.blocks
    return size <= (MODELLED_LOOSE if loose else MODELLED)


def _few_pins(compact: Compact) -> bool:
    """Whether METIS takes next to no time."""
    return compact.blocks + len(compact.net) <= MOST_PINS


def _along_many_orders(search: CompactSearch, part: float) -> None:
    """Give many orders a part of what is left: of large graphs they bring more than small moves."""
    progress = search.progress
    few, value, bound = progress.solution, progress.objective, progress.bound
    left = progress.remaining
    seconds = max(part * left, min(SHORT[0], SHORT[1] * left))
    search.along_orders(*LONG[:2], seconds, *LONG[3:])
    if few is None or value is None or bound is None or progress.objective is None:
        return
    if value - progress.objective < LITTLE * (value - bound):
        search.annealing.begin(few)


def _by_cp_sat(search: CompactSearch, seconds: float | None = None) -> None:
    """Let CP-SAT go on from what is known, for so many seconds of work or to the end."""
    progress, settings = search.progress, search.settings
    engine = load_engine("cp-sat", progress, settings)
    effort.spend(solve_model(CpSat, engine, search.compact, progress, settings, seconds))


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
    name: _until_stopped(run)
    for name, run in {
        "auto": _auto,
        "equal-work": _equal_work,
        "local-search": _local_search,
        "linear-dp": linear_dp,
        "dp": dp,
        "frontier": _frontier,
        "beam": _beam,
        "metis": _metis,
        "pipedream": _pipedream,
        "milp": on_engine(Milp, "highs", _start),
        "cp-sat": on_engine(CpSat, "cp-sat", _start),
    }.items()
}
