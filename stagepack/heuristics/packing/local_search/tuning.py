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
    """Blocks of a core up to which it is packed by dives."""

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
