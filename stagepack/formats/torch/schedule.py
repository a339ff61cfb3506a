"""Schedules of ``torch.distributed.pipelining`` as CSV: a line a rank, its actions in order.

An action is ``{stage}{type}{microbatch}``, as ``0F3``.  Types of work: ``F``, the forward pass;
``B``, the whole backward pass; ``I`` and ``W``, the gradients of the input and of the weights
where the backward pass is split (our B and W).  ``(0F1;3B0)OVERLAP_F_B`` does several in turn, an
empty cell nothing.  Files made for running without lowering hold, too, ``SEND_F``, ``RECV_F``,
``SEND_B``, ``RECV_B``, the waits for the sends, and for each stage ``UNSHARD``, ``RESHARD``,
``REDUCE_GRAD`` and ``WAIT_REDUCE_GRAD``: they add nothing to the order of work.

A file knows no times.  As a solution it is the order of work of each device, every operation as
early as that allows; as an instance it has stages, devices and microbatches, and all operations
take one cycle.  Stages form a chain.

Source: ``torch/distributed/pipelining/schedules.py``, ``_Action`` and
``_PipelineScheduleRuntime._load_csv``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stagepack.errors import InputError
from stagepack.formats.known import stem_of
from stagepack.instances.documents import strict
from stagepack.instances.schedule import KIND, PipelineSchedule, ScheduleSolution
from stagepack.instances.schedule.native import GIVEN, changes
from stagepack.instances.schedule.timing import longest_path
from stagepack.instances.words import Words

log = logging.getLogger("stagepack")


def order(instance: PipelineSchedule, solution: ScheduleSolution) -> bytes:
    """Return the order of work of each rank as torchtitan takes it, and refuse what it does not.

    It deals stages to ranks by itself, as many to each: stage s to rank s % ranks or, where
    ``pipeline_parallel_schedule`` is ZBVZeroBubble or DualPipeV, there and back; PyTorch wants as
    many microbatches of each stage, forward and backward.  Source:
    ``torchtitan/distributed/pipeline_parallel.py`` of torchtitan 0.3.
    """
    if require_dealt(instance):
        log.warning("say pipeline_parallel_schedule=ZBVZeroBubble, too: it deals the stages so")
    return dump(solution, instance)


def require_dealt(instance: PipelineSchedule) -> bool:
    """Refuse stages as torchtitan does not deal them; return whether they go there and back."""
    ranks = instance.d
    devices: list[int] = instance.devices.tolist()
    counts = np.bincount(instance.devices, minlength=ranks).tolist()
    if min(counts) < max(counts):
        few, many = counts.index(min(counts)), counts.index(max(counts))
        raise InputError(
            f"device {few} has {counts[few]} stages and device {many} has {counts[many]}: "
            "torchtitan deals as many to each rank",
            field="devices",
            remedy="cut into a multiple of the devices",
        )
    looped = [stage % ranks for stage in range(instance.p)]
    there_and_back = [*range(ranks), *reversed(range(ranks))]
    if devices not in (looped, there_and_back):
        stage = next(at for at, rank in enumerate(looped) if devices[at] != rank)
        raise InputError(
            f"stage {stage} is on device {devices[stage]}, and torchtitan has it on rank "
            f"{looped[stage]}",
            field="devices",
            remedy="place stages in rounds over the devices, or in the shape of a V",
        )
    if not instance.training or len(set(instance.microbatches.tolist())) > 1:
        raise InputError(
            "PyTorch runs orders in which each stage has all microbatches, forward and backward",
            field="microbatches" if instance.training else "backward",
            remedy="give a training step, with as many microbatches for each stage",
        )
    return devices != looped


WORK = ("F", "B", "I", "W")
OTHER = (
    "SEND_F", "RECV_F", "SEND_B", "RECV_B", "WAIT_SEND_F", "WAIT_SEND_B",
    "UNSHARD", "RESHARD", "REDUCE_GRAD", "WAIT_REDUCE_GRAD",
)  # fmt: skip
MOVES = OTHER[:4]
OF_STAGE = ("UNSHARD", "RESHARD", "REDUCE_GRAD", "WAIT_REDUCE_GRAD")  # have no microbatch
ACTION = re.compile(r"([0-9]{1,9})([A-Z][A-Z_]*?)([0-9]{0,9})")
SEVERAL = re.compile(r"\((.*)\)OVERLAP_F_B")


@dataclass(frozen=True)
class Work:
    """An action, and where it stands."""

    stage: int
    type: str
    microbatch: int
    where: str

    def __str__(self) -> str:
        return f"{self.stage}{self.type}{self.microbatch}"


def _actions(data: bytes) -> list[list[Work]]:
    """Return the actions of each rank, in order."""
    rows = strict.text(data).splitlines()
    while rows and not rows[-1].strip():
        rows.pop()
    return [
        [
            work
            for at, cell in enumerate(row.split(","))
            for work in _work(cell.strip(), f"line {rank + 1}, cell {at + 1}")
        ]
        for rank, row in enumerate(rows)
    ]


def _work(cell: str, where: str) -> Iterator[Work]:
    several = SEVERAL.fullmatch(cell)
    for part in several[1].split(";") if several else [cell]:
        if not part.strip():
            continue
        found = ACTION.fullmatch(part.strip())
        if found is None or found[2] not in (*WORK, *OTHER):
            raise InputError(
                f"{part[:40]!r} is no action",
                field=where,
                remedy="write stage, type and microbatch as in 0F3; types of work are "
                + ", ".join(WORK),
            )
        if not found[3] and found[2] not in OF_STAGE:
            raise InputError(f"{part!r} names no microbatch", field=where, remedy="write 0F3")
        yield Work(int(found[1]), found[2], int(found[3] or 0), where)


def parse(data: bytes, given: Words, file: str) -> list[PipelineSchedule]:
    """Return the instance whose stages, devices and microbatches are those of the file."""
    actions = _actions(data)
    ranks = _computing(actions)
    everything = [work for row in ranks for work in row]
    device = {work.stage: rank for rank, row in enumerate(ranks) for work in row}
    if not device:
        raise InputError("holds no work", remedy="give lines such as 0F0,0F1,0B0,0B1")
    for rank, row in enumerate(ranks):
        for work in row:
            if device[work.stage] != rank:
                raise InputError(
                    f"stage {work.stage} is on line {device[work.stage] + 1}, too",
                    field=work.where,
                    remedy="let each stage work on one rank",
                )
    missing = next((stage for stage in range(max(device) + 1) if stage not in device), None)
    if missing is not None:
        raise InputError(
            f"stage {missing} does nothing", field="stages", remedy="number stages from 0"
        )
    last = max(everything, key=lambda work: work.microbatch)
    if last.microbatch >= len(everything):
        raise InputError(
            f"{last} is of a microbatch whose predecessors are missing",
            field=last.where,
            remedy="number microbatches from 0",
        )
    types = {work.type for work in everything}
    ones = np.ones(len(device), dtype=np.int64)
    split = bool(types & {"I", "W"})
    instance = PipelineSchedule.from_arrays(
        ones,
        ones if types - {"F"} else None,
        ones if split else None,
        microbatches=last.microbatch + 1,
        devices=[device[stage] for stage in range(len(device))],
        name=stem_of(file),
    )
    _placed(actions, instance)
    said = changes(given)
    if "microbatches" in said:
        raise InputError(
            "is what the file says",
            field="microbatches",
            remedy="leave it out, or give a native file",
        )
    return [instance.replace(**said)]


def solution(data: bytes, instance: PipelineSchedule) -> ScheduleSolution:
    """Return a file's schedule for `instance`, every operation as early as the orders allow."""
    return _placed(_actions(data), instance)


def _computing(actions: list[list[Work]]) -> list[list[Work]]:
    return [[action for action in row if action.type in WORK] for row in actions]


def _placed(actions: list[list[Work]], instance: PipelineSchedule) -> ScheduleSolution:
    """Return the schedule that actions make, every operation as early as the orders allow."""
    orders = _orders(_computing(actions), instance)
    _check_communication(actions, instance)
    start, waits = longest_path(instance, orders)
    stuck = [next((v for v in order if waits[v]), None) for order in orders]
    if any(v is not None for v in stuck):
        shown = " and ".join(_spelt(instance, v) for v in stuck if v is not None)
        raise InputError(
            f"never ends: {shown} wait for one another",
            field="order",
            remedy="list each after those that it needs",
        )
    return ScheduleSolution.of(instance, start)


def _check_communication(actions: list[list[Work]], instance: PipelineSchedule) -> None:
    """Refuse sends and receives, where there are any, that are not just those that are needed."""
    place: dict[str, tuple[int, int]] = {}
    moving: dict[str, Work] = {}
    for rank, row in enumerate(actions):
        for at, action in enumerate(row):
            if action.type in MOVES and str(action) in moving:
                raise _misplaced_move(action, "it was done before")
            if action.type in MOVES:
                moving[str(action)] = action
            for kind in ("B", "I") if action.type in "BI" else (action.type,):
                place[f"{action.stage}{kind}{action.microbatch}"] = (rank, at)
    if not moving:
        return
    for name, made, sent in _needed(instance):
        if name not in moving:
            raise InputError(
                f"lacks {name}",
                field="communication",
                remedy="give every send and receive, or none",
            )
        action, where = moving.pop(name), place[name]
        if where[0] != place[made][0] or (where > place[made]) != sent:
            raise _misplaced_move(action, f"it belongs {'behind' if sent else 'before'} {made}")
    for action in moving.values():
        raise _misplaced_move(action, "nothing has to go there")


def _needed(instance: PipelineSchedule) -> Iterator[tuple[str, str, bool]]:
    """Yield every send and receive, the work that it belongs to, and whether it is a send."""
    devices = instance.devices.tolist()
    for s, later in instance.edges:
        if devices[s] == devices[later]:
            continue
        for i in range(int(instance.microbatches[s])):
            yield f"{s}SEND_F{i}", f"{s}F{i}", True
            yield f"{later}RECV_F{i}", f"{later}F{i}", False
            if instance.training:
                yield f"{later}SEND_B{i}", f"{later}B{i}", True
                yield f"{s}RECV_B{i}", f"{s}B{i}", False


def _misplaced_move(action: Work, why: str) -> InputError:
    return InputError(
        f"{action} cannot be: {why}",
        field=action.where,
        remedy="send after the work, receive before it, once each",
    )


def _orders(ranks: list[list[Work]], instance: PipelineSchedule) -> list[list[int]]:
    """Return the operations of each device in the order of a file that has them all."""
    if len(ranks) != instance.d:
        raise InputError(
            f"has {len(ranks)} lines for {instance.d} devices",
            field="lines",
            remedy="give a line for each device",
        )
    operations = instance.operations
    seen = np.zeros(len(operations), dtype=bool)
    base, m = operations.base.tolist(), instance.microbatches.tolist()
    devices = instance.devices.tolist()
    turn = [[0, 0, 0] for _ in devices]  # the next microbatch of each stage and kind
    orders: list[list[int]] = []
    for rank, row in enumerate(ranks):
        order: list[int] = []
        for work in row:
            for kind in _kinds(work, instance):
                s, i = work.stage, work.microbatch
                if s >= len(m) or devices[s] != rank or i >= m[s] or i != turn[s][kind]:
                    raise _misplaced(work, rank, instance, turn[s][kind] if s < len(m) else 0)
                turn[s][kind] += 1
                order.append(base[s] + kind * m[s] + i)
        orders.append(order)
        seen[order] = True
    if not seen.all():
        absent = int(np.argmin(seen))
        raise InputError(
            f"lacks {_spelt(instance, absent)}",
            field=f"line {int(operations.device[absent]) + 1}",
            remedy="give every operation once",
        )
    return orders


def _kinds(work: Work, instance: PipelineSchedule) -> tuple[int, ...]:
    """Return the kinds (0 = F, 1 = B, 2 = W) of operations that an action runs."""
    if work.type == "F":
        return (0,)
    if not instance.training:
        raise InputError(
            f"{work} is backward work, but the instance is inference",
            field=work.where,
            remedy="give an instance with backward cycles",
        )
    if work.type == "B":
        return (1, 2) if instance.split else (1,)
    if not instance.split:
        raise InputError(
            f"{work} is half a backward pass, but the instance does not split it",
            field=work.where,
            remedy="give an instance with weight cycles",
        )
    return (1,) if work.type == "I" else (2,)


def _misplaced(work: Work, rank: int, instance: PipelineSchedule, turn: int) -> InputError:
    """Say why an action cannot be: no stage, another device's, repeated or out of order."""
    if work.stage >= instance.p:
        problem = f"there are {instance.p} stages"
    elif instance.devices[work.stage] != rank:
        problem = f"stage {work.stage} is on device {instance.devices[work.stage]}"
    elif work.microbatch >= instance.microbatches[work.stage]:
        problem = f"there are {instance.microbatches[work.stage]} microbatches"
    elif work.microbatch < turn:
        problem = "it was run before"
    else:
        problem = f"it is the turn of microbatch {turn}"
    return InputError(
        f"{work} cannot be: {problem}",
        field=work.where,
        remedy="give a schedule of this instance, microbatches in order",
    )


def _spelt(instance: PipelineSchedule, operation: int) -> str:
    operations = instance.operations
    word = _types(instance)[operations.kind[operation]]
    return f"{operations.stage[operation]}{word}{operations.microbatch[operation]}"


def _types(instance: PipelineSchedule) -> tuple[str, ...]:
    return ("F", "I", "W") if instance.split else ("F", "B")


def dump(
    solution: ScheduleSolution,
    instance: PipelineSchedule,
    *,
    communication: bool = False,
    waits: bool = False,
    backward: bool = False,
) -> bytes:
    """Return the order of work of each rank, to be run by ``torch.distributed.pipelining``: of a
    chain.

    Parameters
    ----------
    communication : bool
        Write sends, receives and the handling of parameters, too (format ``compute_comms``);
        otherwise torch adds its own (``compute_only``).
    waits : bool
        With waits for sends and reductions: torch 2.15 refuses files without, versions up to 2.14
        read ``0WAIT_SEND_F0`` as ``0W`` and refuse files with them.
    backward : bool
        Of inference: with the backward passes that torch asks for in every file, and leaves out
        where it evaluates.

    Notes
    -----
    A send follows the work it sends at once, and the receive takes its place in the other rank at
    that moment.  All sends and receives are so in the order of one list, the work by its starts,
    and the first of them that is not done can always be done: ranks never wait in a circle, even
    where a send waits for its receive.
    """
    if set(instance.edges) != {(stage, stage + 1) for stage in range(instance.p - 1)}:
        raise InputError(
            "stages are no chain",
            field="edges",
            remedy="torch.distributed.pipelining runs stages 0, 1, 2, ... one after the other",
        )
    if backward and (instance.training or communication):
        raise InputError(
            "has backward passes" if instance.training else "goes without sends and receives",
            field="backward",
            remedy="use it for a schedule of inference without communication: torch adds the rest",
        )
    violations = instance.check(solution)
    if violations:
        raise InputError(
            f"is no valid schedule: {violations[0]}",
            field="solution",
            remedy="give a valid one",
        )
    operations = instance.operations
    by_start = np.argsort(solution.start, kind="stable").tolist()
    rows: list[list[str]] = [[] for _ in range(instance.d)]
    if not communication:
        for v in by_start:
            rows[operations.device[v]].append(_spelt(instance, v))
    else:
        _with_communication(instance, by_start, rows, waits)
    if backward:
        for stage in reversed(range(instance.p)):
            count = int(instance.microbatches[stage])
            rows[instance.devices[stage]] += (f"{stage}B{i}" for i in range(count))
    return "".join(",".join(row) + "\n" for row in rows).encode()


def _with_communication(
    instance: PipelineSchedule, by_start: list[int], rows: list[list[str]], waits: bool
) -> None:
    """Fill `rows` with work, sends and receives, and what becomes of each stage's parameters."""
    operations, devices = instance.operations, instance.devices.tolist()
    sent: list[dict[str, None]] = [{} for _ in rows]  # sends that nobody has waited for yet
    for stage, device in enumerate(devices):
        rows[device].append(f"{stage}UNSHARD")
    for v in by_start:
        stage, kind = int(operations.stage[v]), int(operations.kind[v])
        i, row = int(operations.microbatch[v]), rows[devices[stage]]
        row.append(_spelt(instance, v))
        if kind < 2:
            other, word = (stage + 1, "F") if kind == 0 else (stage - 1, "B")
            if 0 <= other < instance.p and devices[other] != devices[stage]:
                row.append(f"{stage}SEND_{word}{i}")
                rows[devices[other]].append(f"{other}RECV_{word}{i}")
                sent[devices[stage]][f"{stage}WAIT_SEND_{word}{i}"] = None
        # What the next stage gave back, it must have received.
        if kind == 1 and waits and f"{stage}WAIT_SEND_F{i}" in sent[devices[stage]]:
            row.append(f"{stage}WAIT_SEND_F{i}")
            del sent[devices[stage]][f"{stage}WAIT_SEND_F{i}"]
        last = kind == len(instance.kinds) - 1 and i == instance.microbatches[stage] - 1
        if last and instance.training:
            row.append(f"{stage}REDUCE_GRAD")
            if waits:
                row.append(f"{stage}WAIT_REDUCE_GRAD")
    for stage, device in enumerate(devices):
        rows[device].append(f"{stage}RESHARD")
    if waits:
        for row, left in zip(rows, sent, strict=True):
            row += left


dump_solution = dump
CONTEXTS = {KIND: GIVEN - {"whole_first"}}  # no times
