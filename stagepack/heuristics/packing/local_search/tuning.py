"""Numbers that steer local searches."""

from __future__ import annotations

from dataclasses import dataclass

from stagepack.heuristics.tuning import Tuning


@dataclass(frozen=True, kw_only=True)
class AnnealingTuning(Tuning):
    """Annealing over first-fit orders."""

    budget: int = 8_000_000
    """Steps of a call of the kernel: less than a tenth of a second."""

    step: float = 5e-9
    """Seconds of a step where first fit marks what is taken; measured."""

    heap_step: float = 2.8e-9
    """Seconds of a step where it has a heap: most that goes in never comes out; measured."""

    marks: int = 512
    """Words of 64 units of memory that first fit marks; where memory has more units it takes a
    heap."""

    made: float = 3e-4
    """Seconds of making a search; measured."""

    shaped_entry: float = 1e-7
    """Seconds of an entry of its rows where lifetimes are of any shape; measured."""

    entry: float = 4e-9
    """Seconds of an entry, and of a pair looked at, where each block lives once; measured."""

    hottest: float = 0.1
    """First temperature of a cooling, as a part of the mean size of a block; by trial."""

    coldest: float = 0.01
    """Last temperature of a cooling, as a part of the mean size of a block; by trial."""

    cooling: int = 30
    """Calls of the kernel in a cooling; by trial."""

    target_steps: int = 256
    """The target is a unit, or one part in so many of what the peak exceeds the bound by, below the
    peak; by trial."""

    @property
    def leg(self) -> float:
        """Seconds of work of a call of the kernel at most."""
        return self.step * self.budget


@dataclass(frozen=True, kw_only=True)
class CoreTuning(Tuning):
    """Packings built from a core."""

    heavy: float = 0.9
    """Part of the greatest load under which a block must live to belong to the core; by trial."""

    levels: tuple[float, ...] = (0.8, 0.7)
    """Parts of the greatest load that bound the levels around a core, which are placed one after
    the other; by trial."""

    dived_blocks: int = 20_000
    """Blocks of a core up to which it is packed by dives, and up to which a few are placed again
    around it."""

    refilled_meetings: int = 1_000_000
    """Pairs alive together, in either order, above which a core is packed by valleys, again and
    again; by trial."""

    annealed_meetings: int = 10_000_000
    """Pairs alive together, in either order, above which a core is not annealed; by trial."""

    rounds: int = 24
    """Times that a core grows."""

    hasty_rounds: int = 3
    """Rounds, but for the first, that end as soon as a block is to join, before the rest is placed;
    by trial."""

    refill_share: int = 4
    """Times as long as placing the others takes that a core in which many meet is filled anew at
    least; by trial."""

    most_calls: int = 96
    """Calls of the kernel of annealing in a round; twice as many as before when nothing has joined;
    by trial."""

    clear: int = 2
    """Blocks that stick out and are so few that no other rule is asked which must join."""

    joining: int = 20
    """Blocks that stick out and may join the core after one round; by trial."""


@dataclass(frozen=True, kw_only=True)
class HotSpotTuning(Tuning):
    """Windows of time around the highest blocks of large packings, placed again by best fit."""

    first_window: int = 500
    """Blocks in a first window; by trial."""

    pair_limit: int = 20_000_000
    """Pairs of a block that is placed again and one that it meets, the heaviest load first: part of
    a second."""

    longest_pair_limit: int = 100_000_000
    """Pairs of a block that is placed again and one that it meets, the longest first: part of a
    second."""

    margin: int = 8
    """Sections around a block at least."""

    narrowed: int = 4
    """By how much a window with too many pairs becomes narrower at a time."""

    doublings: int = 5
    """Times that a window is doubled at most; by trial."""

    noise: float = 0.1
    """Deviation of the logarithm of lifetimes by which the order is changed once a window has
    grown; by trial."""

    report_part: int = 300
    """A peak is reported once it has fallen by one part in so many: to check it takes as long as
    some windows."""


@dataclass(frozen=True, kw_only=True)
class RepairTuning(Tuning):
    """Windows of time around the highest block, annealed or searched again."""

    searched_blocks: int = 600
    """Blocks of a window up to which it is first searched exhaustively; by trial."""

    nodes: int = 5_000
    """Nodes of the first search of a window, doubled at every further try."""

    cut_blocks: int = 30_000
    """Blocks alive in a window that is wider than the first at its place."""

    movable_blocks: int = 4000
    """Blocks that are placed again; with more, first-fit orders change too slowly."""

    pair_limit: int = 4_000_000
    """Pairs of one that is placed again and one that it meets: memory of 8 bytes each."""

    cut: float = 1e-3
    """Seconds of cutting a window out; measured."""

    cut_block: float = 2e-6
    """Seconds of a block of a window that is cut out; measured."""

    calls: int = 2
    """Calls of the kernel of annealing in the first window at a place; doubled as it grows."""


@dataclass(frozen=True, kw_only=True)
class OverlapTuning(Tuning):
    """Minimising overlaps below a ceiling."""

    budget: int = 4_000_000
    """Steps of a call of the kernel: less than a tenth of a second."""

    step: float = 4e-9
    """Seconds of a step; measured."""

    entry: float = 3e-8
    """Seconds of an entry of the rows, each time that overlaps are listed; measured."""

    first_try: float = 0.25
    """Seconds of work for a ceiling at first; twice as many once the nearest has failed."""

    nearest: float = 1 / 500
    """The least part of the way to the target by which a ceiling is lowered; by trial."""
