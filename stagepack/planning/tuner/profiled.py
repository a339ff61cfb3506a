"""The search with a profiler of the user's own: as few measurements as possible.

Nothing that is measured is proved.  What is not measured rests on four assumptions; the result
counts what rests on which:

- *monotone*: more of such an option is better until it does not fit; what fails, fails with more;
- *step*: a larger batch takes no less time a step, so that throughput grows at most as the batch;
- *margin*: no configuration is above its estimate by more than those measured are, but for the
  margin: what cannot win even so is skipped (needs a model that estimates);
- *noise*: what is below the best by more than values of one configuration were ever apart is not
  the best; what is not is measured again, up to the repeats asked for.

On a line the next value is the weighted median of where the largest that fits may be.  Any place
has some weight; more have those around where the model, corrected by the lines known so far, or
other lines have it.

Cost: one to three measurements a line where guesses are good; about log2(n) + 2 of n values else.
"""

from __future__ import annotations

import contextlib
import logging
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.profile import ModelProfile
from stagepack.planning.tuned import (
    BATCH,
    FAILED,
    MEASURED,
    Evaluation,
    Measuring,
    plain,
    told_options,
)
from stagepack.planning.tuner.processes import Answer, Command, Kept, Measure, Run, start, wait
from stagepack.planning.tuner.search import Asked, Line, Tuner, key_of, planned
from stagepack.report import format as as_text

log = logging.getLogger(__name__)

ELSEWHERE = 0.2
"""Seconds until it is looked again whether another run has measured what is asked for."""
SPREAD = 8
"""Of how many values one more is as far away: guesses are as good as their size."""
ALL, MODEL = 0.5, 2.0
"""Weights of all values fitting, and of what a model says, where any number of them has 1."""


@dataclass(frozen=True)
class Profiling:
    """How it is measured: the arguments of :func:`stagepack.tune` that say so.

    `limit` is in seconds of one measurement, `calls` the most of them; with `retry`, failures that
    were kept are measured again.
    """

    measure: Measure
    repeats: int = 1
    margin: float = 0.2
    limit: float | None = None
    calls: int | None = None
    retry: bool = False

    @property
    def name(self) -> str:
        """What measures, as stores and people are told."""
        if isinstance(self.measure, Command):
            return self.measure.text
        inner = getattr(self.measure, "func", self.measure)  # of functools.partial
        of = type(inner).__module__, type(inner).__qualname__
        named = getattr(inner, "__module__", of[0]), getattr(inner, "__qualname__", of[1])
        return ".".join(map(str, named))


@dataclass
class _Point:
    """What is known of a configuration that was asked for."""

    asked: Asked
    answers: list[Answer]
    cached: bool
    plan: Evaluation | None = None  # of its profile

    @property
    def values(self) -> list[float]:
        return [one.throughput for one in self.answers if one.throughput is not None]

    @property
    def failure(self) -> Answer | None:
        return next((one for one in self.answers if one.throughput is None), None)

    @property
    def value(self) -> float | None:
        return None if self.failure or not self.answers else statistics.median(self.values)


@dataclass(kw_only=True)
class Profiled(Tuner):
    """A search by measurements."""

    how: Profiling
    points: dict[Asked, _Point] = field(default_factory=dict)
    calls: int = 0
    _running: dict[str, tuple[Asked, Run]] = field(default_factory=dict)
    _kept: Kept = field(init=False)
    _ratio: float = 0.0  # the most that is measured of an estimate

    def search(self, search: str) -> None:
        """Measure until nothing may be better, and the best often enough."""
        self._kept = Kept(self.store)
        try:
            self._recall()
            while True:
                if search == "grid":
                    self._all()
                else:
                    self._bisected(bounded=search == "bounds")
                again = self._close_to_best()
                if not again or not self.goes_on():
                    return
                self.evaluate(again)
        finally:
            for _, run in self._running.values():
                run.stop()
            self._running.clear()
            self._kept.close()

    def _recall(self) -> None:
        """Note what the store holds."""
        known = self._kept.keys()
        for line in self.lines if known else ():
            for asked in ((line, at) for at in range(len(line.configurations))):
                key, question = self._question(asked)
                answers = self._kept.read(key, question) if key in known else []
                if answers and all(self._holds(asked, one) for one in answers):
                    self._note(asked, answers, cached=True)

    def known(self, asked: Asked) -> bool:
        """Return whether it has been measured."""
        return asked in self.points

    def goes_on(self) -> bool:
        """Whether more may be measured; what is under way is waited for."""
        if self.how.calls is None or self.calls < self.how.calls:
            return True
        while self._running:
            self._hear()
        return False

    # ------------------------------------------------------------------ what may win

    def bound(self, line: Line, at: int) -> float:
        """Return how many samples a second a configuration is taken to have at most."""
        return min(self._by_step(line, at), self._by_model(line, at))

    def promising(self, line: Line, at: int) -> bool:
        """Return whether a configuration may be the best, whatever the model says of its memory."""
        return self.bound(line, at) > self.best * (1 + self.gap)

    def _by_step(self, line: Line, at: int) -> float:
        """Return it from the smaller batches of its line, whose steps take no longer."""
        if not self.monotone or self.monotone[-1] != BATCH:
            return math.inf
        found = math.inf
        for below in range(at):
            point = self.points.get((line, below))
            if point is not None and point.value is not None:
                grown = line.configurations[at][BATCH] / line.configurations[below][BATCH]
                found = min(found, point.value * grown)
        return found

    def _by_model(self, line: Line, at: int) -> float:
        """Return it from the estimate, corrected by the most that was measured of one."""
        if self.make is None or not self._ratio:
            return math.inf
        return self.outlook(line, at)[0] * self._ratio * (1 + self.how.margin)

    def promise(self, line: Line, at: int) -> float:
        """Return by what lines are sorted, of which the configuration `at` would be measured."""
        if self.make is not None:
            return self.outlook(line, at)[0]
        return self.bound(line, line.fails - 1)

    def probe(self, line: Line, low: int) -> int:
        """Return the value to measure, from `low` on, so that half the weight is on either side."""
        places = np.arange(line.fits, line.fails)  # of the largest that fits
        weight = np.full(len(places), 1 / len(places))
        weight[-1] += ALL if self.make is None and not line.failed else 0
        for low_guess, high_guess, share in self._guesses(line):
            away = np.maximum(0, np.maximum(low_guess - places, places - high_guess))
            near = 1 / (1 + away / (1 + max(low_guess, 0) / SPREAD)) ** 2
            hit = away == 0
            weight += share / 2 * (near / near.sum() + hit / max(1, hit.sum()))
        above = np.cumsum(weight[::-1])[::-1][low - line.fits :] / weight.sum()  # each one fits
        return low + int(np.argmin(np.abs(above - 0.5)))

    def _guesses(self, line: Line) -> list[tuple[float, float, float]]:
        """Return between what the largest that fits may be, and what each guess weighs."""
        if self.make is not None:
            known = [
                (one.fits + 1) / (self._fitting(one) + 1)
                for one in self.lines
                if not one.open and one.fits >= 0
            ]
            guess = round((self._fitting(line) + 1) * statistics.median(known or [1.0])) - 1.0
            # The less the lines agree on how wrong the model is, the less it says.
            all_known = known if len(known) > 1 else [*known, 1.0]
            apart = max(all_known) / min(all_known)
            return [(guess, guess, MODEL * max(1, len(known)) / apart**2)]
        others = [one for one in self.lines if one is not line and (one.failed or one.fits >= 0)]
        alike = [
            (sum(a == b for a, b in zip(one.point, line.point, strict=True)) + 0.5)
            / (one.fails - one.fits)
            for one in others
        ]
        return [
            (float(one.fits), float(one.fails - 1), share / sum(alike))
            for one, share in zip(others, alike, strict=True)
        ]

    def _fitting(self, line: Line) -> int:
        """Return the largest value of which the model has stages that fit, by bisection; or -1."""
        low, high = -1, len(line.configurations)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.outlook(line, middle)[1] else (low, middle)
        return low

    def left(self) -> JsonObject:
        """Return nothing: why what was not measured was not is counted elsewhere."""
        return {}

    def _close_to_best(self) -> list[Asked]:
        """Return what to measure again: the best, then what may be it but for noise.

        Noise is the most that values of one configuration were apart.
        """
        apart = [max(one.values) / min(one.values) for one in self.points.values() if one.value]
        noise = max(apart, default=1.0)
        near = sorted(
            ((one.value, asked) for asked, one in self.points.items() if one.value is not None),
            key=lambda one: one[0],
            reverse=True,
        )
        few = [
            asked
            for place, (value, asked) in enumerate(near)
            if len(self.points[asked].answers) < self.how.repeats
            and (place == 0 or value * noise > self.best)
        ]
        return few[:1] if near and few and few[0] == near[0][1] else few

    # ------------------------------------------------------------------ measuring

    def evaluate(self, asked: Sequence[Asked]) -> Sequence[Asked]:
        """Measure the first configurations that nobody else does, until one ends; return it."""
        for one in asked:
            if len(self._running) >= self.jobs or not self._more():
                break
            key, question = self._question(one)
            if key in self._running or not self._kept.claim(key):
                continue
            answers = [each for each in self._kept.read(key, question) if self._holds(one, each)]
            before = self.points.get(one)
            wanted = 1 if before is None else len(before.answers) + 1
            if len(answers) >= min(wanted, self.how.repeats) or any(
                each.throughput is None for each in answers
            ):
                self._kept.claim(key, take=False)
                self._note(one, answers, cached=True)
                return [one]  # another run has measured it meanwhile, and what is asked may change
            options = self._configuration(one)
            self._running[key] = one, start(self.how.measure, dict(options), self.how.limit)
            self.calls += 1
        if not self._running:
            time.sleep(ELSEWHERE)  # all are being measured by other runs
            return []
        return self._hear()

    def _more(self) -> bool:
        return self.how.calls is None or self.calls < self.how.calls

    def _holds(self, asked: Asked, answer: Answer) -> bool:
        """Whether what is kept need not be measured again: failures may be, limits be longer."""
        if answer.throughput is not None or asked in self.points:
            return True
        longer = self.how.limit is None or self.how.limit > (answer.limit or math.inf)
        return not (self.how.retry or (answer.limit is not None and longer))

    def _hear(self) -> list[Asked]:
        """Wait for some measurements; keep them, and return of what they are."""
        over = wait([run for _, run in self._running.values()])
        found = []
        for key, (asked, run) in list(self._running.items()):
            if run not in over:
                continue
            answer = run.finish()
            del self._running[key]
            if answer.model is not None:
                answer = self._planned(asked, answer)
            _, question = self._question(asked)
            kept = self._kept.read(key, question)
            before = self.points[asked].answers if asked in self.points else []
            answers = [one for one in kept or before if one.throughput is not None]
            answers.append(answer)
            self._kept.write(key, question, answers)
            self._kept.claim(key, take=False)
            self._note(asked, answers, cached=False)
            found.append(asked)
        return found

    def _question(self, asked: Asked) -> tuple[str, JsonObject]:
        """Return what is asked, and the name under which its answers are kept."""
        options = {name: plain(one) for name, one in self._configuration(asked).items()}
        question = {"measured": self.how.name, "options": options}
        return key_of(question), question

    def _configuration(self, asked: Asked) -> JsonObject:
        line, at = asked
        return line.configurations[at]

    def _planned(self, asked: Asked, answer: Answer) -> Answer:
        """Return the answer of the plan that is made of a profile."""
        chosen, model = self._configuration(asked), answer.model
        known: dict[str, Any] = {**vars(answer), "model": None}
        try:
            if isinstance(model, ModelProfile):
                if self.make is None:
                    problem = (
                        "a profile needs a cluster: return PipelinePartition.from_profile(...)"
                    )
                    return Answer(**{**known, "reason": problem})
                around = self.made(chosen)
                model = PipelinePartition.from_profile(
                    model, around.cluster, microbatches=around.microbatches,
                    training=around.training,
                )  # fmt: skip
            assert model is not None
            plan = planned((chosen, model), [self.limits], None)
        except InputError as error:
            return Answer(**{**known, "reason": str(error)})
        figures = {name: getattr(plan, name) for name in ("status", "cycles", "bound")}
        known |= {"throughput": plan.throughput, "memory": plan.memory, "plan": figures}
        return Answer(**{**known, "reason": plan.reason})

    def _note(self, asked: Asked, answers: list[Answer], *, cached: bool) -> None:
        """Note what a configuration came to."""
        again = asked in self.points
        point = self.points[asked] = _Point(asked, answers, cached)
        if self.make is not None and point.value is not None:
            estimate = self.outlook(*asked)[0]
            if 0 < estimate < math.inf:
                self._ratio = max(self._ratio, point.value / estimate)
        evaluation = self._evaluation(point)
        said = as_text.number(point.value) if point.value is not None else evaluation.reason
        level = logging.DEBUG if cached else logging.INFO
        log.log(level, "%s: %s%s", told_options(evaluation.options), said, " (kept)" * cached)
        self.done = [self._evaluation(one) for one in self.points.values()]
        self.best = max((one.throughput or 0.0 for one in self.done), default=0.0)
        if not again:
            self.note(asked, evaluation)
        elif point.value is None:  # it did run before: smaller ones may have to be asked for
            for line in self.lines:
                line.fits, line.fails = -1, len(line.configurations)
            for one in self.points.values():
                self.note(one.asked, self._evaluation(one))

    def _evaluation(self, point: _Point) -> Evaluation:
        """Return the figures of a configuration."""
        answers, failure = point.answers, point.failure
        why, log_end = "", ""
        if failure is not None:
            few = len(answers) > 1
            why = f"failed in one of {len(answers)} runs: " if few else ""
            why, log_end = why + failure.reason, failure.log
        plan = answers[-1].plan or {}
        estimate = None
        with contextlib.suppress(KeyError):
            estimate = self._outlooks[point.asked][0] if self.make is not None else None
        held = [one.memory for one in answers if one.memory is not None]
        return Evaluation(
            options=dict(self._configuration(point.asked)),
            status=plan.get("status", MEASURED if failure is None else FAILED),
            cycles=plan.get("cycles"),
            throughput=point.value,
            bound=plan.get("bound"),
            memory=max(held, default=None),
            reason=why,
            cached=point.cached,
            values=tuple(point.values),
            estimate=estimate,
            log=log_end,
        )

    # ------------------------------------------------------------------ what it rests on

    def measured(self) -> Measuring:
        """Return how it was measured, and why everything else was not."""
        skipped = dict.fromkeys(("larger", "smaller", "margin", "step", "open"), 0)
        for line in self.lines:
            for at in range(len(line.configurations)):
                if (line, at) not in self.points:
                    skipped[self._why_not(line, at)] += 1
        return Measuring(
            by=self.how.name,
            calls=self.calls,
            repeats=self.how.repeats,
            margin=self.how.margin,
            limit=self.how.limit,
            skipped={why: count for why, count in skipped.items() if count},
        )

    def _why_not(self, line: Line, at: int) -> str:
        """Return why a configuration was not measured."""
        if at >= line.fails:
            return "larger"
        if at < line.fits:
            return "smaller"
        if self._by_step(line, at) <= self.best:
            return "step"
        # A line is skipped by the bound of its largest value that is open.
        known = [one for one in range(at, line.fails) if (line, one) in self._outlooks]
        return "margin" if any(self._by_model(line, one) <= self.best for one in known) else "open"
