"""Stages with the least bound on the time of a step; this bound holds for every plan.

It is sharper than :mod:`.step_bound`, for chains of some hundred layers, and also yields stages
that attain the bound if possible.  For a stage s on the layers [a, b), let f, b and w be the cycles
of F, of B, and of everything that a microbatch does there, and

    H(s, a)   the least time in which a microbatch passes the stages before s and the edges between,
              forward and, unless W is split off, backward
    Z(s, b)   the least time from the end of F[s, i] to the begin of B[s, i]: F and B of the stages
              behind s, and both ways over the edges
    c         the number of microbatches that fit on the device beside its layers, at most m

F[s, i + c] begins after the end of B[s, i].  So the last r microbatches, 1 <= r <= c, begin after g
rounds of c microbatches, each of R = f + Z + b.  Until the first B of the microbatches in flight,
only F can run.  A step of training therefore takes at least

    H + max( m w + max(0, f + Z - c f),   g R + r w + max(0, f + Z - r f) ).

A step of inference is a flow shop of equal jobs: it takes w and the latencies of all stages, and
m - 1 times the largest w.  The minimum of this over all partitions is the optimum.

For a limit on the time of a step, H is propagated from stage to stage, where the least value is
best; the limit is found by bisection.  In inference, stages with a limit on w have the least H, and
this limit is lowered as long as the total can improve.  Which devices are in use is a state; in a
free order it counts those of each kind, so that only unlike devices make more states than stages.
O(t n^2) a probe with t ways to go from state to state: k in one order of like links.  Unlike links
are told apart by the device used last; where these are too many, all are as fast as any.
Source: own work.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from stagepack.heuristics.pipeline.step_bound import SLACK, step_bound
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import Array, Cluster
from stagepack.instances.schedule.partition import least_latencies, transfers, waiting
from stagepack.progress import clock

LARGEST = 4_000_000
"""Turns of devices times ranges of layers that are looked at."""
EXACT = 2.0**53
"""Whole numbers below it are whole as floats, too."""
ROUNDING = 1e-12
"""Relative, of quotients and sums that are rounded up."""
PRECISION = 1000
"""Limits for enumerating stages differ by this part of themselves at least."""

UNUSED = -1
"""Instead of a kind: the turn of a device that has no stage."""

Path = list[tuple[int, int, int]]
"""Stages: turn, layers [first, end)."""


class Turn(NamedTuple):
    """A step from the devices in use to those in use with the next stage."""

    source: int
    target: int
    kind: int
    """Of the device that has the stage."""
    lag: int = 0
    """Of the edge in front of it, see :attr:`StepStages.lags`; 0: there is none."""


class LeastStep(NamedTuple):
    """What is known of a step: no partition and no schedule takes fewer cycles than `bound`.

    No higher bound is known for the stages of `solution`, None where they were not looked for.
    """

    bound: int
    solution: PipelineSolution | None = None


def affordable(instance: PipelinePartition) -> bool:
    """Return whether all ranges can be looked at: costs are those of layers, and few enough."""
    tabular = instance.compute_table is not None or instance.memory_table is not None
    return not tabular and instance.k * instance.n**2 <= LARGEST


def least_step(
    instance: PipelinePartition,
    microbatches: int,
    *,
    split: bool = False,
    ends: float = math.inf,
) -> int:
    """Return the best bound known on the cycles of a step, of any partition and any schedule.

    A step has so many `microbatches`; `split`: the backward pass is split into B and W.  At a
    :func:`~stagepack.progress.clock` of `ends` it is enough.
    """
    return outlook(instance, microbatches, split=split, ends=ends)[0]


def outlook(
    instance: PipelinePartition,
    microbatches: int,
    *,
    split: bool = False,
    ends: float = math.inf,
) -> tuple[int, bool]:
    """Return what :func:`least_step` does, and whether any stages may fit the devices.

    `microbatches`, `split`, `ends`: as there.
    """
    stages = StepStages(instance, microbatches, split, ends) if affordable(instance) else None
    found = None if stages is None else stages.least()
    if found is None:
        unknown = stages is None or bool(instance.alternatives) or instance.placed
        return step_bound(instance, microbatches, split=split), unknown
    return found.bound, True


class StepStages:
    """Stages on the devices in turn, and what a step takes with them.

    For an `instance`, :func:`affordable` says so; a step has so many `microbatches`.  `split`: the
    backward pass is split into B and W.  `ends` is the :func:`~stagepack.progress.clock` at which
    it is enough.  `workless`: a pass through a stage may take no cycles, which no schedule can
    express.  `passes` are, by device, least cycles of F and B on [a, b) where that is more than
    their work.  Like devices are told from others by having one pair.
    """

    kinds: list[int]  # of each device
    relaxed: bool  # unlike devices in a free order are too many: each counts as fast as any
    turns: list[Turn]  # none after one that goes on from its target; state 0 is no device
    states: int  # how many there are
    final: list[int]  # states with which the chain may end
    # (n + 1,): cycles in which the tensors of each cut come over an edge; the first ones are 0.
    lags: list[Array]

    def __init__(
        self,
        instance: PipelinePartition,
        microbatches: int,
        split: bool = False,
        ends: float = math.inf,
        workless: bool = True,
        passes: list[tuple[Array, Array]] | None = None,
    ) -> None:
        self.instance, self.microbatches, self.split = instance, microbatches, split
        self.ends, self.workless, self.passes = ends, workless, passes
        # By kind, (n + 1, n + 1): cycles of a microbatch on [a, b), and what these add to H, where
        # infinite is no stage.  By turn, in training: what a step takes at least after H.
        self.work, self.passing, self.need = list[Array](), list[Array](), list[Array]()
        given, m = self.instance, self.microbatches
        self.known = step_bound(given, m, split=self.split)
        self.trips = 1 + (given.training and not self.split)
        cluster = self._order()
        costs = RangeCosts(given.replace(cluster=cluster, objective="bottleneck"))
        host = waiting(given)
        most = float(given.cycles.sum()) / min(float(one.speed) for one in cluster.devices)
        for ahead, back in self.passes or ():
            most += float(ahead[0, -1]) + float(back[0, -1])
        slowest = max(float(lag.max()) for lag in self.lags)
        self.exact = (m + 1) * (most + 2 * given.k * (1 + host + slowest)) < EXACT
        rounds, parts = [], []
        for kind in range(max(self.kinds) + 1):
            at = self.kinds.index(kind)
            c, speed = int(costs.device_class[at]), cluster.devices[at].speed
            f, whole = ranges(given.forward, speed), np.zeros((given.n + 1, given.n + 1))
            if given.training:
                whole = ranges(given.backward, speed)
            fit = costs.fits_matrix(c, 0)
            if not self.workless:
                fit &= (f > 0) & (whole > self.split if given.training else True)
            if self.passes is not None:
                f, whole = map(np.maximum, (f, whole), self.passes[at])
            f = f + host
            flying = self._flying(costs, c)
            fit &= flying >= 1
            b = np.ceil(whole / 2) if self.split else whole
            self.work.append(f + whole)
            self.passing.append(np.where(fit, f if self.split else f + whole, np.inf))
            rounds.append(np.where(fit, f + b, np.inf))
            parts.append((f, b, flying))
        if given.training:
            behind = self._behind(rounds)
            self.need = [
                np.empty(0)
                if turn.kind == UNUSED
                else self._need(turn.kind, *parts[turn.kind], behind[turn.target])
                for turn in self.turns
            ]

    def _order(self) -> Cluster:
        """Write which devices may follow which; return them, as fast and large as they count."""
        given = self.instance
        pairs = [0] * given.k if self.passes is None else [*map(id, self.passes)]
        figures = [(one.speed, one.memory) for one in given.cluster.devices]
        links, ends = self._links()
        known: dict[object, int] = {}
        self.kinds = [
            known.setdefault(one, len(known)) for one in zip(figures, pairs, links, strict=True)
        ]
        counts = np.bincount(self.kinds).tolist()
        most = LARGEST // given.n**2
        ways = len(counts) * math.prod(count + 1 for count in counts)
        self.relaxed = given.free_order and len(counts) > 1 and ways > most
        if self.relaxed:
            self.kinds, counts = [0] * given.k, [given.k]
            if self.passes is not None:
                least = [np.minimum.reduce(tables) for tables in zip(*self.passes, strict=True)]
                self.passes = [(least[0], least[1])] * given.k
        if given.free_order or len(counts) == 1:
            turns = _any_order(counts)
        else:
            turns = [
                Turn(at, at + 1, one)
                for at, kind in enumerate(self.kinds)
                for one in ((UNUSED, kind) if given.fewer_stages else (kind,))
            ]
        if self.relaxed or len(turns) * len(ends) > most:
            least_one = least_latencies(given)
            links, ends = [0] * given.k, [(least_one, least_one)]
        last = turns[-1].target
        self.turns, place = _told_apart(turns, dict(zip(self.kinds, links, strict=True)), len(ends))
        self.states = len(place)
        self.final = [at for (used, _), at in place.items() if given.fewer_stages or used == last]
        self.lags = [np.zeros(given.n + 1)]
        self.lags += [
            np.maximum(send, recv).astype(np.float64) for send, _ in ends for _, recv in ends
        ]
        return alike(given.cluster) if self.relaxed else given.cluster

    def _links(self) -> tuple[list[int], list[tuple[Array, Array]]]:
        """Return the number of each device's links, and in what they send and receive cuts."""
        known: dict[object, int] = {}
        links, ends = list[int](), list[tuple[Array, Array]]()
        for at in range(self.instance.k):
            send, recv = (transfers(self.instance, end, at) for end in ("send", "recv"))
            links.append(known.setdefault((send.tobytes(), recv.tobytes()), len(known)))
            if links[-1] == len(ends):
                ends.append((send, recv))
        return links, ends

    def _flying(self, costs: RangeCosts, device_class: int) -> Array:
        """Return how many microbatches fit a device of a class beside the layers [a, b)."""
        given, m = self.instance, self.microbatches
        capacity = costs.capacity[device_class]
        if capacity is None or not given.training:
            return np.full((given.n + 1, given.n + 1), float(m))
        stash = np.concatenate(([0], np.cumsum(given.stash)))
        each = stash[None, :] - stash[:, None] + given.kept_bytes[:, None]
        room = capacity - costs.memory_matrix(device_class, 0)
        found = np.where(each > 0, room // np.maximum(each, 1), m)
        return np.clip(found, 0, m).astype(np.float64)

    def _behind(self, rounds: list[Array]) -> Array:
        """Return Z by the devices in use and the end of the stage, shape (states, n + 1)."""
        found = np.full((self.states, self.instance.n + 1), np.inf)
        found[self.final, -1] = 0
        for source, target, kind, lag in reversed(self.turns):
            least = found[target]
            if kind != UNUSED:
                least = (rounds[kind] + least[None, :]).min(axis=1) + 2 * self.lags[lag]
            np.minimum(found[source], least, out=found[source])
        return found

    def _need(self, kind: int, f: Array, b: Array, flying: Array, behind: Array) -> Array:
        """Return what a step takes at least from the first F of a stage on."""
        m, w = self.microbatches, self.work[kind]
        here = np.isfinite(self.passing[kind]) & np.isfinite(behind)[None, :]
        trip = np.where(here, f + np.where(here, behind[None, :], 0.0), 0.0)
        c = np.maximum(flying, 1)
        rounds = (m - 1) // c
        rest = m - rounds * c
        filled = m * w + np.maximum(0, trip - c * f)
        turned = rounds * (trip + b) + rest * w + np.maximum(0, trip - rest * f)
        return np.where(here, np.maximum(filled, turned), np.inf)

    # ------------------------------------------------------------------ the least

    def least(self) -> LeastStep | None:
        """Return the least bound, and stages that have it; None: none fit the devices."""
        return self._training() if self.instance.training else self._inference()

    def _training(self) -> LeastStep | None:
        """Bisect on the time of a step."""
        path = self._path(math.inf, self.passing)
        if path is None:
            return None
        low, high = self.known, self._takes(path)
        while low < high and clock() < self.ends:
            middle = (low + high) // 2
            within = self._path(middle, self.passing)
            if within is None:
                low = middle + 1
            else:
                path, high = within, min(middle, self._takes(within))
        return self._found(low, path)

    def _inference(self) -> LeastStep | None:
        """Let the limit on w fall, and with it the time of the first microbatch rise."""
        more, limit, best, least = self.microbatches - 1, math.inf, math.inf, 0.0
        chosen: Path | None = None
        while clock() < self.ends:
            passing = [
                np.where(work <= limit, table, np.inf)
                for work, table in zip(self.work, self.passing, strict=True)
            ]
            path = self._path(math.inf, passing)
            if path is None:
                least = best
                break
            least = sum(self._adds(stage) for stage in path)
            largest = max(self._of(self.work, stage) for stage in path)
            if least + more * largest < best:
                best, chosen = least + more * largest, path
            pays = (best - least) / more if more else 0.0
            limit = float(np.nextafter(min(largest, pays), 0))
        if chosen is None:
            return None if least == math.inf else LeastStep(self.known)
        return self._found(math.ceil(min(least, best)), chosen)

    def _of(self, tables: list[Array], stage: tuple[int, int, int]) -> float:
        """Return what tables by kind say of a stage."""
        turn, first, end = stage
        return float(tables[self.turns[turn].kind][first, end])

    def _adds(self, stage: tuple[int, int, int]) -> float:
        """Return what a stage and the edge in front of it add to H."""
        turn, first, _ = stage
        lag = float(self.lags[self.turns[turn].lag][first])
        return self.trips * lag + self._of(self.passing, stage)

    def _path(self, limit: float, passing: list[Array]) -> Path | None:
        """Return stages of least H at the end, within a limit on each; None for none."""
        n = self.instance.n
        least = np.full((self.states, n + 1), np.inf)
        least[0, 0] = 0
        came, begin = np.zeros((2, *least.shape), dtype=np.int64)
        for turn, (source, target, kind, lag) in enumerate(self.turns):
            reached, begins = least[source], np.arange(n + 1)
            if kind != UNUSED:
                before = (reached + self.trips * self.lags[lag])[:, None]
                times = before + passing[kind]
                if self.need:
                    times[before + self.need[turn] > limit] = np.inf
                begins = times.argmin(axis=0)
                reached = np.take_along_axis(times, begins[None, :], axis=0)[0]
            better = reached < least[target]
            least[target, better] = reached[better]
            came[target, better], begin[target, better] = turn, begins[better]
        state, end = min(self.final, key=lambda one: least[one, n]), n
        if not math.isfinite(least[state, n]):
            return None
        path = []
        while state:
            turn, first = int(came[state, end]), int(begin[state, end])
            if first < end:
                path.append((turn, first, end))
            state, end = self.turns[turn].source, first
        return path[::-1]

    def _takes(self, path: Path) -> int:
        """Return the bound for some stages of training."""
        before, most = 0.0, 0.0
        for stage in path:
            turn, first, end = stage
            before += self._adds(stage)
            begins = before - self._of(self.passing, stage)
            most = max(most, begins + float(self.need[turn][first, end]))
        return math.ceil(most)

    def _found(self, bound: int, path: Path) -> LeastStep:
        return LeastStep(max(self.known, self._safe(bound)), self._solution(path))

    def _safe(self, bound: int) -> int:
        return bound if self.exact else math.floor((bound - 1) * (1 - SLACK))

    def _solution(self, path: Path) -> PipelineSolution:
        """Return stages on the first devices of their kinds that are free."""
        count = max(self.kinds) + 1
        free = [[at for at, one in enumerate(self.kinds) if one == c] for c in range(count)]
        devices, last = list[int](), -1
        for turn, _, _ in path:
            here = free[self.turns[turn].kind]
            last = next(at for at in here if self.instance.free_order or at > last)
            here.remove(last)
            devices.append(last)
        return PipelineSolution((0, *(end for _, _, end in path)), tuple(devices))

    # ------------------------------------------------------------------ all of them

    def within(self, limit: int, most: int) -> tuple[int, list[PipelineSolution]]:
        """Return stages of training with a bound below a limit, and that limit.

        With all other stages a step takes at least as long.  The limit is that given, in cycles, or
        a lower one where stages are more than `most`; where unlike devices are too many there are
        none.  Of devices that are alike those unused come last.
        """
        low, asked, top, paths = self.known, limit, limit, list[Path]()
        if self.relaxed:
            return low, []
        while low < asked and clock() < self.ends:
            found = list(itertools.islice(self._paths(asked - 1), most + 1))
            if len(found) <= most:
                low, paths = asked, found
            else:
                top = asked
            if top - low <= limit // PRECISION:
                break
            asked = (low + top) // 2
        return self._safe(low), [self._solution(path) for path in paths]

    def _paths(self, limit: float) -> Iterator[Path]:
        """Yield all stages with a bound of at most `limit`, none of them twice."""
        n, latest, final = self.instance.n, self._latest(limit), set(self.final)
        leaving: dict[int, list[int]] = defaultdict(list)
        for at, turn in enumerate(self.turns):
            leaving[turn.source].append(at)

        def on(state: int, first: int, before: float) -> Iterator[Path]:
            if first == n:
                if state in final:
                    yield []
                return
            if before > latest[state][first]:
                return
            for turn in leaving[state]:
                _, target, kind, lag = self.turns[turn]
                if kind == UNUSED:
                    yield from on(target, first, before)
                    continue
                begin = before + self.trips * self.lags[lag][first]
                own = begin + self.passing[kind][first]
                good = (begin + self.need[turn][first] <= limit) & (own <= latest[target])
                for end in np.flatnonzero(good).tolist():
                    for rest in on(target, end, float(own[end])):
                        yield [(turn, first, end), *rest]

        return on(0, 0, 0.0)

    def _latest(self, limit: float) -> Array:
        """Return the largest H, by state and cut, from which the rest is in time."""
        found = np.full((self.states, self.instance.n + 1), -np.inf)
        found[self.final, -1] = np.inf
        for turn in range(len(self.turns) - 1, -1, -1):
            source, target, kind, lag = self.turns[turn]
            latest = found[target]
            if kind != UNUSED:
                stage = np.isfinite(self.passing[kind])
                behind = latest[None, :] - np.where(stage, self.passing[kind], 0)
                times = np.where(stage, np.minimum(limit - self.need[turn], behind), -np.inf)
                latest = times.max(axis=1) - self.trips * self.lags[lag]
            np.maximum(found[source], latest, out=found[source])
        return found


def _told_apart(
    turns: list[Turn], link_of: Mapping[int, int], links: int
) -> tuple[list[Turn], dict[tuple[int, int], int]]:
    """Return turns between states that tell the links of the device used last, and these states.

    Turns are by source; `link_of` is the number of the links of a kind, of `links` in all.  States
    are numbered by devices in use and the links of the last of them, -1: none.
    """
    last_of: dict[int, dict[int, None]] = defaultdict(dict)
    last_of[0][-1] = None
    place, found = {(0, -1): 0}, []
    for source, target, kind, _ in turns:
        for link in [*last_of[source]]:
            now = link if kind == UNUSED else link_of[kind]
            last_of[target][now] = None
            there = place.setdefault((target, now), len(place))
            lag = 0 if link < 0 or kind == UNUSED else 1 + link * links + now
            found.append(Turn(place[source, link], there, kind, lag))
    return found, place


def _any_order(counts: list[int]) -> list[Turn]:
    """Return the turns of devices in any order, so many of each kind.

    A state counts the devices of each kind in use, as the digits of its number.
    """
    turns = []
    for source in range(math.prod(count + 1 for count in counts)):
        step = 1
        for kind, count in enumerate(counts):
            if source // step % (count + 1) < count:
                turns.append(Turn(source, source + step, kind))
            step *= count + 1
    return turns


def ranges(cycles: Array, speed: float) -> Array:
    """Return the cycles of all [a, b), float (n + 1, n + 1), rounded up on a device of a speed.

    `cycles`, (n,), are those of layers on a device of speed 1.  Meaningless for b <= a.
    """
    running = np.concatenate(([0.0], np.cumsum(cycles, dtype=np.float64)))
    found = running[None, :] - running[:, None]
    if speed == 1 and cycles.dtype.kind == "i":
        return np.asarray(found)
    return np.asarray(np.ceil(found / float(speed) * (1 - ROUNDING)))


def alike(cluster: Cluster) -> Cluster:
    """Return a cluster each of whose devices is as fast and as large as any."""
    memories = [device.memory for device in cluster.devices]
    known = [memory for memory in memories if memory is not None]
    memory = max(known) if len(known) == len(memories) else None
    speed = max(device.speed for device in cluster.devices)
    devices = tuple(
        msgspec.structs.replace(device, memory=memory, speed=speed) for device in cluster.devices
    )
    return msgspec.structs.replace(cluster, devices=devices)
