"""Tuning: the batch, number of devices and microbatches with the most samples per second.

There are three searches.

- *Grid*: computes every plan.
- *Bisection*: for options that are declared monotone (a larger value is better as long as it fits),
  the largest value that fits is found by bisection.  All other options are enumerated.
- *Bounds*: the most promising configuration comes first.  A configuration whose step takes at least
  `least_step` cycles has a throughput of at most samples / `least_step`; if this is no more than
  the best throughput found, it is skipped.  For each combination of the other options the most
  promising value comes first; as soon as one value is known not to fit, bisection continues between
  it and the largest value that fits or is skipped.

The first value of a list is treated like the last one.  Of several monotone options the last one is
bisected.  If values fit together, all smaller ones do; if they do not, no larger ones do; both are
shared between the combinations.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from stagepack import files
from stagepack.claims.claim import is_number
from stagepack.contracts import JsonObject
from stagepack.errors import InputError, StagepackError, a, carrying, suggest
from stagepack.heuristics.pipeline.step_stages import least_step
from stagepack.instances.arrays import integer
from stagepack.instances.base import require_instance
from stagepack.instances.pipeline import KIND, PipelinePartition
from stagepack.planning.search import unshown
from stagepack.planning.tuned import BATCH, Evaluation, Tuning, rises
from stagepack.solve import require_time, versions
from stagepack.spelling import renamed
from stagepack.stopping import Stop, heeding, stop_asked

T = TypeVar("T")
log = logging.getLogger(__name__)

VERSION = 1
"""Of the files in a store of plans."""
SEARCHES = ("bounds", "bisection", "grid")
Options = JsonObject
Make = Callable[..., PipelinePartition]


@renamed(width="jobs")
def tune(
    make: Make,
    options: Mapping[str, Sequence[Any]],
    monotone: str | Sequence[str] | None = None,
    *,
    search: str = "bounds",
    split: bool = False,
    time_limit: float | None = 5,
    seed: int = 0,
    store: str | Path | None = None,
    executor: Executor | None = None,
    jobs: int = 1,
    stop: Stop | None = None,
) -> Tuning:
    """Search for the options under which the plan of a model has the most samples a second.

    Parameters
    ----------
    make : callable
        ``make(**options) -> PipelinePartition``: the model on a cluster.  If ``batch`` is one of
        the options, it is the number of samples of a microbatch; otherwise microbatches are
        counted.
    options : mapping of str to sequence
        The values of each option.
    monotone : str or sequence of str, optional
        Options of which a larger value is always better as long as it fits, whatever the other
        options are; their values must rise.  This is not checked.  It can be false for the batch in
        training: a larger batch needs more memory, so fewer microbatches may be in flight, and
        fewer samples are computed per second.  If computed plans contradict it, the result says so.
        Without `monotone`, every value is considered, and bounds skip most of them.
    search : str
        "bounds"; or, to compare, "bisection" within every point of the grid, or the whole "grid".
    split, time_limit, seed
        As for :func:`plan_model`.
    store : path-like, optional
        A folder in which evaluations are stored and found again.
    executor : concurrent.futures.Executor, optional
        Computes the plans; by default this process does.  If one of its processes dies, the search
        ends as if it had been interrupted.
    jobs : int
        Number of plans that are computed at a time, by an `executor` that can.
    stop : threading.Event or callable, optional
        Ends the search from another thread, with the plans so far, see :func:`stagepack.solve`;
        those under way on an `executor` are waited for.

    Returns
    -------
    Tuning

    Raises
    ------
    InputError
        For unknown names, options without values, a store that cannot be used, whatever `make` and
        :func:`plan_model` refuse, and where `make` fails or returns no chain.  What was found by
        then is the attribute `partial_result` of the exception, a :class:`Tuning`.
    """
    if search not in SEARCHES:
        raise InputError(f"unknown {search!r}", field="search", remedy=suggest(search, SEARCHES))
    if not callable(make):
        remedy = "give a function of the options that returns an instance"
        raise InputError(f"{a(type(make).__name__)} is no function", field="make", remedy=remedy)
    jobs, seed = integer(jobs, "jobs", 1), integer(seed, "seed", 0)
    time_limit = require_time(time_limit)
    if executor is not None and not callable(getattr(executor, "map", None)):
        remedy = "give an executor of concurrent.futures, or None"
        raise InputError(
            f"{a(type(executor).__name__)} runs nothing", field="executor", remedy=remedy
        )
    values = _listed(options)
    empty = [name for name, some in values.items() if not some]
    if empty or not values:
        raise InputError("has no values", field=(empty or ["options"])[0], remedy="give some")
    rising = () if monotone is None else (monotone,) if isinstance(monotone, str) else monotone
    for name in rising if isinstance(rising, Iterable) else [rising]:
        if not isinstance(name, str) or name not in values:
            raise InputError(f"unknown {name!r}", field="monotone", remedy=suggest(name, values))
    rising = tuple(dict.fromkeys(rising))
    for name in rising:
        if not rises(values[name]):
            raise InputError("do not rise", field=name, remedy="give them from small to large")
    kept = None if store is None else files.require_store(store, "plans", VERSION)
    limits: JsonObject = {"split": bool(split), "time_limit": time_limit, "seed": seed}
    tuner = _Tuner(make, values, rising, limits, kept, executor, jobs)
    with heeding(stop):
        return tuner.run(search)


def _listed(options: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Return the values of each option."""
    if not isinstance(options, Mapping):
        remedy = 'give the values of each, such as {"devices": [2, 4]}'
        raise InputError(f"{options!r}", field="options", remedy=remedy)
    for name, some in options.items():
        if not isinstance(some, Iterable) or isinstance(some, str | bytes):
            raise InputError(f"{some!r}", field=str(name), remedy="give its values in a list")
    found = {str(name): list(some) for name, some in options.items()}
    for name, some in found.items():
        for value in some:
            wrong = isinstance(value, float) and math.isnan(value)
            wrong |= name == BATCH and not (is_number(value) and value > 0)
            if wrong:
                remedy = "give numbers above 0" if name == BATCH else "leave it out"
                raise InputError(f"{value!r}", field=name, remedy=remedy)
    return found


@dataclass
class _Line:
    """The configurations that differ in the monotone option alone, rising: a point of the grid."""

    configurations: list[Options]
    point: tuple[Any, ...] = ()  # values of the options that are not monotone
    rank: tuple[int, ...] = ()  # places of the values of the other monotone ones
    fits: int = -1  # the largest index known to fit; -1: none
    fails: int = 0  # the least index known not to fit

    @property
    def failed(self) -> bool:
        """Whether one is known not to fit."""
        return self.fails < len(self.configurations)

    def __post_init__(self) -> None:
        self.fails = len(self.configurations)

    def told(self, at: int, fits: bool) -> None:
        """Note whether a configuration fits."""
        if fits:
            self.fits = max(self.fits, at)
        else:
            self.fails = min(self.fails, at)


@dataclass
class _Tuner:
    make: Make
    values: dict[str, list[Any]]
    monotone: tuple[str, ...]
    limits: JsonObject
    store: Path | None
    executor: Executor | None
    jobs: int
    done: list[Evaluation] = field(default_factory=list)
    lines: list[_Line] = field(default_factory=list)
    _bounds: dict[str, float] = field(default_factory=dict)

    def run(self, search: str) -> Tuning:
        """Search, and return what was found."""
        self.lines = lines = list(self._lines())
        interrupted = False
        try:
            if search == "grid":
                self._all(lines)
            else:
                self._bisected(lines, bounded=search == "bounds")
        except KeyboardInterrupt:
            interrupted = True
        except BrokenExecutor:
            log.warning("a process that made plans died: the search ends with those it has")
            interrupted = True
        except InputError as error:
            raise carrying(error, self._found(search, interrupted=True))  # noqa: B904  it is that one
        return self._found(search, interrupted=interrupted)

    def _found(self, search: str, *, interrupted: bool) -> Tuning:
        """Return what is known by now."""
        return Tuning(
            options={name: tuple(some) for name, some in self.values.items()},
            monotone=self.monotone,
            search=search,
            evaluations=tuple(self.done),
            configurations=sum(len(line.configurations) for line in self.lines),
            bisection=sum(_bisection(line) for line in self.lines),
            interrupted=interrupted,
        )

    def _lines(self) -> Iterator[_Line]:
        """Yield the points of the grid, other monotone options among those of a line's rank."""
        *others, last = self.monotone or ("",)
        names = [name for name in self.values if name not in self.monotone]
        for point in itertools.product(*(self.values[name] for name in names)):
            for rank in itertools.product(*(range(len(self.values[name])) for name in others)):
                fixed = dict(zip(names, point, strict=True))
                fixed |= {
                    name: self.values[name][at] for name, at in zip(others, rank, strict=True)
                }
                rising = (
                    [{**fixed, last: value} for value in self.values[last]] if last else [fixed]
                )
                ordered = [{name: one[name] for name in self.values} for one in rising]
                yield _Line(ordered, point, rank)

    def _all(self, lines: list[_Line]) -> None:
        every = [(line, at) for line in lines for at in range(len(line.configurations))]
        for some in _batched(every, self.jobs):
            self._evaluate(some)

    def _bisected(self, lines: list[_Line], *, bounded: bool) -> None:
        """Bisect in every line; those with the greatest promise first, and only while there is any.

        If `bounded`, bounds choose, and skip.
        """
        while True:
            asked = []
            for line in lines:
                low = line.fits + 1
                while bounded and low < line.fails and not self._promising(line, low):
                    low += 1
                if low < line.fails:
                    at, promise = (low + line.fails) // 2, 0.0
                    if bounded:
                        left = range(low, line.fails)
                        best = max(left, key=lambda one: (self._bound(line, one), one))
                        promise = self._bound(line, best)
                        # As long as nothing failed: then it is bisected.
                        at = at if line.failed else best
                    asked.append((-promise, (line, at)))
            if not asked:
                return
            asked.sort(key=lambda one: one[0])
            self._evaluate([one for _, one in asked[: self.jobs]])

    def _promising(self, line: _Line, at: int) -> bool:
        """Return whether a configuration may have more samples a second than the best one."""
        best = max((one.throughput or 0.0 for one in self.done), default=0.0)
        return self._bound(line, at) > best

    def _bound(self, line: _Line, at: int) -> float:
        """Return how many samples a second a configuration has at most."""
        chosen = line.configurations[at]
        key = json.dumps(chosen, sort_keys=True, default=str)
        if key not in self._bounds:
            instance = self._made(chosen)
            cycles = least_step(instance, instance.microbatches, split=self.limits["split"])
            pace = _samples(chosen, instance) * float(instance.cluster.clock)
            self._bounds[key] = pace / cycles if cycles else math.inf
        return self._bounds[key]

    def _made(self, chosen: Options) -> PipelinePartition:
        """Return the model with these options; refuse what is none, and say which they were."""
        call = f"make({', '.join(f'{name}={value!r}' for name, value in chosen.items())})"
        try:
            made: PipelinePartition = self.make(**chosen)
        except StagepackError:
            raise
        except Exception as error:
            problem = f"raised {type(error).__name__}: {error}"
            raise InputError(problem, field=call, remedy="see the function given") from error
        require_instance(made, KIND, call, "return the model on a cluster, a PipelinePartition")
        return made

    def _evaluate(self, asked: Sequence[tuple[_Line, int]]) -> None:
        """Plan some configurations, and note what comes of it."""
        if stop_asked():
            raise KeyboardInterrupt
        given = [line.configurations[at] for line, at in asked]
        work = [(chosen, self._made(chosen)) for chosen in given]
        run = partial(_evaluated, limits=self.limits, store=self.store)
        found = list(map(run, work) if self.executor is None else self.executor.map(run, work))
        self.done += found
        for (line, at), evaluation in zip(asked, found, strict=True):
            fits = evaluation.throughput is not None
            for other in self.lines:
                pairs = zip(other.rank, line.rank, strict=True)
                if other.point == line.point and all(a <= b if fits else a >= b for a, b in pairs):
                    other.told(at, fits)


def _batched(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for low in range(0, len(items), size):
        yield items[low : low + size]


def _samples(chosen: Options, instance: PipelinePartition) -> float:
    """Return the samples of a step, or its microbatches: see :attr:`.Tuning.counted`."""
    return float(chosen.get(BATCH, 1) * instance.microbatches)


def _bisection(line: _Line) -> int:
    """Return how many plans bisection makes on a line, the fewest possible where that is open."""
    low, high, count = -1, len(line.configurations), 0
    while high - low > 1:
        middle = (low + high + 1) // 2
        if middle <= line.fits:
            low = middle
        elif middle >= line.fails:
            high = middle
        else:
            return count + int(math.log2(high - low))
        count += 1
    return count


def _evaluated(
    work: tuple[Options, PipelinePartition], limits: JsonObject, store: Path | None
) -> Evaluation:
    """Plan one configuration, or find what was kept of it."""
    chosen, instance = work
    question = {
        "digest": instance.digest,
        "microbatches": instance.microbatches,
        "limits": limits,
        "versions": versions(),
    }
    key = hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()[:24]
    kept = None if store is None else store / f"{key}.json"
    figures = None if kept is None else _kept(kept, question)
    cached = figures is not None
    if figures is None:
        plan = unshown(instance, **limits)
        if plan.interrupted:  # the search as a whole is, and this plan might have been better
            raise KeyboardInterrupt
        figures = {
            "status": str(plan.status),
            "cycles": plan.objective,
            "bound": plan.bound,
            "memory": plan.memory,
            "reason": plan.reason,
        }
        if kept is not None:
            document = {"question": question, "figures": figures}
            files.write(kept, files.json_text(files.finite(document)) + "\n")
    pace = _samples(chosen, instance) * float(instance.cluster.clock)
    cycles, bound = figures["cycles"], figures["bound"]
    return Evaluation(
        options=dict(chosen),
        status=figures["status"],
        cycles=cycles,
        throughput=pace / cycles if cycles else None,
        bound=pace / bound if bound else None,
        memory=figures["memory"],
        reason=figures["reason"],
        cached=cached,
    )


def _kept(path: Path, question: JsonObject) -> JsonObject | None:
    """Return the figures in a file of a store; None for no file, a torn one or another question."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        figures: JsonObject = document["figures"]
        whole = document["question"] == question and {"status", "cycles", "bound"} <= set(figures)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return figures if whole else None
