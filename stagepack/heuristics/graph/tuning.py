"""Numbers that steer the searches of graph partitions.

Prices are seconds of counted work (:mod:`stagepack.heuristics.effort`), measured.  *By trial*: the
best of a few values on public and generated graphs, of which no table is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stagepack.heuristics.graph.frontier.tuning import BeamTuning, LabelsTuning
from stagepack.heuristics.tuning import Tuning


@dataclass(frozen=True, kw_only=True)
class AutoTuning(Tuning):
    """Steps of ``auto``, which can be switched off, and their shares of the time of a run."""

    everything: bool = True
    """Switch: all partitions of a few blocks are tried, where figures are rounded or ``dp`` does
    not apply.  Without it 22 of 328 graphs of 3 to 7 nodes, half of them with large figures beside
    small ones, were not proved."""

    ideals: bool = True
    """Switch: the dynamic program over ideals."""

    metis: bool = True
    """Switch: the parts of METIS are cut again.  Without it 2 of 25 open graphs of 60 to 5,000
    operators were 1.0 and 1.6 % worse after 4 s of work, and none better."""

    many_orders: bool = True
    """Switch: many topological orders are cut; a few are in any case.  Without it 12 of these 25
    graphs were worse, by up to 2.3 %, and 1 better."""

    local_search: bool = True
    """Switch: simulated annealing before, beside and after what proves bounds.  Without its rounds
    before, 8 of 23 of these graphs were worse, by up to 8.1 %, and none better."""

    cp_sat: bool = True
    """Switch: CP-SAT, on small graphs and where nothing else proves anything.  Without it 2 of 15
    of these graphs were worse, by up to 0.4 %, and none better."""

    labels: bool = True
    """Switch: the frontier method.  Without it bounds of 5 of 9 open graphs of 80 to 300 operators
    were 0.9 to 7.2 % lower after 2 s of work, and none higher."""

    rows: bool = True
    """Switch: a linear program of which the bound is verified."""

    first_try: float = 1.5
    """Seconds of work of the first try to list and sweep all ideals at most; by trial."""

    ideals_share: float = 0.15
    """Part of what is left of the run for a try of all ideals; by trial."""

    few_ideals_share: float = 0.6
    """That part where so few ideals are listed that they can be swept in it; by trial."""

    ideals_reserve: float = 0.3
    """Part of what is left, by the clock, that is kept where listing ideals takes far longer than
    its work stands for; by trial."""

    retry_factor: float = 3.0
    """Times as much work as was too little for all ideals, for which a second try is worth it; by
    trial."""

    rounds: int = 8
    """Rounds of local search at most before what proves more, where ``dp`` applies; by trial."""

    rounds_before_models: int = 2
    """Rounds of local search where only models prove anything; by trial."""

    local_share: float = 0.3
    """Part of what is left after which no further round begins; by trial."""

    patience: int = 2
    """Rounds in a row that may find nothing, where labels go on in turns with local search; by
    trial."""

    little: float = 0.1
    """Part of the gap that many orders must close beyond a few for local search to begin with
    theirs; otherwise it begins with the best of a few, as it does by itself; by trial."""

    orders_share: float = 0.1
    """Part of what is left for many orders of blocks, where labels apply; by trial."""

    orders_share_alone: float = 0.5
    """That part where labels do not apply; by trial."""

    orders_least: float = 1.5
    """Seconds of work of many orders at least, in short runs; by trial."""

    orders_most_share: float = 0.9
    """Part of a short run that these seconds take at most; by trial."""

    cp_sat_share: float = 0.5
    """Part of what is left for CP-SAT on the smallest graphs, and on those hardly connected: in a
    quarter of 2 s of work one of 320 places stayed open that it proves in half."""

    cp_sat_share_more: float = 0.2
    """That part on other small graphs: against a half, bounds of two of four graphs of 480 to 800
    places rose by 0.5 and 6 % after 2 and 8 s, and none fell."""

    rows_share: float = 0.2
    """Part of what is left for a linear program of which the bound is verified; by trial."""

    cp_sat_places_few: int = 400
    """Blocks times devices of the smallest graphs; by trial."""

    cp_sat_places: int = 1_000
    """Blocks times devices up to which a graph is small for CP-SAT; by trial."""

    cp_sat_places_loose: int = 10_000
    """Blocks times devices up to which a graph that is hardly connected is small for CP-SAT: loads
    are balanced there, for which labels and moves are no match; by trial."""

    loose: int = 10
    """Blocks for each net from which a graph is hardly connected; by trial."""

    metis_pins: int = 20_000
    """Blocks and members of nets up to which METIS is asked: hundredths of a second."""


@dataclass(frozen=True, kw_only=True)
class OrdersTuning(Tuning):
    """Cuts along topological orders."""

    not_zero = ("scored", "fine", "rows", "first_limits", "chunk")

    orders: int = 12
    """Orders drawn at a start; by trial."""

    quick_patience: int = 20
    """Orders near the best in a row that may fail, before an exact search; by trial."""

    quick_seconds: float = 0.3
    """Seconds of work along orders before an exact search; by trial."""

    patience: int = 200
    """Orders near the best in a row that may fail, where orders are all that is looked at; by
    trial."""

    seconds: float = 60.0
    """Seconds of work there; by trial."""

    starts: int = 4
    """How often is begun anew there; by trial."""

    at_random: tuple[float, float, float] = (1.0, 0.0, 0.0)
    """Weights by which the next block of a random order is chosen: chance, how late it became
    ready, traffic that it opens; the three kinds are taken in turn, by trial."""

    depth_first: tuple[float, float, float] = (2.0, 1.0, 0.0)
    """The weights of a depth-first order."""

    narrow: tuple[float, float, float] = (0.5, 0.0, 1.0)
    """The weights of an order with little traffic across its cuts."""

    scored: int = 64
    """Ready blocks that are compared for the next place, the latest first; by trial."""

    joined: float = 0.5
    """Part of the changed orders in which two stages are ordered as one; by trial."""

    probes: int = 6
    """Limits of one order, where forward and backward loads count apart; by trial."""

    fine: int = 2_000
    """Blocks up to which an order is cut anywhere from the first; of more, at every second, third,
    ... of them; by trial."""

    first_limits: tuple[int, ...] = (16, 4, 1)
    """A first order is cut within 1 + 1/16, 1 + 1/4 and twice the bound, before any value is
    allowed; by trial."""

    chunk: int = 4_000_000
    """Elementary steps between two looks at the clock: less than 0.1 s."""

    rows: int = 100_000
    """Rows of a table that are cleared between two looks at the clock."""

    step_price: float = 2.9e-9
    """Of an elementary step in which an order is cut."""

    arranging_price: float = 2.5e-9
    """Of an elementary step in which blocks are put in order."""


@dataclass(frozen=True, kw_only=True)
class IdealsTuning(Tuning):
    """The dynamic program over ideals."""

    not_zero = ("first_room", "growth", "chunk", "part")
    at_once = ("first_room",)

    most_states: int = 4_096
    """Sets of devices in use up to which all are told apart; with more, only linear orders look for
    partitions, with one order of the devices; by trial."""

    most_bytes: int = 3 * 2**29
    """Of ideals and what stages up to them hold."""

    first_room: int = 2**17
    """Ideals that there is room for at first."""

    growth: int = 16
    """Times as many when that is used up; after that there is room for all that fit: where nothing
    is written, it takes no memory."""

    small: int = 250
    """Blocks up to which it is looked at whether a graph is nearly a chain."""

    chain: int = 4
    """Times as many ideals as blocks that such a graph has at most; by trial."""

    chunk: int = 3_000_000
    """Elementary steps between two looks at the clock: less than 0.1 s."""

    part: int = 2**20
    """Ideals times states, and numbers that are copied, between two looks at the clock."""

    listing_price: float = 8e-9
    """Of an elementary step in which ideals are listed, in memory that is new."""

    sweeping_price: float = 9e-9
    """Of one in which stages are grown."""

    copying_price: float = 7e-9
    """Of a number that is copied."""

    cell_price: float = 2e-9
    """Of an ideal and a state, for each of the limits, of which it is found whether they fit."""

    look_price: float = 6e-8
    """Of a look at whether a block may come next."""

    pair_estimate: float = 1.5e-9
    """Seconds of work expected for each pair of ideals, where it is planned how long the program
    may take."""


@dataclass(frozen=True, kw_only=True)
class AnnealingTuning(Tuning):
    """Local search."""

    not_zero = ("hottest", "coldest", "coolings", "most_moved", "chunk", "part")
    at_once = ("coolings", "most_moved")

    fruitless: int = 6
    """Rounds in a row that find nothing better, before it ends; by trial."""

    moves: int = 1_000
    """Moves of a round for each block; by trial."""

    least_moves: int = 400_000
    """Moves of a round at least; by trial."""

    small_moves: int = 5_000
    """Moves of a round for each block at most, where these are less; by trial."""

    hottest: float = 0.05
    """Energy at which a round begins, in parts of the first objective; by trial."""

    coldest: float = 0.0002
    """Energy at which it ends; by trial."""

    coolings: int = 20
    """Heats of a round, each a constant part of the one before; by trial."""

    exchanges: int = 4
    """Of so many moves one is an exchange of two blocks: 0.3 to 0.9 % better on branchy and layered
    graphs of 100 and 200 operators in equal work than none."""

    anywhere: int = 8
    """Of so many moves one goes to any stage, the others to one that shares a net; by trial."""

    together: int = 4
    """Of so many moves one takes along what heavy nets join to the block; by trial."""

    most_moved: int = 256
    """Blocks that move at once at most; by trial."""

    largest_table: int = 2**26
    """Nets times stages up to which there is local search: half a GiB."""

    chunk: int = 4_000_000
    """Elementary steps between two looks at the clock."""

    part: int = 2**20
    """Entries of the table of nets and stages that are made between two looks at the clock."""

    step_price: float = 2.8e-9
    """Of an elementary step."""

    move_price: float = 1.2e-7
    """Of a move that is drawn and weighed."""

    entry_price: float = 1.5e-8
    """Of an entry of the table when it is made."""

    cached: int = 2**19
    """Entries of the table beyond which it lies outside of the cache."""

    uncached_factor: float = 1.5
    """Times as long that moves take there."""


@dataclass(frozen=True, kw_only=True)
class ModelsTuning(Tuning):
    """Models on engines."""

    not_zero = ("pace", "small_pace")

    row_seconds: float = 2.5e-5
    """Seconds of work, for each row of a linear program whose bound is verified."""

    row_programs: int = 2
    """Such programs, each with more rows, at most."""

    pace: float = 0.6
    """Work of CP-SAT in a second: 0.6 to 1.05, once it has loaded a model of a graph."""

    small_pace: float = 0.25
    """Work of CP-SAT in a second in models of small graphs, within ``auto``."""

    overdue: float = 1.8
    """CPU seconds to a second of work after which engines that count none are ended by the
    clock."""

    most_places: int = 2_000_000
    """Blocks times slots, and blocks in nets times slots, of the largest model."""

    fine_places: int = 2_000
    """Nodes, nets and edges, times accelerators, up to which figures of latency that have no coarse
    unit are counted finely, at the price of presolve; by trial."""

    unit_parts: int = 100
    """Parts of the least figure that are tried as the unit of all; by trial."""

    unit_shares: int = 12
    """Replicas that may share what is a multiple of a unit; by trial."""

    most_ancestors: int = 4_000
    """Blocks up to which all ancestors of each are looked at."""


@dataclass(frozen=True, kw_only=True)
class EverythingTuning(Tuning):
    """Trying all partitions of a few blocks."""

    not_zero = ("often",)

    most_blocks: int = 7
    """Blocks of the largest graph; larger ones are left to other searches."""

    most_partitions: int = 2_500
    """Partitions beyond which none is tried: half a second."""

    most_placements: int = 50_000
    """Placements of all blocks beyond which none is tried for `latency`."""

    often: int = 100
    """Partitions, or placements, between two looks at the clock."""

    price: float = 2.5e-4
    """Of a partition that is checked and evaluated."""


@dataclass(frozen=True, kw_only=True)
class PeersTuning(Tuning):
    """METIS and PipeDream's recurrence."""

    not_zero = ("metis_blocks",)

    metis_blocks: int = 2**17
    """Blocks that METIS is given; of more, neighbours in the order of the graph go together."""

    metis_price: float = 2e-7
    """Of a block or an end of an edge, for METIS."""

    pipedream_states: int = 4_000
    """States beyond which the recurrence takes minutes: it looks at every pair of them."""

    pipedream_ranges: int = 2**23
    """Pairs of states and numbers of units of a level within another one, at most."""

    before_price: float = 2.5e-7
    """Of a block before another one."""

    trial_price: float = 9e-8
    """Of a block that is tried next to a state."""

    step_price: float = 6e-5
    """Of a step of the recurrence."""

    pair_price: float = 4e-9
    """Of a pair of states in it."""


@dataclass(frozen=True, kw_only=True)
class LatencyTuning(Tuning):
    """The objective latency."""

    not_zero = ("hottest", "coldest", "coolings", "chunk", "odds")
    at_once = ("coolings",)

    orders: int = 24
    """Topological orders that are cut, the first three in a way of their own; by trial."""

    most_cells: int = 2**23
    """Units times devices up to which orders are cut."""

    moves: int = 1_000
    """Moves of a round for each block; by trial."""

    least_moves: int = 20_000
    """Moves of a round at least."""

    hottest: float = 0.02
    """Heat at which a round begins, in parts of the best latency; by trial."""

    coldest: float = 0.0001
    """Heat at which it ends; by trial."""

    coolings: int = 20
    """Heats of a round, each a constant part of the one before."""

    even_share: float = 1 / 64
    """Part of all loads together that counts beside the latency: it tells moves apart."""

    odds: int = 8
    """Of so many moves one goes to any accelerator, one to a CPU, and one takes its block alone."""

    move_steps: int = 20
    """Elementary steps that any move is worth, however few blocks move."""

    fruitless: int = 3
    """Rounds in a row that find nothing better, before it ends."""

    longest_path: int = 1_500
    """Nodes of the longest path whose cuts are looked at for a bound."""

    first_rounds: int = 2
    """Rounds before CP-SAT, in ``auto``."""

    share: float = 0.3
    """Part of what is left for these rounds in ``auto``, and for one round elsewhere."""

    cp_sat_places: int = 30_000
    """Nodes, nets and edges, times accelerators, of the largest model in ``auto``."""

    chunk: int = 20_000_000
    """Elementary steps between two looks at the clock."""

    step_price: float = 2e-9
    """Of an elementary step."""


@dataclass(frozen=True, kw_only=True)
class GraphTuning(Tuning):
    """What steers the searches of graph partitions."""

    auto: AutoTuning = AutoTuning()
    """Steps of ``auto`` and their shares."""

    orders: OrdersTuning = OrdersTuning()
    """Linear orders."""

    ideals: IdealsTuning = IdealsTuning()
    """The dynamic program over ideals."""

    annealing: AnnealingTuning = AnnealingTuning()
    """Local search."""

    labels: LabelsTuning = field(default_factory=LabelsTuning)
    """The frontier method."""

    beam: BeamTuning = field(default_factory=BeamTuning)
    """Beams along a narrow order."""

    models: ModelsTuning = ModelsTuning()
    """MILP and CP-SAT."""

    everything: EverythingTuning = EverythingTuning()
    """Trying all partitions."""

    peers: PeersTuning = PeersTuning()
    """METIS and PipeDream."""

    latency: LatencyTuning = LatencyTuning()
    """The objective latency."""

    cut_blocks: int = 64
    """Blocks whose anchored cuts are looked at for a bound, the most expensive first."""

    cut_members: int = 400_000
    """Members of nets that are looked at for these cuts, in all."""

    explained_blocks: int = 1_000
    """Blocks up to which it is looked at what would make a partition possible."""

    explained_orders: int = 3
    """Orders that are tried for each such remedy."""

    evidence_size: int = 4_000
    """Nodes and readers of tensors up to which evidence is looked for unasked: tenths of a
    second."""

    compact_price: float = 1.5e-7
    """Of a node or a reader of a tensor, when the compact form is made."""

    check_price: float = 5e-8
    """Of a node or a reader of a tensor, when a partition is checked."""

    staging_price: float = 9e-8
    """Of a block or a member of a net, in what all searches need."""

    load_price: float = 1e-7
    """Of a member of a net where the loads of stages are added up."""


TUNING = GraphTuning()
"""What is usual."""
