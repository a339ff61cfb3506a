"""Implementations of the packing methods; imported, with their kernels, when one runs.

Each is composed of the functions in :mod:`.steps`.  Around all of them is the same run: limits, the
second criterion, the final message.  ``RUNS``, at the end, lists them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator

from stagepack.errors import InputError
from stagepack.evidence import witness
from stagepack.formulations import packing as formulations
from stagepack.heuristics import effort
from stagepack.heuristics import packing as heuristics
from stagepack.heuristics.packing import (
    constructive,
    exact_search,
    local_search,
)
from stagepack.heuristics.packing.constructive.rules import RULES
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing import LmemPacking, Objective, PackingSolution
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array
from stagepack.methods import Settings, counting
from stagepack.methods import packing as methods
from stagepack.methods.packing import steps
from stagepack.methods.packing.attempt import Attempt, PackingProgress
from stagepack.progress import Stopped
from stagepack.result import Termination

Run = Callable[[LmemPacking, PackingProgress, Settings], None]


@contextlib.contextmanager
def _annealing_last(attempt: Attempt, seed: int) -> Iterator[None]:
    """Reserve the end of a run for annealing, for where its body leaves a capacity undecided.

    The answer is then the best placement above the capacity, which exact searches hardly lower.
    """
    tuning = attempt.tuning
    progress = attempt.progress
    kept = min(
        tuning.auto.annealing_last * max(0.0, progress.remaining),
        tuning.auto.annealing_turn,
    )
    fit = attempt.peak_only and attempt.instance.objective is Objective.FIT
    endless = progress.remaining == math.inf
    if (
        not fit
        or endless
        or attempt.too_dense
        or local_search.annealing.unsupported(attempt.blocks)
    ):
        yield
        return
    ended = None
    with progress.lending(1, progress.remaining - kept), effort.lending(1, effort.left() - kept):
        try:
            yield
        finally:
            ended = progress.stop_reason()
    # So little time is best spent near a dive: most is gained within some hundredths of a second.
    steps.improve(attempt, steps.best_dive(attempt, attempt.best), seed, kept, near=True)
    if ended is Termination.TIME_LIMIT and progress.keep_going():
        progress.stop(ended)


def _run_rule(name: str) -> Run:
    """Return the `run` of one greedy rule."""

    def run(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
        attempt = Attempt(instance, progress, tuning=settings.tuned(TUNING))
        banks = instance.banks
        pairs = None if banks is None else constructive.greedy.BankPairs.of(attempt.blocks, banks)
        keep_going = methods.quick.before_it_is_too_late(attempt)
        offsets = constructive.greedy.place(
            attempt.blocks, RULES[name], banks=pairs, keep_going=keep_going, tuning=attempt.tuning
        )
        if offsets is not None:
            attempt.offer(offsets, name)
        elif keep_going():
            progress.reason = progress.reason or f"{name} finds no place for some buffer"
        else:
            methods.quick.place_first(attempt)
            if progress.solution is not None:
                progress.reason = (
                    f"{name} did not end in time; the remaining buffers were placed by a quick rule"
                )

    return run


def _portfolio(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Run the greedy rules that suit the instance and keep the best."""
    tuning = settings.tuned(TUNING)
    if (
        _start(Attempt(instance, progress, tuning=tuning), settings) is None
        and progress.solution is None
    ):
        progress.reason = progress.reason or "no greedy rule finds a place for every buffer"


def _diving(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Place the block with the lowest place first, in several orders."""
    attempt = Attempt(instance, progress, tuning=settings.tuned(TUNING))
    steps.dive_at_length(attempt, settings)


def _anneal(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Anneal over first-fit orders, from the best greedy placement or single dive."""
    attempt = Attempt(instance, progress, tuning=settings.tuned(TUNING))
    low = _start(attempt, settings)
    if steps.too_crowded(attempt, settings):
        return
    if settings.warm_start == "auto":
        low = steps.best_dive(attempt, low)
    steps.improve(attempt, low, settings.seed)


def _searching(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Search exhaustively, from the best greedy placement."""
    attempt = Attempt(instance, progress, tuning=settings.tuned(TUNING))
    if settings.warm_start == "auto":
        steps.glance(attempt)
        progress.require_time()
    low = _start(attempt, settings)
    if steps.too_crowded(attempt, settings):
        return
    with _annealing_last(attempt, settings.seed):
        low = steps.search_rigid(attempt, low)
        steps.search_exactly(attempt, low)


def _beaming(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Search with beams, from the best greedy placement."""
    attempt = Attempt(instance, progress, tuning=settings.tuned(TUNING))
    low = _start(attempt, settings)
    if attempt.too_dense:
        steps.too_crowded(attempt, settings)
        return
    with _annealing_last(attempt, settings.seed):
        steps.search_beams(attempt, low, settings.seed)


def _replan(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Keep what can stay where it was, and place the rest greedily."""
    attempt = Attempt(instance, progress, tuning=settings.tuned(TUNING))
    steps.replan(attempt)


def _sharing(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Anneal over placements that share addresses at a cost."""
    attempt = Attempt(instance, progress, tuning=settings.tuned(TUNING))
    _start(attempt, settings)
    methods.penalties.solve(attempt, settings, prove=False)


def _spill(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Choose memories by value, then place each memory's buffers greedily."""
    tuning = settings.tuned(TUNING)
    steps.spill_by_value(Attempt(instance, progress, tuning=tuning))
    if progress.solution is None:
        progress.reason = "spill-by-value finds no memory for some buffers"


def _on_engine(formulation: str, own_engine: str) -> Run:
    """Return the `run` of a method that solves a model on an engine."""

    def run(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
        refusal = getattr(formulations, formulation).unsupported(instance)
        if refusal:  # asked by `auto` for an engine of the caller's choice
            raise InputError(refusal, field="engine")
        from stagepack.methods.models import load_engine

        engine = load_engine(own_engine, progress, settings)
        attempt = Attempt(instance, progress, tuning=settings.tuned(TUNING))
        low = _start(attempt, settings)
        with _annealing_last(attempt, settings.seed):
            if settings.warm_start == "auto" and attempt.peak_only:
                low = steps.search_rigid(attempt, low)
            if progress.keep_going():
                methods.modelled.solve(attempt, low, engine, formulation, settings)

    return run


def _start(attempt: Attempt, settings: Settings) -> Array | None:
    """Offer a first solution as the settings want it; return the lowest placement found.

    The placement, shape (b,), may exceed the capacity: searches start from it all the same.
    """
    from stagepack.methods.starts import offer_start

    instance, progress = attempt.instance, attempt.progress
    alone = dataclasses.replace(settings, warm_start="auto")
    starts: dict[str, Callable[[], object]] = {
        "auto": functools.partial(_start_of_choice, attempt, settings),
        **{name: functools.partial(_PLAIN[name], instance, progress, alone) for name in STARTS},
    }
    offer_start(instance, progress, settings, starts)
    return None if settings.warm_start is None else attempt.best


def _start_of_choice(attempt: Attempt, settings: Settings) -> None:
    """Offer what `auto` begins with: quick placements, a short dive, the greedy rules."""
    tuning = attempt.tuning
    instance, progress = attempt.instance, attempt.progress
    _offer_hint(attempt)
    if instance.memories:
        steps.spill_by_value(attempt)
        return
    if instance.objective is Objective.MOVES:
        steps.replan(attempt)
        return
    if instance.objective is Objective.PENALTIES:
        methods.penalties.begin(attempt, settings)
        return
    if attempt.blocks.b >= tuning.auto.dived_blocks:  # of fewer the rules place all as soon
        quick = methods.quick.place_first(attempt)
        if attempt.blocks.b > tuning.scale.blocks:
            methods.quick.place_more(attempt, quick)
    progress.require_time()
    if attempt.blocks.b >= tuning.auto.dived_blocks and not local_search.cores.unsupported(
        attempt.blocks.rounded
    ):
        seconds = tuning.auto.dive * max(1.0, attempt.blocks.b / tuning.auto.dive_blocks)
        share = effort.left() * tuning.auto.dive_share
        steps.dive_with_cores(attempt, settings, attempt.for_a_while(min(seconds, share)))
        progress.require_time()
    if tuning.auto.rules:
        constructive.greedy.portfolio(
            attempt.blocks,
            keep_going=attempt.keep_going,
            on_solution=attempt.offer,
            tuning=tuning,
        )
    if attempt.best is None:
        methods.quick.place_first(attempt)
    if instance.banks is not None and instance.objective is Objective.BANK_CONFLICTS:
        pairs = constructive.greedy.BankPairs.of(attempt.blocks, instance.banks)
        apart = constructive.greedy.place(
            attempt.blocks,
            RULES["bank-aware"],
            banks=pairs,
            ceiling=instance.ceiling,
            tuning=tuning,
        )
        if apart is not None:
            attempt.offer(apart, "bank-aware")


def _offer_hint(attempt: Attempt) -> None:
    """Offer the placement that the instance comes with, if it is valid."""
    instance = attempt.instance
    if (instance.hint >= 0).all() and not instance.memories:
        hinted = PackingSolution.of(instance, instance.hint)
        if not instance.check(hinted):
            attempt.progress.offer(hinted, "hint of the instance")


def _auto(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Run greedy rules, then what proves: the exact search, or a model where there is more to say.

    Placements too many to search are dived for, then made anew again and again.
    """
    if instance.memories and methods.memories.apart(instance, progress, settings, _within("auto")):
        return
    if settings.engine is not None:
        _PLAIN["cp-sat" if settings.engine == "cp-sat" else "milp"](instance, progress, settings)
        return
    attempt = Attempt(instance, progress, tuning=settings.tuned(TUNING))
    tuning = attempt.tuning
    many = attempt.blocks.b > tuning.scale.blocks
    large = many or attempt.blocks.pairs > min(tuning.scale.pairs, tuning.exact.pair_limit)
    dived = large and (many or not local_search.cores.unsupported(attempt.blocks.rounded))
    if attempt.peak_only and dived:
        if settings.warm_start == "auto":
            _offer_hint(attempt)
        else:
            _start(attempt, settings)
        _at_scale(attempt, settings)
        return
    if settings.warm_start == "auto":
        steps.glance(attempt)
        progress.require_time()
    low = _start(attempt, settings)
    if instance.memories:
        methods.memories.choose(attempt, settings, _within("auto"))
        return
    if instance.objective is Objective.PENALTIES:
        methods.penalties.solve(attempt, settings)
        return
    if attempt.peak_only:
        low = steps.search_rigid(attempt, low)
    if (
        attempt.peak_only
        and not large
        and not exact_search.exact.unsupported(attempt.blocks, tuning=tuning)
    ):
        with _annealing_last(attempt, settings.seed):
            _search_all(attempt, low, settings)
    elif attempt.keep_going() and not formulations.CpSat.unsupported(instance):
        from stagepack.methods.models import load_engine

        engine = load_engine("cp-sat", progress, settings)
        methods.modelled.solve(attempt, low, engine, "CpSat", settings)
        if attempt.peak_only and attempt.keep_going():  # there was no time to build it
            steps.use_up(attempt, settings.seed)


def _at_scale(attempt: Attempt, settings: Settings) -> None:
    """Dive, run the rules that remain, place all anew; in memory linear in blocks."""
    tuning = attempt.tuning
    blocks, odd = attempt.blocks, local_search.cores.unsupported(attempt.blocks.rounded)
    if (
        blocks.b > tuning.greedy.scalable_from
        or constructive.valleys.meetings(blocks) > tuning.scale.crowded_pairs
    ):
        steps.dive_at_length(attempt, settings)
        return
    quick = methods.quick.place_more(attempt, methods.quick.place_first(attempt))
    if not odd and attempt.keep_going():
        steps.dive_with_cores(attempt, settings, _mostly(attempt))
    if attempt.keep_going():
        constructive.greedy.portfolio(
            blocks,
            keep_going=attempt.for_a_while(
                min(tuning.scale.dive_most, effort.left() * tuning.scale.dive_share)
            ),
            on_solution=attempt.offer,
            tuning=tuning,
        )
    methods.quick.place_anew(attempt, quick)


def _mostly(attempt: Attempt) -> Callable[[], bool]:
    """Return a `keep_going` for cores: most of the time that is left, on the clock that ends it.

    Work on cores that stay in a cache takes half its seconds: they would be cut as they succeed.
    """
    tuning = attempt.tuning
    progress, going = attempt.progress, attempt.for_a_while(tuning.scale.dive_most)
    until = progress.remaining * (1 - tuning.scale.core_share)
    return lambda: going() and (until == math.inf or progress.remaining > until)


def _search_all(attempt: Attempt, low: Array | None, settings: Settings) -> None:
    """Take turns, each longer: exhaustive search, local searches, bounds from windows of time.

    Turns are measured in work, not in seconds, so that runs that end by themselves repeat.  Near
    the limit each search leaves half of what is left to those after it; but where overlaps cannot
    be minimised, as with unlike alignments, annealing gets most of the time and the end of it.
    """
    tuning, auto = attempt.tuning, attempt.tuning.auto
    blocks, seed = attempt.blocks, settings.seed
    annealed = auto.annealing and not local_search.annealing.unsupported(blocks)
    narrowed = auto.windows and not heuristics.window_bounds.unsupported(blocks)
    mostly = annealed and bool(local_search.overlaps.unsupported(blocks.rounded))
    tangled = attempt.instance.conflicts is not None and not blocks.linear
    fit = attempt.instance.objective is Objective.FIT
    exactly = auto.early_exact if mostly else auto.first_turn
    locally = auto.annealing_turn if mostly else auto.first_turn
    if fit and blocks.rigid and not mostly and not tangled:
        exactly, locally = auto.fitting_exact, auto.fitting_local
    share = functools.partial(_share, tuning=tuning)
    if mostly:
        _search(attempt, low, share(auto.early_exact))
        low = steps.best_dive(attempt, attempt.best)
    soon = tangled or blocks.b > auto.glanced_blocks
    overlapping = auto.conflict_overlap_share if tangled else auto.overlap_share
    for turn in itertools.count(1):
        before = effort.spent()
        # A model is for what resists the search: sooner where it is the slower one.
        modelled = turn > 1 and blocks.b <= auto.modelled_blocks if blocks.rigid else True
        # As annealing alone goes on.
        again = seed + auto.seed_stride * round(locally / auto.annealing_turn - 1)
        if mostly and effort.left() < max(auto.annealing_alone, exactly + locally):
            steps.improve(attempt, attempt.best, again)
            if not attempt.keep_going():
                return
        if turn > 1:
            low = steps.search_rigid(attempt, low, share(exactly) / 4)
        elif soon:
            steps.minimise_overlaps(attempt, seed, share(overlapping * locally))
            low = attempt.best
        _search(attempt, low, share(exactly))
        if turn > 1 or not soon:
            steps.minimise_overlaps(attempt, seed + turn, share(overlapping * locally))
        if mostly:
            steps.improve(attempt, attempt.best, again, locally, near=True)
        elif annealed:
            steps.improve(attempt, attempt.best, seed + turn, share(locally))
        if narrowed and attempt.keep_going():
            for_a_while = attempt.for_a_while(share(auto.windows_share * exactly))
            steps.raise_by_windows(attempt, turn, for_a_while)
        low = attempt.best
        if auto.models and modelled and attempt.keep_going():
            from stagepack.methods.models import PACE, load_engine

            engine = load_engine("cp-sat", attempt.progress, settings)
            work = PACE * min(auto.model_share * exactly, max(auto.shortest, effort.left()))
            methods.modelled.solve(attempt, low, engine, "CpSat", settings, work=work)
        nothing = turn > 1 and effort.spent() == before  # all steps are switched off
        if nothing or not attempt.keep_going():
            return
        exactly, locally = exactly * auto.exact_growth, locally * auto.local_growth


def _search(attempt: Attempt, low: Array | None, seconds: float) -> None:
    """Search exactly for so much work, unless that is switched off."""
    if attempt.tuning.auto.exact:
        steps.search_exactly(attempt, low, seconds)


def _share(seconds: float, *, tuning: PackingTuning) -> float:
    """Return how many of these seconds of work a search gets, others being to come."""
    return min(seconds, max(tuning.auto.shortest, effort.left() / 2))


# ---------------------------------------------------------------------- the run around them


def _whole(name: str) -> Run:
    """Return the whole run of a method, given its name."""

    def complete(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
        with counting(progress, settings, planned=True):
            _within(name)(instance, progress, settings)

    return complete


def _within(name: str) -> Run:
    """Return the run of a method on the clocks of another, given its name."""

    def complete(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
        tuning = settings.tuned(TUNING)
        if instance.memories:
            if name != "auto":
                _require(name, instance, progress, tuning=tuning)
            with contextlib.suppress(Stopped):
                _PLAIN[name](instance, progress, settings)
            return
        directly = instance.conflicts is not None and methods.graphs.placed_first(
            name, instance, progress, settings
        )
        least = methods.graphs.least(instance.n, tuning=tuning) if directly else tuning.graphs.least
        going = not _hasty(instance, progress, least, tuning=tuning)
        if going and not directly:
            _require(name, instance, progress, tuning=tuning)
        try:
            if not going:
                methods.graphs.place_as_listed(instance, progress, settings)
            elif directly:
                going = methods.graphs.place(name, instance, progress, settings)
                if going:
                    _require(name, instance, progress, tuning=tuning)
            if going:
                _moving_little(name, _PLAIN[name], instance, progress, settings)
        finally:
            methods.conclusion.conclude(instance, progress, tuning=tuning)

    return complete


def _hasty(
    instance: LmemPacking, progress: PackingProgress, least: float, *, tuning: PackingTuning
) -> bool:
    """Whether conflicts are so many that the time is over before they are gone through.

    `least` is how long one of them takes, in seconds.
    """
    if instance.conflicts is None or progress.remaining == math.inf:
        return False
    seconds = least * len(instance.conflicts)
    if seconds <= tuning.scale.late + tuning.graphs.later * progress.remaining:
        return False
    progress.reason = (
        f"going through {len(instance.conflicts):,} conflicts takes about {seconds:,.1f} s, more "
        "than is left: a longer limit gives a lower placement and a higher bound"
    )
    if instance.objective in (Objective.PEAK, Objective.FIT):
        progress.raise_bound(int(instance.size.max()), "largest buffer", witness("place"))
    return True


def _require(
    name: str, instance: LmemPacking, progress: PackingProgress, *, tuning: PackingTuning
) -> None:
    """Refuse instances that a method declines, once their normal form is made within the limit."""
    conflicts = 0 if instance.conflicts is None else len(instance.conflicts)
    looks = 0

    def spent(count: int) -> float:
        return min(tuning.graphs.covering_look * count, tuning.graphs.covering * conflicts)

    def look() -> bool:
        nonlocal looks
        looks += 1
        effort.spend(spent(looks) - spent(looks - 1))
        return (
            progress.keep_going() and progress.remaining > tuning.graphs.covering_left * conflicts
        )

    made = Blocks.of(instance, look)
    effort.spend(max(0.0, spent(made.looks) - spent(looks)))  # of a form that was made before
    effort.spend(tuning.graphs.covering_after * conflicts)
    method = next(method for method in methods.METHODS if method.name == name)
    reason = method.declines(instance)
    if reason:
        raise InputError(reason, field=f"method {name}")


def _moving_little(
    name: str,
    run: Run,
    instance: LmemPacking,
    progress: PackingProgress,
    settings: Settings,
) -> None:
    """Run, and where there is an old placement see to it that little moves."""
    tuning = settings.tuned(TUNING)
    if instance.penalties is not None and methods.penalties.matter(name, instance):
        methods.penalties.second(run, instance, progress, settings)
        return
    if instance.previous.max(initial=-1) < 0 or not methods.relocation.matter(name, instance):
        with contextlib.suppress(Stopped):
            run(instance, progress, settings)
        return
    methods.relocation.before(name, instance, progress, settings)
    if progress.keep_going():
        with (
            methods.relocation.reserved(instance, progress, tuning=tuning),
            contextlib.suppress(Stopped),
        ):
            run(instance, progress, settings)
    methods.relocation.after(name, instance, progress, settings)


_PLAIN: dict[str, Run] = {
    "auto": _auto,
    **{name: _run_rule(name) for name in RULES},
    "portfolio": _portfolio,
    "dive": _diving,
    "anneal": _anneal,
    "beam": _beaming,
    "replan": _replan,
    "spill-by-value": _spill,
    "reuse-aware": _sharing,
    "exact": _searching,
    "milp": _on_engine("Milp", "highs"),
    "cp-sat": _on_engine("CpSat", "cp-sat"),
}
"""What each method searches."""

RUNS = {name: _whole(name) for name in _PLAIN}
"""What each method does, in full."""

STARTS = tuple(name for name in _PLAIN if name not in ("auto", "milp", "cp-sat"))
"""Methods whose answer another one may start from."""
