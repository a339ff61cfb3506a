"""Numbers that steer the frontier method, a part of :mod:`stagepack.heuristics.graph.tuning`.

Prices are seconds of counted work; *by trial* as there.
"""

from __future__ import annotations

from dataclasses import dataclass

from stagepack.heuristics.tuning import Tuning


@dataclass(frozen=True, kw_only=True)
class NarrowOrderTuning(Tuning):
    """The order of blocks along which labels are swept."""

    not_zero = ("part",)

    tries: int = 400
    """Greedy orders of which the best is taken, at most; by trial."""

    visits: int = 400_000
    """Blocks that are put in order, in all, beyond the least number of orders; by trial."""

    least_tries: int = 20
    """The least number of orders; by trial."""

    noise: tuple[float, ...] = (0.0, 0.3, 0.9, 1.5)
    """The most that chance adds to the growth of a label, in fields, from order to order; by
    trial."""

    ahead: int = 64
    """Remaining blocks that are looked at for what bounds one of them; farther ones bound it
    less."""

    part: int = 10_000_000
    """Steps between two looks at the clock: less than a tenth of a second."""

    step_price: float = 2e-9
    """Of a step, that is, of a tie of a block that may be next."""

    look_price: float = 1.5e-7
    """Of a block of a net or of a successor that is looked at for the plan of a sweep."""

    entry_price: float = 3e-7
    """Of an entry of a plan."""

    row_entries: int = 4
    """Entries that the end of a row of a plan counts as."""


@dataclass(frozen=True, kw_only=True)
class SweepTuning(Tuning):
    """Sweeps of labels over the blocks."""

    not_zero = ("first_room", "buckets", "coarse_buckets", "every", "tried", "pairs")
    at_once = ("first_room",)

    memory: int = 2**31
    """Bytes that labels and tables may take, those of the decisions under way together."""

    compared: int = 200
    """Labels of equal anchors that a new one is compared with; by trial."""

    coarsest: int = 8
    """How often merging may be made coarser in a step, where labels take too much room."""

    first_room: int = 1_024
    """Labels for which there is room at first."""

    buckets: int = 64
    """Buckets of loads in tables of the least loads beyond each cut, at most; by trial."""

    coarse_buckets: int = 24
    """Buckets where three stages stand for all; by trial."""

    kept: int = 3_000
    """Labels that are kept at a cut for the other direction at most; by trial."""

    every: int = 2
    """Cuts from one where labels are kept to the next; by trial."""

    matched: int = 10**7
    """Pairs of labels that are matched at a cut at most; by trial."""

    tried: int = 30_000
    """Labels that are tried between two looks at the clock."""

    pairs: int = 500_000
    """Pairs of labels that are matched between two looks at the clock."""

    label_price: float = 5e-7
    """Of a label that is tried."""

    pair_price: float = 1.5e-8
    """Of a pair that is matched."""

    call_price: float = 2e-5
    """Of a call of the kernel."""

    meeting_price: float = 1.5e-5
    """Of looking at labels that the other direction kept."""

    entry_price: float = 4e-9
    """Of an entry of a table."""

    thinning_price: float = 1.5e-5
    """Of thinning labels out to a beam."""

    ranking_price: float = 1.5e-7
    """Of a label that is ranked for that."""


@dataclass(frozen=True, kw_only=True)
class ReachTuning(Tuning):
    """How far the first and the last stages reach."""

    precision: float = 0.01
    """Part of the limit to which the work that a step reaches is found; by trial."""

    deltas: tuple[float, ...] = (0.08, 0.04, 0.02, 0.01)
    """Parts of the limit within which loads are merged, sweep after sweep; by trial."""

    patience: float = 0.3
    """Seconds of work for one decision, on a graph of a thousand blocks; without an answer a step
    is taken to reach that far; by trial."""


@dataclass(frozen=True, kw_only=True)
class LabelsTuning(Tuning):
    """The frontier method: which limits labels decide, and how long."""

    order: NarrowOrderTuning = NarrowOrderTuning()
    """The order of blocks."""

    sweeps: SweepTuning = SweepTuning()
    """Sweeps over them."""

    reach: ReachTuning = ReachTuning()
    """What stages reach."""

    use_limits_between: bool = True
    """Switch: limits between the bound and the best partition are decided, too.  Without them
    bounds of 3 of 4 open graphs of 100 to 200 operators were 3.6 to 4.5 % lower after 4 s."""

    use_reach: bool = True
    """Switch: bounds by how far the first and the last stages reach.  Without them none of 9 open
    graphs was otherwise after 2 s of work; of 3 after 8 s the bound of one was 12 % lower."""

    use_local_search: bool = True
    """Switch: local search in turns with labels.  Without it ``frontier`` came to a value 0.8 %
    worse on a graph of 100 operators in 10 s; ``auto``, which has it before, to the same ones."""

    most_nodes: int = 10_000
    """Nodes up to which labels apply: it is told of all pairs of them which comes first."""

    most_device_orders: int = 24
    """Orders of unlike devices that are tried one by one."""

    deltas: tuple[float, ...] = (0.08, 0.04, 0.02, 0.01, 0.005, 0.0025, 0.00125, 0.0, 0.0)
    """Parts of the limit within which loads are merged, sweep after sweep; by trial."""

    beam: int = 1_000
    """Labels of a beam that looks for a partition; by trial."""

    widest_beam: int = 200_000
    """Labels of a beam where nothing was merged any more."""

    beam_from: float = 0.02
    """Merging up to which a beam looks for a partition after each sweep; by trial."""

    steps: tuple[float, ...] = (0.0, 0.02, 0.005, 0.001)
    """Parts by which a beam that found a partition is to better it; by trial."""

    between: tuple[float, ...] = (0.5, 0.25)
    """Where limits are tried between the bound and the best partition, in parts of the gap; by
    trial."""

    close: float = 0.001
    """Gap, as part of the best partition's value, within which only the limit just below it is
    tried; by trial."""

    near_low: float = 0.75
    """A limit that was begun is gone on with where it is at least so many times as far above the
    bound as one that is to be tried; by trial."""

    near_high: float = 1.5
    """And less than so many times as far above the bound as that one; by trial."""

    round_seconds: float = 1.5
    """Seconds of work in the first round for the limit just below the best partition, on a graph of
    a thousand blocks; every round has twice that of the one before; by trial."""

    least_size: float = 0.25
    """Thousands of blocks that small graphs count as; by trial."""

    between_share: float = 0.5
    """Part of that for each limit between the bound and the best partition; by trial."""

    extension: float = 3.0
    """Times as much that a limit gets on top once a sweep of it came to its end; by trial."""

    reach_share_near: float = 0.15
    """Part of a round's work for how far stages reach, where labels of all stages are near to an
    end; by trial."""

    reach_share_far: float = 4.0
    """That part where they are far from any; by trial."""

    local_share_near: float = 0.35
    """Part of a round's work for local search, where labels are near to an end; by trial."""

    local_share_far: float = 0.7
    """That part where they are far from any; by trial."""

    local_share_idle: float = 1.5
    """That part where they are near and a round gained nothing else; by trial."""

    step_near: float = 0.25
    """Part of the gap that is tried next by how far stages reach, where labels are near; by
    trial."""

    step_far: float = 0.12
    """That part where they are far; by trial."""

    known_well: float = 0.005
    """Part of the best partition's value to which it is found how far stages reach; by trial."""


@dataclass(frozen=True, kw_only=True)
class BeamTuning(Tuning):
    """The method ``beam``."""

    widths: tuple[int, ...] = tuple(50 * 4**power for power in range(6))
    """Labels that live on, from round to round."""

    grain: int = 1_000
    """Limits are tried until they are one part of so many above one that failed."""
