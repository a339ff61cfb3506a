"""The lowest-offset dive: always places the block with the lowest possible offset, on a skyline.

The dive keeps a skyline over the sections.  Each step places the block that can be lowest; ties are
broken by a given order.  Nothing is placed below the skyline later.  A block is examined once each
time the skyline under it rises: O((b + rises) log b).  Source: own work; skylines as in strip
packing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.packing.constructive.dive_kernels import begin, proceed
from stagepack.heuristics.packing.constructive.greedy import KeepGoing
from stagepack.heuristics.packing.constructive.rules import Measures
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array

ORDERS: dict[str, Callable[[Measures], tuple[Array, ...]]] = {
    "heaviest-longest": lambda m: (-m.heaviest_load, -m.sections, -m.area),
    "heaviest-lifetime": lambda m: (-m.heaviest_load, -m.lifetime, -m.area),
    "area-longest": lambda m: (-m.area, -m.sections, -m.heaviest_load),
    "longest-area": lambda m: (-m.sections, -m.area, -m.heaviest_load),
}
"""Keys by which the blocks that could go equally low are ordered, ascending."""


def unsupported(blocks: Blocks) -> str:
    """Return why the skyline does not apply to `blocks`, or ''."""
    if not blocks.plain:
        return "the dive needs plain blocks: no gaps, circular time, ranges or odd alignments"
    return ""


def place(
    blocks: Blocks,
    order: Array,
    *,
    keep_going: KeepGoing | None = None,
    tuning: PackingTuning = TUNING,
) -> Array | None:
    """Place all blocks, plain ones, by one dive; None when time is over.

    `order`, int64 (b,), says which of the blocks that could go equally low comes first.
    `keep_going` is asked several times a second.
    """
    first, end, size = (np.array(values) for values in (blocks.first, blocks.end, blocks.size))
    offsets = np.full(blocks.b, -1, dtype=np.int64)
    dive = begin(blocks.b, blocks.sections)
    effort.spend(tuning.prices.call + tuning.prices.item * (blocks.b + blocks.sections))
    effort.spend(
        tuning.dive.step * min(tuning.dive.budget, tuning.dive.steps_a_block * blocks.b)
    )  # the last call
    budget = tuning.dive.budget
    while proceed(dive, order, first, end, size, blocks.segment, offsets, budget):
        effort.spend(tuning.dive.step * tuning.dive.budget)
        if keep_going is not None and not keep_going():
            return None
    return offsets
