"""Native files of pipeline schedules: ``{"problem": "pipeline-schedule", "version": 1, ...}``.

All fields, their units and defaults are those of
:class:`stagepack.instances.schedule.PipelineSchedule`; where there is one number a stage, edge or
device, a lone number stands for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import msgspec

from stagepack.contracts import JsonObject
from stagepack.instances.documents.lines import unusual
from stagepack.instances.profile import Array
from stagepack.instances.schedule.instance import PipelineSchedule
from stagepack.instances.schedule.problem import Objective
from stagepack.instances.words import Words

Whole = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Cycles = Annotated[int, msgspec.Meta(ge=1, le=2**62)]
Change = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**31)]

GIVEN = frozenset({"capacity", "objective", "microbatches", "latency", "steps", "whole_first"})
"""What may be said beside a file."""


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

    ELSEWHERE: ClassVar[Mapping[str, str]] = {
        "stages": "leave it out: forward has a number for each stage"
    }

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


def parse(document: Document, given: Words) -> PipelineSchedule:
    """Return the instance of a document, changed as is `given` beside it."""
    fields = msgspec.structs.asdict(document)
    del fields["problem"], fields["version"]
    return PipelineSchedule.from_arrays(**{**fields, **changes(given)})


def changes(given: Words) -> JsonObject:
    """Return what was said of a schedule as arguments of its constructor."""
    return {"limit" if name == "capacity" else name: value for name, value in given.items()}


def dump(instance: PipelineSchedule) -> JsonObject:
    """Return what the document of an instance says: columns, defaults left out."""
    chain = tuple((stage, stage + 1) for stage in range(instance.p - 1))
    alone = instance.devices.tolist() == list(range(instance.p))
    limit = instance.limit
    return {
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
        **unusual(instance, Document, ("post_validation", "steps")),
    }


def _column(column: Array) -> Array | int | None:
    """Return a column, the number that it repeats, or None for zeros, the default."""
    return _lone(column) if column.any() else None


def _lone(column: Array) -> Array | int:
    """Return the number that a column repeats, else the column."""
    return int(column[0]) if (column == column[0]).all() else column
