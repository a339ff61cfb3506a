"""Numbers that steer the searches of pipeline schedules.

A step is about what a compiled loop takes for an arc of a longest path; prices of work are given in
steps, measured.  *By trial*: the best of a few values on the layouts of ``benchmarks.layouts``, of
which no table is kept.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from stagepack.heuristics.tuning import Tuning


class Way(enum.Enum):
    """What becomes of labels where there are too many."""

    ALL = "all"
    """The sweep is given up."""
    BEST = "best"
    """Some stand for others that are little earlier: what comes of them are schedules."""
    NEAR = "near"
    """Some stand for others, of those with about as many F's before every B as on a route."""
    MERGED = "merged"
    """Some become as early as those that they stand for: what comes of them are bounds."""


class Pay(enum.Enum):
    """When a W comes before what could start; see :mod:`.sequence_kernels`."""

    WAITS = "waits"
    """Never."""
    MAKES_ROOM = "makes-room"
    """Where an F lacks memory."""
    AT_ONCE = "at-once"
    """Always."""


@dataclass(frozen=True, kw_only=True)
class AutoTuning(Tuning):
    """Steps of ``auto``, which can be switched off, and their shares of the time of a run.

    What is said of steps was seen on layouts after 4 s of work, and on hostile instances after 2.
    """

    not_zero = ("quick",)

    sequences: bool = True
    """Switch: list schedules with fixed sequences.  Without it 4 of 37 layouts were up to 5.4 %
    worse after 1 s, and 3 better by 0.5 % at most."""

    policies: bool = True
    """Switch: list schedules by more policies than the first.  Without it 1 of 5 open instances was
    worse, a large one (0.7 %)."""

    annealing: bool = True
    """Switch: annealing over the orders of devices."""

    counting: bool = True
    """Switch: the bound that counts operations of a device."""

    windows: bool = True
    """Switch: CP-SAT is asked how long devices are idle in windows.  Without it 3 of 7 layouts
    had a lower bound (up to 0.3 %)."""

    labels: bool = True
    """Switch: labels of a chain."""

    cp_sat: bool = True
    """Switch: CP-SAT on a model of the whole schedule."""

    turn: float = 2.0
    """Seconds of work of local search in a turn; each turn takes twice as long as the last."""

    quick: int = 400
    """Operations up to which the first turn is a quarter of that, and the model has its greatest
    share; by trial."""

    model_share: float = 4.0
    """Seconds of the model, at most, for each of local search; less by the square of the
    operations beyond `quick`; by trial."""

    order_work: float = 0.2
    """Work of CP-SAT, in the first turn, to find any order within the memory where there is no
    schedule; by trial."""

    windows_share: float = 0.6
    """Seconds of windows for each of local search; by trial."""

    labels_share: float = 8.0
    """Seconds of labels for each of local search; by trial."""

    model_operations: int = 20_000
    """Operations up to which a model of all is built: others take longer to load than most runs."""

    alone_operations: int = 60_000
    """Operations up to which a model of all is built where ``cp-sat`` is asked for by name."""

    overdue: float = 1.2
    """Part of the seconds left after which an engine that still counts no work is ended."""

    rule_operations: int = 3_000_000
    """Operations of all orders of a rule together, of those that have several: a few tenths of a
    second."""

    rules_first: int = 20_000
    """Operations from which on searches begin with the rules, which take the least time, and these
    with what keeps within the memory."""


@dataclass(frozen=True, kw_only=True)
class ListsTuning(Tuning):
    """List schedules, and the search that they begin."""

    not_zero = ("elite", "choice_price")
    at_once = ("periods",)
    alike = (("slopes", "more"), ("patience", "payments"))

    first_round: float = 1.5
    """Seconds of work of the first round where there is a solution; by trial."""

    sequences_share: float = 0.25
    """Part of the first round for lists with fixed sequences; by trial."""

    tried_share: float = 0.1
    """Part for the first policies, of large instances; by trial."""

    cooled_share: float = 0.4
    """Part of what is left, in first rounds, for a first cooling; by trial."""

    large: int = 400
    """Operations from which on the first policies come before that cooling."""

    rounds: int = 12
    """Turns of a run that is to repeat and has no limit."""

    elite: int = 6
    """Orders from which coolings begin: a turn of coolings has as many."""

    good: int = 8
    """Sequences that are timed exactly."""

    caps: tuple[float, ...] = (0.3, 0.4, 0.5, 0.6, 0.75)
    """Parts of the stages below that are tried as caps of F's ahead, for little memory."""

    periods: int = 20
    """Times from the start of an F to its B from which caps are made."""

    step_price: float = 0.6
    """Steps that one of a list schedule counts as."""

    setup_price: int = 1500
    """Steps to set up a stage."""

    sequences_limit: int = 4_000_000
    """Operations times devices up to which lists with fixed sequences are tried: half a second."""

    slopes: tuple[int, ...] = (1, 1, 1, 1, 2, 2, 2, 2, 0)
    """F's that may be ahead in these lists, for each device below; and"""

    more: tuple[int, ...] = (0, 1, 2, 4, 0, 1, 2, 4, 2**40)
    """F's beside those that a round of groups needs, of the same lists; the last one has no cap."""

    patience: tuple[float, ...] = (0.5, 0.0, 0.5, 0.0)
    """Parts of its cycles that a W waits for others in these lists; and"""

    payments: tuple[Pay, ...] = (Pay.WAITS, Pay.WAITS, Pay.MAKES_ROOM, Pay.AT_ONCE)
    """When it does not wait, of the same lists."""

    sequence_price: int = 20_000
    """Steps to begin a list with fixed sequences."""

    choice_price: int = 23
    """Steps to look what a device may do next."""


@dataclass(frozen=True, kw_only=True)
class AnnealingTuning(Tuning):
    """Annealing over the orders of devices."""

    not_zero = ("steps", "mean")
    alike = (("heats", "weights"),)

    steps: int = 2_000_000
    """Steps between two looks at the clock, and at what was found: a hundredth of a second.  Larger
    instances are not annealed."""

    heats: tuple[float, ...] = (0.2, 1.2, 0.6, 1.2, 0.06, 0.6)
    """First temperatures of coolings in turn, in mean durations; by trial."""

    weights: tuple[float, ...] = (4.0, 2.0, 1.0, 1.0, 4.0, 4.0)
    """What mean excess over the bound counts beside the objective, of the same coolings."""

    cooled: float = 1 / 30
    """Last temperature of a cooling, as a part of the first; by trial."""

    moves: int = 10_000
    """Moves of a cooling of the first turn at least, and"""

    each: int = 10
    """Moves of it for each operation; by trial."""

    calls: int = 100
    """Times `steps` that it takes at most."""

    longer: float = 1.7
    """Times as many moves as those of one turn the coolings of the next have; by trial."""

    mean: int = 1_000
    """Operations from which on excess counts more, for each, as a move changes less of its mean."""

    drawn: int = 60
    """Operations drawn until one is critical, and"""

    tried: int = 20
    """Critical operations tried until one can move; by trial."""

    slack: float = 0.001
    """Part of all excess by which a move may exceed what is allowed, on its way to be within it."""

    patience: int = 2
    """Operations looked at in a move, for each of all, from which on it is given up."""


@dataclass(frozen=True, kw_only=True)
class BoundsTuning(Tuning):
    """Lower bounds that need no engine."""

    pairs: int = 4_000_000
    """Operations that all pairs of devices may have together for bounds of spans; with more, each
    device stands alone."""

    rounds: int = 6
    """Rounds of raising heads by counting; few need more."""

    counted_pairs: int = 40_000_000
    """Pairs of operations of a device, times devices for spans, up to which they are counted: a
    quarter of a second a round."""

    counted_rows: int = 1_000
    """Rows of operations up to which they are: which comes before which is a table."""


@dataclass(frozen=True, kw_only=True)
class WindowsTuning(Tuning):
    """Windows of which CP-SAT is asked how long a device is idle."""

    not_zero = ("pace",)

    pace: float = 0.6
    """Work of CP-SAT that takes about a second in these models."""

    turns: tuple[float, ...] = (0.03, 0.3, 1.0)
    """Work of CP-SAT on a window whose other devices may do several things at a time, in turns."""

    turns_apart: tuple[float, ...] = (1.0, 4.0)
    """Work of CP-SAT on a window whose other devices may not, in turns after those."""

    shares: tuple[float, ...] = (0.55, 0.7, 0.85, 1.05)
    """Windows, in parts of the time until a device can run its first B, or after its last F."""

    window: int = 1_500
    """Operations of a window up to which there is something to hope for."""

    operations: int = 5_000
    """Operations of an instance up to which there is something to hope for."""


@dataclass(frozen=True, kw_only=True)
class LabelsTuning(Tuning):
    """Labels of a chain; the sweeps are those of :mod:`.trips`, in turn."""

    not_zero = ("room",)
    at_once = ("room",)
    alike = (("widths", "ways"),)

    widths: tuple[int, ...] = (
        5_000, 500, 500, 2_000, 1_500, 16_000, 6_000, 24_000, 16_000, 24_000,
    )  # fmt: skip
    """Labels of a step of a sweep, in turn; by trial on the tight chains."""

    ways: tuple[Way, ...] = (
        Way.ALL, Way.BEST, *(Way.NEAR, Way.MERGED) * 3, Way.NEAR, Way.BEST,
    )  # fmt: skip
    """What becomes of more labels in these sweeps."""

    rounded: int = 250
    """Labels of a step where F's are as many as with W's interrupted; by trial."""

    near: int = 1
    """F's more or less before a B than on the route that a sweep stays near; by trial."""

    window: int = 24
    """Labels of its key that each is compared with; by trial."""

    tried: int = 4
    """Labels so compared for each that is kept; by trial."""

    patience: int = 4
    """Sweeps in turn that find nothing, after which"""

    fruitless: float = 0.25
    """Part of the time that is taken after `patience`; by trial."""

    room: int = 60_000
    """Labels that are made at a time: tens of megabytes."""

    parents: int = 10_000_000
    """Labels of all steps together, at most, of a sweep: twelve bytes each say where it comes
    from."""

    ahead: int = 16
    """Microbatches under way up to which there is something to hope for."""

    stages: int = 64
    """Stages up to which there is something to hope for."""

    operations: int = 20_000
    """Operations up to which there is something to hope for."""

    sort_price: int = 20
    """Steps of sorting a label."""

    entry_price: float = 0.4
    """Steps of writing or comparing a number of a label."""


@dataclass(frozen=True, kw_only=True)
class ModelTuning(Tuning):
    """Models for CP-SAT."""

    not_zero = ("pace", "order_pace")

    pace: float = 0.8
    """Work of CP-SAT that takes about a second in the model of all operations."""

    order_pace: float = 0.1
    """The same in the model of orders within the memory, which it counts too cheap."""

    loading: float = 1.5e-4
    """Seconds to build and presolve the model of an operation, in which CP-SAT counts no work."""

    counted: int = 16
    """Microbatches up to which memory is counted at each F: variables grow with the square."""

    order_operations: int = 2_000
    """Operations up to which a model of orders within the memory says something soon, if at all."""


@dataclass(frozen=True, kw_only=True)
class ScheduleTuning(Tuning):
    """What steers the searches of pipeline schedules."""

    auto: AutoTuning = AutoTuning()
    """The steps of ``auto``."""

    lists: ListsTuning = ListsTuning()
    """List schedules."""

    annealing: AnnealingTuning = AnnealingTuning()
    """Annealing over orders."""

    bounds: BoundsTuning = BoundsTuning()
    """Lower bounds."""

    windows: WindowsTuning = WindowsTuning()
    """Idle windows."""

    labels: LabelsTuning = LabelsTuning()
    """Labels of chains."""

    model: ModelTuning = ModelTuning()
    """Models."""

    evidence_stages: int = 1_000
    """Stages up to which evidence is looked for unasked: it takes tenths of a second."""


TUNING = ScheduleTuning()
"""What is usual."""
