"""Compiled parts of :mod:`.remat`: the least cycles still to recompute, and the growth of labels.

Cost: with each.  Source: see :mod:`.remat`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import entries, step, tiered

UNREACHED = 2**30
"""Cycles of what is not possible."""


class Figures(NamedTuple):
    """What completions are made of; bytes in any unit, arrays by layer."""

    room: int  # bytes for what is live
    # int64: what a layer needs itself in its forward and its backward pass.
    forward: Array
    backward: Array
    # int64: bytes of a layer's tape and output, and of the output alone.
    products: Array
    outputs: Array
    cycles: Array  # int64: forward cycles, all together below `UNREACHED`
    retained: Array  # int64: charged if the run of a layer is computed again from a retained output
    # bool: whether the products of each layer may be kept, and dropped.
    may_keep: Array
    may_drop: Array
    retaining: bool  # whether an output may be retained whose layer is computed again
    longest: int  # layers of a run that are told apart; of a longer one only the last ones count


class Completions(NamedTuple):
    """Least cycles computed again from a layer on, by bytes kept of those before; int32."""

    # (layers + 1, room + 1): when the layer before is kept, or closed.
    kept: Array
    dropped: Array
    # (2, longest + 1, layers + 1, room + 1): when the last so many layers are an open run, which is
    # computed again from a tensor that is there (0) or must be retained from the run's end on (1).
    runs: Array


@step
def _clear(layer: int, least: Completions) -> None:
    """Let nothing be possible from a layer on."""
    levels = least.kept.shape[1]
    for held in range(levels):
        least.kept[layer, held] = UNREACHED
        least.dropped[layer, held] = UNREACHED
    for source in range(2):
        for length in range(least.runs.shape[1]):
            for held in range(levels):
                least.runs[source, length, layer, held] = UNREACHED


@step
def _without_run(layer: int, figures: Figures, least: Completions) -> None:
    """Find the least cycles from a layer on before which no run is open; O(room)."""
    room, cycles = figures.room, figures.cycles[layer]
    products, output = figures.products[layer], figures.outputs[layer]
    kept, dropped, runs = least.kept, least.dropped, least.runs
    # Beyond, the layer itself does not fit: unreached, as cleared.
    for held in range(room - max(figures.forward[layer], figures.backward[layer]) + 1):
        best = UNREACHED
        if figures.may_keep[layer] and held + products <= room:
            best = kept[layer + 1, held + products]
        if not figures.may_drop[layer]:
            kept[layer, held] = best
            dropped[layer, held] = best
            continue
        if (figures.retaining or output == 0) and held + output <= room:
            # The tape alone is computed again.
            best = min(best, cycles + kept[layer + 1, held + output])
        kept[layer, held] = min(best, cycles + runs[0, 1, layer + 1, held])
        dropped[layer, held] = best
        if figures.retaining:
            dropped[layer, held] = min(best, cycles + runs[1, 1, layer + 1, held])
        # Nothing that is read was closed.
        if layer > 0 and figures.outputs[layer - 1] == 0:
            dropped[layer, held] = kept[layer, held]


@step
def _within_runs(layer: int, figures: Figures, least: Completions, shorter: Array) -> None:
    """Find the least cycles from a layer on before which a run is open; O(longest * room).

    `least` is known behind the layer and gets those at it.  The kernel writes to `shorter`, int32
    (room + 1,): least cycles where only a part of the run goes on, from a retained output.
    """
    room, longest, cycles = figures.room, figures.longest, figures.cycles[layer]
    dropped, runs = least.dropped, least.runs
    for held in range(room + 1):
        shorter[held] = UNREACHED
    run = 0
    # A run of so many layers just before this one.
    for length in range(1, min(longest, layer) + 1):
        run += figures.products[layer - length]
        need = max(
            run + figures.backward[layer], figures.outputs[layer - 1] + figures.forward[layer]
        )
        for source in range(2):
            charge = figures.retained[layer - length] if source == 1 else 0
            # The first layer of a run that is longer than told apart is not known.
            following = source if length < longest else 0
            for held in range(room + 1):
                best = UNREACHED
                if held + charge <= room:
                    # The run ends: it is computed again, beside what is retained for it.
                    best = dropped[layer, held + charge]
                if figures.may_drop[layer]:
                    # The run goes on with this layer.
                    more = runs[following, min(length + 1, longest), layer + 1, held]
                    best = min(best, cycles + more)
                if held + need <= room:
                    runs[source, length, layer, held] = min(best, shorter[held])
                if source == 1 and figures.retaining:
                    shorter[held] = min(shorter[held], best)


def _steps_of_completing(figures: Figures, least: Completions, low: int, high: int) -> int:
    """Return the most steps of :func:`complete`."""
    del figures
    return int((high - low) * 6 * least.runs.shape[1] * least.kept.shape[1])


@tiered(_steps_of_completing)
def complete(figures: Figures, least: Completions, low: int, high: int) -> None:
    """Find the least cycles computed again from layers `low` up to `high` on, without skips.

    `least` is right from layer `high` on.  O(longest * room) a layer.
    """
    shorter = np.empty(figures.room + 1, np.int32)
    for layer in range(high - 1, low - 1, -1):
        _clear(layer, least)
        _without_run(layer, figures, least)
        _within_runs(layer, figures, least, shorter)


def _steps_of_growing(starts: Array, held: Array, again: Array, arcs: Array, *_: object) -> int:
    """Return the most steps of :func:`grow`: each arc may take every label of its state."""
    del starts, again
    return 5 * len(arcs) * len(held)


@tiered(_steps_of_growing)
def grow(
    starts: Array,
    held: Array,
    again: Array,
    arcs: Array,
    unit: int,
    scale: int,
    rows: Array,
    table: Array,
    upper: int,
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Return the labels that labels and arcs give, those left out that cannot beat `upper`.

    That is arrays of their target, bytes `held`, cycles `again`, label and arc, and the least
    cycles of any plan that goes on from there.  `starts` is where the labels of each state begin,
    and the end; by label, rising in each state, `held` are bytes kept and `again` cycles computed
    again.  `arcs`, (arcs, 5), are states before and after, bytes kept and cycles added, most bytes
    kept before.  `rows` and `table` are the row of each target, and least cycles to come by bytes
    kept, in which `unit` and `scale` are the bytes and cycles of one unit.  A plan of `upper`
    cycles is known.
    """
    total = 0  # each arc gives each label of its source once at most
    for arc in range(len(arcs)):
        total += starts[arcs[arc, 0] + 1] - starts[arcs[arc, 0]]
    found = np.empty((6, total), np.int64)
    count = 0
    for arc in range(len(arcs)):
        source, target, more, cycles, limit = arcs[arc]
        for label in range(starts[source], starts[source + 1]):
            # Bytes rise within a state: none of the others fits either.
            if held[label] > limit:
                break
            now = held[label] + more
            if now // unit >= table.shape[1]:
                break
            cost = again[label] + cycles
            rest = table[rows[target], now // unit]
            least = cost + rest * scale
            if rest >= UNREACHED or least >= upper:
                continue
            found[0, count], found[1, count], found[2, count] = target, now, cost
            found[3, count], found[4, count], found[5, count] = label, arc, least
            count += 1
    return (
        found[0, :count],
        found[1, :count],
        found[2, :count],
        found[3, :count],
        found[4, :count],
        found[5, :count],
    )


@tiered(entries)
def undominated(order: Array, target: Array, held: Array, again: Array) -> Array:
    """Return the labels that none dominates in bytes and cycles, of those with its target.

    All are int64 (labels,): `target`, `held` bytes and cycles `again` of each; `order` has the
    labels by target, then bytes, then cycles.
    """
    found = np.empty(len(order), np.int64)  # perhaps all
    count = 0
    last, best = -1, 0
    for label in order:
        # Bytes rise within a target: only fewer cycles make up for that.
        if target[label] != last or again[label] < best:
            last, best = target[label], again[label]
            found[count] = label
            count += 1
    return found[:count]
