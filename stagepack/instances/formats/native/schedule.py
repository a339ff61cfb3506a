"""Native files of pipeline schedules: ``{"problem": "pipeline-schedule", "version": 1, ...}``.

All fields, their units and defaults are those of
:class:`stagepack.instances.schedule.PipelineSchedule`; where there is one number a stage, edge or
device, a lone number stands for all.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from stagepack.instances.formats import strict
from stagepack.instances.formats.context import Context
from stagepack.instances.formats.native.lines import lines
from stagepack.instances.profile import Array
from stagepack.instances.schedule import KIND, Objective, PipelineSchedule

Whole = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Cycles = Annotated[int, msgspec.Meta(ge=1, le=2**62)]
Change = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**31)]


class Document(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
):
    """A pipeline-schedule instance.

    Cycles of `forward`, `backward` and `weight` for one microbatch, one a stage; `edges` are pairs
    (producer stage, consumer stage), the chain where they are left out.
    """

    problem: Literal["pipeline-schedule"]
    version: Literal[1]
    forward: list[Cycles]
    microbatches: Count | list[Count]
    backward: list[Cycles] | None = None
    weight: list[Cycles] | None = None
    name: str = "schedule"
    source: str = ""
    objective: Objective | None = None
    devices: list[Whole] | None = None
    edges: list[tuple[Whole, Whole]] | None = None
    latency: Whole | list[Whole] = 0
    memory_forward: Whole | list[Whole] = 0
    memory_backward: Change | list[Change] = 0
    memory_weight: Change | list[Change] = 0
    limit: Whole | list[Whole] | None = None
    optimizer: Whole | list[Whole] = 0
    post_validation: bool = False
    steps: Count = 1
    stage_names: list[str] | None = None
    device_names: list[str] | None = None


KNOWN_FIELDS = tuple(field.name for field in msgspec.structs.fields(Document))


def parse(data: bytes, context: Context) -> PipelineSchedule:
    """Return the instance of a native file, changed as `context` says.

    Raises
    ------
    InputError
        Naming the field.
    """
    document = strict.decode(data, Document, known=KNOWN_FIELDS)
    fields = msgspec.structs.asdict(document)
    del fields["problem"], fields["version"]
    return PipelineSchedule.from_arrays(**{**fields, **given(context)})


def given(context: Context) -> dict[str, Any]:
    """Return what `context` says about a schedule, as arguments of its constructor."""
    said = {
        "microbatches": context.microbatches,
        "objective": context.objective,
        "limit": context.capacity,
        "latency": context.latency,
        "steps": context.steps,
    }
    return {name: value for name, value in said.items() if value is not None}


def dump(instance: PipelineSchedule) -> str:
    """Return the native file of an instance: columns, a line each, defaults left out."""
    chain = tuple((stage, stage + 1) for stage in range(instance.p - 1))
    alone = instance.devices.tolist() == list(range(instance.p))
    limit = instance.limit
    document: dict[str, Any] = {
        "problem": KIND,
        "version": 1,
        "name": instance.name,
        "source": instance.source or None,
        "objective": str(instance.objective),
        "stage_names": instance.stage_names,
        "device_names": instance.device_names,
        "microbatches": _lone(instance.microbatches),
        "forward": instance.forward,
        "backward": instance.backward,
        "weight": instance.weight,
        "devices": None if alone else instance.devices,
        "edges": None if instance.edges == chain else instance.edges,
        "latency": _column(instance.latency),
        "memory_forward": _column(instance.memory_forward),
        "memory_backward": _column(instance.memory_backward),
        "memory_weight": _column(instance.memory_weight),
        "limit": None if limit is None else _lone(limit),
        "optimizer": _column(instance.optimizer),
        "post_validation": instance.post_validation or None,
        "steps": instance.steps if instance.steps > 1 else None,
    }
    return lines(document, opened="")


def _column(column: Array) -> Array | int | None:
    """Return a column, the number that it repeats, or None for zeros, the default."""
    return _lone(column) if column.any() else None


def _lone(column: Array) -> Array | int:
    return int(column[0]) if (column == column[0]).all() else column
