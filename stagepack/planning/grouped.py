"""Plans of networks on chips with local memory: stages whose operators run in groups.

The network is a chain of its operators in their order, or a graph.

1. The whole network is grouped for a single chip, in training with its backward pass.  This yields
   a bound on all plans, and estimates of the cycles of each operator inside a group.
2. The network is partitioned into stages, once with these estimates and once with the cycles of
   ungrouped operators.
3. The operators of each stage are grouped.  The cycles of these groups are the durations of the
   stage's F and B in the schedule.
4. If a stage takes longer than estimated, the estimates of its operators are raised in proportion,
   and the network is partitioned again.

In training, stages keep memory for the stashes of at most w microbatches; w is reduced step by
step as in :mod:`.resident`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from stagepack.evidence import SEARCHED, VERIFIABLE
from stagepack.heuristics.graph.step_bound import longest_chain, longest_path
from stagepack.heuristics.graph.step_bound import step_bound as graph_bound
from stagepack.heuristics.groups.stage_bound import least_compute, least_ranges
from stagepack.heuristics.pipeline.step_stages import StepStages, affordable, least_step
from stagepack.heuristics.schedule.lower_bounds import bounds
from stagepack.instances.graph import GraphPartition, GraphSolution
from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.instances.groups.backward import Backward, is_weights
from stagepack.instances.groups.check import group_cycles
from stagepack.instances.groups.execution.replay import played_alone
from stagepack.instances.groups.problem import Order
from stagepack.instances.groups.stage import (
    alone_behind,
    stage_backward,
    stage_groups,
    step_bound,
    training_bound,
)
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.profile import Array
from stagepack.planning.model_plan import NETWORKS, ModelPlan
from stagepack.planning.resident import BALANCED
from stagepack.planning.stages import Level, Structure
from stagepack.planning.tries import QUESTIONS, ROUNDS, Tries, expressed
from stagepack.progress import clock
from stagepack.result import Result, Status, Trace

SHARE = 0.1
"""Of the time of a question, what schedules get before it is known which stages are best."""
CUT = 0.3
"""Of the time of a question, what cuts of graphs get."""
SHIFTS = 60
"""Boundaries that are moved at most."""
SOURCE = "groups of the network on one chip"


@dataclass
class Grouped(Tries):
    """Plans with groups inside their stages."""

    # The operators as layers, or as nodes.
    model: PipelinePartition | GraphPartition = field(kw_only=True)
    # In training, it stores what the backward pass reads.  Of a graph, its groups are in any order,
    # as sets of operators are.
    network: LayerGrouping = field(kw_only=True)
    back: Backward | None = None
    order: Order = Order.GIVEN
    # The operators of a graph in a row, of which stages are begun with.
    row: PipelinePartition | None = None
    _least: tuple[Array, ...] = ()
    _measured: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    _seen: set[Any] = field(default_factory=set)
    _groups: dict[str, Result[GroupingSolution]] = field(default_factory=dict)

    def find(self) -> ModelPlan:
        """Return the fastest plan that is found."""
        levels = []
        for name, network in zip(NETWORKS, self._networks(), strict=False):
            whole = self._grouped(network)
            if whole.status is Status.INFEASIBLE:
                found = self.plan(None, SOURCE, f"{name}: {self.unsolved(whole)}")
                return dataclasses.replace(found, model=network)
            levels.append(Level(name, network, whole))
        bound, source, begin = self._bound(levels)
        self.enough = bound
        begin = self._from_row() if begin is None else begin
        reason = ""
        if all(level.result.solution is not None for level in levels):
            reason = self._search(tuple(levels), begin)
            self._again()
        return self.plan(bound, source, "" if self.best is not None else reason)

    def _from_row(self) -> GraphSolution | None:
        """Return the stages of the best plan of a graph's operators in a row; None for none."""
        if self.row is None or not isinstance(self.model, GraphPartition):
            return None
        limit = self.limits["time_limit"]
        spent = 0.0 if limit is None else QUESTIONS * limit / 2  # the other half is the graph's
        search = dataclasses.replace(
            self,
            _began=self._began - spent,
            model=self.row,
            row=None,
            network=self._order(self.network),
            back=None
            if self.back is None
            else self.back._replace(network=self._order(self.back.network)),
        )
        search.find()
        if search.best is None:
            return None
        place = np.zeros(self.network.n, dtype=np.int64)
        for first, end, device in search.best[2].cut.result.solution.stages:
            place[first:end] = device
        passes = 1 if self.back is None else 2
        return GraphSolution.of(self.model, np.tile(place, passes))

    def _together(self) -> GraphSolution | None:
        """Return all operators of a graph on one device, which few microbatches leave no sooner."""
        if not isinstance(self.model, GraphPartition):
            return None
        return GraphSolution.of(self.model, np.zeros(self.model.n, dtype=np.int64))

    def _networks(self) -> Iterator[LayerGrouping]:
        """Yield the passes of the network."""
        yield self.network
        if self.back is not None:
            yield self.back.network

    def _grouped(self, network: LayerGrouping) -> Result[GroupingSolution]:
        """Return the groups of a network; gradients of weights, which come last, stand alone."""
        end = sum(not is_weights(operator) for operator in network.operators)
        if end in (0, network.n):
            return self.ask(network)
        found = self.ask(stage_groups(network, range(end), "gradients of values"))
        if found.solution is None:
            return found
        solution = alone_behind(found.solution, end, network.n)
        alone = [played_alone(network, at) for at in range(end, network.n)]
        more = sum(alone)
        if network.order != Order.GIVEN and not network.linear:  # stages may be where it is not
            found = found.because(SEARCHED)
        evidence = found.evidence
        if found.proof in VERIFIABLE:  # along those behind, potentials rise by their cycles
            given = evidence["potentials"]
            behind = itertools.accumulate(alone, initial=given[-1])
            evidence = {**evidence, "potentials": [*given[:-1], *behind]}
        return dataclasses.replace(
            found,
            evidence=evidence,
            objective=(found.objective or 0) + more,
            bound=None if found.bound is None else found.bound + more,
            solution=solution,
            instance=network.name,
            digest=network.digest,
            options={},
            trace=Trace(),
        )

    # ------------------------------------------------------------------ plans

    def _search(self, levels: tuple[Level, ...], begin: Any) -> str:
        """Try every number of microbatches in flight; return why none fits, if that is proved."""
        for in_flight in self._in_flight():
            whole = self.model.replace(microbatches=in_flight)
            first = self.ask(whole)
            if first.solution is None:
                self.note(in_flight, 0, first.status, first.reason)
                if first.status is Status.INFEASIBLE and in_flight == 1:
                    return self.unsolved(first)
                continue
            begins: tuple[Any, ...] = begin, self._together()
            for stages in begins:
                if stages is not None and not whole.check(stages):
                    self._try(levels, whole, first, self._shares(levels), self._cut, stages)
            for weights in (self._shares(levels), self._alone()):
                for cut in (self._guessed, self._cut) if self._least else (self._cut,):
                    self._try(levels, whole, first, weights.copy(), cut)
            self._shift(levels, whole, first)
            if self.ends() or self._has_room(whole, in_flight, levels):
                break
        return ""

    def _shift(self, levels: tuple[Level, ...], whole: Any, first: Result[Any]) -> None:
        """Move single boundaries of the best stages of a chain, as long as that is better."""
        tried, known = 0, None
        while self.best is not None and self.best is not known and not self.ends():
            known = self.best
            best = known[2].cut.result.solution
            if not isinstance(best, PipelineSolution) or len(best.boundaries) != whole.k + 1:
                return
            for at, by in itertools.product(range(1, whole.k), (-1, 1)):
                cuts = list(best.boundaries)
                cuts[at] += by
                if not cuts[at - 1] < cuts[at] < cuts[at + 1] or tried >= SHIFTS:
                    continue
                solution = dataclasses.replace(best, boundaries=tuple(cuts))
                if solution in self._seen or whole.check(solution):
                    continue
                tried += 1
                self._try(levels, whole, first, self._alone(), lambda *_: None, solution)

    def _has_room(
        self,
        whole: PipelinePartition | GraphPartition,
        in_flight: int,
        levels: tuple[Level, ...],
    ) -> bool:
        """Whether stages are no others where fewer stashes are left room for."""
        if self.best is None or in_flight == 1 or not isinstance(whole, GraphPartition):
            return False
        loosest = self._cut(self.model.replace(microbatches=1), self._shares(levels))
        return loosest is not None and not whole.check(loosest)

    def _alone(self) -> Array:
        """Return what operators take alone, passes in rows."""
        model = self.model
        if isinstance(model, GraphPartition):
            return model.time.reshape(-1, self.network.n).astype(np.float64)
        passes = [model.forward] if self.back is None else [model.forward, model.backward]
        return np.array(passes, dtype=np.float64)

    def _shares(self, levels: tuple[Level, ...]) -> Array:
        """Return what operators take among others: their shares of their groups."""
        shares = self._alone()
        for row, level in enumerate(levels):
            network, solution = level.instance, level.result.solution
            assert isinstance(network, LayerGrouping)
            own = np.array([played_alone(network, at) for at in range(network.n)], dtype=np.float64)
            for group, taken in enumerate(group_cycles(network, solution)):
                operators = list(solution.operators(group))
                own[operators] *= taken / max(1.0, own[operators].sum())
            of = range(network.n) if self.back is None or not row else self.back.of
            shares[row] = np.bincount(of, own, minlength=self.network.n)
        return shares

    def _in_flight(self) -> Iterator[int]:
        """Yield the numbers of microbatches in flight for which partitions are made, falling."""
        model = self.model
        if isinstance(model, GraphPartition):
            devices, limited = model.devices, model.capacity is not None
        else:
            devices = model.k
            limited = any(device.memory is not None for device in model.cluster.devices)
        most = min(self.microbatches, devices)
        yield from range(most, 0, -1) if self.back is not None and limited else (most,)

    def _try(
        self,
        levels: tuple[Level, ...],
        whole: PipelinePartition | GraphPartition,
        first: Result[Any],
        weights: Array,
        how: Callable[[Any, Array], Any],
        begin: Any = None,
    ) -> None:
        """Cut the network by what operators take, again and again with what the last stages took.

        `how` cuts by `weights`, shape (passes, n); the first stages are those of `begin`, if any.
        """
        for lent in range(ROUNDS):
            if self.ends():
                return
            solution = how(whole, weights) if begin is None or lent else begin
            if solution is None or solution in self._seen or whole.check(solution):
                return  # what is guessed counts memory as bounds may, too low
            self._seen.add(solution)
            cut = Level("partition", whole, expressed(whole, solution, first))
            given = self._inside(cut, lent)
            if given is None:
                return
            self._schedule(given, levels, lent)
            for (at, behind), level in given.inside.items():
                members, _ = given.operators(at)
                own, taken = weights[int(behind), members], int(level.result.objective or 0)
                weights[int(behind), members] *= taken / max(1.0, own.sum())
                stage = members[0], members[-1] + 1
                self._measured.setdefault(stage, [0, 0])[int(behind)] = taken

    def _schedule(self, given: Structure, levels: tuple[Level, ...], lent: int) -> None:
        """Schedule stages, unless no schedule of theirs is faster; the best ones get more time."""
        least = bounds.bound(given.schedule(), lambda _: not self.ends())[0]
        if self.best is not None and least >= self.best[0]:
            why = "no schedule of its stages is faster"
            self.note(self.microbatches, lent, Status.FEASIBLE, why)
            return
        self.share = SHARE
        self.timed(given, levels, lent)
        self.share = 1.0

    def _again(self) -> None:
        """Schedule the best stages once more, with all the time of a question."""
        if self.best is None or self.ends():
            return
        _, levels, given = self.best
        if levels[1].result.status is not Status.OPTIMAL:
            self.timed(given, tuple(one for one in levels if one.name in NETWORKS))

    def _guessed(self, whole: PipelinePartition, weights: Array) -> PipelineSolution | None:
        """Return the stages of the least step where operators, and stages known, take so long."""
        passes = []
        for row, least in enumerate(self._least):
            sums = np.concatenate(([0], np.cumsum(weights[row]))) if row < len(weights) else [0.0]
            table = np.maximum(least, np.rint(np.subtract.outer(sums, sums).T))
            for (first, end), taken in self._measured.items():
                table[first, end] = taken[row]
            passes.append(table)
        found = self._stages(whole, tuple(passes)).least()
        return None if found is None else found.solution

    def _cut(self, whole: PipelinePartition | GraphPartition, weights: Array) -> Any:
        """Return stages that are balanced best where operators take so many cycles."""
        taken = np.maximum(1, np.rint(weights)).astype(np.int64)
        if isinstance(whole, GraphPartition):
            self.share = CUT
            found = self.ask(whole.replace(time=taken.ravel())).solution
            self.share = 1.0
            return found
        behind = {} if self.back is None else {"backward": taken[1]}
        return self.ask(whole.replace(forward=taken[0], **behind, objective=BALANCED)).solution

    def _inside(self, cut: Level, lent: int) -> Structure | None:
        """Return the stages with their groups; None where some have none, or there is no time."""
        inside = {}
        bare = Structure(cut, {}, self.microbatches, split=self.split)
        for at in range(len(bare.places)):
            members, name = bare.operators(at)
            passes = {False: stage_groups(self._order(self.network), members, name)}
            if self.back is not None:
                network = self._order(self.back.network)
                other = stage_backward(self.back._replace(network=network), members, name)
                passes |= {} if other is None else {True: other}
            for behind, instance in passes.items():
                if self.ends():
                    return None
                key = instance.digest
                if key not in self._groups:
                    self._groups[key] = self._grouped(instance)
                result = self._groups[key]
                where = f"stage {at} backward" if behind else f"stage {at}"
                if result.solution is None:
                    self.note(self.microbatches, lent, result.status, f"{where}: {result.reason}")
                    return None
                inside[at, behind] = Level(where, instance, result)
        return Structure(cut, inside, self.microbatches, split=self.split)

    def _order(self, network: LayerGrouping) -> LayerGrouping:
        """Return a network as stages have it: in the order that was asked for."""
        return network if network.order == self.order else network.replace(order=self.order)

    # ------------------------------------------------------------------ bounds

    def _bound(self, levels: list[Level]) -> tuple[int, str, Any]:
        """Return a bound on every plan, what it is from, and stages that lead to it, for chains."""
        known = sum(float(level.result.bound or 0) for level in levels)
        if isinstance(self.model, GraphPartition):
            return (*self._of_graph(self.model, known), None)
        bound = self._in_a_row(known)
        if not affordable(self.model):
            return bound, SOURCE, None
        passes = [self._ranges(level, bool(row)) for row, level in enumerate(levels)]
        passes += [np.zeros_like(passes[0])] * (2 - len(passes))
        self._least = tuple(np.floor(np.maximum(0, table)) for table in passes)
        found = self._stages(self.model, self._least).least()
        if found is None:
            return bound, SOURCE, None
        source = "least step of all stages" if found.bound > bound else SOURCE
        return max(bound, found.bound), source, found.solution

    def _stages(self, whole: PipelinePartition, passes: tuple[Array, ...]) -> StepStages:
        """Return all stages of a chain, where passes through them take so long, or no less."""
        forward, backward = (np.diag(table, 1).astype(np.int64) for table in self._least)
        cluster = whole.cluster
        chain = whole.replace(
            forward=forward,
            backward=backward,
            cluster=msgspec.structs.replace(
                cluster,
                devices=tuple(msgspec.structs.replace(one, speed=1) for one in cluster.devices),
            ),
        )
        limit = self.limits["time_limit"]
        ends = math.inf if limit is None else clock() + limit
        f, b = passes
        return StepStages(chain, self.microbatches, self.split, ends, passes=[(f, b)] * whole.k)

    def _in_a_row(self, cycles: float) -> int:
        """Return a bound on a step whose stages follow one another, from what all take together."""
        model = self.model
        devices = model.devices if isinstance(model, GraphPartition) else model.k
        if self.back is None:
            return step_bound(cycles, self.microbatches, devices)
        return training_bound(cycles, self.microbatches, devices, split=self.split)

    def _ranges(self, level: Level, behind: bool) -> Array:
        """Return what the layers [a, b) take at least in one pass, shape (n + 1, n + 1)."""
        network, result = level.instance, level.result
        assert isinstance(network, LayerGrouping)
        bound = float(result.bound or 0)
        if not behind:
            return least_ranges(network, result.solution, bound, network.n)
        assert self.back is not None
        weights = np.array([*map(is_weights, network.operators)])
        alone = [played_alone(network, at) * weights[at] for at in range(network.n)]
        end = int(np.count_nonzero(~weights))
        table = least_ranges(network, result.solution, bound - sum(alone), end)
        of = np.array(self.back.of)
        counts = np.bincount(of[:end], minlength=self.network.n)
        place = np.concatenate((np.cumsum(counts[::-1])[::-1], [0]))
        own = np.concatenate(([0], np.cumsum(np.bincount(of, alone, minlength=self.network.n))))
        grouped = np.where(place[:, None] > place[None, :], table[place][:, place].T, 0)
        return np.asarray(np.maximum(0, grouped) + own[None, :] - own[:, None])

    def _of_graph(self, model: GraphPartition, known: float) -> tuple[int, str]:
        """Return a bound on every plan of a graph, and what it is from.

        Stages with operators of one path follow one another.  Their groups, and all other operators
        by themselves, are a plan of the network on one chip.
        """
        least = [least_compute(self.network)]
        if self.back is not None:
            least.append(
                np.bincount(self.back.of, least_compute(self.back.network), self.network.n)
            )
        time_of = np.floor(np.concatenate(least)).astype(np.int64)
        bare = model.replace(time=time_of, speeds=1)
        share = self.microbatches * math.ceil(known / model.devices)
        alone = self._alone().sum(axis=0)
        forward = model.edges[(model.edges < self.network.n).all(axis=1)]
        beside = float(alone.sum() - alone[longest_path(forward, alone)].sum())
        if not all(map(self.network.stands, range(self.network.n))):
            beside = math.inf
        row = self._in_a_row(max(0.0, known - beside))
        path = longest_chain(bare)
        found = {SOURCE: max(share, row), "compute": graph_bound(bare, self.microbatches)}
        if path is not None:
            limit = self.limits["time_limit"]
            ends = math.inf if limit is None else clock() + limit
            found["least step of the longest path"] = least_step(
                path, self.microbatches, split=self.split, ends=ends
            )
        source = max(found, key=lambda one: found[one])
        return found[source], source
