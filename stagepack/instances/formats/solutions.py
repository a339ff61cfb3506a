"""Solutions in files: by themselves, or inside the result that a run printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from stagepack.instances.formats import strict
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.result import InputError, write_atomically


class Solution(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Stage j is the layers [boundaries[j], boundaries[j + 1]) on device devices[j]."""

    boundaries: list[int]
    devices: list[int] | None = None


class _Result(msgspec.Struct, frozen=True):
    digest: Any = None
    solution: Any = None
    status: Any = None
    boundaries: Any = None


class _Solved(msgspec.Struct, frozen=True):
    solution: Solution


def read_solution(path: str | Path, instance: PipelinePartition | None = None) -> PipelineSolution:
    """Read ``{"boundaries": [0, ..., n], "devices": [...]}`` or a result that contains it.

    Parameters
    ----------
    path : path-like
    instance : PipelinePartition, optional
        What the solution should be for: one that cannot be, by the digest that a result records
        or by its numbers of layers and devices, is refused.

    Raises
    ------
    InputError
        Naming file and field: not JSON, no solution inside, an unknown field, another instance.
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
    answer = PipelineSolution.from_dict(given)
    if instance is not None:
        _require_same(instance, answer, header.digest, path)
    return answer


def _require_same(
    instance: PipelinePartition, answer: PipelineSolution, digest: Any, path: str | Path
) -> None:
    remedy = "give a solution of this instance, read with the same options"
    if isinstance(digest, str) and digest and digest != instance.digest:
        raise InputError(
            f"is a result for another instance ({digest}, not {instance.digest})",
            file=path,
            field="digest",
            remedy=remedy,
        )
    end = answer.boundaries[-1] if answer.boundaries else 0
    if end != instance.n:
        raise InputError(
            f"ends at layer {end} but {instance.name} has {instance.n} layers",
            file=path,
            field="boundaries",
            remedy=remedy,
        )
    if any(not 0 <= device < instance.k for device in answer.devices):
        raise InputError(
            f"names a device outside 0..{instance.k - 1}",
            file=path,
            field="devices",
            remedy=remedy,
        )


def write_solution(solution: PipelineSolution, path: str | Path) -> None:
    """Write a solution as JSON, whole or not at all.

    Raises
    ------
    InputError
        When the file cannot be written.
    """
    write_atomically(path, msgspec.json.encode(solution.to_dict()) + b"\n")
