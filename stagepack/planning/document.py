"""Plans out of the JSON documents that they are written as."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import msgspec

from stagepack import files
from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.instances.documents import strict
from stagepack.instances.formats.native import FORMAT
from stagepack.instances.formats.solutions import solution_in
from stagepack.planning.model_plan import PROBLEM, VERSION, ModelPlan
from stagepack.planning.stages import Level
from stagepack.result import Result, Status, Termination

Count = Annotated[int, msgspec.Meta(ge=1)]


class _Level(msgspec.Struct, frozen=True):
    name: str
    instance: JsonObject
    result: JsonObject


class _Document(msgspec.Struct, frozen=True):
    problem: str
    version: int
    status: Status
    levels: list[_Level]
    microbatches: Count
    name: str = ""
    bound: int | None = None
    bound_source: str = ""
    reason: str | None = None
    bundle: Count = 1
    on_chip: list[int | None] | None = None
    note: str | None = None


def is_plan(path: str | Path) -> bool:
    """Return whether a file begins as plans do."""
    try:
        with files.require_path(path).open("rb") as stream:
            head = stream.read(200)
    except OSError:
        return False
    return f'"problem": "{PROBLEM}"'.encode() in head


def read_plan(path: str | Path) -> ModelPlan:
    """Read a plan that :meth:`.ModelPlan.to_json` wrote.

    Raises
    ------
    InputError
        Naming file and field: not JSON, no plan, a newer version, a level that is none.
    """
    data = strict.load(path)
    with strict.located(path):
        found = strict.decode(data, _Document)
        if found.problem != PROBLEM:
            raise InputError(f"is a {found.problem}", field="problem", remedy="give a plan")
        if found.version != VERSION:
            raise InputError(
                f"version {found.version} is not {VERSION}, the one known here",
                field="version",
                remedy="update Stagepack",
            )
        levels = tuple(_level(given) for given in found.levels)
        names = [level.name for level in levels]
        if names and (names[:2] != ["partition", "schedule"] or len(set(names)) < len(names)):
            raise InputError(
                f"are {', '.join(names)}", field="levels", remedy="begin: partition, schedule"
            )
    return ModelPlan(
        name=found.name,
        status=found.status,
        levels=levels,
        bound=found.bound,
        bound_source=found.bound_source,
        microbatches=found.microbatches,
        reason=found.reason or "",
        bundle=found.bundle,
        on_chip=tuple(found.on_chip or ()),
        note=found.note or "",
    )


def _level(given: _Level) -> Level:
    """Return a level of a document."""
    try:
        (instance,) = FORMAT.parse(json.dumps(given.instance).encode(), {}, "")
        told = given.result
        solution = solution_in(json.dumps(told).encode(), instance)
        result: Result[Any] = Result(
            status=Status(str(told.get("status"))),
            termination=Termination(str(told.get("termination"))),
            objective=instance.evaluate(solution),
            bound=told.get("bound"),
            bound_source=told.get("bound_source") or "",
            solution=solution,
            method=told.get("method") or "",
            kind=instance.kind,
            instance=instance.name,
            objective_name=str(instance.objective),
            digest=instance.digest,
        )
    except ValueError as error:
        raise InputError(str(error), field=f"levels: {given.name}", remedy="plan anew") from None
    except InputError as error:
        error.field = f"levels: {given.name}: {error.field}"
        raise
    return Level(given.name, instance, result)
