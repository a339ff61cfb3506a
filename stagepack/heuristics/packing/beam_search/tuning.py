"""Numbers that steer beam searches."""

from __future__ import annotations

from dataclasses import dataclass

from stagepack.heuristics.tuning import Tuning


@dataclass(frozen=True, kw_only=True)
class BeamTuning(Tuning):
    """Beam searches from the bottom up."""

    budget: int = 4_000_000
    """Steps of the kernel between two looks at the clock: about 10 ms."""

    step: float = 1 / 750_000_000
    """Seconds of a step; measured."""

    odd_slowness: float = 1.7
    """How many times as long a step takes where not every place is legal; measured."""

    cached_state: int = 1 << 20
    """Bytes from which on a state leaves the cache of a processor; measured."""

    uncached_slowness: float = 2.5
    """How many times as long a step takes then; measured."""

    start: float = 5e-5
    """Seconds of beginning a search; measured."""

    start_item: float = 1e-8
    """Seconds of beginning a search, for each block and section; measured."""

    resize: float = 4e-5
    """Seconds of making arrays for another width; measured."""

    resize_state: float = 4e-8
    """Seconds of making arrays for another width, for each state of it; measured."""

    memory: int = 1 << 28
    """Bytes of states at most; the beam is narrowed where more would be needed."""

    states_an_order: int = 8
    """States kept at most for each order of few blocks: wider beams would only take longer."""

    ordered_blocks: int = 8
    """Blocks up to which a beam is kept as narrow as their orders are few."""

    proposals: int = 16
    """Proposals that wait at a level for each state kept there; by trial."""

    made: int = 4
    """States made for each that is kept; by trial."""

    passes: int = 3
    """Passes in which the effective offsets of excluded blocks are raised; by trial."""

    narrowest: int = 16
    """Least width of a beam; the first are so wide and twice as wide, in turn, then of widths by
    Luby's sequence."""

    halvings: int = 4
    """How often the way from the target to the peak is halved before the target is tried again; by
    trial."""

    endings: bool = True
    """Whether what a state leaves is packed by exact search."""

    ending_share: float = 0.5
    """Seconds that packing what states leave takes, for each of judging states; by trial."""

    ending_level: float = 0.02
    """Part of the levels after which packing what states leave is tried; by trial."""

    ending_nodes: tuple[int, ...] = (2, 4)
    """Nodes of a search for what a state leaves, for each block of a part: one of these is drawn;
    by trial."""
