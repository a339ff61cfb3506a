"""Numbers that steer the searches of layer groups.

Prices are seconds of counted work (:mod:`stagepack.heuristics.effort`), measured.  *By trial*: the
best of a few values on the catalog, of which no table is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from stagepack.heuristics.tuning import Tuning


@dataclass(frozen=True, kw_only=True)
class OracleTuning(Tuning):
    """The best cut of groups, and what they take at least in every cut."""

    not_zero = ("cuts_at_once", "steps_at_once", "byte_prices")

    many_cuts: int = 4_096
    """Cuts above which the first few are looked at by themselves: of few slices one often fits, and
    may do."""

    first_cuts: int = 64
    """How many these first few are; by trial."""

    numbers: int = 2**22
    """Numbers that are known at a time, of all tensors of a group along all tracks: 32 MiB."""

    byte_prices: int = 3
    """Prices of a byte that are tried, where loads cannot be far ahead of their use; by trial."""

    cuts_at_once: int = 2_000
    """Cuts between two looks at the clock where they are told apart."""

    steps_at_once: int = 2_000_000
    """Elementary steps of kernels between two looks at the clock."""

    part_price: float = 3.5e-6
    """Of a cut that is told apart."""

    step_price: float = 2.1e-9
    """Of an elementary step where the best cut is sought."""

    bound_step_price: float = 4e-9
    """Of one where it is sought what every cut takes at least."""

    call_price: float = 7e-5
    """Of a call of the kernel."""

    alone_price: float = 1e-5
    """Of an operator that runs by itself."""


@dataclass(frozen=True, kw_only=True)
class PathsTuning(Tuning):
    """Shortest paths over groups: of consecutive operators, and over ideals."""

    not_zero = ("operators_a_cluster", "boundaries_at_once", "ideals_at_once")

    operators_a_cluster: int = 50
    """Operators for each of which one more joins a cluster of ``dp-first-fit``; as in TPU-MLIR."""

    most_arcs: int = 8_000_000
    """Groups that are kept between ideals; 20 bytes each."""

    most_choices: int = 1_000_000
    """Groups in cuts that are kept where timesteps are free; 48 bytes each, and a path takes
    0.2 s."""

    boundaries_at_once: int = 256
    """Boundaries between two looks at the clock."""

    ideals_at_once: int = 1_000
    """Ideals that are listed between two looks at the clock."""

    boundary_price: float = 3e-6
    """Of a boundary to which the shortest path is extended."""

    listing_price: float = 2e-5
    """Of an ideal that is listed."""

    arrival_price: float = 2e-5
    """Of an ideal at which groups end."""

    look_price: float = 1e-7
    """Of another ideal that may lie within it."""

    group_price: float = 5e-6
    """Of a group between two ideals."""

    label_price: float = 4e-6
    """Of an ideal in a path over groups in cuts."""


@dataclass(frozen=True, kw_only=True)
class PlacementTuning(Tuning):
    """Addresses of the buffers of a group."""

    search_seconds: float = 0.2
    """Seconds of work of the exact search after which a group is left undecided."""

    group_price: float = 4e-4
    """Of a group that is written down to be placed."""

    buffer_price: float = 9e-6
    """Of one of its buffers."""

    pair_price: float = 1e-6
    """Of two buffers, where the rule of TPU-MLIR looks whether both are alive."""


@dataclass(frozen=True, kw_only=True)
class MovingTuning(Tuning):
    """Moving loads and stores to rows that hide them."""

    not_zero = ("parts",)

    rounds: int = 8
    """Rounds at most; seldom more than four move anything."""

    parts: int = 32
    """Parts of the memory in which capacities are told."""

    least_parts: int = 26
    """The least capacity that is tried, all being the most; by trial."""

    move_price: float = 4e-5
    """Of a transfer that is taken up and put down."""


@dataclass(frozen=True, kw_only=True)
class BanksTuning(Tuning):
    """New addresses for a plan, with which few buffers share a bank."""

    share: float = 0.1
    """Part of the time limit for all groups, where the search for the plan took less."""

    usual_limit: float = 20.0
    """Seconds that count as the time limit where there is none."""

    least: float = 0.05
    """Seconds of work for a group below which no more is tried."""

    late: float = 0.1
    """Seconds that the last check may take whatever time is left."""

    most_pairs: int = 1_000
    """Pairs of a group beyond which CP-SAT is not asked."""

    pair_price: float = 4e-6
    """Of a pair of buffers that is found, and of which it is counted whether it shares a bank."""


@dataclass(frozen=True, kw_only=True)
class ModelsTuning(Tuning):
    """Models on engines."""

    first_work: float = 0.004
    """Work of CP-SAT for every operator of a group when it first comes, about 0.02 s each."""

    overdue: float = 1.2
    """Part of the seconds left after which an engine is ended that counts no work: HiGHS does not
    before its search."""

    clique_price: float = 5.5e-9
    """Of a pair of groups of which an incumbent allows but one, for HiGHS: where these are most of
    all pairs it lists them, without a look at the time."""


@dataclass(frozen=True, kw_only=True)
class CheckTuning(Tuning):
    """What it takes to check and evaluate a plan."""

    alone_price: float = 6e-6
    """Of an operator that runs from global memory."""

    grouped_price: float = 5e-5
    """Of one in a group."""

    group_price: float = 2.5e-4
    """Of a group."""


@dataclass(frozen=True, kw_only=True)
class AutoTuning(Tuning):
    """Steps of ``auto``, which can be switched off, and their turns."""

    not_zero = ("main_turn",)

    greedy_tail: bool = True
    """Switch: the rule ``greedy-tail`` takes turns with the exact search, before it.  Without it 3
    of 44 instances were worse, and one had no plan."""

    windows: bool = True
    """Switch: where all orders are too many, windows along the best plan are searched.  Without it
    3 of 4 networks of 9 to 12 branches were 0.5 to 3.1 % worse after 4 s."""

    moving: bool = True
    """Switch: transfers are moved to rows that hide them before CP-SAT looks at a group.  Without
    it 4 of 21 instances were worse, and none better."""

    main_turn: int = 3
    """Length of the turns of the exact search, those of ``greedy-tail`` being 1; by trial."""

    check_share: float = 0.3
    """Part of the time that is kept, at most, to check what a rule finds."""

    many_ideals: int = 10_000
    """Ideals beyond which windows come first."""

    most_ideals: int = 100_000
    """Ideals beyond which not all are looked at; 400 bytes each, and their pairs take too long."""

    windows_of: tuple[int, ...] = (100, 400, 1_600)
    """Ideals of a window along a plan; larger ones come once smaller ones end."""


@dataclass(frozen=True, kw_only=True)
class GroupsTuning(Tuning):
    """What steers the searches of layer groups."""

    not_zero = ("operators_at_once",)

    auto: AutoTuning = AutoTuning()
    """Steps of ``auto`` and their turns."""

    oracle: OracleTuning = OracleTuning()
    """The best cut of groups."""

    paths: PathsTuning = PathsTuning()
    """Shortest paths over groups."""

    placement: PlacementTuning = PlacementTuning()
    """Addresses of buffers."""

    moving: MovingTuning = MovingTuning()
    """Timesteps of transfers."""

    banks: BanksTuning = BanksTuning()
    """Addresses with which few buffers share a bank."""

    models: ModelsTuning = ModelsTuning()
    """MILP and CP-SAT."""

    check: CheckTuning = CheckTuning()
    """The check of plans."""

    operators_at_once: int = 1_024
    """Operators that are brought into their normal form between two looks at the clock."""

    operator_price: float = 1.2e-5
    """Of an operator that is brought into its normal form."""


TUNING = GroupsTuning()
"""What is usual."""
