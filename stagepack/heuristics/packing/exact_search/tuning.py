"""Numbers that steer the exact searches, and the bounds that they give."""

from __future__ import annotations

from dataclasses import dataclass

from stagepack.heuristics.tuning import Tuning


@dataclass(frozen=True, kw_only=True)
class SearchTuning(Tuning):
    """The exact search of a capacity, and the portfolio of its orders."""

    not_zero = ("pause_steps",)

    pair_limit: int = 10_000_000
    """Pairs of blocks alive together that a search holds in memory: 16 bytes each."""

    shaped_pair: int = 50
    """How many times as much a pair takes where blocks are not of full height at all times."""

    patience: int = 8
    """Times in a row that the bound goes up by the least step before leaps begin; by trial."""

    beams: bool = True
    """Whether beams are searched beside the orders."""

    beams_rounds: int = 2
    """Rounds before which beams wait for `beams_late`, and after which for `beams_early`;
    by trial."""

    beams_early: float = 0.005
    """Seconds of work in orders before beams begin, in later rounds; by trial."""

    beams_late: float = 0.1
    """Seconds of work in orders before beams begin, in the first rounds; by trial."""

    beams_eager: float = 2.0
    """Seconds of beams for each second of a round, at first: they find what has hardly any room; by
    trial."""

    beams_share: float = 1.0
    """Seconds of beams for each second of a round once orders have taken `beams_eager_until`: beams
    prove nothing; by trial."""

    beams_eager_until: float = 1.0
    """Seconds of work in the orders of a component; by trial."""

    beams_turn: float = 0.01
    """Seconds of work of a turn of beams at least."""

    steady_orders: int = 2
    """Orders, the first of the table, that are tried in each of the first rounds; by trial."""

    turning_orders: int = 4
    """Other orders that are tried in each of the first rounds, in turn; by trial."""

    first_rounds: int = 3
    """Rounds of orders in turn, before orders are drawn."""

    first_noise: float = 0.02
    """Deviation of the logarithm of a factor of the first key in the last of the first rounds: near
    ties break anew."""

    noise: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.3)
    """Deviations out of which one is drawn for an order that is drawn; by trial."""

    drawn: int = 2
    """Orders drawn in a round for searches of all of its node limit; by trial on relatives."""

    short_levels: tuple[int, ...] = (1, 2, 4)
    """Rounds whose node limits as much work goes to again: which length succeeds is not known,
    after Luby."""

    shortest: int = 512
    """Nodes of the least node limit that is taken again; by trial."""

    budget: int = 6_000_000
    """Steps of the kernel between two looks at the clock: well under 0.2 s."""

    step: float = 1 / 420_000_000
    """Seconds of a step; measured."""

    start: float = 1e-4
    """Seconds of beginning a search, apart from what its size costs; measured."""

    start_part: float = 3e-5
    """Seconds of beginning a part of what is left; measured."""

    explained_steps: int = 1_000_000
    """Steps that the explanation of a failure may take; then all placements are blamed."""

    explained_placements: int = 1_000
    """Placements that are noted as the reason of an exclusion; of more, all are blamed."""

    byte: float = 5e-10
    """Seconds of a byte of new memory; measured."""

    component: float = 1e-3
    """Seconds of making a component, apart from its rows; measured."""

    component_entry: float = 6e-8
    """Seconds of an entry of its rows; measured."""

    chosen: float = 4e-8
    """Seconds of a block or piece out of which those that may move are chosen; measured."""

    pause_steps: int = 256
    """Quick steps of making a component between two looks at the clock."""


@dataclass(frozen=True, kw_only=True)
class GeneralTuning(Tuning):
    """The exact search of blocks of any shape."""

    budget: int = 10_000_000
    """Steps of the kernel between two looks at the clock: well under 0.2 s."""

    step: float = 1 / 500_000_000
    """Seconds of a step; measured."""

    start: float = 1e-4
    """Seconds of beginning a search, apart from what its size costs; measured."""

    component: float = 2e-3
    """Seconds of making a component, apart from its rows; measured."""

    component_entry: float = 2e-7
    """Seconds of an entry of its rows; measured."""

    connected: float = 1e-5
    """Seconds of finding a connected part; measured."""

    first_limit: int = 4
    """Nodes a block in the first round, doubled from round to round; by trial."""

    raises: int = 4
    """Raised places a block after which no more follows from a raise in a node: blocks that rest on
    each other only may rise for long; by trial."""

    deduction_steps: int = 1_000_000
    """Steps of a node after which no more follows from a raise."""

    divided: int = 64
    """Blocks up to which a part is divided at every node; by trial."""

    divided_seldom: int = 16
    """Larger parts are divided once in so many nodes: that takes a look at all blocks; by trial."""


@dataclass(frozen=True, kw_only=True)
class PlaceTuning(Tuning):
    """Where blocks may lie: legal offsets as spans, and holes that no block may fill."""

    budget: int = 5_000_000
    """Spans gone through at once, between two looks at the clock."""

    span: float = 4e-9
    """Seconds of a span; measured."""

    span_limit: int = 100_000_000
    """Spans of all sections from which on holes are not sought: some seconds."""

    hole_limit: int = 2_000_000
    """Holes kept at most: memory of 16 bytes each."""

    section_holes: int = 100_000
    """Holes of a section at most, which every node goes through."""


@dataclass(frozen=True, kw_only=True)
class WindowTuning(Tuning):
    """Bounds above the load: windows of time that are refuted."""

    narrowest: int = 4
    """Sections of the first windows: what is alive in up to three always packs into the load."""

    tried: int = 64
    """Windows of each width that are searched, the heaviest; by trial."""

    nodes: int = 1000
    """Nodes that a window may cost in the first pass; eightfold in every further one."""

    logged: int = 16
    """Windows of each width that are refuted step by step where a proof is asked for; by trial."""

    log_budget: int = 4_000_000
    """Steps of the kernel that writes a proof between two looks at the clock: under 0.1 s."""

    log_rounds: int = 16
    """Rounds in which raises are passed on at a node that is written: some go on for long, by
    little."""

    log_step: float = 5e-9
    """Seconds of a step of the kernel that writes a proof; measured."""
