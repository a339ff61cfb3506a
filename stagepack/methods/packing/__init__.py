"""Methods of LMEM packing: greedy rules, local search, exact search, models, and ``auto``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from stagepack.contracts import Number
from stagepack.evidence import Evidence
from stagepack.formulations import packing as formulations
from stagepack.heuristics.packing import (
    beam_search,
    constructive,
    exact_search,
    local_search,
)
from stagepack.heuristics.packing.constructive.rules import BANKS, RULES, Rule
from stagepack.instances.packing import KIND, LmemPacking, Objective, PackingSolution
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.kinds import on_demand
from stagepack.methods import Method, Settings, Table
from stagepack.progress import Progress

if TYPE_CHECKING:
    from stagepack.methods.packing import conclusion as conclusion
    from stagepack.methods.packing import explain as explain
    from stagepack.methods.packing import graphs as graphs
    from stagepack.methods.packing import memories as memories
    from stagepack.methods.packing import modelled as modelled
    from stagepack.methods.packing import penalties as penalties
    from stagepack.methods.packing import proof as proof
    from stagepack.methods.packing import quick as quick
    from stagepack.methods.packing import relocation as relocation
else:
    __getattr__ = on_demand(__name__)

TABLE: Table[LmemPacking, PackingSolution] = Table(
    KIND,
    __name__,
    (
        Objective.PEAK,
        Objective.FIT,
        Objective.BANK_CONFLICTS,
        Objective.MOVES,
        Objective.SPILL,
        Objective.PENALTIES,
    ),
)


COMPARED = ("best-fit-lifetime", "greedy-by-size", "greedy-by-breadth", "bank-aware")
"""Greedy rules that comparisons run unasked."""


def _peak_only(instance: LmemPacking) -> str:
    """Return why a method that looks at the peak alone does not apply, or ""."""
    if instance.memories:
        return _one_memory(instance)
    if instance.objective not in (Objective.PEAK, Objective.FIT):
        return f"looks at the peak, not at {instance.objective}; use cp-sat"
    return ""


REFUSALS: dict[str, Callable[[Blocks], str]] = {
    "dive": lambda blocks: constructive.dive.unsupported(blocks.rounded),
    "anneal": lambda blocks: local_search.annealing.unsupported(blocks),
    "beam": lambda blocks: (
        beam_search.beam.unsupported(blocks) or exact_search.exact_state.too_large(blocks)
    ),
    "exact": lambda blocks: exact_search.exact_state.too_large(blocks),
}
"""Why some methods that look at the peak alone cannot take some blocks, or ''."""


def _refusal(name: str, instance: LmemPacking) -> str:
    """Return why a method does not apply to the normal form, or ""."""
    return REFUSALS[name](Blocks.of(instance))


def _one_memory(instance: LmemPacking) -> str:
    """Return why a method for one memory does not apply, or ""."""
    if instance.memories:
        return "places buffers in one memory, not in several; use auto, spill-by-value or cp-sat"
    return _no_penalties(instance)


def _no_penalties(instance: LmemPacking) -> str:
    """Return why a method that knows nothing of penalties does not apply, or ""."""
    if instance.objective is Objective.PENALTIES:
        return "knows nothing of penalties; use auto, reuse-aware or cp-sat"
    return ""


def _sharing(instance: LmemPacking) -> str:
    """Return why there are no penalties to lower, or ""."""
    if instance.objective is not Objective.PENALTIES:
        return "lowers penalties: give the objective penalties"
    return "places buffers in one memory; use auto or cp-sat" if instance.memories else ""


def _with_banks(instance: LmemPacking) -> str:
    """Return why a method that looks at banks does not apply, or ""."""
    return _one_memory(instance) if instance.banks is not None else "needs banks"


def _replannable(instance: LmemPacking) -> str:
    """Return why there is nothing to plan anew, or ""."""
    if instance.objective is not Objective.MOVES:
        return "re-plans for the objective moves"
    return ""


def _spilling(instance: LmemPacking) -> str:
    """Return why there is nothing to spread over memories, or ""."""
    return "" if instance.memories else "needs several memories"


def _rule(rule: Rule) -> Method[LmemPacking, PackingSolution]:
    """Return the method that runs one greedy rule."""
    return TABLE.method(
        rule.name,
        exact=False,
        description=f"{rule.description} ({rule.source})",
        unsupported=_with_banks if rule.policy == BANKS else _one_memory,
        default=rule.name in COMPARED,
    )


METHODS: tuple[Method[LmemPacking, PackingSolution], ...] = (
    TABLE.method(
        "auto",
        exact=True,
        description="greedy rules, then exact search or CP-SAT; dives when large",
        default=False,
    ),
    *map(_rule, RULES.values()),
    TABLE.method(
        "portfolio",
        exact=False,
        description="the best of all greedy rules",
        unsupported=_one_memory,
    ),
    TABLE.method(
        "dive",
        exact=False,
        description="packs the heaviest times first, then the rest; up to millions of buffers",
        unsupported=_peak_only,
        declines=partial(_refusal, "dive"),
    ),
    TABLE.method(
        "anneal",
        exact=False,
        description="annealing over first-fit orders, from the best greedy placement",
        unsupported=_peak_only,
        declines=partial(_refusal, "anneal"),
        default=False,
    ),
    TABLE.method(
        "beam",
        exact=False,
        description="beam search from the bottom up, for instances with hardly any free space",
        unsupported=_peak_only,
        declines=partial(_refusal, "beam"),
        default=False,
    ),
    TABLE.method(
        "replan",
        exact=False,
        description="keeps as many old offsets as possible, places the rest greedily",
        unsupported=_replannable,
    ),
    TABLE.method(
        "spill-by-value",
        exact=False,
        description="buffers that save most per byte go to the cheapest memory; homes are kept",
        unsupported=_spilling,
    ),
    TABLE.method(
        "reuse-aware",
        exact=False,
        description="annealing over placements: which pairs share addresses, and at what cost",
        unsupported=_sharing,
    ),
    TABLE.method(
        "exact",
        exact=True,
        description="branch and bound over placements from the bottom up",
        unsupported=_peak_only,
        declines=partial(_refusal, "exact"),
    ),
    TABLE.method(
        "milp",
        exact=True,
        description="MILP: which buffer is below which (Pyomo)",
        unsupported=_no_penalties,
        declines=lambda instance: formulations.Milp.unsupported(instance),
        engines=("highs", "pyomo:highs", "pyomo:NAME"),
        default=False,
    ),
    TABLE.method(
        "cp-sat",
        exact=True,
        description="CP-SAT: rectangles in time and address that do not overlap",
        declines=lambda instance: formulations.CpSat.unsupported(instance),
        engines=("cp-sat",),
    ),
)


def strengthen(
    instance: LmemPacking,
    progress: Progress[PackingSolution],
    settings: Settings,
    keep_going: Callable[[], bool],
) -> None:
    """Look for evidence that others can verify; see :mod:`.proof`."""
    importlib.import_module(f"{__name__}.proof").strengthen(
        instance, progress, settings, keep_going
    )


def prove(
    instance: LmemPacking, bound: Number | None, keep_going: Callable[[], bool]
) -> Evidence | None:
    """Search for evidence of a bound, or that nothing fits; see :mod:`.proof`.

    `bound` None: that nothing fits.  `keep_going` is asked between chunks of work.
    """
    proof = importlib.import_module(f"{__name__}.proof")
    found: Evidence | None = proof.prove(instance, bound, keep_going)
    return found


def shared(instance: LmemPacking) -> str:
    """Return which code all methods share on which a proof rests; "" for none."""
    if instance.conflicts is None:
        return ""
    return "all methods see conflicts through the same cliques, or lifetimes"
