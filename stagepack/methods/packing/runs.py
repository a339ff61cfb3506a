"""What the methods of LMEM packing do; loaded, with its compiled kernels, when one runs."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping

import numpy as np

from stagepack.errors import InputError
from stagepack.formulations import packing as formulations
from stagepack.heuristics.packing import annealing, bounds, dive, effort, exact, greedy, valleys
from stagepack.heuristics.packing import repair as repairing
from stagepack.heuristics.packing import replan as replanning
from stagepack.heuristics.packing import spill as spilling
from stagepack.heuristics.packing import windows as narrowing
from stagepack.heuristics.packing.rules import BANKS, RULES, Measures
from stagepack.heuristics.packing.stiff import stiffened
from stagepack.instances.packing import LmemPacking, Objective, PackingSolution
from stagepack.instances.packing.blocks import Blocks
from stagepack.instances.profile import Array
from stagepack.methods import Settings
from stagepack.methods.models import PACE, load_engine, paced, run_model
from stagepack.methods.packing.attempt import Attempt, PackingProgress, compile_kernels
from stagepack.methods.packing.quick import POOR, place_anew, place_first, place_more
from stagepack.methods.packing.reasons import conclude_infeasible
from stagepack.result import Status
from stagepack.solvers import Engine

Run = Callable[[LmemPacking, PackingProgress, Settings], None]

DIVED, DIVE = 500, 2.0
"""Blocks from which on a short dive comes before the greedy rules, and its seconds of work."""

STIFF = 0.5
"""Seconds of work for blocks that are kept from shrinking and sharing."""

FIRST, GROWTH, IMPROVED, SHORTEST = 1.0, 3.0, 2.0, 0.2
"""Seconds of work of the exact and of the local search in the first turn of `auto`, how many times
more each of them takes in each further turn, and the least that a search may be cut to."""

NARROWING, MODELLING = 0.5, 1.0
"""What bounds from windows and a model get of the time of the exact search."""

LEG = 0.1
"""Seconds of work of a kernel call of annealing at most."""

DIVING, MOST = 0.3, 20.0
"""Part of what is left that dives get, and then rules, where blocks are too dense to search; and
the most seconds of work of either."""

TURN, WINDOWS = 6.0, 2.0
"""Seconds of work for annealing and for packing windows anew, by turns."""

TURNS = 1_000
"""Seeds of successive turns differ by this."""

LARGE = 20_000
"""Blocks from which on `auto` keeps to methods whose cost grows like a sort."""

CROWDED = 300_000_000
"""Pairs of blocks alive together from which on rules that look at all of them are left out."""

EVEN = 0.5
"""Part of time that is nearly full from which on a core would be about everything."""

FIRST_CORE = 3.0
"""How long the first packing from a core takes, in terms of a first placement by valleys."""

PROPAGATED = 400
"""Blocks up to which a model takes turns with the exact search."""


# ---------------------------------------------------------------------- without an engine


def run_rule(name: str) -> Run:
    """Return the `run` of one greedy rule."""

    def run(instance: LmemPacking, progress: PackingProgress, _: Settings) -> None:
        attempt = Attempt(instance, progress)
        compile_kernels(attempt, "greedy", *(["lists"] if RULES[name].policy == BANKS else []))
        banks = instance.banks
        pairs = None if banks is None else greedy.BankPairs.of(attempt.blocks, banks)
        offsets = greedy.place(
            attempt.blocks, RULES[name], banks=pairs, keep_going=attempt.keep_going
        )
        if offsets is not None:
            attempt.offer(offsets, name)
        elif attempt.keep_going():
            progress.reason = progress.reason or f"{name} finds no place for some buffer"
        else:
            place_first(attempt)
            if progress.solution is not None:
                progress.reason = f"{name} did not end in time; what it had to place fills valleys"

    return run


def portfolio(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Run the greedy rules that suit the instance and keep the best."""
    if _start(Attempt(instance, progress), settings) is None and progress.solution is None:
        progress.reason = progress.reason or "no greedy rule finds a place for every buffer"


def diving(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Place the block with the lowest place first, in several orders."""
    attempt = Attempt(instance, progress)
    _dive_at_length(attempt, settings)


def anneal(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Anneal over first-fit orders, from the best greedy placement or single dive."""
    attempt = Attempt(instance, progress)
    low = _start(attempt, settings)
    if _crowded(attempt, settings):
        return
    if settings.warm_start == "auto":
        low = _dived(attempt, low)
    _improve(attempt, low, settings.seed)


def searching(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Search exhaustively, from the best greedy placement."""
    attempt = Attempt(instance, progress)
    low = _start(attempt, settings)
    if _crowded(attempt, settings):
        return
    low = _stiffly(attempt, low, min(STIFF, effort.left() / 4))
    _exact(attempt, low)


def _crowded(attempt: Attempt, settings: Settings) -> bool:
    """Whether more is alive together than a search can hold; then windows are packed anew."""
    reason = exact.unsupported(attempt.blocks)
    if not reason:
        return False
    _repair(attempt, attempt.best, settings.seed, attempt.keep_going)
    if not attempt.progress.proved:
        attempt.progress.reason = f"{reason}; what is quick and repair have run instead"
    return True


def repair(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Pack windows of time anew, from the best dive or greedy placement."""
    attempt = Attempt(instance, progress)
    _start(attempt, settings)
    _dive(attempt, settings)
    _repair(attempt, attempt.best, settings.seed, attempt.keep_going)


def replan(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Keep what can stay where it was, and place the rest greedily."""
    attempt = Attempt(instance, progress)
    _replan(attempt)


def spill(instance: LmemPacking, progress: PackingProgress, _: Settings) -> None:
    """Choose memories by value, then place each memory's buffers greedily."""
    _spill(Attempt(instance, progress))
    if progress.solution is None:
        progress.reason = "spill-by-value finds no memory for some buffers"


def _spill(attempt: Attempt) -> None:
    compile_kernels(attempt, "greedy", "lists", "spill")
    placed = spilling.place(attempt.instance, attempt.keep_going)
    if placed is not None:
        attempt.offer_buffers(placed[0], "spill-by-value", placed[1])


def _replan(attempt: Attempt) -> None:
    ceiling = attempt.instance.capacity
    assert ceiling is not None
    compile_kernels(attempt, "greedy", "lists")
    replanning.place(
        attempt.instance,
        ceiling,
        keep_going=attempt.keep_going,
        on_solution=lambda offsets: attempt.offer_buffers(offsets, "replan"),
    )
    if attempt.progress.solution is None:
        attempt.progress.reason = "replan finds no placement within the capacity"


def _start(attempt: Attempt, settings: Settings) -> Array | None:
    """Offer a first solution as the settings want it; return the lowest placement found.

    The placement, shape (b,), may exceed the capacity: searches start from it all the same.
    """
    wanted, instance, progress = settings.warm_start, attempt.instance, attempt.progress
    extended = instance.objective not in (Objective.PEAK, Objective.FIT)
    compile_kernels(attempt, "greedy", *(["lists"] if extended else []))
    if wanted is None:
        return None
    if isinstance(wanted, Mapping):  # as a result records it
        wanted = PackingSolution.from_dict(wanted, instance)
    if isinstance(wanted, PackingSolution):
        violations = instance.check(wanted)
        if violations:
            raise InputError(
                f"the solution given breaks {violations[0]}",
                field="warm_start",
                remedy="give a valid one or none",
            )
        progress.offer(wanted, "warm start")
        return attempt.best
    if wanted != "auto":
        _method_start(wanted, instance, progress, settings)
        return attempt.best
    _offer_hint(attempt)
    if instance.objective is Objective.SPILL:
        _spill(attempt)
        return None
    if instance.objective is Objective.MOVES:
        _replan(attempt)
        return None
    quick = place_first(attempt)
    if attempt.blocks.b > LARGE:
        place_more(attempt, quick)
    progress.require_time()
    if attempt.blocks.b >= DIVED and not dive.unsupported(attempt.blocks.rounded):
        _dive(attempt, settings, attempt.for_a_while(min(DIVE, effort.left() / 4)))
        progress.require_time()
    greedy.portfolio(attempt.blocks, keep_going=attempt.keep_going, on_solution=attempt.offer)
    if instance.banks is not None and instance.objective is Objective.BANK_CONFLICTS:
        pairs = greedy.BankPairs.of(attempt.blocks, instance.banks)
        apart = greedy.place(
            attempt.blocks, RULES["bank-aware"], banks=pairs, ceiling=instance.ceiling
        )
        if apart is not None:
            attempt.offer(apart, "bank-aware")
    return attempt.best


def _offer_hint(attempt: Attempt) -> None:
    instance = attempt.instance
    if (instance.hint >= 0).all() and not instance.memories:
        hinted = PackingSolution.of(instance, instance.hint)
        if not instance.check(hinted):
            attempt.progress.offer(hinted, "hint of the instance")


def _method_start(
    wanted: object, instance: LmemPacking, progress: PackingProgress, settings: Settings
) -> None:
    if not isinstance(wanted, str) or wanted not in STARTS:
        raise InputError(
            f"unknown warm start {wanted!r}",
            field="warm_start",
            remedy="choose auto, none, or one of " + ", ".join(STARTS),
        )
    RUNS[wanted](instance, progress, dataclasses.replace(settings, warm_start="auto"))
    progress.reason = ""


# ---------------------------------------------------------------------- searches


def _exact(attempt: Attempt, low: Array | None, seconds: float = math.inf) -> None:
    """Search exhaustively, for so long: any placement within the capacity, else the least peak."""
    instance, progress, blocks = attempt.instance, attempt.progress, attempt.blocks
    if not progress.keep_going():
        return
    compile_kernels(attempt, "exact")
    keep_going = attempt.for_a_while(seconds)
    if instance.objective is Objective.FIT:
        assert instance.ceiling is not None
        asked = min(FIRST, min(seconds, effort.left()) / 2)
        found = exact.decide(
            blocks,
            instance.ceiling,
            keep_going=_both(keep_going, attempt.for_a_while(asked)),
            warm=low,
        )
        if found.status is Status.INFEASIBLE:
            conclude_infeasible(attempt, low, "exhausted search")
        elif found.offsets is not None:
            attempt.offer(found.offsets, "exact")
        elif keep_going():
            _approach(attempt, instance.ceiling, keep_going)
        return
    status = exact.minimise(
        blocks,
        upper=low,
        lower=int(progress.bound or 0),
        on_solution=lambda offsets: attempt.offer(offsets, "exact"),
        on_bound=lambda bound: progress.raise_bound(bound, "exhausted search"),
        keep_going=keep_going,
    )
    beyond = status is Status.OPTIMAL and progress.solution is None  # all end above the last bank
    if status is Status.INFEASIBLE or beyond:
        conclude_infeasible(attempt, low, "exhausted search")


def _approach(attempt: Attempt, ceiling: int, keep_going: Callable[[], bool]) -> None:
    """Decide a capacity that resists: lower the best placement towards it, as well as ask anew."""
    low = attempt.best
    proved = [ceiling]
    exact.minimise(
        attempt.blocks,
        upper=low,
        lower=ceiling,
        on_solution=lambda offsets: attempt.offer(offsets, "exact"),
        on_bound=proved.append,
        keep_going=lambda: max(proved) <= ceiling and keep_going(),
    )
    if max(proved) > ceiling and attempt.progress.solution is None:
        conclude_infeasible(attempt, low, "exhausted search")


def _stiffly(attempt: Attempt, low: Array | None, seconds: float) -> Array | None:
    """Search blocks kept from shrinking, pausing and sharing, which is the faster search by far.

    Returns the lowest placement known; that there is none of these blocks says nothing.
    """
    instance, best = attempt.instance, low

    def keep(offsets: Array, source: str = "exact") -> None:
        nonlocal best
        size = attempt.blocks.size
        if best is None or (offsets + size).max() < (best + size).max():
            best = offsets
            attempt.offer(offsets, source)

    for blocks in stiffened(attempt.blocks):
        bound = bounds.peak_bound(blocks)
        hopeless = best is not None and bound >= (best + blocks.size).max()
        if hopeless or exact.unsupported(blocks) or not attempt.keep_going():
            continue
        compile_kernels(attempt, "greedy", "exact", stiff=True)
        found = greedy.portfolio(blocks, keep_going=attempt.keep_going, on_solution=keep)
        if not attempt.keep_going():
            break
        keep_going = attempt.for_a_while(seconds)
        if instance.objective is Objective.FIT:
            assert instance.ceiling is not None
            decided = exact.decide(
                blocks,
                instance.ceiling,
                keep_going=keep_going,
                warm=found,
            )
            if decided.offsets is not None:
                keep(decided.offsets)
            continue
        exact.minimise(
            blocks,
            upper=found,
            lower=int(attempt.progress.bound or 0),
            on_solution=keep,
            keep_going=keep_going,
        )
    return best


def _improve(attempt: Attempt, low: Array | None, seed: int, seconds: float = math.inf) -> None:
    """Anneal for so long, where that is longer than a turn by turns with packing windows anew.

    Each turn starts from the best placement known, with random numbers of its own.
    """
    keep_going = attempt.for_a_while(seconds)
    if low is None or not keep_going():
        return
    compile_kernels(attempt, "anneal")
    if annealing.too_dense(attempt.blocks):
        _repair(attempt, low, seed, keep_going)
        return
    goal, size = attempt.instance.goal, attempt.blocks.size
    for turn in itertools.count():
        best, before = attempt.best, effort.spent()
        low = low if best is None or (low + size).max() < (best + size).max() else best
        low = annealing.improve(
            attempt.blocks,
            low,
            target=max(int(attempt.progress.bound or 0), 0 if goal is None else goal),
            seed=seed + turn * TURNS,
            # How long it may take decides how fast it cools.
            legs=None if math.isinf(seconds) else max(1, round(min(TURN, seconds) / LEG)),
            keep_going=_both(keep_going, attempt.for_a_while(TURN)),
            on_solution=lambda offsets: attempt.offer(offsets, "anneal"),
        )
        if seconds <= TURN or not keep_going():
            return
        _repair(attempt, low, seed + turn * TURNS, _both(keep_going, attempt.for_a_while(WINDOWS)))
        if effort.spent() == before:  # nothing can move
            return


def _both(one: Callable[[], bool], other: Callable[[], bool]) -> Callable[[], bool]:
    return lambda: one() and other()


def _dive_at_length(attempt: Attempt, settings: Settings) -> None:
    """Place quickly, then as time permits: by cores, or where these are too large all anew."""
    blocks, quick = attempt.blocks, place_first(attempt)
    if not attempt.keep_going():
        return
    even = (blocks.load >= dive.CORE * blocks.load.max(initial=0)).mean() > EVEN
    odd = bool(dive.unsupported(blocks.rounded))
    if even or odd or valleys.meetings(blocks) > CROWDED:
        quick = place_more(attempt, quick, enough=POOR)
        if odd and attempt.best is None:  # what may lie in few places is in the way
            greedy.portfolio(blocks, keep_going=attempt.keep_going, on_solution=attempt.offer)
        place_anew(attempt, quick, settings.seed)
        return
    quick = place_more(attempt, quick, following=FIRST_CORE)
    if attempt.progress.remaining < FIRST_CORE * quick.seconds:
        place_anew(attempt, quick, settings.seed)
    elif attempt.keep_going():
        _dive(attempt, settings)  # and the rules that scale


def _dive(
    attempt: Attempt, settings: Settings, keep_going: Callable[[], bool] | None = None
) -> None:
    compile_kernels(attempt, "greedy", "dive", "anneal")
    dive.best(
        attempt.blocks.rounded,
        offsets=attempt.lowest,
        target=attempt.instance.goal,
        seed=settings.seed,
        keep_going=keep_going or attempt.keep_going,
        on_solution=attempt.offer,
    )


def _dived(attempt: Attempt, low: Array | None) -> Array | None:
    """Return the best of a placement and single dives, of which annealing gets further."""
    blocks, size = attempt.blocks.rounded, attempt.blocks.size
    if dive.unsupported(blocks) or not attempt.keep_going():
        return low
    compile_kernels(attempt, "dive")
    measures = Measures(blocks)
    for keys in dive.ORDERS.values():
        order = np.lexsort(keys(measures)[::-1])
        found = dive.place(blocks, order, keep_going=attempt.keep_going)
        if found is not None and (low is None or (found + size).max() < (low + size).max()):
            low = found
            attempt.offer(found, "dive")
    return low


def _repair(attempt: Attempt, low: Array | None, seed: int, keep_going: Callable[[], bool]) -> None:
    if low is None or repairing.unsupported(attempt.blocks):
        return
    compile_kernels(attempt, "anneal", "exact")
    goal = attempt.instance.goal
    repairing.improve(
        attempt.blocks,
        low,
        target=max(int(attempt.progress.bound or 0), 0 if goal is None else goal),
        seed=seed,
        keep_going=keep_going,
        on_solution=lambda offsets: attempt.offer(offsets, "repair"),
    )


# ---------------------------------------------------------------------- on an engine


def _on_engine(formulation: str, own_engine: str) -> Run:
    """Return the `run` of a method that solves a model on an engine."""

    def run(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
        refusal = getattr(formulations, formulation).unsupported(instance)
        if refusal:  # asked by `auto` for an engine of the caller's choice
            raise InputError(refusal, field="engine")
        engine = load_engine(own_engine, progress, settings)
        attempt = Attempt(instance, progress)
        low = _start(attempt, settings)
        if settings.warm_start == "auto" and attempt.peak_only:
            low = _stiffly(attempt, low, min(STIFF, effort.left() / 4))
        if progress.keep_going():
            _model(attempt, low, engine, formulation, settings)

    return run


def _model(
    attempt: Attempt,
    low: Array | None,
    engine: Engine,
    formulation: str,
    settings: Settings,
    work: float | None = None,
) -> None:
    instance, progress = attempt.instance, attempt.progress
    upper = progress.objective
    lower = progress.bound
    model = getattr(formulations, formulation)
    seconds = run_model(
        engine,
        effort.carried(lambda: model(instance, upper=upper, lower=lower, spend=effort.spend)),
        formulation,
        progress,
        paced(settings, engine, progress.remaining),
        start=progress.solution,
        start_value=upper,
        work=work,
        overdue=attempt.overdue(settings.deterministic),
        conclude_infeasible=lambda: conclude_infeasible(attempt, low, engine.name),
    )
    effort.spend(seconds)


# ---------------------------------------------------------------------- composed


def auto(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Run greedy rules, then what proves: the exact search, or a model where there is more to say.

    Placements too many to search are dived for, then improved window by window.
    """
    if settings.engine is not None:
        RUNS["cp-sat" if settings.engine == "cp-sat" else "milp"](instance, progress, settings)
        return
    attempt = Attempt(instance, progress)
    large = attempt.blocks.b > LARGE or attempt.blocks.pairs > exact.LARGEST_PAIRS
    dived = attempt.blocks.b > LARGE or not dive.unsupported(attempt.blocks.rounded)
    if attempt.peak_only and large and dived:
        if settings.warm_start == "auto":
            _offer_hint(attempt)
        else:
            _start(attempt, settings)
        _at_scale(attempt, settings)
        return
    low = _start(attempt, settings)
    if attempt.peak_only:
        low = _stiffly(attempt, low, min(STIFF, effort.left() / 4))
    if attempt.peak_only and not large and not exact.unsupported(attempt.blocks):
        _search_all(attempt, low, settings)
    elif attempt.keep_going() and not formulations.CpSat.unsupported(instance):
        engine = load_engine("cp-sat", progress, settings)
        _model(attempt, low, engine, "CpSat", settings)


def _at_scale(attempt: Attempt, settings: Settings) -> None:
    """Dive, run the rules that remain, pack windows of time anew; in memory linear in blocks."""
    blocks, odd = attempt.blocks, dive.unsupported(attempt.blocks.rounded)
    if blocks.b > greedy.LARGE or valleys.meetings(blocks) > CROWDED:
        _dive_at_length(attempt, settings)
        return
    quick = place_more(attempt, place_first(attempt))
    if not odd and attempt.keep_going():
        _dive(attempt, settings, attempt.for_a_while(min(MOST, effort.left() * DIVING)))
    if attempt.keep_going():
        greedy.portfolio(
            blocks,
            keep_going=attempt.for_a_while(min(MOST, effort.left() * DIVING)),
            on_solution=attempt.offer,
        )
    if odd:
        place_anew(attempt, quick, settings.seed)
    else:
        _repair(attempt, attempt.best, settings.seed, attempt.keep_going)


def _search_all(attempt: Attempt, low: Array | None, settings: Settings) -> None:
    """Take turns, each longer: exhaustive search, local search, bounds from windows of time.

    Turns are measured in work, not in seconds, so that runs that end by themselves repeat.  Near
    the limit each search leaves half of what is left to those after it.
    """
    blocks, seed = attempt.blocks, settings.seed
    annealed, narrowed = not annealing.unsupported(blocks), not narrowing.unsupported(blocks)
    exactly = locally = FIRST
    for turn in itertools.count(1):
        # A model is for what resists the search: sooner where it is the slower one.
        modelled = turn > 1 and blocks.b <= PROPAGATED if blocks.rigid else True
        if turn > 1:
            low = _stiffly(attempt, low, _share(exactly) / 4)
        _exact(attempt, low, _share(exactly))
        if annealed:
            _improve(attempt, attempt.best, seed + turn, _share(locally))
        if narrowed and attempt.keep_going():
            _narrow(attempt, turn, attempt.for_a_while(_share(NARROWING * exactly)))
        low = attempt.best
        if modelled and attempt.keep_going():
            engine = load_engine("cp-sat", attempt.progress, settings)
            work = PACE * min(MODELLING * exactly, max(SHORTEST, effort.left()))
            _model(attempt, low, engine, "CpSat", settings, work=work)
        if not attempt.keep_going():
            return
        exactly, locally = exactly * GROWTH, locally * IMPROVED


def _share(seconds: float) -> float:
    """Return how many of these seconds of work a search gets, others being to come."""
    return min(seconds, max(SHORTEST, effort.left() / 2))


def _narrow(attempt: Attempt, passes: int, keep_going: Callable[[], bool]) -> None:
    """Raise the bound by windows of time that provably need more than the load."""
    ceiling = attempt.instance.ceiling
    for window in narrowing.windows(
        attempt.blocks,
        int(attempt.progress.bound or 0),
        keep_going=keep_going,
        passes=passes,
    ):
        first, last = attempt.blocks.time[window.first], attempt.blocks.time[window.end - 1]
        source = f"exhausted window [{first:,}, {last:,}]"
        attempt.progress.raise_bound(window.bound, source)
        if ceiling is not None and window.bound > ceiling:
            within = window.first, window.end
            conclude_infeasible(attempt, attempt.best, source, within)
            return


RUNS: dict[str, Run] = {
    "auto": auto,
    **{name: run_rule(name) for name in RULES},
    "portfolio": portfolio,
    "dive": diving,
    "repair": repair,
    "anneal": anneal,
    "replan": replan,
    "spill-by-value": spill,
    "exact": searching,
    "milp": _on_engine("Milp", "pyomo:highs"),
    "cp-sat": _on_engine("CpSat", "cp-sat"),
}
"""What each method does."""

STARTS = tuple(name for name in RUNS if name not in ("auto", "milp", "cp-sat"))
"""Methods whose answer another one may start from."""

SEARCHES: dict[str, Callable[[Blocks], str]] = {
    "dive": lambda blocks: dive.unsupported(blocks.rounded),
    "repair": repairing.unsupported,
    "anneal": annealing.unsupported,
    "exact": exact.unknown_rule,
}
"""Why the methods that look at the peak alone cannot take some blocks, or ''."""
