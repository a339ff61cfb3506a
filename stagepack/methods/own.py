"""Methods of users: any callable that takes an instance is one more method of every kind.

What it returns may be a solution, what :func:`stagepack.solve` returned, or the plain data of a
solution; it is checked and timed like the answer of every other method.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

import numpy as np

from stagepack.contracts import Instance, JsonObject, Number, SolutionT
from stagepack.errors import AnswerError, InputError, a
from stagepack.evidence import TOLD, Evidence
from stagepack.instances.problem import PROBLEMS
from stagepack.methods import AnyMethod, Method, Settings
from stagepack.progress import Progress
from stagepack.result import Result, Status

TOLD_OF = ("seed", "threads", "time_limit")
"""What of its run a callable hears, where it has a parameter of that name."""
LONGEST = 40
"""Characters of a name that what a callable prints as may have."""
CALLED_AS = "give a function of an instance, or of an instance and its progress"


class OwnProgress(Generic[SolutionT]):
    """What a callable that searches tells of its run, and hears of it.

    It is the second argument of those that take one, or the argument called ``progress``.
    """

    def __init__(self, name: str, instance: Instance, progress: Progress[SolutionT]) -> None:
        """Take the `name` of what solves, the `instance`, and the `progress` of the run."""
        self._name, self._instance, self._progress = name, instance, progress

    def offer(self, answer: Any) -> bool:
        """Check a solution, keep it if it is better than what is known, and return whether it was.

        Parameters
        ----------
        answer : solution, Result, or plain data
            As a callable may return it.

        Raises
        ------
        AnswerError
            When it is no solution, or one that breaks a rule.
        """
        known = self._progress.solution
        self._take(answer)
        return self._progress.solution is not known

    def raise_bound(self, bound: Number) -> None:
        """Claim that no solution has an objective below `bound`.

        The claim counts as an engine's: a valid solution that contradicts it ends the belief in it.
        """
        self._progress.raise_bound(bound, self._name, TOLD)

    def keep_going(self) -> bool:
        """Whether there is a reason and the time to search on; ask it often."""
        return self._progress.keep_going()

    @property
    def remaining(self) -> float:
        """Seconds left; infinite without a time limit."""
        return self._progress.remaining

    @property
    def elapsed(self) -> float:
        """Seconds so far."""
        return self._progress.elapsed

    @property
    def solution(self) -> SolutionT | None:
        """The best solution so far."""
        return self._progress.solution

    @property
    def objective(self) -> Number | None:
        """Its value."""
        return self._progress.objective

    @property
    def bound(self) -> Number | None:
        """The best lower bound so far."""
        return self._progress.bound

    def _take(self, answer: Any) -> None:
        """Take what a callable returned or offered: nothing, a result, a solution, its data."""
        if answer is None:
            return
        progress = self._progress
        # What is proved of another objective, or another instance, says nothing of this one.
        if isinstance(answer, Result) and answer.digest == self._instance.digest:
            evidence = Evidence(answer.proof, answer.evidence) if answer.proof else TOLD
            if answer.status is Status.INFEASIBLE:
                progress.prove_infeasible(answer.reason, evidence)
            progress.raise_bound(answer.bound, answer.bound_source or self._name, evidence)
        if isinstance(answer, Result) and answer.solution is None:
            progress.reason = answer.reason
            return
        try:
            solution = _solution(self._instance, answer)
        except InputError as error:
            raise AnswerError(f"{self._name} returned no solution: {error}") from error
        except (TypeError, ValueError, OverflowError) as error:
            given, wanted = (
                a(type(answer).__name__),
                PROBLEMS[self._instance.kind].solution.__name__,
            )
            raise AnswerError(
                f"{self._name} returned {given} that is no solution ({error}); return "
                f"{a(wanted)}, or the plain data of one"
            ) from error
        violations = progress.offer_if_valid(solution, self._name)
        if violations:
            more = f" ({len(violations) - 1:,} more)" if len(violations) > 1 else ""
            raise AnswerError(
                f"{self._name} returned a solution that breaks a rule: {violations[0]}{more}"
            )


def _solution(instance: Any, answer: Any) -> Any:
    """Return the solution that an answer is or says."""
    made = PROBLEMS[instance.kind].solution
    if isinstance(answer, Mapping):
        return made.from_dict(answer, instance)
    if isinstance(answer, list | tuple | np.ndarray) and hasattr(made, "of"):
        return made.of(instance, answer)
    return instance.solution_in(answer, "solution", shaped=False)


@dataclass(frozen=True)
class Own:
    """A callable of a user, and the name that tables have for it.

    It pickles whatever it is, as far as that can be done: functions of a script or a notebook, and
    those without a name, go by value, others by the name of their module.
    """

    name: str
    call: Callable[..., Any]

    def __call__(self, instance: Instance, progress: Progress[Any], settings: Settings) -> None:
        """Run it as a method."""
        own = OwnProgress(self.name, instance, progress)
        heard = {name: getattr(settings, name) for name in TOLD_OF}
        first, named = _arguments(self.call, own, heard)
        try:
            own._take(self.call(instance, *first, **named))
        except BaseException as error:
            progress.failure = progress.failure or error
            raise

    @functools.cached_property
    def code(self) -> str:
        """A fingerprint of what it does: of what is sent, and of the file of its module."""
        whole = hashlib.sha256(self._sent)
        place = inspect.getmodule(inspect.unwrap(getattr(self.call, "func", self.call)))
        if place is None:
            place = inspect.getmodule(type(self.call))
        file = getattr(place, "__file__", None)
        if file and Path(file).is_file():
            whole.update(Path(file).read_bytes())
        return whole.hexdigest()[:16]

    @functools.cached_property
    def _sent(self) -> bytes:
        sent: bytes = importlib.import_module("cloudpickle").dumps(self.call)
        return sent

    def __reduce__(self) -> tuple[object, ...]:
        return _received, (self.name, self._sent)


def _received(name: str, sent: bytes) -> Own:
    return Own(name, pickle.loads(sent))


def _arguments(
    call: Callable[..., Any], progress: object, heard: Mapping[str, object]
) -> tuple[tuple[object, ...], JsonObject]:
    """Return what a callable is given besides the instance: by its place, and by name.

    `progress` goes second where that has no default, or by its name; what may be `heard` of the run
    by its name, unless a partial has set it.
    """
    try:
        parameters = inspect.signature(call).parameters
    except (TypeError, ValueError):  # of C
        return (), {}
    given = {**heard, "progress": progress}
    bound = getattr(call, "keywords", None) or {}
    free = [one for one in parameters.values() if one.name not in bound]
    places = [one for one in free if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    first: tuple[object, ...] = ()
    if len(places) > 1 and places[1].default is inspect.Parameter.empty:
        first = (given.get(places[1].name, progress),)
    named = [one for one in free if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    taken = {one.name for one in places[: 1 + len(first)]}
    return first, {
        one.name: given[one.name] for one in named if one.name in given and one.name not in taken
    }


def own(call: Callable[..., Any], name: str = "") -> Own:
    """Return a callable under a `name`, by default the one that people call it by."""
    if isinstance(call, Own):
        return call
    if isinstance(call, type):
        raise InputError(
            f"{call.__name__} is a class", field="methods", remedy=f"give {call.__name__}()"
        )
    found = Own(name or called(call), call)
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):
        return found
    first, named = _arguments(call, None, dict.fromkeys(TOLD_OF))
    try:
        signature.bind(None, *first, **named)
    except TypeError as error:
        raise InputError(
            f"{found.name} cannot be called: {error}", field="methods", remedy=CALLED_AS
        ) from None
    return found


def called(call: Callable[..., Any]) -> str:
    """Return what people call a callable: a function by its name, with what a partial sets."""
    if isinstance(call, functools.partial):
        values = [f"{name}={value!r}" for name, value in call.keywords.items()]
        inside = ", ".join([*map(repr, call.args), *values])
        whole = f"{called(call.func)}({inside})"
        return whole if len(whole) <= LONGEST else called(call.func)
    if isinstance(named := getattr(call, "name", None), str) and named:
        return named
    if hasattr(call, "__qualname__"):
        return str(call.__qualname__).rpartition("<locals>.")[2].strip("<>")
    text = repr(call)
    return text if " at 0x" not in text and len(text) <= LONGEST else type(call).__name__


def method_of(call: Own, kind: str) -> AnyMethod:
    """Return a callable as a method of a `kind`."""
    description = (inspect.getdoc(call.call) or "").partition("\n")[0] or f"{a(call.name)} of yours"
    name = call.name if is_own(call.name) else f"{call.name}()"
    return Method(name=name, kind=kind, exact=False, description=description, run=call)


def is_own(name: str) -> bool:
    """Whether results of a method of this name are of a callable, which nobody else may have."""
    return name.endswith(")")
