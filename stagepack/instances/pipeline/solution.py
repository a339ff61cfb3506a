"""What a partition is: boundaries, and a device a stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stagepack.errors import InputError
from stagepack.instances.documents import strict
from stagepack.shown import ShownSolution, some


@dataclass(frozen=True, repr=False)
class PipelineSolution(ShownSolution):
    """Stage j is the layers [boundaries[j], boundaries[j + 1]) on device devices[j]."""

    boundaries: tuple[int, ...]
    devices: tuple[int, ...]

    @classmethod
    def in_order(cls, boundaries: Iterable[int]) -> PipelineSolution:
        """Return the partition with these boundaries on devices 0, 1, 2, ..."""
        cuts = tuple(int(cut) for cut in boundaries)
        return cls(cuts, tuple(range(len(cuts) - 1)))

    @classmethod
    def from_dict(cls, data: Any, instance: Any = None) -> PipelineSolution:
        """Read ``{"boundaries": [0, ..., n], "devices": [...]}``; devices default to 0, 1, ...

        Parameters
        ----------
        data : mapping
        instance : PipelinePartition, optional
            What it should be a solution of.

        Raises
        ------
        InputError
            When a field is missing, unknown or no list of integers; with an instance, when it
            ends elsewhere or names a device that there is not.
        """
        cuts = data.get("boundaries") if isinstance(data, Mapping) else None
        if isinstance(cuts, list | tuple) and data.get("devices") is None:
            data = {**data, "devices": list(range(len(cuts) - 1))}
        answer = strict.convert(data, cls)
        if instance is not None:
            strict.require_end(answer.boundaries, instance)
            if any(not 0 <= device < instance.k for device in answer.devices):
                raise InputError(
                    f"names a device outside 0..{instance.k - 1}",
                    field="devices",
                    remedy=strict.ANOTHER,
                )
        return answer

    def to_dict(self) -> dict[str, list[int]]:
        """Return the solution as JSON data."""
        return {"boundaries": list(self.boundaries), "devices": list(self.devices)}

    def _line(self) -> str:
        return f"boundaries {some(self.boundaries)}, devices {some(self.devices)}"

    def malformed(self) -> str:
        """Return the name of a field that is not a list of integers, or ''."""
        for name in ("boundaries", "devices"):
            values = getattr(self, name)
            if not isinstance(values, tuple | list):
                return name
            if not all(hasattr(kind, "__index__") for kind in set(map(type, values))):
                return name
        return ""

    @property
    def stages(self) -> list[tuple[int, int, int]]:
        """Triples (first layer, end, device), one for each stage."""
        return list(zip(self.boundaries, self.boundaries[1:], self.devices, strict=False))
