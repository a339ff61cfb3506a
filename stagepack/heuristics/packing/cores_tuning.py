"""Numbers that steer packing from cores, as :mod:`.tuning` combines them with all others."""

from __future__ import annotations

from dataclasses import dataclass

from stagepack.heuristics.tuning import Tuning


@dataclass(frozen=True, kw_only=True)
class CoreTuning(Tuning):
    """Packings built from a core."""

    heavy: float = 0.995
    """Part of the greatest load under which a block must live to belong to the core; by trial."""

    levels: tuple[float, ...] = (0.99, 0.98, 0.97, 0.95, 0.93, 0.9, 0.85, 0.8, 0.7)
    """Parts of the greatest load that bound the levels around a core, which are placed one after
    the other, in wider steps as there is more room; by trial."""

    searched: float = 0.5
    """Seconds of work of an exact search for a core, or for a level around it: most that succeed
    take a tenth of that."""

    searched_meetings: int = 3_000_000
    """Pairs alive together, in either order, up to which a core, or a level around it, is
    searched; by trial."""

    dived_blocks: int = 20_000
    """Blocks of a core up to which it is packed by dives."""

    refilled_meetings: int = 1_000_000
    """Pairs alive together, in either order, above which a core is packed by valleys, again and
    again; by trial."""

    annealed_meetings: int = 10_000_000
    """Pairs alive together, in either order, above which a core is not annealed; by trial."""

    rounds: int = 96
    """Times that a core grows."""

    vain: int = 4
    """Rounds after which a peak half way to the lowest one known is tried for; by trial."""

    hasty_rounds: int = 3
    """Rounds, but for the first, that end as soon as a block is to join, before the rest is placed;
    by trial."""

    worth: float = 0.7
    """Part of the way from the target to the lowest packing known up to which all others are placed
    in later rounds although some are to join; by trial."""

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
