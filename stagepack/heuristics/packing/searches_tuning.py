"""Numbers that steer each search of packings by itself, as :mod:`.tuning` combines them."""

from __future__ import annotations

from dataclasses import dataclass

from stagepack.heuristics.tuning import Tuning


@dataclass(frozen=True, kw_only=True)
class GreedyTuning(Tuning):
    """Greedy rules."""

    budget: int = 8_000_000
    """Entries of lists that a kernel looks at in a call: a tenth of a second at most."""

    step: float = 5.5e-9
    """Seconds of an entry looked at in slabs; measured."""

    list_step: float = 3e-9
    """Seconds of an entry looked at in lists; measured."""

    placement: float = 2.5e-4
    """Seconds of a placement, apart from what its blocks cost; measured."""

    ordered: float = 4e-7
    """Seconds of a block that is ordered; measured."""

    slab_widths: int = 64
    """Changes of the width of slabs in an order from which on one width serves all of it;
    by trial."""

    scalable_from: int = 60_000
    """Blocks above which only rules that scale are run: others take longer than cores; by trial."""


@dataclass(frozen=True, kw_only=True)
class ValleyTuning(Tuning):
    """Filling the valleys of a skyline."""

    not_zero = ("budget", "report_part")

    budget: int = 100_000
    """Steps of a call of the kernel: less than a tenth of a second."""

    step: float = 1.4e-7
    """Seconds of a step where blocks are many; measured."""

    block: float = 6e-8
    """Seconds of a block beside its steps; measured."""

    widest_ring: float = 1.25
    """The largest ring that is tried, as a multiple of the greatest load; by trial."""

    ring_halvings: int = 10
    """How often the way to the smallest ring is halved: to a thousandth."""

    high: float = 0.6
    """Part of the way from the target to the least peak above which a block goes a class earlier;
    by trial."""

    astray: float = 1.01
    """A peak so many times the least one is not gone on from; by trial."""

    report_part: int = 1000
    """A peak is reported once it has fallen by one part in so many: to check it takes as long as a
    placement."""

    fitted_meetings: int = 50_000_000
    """Pairs of pieces alive together, of blocks in pieces, that first fit places before valleys:
    about a second."""

    late_meetings: int = 10_000_000
    """Pairs of pieces alive together, of blocks in pieces, that first fit places although time is
    over."""


@dataclass(frozen=True, kw_only=True)
class DiveTuning(Tuning):
    """Dives to the lowest offset."""

    not_zero = ("budget",)

    budget: int = 200_000
    """Steps of a call of the kernel: about a tenth of a second."""

    step: float = 1.5e-7
    """Seconds of a step; measured."""

    steps_a_block: int = 20
    """Steps that a block takes at least; measured."""


@dataclass(frozen=True, kw_only=True)
class ConflictTuning(Tuning):
    """First fit straight over a conflict graph."""

    not_zero = ("budget",)

    budget: int = 2_000_000
    """Neighbours that a kernel looks at in a call: less than a tenth of a second."""

    entered: float = 5e-9
    """Seconds of an end of a conflict that is entered into rows; measured."""

    weighed: float = 3e-9
    """Seconds of an end of a conflict that is gone through; measured."""

    placed: float = 2.5e-8
    """Seconds of a neighbour in first fit; measured."""

    buffer: float = 2e-8
    """Seconds of a buffer in first fit, beside its neighbours; measured."""

    joined: float = 3e-9
    """Seconds of a step towards a clique; measured."""

    listed: float = 7e-9
    """Seconds of a conflict in first fit from the list, to look up its other buffer; measured."""

    listed_bit: float = 5e-9
    """Seconds to sort a conflict in first fit from the list, for every bit of the number of those
    in a row; measured."""

    clique_passes: int = 2
    """Times that all neighbours are looked at in search of a heavy clique by one key; by trial."""

    peeled: int = 60_000_000
    """Steps of taking away neighbours until a clique is left; by trial."""

    widest: int = 2_000_000
    """Neighbours of its neighbours up to which a clique is sought so around a buffer: less than a
    tenth of a second."""

    dived: float = 1e-6
    """Seconds of a buffer in a dive, beside its neighbours; measured."""

    crowded: float = 5.0
    """Neighbours that buffers have on average where dives come before sweeps; by trial."""

    sweeps: int = 4
    """Sweeps of one kind before as many of the other; by trial."""

    high: float = 0.9
    """Part of the peak above which a buffer comes a class earlier; by trial."""


@dataclass(frozen=True, kw_only=True)
class SpillTuning(Tuning):
    """The choice of memories by value."""

    not_zero = ("budget",)

    rounds: int = 20
    """Times that a memory is packed anew with fewer buffers before it goes without the rest; by
    trial."""

    budget: int = 20_000_000
    """Sections that a kernel looks at in a call: a fiftieth of a second."""

    step: float = 1e-9
    """Seconds of a section looked at; measured."""

    made: float = 1e-3
    """Seconds of a normal form, apart from what its size costs; measured."""

    buffer: float = 1e-7
    """Seconds of each buffer that may be in a memory; measured."""


@dataclass(frozen=True, kw_only=True)
class BoundTuning(Tuning):
    """Lower bounds without search."""

    clique_steps: int = 5_000
    """Blocks looked at in search of the heaviest clique of a conflict graph: some hundredths of a
    second."""

    clique_blocks: int = 1_000
    """Blocks among which that clique is sought: those with the heaviest neighbours; by trial."""


@dataclass(frozen=True, kw_only=True)
class RelocationTuning(Tuning):
    """Keeping buffers where they were."""

    not_zero = ("budget",)

    rounds: int = 6
    """Greedy placements around what is kept, half of what is in the way released after each; by
    trial."""

    returns: int = 20
    """Passes in which blocks go back to old places; by trial."""

    entry: float = 2e-9
    """Seconds of a buffer or piece that another one is held against; measured."""

    checked: float = 1.7e-7
    """Seconds of a buffer in a check of what is kept; measured."""

    made: float = 6e-4
    """Seconds of a check or a normal form, apart from what its size costs; measured."""

    sieved: float = 1e-9
    """Seconds of a step of the sieve; measured."""

    budget: int = 50_000_000
    """Steps of a call of the sieve: a twentieth of a second."""

    searched_blocks: int = 20_000
    """Blocks up to which one buffer after the other is tried at its old place; by trial."""

    proved_blocks: int = 2_000
    """Blocks up to which `auto` asks a model for a proof; by trial."""

    model_work: float = 60.0
    """Work of that model, in seconds of the engine, where nothing else limits it."""

    share: float = 0.2
    """Part of a limited run that is kept for moving little, where the peak comes first."""


@dataclass(frozen=True, kw_only=True)
class SearchTuning(Tuning):
    """The exact search of a capacity, and the portfolio of its orders."""

    not_zero = ("shaped_pair", "budget", "pause_steps")

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

    not_zero = ("budget", "first_limit", "divided_seldom")

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

    not_zero = ("budget", "hole_limit", "section_holes")

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

    not_zero = ("narrowest", "nodes", "log_budget")

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


@dataclass(frozen=True, kw_only=True)
class BeamTuning(Tuning):
    """Beam searches from the bottom up."""

    not_zero = ("budget", "proposals", "made", "narrowest")

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


@dataclass(frozen=True, kw_only=True)
class AnnealingTuning(Tuning):
    """Annealing over first-fit orders."""

    not_zero = ("budget", "step", "hottest", "target_steps")

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
class OverlapTuning(Tuning):
    """Minimising overlaps below a ceiling."""

    not_zero = ("budget", "step")

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
