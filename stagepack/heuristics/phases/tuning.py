"""Numbers that steer the searches of phase schedules.

Prices are seconds of counted work (:mod:`stagepack.heuristics.effort`), measured.  *By trial*: the
best of a few values on the catalog, of which no table is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from stagepack.heuristics.tuning import Tuning


@dataclass(frozen=True, kw_only=True)
class PricesTuning(Tuning):
    """What work costs that all searches have in common."""

    look_price: float = 5e-6
    """Of a step of Python that calls a kernel or two."""

    layer_price: float = 1e-6
    """Of a layer of a plan that is assembled, checked and evaluated."""

    phase_price: float = 1e-5
    """Of a phase of such a plan."""

    moment_layers: int = 512
    """Layers up to which plans are gone through moment by moment."""

    moment_layer_price: float = 1.2e-5
    """Of a layer then."""

    moment_phase_price: float = 6e-5
    """Of a phase then."""

    group_price: float = 2e-7
    """Of a group's sums and traffic."""

    read_price: float = 3e-8
    """Of a tensor that is read, in passes over arrays or in kernels."""

    row_price: float = 1.5e-7
    """Of an option in one mode: times, idle cycles, and the sorting of what is beaten."""

    label_price: float = 2.5e-7
    """Of a label that is grown, sorted and kept."""

    met_price: float = 7e-8
    """Of a label that options lead to."""

    comparison_price: float = 1e-9
    """Of a comparison of two rows or labels."""

    sorting_price: float = 2e-8
    """Of a layer whose policy is put together."""

    examining_price: float = 5e-8
    """Of one whose policy is examined."""


@dataclass(frozen=True, kw_only=True)
class PoliciesTuning(Tuning):
    """Which policies of groups are worth having."""

    not_zero = ("label_factor", "layers_at_once", "groups_at_once", "comparisons_at_once")

    labels: int = 600
    """Labels that are followed at each layer at first; more are thinned out, and the answer says
    so.  By trial."""

    label_factor: int = 4
    """Times as many labels that are followed when a search begins anew."""

    most_labels: int = 9_600
    """Labels at each layer beyond which a look takes too long."""

    most_enumerated: int = 243
    """Policies of a group that are tried one by one, where no rule finds the best ones: those of
    five layers."""

    layers_at_once: int = 2**18
    """Layers and what they read, examined or put together between two looks at the clock."""

    groups_at_once: int = 512
    """Groups between two looks at the clock."""

    comparisons_at_once: int = 2**22
    """Comparisons of labels between two looks at the clock."""


@dataclass(frozen=True, kw_only=True)
class OptionsTuning(Tuning):
    """Groups, their options, and shortest paths over these."""

    not_zero = (
        "tile_ranges",
        "groups_at_once",
        "comparisons_at_once",
        "layers_at_once",
        "pairs_at_once",
    )

    most_layers: int = 2**24
    """Layers of all groups together; where there are more, only groups of fewer layers count."""

    tile_ranges: int = 64
    """Ranges of numbers of I/O tiles that are told apart where it is bounded how much may be
    computed again."""

    groups_at_once: int = 2**20
    """Groups and what their layers read between two looks at the clock."""

    comparisons_at_once: int = 2**23
    """Comparisons of options between two looks at the clock."""

    layers_at_once: int = 2**12
    """Layers between two looks at the clock, where the rest of a path is bounded."""

    pairs_at_once: int = 2**18
    """Pairs of a label and an option between two looks at the clock."""


@dataclass(frozen=True, kw_only=True)
class PairsTuning(Tuning):
    """The search over microbatch sizes and numbers of I/O tiles."""

    groups_kept: int = 2**22
    """Groups of all microbatches whose costs and policies are kept at a time."""

    few_layers: int = 2**18
    """Layers of all groups together that take little time."""

    glimpsed: int = 4
    """Pairs that are glanced at before all are searched; by trial."""

    glimpse_labels: int = 24
    """Labels that are followed at each layer then; by trial."""


@dataclass(frozen=True, kw_only=True)
class RematTuning(Tuning):
    """Recomputation within one group."""

    not_zero = ("levels", "entries", "entries_at_once", "states_at_once")

    widths: tuple[int, ...] = (300, 3_000, 30_000, 300_000, 1_000_000)
    """Labels that are followed at each layer, in turn, as long as some were left out that might
    tell more."""

    levels: int = 2**14
    """Numbers of bytes kept that completions tell apart, at most."""

    entries: int = 2**26
    """Entries of the table of completions, at most: a quarter of a GiB."""

    entries_at_once: int = 2**21
    """Entries of that table between two looks at the clock."""

    states_at_once: int = 64
    """States between two looks at the clock."""


@dataclass(frozen=True, kw_only=True)
class RulesTuning(Tuning):
    """Naive rules, and what is looked at where nothing fits."""

    not_zero = ("layers_at_once", "groups_at_once")

    layers_at_once: int = 2**17
    """Layers that are looked at between two looks at the clock."""

    groups_at_once: int = 2**10
    """Groups that are chosen between two looks at the clock."""

    few_tiles: int = 64
    """Numbers of I/O tiles that are all tried for a plan that fits; of more, ever rarer ones."""

    patience: float = 5.0
    """Seconds that a search for what would do may take, once it is proved that nothing fits."""


@dataclass(frozen=True, kw_only=True)
class ModelsTuning(Tuning):
    """Models on engines."""

    not_zero = ("pace",)

    build_price: float = 1e-6
    """Of a term of a model that is built."""

    highs_price: float = 1e-5
    """Of a term that HiGHS presolves, which it leaves out of the work it counts."""

    cp_sat_price: float = 4e-6
    """Of a term that CP-SAT presolves."""

    pace: float = 0.6
    """Work of CP-SAT in a second: 0.65 to 0.85."""

    overdue: float = 1.8
    """CPU seconds to a second of work after which an engine is ended by the clock."""

    start_share: float = 0.2
    """Part of the time that the search for a model's start may take."""

    start_seconds: float = 10.0
    """Seconds that it may take at most."""


@dataclass(frozen=True, kw_only=True)
class AutoTuning(Tuning):
    """Steps of ``auto``, which can be switched off."""

    greedy_head: bool = True
    """Switch: the rule ``greedy-head`` is applied first.  Without it 1 of 40 instances was worse,
    and none better."""

    sqrt_checkpoint: bool = True
    """Switch: so is ``sqrt-checkpoint``, behind it: in little memory it finds a plan where nothing
    else soon does."""

    keep_all: bool = True
    """Switch: so is ``keep-all``: in much memory it is the best plan.  Without it 1 of 15 changed
    instances was worse."""

    layer_per_phase: bool = True
    """Switch: so is ``layer-per-phase``, where the others find no plan: budgets can be so tight."""

    retention: bool = True
    """Switch: labels along the layers, where all of them are one group.  Without it 1 of 40
    instances was worse, and none better."""

    glimpse: bool = True
    """Switch: the most promising pairs are glanced at before all are searched.  Without it 1 of 40
    instances was worse, and none better."""

    more_labels: bool = True
    """Switch: a search whose labels were thinned out begins anew with more of them.  Without it 2
    of 3 networks were not proved after 4 s."""

    models: bool = True
    """Switch: models where the search does not prove its answer: for budgets, and for what the
    search cannot tell apart."""


@dataclass(frozen=True, kw_only=True)
class EvidenceTuning(Tuning):
    """Evidence that others can verify."""

    few_groups: int = 64
    """Groups in all pairs of microbatch and number of I/O tiles, up to which paths are looked at
    unasked."""

    seconds: float = 0.1
    """Seconds that this may take."""


@dataclass(frozen=True, kw_only=True)
class PhasesTuning(Tuning):
    """What steers the searches of phase schedules."""

    auto: AutoTuning = AutoTuning()
    """Steps of ``auto``."""

    prices: PricesTuning = PricesTuning()
    """What work costs."""

    policies: PoliciesTuning = PoliciesTuning()
    """Policies of groups."""

    options: OptionsTuning = OptionsTuning()
    """Options of groups."""

    pairs: PairsTuning = PairsTuning()
    """Microbatches and numbers of I/O tiles."""

    remat: RematTuning = RematTuning()
    """Recomputation within one group."""

    rules: RulesTuning = RulesTuning()
    """Naive rules."""

    models: ModelsTuning = ModelsTuning()
    """MILP and CP-SAT."""

    evidence: EvidenceTuning = EvidenceTuning()
    """Evidence."""


TUNING = PhasesTuning()
"""What is usual."""
