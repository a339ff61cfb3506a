"""Numbers that steer what places buffers in one go, and bounds without search."""

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
