"""Reads plans and tunings from the JSON documents to which they are written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec

from stagepack import files
from stagepack.claims.claim import is_number
from stagepack.contracts import Instance, JsonObject, Solution
from stagepack.errors import InputError, a, suggest
from stagepack.evidence import Proof
from stagepack.formats import native
from stagepack.formats.solutions import solution_in
from stagepack.instances.documents import strict
from stagepack.planning.layouts.answer import PROBLEM as LAYOUT
from stagepack.planning.layouts.answer import VERSION as LAYOUT_VERSION
from stagepack.planning.model_plan import PROBLEM, VERSION, ModelPlan
from stagepack.planning.stages import Level, require_one_each
from stagepack.planning.tuned import (
    FAILED,
    FIGURES,
    MEASURED,
    RESTS_ON,
    SPREAD,
    Evaluation,
    Measuring,
    Tuning,
    meant,
    rises,
)
from stagepack.planning.tuned import PROBLEM as TUNING
from stagepack.planning.tuned import VERSION as TUNING_VERSION
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
    proof: str | None = None
    evidence: JsonObject = {}
    split: bool = False
    model: JsonObject | None = None
    reason: str | None = None
    bundle: Count = 1
    on_chip: list[int | None] | None = None
    note: str | None = None


class _Layout(msgspec.Struct, frozen=True):
    problem: str
    version: int
    plan: _Document | None


class _Tuning(msgspec.Struct, frozen=True):
    problem: str
    version: int
    options: dict[str, list[Any]]
    monotone: list[str]
    search: str
    configurations: int
    bisection: int
    evaluations: list[JsonObject]
    interrupted: bool = False
    measured: Measuring | None = None
    left: Annotated[int, msgspec.Meta(ge=0)] = 0
    most: float | None = None


class _Figures(msgspec.Struct, frozen=True):
    status: str
    cycles: int | None
    throughput: float | None
    bound: float | None
    memory: int | None
    reason: str
    cached: bool
    values: tuple[float, ...] = ()
    estimate: float | None = None
    log: str = ""


def is_plan(path: str | Path) -> bool:
    """Return whether a file begins as plans do, or as layouts, which hold one."""
    return _begins(path, PROBLEM) or _begins(path, LAYOUT)


def is_tuning(path: str | Path) -> bool:
    """Return whether a file begins as tunings do."""
    return _begins(path, TUNING)


def _begins(path: str | Path, problem: str) -> bool:
    return f'"problem": "{problem}"'.encode() in files.peek(path, 200)


def read_plan(path: str | Path) -> ModelPlan:
    """Read a plan that :meth:`.ModelPlan.to_json` wrote; of a layout, that of one of its copies.

    Raises
    ------
    InputError
        Naming file and field: not JSON, no plan, a newer version, a level that is none.
    """
    data = strict.load(path)
    with strict.located(path):
        if _begins(path, LAYOUT):
            found = _of_layout(strict.decode(data, _Layout))
        else:
            found = strict.decode(data, _Document)
            _require(found, PROBLEM, VERSION, "give a plan")
        levels = tuple(_level(given) for given in found.levels)
        model = None
        if found.model is not None and not levels:
            with _located("model"):
                model = _instance(found.model)
        names = [level.name for level in levels]
        if names and (names[:2] != ["partition", "schedule"] or len(set(names)) < len(names)):
            raise InputError(
                f"are {', '.join(names)}", field="levels", remedy="begin: partition, schedule"
            )
        for held in (model, *(level.instance for level in levels)):
            if held is not None:
                require_one_each(held)
        _require_number(found.bound, "bound")
    return ModelPlan(
        name=found.name,
        status=found.status,
        levels=levels,
        bound=found.bound,
        bound_source=found.bound_source,
        microbatches=found.microbatches,
        proof=Proof(found.proof) if found.proof in tuple(Proof) else None,
        evidence=found.evidence,
        split=found.split,
        model=model,
        reason=found.reason or "",
        bundle=found.bundle,
        on_chip=tuple(found.on_chip or ()),
        note=found.note or "",
    )


def _of_layout(given: _Layout) -> _Document:
    """Return the plan of a copy, of which a layout says all that can be checked."""
    _require(given, LAYOUT, LAYOUT_VERSION, "give a layout")
    if given.plan is None:
        raise InputError("is missing: nothing fitted", field="plan", remedy="give one that fits")
    with _located("plan"):
        _require(given.plan, PROBLEM, VERSION, "give a plan")
    return given.plan


def read_tuning(path: str | Path) -> Tuning:
    """Read a tuning that ``stagepack tune -o`` wrote.  Nothing is computed again.

    Raises
    ------
    InputError
        Naming file and field: not JSON, no tuning, a newer version, an evaluation that is none.
    """
    data = strict.load(path)
    with strict.located(path):
        found = strict.decode(data, _Tuning)
        _require(found, TUNING, TUNING_VERSION, "give a tuning")
        options = {name: tuple(map(meant, values)) for name, values in found.options.items()}
        evaluations = [
            _evaluation(given, options, at) for at, given in enumerate(found.evaluations)
        ]
        for name in found.monotone:
            if name not in options:
                remedy = suggest(name, options)
                raise InputError(f"unknown {name!r}", field="monotone", remedy=remedy)
            if not rises(options[name]):
                raise InputError("do not rise", field=f"options.{name}", remedy="tune anew")
        for why in found.measured.skipped if found.measured else ():
            if why not in RESTS_ON:
                remedy = suggest(why, RESTS_ON)
                raise InputError(f"unknown {why!r}", field="measured.skipped", remedy=remedy)
    return Tuning(
        options=options,
        monotone=tuple(found.monotone),
        search=found.search,
        evaluations=tuple(evaluations),
        configurations=found.configurations,
        bisection=found.bisection,
        interrupted=found.interrupted,
        measured=found.measured,
        left=found.left,
        most=found.most,
    )


def _require(found: _Document | _Layout | _Tuning, problem: str, version: int, remedy: str) -> None:
    """Refuse a document of something else, or of another version."""
    if found.problem != problem:
        raise InputError(f"is {a(found.problem)}", field="problem", remedy=remedy)
    if found.version != version:
        raise InputError(
            f"version {found.version} is not {version}, the one known here",
            field="version",
            remedy="update Stagepack",
        )


def _require_number(bound: object, field: str) -> None:
    if bound is not None and not is_number(bound):
        raise InputError("is no finite number", field=field, remedy="plan anew")


def _evaluation(given: JsonObject, options: JsonObject, at: int) -> Evaluation:
    """Return an evaluation of a tuning's document."""
    missing = [name for name in (*options, *FIGURES) if name not in given]
    if missing:
        raise InputError("is missing", field=f"evaluations.{at}.{missing[0]}", remedy="tune anew")
    try:
        said = {name: given[name] for name in (*FIGURES, *SPREAD) if name in given}
        figures = msgspec.convert(said, _Figures)
        if figures.status not in (*Status, MEASURED, FAILED):
            raise msgspec.ValidationError(f"unknown status {figures.status!r}")
    except msgspec.ValidationError as error:
        raise InputError(str(error), field=f"evaluations.{at}", remedy="tune anew") from None
    chosen = {name: meant(given[name]) for name in options}
    for name, value in chosen.items():
        if value not in options[name]:
            place, problem = f"evaluations.{at}.{name}", f"{value!r} is none of its values"
            raise InputError(problem, field=place, remedy="tune anew")
    return Evaluation(chosen, **msgspec.structs.asdict(figures))


def _level(given: _Level) -> Level:
    """Return a level of a document."""
    with _located(f"levels: {given.name}"):
        instance = _instance(given.instance)
        told = given.result
        solution = solution_in(json.dumps(told).encode(), instance)
        _require_number(told.get("bound"), "bound")
        result: Result[Solution] = Result(
            status=Status(str(told.get("status"))),
            termination=Termination(str(told.get("termination"))),
            objective=instance.evaluate(solution),
            bound=told.get("bound"),
            bound_source=told.get("bound_source") or "",
            proof=Proof(str(proof)) if (proof := told.get("proof")) in tuple(Proof) else None,
            evidence=evidence if isinstance(evidence := told.get("evidence"), dict) else {},
            solution=solution,
            method=told.get("method") or "",
            kind=instance.kind,
            instance=instance.name,
            objective_name=str(instance.objective),
            digest=instance.digest,
        )
    return Level(given.name, instance, result)


def _instance(given: JsonObject) -> Instance:
    """Return an instance of a document."""
    (instance,) = native.parse(json.dumps(given).encode(), {}, "")
    return instance


@contextmanager
def _located(field: str) -> Iterator[None]:
    """Name the field of what is wrong within."""
    try:
        yield
    except InputError as error:
        error.field = f"{field}: {error.field}"
        raise
    except ValueError as error:
        raise InputError(str(error), field=field, remedy="plan anew") from None
