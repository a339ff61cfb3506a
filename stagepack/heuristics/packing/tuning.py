"""Numbers that steer the searches of packings: how they are combined, and those of each."""

from __future__ import annotations

from dataclasses import dataclass, field

from stagepack.heuristics.packing.cores_tuning import CoreTuning
from stagepack.heuristics.packing.searches_tuning import (
    AnnealingTuning,
    BeamTuning,
    BoundTuning,
    ConflictTuning,
    DiveTuning,
    GeneralTuning,
    GreedyTuning,
    OverlapTuning,
    PlaceTuning,
    RelocationTuning,
    SearchTuning,
    SpillTuning,
    ValleyTuning,
    WindowTuning,
)
from stagepack.heuristics.tuning import Tuning


@dataclass(frozen=True, kw_only=True)
class Prices(Tuning):
    """What work costs that is done in many places, in seconds on the clock of work."""

    call: float = 3e-5
    """Seconds of a call of a kernel, with what Python does before and after; measured."""

    item: float = 3e-7
    """Seconds of an item in a handful of passes over arrays: a sort, sums, a search; measured."""

    row: float = 2e-6
    """Seconds of a row that Python itself goes through; measured."""

    normal_form: float = 1e-3
    """Seconds of making a normal form, apart from what its size costs; measured."""

    check: float = 3e-4
    """Seconds of checking an answer, apart from what its size costs; measured."""

    conflict_checked: float = 6e-9
    """Seconds of a conflict in the check of an answer; measured."""

    cached_buffers: int = 300_000
    """Buffers from which on what is looked up of them lies outside of the cache; measured."""

    uncached: float = 4.0
    """How many times as long it takes to look up what lies outside of the cache; measured."""

    def scattered(self, n: int) -> float:
        """Return how many times as long it takes to look up something of any of `n` buffers."""
        return self.uncached if n > self.cached_buffers else 1.0


@dataclass(frozen=True, kw_only=True)
class AutoTuning(Tuning):
    """The steps of `auto` and of what other methods begin with."""

    not_zero = ("annealing_turn", "dive_blocks")

    glancing: bool = True
    """Whether the capacity, or the bound, is looked at by search before any rule is run."""

    glance: float = 0.1
    """Seconds of work for the look at the capacity before any rule."""

    glanced_blocks: int = 500
    """Blocks up to which that look is worth it, and above which overlaps come before the search; by
    trial."""

    dives: bool = True
    """Whether annealing begins from the best of single dives."""

    dived_blocks: int = 500
    """Blocks from which on a short dive with cores comes before the greedy rules: of fewer these
    place all as soon."""

    dive: float = 2.0
    """Seconds of work of the short dive with cores, of blocks that are few."""

    dive_blocks: int = 4_000
    """Blocks for each so many of which a dive takes as long again: annealing and searches of all
    blocks get less far than cores the more there are; by trial."""

    dive_share: float = 0.4
    """Part of the work that is left which that dive takes at most; by trial."""

    rules: bool = True
    """Whether the portfolio of greedy rules is run; without, one quick placement is."""

    rigid: bool = True
    """Whether blocks that shrink, pause or share are searched as if they did not."""

    rigid_seconds: float = 0.5
    """Seconds of work, in the first turn, for each way to keep blocks from shrinking, pausing and
    sharing."""

    exact: bool = True
    """Whether the exact search takes part."""

    overlapping: bool = True
    """Whether overlaps are minimised."""

    annealing: bool = True
    """Whether placements are annealed."""

    windows: bool = True
    """Whether windows of time raise the bound."""

    models: bool = True
    """Whether CP-SAT takes part."""

    cores: bool = True
    """Whether packings are built from cores: some, of many blocks, before the search."""

    anew: bool = True
    """Whether valleys are filled again and again where blocks are too many for cores."""

    first_turn: float = 1.0
    """Seconds of work of the exact and of the local search in the first turn."""

    fitting_exact: float = 3.0
    """Seconds of work of the exact search in the first turn where a capacity is decided: most that
    resist for a second need more of it."""

    fitting_local: float = 0.5
    """Seconds of work of the local search there, which seldom ends at the capacity."""

    early_exact: float = 0.2
    """Seconds of work of the exact search in the first turn where only annealing lowers placements;
    by trial."""

    exact_growth: float = 3.0
    """How many times as long the exact search takes in each further turn; by trial."""

    local_growth: float = 2.0
    """How many times as long the local search takes in each further turn; by trial."""

    shortest: float = 0.2
    """Seconds of work that a search is cut to at least."""

    asked_capacity: float = 4.0
    """Seconds of work for a capacity before windows of time are looked at; by trial."""

    asked_bound: float = 0.3
    """Seconds of work for the bound alone, before the best placement is lowered towards it as well;
    by trial."""

    asked_capacity_share: float = 0.8
    """Part of the work that is left which asking for a capacity takes at most."""

    asked_bound_share: float = 0.5
    """Part of the work that is left which asking for the bound takes at most."""

    windows_after: float = 0.5
    """Seconds of work for windows once the search alone did not decide a capacity: a few sections
    that are too full are refuted in some hundred nodes."""

    windows_share: float = 0.5
    """What windows get of the time of the exact search in a turn; by trial."""

    model_share: float = 1.0
    """What a model gets of the time of the exact search in a turn; by trial."""

    modelled_blocks: int = 400
    """Blocks up to which a model takes turns with the exact search; by trial."""

    overlap_share: float = 0.5
    """What minimising overlaps gets of the time of annealing; by trial."""

    conflict_overlap_share: float = 1.0
    """What minimising overlaps gets of the time of annealing where conflicts are given, whose peak
    it lowers most; by trial."""

    annealing_turn: float = 2.4
    """Seconds of work of a turn of annealing, after which it begins anew; by trial."""

    annealing_alone: float = 3.0
    """What annealing gets in one piece, where only it lowers placements, if no more is left: turns
    that are cut short waste it."""

    annealing_last: float = 0.1
    """Part of the time that is kept for annealing at the end where a capacity may stay undecided, a
    turn at most."""

    seed_stride: int = 1_000
    """Seeds of successive turns differ by this."""

    overdue: float = 1.8
    """Part of the seconds that work stands for after which an engine that counts too little is
    ended: what models cost is mostly within a factor of 2 of what is counted."""

    verifying: float = 1.0
    """Seconds in which evidence is looked at before it is told."""


@dataclass(frozen=True, kw_only=True)
class ScaleTuning(Tuning):
    """Packings of very many blocks."""

    blocks: int = 20_000
    """Blocks above which `auto` keeps to methods whose cost grows like a sort and which list no
    pairs."""

    pairs: int = 3_000_000
    """Pairs of blocks alive together above which `auto` lists no pairs; by trial."""

    crowded_pairs: int = 300_000_000
    """Pairs alive together above which rules that look at all of them are left out."""

    dive_share: float = 0.6
    """Part of the work that is left which rules get; by trial."""

    dive_most: float = 20.0
    """Seconds of work of dives, and of rules, at most; by trial."""

    core_share: float = 0.85
    """Part of the time that is left which packing from cores gets at most."""

    full: float = 0.9
    """Part of the greatest load above which time is nearly full."""

    even: float = 0.5
    """Part of time that is nearly full above which a core would grow to about everything."""

    first_core: float = 3.0
    """How long the first packing from a core takes, in terms of a first placement by valleys;
    measured."""

    grown_core: float = 6.0
    """How long until the first packing from a core that has grown, in terms of a first placement by
    valleys; measured."""

    far: float = 1.2
    """A peak so many times its bound is told in words."""

    poor: float = 1.1
    """A first placement so many times its bound is worth another one before anything else; by
    trial."""

    another: float = 1.2
    """How long another placement takes, its check included, in terms of the first one; measured."""

    late_conflicts: int = 100_000
    """Pairs of a conflict graph above which it is not looked at anew where time is over."""

    block: float = 3e-6
    """Seconds that a first placement and its check take, of each block in each turn of time;
    measured."""

    late_share: float = 0.1
    """Part of its time, beside `late`, that a run may be late with first fit over its conflicts in
    place of a stack."""

    late: float = 0.2
    """Seconds that an answer of many conflicts may come late."""


@dataclass(frozen=True, kw_only=True)
class GraphTuning(Tuning):
    """Conflict graphs that are placed before cliques cover them."""

    conflicts: int = 200_000
    """Conflicts from which on they are placed before cliques are looked for: these take half a
    second, a placement a fiftieth of that."""

    buffers: int = 20_000
    """Buffers from which on conflicts are placed before cliques are looked for."""

    placed: float = 7.5e-8
    """Seconds of a conflict in a first placement, the check of it included; measured."""

    placed_uncached: float = 2.5e-7
    """Seconds of a conflict in a first placement where buffers lie outside of the
    cache; measured."""

    covered: float = 3.1e-6
    """Seconds of a conflict until cliques cover them and all is made that methods look at;
    measured."""

    covering_look: float = 2e-2
    """Seconds between two looks at the clock while cliques are sought; measured."""

    covering: float = 3e-6
    """Seconds of a conflict that seeking cliques counts at most; measured."""

    covering_after: float = 4e-8
    """Seconds of a conflict to make the rest of a normal form, once cliques cover them;
    measured."""

    covering_left: float = 4e-7
    """Seconds of a conflict that are left to that and to a first placement."""

    least: float = 3e-7
    """Seconds of a conflict that cover and placement take at least; measured."""

    later: float = 1.1
    """Times the limit that an answer may come late; where a normal form would come later, conflicts
    are gone through as listed."""

    explained: float = 5e-8
    """Seconds of an end of a conflict until lifetimes are found that explain all; measured."""

    explaining: float = 0.7
    """Part of the time that is left which looking for lifetimes may take."""

    bounding: float = 0.15
    """Part of the time that is left in which cliques are peeled out of neighbours; by trial."""

    share: float = 0.5
    """Part of the time that covering leaves in which placements are lowered first; by trial."""

    sweeps: int = 40
    """Sweeps in which they are lowered where time has no limit."""


@dataclass(frozen=True, kw_only=True)
class ReasonTuning(Tuning):
    """Proofs and reasons that people and verifiers can follow."""

    checked_buffers: int = 2_000
    """Buffers up to which moments are looked at unasked for evidence."""

    checked_seconds: float = 1.0
    """Seconds that looking for evidence unasked may take."""

    capacity_nodes: int = 50_000
    """Nodes of the search for the smallest capacity that would do, and for a reason; by trial."""

    question_nodes: int = 20_000
    """Nodes of a question of what does not fit together; by trial."""

    question_work: float = 0.5
    """Work of a question that a model answers, in seconds of the engine."""

    questions: int = 300
    """Questions asked at most."""

    undecided: int = 8
    """Questions without an answer after which no more are asked."""

    seconds: float = 5.0
    """Seconds of all questions, on the clock that ends the run."""

    blocks: int = 2_000
    """Blocks up to which the fewest that do not fit are sought."""

    made: float = 2e-3
    """Seconds of preparing a question; measured."""

    probed: int = 4
    """Memories, ranges or fixed buffers that are asked about: what would do instead."""


@dataclass(frozen=True, kw_only=True)
class ModelTuning(Tuning):
    """What building models costs, and when they are presolved."""

    cp_sat_row: float = 1e-5
    """Seconds of a variable or constraint of CP-SAT; measured."""

    cp_sat_term: float = 1e-6
    """Seconds of a term of a sum; measured."""

    cp_sat_bank_pair: float = 3e-5
    """Seconds of two buffers that should not share a bank; measured."""

    presolved_pairs: int = 20_000
    """Pairs of blocks alive together up to which CP-SAT presolves: beyond, presolve was seen to
    take minutes that count as no work."""

    presolved_rows: int = 10_000
    """Constraints of a model up to which CP-SAT presolves it."""

    milp_pair: float = 2e-5
    """Seconds of a pair of buffers in the MILP; measured."""

    milp_row: float = 6e-6
    """Seconds of a row of it; measured."""

    milp_term: float = 3.5e-6
    """Seconds of a term of a row; measured."""

    milp_compared: float = 1.5e-7
    """Seconds of two pieces that are compared; measured."""


@dataclass(frozen=True, kw_only=True)
class PenaltyTuning(Tuning):
    """Pairs that share addresses at a cost."""

    not_zero = ("step", "leg", "hottest", "reheated", "coldest", "first", "rounds", "tried")

    step: float = 2.7e-9
    """Seconds of a step of annealing; measured."""

    leg: float = 0.05
    """Seconds of annealing between two looks at the clock."""

    first: float = 0.01
    """Seconds of the first cooling at least; each further one is twice as long."""

    sweeps: int = 250
    """Moves of each block in the first cooling; by trial."""

    hottest: float = 5.0
    """First temperature, in terms of the mean cost of a pair; by trial."""

    reheated: float = 0.8
    """First temperature of a cooling that begins at the best placement; by trial."""

    coldest: float = 0.15
    """Last temperature; by trial."""

    clash: float = 6.0
    """What an overlap that is not allowed weighs at first, in mean costs; by trial."""

    more: float = 0.05
    """What it weighs more each time that a move leaves it, in mean costs; by trial."""

    parting: float = 20.0
    """How many times as much that is at the end of a cooling; by trial."""

    crowded: int = 1_500
    """Blocks up to which cliques that are too large are sought."""

    rounds: int = 60
    """Rounds of seeking cliques."""

    tried: int = 40
    """Cliques grown in a round."""

    small: float = 0.3
    """Part of them that grow no further once they are too large."""

    ascents: int = 80
    """Steps by which the weights of cliques rise in a round."""

    vain: int = 5
    """Steps without a better bound after which steps are half as long."""

    idle: int = 3
    """Rounds after which no more are sought once there is nothing new."""

    clique: float = 1e-3
    """Seconds of growing a clique; measured."""

    ascent: float = 2e-8
    """Seconds of an entry of a clique in a step; measured."""

    turn: float = 0.3
    """Seconds of work of the first turn of annealing; by trial."""

    entry: float = 2e-5
    """Seconds of work of it for a pair that should not meet, in either order, but at most `turn`;
    by trial."""

    growth: float = 4.0
    """How many times as long each further turn is; by trial."""

    last: float = 3.0
    """What is left, in turns, that the last one takes."""

    bounding: float = 0.25
    """What the bound gets of the time of annealing; by trial."""

    modelled: int = 1_000
    """Pairs up to which a model takes turns."""

    lowering: float = 0.5
    """Seconds of work for the peak once the cost is what it is."""

    settled: int = 300_000
    """Pairs alive together up to which blocks are settled lower in any case."""

    apart: float = 0.2
    """Seconds of work for whether all pairs can be apart."""


@dataclass(frozen=True, kw_only=True)
class HomesTuning(Tuning):
    """The local search over the memories in which blocks live, and their bounds."""

    tries: int = 400
    """Changes without any gain after which it ends; by trial."""

    highest: float = 0.5
    """How often the blocks that end highest are the ones to move; by trial."""

    swapped: float = 0.5
    """How often two blocks change places instead of one that moves; by trial."""

    searched: int = 40
    """Blocks of a memory up to which it is searched where greedy rules find no place."""

    nodes: int = 2_000
    """Nodes of such a search: some hundredths of a second."""

    remembered: int = 4_000
    """Packings of a memory that are kept."""

    sets: int = 6
    """Memories up to which bounds look at all sets of them, beyond at each and all together."""

    crowded: int = 100_000
    """Buffers beyond which bounds look at none of these."""

    share: float = 0.3
    """Part of the time that is left which it takes before a model is built; most of it without."""

    seconds: float = 5.0
    """The most that it takes then."""


@dataclass(frozen=True, kw_only=True)
class PackingTuning(Tuning):
    """What steers the searches of packings, part by part."""

    auto: AutoTuning = field(default_factory=AutoTuning)
    """The steps of `auto` and of what other methods begin with."""

    scale: ScaleTuning = field(default_factory=ScaleTuning)
    """Packings of very many blocks."""

    graphs: GraphTuning = field(default_factory=GraphTuning)
    """Conflict graphs that are placed before cliques cover them."""

    reasons: ReasonTuning = field(default_factory=ReasonTuning)
    """Proofs and reasons that people and verifiers can follow."""

    models: ModelTuning = field(default_factory=ModelTuning)
    """What building models costs, and when they are presolved."""

    prices: Prices = field(default_factory=Prices)
    """What work costs that is done in many places, in seconds on the clock of work."""

    greedy: GreedyTuning = field(default_factory=GreedyTuning)
    """Greedy rules."""

    valleys: ValleyTuning = field(default_factory=ValleyTuning)
    """Filling the valleys of a skyline."""

    dive: DiveTuning = field(default_factory=DiveTuning)
    """Dives to the lowest offset."""

    conflicts: ConflictTuning = field(default_factory=ConflictTuning)
    """First fit straight over a conflict graph."""

    spill: SpillTuning = field(default_factory=SpillTuning)
    """The choice of memories by value."""

    homes: HomesTuning = field(default_factory=HomesTuning)
    """The local search over the memories in which blocks live."""

    bounds: BoundTuning = field(default_factory=BoundTuning)
    """Lower bounds without search."""

    relocation: RelocationTuning = field(default_factory=RelocationTuning)
    """Keeping buffers where they were."""

    beams: BeamTuning = field(default_factory=BeamTuning)
    """Beam searches from the bottom up."""

    exact: SearchTuning = field(default_factory=SearchTuning)
    """The exact search of a capacity, and the portfolio of its orders."""

    general: GeneralTuning = field(default_factory=GeneralTuning)
    """The exact search of blocks of any shape."""

    places: PlaceTuning = field(default_factory=PlaceTuning)
    """Where blocks may lie: legal offsets as spans, and holes that no block may fill."""

    windows: WindowTuning = field(default_factory=WindowTuning)
    """Bounds above the load: windows of time that are refuted."""

    annealing: AnnealingTuning = field(default_factory=AnnealingTuning)
    """Annealing over first-fit orders."""

    cores: CoreTuning = field(default_factory=CoreTuning)
    """Packings built from a core."""

    penalties: PenaltyTuning = field(default_factory=PenaltyTuning)
    """Pairs that share addresses at a cost."""

    overlaps: OverlapTuning = field(default_factory=OverlapTuning)
    """Minimising overlaps below a ceiling."""


TUNING = PackingTuning()
"""What is usual."""
