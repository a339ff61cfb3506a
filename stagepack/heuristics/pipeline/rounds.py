"""Several stages a device, round after round: two rounds exactly, more by two of them in turn.

A limit on what devices compute is tested by giving one device after the other its stages in both
rounds.  What matters of those before is how many layers each round has: in a V the first round
grows from the head of the chain and the second from its tail, until they meet; in a loop both grow
forward, from the head and from each place where the second may begin.  Where stages may be empty,
the furthest the second round gets for each end of the first is enough, for whatever can follow can
follow on fewer layers; otherwise that is a first look, and all states up to there decide.  States
that leave more work than the devices to come have room for are dropped.

With more rounds, two neighbouring ones are cut best while the others stay, until nothing improves:
a bound that counts layers (:func:`.bounds.counted`) often proves what is found.

Cost: O(k n * longest stage) for a limit in a V, n times that in a loop; all states as often as
there may be ends of the second round for one of the first.  Source: own work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stagepack.heuristics.effort import spend
from stagepack.heuristics.pipeline.bounds import counted, paces
from stagepack.heuristics.pipeline.rounds_kernels import Device, Fronts, Stops, grow
from stagepack.heuristics.pipeline.tuning import TUNING, RoundTuning
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import Array
from stagepack.progress import Progress

UNLIMITED = 2**61


def unsupported(instance: PipelinePartition, tuning: RoundTuning = TUNING.rounds) -> str:
    """Return why rounds are not searched for `instance`, or ''."""
    if not instance.placed:
        return "devices run one stage each; use dp"
    if directions(instance) is None:
        return "the table of the placement is no sequence of two rounds or more; use cp-sat"
    limited = any(device.memory is not None for device in instance.cluster.devices)
    if limited and len(instance.shared.layer):
        return "keys that stages of a device share do not add up; use cp-sat"
    if limited and instance.fewer_stages and instance.training and instance.stash.any():
        return "which stages are empty decides how much is stashed; use cp-sat"
    spans = int(instance.allowed_cuts.sum()) - 1
    if spans > tuning.most_spans:
        return f"{spans:,} places to cut are more than {tuning.most_spans:,}"
    return ""


def directions(instance: PipelinePartition) -> tuple[int, ...] | None:
    """Return of each round whether devices come as in the first one (1) or backwards (-1).

    None where there are no rounds, or a single one.
    """
    table, k = instance.stage_devices, instance.k
    order = table[:k]
    rounds = [table[at : at + k] for at in range(0, len(table), k)]
    if len(rounds) < 2 or len(set(order)) < k:
        return None
    if any(one not in (order, order[::-1]) for one in rounds):
        return None
    if k == 1:  # stages of one device alternate, as those of the last one of a V
        return tuple((-1) ** at for at in range(len(rounds)))
    return tuple(1 if one == order else -1 for one in rounds)


def unproved(instance: PipelinePartition) -> str:
    """Return why more than the bound need not be proved."""
    more = len(instance.stage_devices) > 2 * instance.k
    return "more than two rounds are improved two by two" if more else ""


def solve(
    costs: RangeCosts, progress: Progress[PipelineSolution], tuning: RoundTuning = TUNING.rounds
) -> bool:
    """Find a partition, of two rounds the best one; return False where there is none."""
    if not _cuts_possible(costs):
        return False
    rounds = _Rounds(costs, progress, tuning)
    floor = counted(costs)
    if len(rounds.signs) > 2:
        rounds.improve(floor, progress)
        return True
    known = None if progress.solution is None else costs.objective(progress.solution)
    found = rounds.least_limit(rounds.whole, floor, known, progress)
    if found.ends is not None:
        progress.offer(rounds.solution(found.ends), "rounds")
    if found.none:
        return False
    progress.raise_bound(costs.bound(found.value), "exhausted search")
    return True


def fits(costs: RangeCosts, progress: Progress[PipelineSolution] | None) -> bool | None:
    """Return whether there is any partition; None where that is not known."""
    if unsupported(costs.instance) or unproved(costs.instance):
        return None
    if not _cuts_possible(costs):
        return False
    rounds = _Rounds(costs, progress, TUNING.rounds)
    return rounds.probe(rounds.whole, UNLIMITED) is not None


def _cuts_possible(costs: RangeCosts) -> bool:
    """Whether fixed cuts are allowed, and there are spans enough for all stages."""
    instance, spans = costs.instance, int(costs.allowed.sum()) - 1
    enough = instance.fewer_stages or spans >= len(instance.stage_devices)
    return enough and bool(costs.allowed[list(instance.fixed_cuts)].all())


@dataclass(frozen=True)
class _Pair:
    """Two neighbouring rounds between two spans, and the rooms that the others leave.

    `taken` and `held` are ticks and bytes of the other stages of each device, in the order of the
    rounds, and `peak` their largest peak.
    """

    at: int
    first: int
    end: int
    taken: tuple[int, ...]
    held: tuple[int, ...]
    peak: tuple[int, ...]


@dataclass(frozen=True)
class _Found:
    """The least limit within which two rounds can be cut, and their cuts where they are new."""

    value: int
    ends: list[int] | None
    none: bool = False


class _States(NamedTuple):
    """How far two rounds are after a device: the second one, by the spans of the first one.

    `furthest` is the most spans, -1 where there is no state, `lowest` the fewest that can do, and
    `here` whether a state has so many more of them, with columns where all states are looked at.
    """

    furthest: Array
    lowest: Array
    here: Array

    def row(self, x: int) -> list[int]:
        """Return the spans of the second round where the first one has `x`, the most first."""
        furthest = int(self.furthest[x])
        if furthest < 0 or not self.here.shape[1]:
            return [furthest] if furthest >= 0 else []
        found: list[int] = (self.lowest[x] + np.flatnonzero(self.here[x])[::-1]).tolist()
        return found


class _Run(NamedTuple):
    """States after each device, and whether the rounds meet."""

    passed: list[_States]
    met: bool


class _Rounds:
    """A chain of spans that no cut splits, and its rounds of devices."""

    def __init__(
        self,
        costs: RangeCosts,
        progress: Progress[PipelineSolution] | None,
        tuning: RoundTuning,
    ) -> None:
        instance = costs.instance
        signs = directions(instance)
        assert signs is not None
        self.costs, self.tuning, self.signs = costs, tuning, signs
        self.pause: Callable[[], object] = (
            (lambda: None) if progress is None else progress.require_time
        )
        self.cuts = np.flatnonzero(costs.allowed)
        self.n, self.k = len(self.cuts) - 1, costs.k
        self.order = instance.stage_devices[: self.k]
        self.least = 0 if instance.fewer_stages else 1
        """Spans of a stage."""
        self.prefix = np.ascontiguousarray(costs.prefix[:, self.cuts])
        self.pace, base = paces(costs)
        self.base = base[self.cuts]
        self.classes = [int(costs.device_class[device]) for device in self.order]
        self.limits = [costs.capacity[c] for c in self.classes]
        self._set_memory(instance)
        nothing = (0,) * self.k
        self.whole = _Pair(0, 0, self.n, nothing, nothing, nothing)

    def _set_memory(self, instance: PipelinePartition) -> None:
        at, whole = self.cuts[:-1], np.zeros(instance.n, dtype=np.int64)
        for column in instance.exclusive.values():
            whole += column
        self.exclusive, self.stash = (
            np.concatenate([[0], np.cumsum(column)])[self.cuts]
            for column in (whole, instance.stash if instance.training else 0 * whole)
        )
        self._held: dict[int, Array] = {}
        numbers = np.arange(self.n + 1)
        fixed = np.searchsorted(self.cuts, [0, *sorted(instance.fixed_cuts), instance.n])
        self.stops = Stops(
            np.maximum.reduceat(instance.temporary + instance.carry, at),
            np.append(fixed[np.searchsorted(fixed, numbers[:-1], side="right")], self.n),
            np.append(0, fixed[np.searchsorted(fixed, numbers[1:], side="left") - 1]),
        )

    def held(self, stage: int) -> Array:
        """Return running sums of the bytes that spans hold in a stage."""
        flying = min(self.costs.instance.microbatches, len(self.signs) * self.k - stage)
        if flying not in self._held:
            self._held[flying] = self.exclusive + flying * self.stash
        return self._held[flying]

    def solution(self, ends: list[int]) -> PipelineSolution:
        """Return the solution of stages with these ends, in spans."""
        table = self.costs.instance.stage_devices
        boundaries, devices = [0], []
        for device, end in zip(table, ends, strict=True):
            cut = int(self.cuts[end])
            if cut > boundaries[-1]:
                boundaries.append(cut)
                devices.append(device)
        return PipelineSolution(tuple(boundaries), tuple(devices))

    # ------------------------------------------------------------------ two rounds

    def least_limit(
        self,
        pair: _Pair,
        floor: int,
        known: int | None,
        progress: Progress[PipelineSolution] | None = None,
    ) -> _Found:
        """Return the least limit of two rounds: `floor` first, then further and further from it.

        What is `known` need not be found again; `progress` hears of bounds.
        """
        low, step, ends, value = max(floor, *pair.taken), 1, None, known
        if known is None:
            ends = self.probe(pair, UNLIMITED)
            if ends is None:
                return _Found(0, None, none=True)
            value = self.largest(pair, ends)
        assert value is not None
        while low < value:
            limit = min(low + step - 1, (low + value) // 2)
            found = self.probe(pair, limit)
            if found is not None:
                ends, value = found, self.largest(pair, found)
                continue
            low, step = limit + 1, 4 * step
            if progress is not None:
                progress.raise_bound(self.costs.bound(low), "exhausted search")
        return _Found(value, ends)

    def largest(self, pair: _Pair, ends: list[int]) -> int:
        """Return the most ticks of a device, given the ends of the stages of two rounds."""
        loads, begin = list(pair.taken), pair.first
        for (j, c), end in zip(self._stages(pair.at), ends, strict=True):
            loads[j] += int(self.prefix[c, end] - self.prefix[c, begin])
            begin = end
        return max(loads)

    def _stages(self, at: int) -> list[tuple[int, int]]:
        """Return place in the order of a round, and class, of its stages and those of the next."""
        there = list(enumerate(self.classes[:: self.signs[at]]))
        return there + there[:: self.signs[at] * self.signs[at + 1]]

    def probe(self, pair: _Pair, limit: int) -> list[int] | None:
        """Return the ends of the stages of two rounds within a limit; None: there are none."""
        k, n, sign = self.k, pair.end - pair.first, self.signs[pair.at] * self.signs[pair.at + 1]
        rooms = [min(limit, UNLIMITED) - taken for taken in pair.taken]
        classes = self.classes[:: self.signs[pair.at]]
        devices = [self._devices(pair, rooms, least) for least in range(self.least + 1)]
        if min(rooms) < 0 or len(devices[0]) < k:
            return None
        later = [0]  # what the devices after each have room for
        for room, c in zip(rooms[:0:-1], classes[:0:-1], strict=True):
            later.append(later[-1] + room // self.pace[c])
        all_work = int(self.base[pair.end] - self.base[pair.first])
        needs = [max(0, all_work - rest) for rest in reversed(later)]
        if self.costs.rounding:  # what work is on another device is known but roughly
            needs = [0] * k
        if sign < 0:
            return self._grown(Fronts(pair.first, pair.end, -1, n, n, n), devices, needs)
        keep, middle = k * self.least, (pair.first + pair.end) // 2
        places = range(pair.first + keep, pair.end - keep + 1)
        for place in sorted(places, key=lambda place: abs(place - middle)):
            most = place - pair.first
            found = self._grown(Fronts(pair.first, place, 1, most, n - most, n), devices, needs)
            if found is not None:
                return found
        return None

    def _grown(
        self, fronts: Fronts, devices: list[list[Device]], needs: list[int]
    ) -> list[int] | None:
        """Return the ends of the stages of rounds that begin at these fronts; None: none will do.

        Where no stage may be empty: whether that makes a difference, then by the furthest states,
        then by all, of which none is further than where stages may be empty.
        """
        free = self._run(fronts, devices[0], needs)
        if not self.least or not free.met:
            return self._traced(fronts, devices[0], free)
        for within in (None, free):
            found = self._traced(fronts, devices[1], self._run(fronts, devices[1], needs, within))
            if found is not None:
                return found
        return None

    def _run(
        self, fronts: Fronts, devices: list[Device], needs: list[int], within: _Run | None = None
    ) -> _Run:
        """Give devices their stages: all states `within` those of another run, or the furthest."""
        one = self.base[fronts.first : fronts.first + fronts.most + 1]
        one = one - one[0]
        two = np.abs(
            self.base[fronts.second :: fronts.sign][: fronts.others + 1] - self.base[fronts.second]
        )
        furthest = np.full(fronts.most + 1, -1, dtype=np.int64)
        furthest[0] = 0
        highest = np.zeros(fronts.others + 1, dtype=np.int64)
        width = 0 if within is None else 1
        states = _States(furthest, np.zeros_like(furthest), np.zeros((len(one), width), dtype=bool))
        states.here[0] = True
        passed = [states]
        for device, need in zip(devices, needs, strict=True):
            after, lowest = np.full_like(furthest, -1), np.searchsorted(two, need - one)
            if within is not None:
                width = max(0, int((within.passed[len(passed)].furthest - lowest).max()) + 1)
            marks = np.zeros((len(one) if width else 0, width + 1), dtype=np.int32)
            rows = np.flatnonzero(states.furthest >= 0)
            begin, stop = int(rows[0]), int(rows[-1]) + 1
            row_seconds = self.tuning.step_seconds * (self.n / self.k + 1)
            row_seconds *= max(1, states.here.shape[1])
            at_once = max(1, int(self.tuning.seconds_at_once / row_seconds))
            for first in range(begin, stop, at_once):
                last = min(stop, first + at_once)
                grow(
                    fronts, device, self.stops, first, last, *states, after, lowest, marks, highest
                )
                spend(row_seconds * (last - first))
                self.pause()
            here = np.cumsum(marks[:, :-1], axis=1) > 0 if width else states.here[:, :0]
            if within is not None:
                last_one = width - 1 - np.argmax(here[:, ::-1], axis=1) if width else 0
                after = np.where(here.any(axis=1), lowest + last_one, -1)
            after[after < lowest] = -1
            states = _States(after, lowest, here)
            if (after < 0).all():
                return _Run(passed, met=False)
            passed.append(states)
        met = bool((states.furthest == fronts.both - np.arange(fronts.most + 1)).any())
        return _Run(passed, met)

    def _devices(self, pair: _Pair, rooms: list[int], least: int) -> list[Device]:
        """Return what the devices have room for; fewer than there are where one is full."""
        there = self.signs[pair.at]
        turned = there * self.signs[pair.at + 1] < 0
        found = []
        for j, (c, nbytes) in enumerate(
            zip(self.classes[::there], self.limits[::there], strict=True)
        ):
            other = self.k - 1 - j if turned else j
            rows = (self.held(pair.at * self.k + j), self.held((pair.at + 1) * self.k + other))
            left = -1 if nbytes is None else nbytes - pair.held[j]
            if nbytes is not None and left < pair.peak[j]:
                break
            after = (self.k - 1 - j) * least
            found.append(Device(self.prefix[c], rooms[j], *rows, left, pair.peak[j], least, after))
        return found

    def _traced(self, fronts: Fronts, devices: list[Device], run: _Run) -> list[int] | None:
        """Return the ends of the stages of rounds that meet, those of the first round first."""
        if not run.met:
            return None
        ends = fronts.both - np.arange(fronts.most + 1)
        end = int(np.flatnonzero(run.passed[-1].furthest == ends)[0])
        ways = [(end, int(ends[end]))]
        for device, states in zip(reversed(devices), run.passed[-2::-1], strict=True):
            x2, y2 = ways[-1]
            ways.append(next(
                (x, y)
                for x in range(x2 - device.least, -1, -1)
                for y in states.row(x)
                if y <= y2 - device.least and self._allows(fronts, device, (x, y), ways[-1])
            ))  # fmt: skip
        one = [fronts.first + x for x, _ in ways[-2::-1]]
        two = [fronts.second + fronts.sign * int(y) for _, y in ways[-2::-1]]
        # Read backwards, stages begin where they got to, and the first of the round ends last.
        return one + (two if fronts.sign > 0 else [*two[-2::-1], fronts.second])

    def _allows(
        self, fronts: Fronts, device: Device, state: tuple[int, int], then: tuple[int, int]
    ) -> bool:
        """Whether a device leads from a state to another one."""
        a, a2 = (fronts.first + at[0] for at in (state, then))
        b, b2 = sorted(fronts.second + fronts.sign * at[1] for at in (state, then))
        work, peak, ends = device.work, self.stops.peak, self.stops.ends
        if work[a2] - work[a] + work[b2] - work[b] > device.room:
            return False
        if any(first < end and end > ends[first] for first, end in ((a, a2), (b, b2))):
            return False
        most = max([device.peak, *peak[a:a2].tolist(), *peak[b:b2].tolist()])
        need = device.held[a2] - device.held[a] + device.also[b2] - device.also[b] + most
        return device.bytes < 0 or bool(need <= device.bytes)

    # ------------------------------------------------------------------ more rounds

    def improve(self, floor: int, progress: Progress[PipelineSolution]) -> None:
        """Cut two neighbouring rounds best while the others stay, until nothing improves."""
        draw, pairs = np.random.default_rng(0), len(self.signs) - 1
        best, best_ends = UNLIMITED, [self.n]
        enough = (1 - self.tuning.share) * progress.remaining
        for turn in range(self.tuning.turns):
            ends = self._start(turn) if turn < pairs else self._moved(best_ends, draw)
            value, still, at = UNLIMITED, 0, turn % pairs
            while still < pairs and value > floor:
                pair = self._pair(ends, at)
                known = None if value == UNLIMITED else value
                found = None if pair is None else self.least_limit(pair, floor, known)
                still += 1
                if found is not None and found.ends is not None and found.value < value:
                    ends[at * self.k : (at + 2) * self.k] = found.ends
                    value, still = found.value, 0
                at = (at + 1) % pairs
            if not self._made(ends):
                value = UNLIMITED  # rounds that stayed have a stage across a fixed cut
            if value < best:
                progress.offer(self.solution(ends), "rounds")
            if value <= best < UNLIMITED or value < best:
                best, best_ends = value, ends
            if best <= floor or progress.remaining < enough:
                return

    def _made(self, ends: list[int]) -> bool:
        """Return whether stages with these ends make all fixed cuts."""
        stages = pairwise([0, *ends])
        return all(first == end or end <= self.stops.ends[first] for first, end in stages)

    def _start(self, at: int) -> list[int]:
        """Return ends of all stages, with as few spans as may be in all rounds but two."""
        stages = len(self.signs) * self.k
        weight = np.zeros(stages)
        weight[at * self.k : (at + 2) * self.k] = 1.0
        spare = self.n - stages * self.least
        ends = np.rint(np.cumsum(weight) / weight.sum() * spare).astype(np.int64)
        found: list[int] = (ends + self.least * np.arange(1, stages + 1)).tolist()
        return found

    def _moved(self, ends: list[int], draw: np.random.Generator) -> list[int]:
        """Return other ends: what stages of a round or two have is drawn anew."""
        stages, share = len(self.signs) * self.k, self.n / (len(self.signs) * self.k)
        lengths = np.diff(ends, prepend=0) if len(ends) == stages else np.full(stages, share)
        for at in draw.integers(0, len(self.signs), 2).tolist():
            part = slice(at * self.k, (at + 1) * self.k)
            lengths[part] = draw.integers(self.least, max(3, int(2 * share) + 1), self.k)
        lengths = (lengths - self.least).clip(0)
        spare = self.n - stages * self.least
        parts = np.cumsum(lengths) * (spare / max(1, lengths.sum()))
        found: list[int] = (
            np.rint(parts).astype(np.int64) + self.least * np.arange(1, stages + 1)
        ).tolist()
        return [*found[:-1], self.n]

    def _pair(self, ends: list[int], at: int) -> _Pair | None:
        """Return two rounds, and what the others leave them."""
        k, stops = self.k, [0, *ends]
        taken, held, peak = ([0] * k for _ in range(3))
        for stage in range(len(ends)):
            r, j = divmod(stage, k)
            if r in (at, at + 1):
                continue
            j = j if self.signs[r] == self.signs[at] else k - 1 - j
            a, b, c = stops[stage], stops[stage + 1], self.classes[:: self.signs[at]][j]
            rows = self.held(stage)
            taken[j] += int(self.prefix[c, b] - self.prefix[c, a])
            held[j] += int(rows[b] - rows[a])
            peak[j] = max([peak[j], *self.stops.peak[a:b].tolist()])
        return _Pair(at, stops[at * k], stops[(at + 2) * k], tuple(taken), tuple(held), tuple(peak))
