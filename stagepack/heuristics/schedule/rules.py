"""The known rules of pipeline schedules: the order in which each device runs its operations.

A rule gives operations moments, independent of durations; devices run them in this order, and the
times are longest paths.  B and W stand for the gradients of inputs and weights; rules without W run
it right after B.  Rules that leave a number open, such as the microbatches of a group, give one
order for each; the best that fits into the memory counts.

Cost: O(n log(n)) for n operations and an order, O(n + arcs) for its times.  Source: every rule
names its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from stagepack.heuristics.schedule import folds
from stagepack.heuristics.schedule.patterns import F, Look, Moments, Pattern, by_moment, columns
from stagepack.instances.profile import Array
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution

EACH = 20
"""Steps of another order, for each operation."""


@dataclass(frozen=True)
class Rule:
    """A way to order the operations of every device."""

    name: str  # what the method is called
    # Moments of the operations of an instance that the rule supports; it is given a
    # :data:`.patterns.Look`, too.  O(operations) each.
    moments: Callable[[PipelineSchedule, Look], Moments]
    # '' or one line saying why the rule does not apply to an instance.
    unsupported: Callable[[PipelineSchedule], str]
    # One line for people, and who published it.
    description: str
    source: str
    # '' or one line on what the rule's schedule of an instance needs beside it.
    remark: Callable[[PipelineSchedule], str] = lambda _: ""
    # Whether ``auto`` starts with it.
    start: bool = True

    def orders(self, instance: PipelineSchedule, look: Look) -> Iterator[Array]:
        """Yield what each device runs, one device after another, shape (n,)."""
        return (by_moment(instance, moment, look) for moment in self.moments(instance, look))


def apply(
    rule: Rule,
    instance: PipelineSchedule,
    look: Look | None = None,
    affords: Callable[[int], bool] | None = None,
    operations: float = math.inf,
) -> tuple[ScheduleSolution | None, str]:
    """Return the best schedule with orders of a rule, or None and the reason.

    The reason names the device of which the rule breaks the memory limit most, and by how much: of
    several orders, that of the one which breaks it least.  `affords` says whether so many steps of
    timing the orders end in time; see :meth:`.Timing.timely`.  Of several orders only so many are
    looked at as have so many `operations` together, the first in any case.
    """
    from stagepack.heuristics.schedule.timing import Timing  # compiled code, loaded when used

    reason = rule.unsupported(instance)
    if reason:
        return None, reason
    look = look or _unseen
    timing = Timing(instance, look)
    limit = timing.graph.limit
    reason = f"{rule.name} makes operations of this instance wait for one another"
    found: ScheduleSolution | None = None
    least = value = None
    most_orders = max(1, int(min(operations / timing.n, timing.n + 1)))
    for order in itertools.islice(rule.orders(instance, look), most_orders):
        if (found or least) and affords and not affords(EACH * timing.n):
            break
        excess = timing.peaks(order) - limit
        worst = int(excess.argmax())
        if excess[worst] > 0:
            if least is None or excess[worst] < least:
                least, most = int(excess[worst]), int(limit[worst])
                reason = (
                    f"{rule.name} needs {most + least:,} on {instance.device_name(worst)}, "
                    f"{least:,} more than the limit of {most:,}"
                )
            continue
        start = timing.timely(order, affords) if affords else timing.best(order)
        if start is None:
            continue
        solution = ScheduleSolution.of(instance, start)
        cycles = int(instance.evaluate(solution))
        look(len(start))
        if value is None or cycles < value:
            found, value = ScheduleSolution.of(instance, start.copy()), cycles
    return found, "" if found is not None else reason


def _unseen(steps: int) -> None:
    """Look at nothing."""


# ---------------------------------------------------------------------- any layout


def one_by_one(instance: PipelineSchedule, look: Look) -> Array:
    """Return the order that finishes one microbatch after the other: in the least memory, mostly.

    All F's of a microbatch, then B and W of every stage, the last stages first.  O(n log(n)).
    """
    turn, p = _turn(instance), instance.p
    back = 3 * p - 2 * turn
    pattern = Pattern(columns(turn, back, back + 1), 0, 1, 4 * p + 2)
    return by_moment(instance, pattern.moments(instance, look), look)


def in_groups(instance: PipelineSchedule, look: Look) -> Array | None:
    """Return GPipe group after group, each of as many microbatches as every stage can hold.

    None where a device has several stages, or where one microbatch does not fit.  O(n log(n)).
    """
    if not instance.training or instance.d < instance.p:
        return None
    size = int(instance.microbatches.max())
    if instance.limit is not None:
        limits = instance.limit.tolist()
        for s, device in enumerate(instance.devices.tolist()):
            f, b, _ = instance.changes(s)
            size = min(size, (limits[device] - max(b, 0)) // f) if f > 0 else size
    look(instance.p)
    if size < 1:
        return None
    begin = np.tile(np.array([0, 2 * size, 2 * size + 1]), (instance.p, 1))
    return by_moment(instance, Pattern(begin, 2, size, 4 * size).moments(instance, look), look)


def depths(instance: PipelineSchedule) -> Array:
    """Return the stages on the longest chain from each stage to an end, itself included."""
    first, consumers = instance.consumers.first.tolist(), instance.consumers.stage
    depth = np.ones(instance.p, dtype=np.int64)
    for s in reversed(instance.order):
        depth[s] += depth[consumers[first[s] : first[s + 1]]].max(initial=0)
    return depth


def _turn(instance: PipelineSchedule) -> Array:
    """Return how many stages come before each one, producers before consumers."""
    turn = np.empty(instance.p, dtype=np.int64)
    turn[list(instance.order)] = np.arange(instance.p)
    return turn


def _gpipe(instance: PipelineSchedule, look: Look) -> Moments:
    """Yield all F's, then all B's, each followed by its W; stage after stage."""
    turn, each = _turn(instance), 2 * int(instance.microbatches.max())
    back = each * (2 * instance.p - turn)
    yield Pattern(columns(each * turn, back, back + 1), 2).moments(instance, look)


# ---------------------------------------------------------------------- one stage a device


def _ramped(instance: PipelineSchedule, look: Look, ahead: Array, lag: Array) -> Moments:
    """Yield orders of `ahead` F's, then B and F in turn; W comes `lag` B's after its own."""
    yield Pattern(columns(2 - 3 * ahead, 0 * ahead, 1 + 3 * lag), 3).moments(instance, look)


def _one_f_one_b(instance: PipelineSchedule, look: Look) -> Moments:
    """Yield orders with as many F's ahead as stages follow; W's come right after B."""
    depth = depths(instance)
    return _ramped(instance, look, depth, 0 * depth)


def _zb_h1(instance: PipelineSchedule, look: Look) -> Moments:
    """Yield orders of 1F1B, with W's as many B's late as the stage is from the first."""
    depth = depths(instance)
    return _ramped(instance, look, depth, depth.max() - depth)


def _zb_h2(instance: PipelineSchedule, look: Look) -> Moments:
    """Yield orders with almost twice the F's ahead, and W's twice as late."""
    depth = depths(instance)
    return _ramped(instance, look, 2 * depth - 1, 2 * (depth.max() - depth))


def _one_stage_each(instance: PipelineSchedule) -> str:
    """Return why not: stages share devices."""
    if instance.d < instance.p:
        return "needs one stage a device"
    return ""


def _trained(instance: PipelineSchedule) -> str:
    """Return why not: there are no B's."""
    return "" if instance.training else "needs backward operations"


def _split(instance: PipelineSchedule) -> str:
    """Return why not: there are no W's."""
    return "" if instance.split else "needs the backward pass split into B and W"


def _chain(instance: PipelineSchedule) -> str:
    """Return why not: stages are not a chain in order."""
    ends = instance.ends
    if len(ends) != instance.p - 1 or (ends[:, 1] - ends[:, 0] != 1).any():
        return "needs the chain of stages 0, 1, 2, ..."
    return ""


def _first_of(*tests: Callable[[PipelineSchedule], str]) -> Callable[[PipelineSchedule], str]:
    """Return a test that gives the first reason of several."""

    def reason(instance: PipelineSchedule) -> str:
        return next(filter(None, (test(instance) for test in tests)), "")

    return reason


# ---------------------------------------------------------------------- stages in a loop


def _dealt(instance: PipelineSchedule) -> str:
    """Return why not: stages are not dealt out in rounds."""
    p, d = instance.p, instance.d
    if p == d or p % d or instance.devices.tolist() != [s % d for s in range(p)]:
        return "needs two or more rounds of stages over the devices: stage s on device s modulo d"
    return ""


def _looped(instance: PipelineSchedule) -> str:
    """Return why not: microbatches do not divide into equal rounds."""
    m = int(instance.microbatches[0])
    rounds = max(1, m // instance.d)
    if m % rounds:
        return f"needs microbatches that divide into {rounds:,} equal rounds, not {m:,}"
    return ""


def _each(instance: PipelineSchedule) -> int:
    """Return the microbatches of a round, at least one for every device where there are so many."""
    m = int(instance.microbatches[0])
    return m // max(1, m // instance.d)


def _interleaved(instance: PipelineSchedule, look: Look) -> Moments:
    """Yield the order of Megatron-LM: two F's further ahead on every device before."""
    yield _in_rounds(instance, look, _each(instance), hop=2)


def _interleaved_zero_bubble(instance: PipelineSchedule, look: Look) -> Moments:
    """Yield the order with one F further ahead, and W's one B later, device by device."""
    yield _in_rounds(instance, look, _each(instance), hop=1, behind=1)


def _megatron(instance: PipelineSchedule, look: Look) -> Moments:
    """Yield the orders of Megatron-LM for every size of a group that it takes."""
    d, m = instance.d, int(instance.microbatches[0])
    for each in range(d, m + 1):
        if m % each == 0 or m % each >= d:
            yield _in_rounds(instance, look, each, hop=2)


def _enough_for_a_group(instance: PipelineSchedule) -> str:
    """Return why not: a group has fewer microbatches than there are devices."""
    m = int(instance.microbatches[0])
    if m < instance.d:
        return f"needs as many microbatches as devices, {instance.d:,}, not {m:,}"
    return ""


def _in_rounds(
    instance: PipelineSchedule, look: Look, each: int, *, hop: int, behind: int = 0
) -> Array:
    """Return moments of F's ahead, then F, B and W in turn, chunk by chunk in rounds.

    Stages are dealt out in rounds, and every chunk runs `each` microbatches, of the last round what
    is left, before the next.  A device is `hop` F's further ahead than the next one, and W is
    `behind` B's further behind than on the device before; 0: W follows its B.
    """
    operations, d, m = instance.operations, instance.d, int(instance.microbatches[0])
    chunks = instance.p // d
    chunk, rank = np.divmod(operations.stage, d)
    look(2 * len(rank))
    begin = operations.microbatch // each * each
    look(2 * len(rank))
    turn = np.where(operations.kind == F, chunk, chunks - 1 - chunk)
    place = begin * chunks + turn * np.minimum(each, m - begin) + operations.microbatch - begin
    look(4 * len(rank))
    ahead = (chunks - 1) * each + hop * (d - 1 - rank)
    late = np.choose(operations.kind, [-ahead, 0 * rank, behind * rank])
    look(4 * len(rank))
    return np.asarray(3 * (place + late) + operations.kind, dtype=np.int64)


def _grouped(instance: PipelineSchedule, look: Look) -> Moments:
    """Yield orders in which chunks take turns after groups of g microbatches, for every g.

    A device runs F, B and W in turn.  A chunk is k groups behind the one before, k g at least half
    the devices.  Where k chunks and groups have a divisor in common, later ones wait for a group
    more.
    """
    d, m = instance.d, int(instance.microbatches[0])
    chunks = instance.p // d
    chunk, rank = np.divmod(np.arange(instance.p), d)
    for size in range(1, min(d, m) + 1):
        for lag in range(-(-((d + 1) // 2) // size), -(-d // size) + 1):
            apart = chunks // int(np.gcd(chunks, lag))
            wait = 3 * size * (lag * np.arange(chunks) + np.arange(chunks) // apart)
            back = wait[-1] + rank + 3 * (d - 1 - rank) + 1 + wait[chunks - 1 - chunk]
            begin = columns(wait[chunk] + rank, back, back + 1)
            yield Pattern(begin, 3, size, 3 * size * chunks).moments(instance, look)


# ---------------------------------------------------------------------- the loop of PopXL


def _loop_stages(instance: PipelineSchedule) -> int:
    """Return the stages of the loop: F's, and B's behind the last of them."""
    return 2 * instance.p - 1 if instance.training else instance.p


def _steps(instance: PipelineSchedule) -> str:
    """Return why not: microbatches are too few for a steady loop."""
    least, m = 2 * _loop_stages(instance), int(instance.microbatches[0])
    if m < least:
        return f"needs at least 2 * {least // 2} = {least:,} microbatches, not {m:,}"
    return ""


def _popxl(instance: PipelineSchedule, look: Look) -> Moments:
    """Yield ramp-up, loop and ramp-down: in a step every loop stage runs once."""
    # In step t of the loop F works on microbatch t - s, B on t - (2p - 2 - s).
    ahead = 2 * np.arange(instance.p)[::-1]
    begin = columns(-3 * ahead, 0 * ahead + 1, 0 * ahead + 2)
    yield Pattern(begin, 3).moments(instance, look)


def loop_rings(instance: PipelineSchedule) -> tuple[int, ...]:
    """Return the slots of the stash of each stage in the loop of PopXL in training, shape (p,).

    What loop stage `from` makes and loop stage `to` reads stays for to - from + 1 steps; the B of
    stage s is loop stage 2p - 2 - s.  What is read in the step that makes it, as in the last
    stage, needs no ring: 0.
    """
    return (*(2 * (instance.p - 1 - s) + 1 for s in range(instance.p - 1)), 0)


def _rings(instance: PipelineSchedule) -> str:
    """Return the slots of the ring of each tensor in the loop of PopXL, in words."""
    slots = []
    if instance.training:
        slots = [
            f"{instance.stage_name(s)} {depth or 'none'}"
            for s, depth in enumerate(loop_rings(instance))
        ]
    if instance.p > 1:
        slots.append("each tensor that crosses an edge 2")
    return f"slots of the stash rings: {', '.join(slots)}" if slots else ""


ZERO_BUBBLE = "Qi et al. 2024, Zero bubble pipeline parallelism (arXiv 2401.10241)"
CONTROLLABLE = "Qi et al. 2024, Pipeline parallelism with controllable memory (arXiv 2405.15362)"
DUALPIPE = "DeepSeek 2024, DualPipe, DeepSeek-V3 (arXiv 2412.19437)"

TWO_CHAINS = folds.zigzag(2, 1, "two chains of stages in opposite directions, on an even number")

RULES = {
    rule.name: rule
    for rule in (
        Rule(
            "gpipe",
            _gpipe,
            lambda _: "",
            "all forward operations, then all backward ones",
            "Huang et al. 2019, GPipe (arXiv 1811.06965)",
        ),
        Rule(
            "1f1b",
            _one_f_one_b,
            _first_of(_trained, _one_stage_each),
            "as many forward operations as stages follow, then B and F in turn",
            "Narayanan et al. 2019, PipeDream; 2021, PipeDream-flush (arXiv 2006.09503)",
        ),
        Rule(
            "interleaved-1f1b",
            _interleaved,
            _first_of(_trained, _chain, _dealt, _looped),
            "1F1B with several stages a device, dealt out in rounds",
            "Narayanan et al. 2021, Megatron-LM (arXiv 2104.04473)",
        ),
        Rule(
            "megatron",
            _megatron,
            _first_of(_trained, _chain, _dealt, _enough_for_a_group),
            "interleaved-1f1b in groups of any size from the devices on",
            "Megatron-Core, pipeline_parallel/schedules.py",
        ),
        Rule(
            "grouped-interleaving",
            _grouped,
            _first_of(_trained, _chain, _dealt),
            "stages in a loop that take turns after any number of microbatches up to the devices",
            f"{CONTROLLABLE}; group_interleaved_1f1b of sail-sg/zero-bubble-pipeline-parallelism",
        ),
        Rule(
            "looped-bfs",
            _gpipe,
            _first_of(_trained, _chain, _dealt),
            "all forward operations of a round of stages after the other, then back likewise",
            "Lamy-Poirier 2022, Breadth-first pipeline parallelism (arXiv 2211.05953)",
            start=False,  # devices do what they do in gpipe
        ),
        Rule(
            "interleaved-zero-bubble",
            _interleaved_zero_bubble,
            _first_of(_trained, _split, _chain, _dealt, _looped),
            "interleaved-1f1b with half the F's ahead, W delayed by the device's index",
            f"{ZERO_BUBBLE}; torch.distributed.pipelining",
        ),
        Rule(
            "zb-h1",
            _zb_h1,
            _first_of(_trained, _split, _one_stage_each),
            "1F1B with W delayed by the stage's index, in the memory of 1F1B",
            ZERO_BUBBLE,
        ),
        Rule(
            "zb-h2",
            _zb_h2,
            _first_of(_trained, _split, _one_stage_each),
            "almost twice the forward operations of 1F1B first, W delayed twice as long",
            ZERO_BUBBLE,
        ),
        Rule(
            "zb-v",
            folds.zb_v,
            _first_of(_trained, _split, _chain, folds.folded),
            "two stages a device in the shape of a V, without a bubble in the memory of 1F1B",
            CONTROLLABLE,
        ),
        Rule(
            "dualpipe-v",
            folds.dual_pipe,
            _first_of(_trained, _split, _chain, folds.folded, folds.at_least_the_stages),
            "two stages a device in the shape of a V, F of one and B of the other in turn",
            f"{DUALPIPE}; its V by Sea AI Lab",
        ),
        Rule(
            "dualpipe",
            folds.dual_pipe,
            _first_of(_trained, _split, TWO_CHAINS, folds.at_least_the_stages),
            "two chains in opposite directions, F of one way and B of the other in turn",
            DUALPIPE,
        ),
        Rule(
            "v-half",
            folds.v_half,
            _first_of(_trained, _split, _chain, folds.folded, folds.few_slots),
            "two stages a device in the shape of a V, in half the memory of 1F1B",
            CONTROLLABLE,
        ),
        Rule(
            "v-min",
            folds.v_min,
            _first_of(_trained, _split, _chain, folds.folded, folds.few_slots),
            "two stages a device in the shape of a V, in a third of the memory of 1F1B",
            CONTROLLABLE,
        ),
        Rule(
            "v-1f1b",
            folds.v_1f1b,
            _first_of(_trained, _chain, folds.folded, folds.few_slots),
            "two stages a device in the shape of a V, B and W together, two thirds of the memory",
            f"{CONTROLLABLE}; v1f1b of sail-sg/zero-bubble-pipeline-parallelism",
        ),
        Rule(
            "chimera",
            folds.waves,
            _first_of(_trained, TWO_CHAINS),
            "two chains in opposite directions, whose F's and B's fill every other slot",
            "Li, Hoefler 2021, Chimera (arXiv 2107.06925)",
        ),
        Rule(
            "bitpipe",
            folds.waves,
            _first_of(_trained, folds.zigzag(2, 2, "two V's of stages in opposite directions")),
            "two V's in opposite directions, whose F's and B's fill every other slot",
            "Wu et al. 2024, BitPipe (arXiv 2410.19367)",
        ),
        Rule(
            "hanayo",
            folds.waves,
            _first_of(_trained, _chain, folds.zigzag(1, 2, "one or more V's, one after another")),
            "stages in waves over the devices and back, whose F's and B's fill every other slot",
            "Liu et al. 2023, Hanayo (arXiv 2308.15762)",
        ),
        Rule(
            "popxl",
            _popxl,
            _first_of(_chain, _one_stage_each, _steps),
            "a loop whose steps run every stage once, with ramp-up and ramp-down",
            "popxl.addons, transforms/pipelining",
            _rings,
        ),
    )
}
"""All rules, by name."""
