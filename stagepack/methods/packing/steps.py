"""The steps of which packing methods are composed.

Each step takes what is known from an :class:`Attempt`, works for a given time, and reports the
placements and bounds that it finds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics import packing as heuristics
from stagepack.heuristics.packing import (
    beam_search,
    bounds,
    constructive,
    exact_search,
    local_search,
)
from stagepack.heuristics.packing.constructive.rules import Measures
from stagepack.heuristics.packing.exact_search.exact_state import NOWHERE
from stagepack.instances.packing import Objective
from stagepack.instances.profile import Array
from stagepack.methods import Settings
from stagepack.methods import packing as methods
from stagepack.methods.packing.attempt import Attempt
from stagepack.result import Status


def spill_by_value(attempt: Attempt) -> Array:
    """Choose memories by value, then place each memory's buffers greedily; return the memories.

    They are int64, shape (n,), and may be too full.
    """
    placed = constructive.spill.place(attempt.instance, attempt.keep_going, tuning=attempt.tuning)
    if placed.fits:
        attempt.offer_buffers(placed.offsets, "spill-by-value", placed.memory)
    return placed.memory


def replan(attempt: Attempt) -> None:
    """Keep what can stay where it was within the capacity, and place the rest greedily."""
    ceiling = attempt.instance.capacity
    assert ceiling is not None
    heuristics.relocation.move_less(
        attempt.instance,
        ceiling,
        keep_going=attempt.keep_going,
        on_solution=lambda offsets: attempt.offer_buffers(offsets, "replan"),
        tuning=attempt.tuning,
    )
    if attempt.progress.solution is None:
        attempt.progress.reason = "replan finds no placement within the capacity"


def search_exactly(attempt: Attempt, low: Array | None, seconds: float = math.inf) -> None:
    """Search exhaustively: any placement within the capacity, else the least peak.

    From `low`, the lowest placement of the blocks that is known, for `seconds` of work.
    """
    tuning = attempt.tuning
    instance, progress, blocks = attempt.instance, attempt.progress, attempt.blocks
    if not progress.keep_going():
        return
    keep_going = attempt.for_a_while(seconds)
    if instance.objective is Objective.FIT:
        # Without `seconds` no other step follows, which would look at windows.
        if seconds == math.inf and not heuristics.window_bounds.unsupported(blocks):
            _ask_then_look_at_windows(attempt, low)
        if keep_going():
            _ask(attempt, attempt.best, keep_going)
        return
    asked = min(
        tuning.auto.asked_bound, tuning.auto.asked_bound_share * min(seconds, effort.left())
    )
    if _ask(attempt, low, _both(keep_going, attempt.for_a_while(asked))) or not keep_going():
        return
    status = exact_search.exact.minimise(
        blocks,
        upper=attempt.best,
        lower=int(progress.bound or 0),
        on_solution=lambda offsets: attempt.offer(offsets, "exact"),
        on_bound=lambda bound: progress.raise_bound(bound, "exhausted search"),
        keep_going=keep_going,
        searches=attempt.searches(keep_going),
        tuning=tuning,
    )
    beyond = status is Status.OPTIMAL and progress.solution is None  # all end above the last bank
    if status is Status.INFEASIBLE or beyond:
        methods.explain.conclude_infeasible(attempt, low, "exhausted search")


def _ask_then_look_at_windows(attempt: Attempt, low: Array | None) -> None:
    """Ask for the capacity; where it resists, look for windows of time that are too full."""
    auto = attempt.tuning.auto
    asked = min(auto.asked_capacity, auto.asked_capacity_share * effort.left())
    known = _ask(attempt, low, attempt.for_a_while(asked))
    if not known and attempt.keep_going():
        narrow = min(auto.windows_after, effort.left() / 2)
        raise_by_windows(attempt, 1, attempt.for_a_while(narrow))


def glance(attempt: Attempt) -> None:
    """Look for what needs hardly any search, before the rules, which would take as long."""
    tuning = attempt.tuning
    blocks = attempt.blocks
    if (
        tuning.auto.glancing
        and attempt.peak_only
        and blocks.b <= tuning.auto.glanced_blocks
        and blocks.rigid
        and not exact_search.exact.unsupported(blocks, tuning=tuning)
    ):
        _ask(attempt, None, attempt.for_a_while(min(tuning.auto.glance, effort.left() / 4)))


def _ask(attempt: Attempt, low: Array | None, keep_going: Callable[[], bool]) -> bool:
    """Decide the capacity, or the bound where only the peak counts; return whether all is known."""
    instance, progress = attempt.instance, attempt.progress
    fit = instance.objective is Objective.FIT
    found = exact_search.exact.decide(
        attempt.blocks,
        instance.ceiling if fit and instance.ceiling is not None else int(progress.bound or 0),
        keep_going=keep_going,
        warm=low,
        searches=attempt.searches(keep_going),
        tuning=attempt.tuning,
    )
    if found.offsets is not None:
        attempt.offer(found.offsets, "exact")
        return progress.solution is not None  # or else it ends above the last bank
    if found.status is Status.INFEASIBLE and (fit or found.bound >= NOWHERE):
        methods.explain.conclude_infeasible(attempt, attempt.best, "exhausted search")
        return True
    if found.status is Status.INFEASIBLE:
        progress.raise_bound(found.bound, "exhausted search")
    return False


def search_rigid(attempt: Attempt, low: Array | None, seconds: float | None = None) -> Array | None:
    """Search blocks kept from shrinking, pausing and sharing, which is the faster search by far.

    Each way to keep them gets `seconds` of work, a little when left out.  Return the lowest
    placement known then, which was `low` before; that there is none of these blocks says nothing.
    """
    tuning = attempt.tuning
    instance, best = attempt.instance, low
    if not tuning.auto.rigid:
        return low
    if seconds is None:
        seconds = min(tuning.auto.rigid_seconds, effort.left() / 4)

    def keep(offsets: Array, source: str = "exact") -> None:
        nonlocal best
        size = attempt.blocks.size
        if best is None or (offsets + size).max() < (best + size).max():
            best = offsets
            attempt.offer(offsets, source)

    for blocks in exact_search.rigid.made_rigid(attempt.blocks):
        bound = bounds.peak_bound(blocks)
        hopeless = best is not None and bound >= (best + blocks.size).max()
        if (
            hopeless
            or exact_search.exact.unsupported(blocks, tuning=tuning)
            or not attempt.keep_going()
        ):
            continue
        found = constructive.greedy.portfolio(
            blocks, keep_going=attempt.keep_going, on_solution=keep, tuning=tuning
        )
        if not attempt.keep_going():
            break
        keep_going = attempt.for_a_while(seconds)
        if instance.objective is Objective.FIT:
            assert instance.ceiling is not None
            decided = exact_search.exact.decide(
                blocks,
                instance.ceiling,
                keep_going=keep_going,
                warm=found,
                tuning=tuning,
            )
            if decided.offsets is not None:
                keep(decided.offsets)
            continue
        exact_search.exact.minimise(
            blocks,
            upper=found,
            lower=int(attempt.progress.bound or 0),
            on_solution=keep,
            keep_going=keep_going,
            tuning=tuning,
        )
    return best


def improve(
    attempt: Attempt,
    low: Array | None,
    seed: int,
    seconds: float = math.inf,
    near: bool = False,
) -> None:
    """Anneal; where that is longer than a turn, again and again.

    Each turn starts from the best placement known, with random numbers of its own.

    Each turn starts from the best placement known, with random numbers of its own, of the `seed`;
    without `low`, a placement, there is nothing to do.  It ends after `seconds` of work.  `near`:
    targets are near the best placement from the start, as they are without a limit: that gets
    further in a turn of full length, and less far in a short one.
    """
    tuning = attempt.tuning
    keep_going = attempt.for_a_while(seconds)
    if low is None or attempt.too_dense or not keep_going():
        return
    size = attempt.blocks.size
    # How long it may take decides how fast it cools.
    far = not near and not math.isinf(seconds)
    legs = (
        max(
            1,
            round(min(tuning.auto.annealing_turn, seconds) / tuning.annealing.leg),
        )
        if far
        else None
    )
    for turn in itertools.count():
        best, before = attempt.best, effort.spent()
        low = low if best is None or (low + size).max() < (best + size).max() else best
        low = local_search.annealing.improve(
            attempt.blocks,
            low,
            target=attempt.target,
            seed=seed + turn * tuning.auto.seed_stride,
            legs=legs,
            keep_going=_both(keep_going, attempt.for_a_while(tuning.auto.annealing_turn)),
            on_solution=lambda offsets: attempt.offer(offsets, "anneal"),
            tuning=tuning,
        )
        if seconds <= tuning.auto.annealing_turn or not keep_going():
            return
        if effort.spent() == before:  # nothing can move
            return


def minimise_overlaps(attempt: Attempt, seed: int, seconds: float) -> None:
    """Lower the best placement by letting blocks overlap and moving them apart, where that applies.

    It takes `seconds` of work, and random numbers of the `seed`.
    """
    blocks, low = attempt.blocks.rounded, attempt.best
    keep_going = attempt.for_a_while(seconds)
    if not attempt.tuning.auto.overlapping:
        return
    if (
        low is None
        or attempt.too_dense
        or local_search.overlaps.unsupported(blocks)
        or not keep_going()
    ):
        return
    local_search.overlaps.improve(
        blocks,
        low,
        target=attempt.target,
        seed=seed,
        keep_going=keep_going,
        on_solution=lambda offsets: attempt.offer(offsets, "overlaps"),
        tuning=attempt.tuning,
    )


def search_beams(attempt: Attempt, low: Array | None, seed: int) -> None:
    """Search with beams for a packing at the bound, or within the capacity, then for any lower one.

    Without `low`, a placement of the blocks, there is nothing to do; random numbers are of the
    `seed`.
    """
    if low is None or not attempt.keep_going():
        return
    beam_search.beam.improve(
        attempt.blocks,
        low,
        target=attempt.target,
        seed=seed,
        keep_going=attempt.keep_going,
        on_solution=lambda offsets: attempt.offer(offsets, "beam"),
        tuning=attempt.tuning,
    )


def _both(one: Callable[[], bool], other: Callable[[], bool]) -> Callable[[], bool]:
    """Return a `keep_going` that ends as soon as one of two does."""
    return lambda: one() and other()


def dive_at_length(attempt: Attempt, settings: Settings) -> None:
    """Place quickly, then as time permits: by cores, or where these are too large all anew."""
    tuning = attempt.tuning
    blocks, quick = attempt.blocks, methods.quick.place_first(attempt)
    if not attempt.keep_going():
        return
    even = (
        blocks.load >= tuning.scale.full * blocks.load.max(initial=0)
    ).mean() > tuning.scale.even
    odd = bool(local_search.cores.unsupported(blocks.rounded))
    if even or odd or constructive.valleys.meetings(blocks) > tuning.scale.crowded_pairs:
        quick = methods.quick.place_more(attempt, quick, enough=tuning.scale.poor)
        if odd and attempt.best is None:  # what may lie in few places is in the way
            constructive.greedy.portfolio(
                blocks,
                keep_going=attempt.keep_going,
                on_solution=attempt.offer,
                tuning=tuning,
            )
        methods.quick.place_anew(attempt, quick)
        return
    quick = methods.quick.place_more(
        attempt, quick, following=(tuning.scale.first_core, tuning.scale.grown_core)
    )
    if attempt.progress.remaining < tuning.scale.first_core * quick.seconds:
        methods.quick.place_anew(attempt, quick)
    elif attempt.keep_going():
        dive_with_cores(attempt, settings)  # and the rules that scale


def dive_with_cores(
    attempt: Attempt, settings: Settings, keep_going: Callable[[], bool] | None = None
) -> None:
    """Pack from a core, the rest around it, as long as there is time.

    Of `settings` the seed counts; `keep_going` says whether there is time, in place of the attempt.
    """
    if not attempt.tuning.auto.cores:
        return
    local_search.cores.best(
        attempt.blocks.rounded,
        offsets=attempt.lowest,
        target=attempt.instance.goal,
        seed=settings.seed,
        keep_going=keep_going or attempt.keep_going,
        on_solution=attempt.offer,
        tuning=attempt.tuning,
    )


def best_dive(attempt: Attempt, low: Array | None) -> Array | None:
    """Return the best of a placement and single dives, of which annealing gets further."""
    blocks, size = attempt.blocks.rounded, attempt.blocks.size
    idle = not attempt.tuning.auto.dives or bool(constructive.dive.unsupported(blocks))
    if idle or not attempt.keep_going():
        return low
    measures = Measures(blocks)
    for keys in constructive.dive.ORDERS.values():
        order = np.lexsort(keys(measures)[::-1])
        found = constructive.dive.place(
            blocks, order, keep_going=attempt.keep_going, tuning=attempt.tuning
        )
        if found is not None and (low is None or (found + size).max() < (low + size).max()):
            low = found
            attempt.offer(found, "dive")
    return low


def too_crowded(attempt: Attempt, settings: Settings) -> bool:
    """Whether more is alive together than a search can hold; then all is placed anew."""
    reason = exact_search.exact.unsupported(attempt.blocks, tuning=attempt.tuning)
    if not reason:
        return False
    use_up(attempt, settings.seed)
    if not attempt.progress.proved:
        attempt.progress.reason = f"{reason}; quick rules ran instead"
    return True


def use_up(attempt: Attempt, seed: int) -> None:
    """Lower the best placement of blocks that no search holds, as long as there is time.

    Blocks that shrink or share are annealed as if they did not; where that cannot be, all are
    placed anew.

    Blocks that shrink or share are annealed as if they did not; where that cannot be, all are
    placed anew.
    """
    tuning = attempt.tuning
    kept = []
    if not attempt.too_dense and attempt.keep_going():
        for blocks in (
            (attempt.blocks,)
            if attempt.blocks.rigid
            else exact_search.rigid.made_rigid(attempt.blocks)
        ):
            low = constructive.greedy.portfolio(
                blocks,
                keep_going=attempt.keep_going,
                on_solution=attempt.offer,
                tuning=tuning,
            )
            if low is not None and not local_search.annealing.unsupported(blocks):
                kept.append((blocks, low))
    for turn in itertools.count() if kept else ():
        for at, (blocks, low) in enumerate(kept):
            found = local_search.annealing.improve(
                blocks,
                low,
                target=attempt.target,
                seed=seed + turn * tuning.auto.seed_stride,
                legs=round(tuning.auto.annealing_turn / tuning.annealing.leg),
                keep_going=attempt.keep_going,
                on_solution=lambda offsets: attempt.offer(offsets, "anneal"),
                tuning=tuning,
            )
            kept[at] = blocks, found
        if not attempt.keep_going():
            return
    if attempt.keep_going():
        methods.quick.place_anew(attempt, methods.quick.place_first(attempt))


def raise_by_windows(attempt: Attempt, passes: int, keep_going: Callable[[], bool]) -> None:
    """Raise the bound by windows of time that provably need more.

    Windows of all widths are tried in each of `passes`, with more nodes from one to the next, while
    `keep_going` says that there is time.
    """
    tuning = attempt.tuning
    ceiling = attempt.instance.ceiling
    for window in heuristics.window_bounds.windows(
        attempt.blocks,
        int(attempt.progress.bound or 0),
        keep_going=keep_going,
        passes=passes,
        tuning=tuning,
    ):
        first, last = attempt.blocks.time[window.first], attempt.blocks.time[window.end - 1]
        source = f"exhausted window [{first:,}, {last:,}]"
        if attempt.instance.conflicts is not None:  # of time that nobody gave
            source = f"exhausted run of {window.end - window.first:,} cliques"
        attempt.progress.raise_bound(window.bound, source)
        if ceiling is not None and window.bound > ceiling:
            within = window.first, window.end
            methods.explain.conclude_infeasible(attempt, attempt.best, source, within)
            return
