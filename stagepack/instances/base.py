"""What instances of all problems have in common: how they are told apart, and their solutions.

Functions that take an instance and a solution take them in this order, and accept a solution or the
result of a run; what is here gets the solution of it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import msgspec
import numpy as np

from stagepack.contracts import Instance, InstanceOf, JsonObject, Solution, cached
from stagepack.errors import InputError, a
from stagepack.instances.arrays import freeze
from stagepack.instances.profile import Cluster
from stagepack.instances.violation import Violation
from stagepack.result import Result
from stagepack.shown import Shown

S = TypeVar("S", bound=Solution)
V = TypeVar("V")
ORDER = "give the instance first, then the solution"

LABELS = frozenset({
    "name", "names", "source", "ids", "layer_names", "stage_names", "device_names", "order",
    "tensors", "time_unit", "clock", "lifetimes", "uncounted",
})  # fmt: skip
"""Fields that matter to no answer."""
LONGEST = 80  # characters of a value that is written down itself


def fields_of(instance: Any) -> JsonObject:
    """Return each field that matters: short plain values themselves, others as ``#checksum``."""
    found: JsonObject = {}
    for field in dataclasses.fields(instance):
        if field.name in LABELS:
            continue
        value = getattr(instance, field.name)
        found[field.name] = _value(value)
        if isinstance(value, Cluster):
            found[f"{field.name}.memory"] = _value(tuple(d.memory for d in value.devices))
        elif isinstance(value, msgspec.Struct):
            parts = msgspec.structs.asdict(value).items()
            found |= {f"{field.name}.{name}": _value(part) for name, part in parts}
    return found


def digest_of(
    instance: Any,
    parts: Callable[[Any], Iterable[bytes]],
    later: Mapping[str, object] = MappingProxyType({}),
) -> str:
    """Return the fingerprint of everything that matters to an answer.

    `parts` returns the bytes that tell a value of one of its fields from another one; each problem
    keeps its own way, for best-known values are filed under fingerprints.  `later` are fields that
    came later, with the value that says nothing new.
    """
    whole = hashlib.sha256()
    for name in sorted(instance.__dataclass_fields__):
        value = getattr(instance, name)
        usual = later.get(name, value)
        told = name not in later or (value is not None if usual is None else value != usual)
        if name not in LABELS and told:
            whole.update(name.encode())
            for part in parts(value):
                whole.update(part)
    return whole.hexdigest()[:16]


def array_parts(value: object) -> Iterator[bytes]:
    """Yield the bytes that tell arrays by shape and content, all else by how it prints."""
    if isinstance(value, np.ndarray):
        yield repr(value.shape).encode()
        yield np.ascontiguousarray(value).tobytes()
    else:
        yield repr(value).encode()


def _value(value: object) -> object:
    if value is None or isinstance(value, str | int):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, tuple) and len(value) < LONGEST:
        text = repr(value)
        if len(text) <= LONGEST:
            return text
    return f"#{_checksum(value):08x}"


def _checksum(value: object, so_far: int = 0) -> int:
    """Return the CRC-32 of a value: arrays by their bytes, all else by its parts."""
    if isinstance(value, np.ndarray):
        head = repr((value.shape, value.dtype.kind)).encode()
        return zlib.crc32(np.ascontiguousarray(value).data, zlib.crc32(head, so_far))
    parts: Any = None
    if dataclasses.is_dataclass(value):
        parts = [getattr(value, field.name) for field in dataclasses.fields(value)]
    elif isinstance(value, msgspec.Struct):
        parts = [part for name, part in msgspec.structs.asdict(value).items() if name != "name"]
    elif isinstance(value, dict):
        parts = [part for item in sorted(value.items()) for part in item]
    elif isinstance(value, tuple | list):
        parts = value
    if parts is None:
        return zlib.crc32(repr(value).encode(), so_far)
    for part in parts:
        so_far = _checksum(part, so_far)
    return so_far


class Rules(NamedTuple):
    """The checker of a problem: functions of an instance and a solution.

    Without violations of its `shape` a solution can be evaluated; `check` returns all violations.
    """

    shape: Callable[[Any, Any], Iterable[Violation]]
    check: Callable[[Any, Any], tuple[Violation, ...]]
    evaluate: Callable[[Any, Any], Any]


class Answered(Shown, Generic[S, V]):
    """What instances of all problems do with solutions, by the rules of their checker."""

    kind: str
    solution_type: ClassVar[type[Any]]
    rules: ClassVar[Rules]
    beside: ClassVar[tuple[str, ...]] = ()  # what :meth:`replace` takes beside fields

    @cached
    def fingerprints(self) -> JsonObject:
        """What the instance is made of: each field that matters, long ones as a checksum."""
        return fields_of(self)

    @property
    def proviso(self) -> str:
        """What an optimum of this instance does not cover, in words; "" if nothing."""
        return ""

    def __getstate__(self) -> JsonObject:
        """Pickle the fields alone: what was derived from them is made anew."""
        whole: Any = self
        return {name: getattr(self, name) for name in whole.__dataclass_fields__}

    def __setstate__(self, state: JsonObject) -> None:
        """Unpickle; numpy forgets that none may change arrays, kernels are compiled for either."""
        vars(self).update(state)
        freeze(self)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, all validated anew as by ``from_arrays``.

        Raises
        ------
        InputError
            For an unknown field or a value that does not fit.
        """
        whole: Any = self
        known = self.__getstate__()
        for name in changes:
            if name not in known and name not in self.beside:
                raise InputError(
                    f"is no field of {a(type(self).__name__)}",
                    field=name,
                    remedy="known are " + ", ".join([*known, *self.beside]),
                )
        copy: Self = whole.from_arrays(**{**known, **changes})
        return copy

    def evaluate(self, solution: S | Result[S]) -> V:
        """Return the objective value of `solution`."""
        value: V = self.rules.evaluate(self, self.solution_in(solution))
        return value

    def check(self, solution: S | Result[S]) -> tuple[Violation, ...]:
        """Return the violations of `solution`, () if it is valid."""
        return self.rules.check(self, self.solution_in(solution, shaped=False))

    def solution_in(
        self, given: S | Result[S], field: str = "solution", *, shaped: bool = True
    ) -> S:
        """Return `given` itself if it is a solution, or its solution if it is a result of this
        instance.

        `field` names the argument in messages; `shaped`: its shape must be right, too, so that it
        can be evaluated.

        Raises
        ------
        InputError
            For a result without a solution, or of another instance; for a solution of another
            problem or, if `shaped`, of another shape; for anything else.
        """
        found: S = _solution_in(self, given, self.solution_type, field)
        if shaped:
            for violation in self.rules.shape(self, found):
                raise InputError(
                    f"does not fit: {violation}",
                    field=field,
                    remedy="give a solution of this instance",
                )
        return found


def _solution_in(instance: Any, given: object, expected: type[S], field: str) -> S:
    """Return the solution in `given`, of the class `expected`.

    Its ``malformed()`` names the field that is of no use, or "".
    """
    found = given
    if isinstance(given, Result):
        _require_same(instance, given, field)
        found = given.solution
        if found is None:
            raise InputError(
                f"the result holds no solution (status {given.status})",
                field=field,
                remedy="give one that does",
            )
    if not isinstance(found, expected):
        raise InputError(
            f"{_what(found)} is no solution of {a(instance.kind)}",
            field=field,
            remedy=f"give a {expected.__name__}, or what solve returned",
        )
    wrong = found.malformed()
    if wrong:
        raise InputError(
            f"{_what(getattr(found, wrong))} is nothing for {a(expected.__name__)}",
            field=f"{field}.{wrong}",
            remedy="see the help of the class",
        )
    return found


def require_instance(
    given: object, kind: str = "", field: str = "instance", remedy: str = ORDER
) -> None:
    """Refuse what is `given` if it is no instance, or of another `kind` ("": any).

    Messages name the argument, `field`, and a `remedy`.
    """
    if not isinstance(given, Answered):
        raise InputError(
            f"{_what(given)} is no instance" + (f" of {kind}" if kind else ""),
            field=field,
            remedy=remedy,
        )
    if kind and given.kind != kind:
        raise InputError(
            f"is {a(given.kind)}, no {kind}", field=field, remedy=f"give an instance of {kind}"
        )


def valid_solution(instance: InstanceOf[S], given: S | Result[S], what: str) -> S:
    """Return the solution that `given` is or holds, if it is valid and of this instance.

    Messages call it `what`: "partition".
    """
    found = instance.solution_in(given, shaped=False)
    violations = instance.check(found)
    if violations:
        raise InputError(
            f"is no {what} of {instance.name}: {violations[0]}",
            field="solution",
            remedy="give a valid solution",
        )
    return found


def _require_same(instance: Instance, result: Result[S], field: str) -> None:
    """Refuse the result of another instance; the same one with another objective will do."""
    if not result.digest or result.digest == instance.digest:
        return
    if result.kind == instance.kind and result.objective_name != str(instance.objective):
        try:
            if instance.replace(objective=result.objective_name).digest == result.digest:
                return
        except InputError:
            pass
    raise InputError(
        f"is a result for another instance ({result.instance or result.digest}, "
        f"not {instance.name})",
        field=field,
        remedy="give a result of this instance, or a solution alone",
    )


def _what(given: object) -> str:
    return "None" if given is None else a(type(given).__name__)
