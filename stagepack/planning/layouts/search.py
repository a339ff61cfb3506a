"""The best layout of a model: bounds for all, a plan for those that may be the best.

1. Every layout gets a bound by its work: of m microbatches, the work of all layers in p equal parts
   or the largest layer, and the mean of what stages exchange after a step.  What has more bytes
   than all devices together does not fit.
2. Layouts are taken by rising bounds.  One that may be the best gets its chain of layers, with a
   bound by the order of stages (:mod:`stagepack.heuristics.pipeline.step_bound`), and, if it still
   may be, stages of the least bottleneck within memory, scheduled as 1F1B.
3. The best are planned by :func:`stagepack.plan_model` until none is left that may be better, or
   the time is over.

A step takes as long as its schedule and then the slowest exchange of gradients.  What is proved is
that no layout of :mod:`.space`, with any stages of one layout and any schedule of F and B, is
faster under the costs of :mod:`stagepack.formats.hugging_face.costs`.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from stagepack import files
from stagepack.errors import InputError
from stagepack.formats import known
from stagepack.formats.door import said
from stagepack.formats.hugging_face.config import Named, chain, roofline, shares_of, work_of
from stagepack.formats.hugging_face.costs import Shares, Work, costs_by_kind
from stagepack.formats.hugging_face.layout import Layout
from stagepack.heuristics.pipeline.step_bound import step_bound
from stagepack.instances import accelerators, clusters
from stagepack.instances.arrays import integer
from stagepack.instances.documents import strict
from stagepack.instances.pipeline import Objective, PipelinePartition, PipelineSolution
from stagepack.instances.profile import Cluster, LayerProfile
from stagepack.instances.words import Words
from stagepack.interrupts import Interrupts
from stagepack.planning.layouts.answer import Candidate, LayoutPlan, by_bound
from stagepack.planning.layouts.space import require_layouts
from stagepack.planning.model_plan import ModelPlan
from stagepack.planning.resident import Resident
from stagepack.planning.search import plan_model
from stagepack.planning.stages import Level, Structure
from stagepack.progress import clock
from stagepack.report import format as as_text
from stagepack.result import Result, Status
from stagepack.solve import require_time, solve

T = TypeVar("T")
SLACK = 1e-9
"""Relative, for sums of floats."""
LEAST = 0.05
"""Seconds of a question at least."""
FINALS = (0.025, 0.1, 0.4)
"""Parts of the time left that plans take for each of their questions, one round after another."""
ROOM = 0.95
"""Part of a device's memory that a layout may use; the rest is left to what fragments it."""


def plan_layout(
    model: str | Path,
    cluster: str,
    *,
    global_batch: int,
    time_limit: float | None = 20,
    seed: int = 0,
    threads: int = 1,
    **options: Any,
) -> LayoutPlan:
    """Choose how a model lies on accelerators: degrees of parallelism, microbatches, recomputation.

    All factorisations of the devices into tensor, pipeline, data and expert degrees are bounded,
    and those that may be the best cut and scheduled exactly, until the best one is proved or the
    time is over.

    Parameters
    ----------
    model : path-like
        A ``config.json`` of Hugging Face Transformers.
    cluster : str
        Accelerators by name, such as ``"2x8xh100"``.
    global_batch : int
        Samples of a step, of all copies together.
    time_limit : float, optional
        Seconds in all.
    seed, threads : int
        As for :func:`stagepack.solve`.
    **options
        What reading the file takes: ``training``, ``sequence``, ``dtype``, ...  Degrees that are
        given (``tensor``, ``pipeline``, ``data``, ``expert``), ``microbatch`` and ``keep`` are not
        chosen.

    Returns
    -------
    LayoutPlan

    Raises
    ------
    InputError
        For another file, an unknown device, or where no degrees divide what they must.
    """
    time_limit = require_time(time_limit)
    global_batch = integer(global_batch, "global_batch", least=1)
    path = Path(files.require_path(model))
    form = known.by_name("hugging_face")
    with strict.located(path):
        data = strict.load(path)
        if not form.sniff(data):
            raise InputError(
                "is no config.json",
                field="model",
                remedy="degrees are chosen for models of Hugging Face; give --microbatches instead",
            )
        given = said({**options, "cluster": cluster}, form, PipelinePartition.kind)
        if "measured" in given:
            raise InputError(
                "are figures of one layout, and others have other parts of layers",
                field="measured",
                remedy="give figures of devices and links, cluster 4xh100@figures.json",
            )
        if given.get("recompute", "none") != "none":
            raise InputError(
                "chooses for each layer, and layouts recompute all layers or none",
                field="recompute",
                remedy="leave it out, or give --set keep=inputs; both are tried",
            )
        given["cluster"] = clusters.cluster(given["cluster"])
        named = Named.read(data, path.name)
        ways = require_layouts(named, given, global_batch)
    limits = {"seed": seed, "threads": threads}
    ends = math.inf if time_limit is None else clock() + time_limit
    return _Search(named, given, global_batch, ends, limits).find(ways)


@dataclass(order=True)
class _Way:
    """A layout on its way: its bound in cycles, and what is known of it."""

    bound: int
    at: int
    layout: Layout = field(compare=False)
    chain: PipelinePartition | None = field(default=None, compare=False)
    objective: int | None = field(default=None, compare=False)
    plan: ModelPlan | None = field(default=None, compare=False)
    reason: str = field(default="", compare=False)
    lack: int = field(default=2**62, compare=False)


@dataclass
class _Search:
    """What is known while layouts are looked for."""

    named: Named
    given: Words
    samples: int
    ends: float
    limits: dict[str, Any]
    best: _Way | None = None
    interrupted: bool = False
    _clusters: dict[int, Cluster] = field(default_factory=dict)
    _shared: dict[tuple[int, ...], Shares] = field(default_factory=dict)
    _reduced: dict[tuple[int, ...], list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Take what all layouts have in common."""
        alone = {**self.given, "tensor": 1, "data": 1, "expert": 1, "microbatch": 1}
        alone.pop("pipeline", None)
        self._work, self._alone = work_of(self.named, alone), shares_of(self.named, alone)
        self._device, _ = roofline(self.given)
        self._many = Counter(self.named.model.like)

    def find(self, layouts: Sequence[Layout]) -> LayoutPlan:
        """Return the best of some layouts."""
        ways = [_Way(0, at, layout) for at, layout in enumerate(layouts)]
        with Interrupts() as interrupts:
            for way in ways:
                if self._over(interrupts):
                    break
                self._bound(way)
            open_ways = [way for way in ways if not way.reason]
            self._cut_all(open_ways, interrupts)
            self._plan_best(open_ways, interrupts)
            self.interrupted |= interrupts.asked
        return self._answer(ways)

    # ------------------------------------------------------------------ bounds

    def _words(self, layout: Layout) -> dict[str, Any]:
        return {**self.given, **layout.words(training=bool(self.given.get("training")))}

    def _on(self, layout: Layout) -> tuple[Work, Shares]:
        """Return what is computed, and among how many devices it is shared."""
        work = replace(self._work, microbatch=layout.microbatch, recomputed=layout.recompute)
        degrees = layout.tensor, layout.data, layout.expert
        if degrees not in self._shared:
            tensor, data, expert = degrees
            self._shared[degrees] = replace(self._alone, tensor=tensor, data=data, expert=expert)
        return work, self._shared[degrees]

    def _costs(self, layout: Layout) -> list[tuple[int, LayerProfile]]:
        """Return what layers cost on a device of a layout, and how many cost as much."""
        work, shares = self._on(layout)
        kinds = costs_by_kind(self.named.model, work, self._device, shares)
        return [(self._many[at], costs) for at, costs in kinds.items()]

    def _bound(self, way: _Way) -> None:
        """Bound a layout by its work, or tell why it does not fit."""
        layout, (work, shares) = way.layout, self._on(way.layout)
        costs = self._costs(layout)
        room = sum(device.memory or 0 for device in self._cluster(shares).devices)
        held = sum(many * (sum(one.exclusive.values()) + one.stash) for many, one in costs)
        if held > room:
            least = min(device.memory or 1 for device in self._cluster(shares).devices)
            way.lack = (held - room) * shares.devices
            way.reason = (
                f"tensor {layout.tensor}, pipeline {layout.pipeline}, data {layout.data}, expert "
                f"{layout.expert} come nearest: {as_text.quantity(way.lack)} more than all devices "
                f"have; {-(-held * shares.devices // least):,} of them might hold it"
            )
            return
        if len({node.name for node in shares.nodes}) > 1:
            return  # speeds differ
        whole, largest = self._worked(costs, work)
        step = layout.microbatches * max(whole / layout.pipeline, largest)
        way.bound = math.ceil(
            (step + sum(self._reductions(layout)) / layout.pipeline) * (1 - SLACK)
        )

    def _worked(self, costs: list[tuple[int, LayerProfile]], work: Work) -> tuple[int, int]:
        """Return the cycles of a microbatch on all layers, and on the largest of them."""
        each = [(many, int(one.forward) + int(one.backward) * work.training) for many, one in costs]
        return sum(many * one for many, one in each), max(one for _, one in each)

    def _cluster(self, shares: Shares) -> Cluster:
        """Return the stages' devices, with the room that layouts have."""
        if shares.devices not in self._clusters:
            self._clusters[shares.devices] = self._made(shares)
        return self._clusters[shares.devices]

    def _made(self, shares: Shares) -> Cluster:
        name = self.given["cluster"].name
        whole = accelerators.cluster(name, shares.nodes, shares.devices)
        if "capacity" in self.given:
            return clusters.changed(whole, capacity=self.given["capacity"])
        return msgspec.structs.replace(
            whole,
            devices=tuple(
                msgspec.structs.replace(device, memory=int(ROOM * (device.memory or 0)))
                for device in whole.devices
            ),
        )

    def _reductions(self, layout: Layout) -> list[int]:
        """Return the cycles in which copies sum up the gradients of each layer."""
        work, shares = self._on(layout)
        degrees = layout.tensor, layout.data, layout.expert
        if degrees not in self._reduced:
            self._reduced[degrees] = [
                math.ceil(shares.reduction(layer, work))
                for layer in self.named.model.layers
                if work.training or not layer.mtp
            ]
        return self._reduced[degrees]

    # ------------------------------------------------------------------ stages

    def _over(self, interrupts: Interrupts) -> bool:
        return interrupts.asked or clock() >= self.ends

    def _beaten(self, way: _Way) -> bool:
        """Whether a layout cannot be better than the best one."""
        return self.best is not None and way.bound >= (self.best.objective or 0)

    def _cut_all(self, ways: list[_Way], interrupts: Interrupts) -> None:
        """Cut and schedule layouts by rising bounds, as long as one may be the best."""
        left = list(ways)
        heapq.heapify(left)
        while left and not self._over(interrupts):
            way = heapq.heappop(left)
            if self._beaten(way):
                return
            if way.chain is None:
                self._read(way)
                heapq.heappush(left, way)
            else:
                self._try(way)

    def _read(self, way: _Way) -> None:
        """Read the chain of a layout, and bound it by the order of its stages."""
        layout = way.layout
        _, shares = self._on(layout)
        memory = [device.memory for device in self._cluster(shares).devices]
        way.chain = chain(self.named, {**self._words(layout), "capacity": memory})
        bound = step_bound(way.chain, layout.microbatches) + self._least_reduction(layout)
        way.bound = max(way.bound, bound)

    def _least_reduction(self, layout: Layout) -> int:
        """Return the least cycles of the slowest stage's reduction, over all stages."""
        each = self._reductions(layout)
        low, high = max(each, default=0), sum(each)
        while low < high:
            middle, stages, filled = (low + high) // 2, 1, 0
            for one in each:
                filled += one
                if filled > middle:
                    stages, filled = stages + 1, one
            low, high = (middle + 1, high) if stages > layout.pipeline else (low, middle)
        return low

    def _try(self, way: _Way) -> None:
        """Cut a layout for the least bottleneck, and schedule it by a rule."""
        layout, whole = way.layout, _of(way.chain)
        flying = min(layout.microbatches, layout.pipeline)
        rule = "1f1b" if whole.training else "gpipe"
        asked = whole.replace(objective=Objective.BOTTLENECK, microbatches=flying)
        cut = self._solve(asked, "dp")
        if cut.status is Status.INFEASIBLE:
            self._tell_misfit(way, asked)
        if cut.solution is None:
            return
        level = Level("partition", asked, cut)
        schedule = Structure(level, {}, layout.microbatches).schedule()
        plan = Resident(whole.name, layout.microbatches, False, self._limits(), model=whole)
        plan.along(level, schedule, self._solve(schedule, rule))
        self._take(way, plan.plan(way.bound - self._least_reduction(layout), "work in order"))

    def _tell_misfit(self, way: _Way, asked: PipelinePartition) -> None:
        """Tell why no stages fit with the stashes of 1F1B, or bound those that have fewer.

        Some stage s of p then has k < p - s microbatches in flight, of which each is there until it
        is back from the stages behind: m microbatches take m / k times the work W_s of s and all
        behind it.  Devices before s work m (W - W_s) in all, and none longer than the step T: from
        T >= m W_s / k and s T >= m (W - W_s) follows T >= m W / (s + k) >= m W / (p - 1).
        """
        layout, stages = way.layout, way.layout.pipeline
        alone = asked.replace(microbatches=1)
        found = None if asked.microbatches == 1 else self._solve(alone, "dp")
        if found is None or found.status is Status.INFEASIBLE:
            way.reason = (found or self._solve(alone, "dp")).reason
        elif asked.training and asked.microbatches == stages:
            fastest = max(device.speed for device in asked.cluster.devices)
            work = float(asked.cycles.sum()) / fastest
            least = layout.microbatches * work / (stages - 1) * (1 - SLACK)
            way.bound = max(way.bound, math.floor(least) + self._least_reduction(layout))

    def _take(self, way: _Way, plan: ModelPlan) -> None:
        """Keep the plan of a layout, if it is better than the one that is known."""
        if plan.objective is None:
            return
        solution = plan.level("partition").result.solution
        value = plan.objective + self._reduction(way.layout, solution)
        if way.objective is None or value <= way.objective:
            way.objective, way.plan = value, plan
        if self.best is None or way.objective < _of(self.best.objective):
            self.best = way

    def _solve(self, instance: Any, method: str) -> Result[Any]:
        left = None if self.ends == math.inf else max(LEAST, self.ends - clock())
        return solve(instance, method, time_limit=left, **self.limits)

    def _reduction(self, layout: Layout, solution: PipelineSolution) -> int:
        """Return the cycles of the slowest stage's reduction."""
        each = self._reductions(layout)
        return max(sum(each[first:end]) for first, end, _ in solution.stages)

    def _plan_best(self, ways: list[_Way], interrupts: Interrupts) -> None:
        """Plan what may be the best, the most promising first, until the best one is proved.

        What is left open has more time in the next round.
        """
        for share in FINALS if self.ends < math.inf else FINALS[:1]:
            tried = [way for way in ways if way.chain is not None and not way.reason]
            for way in sorted(tried, key=lambda one: (one.objective or math.inf, one.bound)):
                if self._over(interrupts):
                    return
                if not self._beaten(way):
                    self._plan(way, share)

    def _plan(self, way: _Way, share: float) -> None:
        """Plan a layout: its stages, their schedule, and its bound; `share` is one of `FINALS`."""
        whole, count = _of(way.chain), way.layout.microbatches
        plan = plan_model(
            whole, microbatches=count, stop=lambda: clock() >= self.ends, **self._limits(share)
        )
        if plan.status is Status.INFEASIBLE:
            way.reason = plan.reason
        self._take(way, plan)
        way.bound = max(way.bound, (plan.bound or 0) + self._least_reduction(way.layout))

    def _limits(self, share: float = FINALS[0]) -> dict[str, Any]:
        """Return the limits of a plan, of which each question gets a `share` of the time left."""
        left = None if self.ends == math.inf else max(LEAST, share * (self.ends - clock()))
        return {"time_limit": left, **self.limits}

    # ------------------------------------------------------------------ the answer

    def _answer(self, ways: list[_Way]) -> LayoutPlan:
        """Return the best layout with the bound over all."""
        able = [way for way in ways if not way.reason]
        best, work = self.best, self._work
        bound = min((way.bound for way in able), default=None)
        found = LayoutPlan(
            name=self.named.name,
            status=Status.UNKNOWN if able else Status.INFEASIBLE,
            best=None,
            plan=None,
            bound=bound,
            tokens=self.samples * (1 if work.decoding else work.sequence),
            training=work.training,
            candidates=tuple(sorted(map(self._candidate, able), key=by_bound)),
            layouts=len(ways),
            given={**self.given, "cluster": self.given["cluster"].name},
            interrupted=self.interrupted,
        )
        if best is None or best.plan is None:
            why = "the time was over before any layout was planned"
            if not able:
                why = min(ways, key=lambda way: (way.lack, way.at)).reason
            return replace(found, reason=why)
        proved = bound is not None and _of(best.objective) <= bound
        return replace(
            found,
            status=Status.OPTIMAL if proved else Status.FEASIBLE,
            best=self._candidate(best),
            plan=best.plan,
            bound=_of(best.objective) if proved else bound,
            memory=self._memory(best),
        )

    def _candidate(self, way: _Way) -> Candidate:
        """Return what is known of a layout, and what its devices do with a step."""
        layout = way.layout
        work, shares = self._on(layout)
        times = layout.microbatches / layout.pipeline
        whole, _ = self._worked(self._costs(layout), work)
        sent = sum(
            shares.passes(layer, self.named.model, work)
            for layer in self.named.model.layers
            if work.training or not layer.mtp
        )
        reduced = sum(self._reductions(layout)) / layout.pipeline
        return Candidate(
            layout,
            way.bound,
            way.objective,
            way.reason,
            computing=times * (whole - sent),
            exchanging=times * sent,
            reducing=reduced,
        )

    def _memory(self, way: _Way) -> dict[str, int]:
        """Return the bytes of the fullest device of a plan, by category."""
        plan = _of(way.plan)
        cut, used = plan.level("partition"), plan.memories
        at = used.index(max(used))
        first, end, _ = cut.result.solution.stages[at]
        instance: Any = cut.instance
        held = {name: int(sizes[first:end].sum()) for name, sizes in instance.exclusive.items()}
        flying = plan.measure.devices[at].peak_memory
        cached = 0
        if instance.kv_bytes is not None:
            cached = int(instance.kv_bytes[first:end].sum()) * (instance.tokens or 0)
        held["KV cache"] = cached
        rest = used[at] - sum(held.values()) - flying
        return {**held, "kept for the backward pass": flying, "while layers run": rest}


def _of(value: T | None) -> T:
    assert value is not None
    return value
