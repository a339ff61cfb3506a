"""Finds proofs that buffers do not fit: a moment, a clique, or a window of time that is refuted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np

from stagepack.contracts import JsonObject, Number
from stagepack.evidence import Evidence, Proof, witness
from stagepack.heuristics.packing import bounds
from stagepack.heuristics.packing.refutation.refuting import Refutation, Window
from stagepack.heuristics.packing.refutation.refuting_kernels import FITS, REFUTED, RUNNING
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing import LmemPacking, Objective, relations
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array
from stagepack.instances.words import LARGEST
from stagepack.methods import Settings
from stagepack.methods.evidence import strengthened, take
from stagepack.methods.packing.attempt import PackingProgress
from stagepack.verify.packing_misfit import MOST_BUFFERS, MOST_MOMENTS


def strengthen(
    instance: LmemPacking,
    progress: PackingProgress,
    settings: Settings,
    keep_going: Callable[[], bool],
) -> None:
    """Look for evidence of what is known that others can verify.

    `progress` has a bound, or the reason why nothing fits.  Without `proof` in `settings` only the
    heaviest moment is looked at.  `keep_going` is asked between chunks of work.
    """
    tuning = settings.tuned(TUNING)
    if (instance.n <= tuning.reasons.checked_buffers or settings.proof) and strengthened(
        instance, progress, tuning.reasons.checked_seconds
    ):
        return
    if not settings.proof:
        return
    bound = None if progress.infeasible_reason is not None else progress.bound
    found = prove(instance, bound, keep_going, tuning=tuning)
    if found is not None:
        take(progress, found)


def prove(
    instance: LmemPacking,
    bound: Number | None,
    keep_going: Callable[[], bool],
    *,
    tuning: PackingTuning = TUNING,
) -> Evidence | None:
    """Return what shows that every packing has at least a peak; None where there is nothing.

    That is once `keep_going`, asked between chunks of work, says no, and if what proofs speak of
    has a lower packing.  The peak is `bound`; None: beyond what there is.
    """
    most = instance.ceiling if bound is None else math.ceil(bound) - 1
    others = (Objective.MOVES, Objective.PENALTIES)
    if most is None or instance.memories or instance.objective in others:
        return None
    if most >= LARGEST:  # more than all buffers together
        return None
    which = _apart(instance)
    relaxed, capacity = _relaxed(instance, which, most)
    blocks = Blocks.of(relaxed)
    weight, clique = bounds.heavy_clique(relaxed, blocks, keep_going, tuning=tuning)
    if weight > capacity and clique:
        return witness("clique", members=which[clique].tolist())
    fitting: list[tuple[int, int]] = []  # windows that fit, so that all within them do
    for limit in (tuning.windows.nodes * 8**number for number in itertools.count()):
        undecided = 0
        for first, end in _spans(blocks, tuning=tuning):
            if any(a <= first and end <= b for a, b in fitting):
                continue
            if not keep_going():
                return None
            members, alive = _alive(blocks, first, end)
            window = Window(relaxed.size[members], alive, capacity)
            if window.overfull:
                heavy = int((window.size @ alive).argmax())
                if relaxed.conflicts is None:
                    return witness("load", moment=int(blocks.moment[first + heavy]))
                return witness("clique", members=which[members[alive[:, heavy]]].tolist())
            large = len(members) > MOST_BUFFERS or end - first > MOST_MOMENTS
            if large or relaxed.conflicts is not None:
                continue
            steps, outcome = _refuted(window, limit, keep_going, tuning=tuning)
            if outcome == REFUTED:
                spoken: JsonObject = {"rule": "misfit", "capacity": most, "steps": steps}
                spoken["buffers"] = which[members].tolist()
                spoken["moments"] = blocks.time[first:end].tolist()
                return Evidence(Proof.LOG, spoken)
            if outcome == RUNNING:
                return None
            if outcome == FITS:
                fitting.append((first, end))
            else:
                undecided += 1
        if not undecided:
            return None
    raise AssertionError


def _refuted(
    window: Window, limit: int, keep_going: Callable[[], bool], *, tuning: PackingTuning
) -> tuple[list[int], int]:
    """Search a window in several orders; return the shortest proof, and what became of it."""
    size, alive = window.size.astype(float), window.alive
    moments = alive.sum(axis=1).astype(float)
    heaviest = (alive * (size @ alive)).max(axis=1)
    best: list[int] = []
    outcome = -1
    for order in (moments, heaviest * (1 + moments / 2**20), size * moments, size):
        for lowest_section in (True, False):
            search = Refutation(window, order, lowest_section=lowest_section, tuning=tuning)
            found = search.run(limit, keep_going)
            if found in (FITS, RUNNING) and not best:
                return [], found
            if found == REFUTED:
                steps = search.steps()
                best = steps if not best or len(steps) < len(best) else best
                limit, outcome = search.nodes, REFUTED
    return best, outcome


# ---------------------------------------------------------------------- what proofs speak of


def _apart(instance: LmemPacking) -> Array:
    """Return buffers of which no two may overlap: the largest of those that may."""
    pairs = [*instance.in_place, *instance.exempt]
    if not (pairs or instance.colocated or instance.views):
        return np.arange(instance.n)
    tied = [[-1 - place] for place in relations.tied(instance)[0].tolist()]
    for number, pair in enumerate(pairs):
        for i in pair:
            tied[i].append(number)
    taken, kept = set[int](), []
    for i in np.argsort(-instance.size, kind="stable").tolist():
        if taken.isdisjoint(tied[i]):
            taken.update(tied[i])
            kept.append(i)
    return np.array(sorted(kept), dtype=np.int64)


def _relaxed(instance: LmemPacking, which: Array, capacity: int) -> tuple[LmemPacking, int]:
    """Return buffers that only keep apart where they hold all of their bytes, and a capacity.

    Sizes are rounded up to what all alignments have in common.
    """
    size, conflicts = instance.size[which], instance.conflicts
    step = int(np.gcd.reduce(instance.alignment[which]))
    wide = size + -size % step
    place = np.full(instance.n, -1)
    place[which] = np.arange(len(which))
    if conflicts is not None:
        conflicts = place[conflicts]
        conflicts = conflicts[(conflicts >= 0).all(axis=1)]
    relaxed = LmemPacking.from_arrays(
        wide,
        None if conflicts is not None else instance.start[which],
        None if conflicts is not None else instance.end[which],
        period=instance.period,
        conflicts=conflicts,
        gaps=[
            (int(place[gap.buffer]), gap.start, gap.end)
            for gap in instance.gaps
            if place[gap.buffer] >= 0
        ],
    )
    return relaxed, int(((capacity - size) // step * step + wide).max())


def _spans(blocks: Blocks, *, tuning: PackingTuning) -> Iterator[tuple[int, int]]:
    """Yield runs of sections [first, end): the heaviest one, then narrow before wide."""
    heaviest = int(blocks.load.argmax())
    yield heaviest, heaviest + 1
    running = np.concatenate([[0], np.cumsum(blocks.load)])
    width = tuning.windows.narrowest
    while blocks.linear and width < blocks.sections:
        last = blocks.sections - width
        first = np.unique(np.append(np.arange(0, last, max(1, width // 4)), last))
        heavy = np.argsort(running[first] - running[first + width], kind="stable")
        for at in first[heavy[: tuning.windows.logged]].tolist():
            yield at, at + width
        width *= 2
    yield 0, blocks.sections


def _alive(blocks: Blocks, first: int, end: int) -> tuple[Array, Array]:
    """Return who is alive in a run of sections, and when, shape (members, sections)."""
    owner = np.repeat(np.arange(blocks.b), np.diff(blocks.piece_ptr))
    inside = np.flatnonzero((blocks.first < end) & (blocks.end > first))
    members, row = np.unique(owner[inside], return_inverse=True)
    alive = np.zeros((len(members), end - first), dtype=bool)
    for at, piece in zip(row.tolist(), inside.tolist(), strict=True):
        begin = max(0, int(blocks.first[piece]) - first)
        alive[at, begin : int(blocks.end[piece]) - first] = True
    return members, alive
