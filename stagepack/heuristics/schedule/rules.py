"""The known rules of pipeline schedules: the order in which each device runs its operations.

A rule fixes orders, independent of durations; the times are longest paths.  B and W stand for the
gradients of inputs and weights; rules without W run it right after B.

Cost: O(operations) for orders, O(operations + arcs) for times.  Every rule names its source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stagepack.heuristics.schedule.effort import PART
from stagepack.heuristics.schedule.programs import B, F, Look, Program, W, stage_by_stage
from stagepack.instances.profile import Array
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution


@dataclass(frozen=True)
class Rule:
    """A way to order the operations of every device."""

    name: str  # what the method is called
    # What each device runs, one device after another, shape (n,), of an instance that the rule
    # supports; it is given a :data:`.programs.Look`, too.  O(operations).
    order: Callable[[PipelineSchedule, Look], Array]
    # '' or one line saying why the rule does not apply to an instance.
    unsupported: Callable[[PipelineSchedule], str]
    # One line for people, and who published it.
    description: str
    source: str
    # '' or one line on what the rule's schedule of an instance needs beside it.
    remark: Callable[[PipelineSchedule], str] = lambda _: ""


def apply(
    rule: Rule,
    instance: PipelineSchedule,
    look: Look | None = None,
    affords: Callable[[int], bool] | None = None,
) -> tuple[ScheduleSolution | None, str]:
    """Return the best schedule with the orders of a rule, or None and the reason.

    The reason names the device of which the rule breaks the memory limit most, and by how much.
    `affords` says whether so many steps of timing the orders end in time; see
    :meth:`.Timing.timely`.
    """
    from stagepack.heuristics.schedule.timing import Timing  # compiled code, loaded when used

    reason = rule.unsupported(instance)
    if reason:
        return None, reason
    look = look or _unseen
    timing = Timing(instance, look)
    order = rule.order(instance, look)
    excess = timing.peaks(order) - timing.graph.limit
    worst = int(excess.argmax())
    if excess[worst] > 0:
        limit = int(timing.graph.limit[worst])
        return None, (
            f"{rule.name} needs {limit + int(excess[worst]):,} on {instance.device_name(worst)}, "
            f"{int(excess[worst]):,} more than the limit of {limit:,}"
        )
    start = timing.timely(order, affords) if affords else timing.best(order)
    if start is None:
        return None, f"{rule.name} makes operations of this instance wait for one another"
    return ScheduleSolution.of(instance, start), ""


def _unseen(steps: int) -> None:
    """Look at nothing."""


# ---------------------------------------------------------------------- one stage a device


def one_by_one(instance: PipelineSchedule, look: Look) -> Array:
    """Return the order that finishes one microbatch after the other: in the least memory, mostly.

    All F's of a microbatch, then B and W of every stage, the last stages first.  O(operations).
    """
    program = Program(instance, look)
    microbatches = instance.microbatches.tolist()
    for stages in _own(instance):
        done = 0
        for m in sorted({microbatches[s] for s in stages}):
            stages = [s for s in stages if microbatches[s] > done]
            back = [(s, kind) for s in reversed(stages) for kind in (B, W)]
            program.run(m - done, *((s, F) for s in stages), *back)
            done = m
    return program.order


def in_groups(instance: PipelineSchedule, look: Look) -> Array | None:
    """Return GPipe group after group, each of as many microbatches as every stage can hold.

    None where a device has several stages, or where one microbatch does not fit.  O(operations).
    """
    from stagepack.heuristics.schedule.rule_kernels import grouped  # loaded when used

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
    operations = instance.operations
    stages = np.argsort(instance.devices)
    ends = np.cumsum(operations.kinds * operations.microbatches[stages])
    order = np.empty(len(operations), dtype=np.int64)
    base, m = operations.base, operations.microbatches
    done = place = 0
    while place < len(order):
        more = max(done + 1, int(np.searchsorted(ends, place + PART, side="right")))
        written = grouped(base, m, operations.kinds, size, stages[done:more], order, place)
        look(written - place)
        done, place = more, written
    return order


def _own(instance: PipelineSchedule) -> list[list[int]]:
    """Return the stages of each device, producers before consumers."""
    found: list[list[int]] = [[] for _ in range(instance.d)]
    devices = instance.devices.tolist()
    for s in instance.order:
        found[devices[s]].append(s)
    return found


def depths(instance: PipelineSchedule) -> Array:
    """Return the stages on the longest chain from each stage to an end, itself included."""
    first, consumers = instance.consumers.first.tolist(), instance.consumers.stage
    depth = np.ones(instance.p, dtype=np.int64)
    for s in reversed(instance.order):
        depth[s] += depth[consumers[first[s] : first[s + 1]]].max(initial=0)
    return depth


def _gpipe(instance: PipelineSchedule, look: Look) -> Array:
    """Return all F's, then all B's, each followed by its W."""
    if instance.d == instance.p:
        m = instance.microbatches
        return stage_by_stage(instance, look, (m, (F,)), (m, (B, W)))
    program = Program(instance, look)
    for stages in _own(instance):
        for s in stages:
            program.run(int(instance.microbatches[s]), (s, F))
        for s in reversed(stages):
            program.run(int(instance.microbatches[s]), (s, B), (s, W))
    return program.order


def _ramped(instance: PipelineSchedule, look: Look, warm_up: Array, lag: Array) -> Array:
    """Return orders of `warm_up` F's, then B and F in turn; W comes `lag` B's after its own."""
    m = instance.microbatches
    behind = np.minimum(lag, m)
    return stage_by_stage(
        instance,
        look,
        (np.minimum(warm_up, m), (F,)),
        (behind, (B, F)),
        (m - behind, (B, W, F)),
        (behind, (W,)),
    )


def _one_f_one_b(instance: PipelineSchedule, look: Look) -> Array:
    """Return orders with as many F's ahead as stages follow; W's come right after B."""
    depth = depths(instance)
    return _ramped(instance, look, depth, 0 * depth)


def _zb_h1(instance: PipelineSchedule, look: Look) -> Array:
    """Return orders of 1F1B, with W's as many B's late as the stage is from the first."""
    depth = depths(instance)
    return _ramped(instance, look, depth, depth.max() - depth)


def _zb_h2(instance: PipelineSchedule, look: Look) -> Array:
    """Return orders with almost twice the F's ahead, and W's twice as late."""
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


# ---------------------------------------------------------------------- several stages a device


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


def _interleaved(instance: PipelineSchedule, look: Look) -> Array:
    """Return orders of Megatron-LM: two F's further ahead on every device before."""
    return _in_rounds(instance, look, hop=2)


def _interleaved_zero_bubble(instance: PipelineSchedule, look: Look) -> Array:
    """Return orders with one F further ahead, and W's one B later, device by device."""
    return _in_rounds(instance, look, hop=1, behind=1)


def _in_rounds(instance: PipelineSchedule, look: Look, *, hop: int, behind: int = 0) -> Array:
    """Return orders of F's ahead, then F and B in turn, chunk by chunk in rounds of microbatches.

    Stages are dealt out in rounds.  A device is `hop` F's further ahead than the next one, and W is
    `behind` B's further behind than on the device before; 0: W follows its B.
    """
    d, m = instance.d, int(instance.microbatches[0])
    chunks = instance.p // d
    each = m // max(1, m // d)  # microbatches of a chunk before the next chunk's turn
    total = m * chunks
    step = np.arange(total)
    chunk = step // each % chunks
    microbatch = step // (each * chunks) * each + step % each
    base = instance.operations.base
    orders = []
    for rank in range(d):
        forward = base[chunk * d + rank] + microbatch
        # The k-th B is that of the k-th microbatch in turn on the chunks in reverse.
        backward = base[(chunks - 1 - chunk) * d + rank] + m + microbatch
        warm_up = min(total, (chunks - 1) * each + hop * (d - 1 - rank))
        late = min(total, behind * rank)
        table = np.full((total, len(instance.kinds)), -1, dtype=np.int64)
        table[: total - warm_up, F] = forward[warm_up:]
        table[:, B] = backward
        rest = backward[:0]
        if instance.split:
            table[late:, W] = backward[: total - late] + m
            rest = backward[total - late :] + m
        flat = table.reshape(-1)
        orders.append(np.concatenate([forward[:warm_up], flat[flat >= 0], rest]))
        look(10 * table.size)
    return np.concatenate(orders)


def _folded(instance: PipelineSchedule) -> str:
    """Return why not: stages are not in the shape of a V."""
    d = instance.d
    if instance.devices.tolist() != [*range(d), *reversed(range(d))]:
        return "needs two stages a device in the shape of a V: 0, 1, .., d-1, d-1, .., 1, 0"
    return ""


def _zb_v(instance: PipelineSchedule, look: Look) -> Array:
    """Return orders of a V in the memory of 1F1B, rank by rank."""
    d, m = instance.d, int(instance.microbatches[0])
    total = max(m, 2 * d - 1)  # what exceeds m is left out where it comes up
    program = Program(instance, look)
    for rank in range(d):
        down, up = rank, 2 * d - 1 - rank
        program.run(2 * (d - rank) - 1, (down, F))
        program.run(rank, (up, F), (down, F))
        program.run(d - rank, (up, F), (up, B), (up, W))
        program.run(total - d, (down, F), (down, B), (down, W), (up, F), (up, B), (up, W))
        program.run(rank, (down, B), (up, B))
        program.run(d - rank, (down, B), (down, W))
        program.run(total, (up, W))
        program.run(total, (down, W))
    return program.order


def _at_least_the_stages(instance: PipelineSchedule) -> str:
    """Return why not: microbatches are too few."""
    m = int(instance.microbatches[0])
    if m < instance.p:
        return f"needs as many microbatches as stages, {instance.p:,}, not {m:,}"
    return ""


def _dualpipe_v(instance: PipelineSchedule, look: Look) -> Array:
    """Return orders of DualPipe, cut in half: F of one way and B of the other in turn."""
    d, m = instance.d, int(instance.microbatches[0])
    program = Program(instance, look)
    for rank in range(d):
        down, up, below = rank, 2 * d - 1 - rank, d - 1 - rank
        full_down, full_up = [((s, B), (s, W)) for s in (down, up)]
        program.run(2 * below, (down, F))
        program.run(rank + 1, (down, F), (up, F))
        program.run(below, *full_up, (up, F))
        program.run(m - 2 * d + rank + 1, (down, F), *full_up, (up, F), *full_down)
        program.run(below, *full_up, (up, F), *full_down)
        # From the middle of what follows on, W's wait: first those of B's that came first.
        early, first = divmod(rank + 1, 2)
        program.run(early, *full_up, *full_down)
        program.run(first, *full_up, (down, B))
        program.run(rank + 1 - early - first, (up, B), (down, B))
        late = [(down, W)] * first + [(up, W), (down, W)] * (rank + 1 - early - first)
        late += [(down, W)] * below
        for w in late[:below]:
            program.run(1, w, (down, B))
        for w in late[below:]:
            program.run(1, w)
    return program.order


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


def _popxl(instance: PipelineSchedule, look: Look) -> Array:
    """Return ramp-up, loop and ramp-down: in a step every loop stage runs once."""
    # In step t of the loop F works on microbatch t - s, B on t - (2p - 2 - s).
    ahead = 2 * np.arange(instance.p)[::-1] if instance.training else np.zeros(instance.p, int)
    return stage_by_stage(instance, look, (ahead, (F,)), (instance.microbatches, (F, B, W)))


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
            "looped-bfs",
            _gpipe,
            _first_of(_trained, _chain, _dealt),
            "all forward operations of a round of stages after the other, then back likewise",
            "Lamy-Poirier 2022, Breadth-first pipeline parallelism (arXiv 2211.05953)",
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
            _zb_v,
            _first_of(_trained, _split, _chain, _folded),
            "two stages a device in the shape of a V, without a bubble in the memory of 1F1B",
            "Qi et al. 2024, Pipeline parallelism with controllable memory (arXiv 2405.15362)",
        ),
        Rule(
            "dualpipe-v",
            _dualpipe_v,
            _first_of(_trained, _split, _chain, _folded, _at_least_the_stages),
            "two stages a device in the shape of a V, F of one and B of the other in turn",
            "DeepSeek 2024, DualPipe, DeepSeek-V3 (arXiv 2412.19437); its V by Sea AI Lab",
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
