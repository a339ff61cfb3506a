"""Range costs of chains whose layers have alternatives: the least ticks of every stage that fits.

For a kind of devices and a number of microbatches in flight, what a stage costs is a knapsack of
multiple choice: every layer takes one of its options, their bytes fit the device, their ticks are
fewest.  Labels of growing runs of layers (:mod:`.label_kernels`) solve it for all stages within a
limit at once.  What reads tables of stages works on these as on any, with a class of devices for
each pair of kind and microbatches.

Cost: O(n * w) runs of w layers each pair, with as many labels as there are trade-offs of ticks and
bytes: few of equal layers, at worst exponentially many.  Source: own work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import pairwise

import numpy as np

from stagepack.errors import InputError
from stagepack.heuristics.effort import SHORT, spend
from stagepack.heuristics.pipeline.options import label_kernels as kernels
from stagepack.heuristics.pipeline.tuning import OptionTuning
from stagepack.instances.pipeline import Objective, PipelineSolution
from stagepack.instances.pipeline.choices import cycles_of_options, options
from stagepack.instances.pipeline.costs import held_once, next_of
from stagepack.instances.pipeline.order import assign_devices
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import Array
from stagepack.instances.ticks import exactly, ticks

UNLIMITED = 2**61
Pause = Callable[[], object]


class Chooser:
    """Finds the options of layers that take the fewest ticks within the memory of a device.

    Each figure of `costs` is the least of any option.  `pause` is called between chunks of work;
    what it raises ends it.
    """

    def __init__(
        self, costs: RangeCosts, tuning: OptionTuning, pause: Pause = lambda: None
    ) -> None:
        instance = costs.instance
        self.costs, self.instance, self.tuning, self.pause = costs, instance, tuning, pause
        self.names, self.figures = zip(*options(instance), strict=True)
        self.has = np.stack([one.layers for one in self.figures])
        examples = {c: d for d, c in reversed([*enumerate(costs.device_class.tolist())])}
        speeds = [
            exactly(instance.cluster.devices[examples[c]].speed) for c in range(costs.classes)
        ]
        cycles = cycles_of_options(instance)
        self._ticks = [ticks(cycles, costs.scale / speed) for speed in speeds]
        fastest = self._ticks[speeds.index(max(speeds))]
        self.base = np.zeros(costs.n + 1, dtype=np.int64)
        np.cumsum(np.where(self.has, fastest, UNLIMITED).min(axis=0), out=self.base[1:])
        most = tuning.most_labels
        self._room = kernels.Room(
            np.empty((2, 3, most), dtype=np.int64),
            np.empty((2, most), dtype=np.int64),
            np.empty(len(self.names), dtype=np.int64),
            np.empty((2, most), dtype=np.int64),
        )

    @cached_property
    def _held(self) -> Array:
        """Bytes that runs of layers share, shape (n + 1, n + 1); of one entry where none do."""
        shared, n = self.instance.shared, self.costs.n
        if not len(shared.layer):
            return np.zeros((1, 1), dtype=np.int64)
        if (n + 1) ** 2 > self.tuning.most_runs:
            raise self._refusal(f"{n:,} layers that share keys are too many", "join layers")
        return held_once(shared, n, self.pause)

    @cached_property
    def _bytes(self) -> tuple[Array, Array, Array]:
        """Bytes that add up, are stashed, and are there while layers run, each (options, n)."""
        tokens, carry, every = self.costs.tokens, self.instance.carry, self.figures
        return (
            np.stack([one.held + tokens * one.kv_bytes for one in every]),
            np.stack([one.stash for one in every]),
            np.stack([one.temporary + carry for one in every]),
        )

    def options(self, device_class: int, stashes: int, timed: bool = True) -> kernels.Options:
        """Return what the kernels are to know of layers on a class of devices.

        `device_class` is an entry of `RangeCosts.device_class`; a stage holds the activations of
        `stashes` microbatches.  `timed`: ticks matter; else only whether stages fit.
        """
        capacity, nothing = self.costs.capacity[device_class], np.zeros_like(self._ticks[0])
        added = peak = nothing
        if capacity is not None:
            held, stash, peak = self._bytes
            added = held + stashes * stash
        cost = self._ticks[device_class] if timed else nothing
        room = UNLIMITED if capacity is None else capacity
        held = self._held if capacity is not None else np.zeros((1, 1), dtype=np.int64)
        return kernels.Options(cost, added, peak, self.has, room, held, self.base)

    def table(self, given: kernels.Options, within: Array, spare: int, last: Array) -> Array:
        """Return, shape (n + 1, n + 1), the least ticks of every run; `UNLIMITED` where none fits.

        `given`, `within`, `spare` and `last` are as :func:`.label_kernels.fill` has them.
        """
        n = self.costs.n
        cost, budget = np.full((n + 1, n + 1), UNLIMITED, dtype=np.int64), SHORT
        for way in self._ways(given):
            state = np.zeros(5, dtype=np.int64)
            while not kernels.fill(budget, way, within, spare, last, self._room, state, cost):
                self._spend(budget)
                budget = self.tuning.labels_at_once
            self._spend(budget)
            if state[kernels.FULL]:
                raise self._too_many()
        return cost

    def _too_many(self) -> InputError:
        return self._refusal(
            f"there are more than {self.tuning.most_labels:,} trade-offs of ticks and bytes in one "
            "stage",
            "join layers, round their figures, or choose once a stage (alternatives_per)",
        )

    @staticmethod
    def _refusal(what: str, remedy: str) -> InputError:
        return InputError(what, field="alternatives", remedy=remedy)

    def _has(self) -> Iterator[Array]:
        """Yield what layers may be at once: of options that stages take as one, each by itself."""
        if self.instance.alternatives_per == "layer":
            yield self.has
            return
        for option, row in enumerate(self.has):
            has = np.zeros_like(self.has)
            has[0], has[option] = ~row, row
            yield has

    def _ways(self, given: kernels.Options) -> Iterator[kernels.Options]:
        """Yield the same with what layers may be at once."""
        return (given._replace(has=has) for has in self._has())

    def choose(
        self, given: kernels.Options, first: int, end: int, within: int = UNLIMITED
    ) -> list[int] | None:
        """Return options of the layers of the stage [`first`, `end`) that take the fewest ticks.

        `given` are those of the device; the stage takes no more ticks than `within`.  None: none
        fit.
        """
        best = None
        for way in self._ways(given):
            found = self._chosen(way, first, end, within)
            if found is not None:
                within, best = found[0] - 1, found[1]
        return best

    def leaner(self, kind: tuple[int, int], first: int, end: int) -> list[int] | None:
        """Return options with which a stage fits, by a rule of thumb; None: it finds none.

        Layers exchange their fastest options for those of the fewest bytes, first where a byte
        saved takes the fewest ticks, until the stage fits.  O(w log(w)) for w layers.  `kind` is
        the class of its device, and microbatches whose activations it holds; the stage is [`first`,
        `end`).
        """
        device_class, stashes = kind
        capacity, shared = self.costs.capacity[device_class], self.instance.shared
        room, at, best, here = UNLIMITED, np.arange(end - first), None, slice(first, end)
        if capacity is not None:
            uses = slice(*np.searchsorted(shared.layer, (first, end)).tolist())
            room = capacity - int(shared.nbytes[np.unique(shared.key[uses])].sum())
        held, stash, peak = (rows[:, here] for rows in self._bytes)
        added = held + stashes * stash
        for has in self._has():
            ticks = np.where(has[:, here], self._ticks[device_class][:, here], UNLIMITED)
            nbytes = np.where(has[:, here], added, UNLIMITED)
            fast, fewest = ticks.argmin(axis=0), nbytes == nbytes.min(axis=0)
            lean = np.where(fewest, ticks, UNLIMITED).argmin(axis=0)
            saved = nbytes[fast, at] - nbytes[lean, at]
            lost = ticks[lean, at] - ticks[fast, at]
            price = np.where(saved > 0, lost / np.maximum(saved, 1), np.inf)
            order = np.argsort(price, kind="stable")  # of equal layers, the first ones
            need = np.append(0, np.cumsum(-saved[order])) + int(nbytes[fast, at].sum())
            before = np.maximum.accumulate(np.append(0, peak[lean, at][order]))
            after = np.maximum.accumulate(np.append(0, peak[fast, at][order][::-1]))[::-1]
            fits = np.flatnonzero(need + np.maximum(before, after) <= room)
            if len(fits):
                chosen = fast.copy()
                chosen[order[: fits[0]]] = lean[order[: fits[0]]]
                cost = int(ticks[chosen, at].sum())
                if best is None or cost < best[0]:
                    best = cost, chosen.tolist()
        self._spend(len(self.names) * (end - first))
        return None if best is None else best[1]

    def _chosen(
        self, given: kernels.Options, first: int, end: int, within: int
    ) -> tuple[int, list[int]] | None:
        """Return the fewest ticks of a stage and the options that take them; None: none fit."""
        labels, trail, count = self._room.labels, list[Array](), 1
        labels[0, :, 0] = 0
        rest = given.ticks.min(axis=0)  # no less is to come
        left = int(rest[first:end].sum())
        for layer in range(first, end):
            left -= int(rest[layer])
            held = int(given.held[first, layer + 1]) if len(given.held) > 1 else 0
            before = count
            count = kernels.extend(layer, within - left, count, given, held, self._room)
            self._spend(10 + before * len(self.names))
            if count == kernels.TOO_MANY:
                raise self._too_many()
            if count == 0:
                return None
            labels[0, :, :count] = labels[1, :, :count]
            trail.append(self._room.origin[:, :count].copy())
        chosen, at, least = [0] * (end - first), 0, int(labels[0, 0, 0])
        for layer in range(end - 1, first - 1, -1):
            at, chosen[layer - first] = trail[layer - first][:, at].tolist()
        return least, self._alike_first(first, chosen)

    def _alike_first(self, first: int, chosen: list[int]) -> list[int]:
        """Return options so dealt to equal layers that those with one come before those without."""
        alike: dict[bytes, list[int]] = {}
        for at in range(len(chosen)):
            alike.setdefault(self._digests[first + at], []).append(at)
        found = chosen.copy()
        for places in alike.values():
            # What are the layers' own figures comes last.
            taken = sorted((chosen[at] for at in places), key=lambda o: o or len(self.names))
            for at, option in zip(places, taken, strict=True):
                found[at] = option
        return found

    @cached_property
    def _digests(self) -> list[bytes]:
        """What tells layers from one another, in every option."""
        rows = [self.instance.carry, *self.has]
        for one in self.figures:
            rows += [one.forward, one.backward, one.temporary, one.stash, one.kv_bytes, one.held]
        whole = [row if row.itemsize == 8 else row.astype(np.int64) for row in rows]
        columns = np.stack([row.view(np.int64) for row in whole], axis=1)
        return [column.tobytes() for column in columns]

    def named(self, chosen: list[int]) -> tuple[str, ...]:
        """Return the names of the options of all layers; none where all are their own."""
        return tuple(self.names[o] for o in chosen) if any(chosen) else ()

    def _spend(self, labels: int) -> None:
        spend(labels * self.tuning.label_seconds)
        self.pause()


class ChosenCosts(RangeCosts):
    """The costs of stages with the best options of their layers, as far as these are within limits.

    What stages are dearer, or do not fit, is no stage here.  Its classes are pairs of a class of
    devices and the microbatches in flight there; bounds are those of the costs it is made from.  A
    partition worth no more ticks than `limit` has all its stages here.  `timed`: ticks matter; else
    every stage that fits costs nothing.
    """

    def __init__(self, chooser: Chooser, limit: int = UNLIMITED, timed: bool = True) -> None:
        costs, instance = chooser.costs, chooser.instance
        super().__init__(instance, chooser.pause)
        self._chooser, order = chooser, costs.order
        most = int(order.stashes.max()) + 1
        kinds, number = np.unique(order.device_class * most + order.stashes, return_inverse=True)
        if len(kinds) * (costs.n + 1) ** 2 > chooser.tuning.most_runs:
            raise InputError(
                f"{len(kinds):,} kinds of stages of {costs.n:,} layers are more than "
                f"{chooser.tuning.most_runs:,}",
                field="method dp",
                remedy="use fewer kinds of devices or microbatches, or join layers",
            )
        self._pairs = [divmod(kind, most) for kind in kinds.tolist()]
        self.order = dataclasses.replace(
            order, device_class=number.astype(np.int64), stashes=np.zeros_like(order.stashes)
        )
        rows = [c for c, _ in self._pairs]
        self.classes, self.tabular = len(rows), True
        self.prefix, self.recv, self.send = costs.prefix[rows], costs.recv[rows], costs.send[rows]
        last = next_of(instance.fixed_cuts, costs.n)
        last = np.where(self.allowed[:-1], last, np.arange(costs.n))
        self._given, self._least = [], []
        for c, stashes in self._pairs:
            within, spare = self._within(c, limit)
            given = chooser.options(c, stashes, timed)
            self._given.append(given)
            self._least.append(chooser.table(given, within, spare, last))
        self._work = [np.where(table < UNLIMITED, table, 0) for table in self._least]

    @property
    def _compute_bound(self) -> int:
        return self._chooser.costs.compute_bound()

    @property
    def _cut_bounds(self) -> tuple[int, int, int]:
        return self._chooser.costs._cut_bounds

    def _within(self, c: int, limit: int) -> tuple[Array, int]:
        """Return the most ticks of stages by where they begin, and those above their least."""
        costs = self._chooser.costs
        within, spare = np.full(costs.n, min(limit, UNLIMITED)), UNLIMITED
        if limit >= UNLIMITED:
            return within, spare
        match costs.instance.objective:
            case Objective.SUM:
                within -= costs.host + costs.recv[c, :-1]
            case Objective.TRANSFER_BOUNDED:
                within -= costs.transfer_bound() + costs.host
            case Objective.LATENCY:
                least = int(self._chooser.base[-1]) + costs.transfers_bound() + costs.host
                spare = limit - least + costs.rounding
        return within, spare

    def fits_matrix(self, device_class: int, stashes: int, pause: Pause = lambda: None) -> Array:
        """Return, shape (n + 1, n + 1), whether [a, b) is a stage here.

        `device_class` is a kind of devices with microbatches, so that `stashes` are counted with
        it; `pause` is as :meth:`.RangeCosts.fits_matrix` takes it.
        """
        fits = self._least[device_class] < UNLIMITED
        return np.asarray(fits & self.allowed[:, None] & self.allowed[None, :])

    def partition(self, boundaries: list[int], classes: list[int]) -> PipelineSolution:
        """Return the solution whose stages run on devices of the given classes, with its choices.

        `boundaries` and `classes` are as in :func:`.assign_devices`.
        """
        placed = assign_devices(self.instance, boundaries, [self._pairs[c][0] for c in classes])
        chosen = list[int]()
        for (a, b), kind in zip(pairwise(boundaries), classes, strict=True):
            found = self._chooser.choose(self._given[kind], a, b, int(self._least[kind][a, b]))
            assert found is not None
            chosen += found
        return dataclasses.replace(placed, choices=self._chooser.named(chosen))
