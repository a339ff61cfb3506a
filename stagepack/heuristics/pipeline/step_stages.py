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
this limit is lowered as long as the total can improve.  O(k n^2) a probe.
Source: own work.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np

from stagepack.heuristics.pipeline.step_bound import SLACK, step_bound
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import Array, Cluster
from stagepack.instances.schedule.partition import least_latencies

LARGEST = 4_000_000
"""Devices times ranges of layers that are looked at."""
EXACT = 2.0**53
"""Whole numbers below it are whole as floats, too."""
ROUNDING = 1e-12
"""Relative, of quotients and sums that are rounded up."""
PRECISION = 1000
"""Limits for enumerating stages differ by this part of themselves at least."""

Path = list[tuple[int, int, int]]
"""Stages: device, layers [first, end)."""


@dataclass(frozen=True)
class LeastStep:
    """What is known of a step.

    Attributes
    ----------
    bound : int
        No partition and no schedule takes fewer cycles.
    solution : PipelineSolution or None
        Stages for which no higher bound is known; None where they were not looked for.
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

    Parameters
    ----------
    instance : PipelinePartition
    microbatches : int
    split : bool
        Whether the backward pass is split into B and W.
    ends : float
        The clock (`time.monotonic`) at which it is enough.
    """
    stages = StepStages(instance, microbatches, split, ends) if affordable(instance) else None
    found = None if stages is None else stages.least()
    return step_bound(instance, microbatches, split=split) if found is None else found.bound


@dataclass
class StepStages:
    """Stages on the devices in turn, and what a step takes with them.

    Attributes
    ----------
    instance : PipelinePartition
        One for which :func:`affordable` says so.
    microbatches : int
    split : bool
        Whether the backward pass is split into B and W.
    ends : float
        The clock (`time.monotonic`) at which it is enough.
    workless : bool
        Whether a pass through a stage may take no cycles, which no schedule can express.
    passes : list of (ndarray, ndarray), optional
        By device, least cycles of F and B on [a, b) where that is more than their work.
    known : int
        :func:`.step_bound`.
    exact : bool
        All cycles, which are rounded to whole ones, are few enough to be computed exactly.
    alike : bool
        Devices differ in nothing but their names.
    work : list of ndarray, shape (n + 1, n + 1)
        By device, all cycles of a microbatch on [a, b).
    passing : list of ndarray
        What [a, b) and the edge behind it add to H; infinite for what is no stage.
    need : list of ndarray
        In training, what a step takes at least after H.
    """

    instance: PipelinePartition
    microbatches: int
    split: bool = False
    ends: float = math.inf
    workless: bool = True
    passes: list[tuple[Array, Array]] | None = None
    known: int = field(init=False)
    exact: bool = field(init=False)
    alike: bool = field(init=False)
    work: list[Array] = field(init=False, default_factory=list)
    passing: list[Array] = field(init=False, default_factory=list)
    need: list[Array] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        given, m = self.instance, self.microbatches
        self.known = step_bound(given, m, split=self.split)
        cluster = alike(given.cluster) if given.free_order else given.cluster
        costs = RangeCosts(given.replace(cluster=cluster, objective="bottleneck"))
        lags = least_latencies(given).astype(np.float64)
        lags[-1] = 0
        speeds = [device.speed for device in cluster.devices]
        most = float(given.cycles.sum()) / float(min(speeds)) * (m + 1)
        for ahead, back in self.passes or ():
            most += (m + 1) * (float(ahead[0, -1]) + float(back[0, -1]))
        self.exact = most + (m + 1) * 2 * given.k * (1 + float(lags.max())) < EXACT
        self.alike = len({device.kind for device in given.cluster.devices}) == 1
        classes = costs.device_class.tolist()
        columns = given.forward, given.backward * int(given.training)
        forward, backward = ({s: ranges(c, s) for s in set(speeds)} for c in columns)
        flying = {c: self._flying(costs, c) for c in set(classes)}
        fits = {c: costs.fits_matrix(c, 0) & (flying[c] >= 1) for c in flying}
        trips = 1 + (given.training and not self.split)
        rounds, parts = [], []
        for at, (c, speed) in enumerate(zip(classes, speeds, strict=True)):
            f, whole = forward[speed], backward[speed]
            if self.passes is not None:
                f, whole = map(np.maximum, (f, whole), self.passes[at])
            both, b = f + whole, np.ceil(whole / 2) if self.split else whole
            step = (f if self.split else both) + trips * lags
            self.work.append(both)
            fit = fits[c]
            if not self.workless:
                fit = fit & (f > 0) & (backward[speed] > self.split if given.training else True)
            self.passing.append(np.where(fit, step, np.inf))
            rounds.append(np.where(fit, f + b + 2 * lags[:, None], np.inf))
            parts.append((f, b, flying[c]))
        if given.training:
            behind = self._behind(rounds)
            self.need = [self._need(at, *parts[at], behind[at]) for at in range(given.k)]

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

    def _behind(self, rounds: list[Array]) -> list[Array]:
        """Return Z of each device by the end of its stage, arrays of shape (n + 1,)."""
        nothing = np.full(self.instance.n + 1, np.inf)
        nothing[-1] = 0
        found = [nothing]
        for table in reversed(rounds[1:]):
            least = (table + found[-1][None, :]).min(axis=1)
            if self.instance.fewer_stages:
                least = np.minimum(least, found[-1])
            found.append(least)
        return found[::-1]

    def _need(self, at: int, f: Array, b: Array, flying: Array, behind: Array) -> Array:
        """Return what a step takes at least from the first F of a stage on."""
        m, w = self.microbatches, self.work[at]
        here = np.isfinite(self.passing[at]) & np.isfinite(behind)[None, :]
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
        while low < high and time.monotonic() < self.ends:
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
        while time.monotonic() < self.ends:
            passing = [
                np.where(work <= limit, table, np.inf)
                for work, table in zip(self.work, self.passing, strict=True)
            ]
            path = self._path(math.inf, passing)
            if path is None:
                least = best
                break
            least = sum(float(passing[at][first, end]) for at, first, end in path)
            largest = max(float(self.work[at][first, end]) for at, first, end in path)
            if least + more * largest < best:
                best, chosen = least + more * largest, path
            pays = (best - least) / more if more else 0.0
            limit = float(np.nextafter(min(largest, pays), 0))
        if chosen is None:
            return None if least == math.inf else LeastStep(self.known)
        return self._found(math.ceil(min(least, best)), chosen)

    def _path(self, limit: float, passing: list[Array]) -> Path | None:
        """Return stages of least H at the end, within a limit on each; None for none."""
        n = self.instance.n
        least = np.full(n + 1, np.inf)
        least[0] = 0
        come: list[Array] = []
        for at, table in enumerate(passing):
            times = least[:, None] + table
            if self.need:
                times[least[:, None] + self.need[at] > limit] = np.inf
            begins = times.argmin(axis=0)
            reached = np.take_along_axis(times, begins[None, :], axis=0)[0]
            if self.instance.fewer_stages:
                begins = np.where(least <= reached, np.arange(n + 1), begins)
                reached = np.minimum(least, reached)
            come.append(begins)
            least = reached
        if not math.isfinite(least[n]):
            return None
        end, path = n, []
        for at in range(len(passing) - 1, -1, -1):
            first = int(come[at][end])
            if first < end:
                path.append((at, first, end))
            end = first
        return path[::-1]

    def _takes(self, path: Path) -> int:
        """Return the bound for some stages of training."""
        before, most = 0.0, 0.0
        for at, first, end in path:
            most = max(most, before + float(self.need[at][first, end]))
            before += float(self.passing[at][first, end])
        return math.ceil(most)

    def _found(self, bound: int, path: Path) -> LeastStep:
        return LeastStep(max(self.known, self._safe(bound)), _solution(path))

    def _safe(self, bound: int) -> int:
        return bound if self.exact else math.floor((bound - 1) * (1 - SLACK))

    # ------------------------------------------------------------------ all of them

    def within(self, limit: int, most: int) -> tuple[int, list[PipelineSolution]]:
        """Return the stages of training with a bound below a limit, if those are not too many.

        Of devices that are alike those unused come last.

        Parameters
        ----------
        limit : int
        most : int
            As many of them; where there are more, those below a lower limit.

        Returns
        -------
        limit : int
            With all other stages a step takes at least as long.
        solutions : list of PipelineSolution
        None for unlike devices in any order.
        """
        low, asked, top, paths = self.known, limit, limit, list[Path]()
        if self.instance.free_order and not self.alike:
            return low, []
        while low < asked and time.monotonic() < self.ends:
            found = list(itertools.islice(self._paths(asked - 1), most + 1))
            if len(found) <= most:
                low, paths = asked, found
            else:
                top = asked
            if top - low <= limit // PRECISION:
                break
            asked = (low + top) // 2
        return self._safe(low), [_solution(path) for path in paths]

    def _paths(self, limit: float) -> Iterator[Path]:
        """Yield all stages with a bound of at most `limit`, none of them twice."""
        n, k = self.instance.n, self.instance.k
        latest = self._latest(limit)
        skips = self.instance.fewer_stages and not self.alike

        def on(at: int, first: int, before: float) -> Iterator[Path]:
            if first == n:
                if at == k or self.instance.fewer_stages:
                    yield []
                return
            if at == k or before > latest[at][first]:
                return
            own = before + self.passing[at][first]
            good = (before + self.need[at][first] <= limit) & (own <= latest[at + 1])
            for end in np.flatnonzero(good).tolist():
                for rest in on(at + 1, end, float(own[end])):
                    yield [(at, first, end), *rest]
            if skips:
                yield from on(at + 1, first, before)

        return on(0, 0, 0.0)

    def _latest(self, limit: float) -> list[Array]:
        """Return the largest H, before each device and cut, from which the rest is in time."""
        nothing = np.full(self.instance.n + 1, -np.inf)
        nothing[-1] = np.inf
        found = [nothing]
        for passing, need in zip(reversed(self.passing), reversed(self.need), strict=True):
            stage = np.isfinite(passing)
            behind = found[-1][None, :] - np.where(stage, passing, 0)
            times = np.where(stage, np.minimum(limit - need, behind), -np.inf)
            latest = times.max(axis=1)
            if self.instance.fewer_stages:
                latest = np.maximum(latest, found[-1])
            found.append(latest)
        return found[::-1]


def _solution(path: Path) -> PipelineSolution:
    devices = tuple(at for at, _, _ in path)
    return PipelineSolution((0, *(end for _, _, end in path)), devices)


def ranges(cycles: Array, speed: float) -> Array:
    """Return the cycles of all ranges of layers, rounded up on a device of a speed.

    Parameters
    ----------
    cycles : ndarray, shape (n,)
    speed : float

    Returns
    -------
    ndarray of float, shape (n + 1, n + 1)
        Of [a, b); meaningless for b <= a.
    """
    running = np.concatenate(([0.0], np.cumsum(cycles, dtype=np.float64)))
    found = running[None, :] - running[:, None]
    if speed == 1 and cycles.dtype.kind == "i":
        return np.asarray(found)
    return np.asarray(np.ceil(found / float(speed) * (1 - ROUNDING)))


def alike(cluster: Cluster) -> Cluster:
    """Return a cluster each of whose devices is as fast and as large as any.

    Parameters
    ----------
    cluster : Cluster
    """
    memories = [device.memory for device in cluster.devices]
    known = [memory for memory in memories if memory is not None]
    memory = max(known) if len(known) == len(memories) else None
    speed = max(device.speed for device in cluster.devices)
    devices = tuple(
        msgspec.structs.replace(device, memory=memory, speed=speed) for device in cluster.devices
    )
    return msgspec.structs.replace(cluster, devices=devices)
