"""Lower bounds above the load bound: windows of time that are proved infeasible.

The blocks alive in a run of consecutive sections must fit there whatever happens before and after.
Their lifetimes are clipped to this window, and blocks alive in all of it become a constant.  If the
exact search proves that the window does not fit a capacity, neither does the instance.  Runs of up
to three sections always reach the load bound, so windows begin at four sections and double; the
certificate is the window with its exhausted tree.

Cost: `tried` windows of each width a pass, `nodes` nodes each in the first.  Source: own work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from stagepack.heuristics.packing.exact_search import exact
from stagepack.heuristics.packing.exact_search.exact_state import too_large
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.progress import Stopped
from stagepack.result import Status


@dataclass(frozen=True)
class Window:
    """A run of sections that is too full, and what it proves."""

    # The sections [first, end).
    first: int
    end: int
    bound: int  # every packing of the instance has at least this peak, in bytes
    nodes: int  # size of the exhausted tree


def unsupported(blocks: Blocks) -> str:
    """Return why there are no windows in `blocks`, or ''."""
    if not blocks.linear:
        return "windows need lifetimes on a line, neither circular nor a conflict graph"
    return too_large(blocks)


def windows(
    blocks: Blocks,
    lower: int = 0,
    *,
    keep_going: Callable[[], bool] | None = None,
    passes: int | None = None,
    tuning: PackingTuning = TUNING,
) -> Iterator[Window]:
    """Yield windows with ever higher bounds.

    There is no objection to the blocks by :func:`unsupported`; `lower` is a lower bound on the peak
    that is already known.  The windows end once `keep_going`, asked at least every 0.2 s or so,
    returns False, and after so many `passes` over all widths, if given, else when every window
    tried is known to fit.
    """
    bound = max(lower, int(blocks.load.max(initial=0)))
    fitting: list[tuple[int, int]] = []  # windows that fit the bound, so all within them do
    nodes, number = tuning.windows.nodes, 0
    while passes is None or number < passes:
        undecided = 0
        for first, end in _candidates(blocks, tuning=tuning):
            if any(a <= first and end <= b for a, b in fitting):
                continue
            try:
                packing = exact.prepared(blocks, first, end, keep_going, tuning=tuning)
            except Stopped:
                return
            while True:
                decision = exact.decide_packing(
                    packing,
                    bound,
                    keep_going=keep_going,
                    node_limit=nodes,
                    tuning=tuning,
                )
                if decision.status is not Status.INFEASIBLE:
                    break
                bound = decision.bound
                yield Window(first, end, bound, decision.nodes)
                if keep_going is not None and not keep_going():
                    return
            if keep_going is not None and not keep_going():
                return
            if decision.status is Status.FEASIBLE:
                fitting.append((first, end))
            else:
                undecided += 1
        if not undecided:
            return
        nodes, number = 8 * nodes, number + 1


def _candidates(blocks: Blocks, *, tuning: PackingTuning) -> Iterator[tuple[int, int]]:
    """Yield windows [first, end), the narrower and then the heavier first."""
    sections, width = blocks.sections, tuning.windows.narrowest
    running = np.concatenate([[0], np.cumsum(blocks.load)])
    while width < sections:
        first = np.unique(
            np.append(np.arange(0, sections - width, max(1, width // 4)), sections - width)
        )
        heaviest = np.argsort(running[first] - running[first + width], kind="stable")
        for begin in first[heaviest[: tuning.windows.tried]].tolist():
            yield begin, begin + width
        width *= 2
    yield 0, sections
