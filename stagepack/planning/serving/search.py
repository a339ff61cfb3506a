"""What a model of Hugging Face serves on a cluster: latency against throughput, and what fits.

Samples of L tokens are generated in m batches of b each, which follow one another through k stages.
With the largest stage B, its transfers included (the objective ``sum``), and all stages together Z
(``latency``), a sample gets a token after

    max(Z, m B)

and all samples b m of them in that time.  Both are taken where a sample is longest: its last token,
after L - 1 others.  Stages hold the cache of all b m samples, and the working memory of the larger
of two: such a step, and reading one sample whole.

For some b and m, the best of all stages that fit is found exactly (:mod:`.paced`).  For some b, all
m up to the first that keeps every stage busy may pay; one is left out where less memory for the
cache, which only helps, would not make it better than a point that is known.

Cost: a search of stages for every point, three of the most tokens that fit for each batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from stagepack import files
from stagepack.errors import CheckError, InputError
from stagepack.formats import known
from stagepack.formats.door import said
from stagepack.formats.hugging_face.config import Named, chain, shares_of, work_of
from stagepack.instances.arrays import integer
from stagepack.instances.documents import strict
from stagepack.instances.pipeline import Objective, PipelinePartition, PipelineSolution
from stagepack.instances.words import Words
from stagepack.planning.serving.answer import Room, Serving, ServingPoint
from stagepack.planning.serving.paced import Paced, Pacing
from stagepack.progress import Stopped, clock
from stagepack.result import Result, Status
from stagepack.solve import require_time, solve

OWN = (
    "training", "phase", "objective", "tokens", "microbatch", "batch", "microbatches", "sequence",
    "measured", "host_transfer", "fewer_stages", "free_order", "stages_per_device", "placement",
    "recompute", "alternatives_per",
)  # fmt: skip
"""Words that are decided here, or that change what stages are."""
SHORTEST = 1024
"""Tokens of the shortest samples of which is told how many fit."""
LEAST = 0.05
"""Seconds of a solve at least."""
SLACK = 1e-9
"""Relative, for sums of floats."""


def plan_serving(
    model: str | Path,
    cluster: str,
    *,
    context: int | None = None,
    batches: Sequence[int] | None = None,
    time_limit: float | None = 20,
    **options: Any,
) -> Serving:
    """Find how fast a model generates tokens, for how many samples, and how many fit.

    Parameters
    ----------
    model : path-like
        A ``config.json`` of Hugging Face Transformers.
    cluster : str
        Accelerators by name, such as ``"4xh100"``.
    context : int, optional
        Tokens of a sample, those that are generated included; by default 4,096, or as many as the
        model was made for, if fewer.
    batches : sequence of int, optional
        Samples that stages compute at a time; by default 1, 2, 4, ... and the largest that fit.
    time_limit : float, optional
        Seconds in all.
    **options
        What reading the file takes: ``dtype``, ``tensor``, ``data``, ``utilisation``, ...

    Returns
    -------
    Serving
        The exact front of time between tokens and tokens a second over these batches, any number
        of them under way, and any stages; and the largest batches by context.

    Raises
    ------
    InputError
        For another file, an unknown device, or a word that is decided here.
    """
    time_limit = require_time(time_limit)
    path = Path(files.require_path(model))
    form = known.by_name("hugging_face")
    own = next((name for name in OWN if options.get(name) is not None), None)
    if own is not None:
        raise InputError("is no question here", field=own, remedy="leave it out, or give context")
    with strict.located(path):
        data = strict.load(path)
        if not form.sniff(data):
            raise InputError(
                "is no config.json", field="model", remedy="give that of a model of Hugging Face"
            )
        words = {**options, "cluster": cluster, "phase": "decode"}
        if context is not None:
            words["sequence"] = integer(context, "context", least=2)
        given = said(words, form, PipelinePartition.kind)
        named = Named.read(data, path.name)
        context = work_of(named, given).sequence
        wanted = None if batches is None else _wanted(batches)
        ends = math.inf if time_limit is None else clock() + time_limit
        return _Search(named, given, context, ends).find(wanted)


@dataclass
class _Search:
    """What is known while batches are tried; `context` tokens a sample."""

    named: Named
    given: Words
    context: int
    ends: float
    solves: int = 0
    whole: bool = True
    _most: dict[tuple[int, int], int] = field(default_factory=dict)
    _prefills: dict[int, PipelinePartition] = field(default_factory=dict)

    def find(self, wanted: Sequence[int] | None) -> Serving:
        """Return what is served, of the `wanted` batches."""
        k, reason = self._prefill(self.context).k, ""
        fits = [self._largest(m, self.context) for m in range(1, k + 2)]
        batches = sorted({*_doubled(fits[0]), *filter(None, fits)}) if wanted is None else wanted
        found: list[ServingPoint] = []
        try:
            for batch in batches:
                found += self._points(batch, found)
        except Stopped:
            self.whole = False
        points = [one for one in found if not any(_beats(other, one) for other in found)]
        points.sort(key=lambda one: (one.token_seconds, -one.tokens_a_second))
        if not points:
            reason = self._why(wanted)
        done = Status.OPTIMAL if self.whole else Status.FEASIBLE
        nothing = Status.INFEASIBLE if self.whole else Status.UNKNOWN
        return Serving(
            name=self.named.name,
            cluster=str(self.given["cluster"]),
            status=done if points else nothing,
            context=self.context,
            stages=k,
            devices=self._shares.tensor,
            copies=self._shares.data,
            points=tuple(points),
            batches=tuple(batches),
            rooms=tuple(self._rooms(k)),
            largest_context=self._longest(k),
            solves=self.solves,
            reason=reason,
        )

    @cached_property
    def _shares(self) -> Any:
        return shares_of(self.named, self.given)

    def _chain(self, **words: Any) -> PipelinePartition:
        """Return the layers with some words."""
        return chain(self.named, {**self.given, **words})

    def _prefill(self, context: int) -> PipelinePartition:
        """Return the layers while a sample of so many tokens is read."""
        if context not in self._prefills:
            self._prefills[context] = self._chain(
                phase="prefill", sequence=context, objective=Objective.SUM, tokens=0
            )
        return self._prefills[context]

    def _decode(self, batch: int, context: int, **words: Any) -> PipelinePartition:
        """Return the layers at the last token of a batch, with the memory to read a sample."""
        step = self._chain(microbatch=batch, sequence=context - 1, **words)
        room = np.maximum(step.temporary, self._prefill(context).temporary)
        return step.replace(temporary=room)

    def _solved(self, instance: PipelinePartition) -> Result[PipelineSolution]:
        self.solves += 1
        left = self.ends - clock()
        limit = None if math.isinf(left) else max(LEAST, left)
        found: Result[PipelineSolution] = solve(instance, time_limit=limit)
        self.whole &= found.status in (Status.OPTIMAL, Status.INFEASIBLE)
        return found

    # ------------------------------------------------------------------ what fits

    def _tokens(self, batch: int, context: int) -> int:
        """Return the most tokens whose cache fits beside batches of so many samples."""
        key = batch, context
        if key not in self._most:
            found = self._solved(self._decode(batch, context, objective=Objective.HEADROOM))
            self._most[key] = 0 if found.objective is None else int(-found.objective)
        return self._most[key]

    def _largest(self, microbatches: int, context: int) -> int:
        """Return the largest batch of which so many fit: larger ones leave less for the cache."""
        each = microbatches * context
        low, high = 0, self._tokens(1, context) // each
        at = high
        while low < high and clock() < self.ends:
            room = self._tokens(at, context)
            if room >= at * each:
                low = at
            else:
                low, high = max(low, min(at - 1, room // each)), at - 1
            at = (low + high + 1) // 2
        self.whole &= low == high
        return low

    def _rooms(self, k: int) -> list[Room]:
        """Return how many samples fit, by context, with a batch for each of `k` stages."""
        model, found = self.named.model, []
        most = model.positions or model.context or self.context
        context = min(SHORTEST, most)
        contexts = {self.context}
        while context <= max(most, self.context):
            contexts.add(context)
            context *= 2
        for each in sorted(contexts):
            batch = self._largest(k, each) if clock() < self.ends else 0
            if not batch:
                break
            found.append(Room(each, batch, batch * k * self._shares.data))
        return found

    def _longest(self, k: int) -> int:
        """Return the most tokens of a sample of which `k` fit, and the model has positions for."""
        most = self.named.model.positions or 2**24
        low, high = 1, 2
        while high <= most and clock() < self.ends and self._tokens(1, high) >= k * high:
            low, high = high, 2 * high
        high = min(high, most + 1)
        while high - low > 1 and clock() < self.ends:
            middle = (low + high) // 2
            low, high = (middle, high) if self._tokens(1, middle) >= k * middle else (low, middle)
        self.whole &= high - low <= 1
        return low if low > 1 else 0

    # ------------------------------------------------------------------ latency and throughput

    def _paced(self, batch: int, microbatches: int) -> Paced | None:
        """Return the best stages of so many batches; None where they do not fit."""
        tokens = batch * microbatches * self.context
        if self._tokens(batch, self.context) < tokens:
            return None
        step = self._decode(batch, self.context, objective=Objective.SUM, tokens=tokens)
        self.solves += 1
        found = Pacing(step, self._pause).best(microbatches)
        if found is not None:
            _require_right(step, found, microbatches)
        return found

    def _pause(self) -> None:
        if clock() >= self.ends:
            raise Stopped

    def _points(self, batch: int, beside: Sequence[ServingPoint]) -> list[ServingPoint]:
        """Return what a batch may get, from the number under way that keeps all stages busy."""
        if self._tokens(batch, self.context) < batch * self.context:
            return []
        free = self._decode(
            batch, self.context, objective=Objective.SUM, tokens=batch * self.context
        )
        pacing, found = Pacing(free, self._pause), list[ServingPoint]()
        each = [pacing.best(1)]
        while each[-1] is not None and not each[-1].busy:
            each.append(pacing.best(len(each) + 1))
        for m, at_best in reversed([*enumerate(each, 1)]):
            seconds = math.inf if at_best is None else self._seconds(at_best.cycles)
            rate = batch * m * self._shares.data / seconds
            if not any(
                one.token_seconds <= seconds and one.tokens_a_second >= rate
                for one in (*beside, *found)
            ):
                found += self._tried(batch, m, on=m == len(each))
        return found

    def _tried(self, batch: int, m: int, *, on: bool) -> list[ServingPoint]:
        """Return what `m` batches get, and, if asked to go `on`, more until stages are busy."""
        found: list[ServingPoint] = []
        paced = self._paced(batch, m)
        while paced is not None:
            found.append(self._point(paced, batch, m))
            if paced.busy or not on:
                break
            m += 1
            paced = self._paced(batch, m)
        return found

    def _point(self, paced: Paced, batch: int, m: int) -> ServingPoint:
        """Return what `m` batches under way get."""
        cut, prefill = paced.solution, self._prefill(self.context)
        first = float(prefill.replace(objective=Objective.LATENCY).evaluate(cut))
        copies, seconds = self._shares.data, self._seconds(paced.cycles)
        return ServingPoint(
            batch=batch,
            microbatches=m,
            samples=batch * m * copies,
            token_seconds=seconds,
            tokens_a_second=batch * m * copies / seconds,
            first_token_seconds=self._seconds(first),
            prefill_tokens_a_second=self.context * copies / self._seconds(prefill.evaluate(cut)),
            boundaries=tuple(cut.boundaries),
        )

    def _seconds(self, cycles: float) -> float:
        return cycles / float(self._prefill(self.context).cluster.clock)

    def _why(self, wanted: Sequence[int] | None) -> str:
        """Return why nothing fits."""
        batch = min(wanted or [1])
        step = self._decode(
            batch, self.context, objective=Objective.SUM, tokens=batch * self.context
        )
        return self._solved(step).reason


def _wanted(batches: object) -> list[int]:
    """Return the batches that are asked for."""
    if not isinstance(batches, list | tuple) or not batches:
        raise InputError("is no list of numbers", field="batches", remedy="give batches=[1, 8, 32]")
    return sorted({integer(batch, "batches", least=1) for batch in batches})


def _require_right(instance: PipelinePartition, found: Paced, batches: int) -> None:
    """Refuse stages that the instance's own checker, and its evaluation, do not confirm.

    `found` is for so many `batches`.
    """
    stage = instance.evaluate(found.solution)
    whole = instance.replace(objective=Objective.LATENCY).evaluate(found.solution)
    wrong = instance.check(found.solution)
    if wrong or not math.isclose(found.cycles, max(whole, batches * stage), rel_tol=SLACK):
        raise CheckError(f"stages of {batches} batches are not what they were found as: {wrong}")


def _doubled(most: int) -> list[int]:
    """Return 1, 2, 4, ... up to `most`."""
    return [1 << power for power in range(most.bit_length())]


def _beats(one: ServingPoint, other: ServingPoint) -> bool:
    """Whether a point is better than another in one figure, and no worse in both."""
    (mine, much), (its, less) = (
        (point.token_seconds, point.tokens_a_second) for point in (one, other)
    )
    return (mine, much) != (its, less) and mine <= its and much >= less
