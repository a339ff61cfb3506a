"""Stages of a chain whose step may stay below a bound, as labels.

Of a chain, let F, B and W take f, b and w cycles on a stage, H be what the first microbatch takes
to come there and, in training, the last one to return (its forward pass alone where W is split off
and may come last), and Z what one takes from there to the end and back, latencies of cuts included.
A step of training lasts H, then all operations of the stage; and as many microbatches as its device
has room for are in flight, each of which takes F, Z and B: what these leave of that time the device
idles.  In inference a microbatch passes all stages, and the longest one works m - 1 times more.
Cuts are crossed by the fastest links.

**labels**: which values below the bound stages can come to: after some stages that end at a cut, on
some of the devices, the longest f (inference; 0 in training, where each stage is compared with the
bound at once) and H.  Of two labels of one place the one that is larger in neither says all.  Where
no label reaches the end, no stages stay below the bound.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate, product
from typing import Any, NamedTuple

from stagepack.contracts import JsonObject, Number
from stagepack.instances.groups import LayerGrouping
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.pipeline.check import stage_memory
from stagepack.instances.pipeline.choices import least
from stagepack.instances.profile import Link
from stagepack.instances.schedule.partition import waiting
from stagepack.verify import Claimed, UnprovedError

FEW, MANY = 100_000, 2_000_000
"""Stages that are looked at where no evidence speaks of them, and where some does."""

MOST_WAYS, MOST_PLACES = 400_000, 2_000_000
"""Ways to use one more device, of all choices of devices; these, each at every cut."""


UNUSED = -1
"""Instead of a device: the next one has no stage."""

Time = int | Fraction
Label = tuple[Time, Time]
State = tuple[int, ...]
Turn = tuple[State, State, int]
"""Which devices are used before and after a stage on one of them, or without one."""
Passes = tuple[Time, Time, Time, int]
"""Of a stage f, b, all work of a microbatch, and how many of them its device has room for."""
_Given = Mapping[str, Any]


class Network(NamedTuple):
    """A whole network on one chip, whose bound is verified, and potentials if these show it."""

    instance: LayerGrouping
    bound: int
    potentials: list[int | None] | None


def known_of(model: PipelinePartition, split: bool) -> PipelinePartition | None:
    """Return a chain of which all bounds hold for a model, too; None where rules know of none.

    What is chosen of alternatives takes no less than the least figures.  If these are 0, stages of
    such layers seem to have no schedule, and those of others have one.
    """
    if model.placed or not model.alternatives:
        return None if model.placed else model
    found = least(model)
    passes = [found.forward, *([found.backward - split] if model.training else [])]
    return found if min(cycles.min() for cycles in passes) > 0 else None


@dataclass(frozen=True)
class Whole:
    """What a plan is of: a claim about it speaks of all stages and all schedules."""

    model: Any  # with room for one microbatch in flight
    microbatches: int  # of a step
    split: bool = False  # whether the backward pass is split into B and W
    resident: bool = True  # whether devices hold their stages all the time, which take whole cycles
    # Whether stages consist of groups, so that layers say nothing of their cycles.
    grouped: bool = False
    networks: tuple[Network, ...] = ()  # as far as their bounds are verified
    # Of "forward" and "backward", what stages take instead of the cycles of their layers: what
    # these figures rise from cut to cut; None: no stage ends there.
    rises: JsonObject = field(default_factory=dict)
    path: bool = False  # whether layers are those of a path of a graph

    tolerance = 0


class Chain:
    """The stages of a chain by the numbers of their cuts, and how devices come to be used.

    At most `most` stages are looked at.
    """

    def __init__(self, whole: Whole, claimed: Claimed, most: int) -> None:
        model = whole.model
        if not isinstance(model, PipelinePartition) or whole.grouped:
            raise UnprovedError("is about chains whose layers have times")
        if model.compute_table is not None and model.training:
            raise UnprovedError("nothing tells F from B")
        self.whole, self.model, self.claimed, self._left = whole, model, claimed, most
        self.m, self.bound = whole.microbatches, _limit(claimed)
        rises, self._bare = whole.rises, whole.path or bool(whole.rises)
        self.cuts = [
            c
            for c, allowed in enumerate(model.allowed_cuts.tolist())
            if allowed and all(figures[c] is not None for figures in rises.values())
        ]
        self.last = len(self.cuts) - 1
        tables = model.compute_table, model.memory_table
        apart = model.recv_cycles is not None or model.send_cycles is not None
        apart |= any(table is not None and table.ndim == 3 for table in tables)
        kinds = [d if apart else one.kind for d, one in enumerate(model.cluster.devices)]
        self.device = [kinds.index(kind) for kind in kinds]
        self.counts = Counter(self.device)
        self.any_order = model.free_order or len(self.counts) == 1
        ways = 2 * len(self.device)
        if self.any_order:
            ways = len(self.counts) * math.prod(count + 1 for count in self.counts.values())
        if ways > MOST_WAYS or ways * self.last > MOST_PLACES:
            raise UnprovedError("the devices can be used in too many ways")
        self.trips = 1 if whole.split or not model.training else 2
        self.speed = [
            1 if rises else Fraction(str(device.speed)) for device in model.cluster.devices
        ]
        self._sums: JsonObject = {
            name: [*accumulate(_exact(getattr(model, name).tolist()), initial=0)]
            for name in ("forward", "backward", "stash")
        } | rises
        self.lag = [0, *_latencies(model, self.cuts), 0]
        self.passes = functools.cache(self._passes)
        self.turns = [*self._turns()]
        self._from = defaultdict[State, list[Turn]](list)
        for turn in self.turns:
            self._from[turn[0]].append(turn)
        self.final = {self.turns[-1][1]}
        if model.fewer_stages:
            self.final |= {target for _, target, _ in self.turns}
        # The least that a microbatch takes behind a cut, and back in training, where it can.
        self.behind = defaultdict[State, dict[int, Time]](dict)
        for state in self.final:
            self.behind[state][self.last] = 0
        self._ends = functools.cache(lambda state: sorted(self.behind[state]))
        self._go_back()

    def _go_back(self) -> None:
        """Find what a microbatch takes behind each cut, from the end on."""
        passes = 1 + self.model.training
        for source, target, d in reversed(self.turns):  # all from the target came before
            own, rests = self.behind[source], self.behind[target]
            for at in range(self.last):
                self.claimed.step(at)
                found = [own[at]] if at in own else []
                if d == UNUSED:
                    found += [rests[at]] if at in rests else []
                else:
                    found += [
                        sum(taken[:passes]) + passes * self.lag[at] + rests[end]
                        for end in self.ends(target, at)
                        if (taken := self.look(d, at, end)) is not None
                    ]
                if found:
                    own[at] = min(found)

    def ends(self, state: State, at: int) -> list[int]:
        """Return the cuts behind one from which devices that are left may go on."""
        known = self._ends(state)
        return known[bisect_right(known, at) :]

    def look(self, d: int, at: int, end: int) -> Passes | None:
        """Return what a stage on device `d` takes, between the cuts `at` and `end`.

        None: no microbatch fits.
        """
        self._left -= 1
        self.claimed.step(64 * self._left)
        if self._left < 0:
            raise UnprovedError("there are too many stages")
        return self.passes(d, at, end)

    def _turns(self) -> Iterator[Turn]:
        """Yield how devices come to be used."""
        counts = self.counts
        if self.any_order:
            for used in product(*(range(count + 1) for count in counts.values())):
                self.claimed.step(0)
                for c, d in enumerate(counts):
                    if used[c] < counts[d]:
                        yield used, (*used[:c], used[c] + 1, *used[c + 1 :]), d
            return
        for passed, d in enumerate(self.device):
            yield (passed,), (passed + 1,), d
            if self.model.fewer_stages:
                yield (passed,), (passed + 1,), UNUSED

    def _passes(self, d: int, at: int, end: int) -> Passes | None:
        """Return what :meth:`look` does."""
        first, last = self.cuts[at], self.cuts[end]
        flying = self._flying(d, first, last)
        f: Time = self._cycles("forward", d, first, last)
        both: Time = 0
        if self.model.training:
            both = self._cycles("backward", d, first, last)
        halves = self.whole.split and not self._bare  # else what is split off is unknown
        b = both if not self.whole.split else Fraction(0)
        if halves:
            b = both - both // 2 if self.whole.resident else Fraction(both) / 2
        idle = f == 0 or (self.model.training and both < 1 + self.whole.split)
        idle = idle and self.whole.resident and not self._bare
        if flying and idle and self.claimed.bound is None:
            raise UnprovedError("a stage without cycles fits, and has no schedule")
        if flying == 0 or idle:
            return None
        f += waiting(self.model)
        return f, b, f + both, flying

    def _cycles(self, name: str, d: int, first: int, last: int) -> Time:
        """Return the cycles of a pass through the layers [first, last)."""
        table = self.model.compute_table
        if table is not None and not self.whole.rises:
            found: Time = Fraction((table if table.ndim == 2 else table[d])[first, last].item())
        else:
            found = max(0, self._sums[name][last] - self._sums[name][first])
        if self.speed[d] != 1:
            found = Fraction(found) / self.speed[d]
        return math.ceil(found) if self.whole.resident else found

    def _flying(self, d: int, first: int, last: int) -> int:
        """Return how many microbatches fit a device beside the layers [first, last)."""
        memory = self.model.cluster.devices[d].memory
        if memory is None or not self.whole.resident:
            return self.m
        left = memory - stage_memory(self.model, first, last, d, 0)
        sums = self._sums["stash"]
        each = self.model.training * int(
            sums[last] - sums[first] + int(self.model.kept_bytes[first])
        )
        if left < each or left < 0:
            return 0
        return min(self.m, left // each) if each else self.m

    def value(self, taken: Passes, rest: Any, longest: Time) -> Any:
        """Return what a step takes at least from when a microbatch comes to a stage.

        The stage has `taken` so much, the stages behind it take `rest`, and the `longest` stage
        before it so much.
        """
        f, b, w, c = taken
        if not self.model.training:
            return f + rest + (self.m - 1) * max(f, longest)
        rounds, trip = (self.m - 1) // c, f + rest
        left = self.m - rounds * c
        return max(
            self.m * w + max(0, trip - c * f),
            rounds * (trip + b) + left * w + max(0, trip - left * f),
        )

    def grown(self, turn: Turn, at: int, label: Label) -> Iterator[tuple[int, Label]]:
        """Yield the ends of stages from cut `at` that may stay below the bound, with labels."""
        _, target, d = turn
        longest, before = label
        begin = before + self.trips * self.lag[at]
        for end in self.ends(target, at):
            taken, rest = self.look(d, at, end), self.behind[target][end]
            if taken is None or begin + self.value(taken, rest, longest) >= self.bound:
                continue
            f, _, w, _ = taken
            if self.model.training:
                yield end, (0, begin + (f if self.whole.split else w))
            else:
                yield end, (max(f, longest), begin + f)

    def stages(self, state: State, at: int, label: Label) -> Iterator[list[tuple[int, int]]]:
        """Yield the stages from cut `at` on that may stay below the bound, by device and end."""
        if at == self.last:
            if state in self.final:
                yield []
            return
        for turn in self._from[state]:
            if turn[2] == UNUSED:
                yield from self.stages(turn[1], at, label)
            else:
                for end, more in self.grown(turn, at, label):
                    for others in self.stages(turn[1], end, more):
                        yield [(turn[2], end), *others]


def labels(whole: Whole, evidence: _Given, claimed: Claimed, most: int = MANY) -> None:
    """Show that no stages of a chain have a value below the bound, looking at `most` stages."""
    chain = Chain(whole, claimed, most)
    reached: dict[State, dict[int, list[Label]]] = defaultdict(lambda: defaultdict(list))
    reached[chain.turns[0][0]][0] = [(0, 0)]
    for source, target, d in chain.turns:
        for at, known in [*reached[source].items()]:
            if d == UNUSED:
                reached[target][at] = _least(reached[target][at] + known)
            for label in known if d != UNUSED and at < chain.last else ():
                for end, more in chain.grown((source, target, d), at, label):
                    reached[target][end] = _least([*reached[target][end], more])
    if any(reached[state][chain.last] for state in chain.final):
        raise UnprovedError("some stages may have a shorter step, or fit")


def _least(labels: list[Label]) -> list[Label]:
    """Return the labels that no other one is at most as large as in both."""
    kept: list[Label] = []
    for label in sorted(labels):
        if not kept or label[1] < kept[-1][1]:
            kept.append(label)
    return kept


def _limit(claimed: Claimed) -> int | float:
    return math.inf if claimed.bound is None else math.ceil(claimed.bound)


def _exact(values: list[Number]) -> list[Time]:
    return [value if isinstance(value, int) else Fraction(value) for value in values]


def _latencies(instance: PipelinePartition, cuts: list[int]) -> Iterator[int]:
    """Yield how long a tensor takes across each inner cut at least, in whole cycles."""
    clock = instance.cluster.clock
    ends = []
    for name, nbytes in (("send", instance.out_bytes), ("recv", instance.in_bytes)):
        links: set[Link | None] = {getattr(one, name) for one in instance.cluster.devices}
        table = getattr(instance, f"{name}_cycles")
        if table is not None:
            ends.append([math.ceil(min(column)) for column in table.T.tolist()])
        elif None in links:
            ends.append([0] * (instance.n + 1))
        else:
            paces = [(one.idle, one.GBps * 2**30 / clock) for one in links if one is not None]
            ends.append(
                [
                    min(math.ceil(idle + size / pace) for idle, pace in paces)
                    for size in nbytes.tolist()
                ]
            )
    for c in cuts[1:-1]:
        yield max(end[c] for end in ends)
