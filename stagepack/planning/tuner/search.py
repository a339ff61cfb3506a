"""The search for the best configuration: lines of values that rise, bounds, bisection.

The most promising line comes first.  On a line whose option is monotone, a value that is known to
fit fits with all smaller ones, one that does not fails with all larger ones; both hold for other
lines of the same point whose ranks are below, or above.  As larger values are better, none of a
line has more samples a second than the bound of the largest one that is open: if that is no more
than the best, the line is skipped, and no other bound of it is computed.

Where bounds choose, a plan is first made in little time; those that may still be the best are made
again with more, as far as the limit of the whole search goes.  Of configurations that are lines by
themselves the quick bound of :func:`.step_bound` is known first, and the better one only of those
whose turn it is.

Cost: a bound for each line, and about log2(n) for each of n values once a line may have the best.
"""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
import heapq
import itertools
import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from stagepack import files
from stagepack.contracts import JsonObject
from stagepack.errors import InputError, StagepackError, carrying
from stagepack.heuristics.pipeline.step_bound import step_bound
from stagepack.heuristics.pipeline.step_stages import outlook
from stagepack.instances.base import require_instance
from stagepack.instances.pipeline import KIND, PipelinePartition
from stagepack.planning.search import unshown
from stagepack.planning.tries import QUESTIONS
from stagepack.planning.tuned import BATCH, Evaluation, Measuring, Tuning
from stagepack.planning.tuner.processes import require_going
from stagepack.progress import clock
from stagepack.result import Status
from stagepack.solve import versions

log = logging.getLogger(__name__)

QUICK = 0.5
"""Seconds of a question of a plan that is made first."""
Options = JsonObject
Make = Callable[..., PipelinePartition]


@dataclass(eq=False)
class Line:
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

    @property
    def open(self) -> bool:
        """Whether the largest that fits is not known."""
        return self.fits + 1 < self.fails

    def __post_init__(self) -> None:
        self.fails = len(self.configurations)

    def told(self, at: int, fits: bool) -> None:
        """Note whether a configuration fits."""
        if fits:
            self.fits = max(self.fits, at)
        else:
            self.fails = min(self.fails, at)


Asked = tuple[Line, int]


@dataclass
class Tuner:
    """A search, and what it knows.

    `make` makes the model of a configuration of `values`; options that are `monotone` rise.
    `limits` are those of a plan.  What can be better by a part of `gap` at most is skipped.  Where
    bounds choose, the search ends after `total` seconds.
    """

    make: Make | None
    values: dict[str, list[Any]]
    monotone: tuple[str, ...]
    limits: JsonObject
    store: Path | None
    executor: Executor | None
    jobs: int
    gap: float = 0.0
    total: float | None = None
    done: list[Evaluation] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    best: float = 0.0  # the most samples a second that are known
    _outlooks: dict[Asked, tuple[float, bool]] = field(default_factory=dict)
    _quick: dict[Asked, float] = field(default_factory=dict)  # bounds that can be better
    _tiers: list[float | None] = field(default_factory=list)  # limits of a question, rising
    _tried: dict[Asked, tuple[int, int]] = field(default_factory=dict)  # place in `done`, its tier
    _ends: float = math.inf

    def run(self, search: str) -> Tuning:
        """Search, and return what was found."""
        self.lines = list(self._lines())
        interrupted = False
        try:
            self.search(search)
        except KeyboardInterrupt:
            interrupted = True
        except BrokenExecutor:
            log.warning("a process that made plans died: the search ends with those it has")
            interrupted = True
        except InputError as error:
            raise carrying(error, self._found(search, interrupted=True))  # noqa: B904  it is that one
        return self._found(search, interrupted=interrupted)

    def search(self, search: str) -> None:
        """Look at configurations until none may be better."""
        bounded = search == "bounds"
        self._tiers = [self.limits["time_limit"]]
        if bounded:
            self._tiers = tiers(self._tiers[0])
            self._ends = math.inf if self.total is None else clock() + self.total
        if search == "grid":
            self._all()
            return
        self._bisected(bounded=bounded)
        while bounded and self._deepen():
            self._bisected(bounded=True)

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
            measured=self.measured(),
            **self.left(),
        )

    def left(self) -> JsonObject:
        """Return how many others may be better, and the most that any of them may have."""
        enough = self.best * (1 + self.gap)
        count, bounds = 0, []
        for line in self.lines:
            last = line, line.fails - 1
            looked = last in self._outlooks or last in self._quick
            if line.open and not (looked and not self.promising(*last)):
                count += line.fails - line.fits - 1
                bounds.append(self.bound(*last) if looked else math.inf)
        best = max(self.done, key=lambda one: one.throughput or 0.0, default=None)
        others = [one.bound or 0.0 for one in self.done if one is not best]
        bounds += [bound for bound in others if bound > enough]
        count += sum(bound > enough for bound in others)
        most = max(bounds, default=math.inf)
        return {"left": count, "most": most if most < math.inf else None}

    def measured(self) -> Measuring | None:
        """Return how it was measured; None for plans."""
        return None

    def _lines(self) -> Iterator[Line]:
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
                yield Line(ordered, point, rank)

    def _all(self) -> None:
        every = [(line, at) for line in self.lines for at in range(len(line.configurations))]
        left = {one: None for one in every if not self.known(one)}
        while left and self.goes_on():
            for one in self.evaluate(list(left)):
                del left[one]

    def _bisected(self, *, bounded: bool) -> None:
        """Bisect in every line; those with the greatest promise first, and only while there is any.

        If `bounded`, bounds choose, and skip.
        """
        while self.goes_on():
            asked = []
            for line in self.lines:
                low = line.fits + 1
                if bounded:
                    low = self._first_promising(line, low)
                if low < line.fails:
                    at = self.probe(line, low) if bounded else (low + line.fails) // 2
                    asked.append((self.promise(line, at) if bounded else 0.0, (line, at)))
            if not asked:
                return
            asked = self._sharpened(asked) if bounded else asked
            if asked:
                self.evaluate([one for _, one in asked])

    def _sharpened(self, asked: list[tuple[float, Asked]]) -> list[tuple[float, Asked]]:
        """Return what has the greatest promise first, known by more than quick bounds."""
        waiting = [(-promise, place) for place, (promise, _) in enumerate(asked)]
        heapq.heapify(waiting)
        first = list[tuple[float, Asked]]()
        while waiting and len(first) < self.jobs and self.goes_on():
            promise, place = heapq.heappop(waiting)
            one = asked[place][1]
            if one not in self._quick:
                first.append((-promise, one))
                continue
            self.outlook(*one)
            del self._quick[one]
            if self.promising(*one):
                heapq.heappush(waiting, (-self.promise(*one), place))
        rest = [(-promise, asked[place][1]) for promise, place in sorted(waiting)]
        return [*first, *rest]

    def known(self, asked: Asked) -> bool:
        """Return whether there is an answer already."""
        return False

    def goes_on(self) -> bool:
        """Whether more may be asked: something always may."""
        return not self.done or clock() < self._ends

    def _first_promising(self, line: Line, low: int) -> int:
        """Return the first value, from `low` on, that may have more samples than the best."""
        if low >= line.fails or not self.promising(line, line.fails - 1):
            return line.fails
        if self.promising(line, low):
            return low
        left = range(low, line.fails)
        return low + bisect.bisect_left(left, True, key=lambda at: self.promising(line, at))

    def promising(self, line: Line, at: int) -> bool:
        """Return whether a configuration may have more samples a second than the best one."""
        fits = self._outlooks.get((line, at), (0.0, True))[1] or len(line.configurations) > 1
        return (fits or not self.best) and self.bound(line, at) > self.best * (1 + self.gap)

    def probe(self, line: Line, low: int) -> int:
        """Return the value to look at, from `low` on: the last, and once one failed the middle."""
        return (low + line.fails) // 2 if line.failed else line.fails - 1

    def promise(self, line: Line, at: int) -> float:
        """Return by what lines are sorted, of which the configuration `at` would be looked at."""
        last = line.fails - 1
        fits = len(line.configurations) > 1 or self._outlooks.get((line, last), (0.0, True))[1]
        return self.bound(line, last) if fits else 0.0

    def bound(self, line: Line, at: int) -> float:
        """Return how many samples a second a configuration has at most."""
        one = line, at
        if len(line.configurations) > 1 or one in self._outlooks:
            return self.outlook(line, at)[0]
        if one not in self._quick:
            chosen = line.configurations[at]
            instance = self.made(chosen)
            cycles = step_bound(instance, instance.microbatches, split=self.limits["split"])
            self._quick[one] = _pace(chosen, instance) / cycles if cycles else math.inf
        return self._quick[one]

    def outlook(self, line: Line, at: int) -> tuple[float, bool]:
        """Return the bound of the model on samples a second, and whether stages may fit."""
        found = self._outlooks.get((line, at))
        if found is None:
            chosen = line.configurations[at]
            instance = self.made(chosen)
            cycles, fits = outlook(instance, instance.microbatches, split=self.limits["split"])
            most = _pace(chosen, instance) / cycles if cycles else math.inf
            found = self._outlooks[line, at] = most, fits
        return found

    def made(self, chosen: Options) -> PipelinePartition:
        """Return the model with these options; refuse what is none, and say which they were."""
        assert self.make is not None
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

    def evaluate(self, asked: Sequence[Asked]) -> Sequence[Asked]:
        """Plan the first configurations, and note what comes of it; return those."""
        require_going()
        asked = asked[: self.jobs]
        found = self._plans(asked, 0)
        # What has no plan in little time may have one.
        unknown = [at for at, one in enumerate(found) if one.status == Status.UNKNOWN]
        unknown = unknown if len(self._tiers) > 1 else []
        last = len(self._tiers) - 1
        deeper = self._plans([asked[at] for at in unknown], last)
        for at, plan in zip(unknown, deeper, strict=True):
            found[at] = plan
        for at, (one, evaluation) in enumerate(zip(asked, found, strict=True)):
            self._tried[one] = len(self.done), last if at in unknown else 0
            self.done.append(evaluation)
            self.best = max(self.best, evaluation.throughput or 0.0)
            self.note(one, evaluation)
        return asked

    def _plans(self, asked: Sequence[Asked], tier: int) -> list[Evaluation]:
        """Return plans with the limit of a tier, or that were kept of a better one."""
        if not asked:
            return []
        given = [line.configurations[at] for line, at in asked]
        work = [(chosen, self.made(chosen)) for chosen in given]
        limits = [{**self.limits, "time_limit": one} for one in reversed(self._tiers[tier:])]
        run = partial(planned, limits=limits, store=self.store)
        return list(map(run, work) if self.executor is None else self.executor.map(run, work))

    def _deepen(self) -> bool:
        """Make those plans again that may be the best, with as much time as there is for each.

        Returns whether there were any.
        """
        left = self._ends - clock()
        worth = [
            tier
            for tier, limit in enumerate(self._tiers)
            if left == math.inf or (limit is not None and limit <= left / QUESTIONS)
        ]
        if not worth:
            return False
        again = [
            (self.done[place].bound or 0.0, one)
            for one, (place, tier) in self._tried.items()
            if tier < worth[-1]
            and self.done[place].status == Status.FEASIBLE
            and (self.done[place].bound or 0.0) > self.best * (1 + self.gap)
        ]
        again = heapq.nlargest(self.jobs, again, key=lambda each: each[0])
        asked = [one for _, one in again]
        for one, found in zip(asked, self._plans(asked, worth[-1]), strict=True):
            place = self._tried[one][0]
            before = self.done[place]
            if (found.throughput or 0.0) < (before.throughput or 0.0):
                found = dataclasses.replace(before, bound=_least(before.bound, found.bound))
            self.done[place], self._tried[one] = found, (place, worth[-1])
            self.best = max(self.best, found.throughput or 0.0)
        return bool(asked)

    def note(self, asked: Asked, evaluation: Evaluation) -> None:
        """Note whether a configuration fits, in its line and those that follow from it."""
        line, at = asked
        fits = evaluation.throughput is not None
        for other in self.lines:
            pairs = zip(other.rank, line.rank, strict=True)
            if other.point == line.point and all(a <= b if fits else a >= b for a, b in pairs):
                other.told(at, fits)


def tiers(limit: float | None) -> list[float | None]:
    """Return limits of a question, each twice the one before, the given one last."""
    if limit is None:
        return [QUICK, None]
    found: list[float | None] = [limit]
    while limit >= 2 * QUICK:
        limit /= 2
        found.append(limit)
    return found[::-1]


def _least(*bounds: float | None) -> float | None:
    return min((one for one in bounds if one is not None), default=None)


def _pace(chosen: Options, instance: PipelinePartition) -> float:
    """Return the samples a second of a step that takes one cycle."""
    return samples(chosen, instance) * float(instance.cluster.clock)


def samples(chosen: Options, instance: PipelinePartition) -> float:
    """Return the samples of a step, or its microbatches: see :attr:`.Tuning.counted`."""
    return float(chosen.get(BATCH, 1) * instance.microbatches)


def _bisection(line: Line) -> int:
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


def planned(
    work: tuple[Options, PipelinePartition], limits: Sequence[JsonObject], store: Path | None
) -> Evaluation:
    """Plan one configuration, or find what was kept of it.

    `work` is the configuration and its model, `limits` those of plans, the last one made if none of
    them is in the folder `store`.
    """
    chosen, instance = work
    figures: JsonObject | None = None
    kept, question = None, dict[str, Any]()
    for each in limits:
        question = {
            "digest": instance.digest,
            "microbatches": instance.microbatches,
            "limits": each,
            "versions": versions(),
        }
        if store is not None and figures is None:
            kept = store / f"{key_of(question)}.json"
            figures = _kept(kept, question)
    cached = figures is not None
    if figures is None:
        plan = unshown(instance, **limits[-1])
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
    pace = _pace(chosen, instance)
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


def key_of(question: Mapping[str, object]) -> str:
    """Return the name under which a store keeps the answer of a question."""
    return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()[:24]


def _kept(path: Path, question: JsonObject) -> JsonObject | None:
    """Return the figures in a file of a store; None for no file, a torn one or another question."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        figures: JsonObject = document["figures"]
        whole = document["question"] == question and {"status", "cycles", "bound"} <= set(figures)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return figures if whole else None
