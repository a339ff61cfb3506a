"""Solutions in files, alone or inside the result of a run."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import msgspec

from stagepack import files, kinds
from stagepack.contracts import JsonObject
from stagepack.errors import InputError, suggest
from stagepack.formats import known as formats
from stagepack.formats.known import is_megatron_layout
from stagepack.formats.native import refuse_account
from stagepack.instances.base import require_instance
from stagepack.instances.documents import keys, strict
from stagepack.instances.problem import PROBLEMS, Problem, Tool
from stagepack.result import Result
from stagepack.spelling import renamed

if TYPE_CHECKING:
    from stagepack.contracts import Instance, InstanceOf, Solution, SolutionT


@overload
def read_solution(
    path: str | Path, instance: InstanceOf[SolutionT], *, max_bytes: int | str | None = None
) -> SolutionT: ...
@overload
def read_solution(
    path: str | Path, instance: Instance | None = None, *, max_bytes: int | str | None = None
) -> Any: ...
def read_solution(
    path: str | Path, instance: Instance | None = None, *, max_bytes: int | str | None = None
) -> Any:
    """Read a solution, or the solution of a result.

    - Pipelines: ``{"boundaries": [0, ..., n], "devices": [...]}``; or a layout of Megatron-LM,
      ``Et*3|t*4|t*4L``, also in place of the name of a file.
    - Packings: ``{"offsets": {id: int}}``, with ``"memories": {id: name}`` if there are several
      memories; or a CSV of the buffers with a column ``offset``.
    - Schedules: ``{"start": [[[F starts], [B starts], [W starts]], ...]}``, with one entry for each
      stage; or the CSV of torch.distributed.pipelining with the actions of each rank.

    Parameters
    ----------
    instance : instance of any problem, optional
        The instance of the solution; required for offsets and starts.  A solution that names other
        items, or a result with the digest of another instance, is refused.
    max_bytes : int or str, optional
        As for :func:`.read`.

    Raises
    ------
    InputError
        Naming file and field: not JSON, no solution inside, an unknown field, another instance.
    """
    if instance is not None:
        require_instance(instance)
    data = solution_bytes(path, max_bytes)
    with strict.located(path):
        return solution_in(data, instance)


def solution_bytes(path: str | Path, max_bytes: int | str | None = None) -> bytes:
    """Return the bytes of a file with a solution; a layout in the place of its name is one."""
    said = str(path).encode()
    return said if is_megatron_layout(said) else strict.load(path, max_bytes)


def solution_in(
    data: bytes, instance: Instance | None = None, *, any_digest: bool = False
) -> Solution:
    """Return the solution in the `data` of a file, as :func:`read_solution` does.

    `any_digest`: that of a result for another instance, too.
    """
    for one in formats.FORMATS:
        if one.holds_solutions and one.sniff(data):
            _require_kind(PROBLEMS[one.kinds[0]], instance)
            held: Solution = one.reader.solution(data, instance)
            return held
    document = strict.decode(data, JsonObject)
    keys.require_single(data)
    refuse_instance(document)
    _refuse_program(document)
    inside = document.get("solution") is not None
    given = document["solution"] if inside else document
    told = _told(given, instance)
    if told is None and not inside and document.get("status") is not None:
        raise InputError(
            f"the result holds no solution (status {str(document['status'])[:20]})",
            field="solution",
            remedy="give a solution, or a result that has one",
        )
    if instance is not None and not any_digest:
        _require_digest(document.get("digest"), instance)
    if told is None and instance is not None:
        told = PROBLEMS[instance.kind]
    if told is None:
        fields = [" and ".join(known.solution_fields) for known in PROBLEMS.values()]
        raise InputError(
            "holds no solution",
            field="solution" if inside else "",
            remedy="write an object with " + ", or ".join(fields),
        )
    _require_kind(told, instance)
    try:
        found: Solution = told.solution.from_dict(given, instance)
    except InputError as error:
        error.field = f"solution.{error.field}" if inside else error.field
        raise
    return found


def refuse_instance(document: JsonObject) -> None:
    """Refuse an instance, a front or an explanation in the place of a solution or result."""
    refuse_account(document)
    if {"proof", "evidence"} <= document.keys() and "status" not in document:
        raise InputError(
            "holds a proof, no solution", remedy="replay it: stagepack check INSTANCE --proof FILE"
        )
    if document.get("problem") in ("model-plan", "tuning"):
        raise InputError(
            f"holds a {document['problem']}, which has its own instances",
            remedy="give it alone: stagepack check FILE",
        )
    if str(document.get("problem")) in PROBLEMS and "version" in document:
        raise InputError(
            f"holds an instance of {document['problem']}, no solution",
            remedy="give a solution, or a result that has one",
        )


def _refuse_program(document: JsonObject) -> None:
    """Refuse what a solution was written as for other tools."""
    for known in PROBLEMS.values():
        export = known.export
        if export and export.marks and export.marks.items() <= document.items():
            read = ", which only check reads" if export.check else ""
            raise InputError(
                f"holds a program{read}, no solution",
                remedy="write one: stagepack solve INSTANCE -o FILE",
            )


def _told(given: object, instance: Instance | None) -> Problem | None:
    """Return the problem whose solution a document is by its fields, that of the instance first."""
    there = {name for name in given if given[name] is not None} if type(given) is dict else set()
    own = None if instance is None else PROBLEMS[instance.kind]
    if own is not None and there & set(own.solution_fields):
        return own
    found = [known for known in PROBLEMS.values() if there.issuperset(known.solution_fields)]
    return max(found, key=lambda known: len(known.solution_fields), default=None)


def _require_kind(told: Problem, instance: Instance | None) -> None:
    """Refuse a solution that cannot be of `instance`, or that cannot be read without one."""
    field = told.solution_fields[0]
    if instance is None and told.needs_instance:
        raise InputError(
            f"solutions of {told.kind} can only be read with their instance",
            field=field,
            remedy="give the instance too: read_solution(path, instance)",
        )
    if instance is not None and instance.kind != told.kind:
        raise InputError(
            f"holds a solution of {told.kind}, no solution for {instance.kind}",
            field=field,
            remedy="give the instance that it is a solution of",
        )


def _require_digest(digest: object, instance: Instance) -> None:
    if isinstance(digest, str) and digest and digest != instance.digest:
        raise InputError(
            f"is a result for another instance ({digest}, not {instance.digest})",
            field="digest",
            remedy=strict.ANOTHER,
        )


@renamed(as_="format")
def write_solution(
    instance: Instance | None,
    solution: Solution | Result[Solution],
    path: str | Path,
    *,
    format: str | None = None,
    **options: object,
) -> None:
    """Write a solution, whole or not at all; names that end in ``.gz`` are compressed.

    Parameters
    ----------
    instance : instance of any problem
        What the solution is of; None will do for a solution that is written as JSON.
    solution : solution or Result
    path : path-like
        JSON; a packing to ``.csv`` as the buffers of its `instance` with their offsets, a schedule
        as the order of work of each rank for torch.distributed.pipelining.
    format : str, optional
        A tool that reads it in another form: one of ``problem.tools`` of its kind, such as
        "megatron" or "vllm" for the stages of a pipeline.
    **options
        For the format of that kind of file, or for that tool: ``communication=True`` writes the
        sends and receives of a schedule, too, see :func:`.torch.schedule.dump`.

    Raises
    ------
    InputError
        When the file cannot be written, its format cannot say it, or the solution is none of the
        instance.
    """
    if instance is not None:
        require_instance(instance)
        answer = instance.solution_in(solution, shaped=False)
    elif format is not None or isinstance(solution, Result) or not hasattr(solution, "to_dict"):
        raise InputError(
            "is missing", field="instance", remedy="write_solution(instance, solution, path)"
        )
    else:
        answer = solution
    if not isinstance(path, str | os.PathLike):
        raise InputError(
            f"{type(path).__name__} is no path", field="path", remedy="name the file to write"
        )
    name = Path(path).name.lower()
    if format is not None and instance is not None:
        data = written_for(instance, answer, format, options)
    else:
        data = _by_ending(instance, answer, path, options)
    files.write(path, gzip.compress(data, mtime=0) if name.endswith(".gz") else data)


def _by_ending(
    instance: Instance | None, solution: Solution, path: str | Path, options: JsonObject
) -> bytes:
    """Return a solution as files named like `path` hold it."""
    name = Path(path).name.lower()
    writers = [one for one in formats.FORMATS if one.writes_solutions and one.ending(name)]
    if not writers:
        return msgspec.json.encode(solution.to_dict()) + b"\n"
    kind = None if instance is None else instance.kind
    fitting = (one for one in writers if kind in one.kinds)
    writer = max(fitting, key=lambda one: one.ending(name), default=None)
    if writer is None:
        raise InputError(
            "such files take solutions of "
            + " or ".join(kind for one in writers for kind in one.kinds)
            + ", with the instance",
            file=path,
            remedy="end the name in .json, or give write_solution the instance",
        )
    try:
        data: bytes = writer.reader.dump_solution(solution, instance, **options)
    except InputError as error:
        raise error.at(path) from None
    return data


def require_tool(instance: Instance, tool: str, options: Iterable[str] = ()) -> Tool:
    """Return what is known of a `tool` that solutions are written for, if it has all `options`."""
    known = PROBLEMS[instance.kind].tools
    if tool not in tuple(known):  # whatever it is, a list even
        raise InputError(
            f"a {instance.kind} cannot be written for {tool!r}",
            field="format",
            remedy=suggest(tool, known) if known else "leave it out",
        )
    for name in options:
        if name not in known[tool].options:
            remedy = suggest(name, known[tool].options) if known[tool].options else "leave it out"
            raise InputError(f"{tool} has no option {name!r}", field="format", remedy=remedy)
    return known[tool]


def require_expressible(instance: Instance, tool: str, options: JsonObject) -> None:
    """Refuse an instance none of whose solutions a `tool` could take, before it is solved.

    `options` are what the tool takes besides.
    """
    known = require_tool(instance, tool, options)
    if known.requires:
        module = known.writer.rpartition(".")[0]
        kinds.named(instance.kind, "formats", f"{module}.{known.requires}")(instance, **options)


def written_for(instance: Instance, solution: Solution, tool: str, options: JsonObject) -> bytes:
    """Return a solution in the form that a `tool` reads, which takes some `options`."""
    known = require_tool(instance, tool, options)
    violations = instance.check(solution)
    if violations:
        raise InputError(
            f"is not valid: {violations[0]}", field="solution", remedy="give a valid one"
        )
    writer: Callable[..., str | bytes] = kinds.named(instance.kind, "formats", known.writer)
    data = writer(instance, solution, **options)
    return data.encode() if isinstance(data, str) else data
