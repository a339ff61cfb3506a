"""Memory that PyTorch allocated during a run: profiler traces and snapshots of CUDA memory as JSON.

A trace (``export_chrome_trace`` of a profiler with ``profile_memory=True``) has events ``[memory]``
with an address and a number of bytes, positive for allocations and negative for releases.  The list
of events alone is accepted as well.  A snapshot is
``json.dump(torch.cuda.memory._snapshot(), file)``; its pickle is refused, because loading a pickle
executes its content.  There is one instance for each device; times are positions of events in their
order.  Memory allocated before the recording lives from the begin, memory never released lives to
the end.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stagepack.errors import InputError
from stagepack.formats.known import PICKLES, has_torch_events, stem_of
from stagepack.instances.documents import strict
from stagepack.instances.packing import KIND, LmemPacking
from stagepack.instances.packing.instance import aligned
from stagepack.instances.words import Words

DEVICES = {0: "cpu", 1: "cuda"}
Step = tuple[int, int]
"""An address, and bytes: above 0 allocated, below freed, 0 freed as many as there were."""


class _Facts(msgspec.Struct):
    nbytes: int = msgspec.field(default=0, name="Bytes")
    address: int = msgspec.field(default=0, name="Addr")
    device_type: int = msgspec.field(default=0, name="Device Type")
    device: int = msgspec.field(default=-1, name="Device Id")


class _Event(msgspec.Struct):
    name: str = ""
    ts: float = 0
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Trace(msgspec.Struct, rename="camel"):
    trace_events: list[_Event]


class _Action(msgspec.Struct):
    action: str
    addr: int = 0
    size: int = 0


class _Snapshot(msgspec.Struct):
    device_traces: list[list[_Action]]


def _traced(data: bytes) -> dict[str, list[Step]]:
    """Return what happened on each device, by a profiler's trace."""
    if has_torch_events(data):
        everything = strict.decode(data, list[_Event])
    else:
        everything = strict.decode(data, _Trace).trace_events
    events = [event for event in everything if event.name == "[memory]"]
    found: dict[str, list[Step]] = {}
    for event in sorted(events, key=lambda event: event.ts):
        facts = strict.decode(bytes(event.args), _Facts)
        device = DEVICES.get(facts.device_type, f"device type {facts.device_type}")
        if facts.device >= 0:
            device += f":{facts.device}"
        if facts.nbytes:
            found.setdefault(device, []).append((facts.address, facts.nbytes))
    return found


def _snapped(data: bytes) -> dict[str, list[Step]]:
    """Return what happened on each device, by a snapshot of CUDA's memory."""
    found: dict[str, list[Step]] = {}
    for number, trace in enumerate(strict.decode(data, _Snapshot).device_traces):
        # What is freed can be used again when all streams are done with it.
        done = any(step.action == "free_completed" for step in trace)
        freed = "free_completed" if done else "free_requested"
        steps = [
            (step.addr, step.size if step.action == "alloc" else -step.size)
            for step in trace
            if step.action in ("alloc", freed) and step.size > 0
        ]
        if steps:
            found[f"cuda:{number}"] = steps
    return found


def _packing(steps: Sequence[Step], name: str, given: Words, file: str) -> LmemPacking:
    """Return the buffers of a device."""
    size: list[int] = []
    start: list[int] = []
    end: list[int] = []
    alive: dict[int, int] = {}  # buffers by address
    for time, (address, nbytes) in enumerate(steps, 1):
        at = alive.get(address)
        if nbytes > 0 and at is None:
            alive[address] = len(size)
            size.append(nbytes)
            start.append(time)
            end.append(len(steps) + 1)
        elif nbytes < 0 and at is not None and size[at] == -nbytes:
            end[alive.pop(address)] = time
        elif nbytes < 0 and at is None:
            size.append(-nbytes)
            start.append(0)
            end.append(time)
        else:
            told = "allocated again" if nbytes > 0 else f"freed with {-nbytes} bytes"
            raise InputError(
                f"{address:#x}, {size[at or 0]} bytes, is {told}",
                field=f"event {time} of {name}",
                remedy="give a trace that is whole",
            )
    return LmemPacking.from_arrays(
        size,
        start,
        end,
        alignment=aligned(None, len(size), given),
        capacity=given.get("capacity"),
        objective=given.get("objective"),
        name=name,
        source=file,
    )


def parse(data: bytes, given: Words, file: str) -> list[LmemPacking]:
    """Return the buffers of each device."""
    if data.startswith(PICKLES):
        raise InputError(
            "is a pickle, and to load one runs whatever is in it",
            remedy="save it as JSON: json.dump(torch.cuda.memory._snapshot(), file)",
        )
    trace = has_torch_events(data) or b'"traceEvents"' in data
    found = _traced(data) if trace else _snapped(data)
    if not found:
        raise InputError(
            "holds no events of memory",
            remedy="profile with profile_memory=True, or record the history of memory",
        )
    stem = stem_of(file)
    return [
        _packing(steps, stem if len(found) == 1 else f"{stem} {device}", given, file)
        for device, steps in found.items()
    ]


CONTEXTS = {KIND: frozenset({"alignment", "capacity", "objective"})}
