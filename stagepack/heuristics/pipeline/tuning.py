"""Numbers that steer the searches of pipeline partitions."""

from __future__ import annotations

from dataclasses import dataclass

from stagepack.heuristics.tuning import Tuning


@dataclass(frozen=True, kw_only=True)
class ProbeTuning(Tuning):
    """What steers probes: searches for a partition within limits."""

    not_zero = ("steps_at_once", "cuts_sampled")

    step_seconds: float = 5e-9
    """Seconds of work of an elementary step; measured on bert-large."""

    steps_at_once: int = 10_000_000
    """Steps between two looks at the clock: well under 0.2 s."""

    cell_limit: int = 1_500_000_000
    """Bytes of placed tails that a probe may keep; a larger one is refused."""

    first_cell_limit: int = 30_000_000
    """Bytes above which the first limit is tried nearer to the bound."""

    lower_aims: int = 40
    """How often the first limit may be tried nearer to the bound at most."""

    fewest_cuts: int = 2_000
    """Cuts of the chains that are not made shorter."""

    cuts_sampled: int = 1_000
    """Cuts that are looked at before all are, when it is asked whether a chain can be shorter."""

    useful_share: float = 0.75
    """Part of its cuts that may be affordable in a chain that is worth making shorter."""

    window_limit: int = 2**31
    """Bytes of the furthest ends of all stages; more is refused."""


@dataclass(frozen=True, kw_only=True)
class RecurrenceTuning(Tuning):
    """What steers the reference recurrence, and what its work costs."""

    not_zero = ("entries_at_once", "block")

    table_limit: int = 2**25
    """Entries of all tables (stage, first, end); more is refused."""

    entries_at_once: int = 2**19
    """Entries of the tables that are numbered between two looks at the clock."""

    block: int = 2**18
    """Entries of a table (last cut, threshold) that are held at a time."""

    fill_seconds: float = 2e-8
    """Seconds of work to fill an entry of the tables."""

    number_seconds: float = 1e-7
    """Seconds of work to number one."""

    length_seconds: float = 2e-5
    """Seconds of work to look at the stages of one length."""

    compare_seconds: float = 2e-9
    """Seconds of work to compare one of them with one threshold."""


@dataclass(frozen=True, kw_only=True)
class RoundTuning(Tuning):
    """What steers the search for rounds of stages, and what its work costs."""

    not_zero = ("seconds_at_once", "step_seconds")

    most_spans: int = 5_000
    """Spans of a chain; of more, only bounds and models are asked."""

    turns: int = 200
    """Beginnings from which more than two rounds are improved."""

    share: float = 0.5
    """Part of the time that is left which that may take."""

    step_seconds: float = 3e-9
    """Seconds of work of a pair of stages of a device."""

    seconds_at_once: float = 0.05
    """Seconds of work between two looks at the clock."""


@dataclass(frozen=True, kw_only=True)
class OptionTuning(Tuning):
    """What steers the choice of layers' alternatives, and what its work costs."""

    not_zero = ("labels_at_once", "most_labels", "first_share", "growth")
    at_once = ("most_labels",)

    most_labels: int = 250_000
    """Trade-offs of ticks and bytes of one run of layers; more are refused."""

    labels_at_once: int = 400_000
    """Labels that are made between two looks at the clock: about 0.1 s."""

    label_seconds: float = 6e-8
    """Seconds of work of a label."""

    most_runs: int = 2**25
    """Entries of the tables of stages, of all kinds together; more are refused."""

    first_share: float = 0.01
    """How far above its bound the least value is looked for at first, as a part of the bound."""

    growth: float = 2.5
    """By how much that part grows where nothing is found."""


@dataclass(frozen=True, kw_only=True)
class PipelineTuning(Tuning):
    """What steers the searches of pipeline partitions."""

    not_zero = ("stages_at_once", "pace")

    probes: ProbeTuning = ProbeTuning()
    """Searches for a partition within limits."""

    recurrence: RecurrenceTuning = RecurrenceTuning()
    """The reference recurrence."""

    rounds: RoundTuning = RoundTuning()
    """Several stages a device."""

    options: OptionTuning = OptionTuning()
    """Alternatives of layers."""

    baselines: bool = True
    """Whether searches begin with what naive rules find."""

    repair: bool = True
    """Whether a rule that knows how far stages reach follows where the naive ones find nothing."""

    even: bool = True
    """Whether a proved partition is exchanged for a more even one that is as good."""

    even_steps: int = 10_000
    """Stages looked at, times stages, within which that is the most even one; else of shares."""

    even_layers: int = 100_000
    """Layers above which none is looked for: finding how far memory lets stages reach takes longer
    than the search."""

    even_shifts: tuple[int, ...] = (1, 2, 4)
    """By how many places cuts move, where devices have several stages."""

    even_looks: int = 200_000
    """Moves that are looked at then."""

    even_tries: int = 3
    """Moves of cuts from one on that are checked, the most even first."""

    few_cuts_first: bool = True
    """Whether a large search for the least sum begins on a chain of few cheap cuts."""

    large_cells: int = 30_000_000
    """Cells of its first probe above which a search counts as a large one."""

    first_cuts: int = 20_000
    """Cuts of that chain, or four for a device if these are more."""

    staircase_cells: int = 10_000_000
    """Cells of a probe of the staircase above which its interval is halved instead."""

    latency_cells: int = 2**27
    """Least latencies of tails, by state and cut, that are kept; more is refused."""

    repair_limits: tuple[float, ...] = (1.25, 2.0, 8.0)
    """Limits of the probes for any partition, in multiples of the bound, before there is none."""

    repair_entries: int = 2**27
    """Entries of what is looked up of all kinds of stages; beyond, the rule is left out."""

    stages_at_once: int = 100
    """Stages that a naive rule places between two looks at the clock."""

    compiled_devices: int = 500
    """Devices above which bisection fills them by a compiled kernel: loading it pays then."""

    fill_seconds: float = 2e-7
    """Seconds of work to fill a device."""

    layer_seconds: float = 1e-7
    """Seconds of work that a layer takes in its range costs."""

    place_seconds: float = 1e-5
    """Seconds of work of a stage that a naive rule looks for."""

    check_seconds: float = 8e-6
    """Seconds of work of the check of a stage."""

    devices_tried: int = 64
    """Devices more that are tried, to say how many would do."""

    evidence_share: float = 0.05
    """Part of what the run took that evidence may take where nobody asked for it."""

    evidence_seconds: float = 0.05
    """Seconds that it may always take."""

    overdue: float = 1.6
    """Part of the seconds that work stands for after which engines that count none are ended."""

    pace: float = 2.0
    """Work of CP-SAT in a second, once it has loaded a model of partitions: 1.2 to 3.5."""


TUNING = PipelineTuning()
"""What is usual."""
