"""Solutions in files: by themselves, or inside the result that a run printed."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any, cast

import msgspec

from stagepack import files
from stagepack.instances.answer import former_order, require_instance
from stagepack.instances.formats import minimalloc, strict, torch_schedule
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.instances.phases import PhaseSchedule, PhaseSolution
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.result import InputError, Result

Solution = PipelineSolution | PackingSolution | ScheduleSolution | PhaseSolution
Problem = PipelinePartition | LmemPacking | PipelineSchedule | PhaseSchedule

SAME = "give a solution of this instance, read with the same options"


class _Stages(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Stage j is the layers [boundaries[j], boundaries[j + 1]) on device devices[j]."""

    boundaries: list[int]
    devices: list[int] | None = None


class _Places(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The offset of each buffer and, where there are several memories, which it lies in."""

    offsets: dict[str, int]
    memories: dict[str, str] | None = None


class _Starts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The start of every operation, by stage, kind and microbatch."""

    start: list[list[list[int]]]


class _Phases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Groups of layers, a mode a phase, and what happens to every product."""

    boundaries: list[int]
    mode: list[str]
    io_tiles: int = 0
    microbatch: int = 1
    policy: list[str] = []
    recompute: list[list[int]] | None = None
    prefetch: list[bool] = []


class _Result(msgspec.Struct, frozen=True):
    digest: Any = None
    solution: Any = None
    status: Any = None
    boundaries: Any = None
    offsets: Any = None
    start: Any = None
    mode: Any = None


class _WithStages(msgspec.Struct, frozen=True):
    solution: _Stages


class _WithPlaces(msgspec.Struct, frozen=True):
    solution: _Places


class _WithStarts(msgspec.Struct, frozen=True):
    solution: _Starts


class _WithPhases(msgspec.Struct, frozen=True):
    solution: _Phases


def read_solution(
    path: str | Path, instance: Problem | None = None, *, max_bytes: int | None = None
) -> Solution:
    """Read a solution, or a result that contains it.

    That of a pipeline is ``{"boundaries": [0, ..., n], "devices": [...]}``; that of a packing
    ``{"offsets": {id: int}}``, with ``"memories": {id: name}`` where there are several, or a CSV
    of the buffers with a column ``offset``; that of a schedule ``{"start": [[[F starts], [B
    starts], [W starts]], ...]}``, one entry a stage, or the order of work of each rank as CSV of
    torch.distributed.pipelining.

    Parameters
    ----------
    path : path-like
    instance : instance of any problem, optional
        What the solution should be for: one that cannot be, by the digest that a result records
        or by what it names, is refused.  Offsets and starts cannot be read without it.
    max_bytes : int, optional
        As for :func:`.read`.

    Raises
    ------
    InputError
        Naming file and field: not JSON, no solution inside, an unknown field, another instance.
    """
    data = strict.load(path, max_bytes)
    with strict.located(path):
        return solution_in(data, instance)


def solution_in(
    data: bytes, instance: Problem | None = None, *, any_digest: bool = False
) -> Solution:
    """Return the solution in the bytes of a file, as :func:`read_solution` does.

    Parameters
    ----------
    any_digest : bool
        Take that of a result for another instance, too.

    Raises
    ------
    InputError
        Without the file's name.
    """
    if minimalloc.sniff(data):
        return minimalloc.offsets(data, _packing(instance))
    if torch_schedule.sniff(data):
        return torch_schedule.solution(data, _schedule(instance))
    header = strict.decode(data, _Result)
    inside = header.solution is not None
    given = header.solution if inside else msgspec.structs.asdict(header)
    nothing = header.boundaries is header.offsets is header.start is None
    if not inside and header.status is not None and nothing:
        raise InputError(
            f"the result holds no solution (status {str(header.status)[:20]})",
            field="solution",
            remedy="give a solution, or a result that has one",
        )
    if instance is not None and not any_digest:
        _require_digest(header.digest, instance)
    placed = isinstance(given, dict) and given.get("offsets") is not None
    if placed or isinstance(instance, LmemPacking):
        return _places(data, inside, _packing(instance))
    timed = isinstance(given, dict) and given.get("start") is not None
    if timed or isinstance(instance, PipelineSchedule):
        return _starts(data, inside, _schedule(instance))
    phased = isinstance(given, dict) and given.get("mode") is not None
    if isinstance(instance, PhaseSchedule) or (phased and instance is None):
        return _phases(data, inside, instance)
    return _stages(data, inside, instance)


def read_previous(path: str | Path, instance: LmemPacking) -> list[int]:
    """Read an old placement for an instance that has changed since.

    Parameters
    ----------
    path : path-like
        As for :func:`read_solution`; buffers are told by their names alone.
    instance : LmemPacking

    Returns
    -------
    list of int
        The old offset of each buffer; -1 for those that the file does not name.

    Raises
    ------
    InputError
        Naming file and field: no placement inside, or none of this instance's buffers.
    """
    data = strict.load(path)
    with strict.located(path):
        instance = _packing(instance)
        if minimalloc.sniff(data):
            old = minimalloc.named_offsets(data)
        else:
            inside = strict.decode(data, _Result).solution is not None
            if inside:
                old = strict.decode(data, _WithPlaces).solution.offsets
            else:
                old = strict.decode(data, _Places, known=("offsets", "memories")).offsets
        previous = [old.get(instance.buffer_id(i), -1) for i in range(instance.n)]
        if max(previous) < 0:
            raise InputError(
                f"names no buffer of {instance.name}",
                field="offsets",
                remedy="give an old placement of this instance",
            )
    return previous


def _stages(data: bytes, inside: bool, instance: Problem | None) -> PipelineSolution:
    if inside:
        solution = strict.decode(data, _WithStages).solution
    else:
        solution = strict.decode(data, _Stages, known=("boundaries", "devices"))
    given = {"boundaries": solution.boundaries}
    if solution.devices is not None:
        given["devices"] = solution.devices
    answer = PipelineSolution.from_dict(given)
    if isinstance(instance, PipelinePartition):
        _require_same(instance, answer)
    return answer


def _phases(data: bytes, inside: bool, instance: PhaseSchedule | None) -> PhaseSolution:
    if inside:
        solution = strict.decode(data, _WithPhases).solution
    else:
        known = tuple(field.name for field in msgspec.structs.fields(_Phases))
        solution = strict.decode(data, _Phases, known=known)
    answer = PhaseSolution.from_dict(msgspec.structs.asdict(solution))
    end = answer.boundaries[-1] if answer.boundaries else 0
    if instance is not None and end != instance.n:
        raise InputError(
            f"ends at layer {end} but {instance.name} has {instance.n} layers",
            field="boundaries",
            remedy=SAME,
        )
    return answer


def _places(data: bytes, inside: bool, instance: LmemPacking) -> PackingSolution:
    if inside:
        solution = strict.decode(data, _WithPlaces).solution
    else:
        solution = strict.decode(data, _Places, known=("offsets", "memories"))
    try:
        return PackingSolution.from_dict(msgspec.structs.asdict(solution), instance)
    except InputError as error:
        error.field = f"solution.{error.field}" if inside else error.field
        raise


def _starts(data: bytes, inside: bool, instance: PipelineSchedule) -> ScheduleSolution:
    if inside:
        solution = strict.decode(data, _WithStarts).solution
    else:
        solution = strict.decode(data, _Starts, known=("start",))
    try:
        return ScheduleSolution.from_dict(msgspec.structs.asdict(solution), instance)
    except InputError as error:
        error.field = f"solution.{error.field}" if inside else error.field
        raise


def _schedule(instance: Problem | None) -> PipelineSchedule:
    """Return the instance that starts need: it says which operations there are."""
    if instance is None:
        raise InputError(
            "starts can only be read with their instance",
            field="start",
            remedy="give the instance too: read_solution(path, instance)",
        )
    if not isinstance(instance, PipelineSchedule):
        raise InputError(
            f"holds a schedule, no solution for {instance.kind}",
            field="start",
            remedy="give the instance that it is a schedule of",
        )
    return instance


def _packing(instance: Problem | None) -> LmemPacking:
    """Return the instance that offsets need: they name its buffers."""
    if instance is None:
        raise InputError(
            "offsets can only be read with their instance",
            field="offsets",
            remedy="give the instance too: read_solution(path, instance)",
        )
    if not isinstance(instance, LmemPacking):
        raise InputError(
            f"holds offsets, no solution for {instance.kind}",
            field="offsets",
            remedy='write {"boundaries": [0, ..., n]}',
        )
    return instance


def _require_digest(digest: Any, instance: Problem) -> None:
    if isinstance(digest, str) and digest and digest != instance.digest:
        raise InputError(
            f"is a result for another instance ({digest}, not {instance.digest})",
            field="digest",
            remedy=SAME,
        )


def _require_same(instance: PipelinePartition, answer: PipelineSolution) -> None:
    end = answer.boundaries[-1] if answer.boundaries else 0
    if end != instance.n:
        raise InputError(
            f"ends at layer {end} but {instance.name} has {instance.n} layers",
            field="boundaries",
            remedy=SAME,
        )
    if any(not 0 <= device < instance.k for device in answer.devices):
        raise InputError(
            f"names a device outside 0..{instance.k - 1}", field="devices", remedy=SAME
        )


@former_order("solution", "path", "instance")
def write_solution(
    instance: Problem | None,
    solution: Solution | Result[Any],
    path: str | Path,
    *,
    communication: bool = False,
) -> None:
    """Write a solution, whole or not at all; names that end in ``.gz`` are compressed.

    Parameters
    ----------
    instance : instance of any problem
        What the solution is of.
    solution : solution or Result
    path : path-like
        JSON; a packing to ``.csv`` as the buffers of its `instance` with their offsets, a schedule
        as the order of work of each rank for torch.distributed.pipelining.
    communication : bool
        Write the sends and receives of a schedule, too: see :func:`.torch_schedule.dump`.

    Raises
    ------
    InputError
        When the file cannot be written, CSV cannot say it, or the solution is none of the
        instance.
    """
    if instance is not None:
        require_instance(instance)
        solution = instance.solution_in(cast("Any", solution), shaped=False)
    elif isinstance(solution, Result) or not hasattr(solution, "to_dict"):
        raise InputError(
            "is missing", field="instance", remedy="write_solution(instance, solution, path)"
        )
    if not isinstance(path, str | os.PathLike):
        raise InputError(
            f"{type(path).__name__} is no path", field="path", remedy="name the file to write"
        )
    name = Path(path).name.lower()
    if name.removesuffix(".gz").endswith(".csv"):
        try:
            if isinstance(solution, PackingSolution) and isinstance(instance, LmemPacking):
                data = minimalloc.dump_offsets(solution, instance)
            elif isinstance(solution, ScheduleSolution) and isinstance(instance, PipelineSchedule):
                data = torch_schedule.dump(solution, instance, communication=communication)
            else:
                raise InputError(
                    "CSV takes the offsets of a packing or a schedule, with the instance",
                    remedy="end the name in .json, or give write_solution the instance",
                )
        except InputError as error:
            raise error.at(path) from None
    else:
        data = msgspec.json.encode(solution.to_dict()) + b"\n"
    files.write(path, gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
