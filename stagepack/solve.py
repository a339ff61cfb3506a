"""The function `solve` and the registry of methods (floor 4)."""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib.metadata
import inspect
import logging
import math
import numbers
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from stagepack import kinds
from stagepack.contracts import Instance, InstanceOf, JsonObject, Number, Solution, SolutionT
from stagepack.errors import InputError, carrying, suggest
from stagepack.evidence import VERIFIABLE
from stagepack.heuristics.tuning import tuned
from stagepack.instances.problem import PROBLEMS
from stagepack.interrupts import Interruptible
from stagepack.methods import AnyMethod, Settings
from stagepack.methods.own import is_own, method_of, own
from stagepack.progress import Progress, Stopped
from stagepack.result import SHORTEST, Result, Status, Termination
from stagepack.shown import Shown, dataframe, some
from stagepack.stopping import Stop, heeding

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import ArrayLike, NDArray

    from stagepack.instances.packing import PackingSolution

T = TypeVar("T")
NumberT = TypeVar("NumberT", bound=float | None)

log = logging.getLogger("stagepack")

REGISTRY: kinds.ByKind[tuple[AnyMethod, ...]] = kinds.ByKind(
    lambda kind: kinds.part(kind, "methods").METHODS
)
LIBRARIES = ("numpy", "numba", "ortools", "highspy", "pyomo")
OPTIONS = {"deterministic": False, "proof": False, "tuning": None}
NOTHING = {
    Termination.TIME_LIMIT: "time was over before anything that fits was found",
    Termination.INTERRUPTED: "it was interrupted before anything that fits was found",
    Termination.FINISHED: "it ended without anything that fits, nor a proof that nothing does",
}
"""Why nothing is known, where the method does not say it itself."""


@dataclass(frozen=True)
class MethodInfo:
    """A method as seen from one instance: can it solve it, and if not, why not."""

    name: str
    kind: str
    exact: bool
    default: bool
    description: str
    engines: tuple[str, ...]
    available: bool
    reason: str


class MethodList(Shown, list[MethodInfo]):
    """What can solve an instance: a list that prints as a table."""

    def _line(self) -> str:
        return some(method.name for method in self)

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row a method; pandas must be installed."""
        return dataframe([vars(method) for method in self])


def methods(instance: Instance | str) -> MethodList:
    """Return the methods for `instance`: whether they are exact, and available or why not.

    Parameters
    ----------
    instance : instance of any problem, or the name of a kind or its family
        ("lmem-packing", "packing"); then nothing is unavailable.
    """
    kind = kinds.kind_of(instance) if isinstance(instance, str) else _kind(instance)
    return MethodList(seen_from(instance, method) for method in REGISTRY[kind])


def seen_from(instance: Instance | str, method: AnyMethod) -> MethodInfo:
    """Return what :func:`methods` says of one of them."""
    named = isinstance(instance, str)
    reason = "" if named else method.unsupported(instance) or method.declines(instance)
    unproved = "" if named or reason else method.unproved(instance)
    return MethodInfo(
        name=method.name,
        kind=method.kind,
        exact=method.exact and not unproved,
        default=method.default,
        description=method.description + (unproved and f" (only bounds: {unproved})"),
        engines=method.engines,
        available=not reason,
        reason=reason,
    )


def solve(
    instance: InstanceOf[SolutionT],
    method: str | Callable[..., object] = "auto",
    *,
    objective: str | None = None,
    engine: str | None = None,
    time_limit: float | None = 10,
    target: Number | None = None,
    gap: float = 0,
    warm_start: Solution | Result[SolutionT] | Mapping[str, object] | str | None = "auto",
    threads: int = 1,
    seed: int = 0,
    on_incumbent: Callable[[SolutionT, Number, Number | None], None] | None = None,
    on_bound: Callable[[Number, str], None] | None = None,
    stop: Stop | None = None,
    options: Mapping[str, object] | None = None,
) -> Result[SolutionT]:
    """Solve an instance; the answer is checked and carries a safe bound.

    Parameters
    ----------
    instance : instance of any problem
        What to solve.
    method : str or callable
        A name from :func:`methods`; "auto" picks the fastest that proves its answer.  Or a function
        of yours, see :func:`stagepack.compare`.
    objective : str, optional
        Minimise this instead of the instance's own objective.
    engine : str, optional
        "cp-sat", "highs", "pyomo:highs" or "pyomo:NAME", for methods that use an engine.
    time_limit : float, optional
        Seconds of solving, imports and compilation not counted; None for no limit.
    target : int or float, optional
        Stop at a solution this good.
    gap : float
        Stop at this relative gap.
    warm_start : str or solution or Result or None
        Where engines start: "auto" (greedy rules), a method's name (it gets half of the time, ten
        seconds at most), a solution or what an earlier run returned, or None.
    threads : int
        For the engines.
    seed : int
        For the engines and for what is drawn at random; on one thread equal seeds give equal
        answers.
    on_incumbent : callable, optional
        Called with (solution, objective, bound) at each improvement, possibly from another thread.
        What it raises ends the run and comes out of it, whatever the engine; what was found by then
        is the attribute `partial_result` of the exception.  KeyboardInterrupt ends it as Ctrl-C
        does: the result is returned.
    on_bound : callable, optional
        Called with (bound, source) at each better bound; otherwise like `on_incumbent`.
    stop : threading.Event or callable, optional
        Ends the run from another thread, within 0.3 s, as Ctrl-C does: once the event is set, or
        the function returns true.  It is asked often, possibly from several threads; what it raises
        comes out like an exception of `on_incumbent`.
    options : dict, optional
        ``{"deterministic": True}`` limits engines and searches by work (about
        `time_limit` seconds' worth) instead of the clock, so that limited runs repeat exactly.
        ``{"proof": True}`` spends what is left of the time on evidence that others can verify,
        where a bound rests on a search or an engine.
        ``{"tuning": {...}}`` changes numbers that steer the searches of this kind, by their names
        in ``stagepack.heuristics.<family>.tuning``: for research; they may change with any release.

    Returns
    -------
    Result
        Ctrl-C and time limits give the best solution so far with its bound; an infeasible
        instance is a result, too.

    Raises
    ------
    InputError
        For arguments that cannot be used; the message names them.
    CheckError
        When a method's solution fails the instance's checker (a bug).
    AnswerError
        When a `method` of yours returns no solution, or one that fails the checker.
    Exception
        Whatever `on_incumbent`, `on_bound`, `stop` or a `method` of yours raises.
    """
    chosen = require_method(_kind(instance), method)
    method = chosen.name
    if objective is not None:
        instance = instance.replace(objective=objective)
    start = _start(instance, warm_start)
    time_limit, target, gap = plain(time_limit), plain(target), plain(gap)
    threads, seed = plain(threads), plain(seed)
    _require_callable(on_incumbent=on_incumbent, on_bound=on_bound)
    settings = _settings(chosen, engine, time_limit, target, gap, start, threads, seed, options)
    reason = chosen.unsupported(instance)
    if reason:
        raise InputError(reason, field=f"method {method}")
    with heeding(stop):
        progress: Progress[SolutionT] = Progress(
            instance.evaluate,
            instance.check,
            time_limit=None if settings.deterministic else time_limit,
            target=_goal(instance) if target is None else target,
            gap=gap,
            tolerance=instance.tolerance,
            on_incumbent=on_incumbent,
            on_bound=on_bound,
            secondary=getattr(instance, "secondary", None),
            by_clock=not settings.deterministic,
        )
        try:
            with Interruptible(progress):
                with contextlib.suppress(Stopped):
                    chosen.run(instance, progress, settings)
                _strengthen(instance, progress, settings)
        except BaseException as error:
            if progress.failure is None:
                raise
            log.debug("a callback has ended the run: %s", error)
    progress.close()
    run = {
        "method": method,
        "objective": str(instance.objective),
        "engine": engine,
        "time_limit": time_limit,
        "target": target,
        "gap": gap,
        "warm_start": start if start is None or isinstance(start, str) else start.to_dict(),
        "threads": threads,
        "seed": seed,
        "options": dict(options or {}),
    }
    result = _result(instance, progress, run)
    if progress.failure is None or isinstance(progress.failure, KeyboardInterrupt):
        return result
    raise carrying(progress.failure, result)


def _strengthen(
    instance: InstanceOf[SolutionT], progress: Progress[SolutionT], settings: Settings
) -> None:
    """Look for evidence that can be verified, where the proof at hand is none."""
    found = progress.evidence
    look = getattr(kinds.part(instance.kind, "methods"), "strengthen", None)
    if look is None or found is None or found.proof in VERIFIABLE or progress.interrupted:
        return

    def keep_going() -> bool:
        return progress.remaining > 0 and not progress.interrupted

    if progress.proved or settings.proof:
        look(instance, progress, settings, keep_going)


def _goal(instance: Instance) -> Number | None:
    """Return the target of an instance's own, where anything that fits will do."""
    goal: Number | None = getattr(instance, "goal", None)
    return goal


def _result(
    instance: InstanceOf[SolutionT], progress: Progress[SolutionT], run: JsonObject
) -> Result[SolutionT]:
    """Return what a run that is over has come to; `run` are the arguments that repeat it."""
    status, termination = progress.outcome()
    goal = _goal(instance)
    if goal is not None and progress.objective is not None and progress.objective <= goal:
        termination = Termination.TARGET
    reason = progress.infeasible_reason or progress.reason
    if status is Status.UNKNOWN and not reason:
        reason = NOTHING[termination]
    said = [reason, *progress.contradictions]
    said += [getattr(instance, "proviso", ""), _unused_start(progress, run)]
    result: Result[SolutionT] = Result(
        status=status,
        termination=termination,
        objective=progress.objective,
        bound=None if status is Status.INFEASIBLE else progress.bound,
        bound_source="" if status is Status.INFEASIBLE else progress.bound_source,
        solution=progress.solution,
        method=run["method"],
        engine=progress.engine,
        runtime=progress.elapsed,
        setup_time=progress.setup_time,
        reason="; ".join(filter(None, said)),
        instance=instance.name,
        kind=instance.kind,
        objective_name=str(instance.objective),
        digest=instance.digest,
        options=run,
        versions=versions(),
        trace=progress.trace,
    )
    return result.because(progress.evidence).of(instance)


def _unused_start(progress: Progress[SolutionT], run: JsonObject) -> str:
    """Return that the start that was asked for was left alone; "" where it was not."""
    if run["warm_start"] in ("auto", "none", None) or progress.has_start:
        return ""
    if progress.infeasible_reason:
        return ""
    return (
        f"{run['method']} has not used the warm start: it begins with nothing, or was done before"
    )


KEYWORDS = tuple(inspect.signature(solve).parameters)[1:]
"""What may be said to :func:`solve` besides the instance: the method, and options."""


def require_keywords(
    options: Mapping[str, object], of: str, own: Sequence[str] = (), without: Sequence[str] = ()
) -> None:
    """Refuse, by name, `options` that a function which passes them on to :func:`solve` cannot take.

    A remedy names its `own` options, too; those that it is `without` it sets itself.  Messages are
    `of` the function.
    """
    known = [name for name in KEYWORDS[1:] if name not in without]
    for name in sorted(options):
        if name in without:
            raise InputError(f"{of} sets it itself", field=name, remedy="leave it out")
        if name not in known:
            raise InputError(
                f"{name!r} is no option of {of}, nor of solve",
                field=name,
                remedy=suggest(name, [*known, *own]),
            )


def _start(
    instance: Instance, given: Solution | Result[SolutionT] | Mapping[str, object] | str | None
) -> Solution | str | None:
    """Return where to start as settings have it: a name, None, or the solution itself."""
    if given is None or isinstance(given, str):
        return given
    solution: Solution
    if isinstance(given, Mapping):  # as a result records it
        solution = PROBLEMS[instance.kind].solution.from_dict(given, instance)
    else:
        solution = instance.solution_in(given, "warm_start", shaped=False)
    return solution


def pack(
    size: ArrayLike,
    start: ArrayLike | None = None,
    end: ArrayLike | None = None,
    capacity: int | str | None = None,
    *,
    alignment: ArrayLike | None = None,
    **options: Any,
) -> tuple[NDArray[np.int64] | None, Result[PackingSolution]]:
    """Place buffers that are given as three arrays.

    Parameters
    ----------
    size, start, end : array_like of int, shape (n,)
        Bytes, and lifetimes [start, end); leave these out with ``conflicts``.  Here and below,
        bytes may be texts: "12KiB".
    capacity : int or str, optional
        Any placement that fits will do; without one the highest address used is minimised.
    alignment : int or array_like of int, optional
        Offsets are multiples of this.
    **options
        As for :func:`solve`: ``method``, ``time_limit``, ``threads``, ...; all others as for
        :meth:`LmemPacking.from_arrays`: ``fixed``, ``gaps``, ``period``, ...

    Returns
    -------
    offsets : ndarray of int64, shape (n,), or None
        Address of each buffer; None when none were found.
    result : Result
        With status, bound and, where nothing fits, the reason.

    Raises
    ------
    InputError
        For arrays that are no packing instance; the message names the entry.

    Examples
    --------
    >>> offsets, result = pack([4, 4, 4], [0, 3, 0], [3, 9, 9], capacity=12)
    >>> offsets.tolist(), str(result.status)
    ([4, 4, 0], 'OPTIMAL')
    """
    from stagepack.instances.packing import LmemPacking

    rest = {name: value for name, value in options.items() if name in KEYWORDS}
    fields = {name: value for name, value in options.items() if name not in KEYWORDS}
    known = inspect.signature(LmemPacking.from_arrays).parameters
    unknown = sorted(set(fields) - set(known))
    if unknown:
        raise InputError(
            "is no option of solve and no field of a packing",
            field=unknown[0],
            remedy=suggest(unknown[0], [*known, *KEYWORDS]),
        )
    instance = LmemPacking.from_arrays(
        size,
        start,
        end,
        capacity=capacity,
        alignment=alignment,
        objective=rest.pop("objective", None),
        **fields,
    )
    result: Result[PackingSolution] = solve(instance, **rest)
    return (None if result.solution is None else result.solution.offsets), result


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions of Stagepack, Python and the libraries that answers depend on."""
    found = {"python": platform.python_version()}
    for library in ("stagepack", *LIBRARIES):
        try:
            found[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            found[library] = "not installed"
    return found


def _kind(instance: object) -> str:
    kind = getattr(instance, "kind", None)
    if isinstance(instance, type):
        what = f"the class {instance.__name__}"
    elif isinstance(kind, str) and kind in REGISTRY and hasattr(instance, "evaluate"):
        return kind
    else:
        what = type(instance).__name__
    raise InputError(
        f"{what} is not an instance",
        field="instance",
        remedy="use stagepack.read, stagepack.load or a from_arrays constructor",
    )


def require_method(kind: str, name: str | Callable[..., object]) -> AnyMethod:
    """Return a method by its name, or raise an `InputError` that lists them; a callable as one."""
    if callable(name):
        return method_of(own(name), kind)
    by_name = {method.name: method for method in REGISTRY[kind]}
    if not isinstance(name, str) or name not in by_name:
        near = difflib.get_close_matches(str(name), by_name, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InputError(
            f"unknown method {name!r}",
            field="method",
            remedy=f"{hint}choose one of " + ", ".join(by_name),
        )
    return by_name[name]


def require_options(kind: str, options: JsonObject) -> None:
    """Raise an `InputError` for `Result.options` with which no run of a kind can be repeated."""
    settings = list(inspect.signature(_settings).parameters)[1:]
    known = ("method", "objective", *settings)
    for name, value in options.items():
        if name not in known:
            raise InputError("is no option of a run", field=name, remedy=suggest(name, known))
        if name in ("objective", "warm_start") and not isinstance(value, str | Mapping | None):
            raise InputError(f"{value!r}", field=name, remedy="give a name")
    defaults = inspect.signature(solve).parameters
    name = options.get("method", "auto")
    method = require_method(kind, "auto" if isinstance(name, str) and is_own(name) else name)
    _settings(method, **{name: options.get(name, defaults[name].default) for name in settings})


def _settings(
    method: AnyMethod,
    engine: str | None,
    time_limit: float | None,
    target: Number | None,
    gap: float,
    warm_start: Solution | str | None,
    threads: int,
    seed: int,
    options: Mapping[str, object] | None,
) -> Settings:
    require_time(time_limit)
    require_number(target, "target", "a number, or None")
    if gap is None:
        raise InputError("None", field="gap", remedy="give a number >= 0")
    require_number(gap, "gap", "a number >= 0", least=0)
    for value, name, least in ((threads, "threads", 1), (seed, "seed", 0)):
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**31:
            raise InputError(
                f"{value!r}", field=name, remedy=f"give an integer of at least {least}, below 2**31"
            )
    by_work = deterministic(options)
    if engine is not None:
        from stagepack import solvers

        solvers.engine(str(engine))  # unknown names are refused here
        _require_fitting(engine, method)
    if isinstance(warm_start, str) and warm_start == "none":
        warm_start = None
    # A method that counts no work has nothing to limit but the clock.
    measured = bool(method.engines) or method.limited_by_work
    return Settings(
        engine=engine,
        warm_start=warm_start,
        threads=threads,
        seed=seed,
        deterministic=measured and by_work,
        time_limit=time_limit,
        proof=bool((options or {}).get("proof")),
        tuning=tuned(method.kind, (options or {}).get("tuning")),
    )


def deterministic(options: Mapping[str, object] | None) -> bool:
    """Return whether `options` of :func:`solve` limit a run by work; refuse any other ones."""
    if options is None:
        return False
    unknown = sorted(map(str, set(options) - set(OPTIONS))) if isinstance(options, Mapping) else ()
    if unknown:
        raise InputError(
            f"unknown option {unknown[0]!r}", field="options", remedy="known: " + ", ".join(OPTIONS)
        )
    if not isinstance(options, Mapping) or not all(
        isinstance(value, bool) for name, value in options.items() if name != "tuning"
    ):
        raise InputError(
            f"{options!r}",
            field="options",
            remedy='write {"deterministic": True}, {"proof": True}, {"tuning": {...}} or None',
        )
    return bool(options.get("deterministic", False))


def _require_fitting(engine: str, method: AnyMethod) -> None:
    """Refuse an engine on which a method does not run; ``auto`` runs on those of any model."""
    own = [method] if method.name != "auto" else REGISTRY[method.kind]
    engines = list(dict.fromkeys(name for one in own for name in one.engines))
    if engine not in engines and engine.split(":")[0] not in [n.split(":")[0] for n in engines]:
        uses = f"runs on {', '.join(engines)}" if engines else "uses no engine"
        raise InputError(
            f"{engine!r} does not fit method {method.name}, which {uses}",
            field="engine",
            remedy="leave it out or choose another",
        )


def require_time(limit: float | None, field: str = "time_limit") -> float | None:
    """Refuse, by name, a time limit that is no positive number of seconds nor None; return it."""
    return require_number(limit, field, "a positive number of seconds, or None", least=SHORTEST)


def plain(value: T) -> T:
    """Return a number of NumPy as one of Python, and anything else as it is."""
    if isinstance(value, numbers.Number) and hasattr(value, "item"):
        own: T = value.item()
        return own
    return value


def require_number(value: NumberT, name: str, wanted: str, least: float = -math.inf) -> NumberT:
    """Refuse a `value` that is no number of at least `least`, nor None; return it as Python's own.

    A message calls it `name`, and asks for what is `wanted`.
    """
    own = plain(value)
    real = isinstance(own, int | float) and least <= own < math.inf
    if own is not None and (not real or isinstance(own, bool)):
        raise InputError(f"{value!r}", field=name, remedy=f"give {wanted}")
    return own


def _require_callable(**callbacks: object) -> None:
    """Refuse, by name, what is to be called and cannot be."""
    for name, called in callbacks.items():
        if called is not None and not callable(called):
            raise InputError(f"{called!r}", field=name, remedy="give a function, or None")
