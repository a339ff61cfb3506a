"""Why a pipeline partition has no solution, and what a user can change.

The first cause found is reported.  Then the smallest sufficient change of each kind is determined,
by bisection or by trial, and verified.  Cost: O(log(capacity)) feasibility tests, and one for each
number of devices tried.  Source: own work.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from stagepack.errors import ContradictionError, InputError
from stagepack.evidence import SEARCHED, TOLD
from stagepack.heuristics.pipeline import rounds
from stagepack.heuristics.pipeline.bounds import filled
from stagepack.heuristics.pipeline.options import search
from stagepack.heuristics.pipeline.prober import Prober
from stagepack.heuristics.pipeline.tuning import TUNING, PipelineTuning
from stagepack.instances.pipeline import Objective, PipelineSolution
from stagepack.instances.pipeline.choices import least, with_alternatives
from stagepack.instances.pipeline.problem import MEMORY
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import Array
from stagepack.progress import Progress, Stopped

BLOCK = 2**20  # uses of keys looked at between two looks at the clock
Pause = Callable[[], object]


def conclude_infeasible(
    costs: RangeCosts,
    progress: Progress[PipelineSolution],
    engine: str = "",
    tuning: PipelineTuning = TUNING,
) -> None:
    """Report that no partition fits, and why.

    Where an `engine` with tolerances says so, a partition is looked for first; when there is one,
    :class:`ContradictionError` is raised.
    """
    try:
        found = bool(engine) and _fits(costs, progress)
        reason = explain(costs, progress, tuning)
    except InputError:  # too large to look into: free order of many unlike devices
        found, reason = False, f"{engine} proves that no partition fits the devices' memory"
    if found:
        raise ContradictionError(f"{engine} calls infeasible what has a valid partition")
    evidence = filled(costs)
    progress.prove_infeasible(reason, TOLD if engine and evidence == SEARCHED else evidence)


def explain(
    costs: RangeCosts,
    progress: Progress[PipelineSolution] | None = None,
    tuning: PipelineTuning = TUNING,
) -> str:
    """Return what makes an infeasible instance so, by how much, and what would mend it.

    Looks, in this order, at the cuts asked for, at the number of stages, and at spans that fit no
    device; then for the least additional capacity and the least number of devices that would do,
    as far as `progress` has time for it.  Every remedy named was found to work.
    O(log(capacity)) probes.
    """
    cause = _conflicting_cuts(costs) or _stage_count(costs)
    if cause:
        return cause
    limit = costs.instance.limit
    if costs.within is not None and limit is not None:
        return f"no partition that fits has a {costs.instance.limited} of {limit:,} or less"
    stages = _count(len(costs.instance.stage_devices), "stage")
    cause = f"no partition into {stages} fits the devices' memory"
    cause += ", whatever layers take of their alternatives" if costs.instance.alternatives else ""
    if costs.instance.tokens:
        cause += f" with the cache of {costs.instance.tokens:,} tokens (headroom finds the most)"
    pause = (lambda: None) if progress is None else progress.require_time
    try:
        cause = _oversized_span(costs, pause) or cause
        found = [_more_memory(costs, progress), _more_devices(costs, progress, tuning)]
        found.append(_recomputed(costs, progress))
        remedies = [remedy for remedy in found if remedy]
    except (Stopped, InputError):  # no time for it, or too much to keep
        return cause
    return f"{cause}; it would be feasible {' or '.join(remedies)}" if remedies else cause


def _fits(costs: RangeCosts, progress: Progress[PipelineSolution] | None) -> bool | None:
    """Return whether there is any partition; None: of several stages a device that is not known."""
    if costs.instance.placed:
        return rounds.fits(costs, progress)
    if costs.instance.alternatives:
        return search.any_that_fits(costs, progress) is not None
    return Prober(costs, progress).probe() is not None


def _conflicting_cuts(costs: RangeCosts) -> str:
    instance = costs.instance
    for cut in instance.fixed_cuts:
        if not costs.allowed[cut]:
            causes = [v.name for v in instance.variables if v.first < cut <= v.last]
            why = f"variable {causes[0]!r} spans it" if causes else "it is also a forbidden cut"
            return f"the fixed cut at {cut:,} is impossible: {why}"
    return ""


def _stage_count(costs: RangeCosts) -> str:
    instance, spans = costs.instance, int(costs.allowed.sum()) - 1
    fixed, stages = len(instance.fixed_cuts), len(instance.stage_devices)
    if fixed + 1 > stages:
        return (
            f"{_count(fixed, 'fixed cut')} make at least {fixed + 1:,} stages but there is room "
            f"for {stages:,}; give more devices or fix fewer cuts"
        )
    if not instance.fewer_stages and spans < stages:
        return (
            f"{costs.k:,} devices need {stages:,} stages but {_count(costs.n, 'layer')} can be "
            f"cut into {spans:,} at most{_longest(costs)}; use fewer devices or allow fewer stages"
        )
    return ""


def _longest(costs: RangeCosts) -> str:
    """Name the variable that keeps most layers together."""
    spans = {variable.name: variable.last - variable.first for variable in costs.instance.variables}
    name = max(spans, key=spans.__getitem__, default="")
    return f", as variable {name!r} keeps {spans[name] + 1:,} together" if spans.get(name) else ""


def _oversized_span(costs: RangeCosts, pause: Pause) -> str:
    """Name the span that may not be cut and exceeds every device by most."""
    instance = costs.instance
    capacities = [c for c in costs.capacity if c is not None]
    if len(capacities) < len(costs.capacity) or instance.memory_table is not None:
        return ""
    largest = max(capacities)
    starts, needs = _span_memory(costs, pause)
    worst = int(np.argmax(needs))
    excess = int(needs[worst]) - largest
    if excess <= 0:
        return ""
    first, end = int(starts[worst]), int(np.append(starts[worst + 1 : worst + 2], costs.n)[0])
    if end - first == 1:
        name = "" if instance.layer_names is None else f" ({instance.layer_name(first)})"
        what = f"layer {first:,}{name} needs"
    else:
        tied = [v.name for v in instance.variables if first <= v.first < v.last < end]
        by = f"variable {tied[0]!r}" if tied else "forbidden cuts"
        if len(tied) > 1:
            by = f"variables {tied[0]!r} and {len(tied) - 1:,} more"
        what = f"layers {first:,} to {end - 1:,}, kept together by {by}, need"
    return (
        f"{what} at least {largest + excess:,} bytes but the largest device has {largest:,}: "
        f"{excess:,} too many"
    )


def _recomputed(costs: RangeCosts, progress: Progress[PipelineSolution] | None) -> str:
    """Say that layers may be recomputed, where a partition exists then."""
    instance = costs.instance
    tables = instance.compute_table is not None or instance.memory_table is not None
    stashed = instance.training and bool(instance.stash.any())
    if not stashed or tables or instance.placed or instance.alternatives or instance.reduces:
        return ""
    if instance.objective in (Objective.HEADROOM, Objective.MOVES):
        return ""
    every = ("layer", instance.own_alternative)
    other = RangeCosts.of(with_alternatives(instance, {}, every, "full", frozenset(MEMORY)))
    return "with --recompute full" * bool(_fits(other, progress))


def _more_memory(costs: RangeCosts, progress: Progress[PipelineSolution] | None) -> str:
    """Say with how many more bytes on every device a partition exists."""

    def enough(extra: int) -> bool:
        if progress is not None:
            progress.require_time()
        return bool(_fits(costs.with_more_memory(extra), progress))

    if _fits(costs, progress) is None:
        return ""
    low, high = 1, 1
    while not enough(high):
        low, high = high + 1, high * 4
        if high > 2**61:
            return ""
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    capacity = costs.capacity[0]
    alike = len(costs.capacity) == 1 and capacity is not None
    now = f" ({capacity + high:,} instead of {capacity:,})" if alike and capacity else ""
    return f"with {high:,} {'byte' if high == 1 else 'bytes'} more on every device{now}"


def _more_devices(
    costs: RangeCosts, progress: Progress[PipelineSolution] | None, tuning: PipelineTuning
) -> str:
    """Say with how many devices, copies of the one kind there is, a partition exists.

    Of what fits only memory decides, so that links and speeds may differ, but for moves in a limit.
    """
    instance, cluster = costs.instance, costs.instance.cluster
    moves = instance.objective is Objective.MOVES
    alike = len({device.kind if moves else device.memory for device in cluster.devices}) == 1
    if not alike or instance.n > 20_000 or instance.placed:
        return ""
    tables = (instance.recv_cycles, instance.send_cycles, instance.compute_table)
    if any(table is not None for table in (*tables, instance.memory_table)):
        return ""
    for k in range(len(cluster) + 1, min(instance.n, len(cluster) + tuning.devices_tried) + 1):
        if progress is not None:
            progress.require_time()
        more = msgspec.structs.replace(cluster, devices=cluster.devices[:1] * k)
        flying = k if instance.microbatches == instance.k else instance.microbatches
        pause = (lambda: None) if progress is None else progress.require_time
        costs = RangeCosts(instance.replace(cluster=more, microbatches=flying), pause)
        if _fits(costs, progress):
            return f"with {k:,} devices"
    return ""


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _span_memory(costs: RangeCosts, pause: Pause) -> tuple[Array, Array]:
    """Return the spans that no cut may split: first layers and bytes, each (spans,).

    With one microbatch in flight when training: as the last stage has it.  O(n + uses).
    """
    instance, shared = costs.instance, costs.instance.shared
    instance = least(instance)
    starts = np.flatnonzero(costs.allowed)[:-1]
    needs = np.zeros(len(starts), dtype=np.int64)
    for column in [*instance.exclusive.values(), *([instance.stash] * instance.training)]:
        pause()
        needs += np.add.reduceat(column, starts)
    pause()
    needs += np.maximum.reduceat(instance.temporary + instance.carry, starts)
    if len(shared.layer):
        from stagepack.instances.pipeline.kernels import add_keys

        seen = np.full(len(shared.nbytes), -1, dtype=np.int64)
        for begin in range(0, len(shared.layer), BLOCK):
            pause()
            uses = slice(begin, begin + BLOCK)
            span = np.searchsorted(starts, shared.layer[uses], side="right") - 1
            add_keys(span, shared.key[uses], shared.nbytes, seen, needs)
    return starts, needs
