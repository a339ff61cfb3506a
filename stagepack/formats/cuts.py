"""Previous cuts of chains, from the files of solutions and results, or by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from stagepack.instances.documents import strict
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.pipeline.previous import held_by


class _Cut(msgspec.Struct):
    """A result, or a solution, and the names of the devices that it counts."""

    solution: dict[str, Any] | None = None
    boundaries: list[int] = []
    devices: list[int] | None = None
    device_names: list[str] | None = None


FORMS: Any = _Cut | list[str | None]
"""What a file of a cut may be; a union is no type to a checker of types."""


def read_previous(path: str | Path, instance: PipelinePartition) -> list[int]:
    """Read which device of an instance holds each layer: -1 where that is none of its devices.

    Files are results, solutions, or lists with the name of the device of each layer, null for none.
    Where one says ``device_names``, its devices are told by these, else by number.
    """
    data = strict.load(path)
    with strict.located(path):
        found = strict.decode(data, FORMS)
        if isinstance(found, list):
            return held_by(instance, found)
        said = found.solution or {"boundaries": found.boundaries, "devices": found.devices}
        return held_by(instance, said, found.device_names)
