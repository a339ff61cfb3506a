"""Solutions in files: by themselves, or inside the result that a run printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from stagepack.instances.formats import strict
from stagepack.instances.pipeline import PipelineSolution
from stagepack.result import InputError, write_atomically


class Solution(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Stage j is the layers [boundaries[j], boundaries[j + 1]) on device devices[j]."""

    boundaries: list[int]
    devices: list[int] | None = None


class _Result(msgspec.Struct, frozen=True):
    solution: Any = None
    status: Any = None
    boundaries: Any = None


class _Solved(msgspec.Struct, frozen=True):
    solution: Solution


def read_solution(path: str | Path) -> PipelineSolution:
    """Read ``{"boundaries": [0, ..., n], "devices": [...]}`` or a result that contains it.

    Raises
    ------
    InputError
        Naming file and field: not JSON, no solution inside, an unknown field.
    """
    data = strict.load(path)
    try:
        header = strict.decode(data, _Result)
        solution: Solution
        if header.solution is not None:
            solution = strict.decode(data, _Solved).solution
        elif header.status is not None and header.boundaries is None:
            raise InputError(
                f"the result holds no solution (status {str(header.status)[:20]})",
                field="solution",
                remedy="give a solution, or a result that has one",
            )
        else:
            solution = strict.decode(data, Solution, known=("boundaries", "devices"))
    except InputError as error:
        raise error.at(path) from None
    given = {"boundaries": solution.boundaries}
    if solution.devices is not None:
        given["devices"] = solution.devices
    return PipelineSolution.from_dict(given)


def write_solution(solution: PipelineSolution, path: str | Path) -> None:
    """Write a solution as JSON, whole or not at all.

    Raises
    ------
    InputError
        When the file cannot be written.
    """
    write_atomically(path, msgspec.json.encode(solution.to_dict()) + b"\n")
