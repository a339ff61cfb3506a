"""Why no placement fits: which buffers conflict, when, and which capacity would suffice."""

from __future__ import annotations

from collections.abc import Sequence

from stagepack.heuristics.packing.exact_search import exact
from stagepack.instances.packing import LmemPacking
from stagepack.instances.profile import Array
from stagepack.methods.packing import iis
from stagepack.methods.packing.attempt import Attempt

LISTED = 12
"""Buffers that are named; more are counted."""


def conclude_infeasible(
    attempt: Attempt, low: Array | None, source: str, within: tuple[int, int] | None = None
) -> None:
    """Report that nothing fits, and why: an irreducible set of buffers, found in little time.

    The capacity that would do is sought from `low`, the lowest offsets of the blocks that are
    known.  `source` proved it, where it was told `within` which sections [first, end) are too full.
    :class:`CheckError` is raised when there is a placement.
    """
    instance, progress, tuning = attempt.instance, attempt.progress, attempt.tuning
    ceiling = instance.ceiling
    # Established before a reason is looked for, which may be interrupted.
    progress.prove_infeasible(f"{source}: {_summary(instance, ceiling)}")
    questions = iis.Questions(progress, tuning=tuning)
    found = iis.find(instance, ceiling, questions, within=within, tuning=tuning)
    parts = [_summary(instance, ceiling) if found is None else _named(instance, found, ceiling)]
    parts += _remedy(attempt, low, found, ceiling, questions)
    progress.prove_infeasible(f"{source}: " + "; ".join(parts))


def _room(instance: LmemPacking, ceiling: int) -> str:
    """Return the capacity in words."""
    return f"{ceiling:,} bytes" if ceiling == instance.capacity else f"the banks' {ceiling:,} bytes"


def _enough(least: int, ceiling: int) -> str:
    """Return which capacity would do, in words."""
    return f"a capacity of {least:,} would do, {least - ceiling:,} more"


def _summary(instance: LmemPacking, ceiling: int | None) -> str:
    """Return what does not fit, where no buffers can be named."""
    if instance.memories:
        return "the buffers do not fit into the memories, however they are spread"
    if ceiling is None:
        return "fixed and limited buffers leave others no place"
    return f"no placement within {_room(instance, ceiling)}"


def _named(instance: LmemPacking, found: iis.InfeasibleBuffers, ceiling: int | None) -> str:
    """Return which buffers do not fit together, when they are alive, and where."""
    when = ""
    span = iis.lifetime(instance, found.buffers)
    if span is not None:
        when = _when(*span)
    if instance.memories:
        sizes = (
            f"{memory.name} ({'no limit' if memory.capacity is None else f'{memory.capacity:,}'})"
            for memory in instance.memories
        )
        where = f"fit into {', '.join(sizes)}, however they are spread"
    elif ceiling is None:
        where = "fit together where they are fixed or allowed"
    else:
        where = f"fit together in {_room(instance, ceiling)}"
    alone = len(found.buffers) == 1
    where += _related(instance, found.buffers)
    fewer = "; any one fewer fits" if found.irreducible and not alone else ""
    noun = "buffer" if alone else "buffers"
    verb = "does" if alone else "do"
    return f"{noun} {_list(instance, found.buffers)}{when} {verb} not {where}{fewer}"


def _related(instance: LmemPacking, buffers: tuple[int, ...]) -> str:
    """Return what keeps buffers apart beside their lifetimes, in words."""
    chosen = set(buffers)
    apart = [
        f"{instance.buffer_id(i)} and {instance.buffer_id(j)}"
        for i, j in instance.apart
        if {i, j} <= chosen
    ]
    alone = [instance.buffer_id(i) for i in instance.exclusive if i in chosen]
    said = "" if instance.segment is None else f" within segments of {instance.segment:,}"
    if apart:
        more = "" if len(apart) <= LISTED else f" and {len(apart) - LISTED:,} more pairs"
        said += f", where {', '.join(apart[:LISTED])}{more} are kept apart"
    if alone:
        said += f", where nobody else uses bytes of {', '.join(alone[:LISTED])}"
    return said


def _remedy(
    attempt: Attempt,
    low: Array | None,
    found: iis.InfeasibleBuffers | None,
    ceiling: int | None,
    questions: iis.Questions,
) -> list[str]:
    """Return what is known to mend it, by how many bytes."""
    tuning = attempt.tuning
    instance = attempt.instance
    if instance.memories:
        memory = iis.larger_memory(instance, questions, tuning=tuning)
        if memory is None:
            return ["give one of them more"]
        index, enough = memory
        name, has = instance.memories[index].name, instance.memories[index].capacity
        assert has is not None
        return [f"a capacity of {enough:,} for {name} would do, {enough - has:,} more"]
    if ceiling is not None and ceiling == instance.capacity:
        if exact.unsupported(attempt.blocks, tuning=tuning):
            known = None if low is None else int((low + attempt.blocks.size).max())
            least = iis.larger_capacity(instance, ceiling, questions, known)
        else:
            least = _least_capacity(attempt, low)
        if least is not None:
            return [_enough(least, ceiling)]
    members = found.buffers if found is not None else tuple(range(instance.n))
    wider = iis.wider_range(instance, members, questions, tuning=tuning)
    if wider is not None:
        buffer, end, enough = wider
        return [
            f"a range of buffer {instance.buffer_id(buffer)} to {enough:,} would do, "
            f"{enough - end:,} more than now"
        ]
    loose = iis.looser(instance, members, questions, tuning=tuning)
    if loose:
        names = " or ".join(instance.buffer_id(i) for i in loose)
        return [f"it would do not to fix buffer {names}"]
    return []


def _least_capacity(attempt: Attempt, low: Array | None) -> int | None:
    """Return the least peak that a short search finds; None without any packing."""
    tuning = attempt.tuning
    peaks = [] if low is None else [int((low + attempt.blocks.size).max())]
    exact.minimise(
        attempt.blocks,
        upper=low,
        on_solution=lambda offsets: peaks.append(int((offsets + attempt.blocks.size).max())),
        keep_going=lambda: attempt.progress.remaining > 0,
        node_limit=tuning.reasons.capacity_nodes,
        tuning=tuning,
    )
    return min(peaks, default=None)


def _list(instance: LmemPacking, buffers: Sequence[int]) -> str:
    """Return the first of some buffers by name, and how many more they are."""
    shown = ", ".join(instance.buffer_id(int(i)) for i in buffers[:LISTED])
    return f"{shown} and {len(buffers) - LISTED:,} more" if len(buffers) > LISTED else shown


def _when(first: int, last: int) -> str:
    """Return a span of time in words."""
    return (
        f" (alive at time {first:,})" if first == last else f" (alive from {first:,} to {last:,})"
    )
