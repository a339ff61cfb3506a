"""What a partition is: boundaries, and a device a stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stagepack.result import InputError
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
    def from_dict(cls, data: Any) -> PipelineSolution:
        """Read ``{"boundaries": [0, ..., n], "devices": [...]}``; devices default to 0, 1, ...

        Raises
        ------
        InputError
            When a field is missing or is not a list of integers.
        """
        if not isinstance(data, Mapping):
            raise InputError(
                "a solution is an object",
                remedy='write {"boundaries": [0, ..., n], "devices": [0, 1, ...]}',
            )
        for name in ("boundaries", "devices"):
            values = data.get(name, [] if name == "devices" else None)
            if not isinstance(values, list | tuple) or not all(
                isinstance(value, int) and not isinstance(value, bool) for value in values
            ):
                raise InputError(
                    "is missing" if values is None else "is not a list of integers",
                    field=name,
                    remedy='write {"boundaries": [0, ..., n], "devices": [0, 1, ...]}',
                )
        cuts = tuple(data["boundaries"])
        return cls(cuts, tuple(data["devices"])) if "devices" in data else cls.in_order(cuts)

    def to_dict(self) -> dict[str, list[int]]:
        """Return the solution as JSON data."""
        return {"boundaries": list(self.boundaries), "devices": list(self.devices)}

    def _line(self) -> str:
        return f"boundaries {some(self.boundaries)}, devices {some(self.devices)}"

    def malformed(self) -> str:
        """Return the name of a field that is no list of integers, or ''."""
        for name in ("boundaries", "devices"):
            values = getattr(self, name)
            if not isinstance(values, tuple | list):
                return name
            if not all(hasattr(value, "__index__") for value in values):
                return name
        return ""

    @property
    def stages(self) -> list[tuple[int, int, int]]:
        """Triples (first layer, end, device), one a stage."""
        return list(zip(self.boundaries, self.boundaries[1:], self.devices, strict=False))
