"""What a schedule is worth and whether it is right, straight from the definitions.

Written for trust: rule by rule over the fields of the instance, with no code in common with the
operations and arcs on which the algorithms work.  O(operations log(operations)).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import assert_never

import numpy as np

from stagepack.contracts import JsonObject
from stagepack.instances.profile import Array
from stagepack.instances.schedule.data import ScheduleData, ScheduleSolution
from stagepack.instances.schedule.problem import Objective
from stagepack.instances.schedule.rows import (
    BLOCK,
    LATEST,
    Rows,
    in_order,
    operation_name,
    runs,
    stretches,
)
from stagepack.instances.violation import Violation

LISTED = 100
"""Violations of one rule that are listed; more are counted."""


@dataclass(frozen=True)
class Ring:
    """A tensor that one operation makes and another one uses, and the slots it takes."""

    # `producer`, `consumer`: stage and kind of the two operations.
    producer: tuple[int, str]
    consumer: tuple[int, str]
    # Slots of a ring buffer in which microbatch i has slot i modulo `depth`: the most microbatches
    # whose producer has started and whose consumer has not ended.
    depth: int


@dataclass(frozen=True)
class DeviceMeasure:
    """What one device does in a step."""

    busy: int  # cycles of its operations and its optimizer
    # `first`, `last`: its first start, and its last end without the optimizer.
    first: int
    last: int
    span: int  # from the first start to the last end, and the optimizer
    idle: int  # cycles of the span in which it waits
    bubble: float  # part of the span in which it waits
    step_bubble: float  # part of the makespan in which it does not work
    peak_memory: int  # the most memory it holds, 0 where the instance gives none
    # The most microbatches (one for each stage that holds it) between the start of their F and the
    # end of their last operation.
    in_flight: int


@dataclass(frozen=True)
class StageMeasure:
    """What one stage holds."""

    # The most microbatches between the start of their F and the end of their last operation.
    in_flight: int


@dataclass(frozen=True)
class Measure:
    """What a schedule amounts to."""

    # `makespan`, `span`: the two objectives, whichever is minimised.
    makespan: int
    span: int
    # Cycles of all steps: one after the other, or, where devices run their optimizers at once,
    # every longest span.
    total: int
    bubble: float  # part of the longest span in which its device waits
    step_bubble: float  # part of all devices' time up to the makespan in which they do not work
    devices: tuple[DeviceMeasure, ...]  # one for each device
    stages: tuple[StageMeasure, ...]  # one for each stage
    # The stash of each stage (from F to its last operation, in training), then the tensors that
    # cross each edge, forward and backward.
    rings: tuple[Ring, ...]

    def to_dict(self) -> JsonObject:
        """Return the figures as JSON data."""
        return asdict(self)


def evaluate(instance: ScheduleData, solution: ScheduleSolution) -> int:
    """Return the value of the instance's objective; see :class:`.instance.Objective`."""
    first, last = _windows(instance, solution)
    match instance.objective:
        case Objective.SPAN:
            return int((last - first + instance.optimizer).max())
        case Objective.MAKESPAN:
            return _makespan(instance, last)
        case unknown:
            assert_never(unknown)


def _windows(instance: ScheduleData, solution: ScheduleSolution) -> tuple[Array, Array]:
    """Return the first start and the last end of each device."""
    rows = Rows(instance)
    ends = np.maximum.reduceat(solution.start, rows.first[:-1]) + rows.duration
    first, last = np.full(instance.d, LATEST), np.zeros(instance.d, dtype=np.int64)
    np.minimum.at(first, rows.device, np.minimum.reduceat(solution.start, rows.first[:-1]))
    np.maximum.at(last, rows.device, ends)
    return first, last


def _by_device(instance: ScheduleData) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(instance.d)]
    for stage, device in enumerate(instance.devices.tolist()):
        found[device].append(stage)
    return found


def _makespan(instance: ScheduleData, last: Array) -> int:
    """Return when all is done: devices end at `last`, and wait for one another or not."""
    if instance.post_validation:
        return int((last + instance.optimizer).max())
    return int(last.max() + instance.optimizer.max())


def _durations(instance: ScheduleData, stage: int) -> list[int]:
    """Return the cycles of F, B, W of a stage."""
    columns = (instance.forward, instance.backward, instance.weight)
    return [int(column[stage]) for column in columns if column is not None]


def _changes(instance: ScheduleData, stage: int) -> list[int]:
    """Return the bytes that F, B, W of a stage take or give back."""
    columns = (instance.memory_forward, instance.memory_backward, instance.memory_weight)
    return [int(column[stage]) for column in columns[: len(instance.kinds)]]


def measure(instance: ScheduleData, solution: ScheduleSolution) -> Measure:
    """Return times, bubbles, memory and microbatches in flight of a valid `solution`."""
    starts = solution.stages
    first, last = _windows(instance, solution)
    spans = last - first + instance.optimizer
    makespan, span = _makespan(instance, last), int(spans.max())
    if instance.post_validation:
        total = (instance.steps - 1) * span + makespan
    else:
        total = instance.steps * makespan
    flights = [
        (rows[0], rows[-1] + _durations(instance, stage)[-1]) for stage, rows in enumerate(starts)
    ]
    stages = tuple(StageMeasure(_most(*flight)) for flight in flights)
    devices = []
    for device, here in enumerate(_by_device(instance)):
        work = sum(sum(_durations(instance, s)) * int(instance.microbatches[s]) for s in here)
        busy = work + int(instance.optimizer[device])
        length = int(spans[device])
        _, level = _memory(instance, starts, here)
        devices.append(
            DeviceMeasure(
                busy=busy,
                first=int(first[device]),
                last=int(last[device]),
                span=length,
                idle=length - busy,
                bubble=(length - busy) / length,
                step_bubble=(makespan - busy) / makespan,
                peak_memory=int(level.max(initial=0)),
                in_flight=_most(
                    np.concatenate([flights[s][0] for s in here]),
                    np.concatenate([flights[s][1] for s in here]),
                ),
            )
        )
    rings = [
        Ring((stage, "F"), (stage, instance.kinds[-1]), _ring(*flight))
        for stage, flight in enumerate(flights)
        if instance.training
    ]
    for a, b in instance.edges:
        crossings = [((a, 0), (b, 0)), ((b, 1), (a, 1))]
        for (maker, kind), (user, _) in crossings[: 1 + instance.training]:
            ends = starts[user][kind] + _durations(instance, user)[kind]
            word = instance.kinds[kind]
            rings.append(Ring((maker, word), (user, word), _ring(starts[maker][kind], ends)))
    return Measure(
        makespan=makespan,
        span=span,
        total=total,
        bubble=max(devices, key=lambda device: device.span).bubble,
        step_bubble=1 - sum(device.busy for device in devices) / (makespan * instance.d),
        devices=tuple(devices),
        stages=stages,
        rings=tuple(rings),
    )


def _most(starts: Array, ends: Array) -> int:
    """Return the most of the intervals [start, end) that share a moment."""
    times = np.concatenate([ends, starts])
    order = np.argsort(times, kind="stable")  # at equal times ends come first
    return int(np.cumsum(np.where(order < len(ends), -1, 1)).max())


def _ring(starts: Array, ends: Array) -> int:
    """Return the least r for which interval i + r never starts before i ends; both in order."""
    started = np.searchsorted(starts, ends, side="left")  # before the end of each
    return int((started - np.arange(len(starts))).max())


def check(instance: ScheduleData, solution: ScheduleSolution) -> tuple[Violation, ...]:
    """Return every rule that `solution` breaks, by name; () when it is valid.

    The names: ``shape`` (other stages, kinds or microbatches), ``start`` (negative or beyond
    2**62), ``order`` (a kind of a stage out of the order of microbatches), ``overlap`` (of two
    operations on a device), ``forward-dependency``, ``backward-dependency``,
    ``weight-dependency`` (an operation before the end of one that it needs), ``link`` (after that
    end, but before its result has arrived), ``memory``.  At most `LISTED` violations of a rule
    are spelt out.
    """
    wrong = shape(instance, solution)
    if wrong:
        return wrong
    rows = Rows(instance)
    found = _order(rows, solution.start) + _dependencies(rows, solution.start)
    clashing, overfull = _suspects(rows, solution.start)
    if clashing or overfull:
        starts, here = solution.stages, _by_device(instance)
        for device in clashing:
            found += _overlaps(instance, starts, device, here[device])
        for device in overfull:
            found += _over_limit(instance, starts, device, here[device])
    return _limited(found)


def _limited(found: list[Violation]) -> tuple[Violation, ...]:
    """Return violations, at most `LISTED` of each rule, and how many more there are."""
    kept: list[Violation] = []
    count: dict[str, int] = {}
    for violation in found:
        count[violation.rule] = count.get(violation.rule, 0) + 1
        if count[violation.rule] <= LISTED:
            kept.append(violation)
    kept += [
        Violation(rule, f"and {number - LISTED:,} more")
        for rule, number in count.items()
        if number > LISTED
    ]
    return tuple(kept)


def shape(instance: ScheduleData, solution: ScheduleSolution) -> tuple[Violation, ...]:
    """Return what makes it impossible to speak of operations at all: ``shape``, ``start``."""
    wanted = tuple(map(int, instance.microbatches))
    start, kinds = solution.start, len(instance.kinds)
    if solution.microbatches != wanted or solution.kinds != kinds:
        return (
            Violation(
                "shape",
                f"{solution.kinds} kinds of operations and microbatches {solution.microbatches} "
                f"where there are {kinds} and {wanted}",
            ),
        )
    if start.shape != (kinds * sum(wanted),) or start.dtype != np.int64:
        return (
            Violation("shape", f"{start.shape} {start.dtype} for {kinds * sum(wanted)} operations"),
        )
    if start.min() >= 0 and start.max() < LATEST:
        return ()
    rows = Rows(instance)
    outside = np.flatnonzero((start < 0) | (start >= LATEST))
    return _limited(
        [Violation("start", f"{rows.name(v)} starts at {start[v]:,}") for v in outside.tolist()]
    )


def _order(rows: Rows, start: Array) -> list[Violation]:
    """Return what starts before the same of an earlier microbatch."""
    early = start[1:] < start[:-1]
    early[rows.first[1:-1] - 1] = False  # the next one is of another row
    return [
        Violation(
            "order",
            f"{rows.name(v + 1)} starts at {start[v + 1]:,}, "
            f"{start[v] - start[v + 1]:,} before that of microbatch {rows.place(v)[2]:,}",
        )
        for v in np.flatnonzero(early).tolist()
    ]


def _dependencies(rows: Rows, start: Array) -> list[Violation]:
    """Return what starts before that which it needs is there."""
    found: list[Violation] = []
    for needed, then, lag in _needs(rows):
        for pair, skipped, counts in stretches(rows.count[then]):
            later = runs(rows.first[then[pair]] + skipped, counts)
            earlier = runs(rows.first[needed[pair]] + skipped, counts)
            begin = start[later]
            end = start[earlier] + np.repeat(rows.duration[needed[pair]], counts)
            arrives = end + np.repeat(lag[pair], counts)
            found += [
                _too_early(rows, int(later[at]), int(earlier[at]), begin[at], end[at], arrives[at])
                for at in np.flatnonzero(begin < arrives).tolist()
            ]
    return found


def _too_early(rows: Rows, v: int, needed: int, begin: int, end: int, arrives: int) -> Violation:
    """Return what operation v breaks that starts before the result of another one is there."""
    what, other = rows.name(v), rows.name(needed)
    if begin < end:
        rule = ("forward-dependency", "backward-dependency", "weight-dependency")[rows.place(v)[1]]
        return Violation(
            rule, f"{what} starts at {begin:,}, {end - begin:,} before the end of {other}"
        )
    return Violation(
        "link",
        f"{what} starts at {begin:,}, {arrives - begin:,} before the result of {other} arrives at "
        f"{arrives:,}",
    )


def _needs(rows: Rows) -> Iterator[tuple[Array, Array, Array]]:
    """Yield rows (needed, then) and a lag for every rule that one waits for the other."""
    instance, kinds = rows.instance, rows.kinds
    for low in range(0, len(instance.ends), BLOCK):
        a, b = instance.ends[low : low + BLOCK].T
        apart = instance.devices[a] != instance.devices[b]
        lag = apart * instance.latency[low : low + BLOCK]
        yield a * kinds, b * kinds, lag
        if instance.training:
            yield b * kinds + 1, a * kinds + 1, lag
    first = np.arange(instance.p) * kinds
    for k in range(1, kinds):
        yield first + k - 1, first + k, 0 * first


def _suspects(rows: Rows, start: Array) -> tuple[list[int], list[int]]:
    """Return the devices on which operations overlap, and those that hold more than their limit."""
    return _clashing(rows, start), _overfull(rows, start)


def _clashing(rows: Rows, start: Array) -> list[int]:
    """Return the devices on which operations overlap.

    In the order of their starts they overlap nowhere if none does with the next one.
    """
    found: set[int] = set()
    device, end = -1, 0  # of the operation before
    for begin, row in in_order(rows, start, 0 * rows.duration):
        devices, ends = rows.device[row], begin + rows.duration[row]
        if devices[0] == device and begin[0] < end:
            found.add(device)
        clash = (begin[1:] < ends[:-1]) & (devices[1:] == devices[:-1])
        found.update(devices[1:][clash].tolist())
        device, end = int(devices[-1]), int(ends[-1])
    return sorted(found)


def _overfull(rows: Rows, start: Array) -> list[int]:
    """Return the devices that hold more than their limit."""
    limit = rows.instance.limit
    if limit is None:
        return []
    found: set[int] = set()
    device, held = -1, 0  # after the operation before
    for moment, row in in_order(rows, start, np.where(rows.change > 0, 0, rows.duration)):
        devices, change = rows.device[row], rows.change[row]
        if devices[0] == device:
            change[0] += held
        level, apart = np.cumsum(change), devices[1:] != devices[:-1]
        first = np.append(0, 1 + np.flatnonzero(apart))
        level -= np.repeat((level - change)[first], np.diff(first, append=len(row)))
        lasting = np.append(apart | (moment[1:] > moment[:-1]), True)  # of those at one moment
        found.update(devices[lasting & (level > limit[devices])].tolist())
        device, held = int(devices[-1]), int(level[-1])
    return sorted(found)


def _overlaps(
    instance: ScheduleData, starts: list[Array], device: int, here: list[int]
) -> list[Violation]:
    begins, ends, names = [], [], []
    for stage in here:
        for kind, duration in enumerate(_durations(instance, stage)):
            begins.append(starts[stage][kind])
            ends.append(starts[stage][kind] + duration)
            names.append((stage, kind))
    begin, end = np.concatenate(begins), np.concatenate(ends)
    order = np.lexsort((end, begin))
    begin, end = begin[order], end[order]
    latest = np.maximum.accumulate(end)
    first = np.cumsum([0, *(len(row) for row in begins)])

    def name(at: int) -> str:
        row = int(np.searchsorted(first, order[at], side="right")) - 1
        return operation_name(instance, *names[row], int(order[at] - first[row]))

    found = []
    for at in (1 + np.flatnonzero(begin[1:] < latest[:-1])).tolist():
        running = int(np.searchsorted(latest, latest[at - 1]))  # what ends last of those before
        found.append(
            Violation(
                "overlap",
                f"on {instance.device_name(device)} {name(at)} starts at {begin[at]:,}, "
                f"{latest[at - 1] - begin[at]:,} before the end of {name(running)}",
            )
        )
    return found


def _memory(instance: ScheduleData, starts: list[Array], here: list[int]) -> tuple[Array, Array]:
    """Return the moments at which the memory of stages changes, and what they hold from then."""
    moments, amounts = [], []
    for stage in here:
        durations, changes = _durations(instance, stage), _changes(instance, stage)
        for row, duration, change in zip(starts[stage], durations, changes, strict=True):
            moments.append(row if change > 0 else row + duration)
            amounts.append(np.full(len(row), change))
    at, amount = np.concatenate(moments), np.concatenate(amounts)
    order = np.argsort(at, kind="stable")
    at, level = at[order], np.cumsum(amount[order])
    last = np.append(at[1:] > at[:-1], True)  # of what happens at one moment
    return at[last], level[last]


def _over_limit(
    instance: ScheduleData, starts: list[Array], device: int, here: list[int]
) -> list[Violation]:
    """Return the moments when a device holds more than its limit."""
    if instance.limit is None:
        return []
    times, level = _memory(instance, starts, here)
    limit = int(instance.limit[device])
    if level.max() <= limit:
        return []
    most, first = int(level.argmax()), int(np.argmax(level > limit))
    return [
        Violation(
            "memory",
            f"{instance.device_name(device)} holds {level[most]:,} of {limit:,} at "
            f"{times[most]:,}, {level[most] - limit:,} too much, and too much first at "
            f"{times[first]:,}{_culprit(instance, starts, here, int(times[first]))}",
        )
    ]


def _culprit(instance: ScheduleData, starts: list[Array], here: list[int], moment: int) -> str:
    """Name an operation that takes memory at `moment`."""
    for stage in here:
        rows = starts[stage]
        for kind, change in enumerate(_changes(instance, stage)):
            if change > 0 and (rows[kind] == moment).any():
                i = int(np.argmax(rows[kind] == moment))
                return f", with {operation_name(instance, stage, kind, i)}"
    return ""
