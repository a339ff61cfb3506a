"""Proofs of graph partitions: why no assignment is better, or none fits.

Times and traffic become whole ticks, rounded down where they have no small common unit: no load
grows.  Where links are unlike, all count as the fastest.  So all loads of a partition better than
claimed are below :attr:`_Form.limit` ticks, whatever a rule leaves out beside.

**work** (and **prices**): give every device a price y.  A block weighs at least the least y * time
over the devices where it may be, so all weights together are at most the sum of y * load, and some
load is at least the sum of weights over the sum of prices.  Likewise for bytes.  By itself, a block
takes its time, and its bytes, on whatever device holds it.  More devices than there are blocks
cannot all be used.

**anchor**: the device that holds block v pays for each tensor of v too, unless it holds all blocks
that share it.  Let each of these tensors hand its cost to blocks that share it, at most the time of
a block to each.  If one of them is not with v, the tensor is paid in full; if all are, they take at
least what they were handed.

**ideals**: stages are laid out from the last one to the first.  What the last stages hold together
is closed under "must not be before".  All such sets that can be had with loads below the limit, and
within all other rules, are listed; if the set of all blocks is not among them, nothing is better
than claimed.  A set that was had with no more devices of any kind, nor more stages, need not be
listed again where devices may stay empty: whatever follows it can follow there, with no more
stashes.  Sets whose rest exceeds the limit times the devices left are passed over.  Where stages
need not follow one another, any set will do; where their order does not matter either, the next
stage holds the first block left.  Before that, blocks that take neither time nor bytes follow a
neighbour, see :func:`_follow`; those of no time and at most `light` bytes may count as such, which
allows more partitions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from stagepack.evidence import Proof
from stagepack.instances.graph.data import GraphData
from stagepack.verify.rules import Claimed, Rules, UnprovedError, exact

FINE, BITS = 80, 64
"""Bits of a common unit of all figures; if it has more, ticks are so fine that the claimed value
has as many bits as the second one says."""
FEW = 10_000
"""Sets of stages up to which they are looked at where no evidence speaks of them."""
OBJECTIVES = ("sum", "overlap", "replicated", "memory", "forward+backward")

Key = tuple[int, ...]
Pairs = set[tuple[int, int]]


class _Kind(NamedTuple):
    """Devices that are alike: accelerators, which pay for traffic, or CPUs."""

    pays: bool
    speed: Fraction
    room: float


class _Form:
    """Blocks of nodes that share a device, tensors between them, and kinds of devices, in ticks.

    Parameters
    ----------
    instance, claimed
    block : list of int
        That of each node.
    held : tuple of two lists of int, optional
        Bytes and stashes of each block, where they are not all those of its nodes.
    """

    def __init__(
        self,
        instance: GraphData,
        claimed: Claimed,
        block: list[int],
        held: tuple[list[int], list[int]] | None = None,
    ) -> None:
        self.instance, self.block, self.n = instance, block, max(block) + 1
        objective = instance.objective.value
        if objective not in OBJECTIVES:
            raise UnprovedError(f"the objective {objective} is unknown")
        self.by_memory, self.shared = objective == "memory", objective == "replicated"
        self.added = objective in ("sum", "forward+backward")
        self.passes = 2 if objective == "forward+backward" else 1
        most = math.inf
        if self.by_memory and claimed.bound is not None:
            most = math.ceil(claimed.bound) - 1
        k = instance.accelerators
        rooms = [math.inf] * k if instance.capacity is None else instance.capacity.tolist()
        kinds = [
            _Kind(True, Fraction(str(speed)), min(room, most))
            for speed, room in zip(instance.speeds.tolist(), rooms, strict=True)
        ] + [_Kind(False, Fraction(1), most)] * instance.cpus
        self.kinds = list(dict.fromkeys(kinds))
        self.kind = [self.kinds.index(kind) for kind in kinds]
        columns = (instance.memory, instance.stash, instance.parameters)
        self.memory, self.stash, self.parameters = (self._added(c.tolist()) for c in columns)
        self.memory, self.stash = held or (self.memory, self.stash)
        which = [self.passes - 1 and int(p) for p in instance.backward.tolist()]
        bandwidth: Any = instance.bandwidth
        fastest = Fraction(str(bandwidth if instance.uniform else bandwidth.max().item()))
        self.sync = 4 / fastest if self.shared else Fraction(0)
        traffic = {} if self.by_memory else self._traffic(which)
        times = [self._times(kind, which) for kind in self.kinds]
        figures = [f for rows in times for row in rows for f in row]
        costs = [amount / fastest for amount in traffic.values()]
        shares = math.lcm(*range(1, instance.devices + 1)) if self.shared else 1
        self.scale = Fraction(math.lcm(*{f.denominator for f in (*figures, *costs, self.sync)}))
        self.scale *= shares**2
        if self.scale >= 2**FINE:
            size = claimed.bound or max((*figures, *costs))
            self.scale = Fraction(2) ** (BITS - size.numerator.bit_length())
            self.scale *= 2 ** size.denominator.bit_length()
        barred = [
            {block[v] for v in range(instance.n) if not may[v]}
            for may in (instance.cpu.tolist(), instance.accelerator.tolist())
        ]
        least = [a + b for a, b in zip(self.memory, self.stash, strict=True)]
        self.time: list[list[list[Any]]] = [
            [
                [
                    None if b in barred[kind.pays] or least[b] > kind.room else self._ticks(f)
                    for b, f in enumerate(row)
                ]
                for row in rows
            ]
            for kind, rows in zip(self.kinds, times, strict=True)
        ]
        self.nets = [(*key, self._ticks(f)) for key, f in zip(traffic, costs, strict=True)]
        self.sync *= self.scale
        self.limit = math.inf if claimed.bound is None else self._least_ticks(claimed.bound)
        self.least = [self.weights(p, [1] * len(self.kinds)) for p in range(self.passes)]

    def _ticks(self, value: Fraction) -> int:
        return 0 if self.by_memory else math.floor(value * self.scale)

    def _least_ticks(self, bound: Fraction) -> int:
        """Return the least ticks that, told as a float where they are not whole, are not below."""
        if self.by_memory or abs(bound) >= 2**53 or Fraction(float(bound)) != bound:
            return math.ceil(bound if self.by_memory else bound * self.scale)
        middle = (bound + Fraction(math.nextafter(float(bound), -math.inf))) / 2
        least = math.floor(middle * self.scale) + 1
        return least - ((least - 1) / self.scale == middle and float(middle) == bound)

    def _added(self, values: list[Any], which: list[int] | None = None, p: int = 0) -> list[Any]:
        """Return the exact sum of each block; of the nodes of one pass only."""
        found: list[Any] = [0] * self.n
        for node, value in enumerate(values):
            if which is None or which[node] == p:
                found[self.block[node]] += value if isinstance(value, int) else Fraction(value)
        return found

    def _times(self, kind: _Kind, which: list[int]) -> list[list[Fraction]]:
        column = (self.instance.time if kind.pays else self.instance.cpu_time).tolist()
        sums = [self._added(column, which, p) for p in range(self.passes)]
        return [[Fraction(total) / kind.speed for total in row] for row in sums]

    def _traffic(self, which: list[int]) -> dict[tuple[int, int, frozenset[int]], Fraction]:
        """Return traffic by pass, producer and readers elsewhere."""
        instance, block = self.instance, self.block
        readers = [block[v] for v in instance.consumers.tolist()]
        found: dict[tuple[int, int, frozenset[int]], Fraction] = {}
        ends = itertools.pairwise(instance.consumer_ptr.tolist())
        rows = zip(instance.producer.tolist(), ends, instance.traffic.tolist(), strict=True)
        for node, (low, high), amount in rows:
            others = frozenset(readers[low:high]) - {block[node]}
            if others and amount:
                key = which[node], block[node], others
                found[key] = found.get(key, Fraction(0)) + Fraction(amount)
        return found

    def weights(self, p: int, prices: list[Any]) -> list[Any]:
        """Return what each block weighs at least, at prices of the kinds of devices."""
        kinds = [(y, rows[p]) for y, rows in zip(prices, self.time, strict=True)]
        return [
            min((y * row[b] for y, row in kinds if row[b] is not None), default=math.inf)
            for b in range(self.n)
        ]

    @property
    def pairs(self) -> Pairs:
        """Blocks (u, v) of which the stage of u must not be after that of v."""
        if not self.instance.contiguous:
            return set()
        ends = [[self.block[v] for v in pair] for pair in self.instance.precedence.tolist()]
        return {(u, v) for u, v in ends if u != v}


def _numbered(names: Iterable[Any]) -> list[int]:
    """Return a number for each name, the same for the same."""
    number: dict[Any, int] = {}
    return [number.setdefault(name, len(number)) for name in names]


def _form(instance: GraphData, claimed: Claimed) -> _Form:
    """Return the form in which all nodes that must share a device are a block."""
    colours = enumerate(instance.colour.tolist())
    form = _Form(instance, claimed, _numbered((c >= 0, c if c >= 0 else v) for v, c in colours))
    if form.n == instance.n or not instance.contiguous:
        return form
    lead = _circles(form)
    return _Form(instance, claimed, _numbered(lead[b] for b in form.block))


def _circles(form: _Form) -> list[int]:
    """Return for each block one of those that must neither be before nor after it.

    Source: Kosaraju's two searches, the second one against the arcs.
    """
    arcs: list[list[list[int]]] = [[[] for _ in range(form.n)] for _ in range(2)]
    for u, v in sorted(form.pairs):
        arcs[0][u].append(v)
        arcs[1][v].append(u)
    lead, left = [-1] * form.n, list(range(form.n))
    for ways in arcs:
        lead, ended = [-1] * form.n, []
        for root in left:
            stack = [root] if lead[root] < 0 else []
            while stack:
                b = stack.pop()
                if b < 0:
                    ended.append(~b)
                elif lead[b] < 0:
                    lead[b] = root
                    stack += [~b, *ways[b]]
        left = ended[::-1]
    return lead


# ---------------------------------------------------------------------- without search


def work(instance: GraphData, evidence: Mapping[str, Any], claimed: Claimed) -> None:
    """Show that all devices together cannot hold all blocks, or no device one of them."""
    form = _form(instance, claimed)
    crowded = not (instance.empty_devices or form.shared) and instance.devices > form.n
    # A stage of whatever place keeps one stash or more.
    held, room = sum(form.memory) + sum(form.stash), sum(form.kinds[c].room for c in form.kind)
    if crowded or held > room:
        return
    least = Fraction(0)
    for p, given in enumerate(evidence.get("prices", [[1] * instance.devices] * form.passes)):
        prices = [exact(price) for price in given]
        if len(prices) != instance.devices or min(prices) < 0 or not sum(prices):
            raise UnprovedError("each device needs a price of at least 0, and one more")
        alone = max(form.least[p])
        if alone == math.inf:
            return
        dear = [
            min(y for y, c in zip(prices, form.kind, strict=True) if c == kind)
            for kind in range(len(form.kinds))
        ]
        share = Fraction(sum(form.weights(p, dear))) / sum(prices)
        least += share if form.shared else max(math.ceil(share), alone)
    if form.by_memory or least < form.limit:
        raise UnprovedError("devices may hold their share of the work")


def anchor(instance: GraphData, evidence: Mapping[str, Any], claimed: Claimed) -> None:
    """Show that whatever device holds a block is busy with it and what is around it."""
    form = _form(instance, claimed)
    if instance.objective.value != "sum":
        raise UnprovedError("is for the objective sum")
    v = form.block[evidence["node"]]
    rows = [(kind.pays, rows[0]) for kind, rows in zip(form.kinds, form.time, strict=True)]
    if any(not pays and row[v] is not None and row[v] < form.limit for pays, row in rows):
        raise UnprovedError("a CPU may hold the block")
    # A block that may be on no accelerator is never with v there: its tensors are paid.
    left: list[Any] = [
        min((row[b] for pays, row in rows if pays and row[b] is not None), default=math.inf)
        for b in range(form.n)
    ]
    busy = left[v]
    for _, producer, readers, cost in form.nets:
        sharing = {producer, *readers}
        for b in sharing - {v} if v in sharing else ():
            handed = min(cost, left[b])
            left[b], cost, busy = left[b] - handed, cost - handed, busy + handed
    if busy < form.limit:
        raise UnprovedError("the block and what is around it take less")


# ---------------------------------------------------------------------- blocks that stay together


def _follow(form: _Form, light: int) -> tuple[list[int], list[int], list[int]]:
    """Return for each block the one that it follows, perhaps itself, and bytes and stashes.

    A block v of no time and no bytes may follow u, its only neighbour before or after it, or any if
    it has neither, that shares all tensors of v.  Take any partition and move v to where u is: the
    order of stages stays right, no device works longer, and no tensor is anywhere where it was not;
    it costs no more if v does not send it to others than u, or if sending and receiving are added
    up.  If v was alone, there is a stage less, and no stage before it keeps more stashes.
    """
    instance, n = form.instance, form.n
    flying = min(instance.microbatches, instance.devices)
    many = [a + flying * b for a, b in zip(form.memory, form.stash, strict=True)]
    plenty = not form.by_memory and sum(many) <= min(kind.room for kind in form.kinds)
    idle = [not any(row[b] != 0 for rows in form.time for row in rows) for b in range(n)]
    none = [plenty or (idle[b] and many[b] <= light) for b in range(n)]
    memory = [0 if none[b] else a for b, a in enumerate(form.memory)]
    stash = [0 if none[b] else a for b, a in enumerate(form.stash)]
    free = {b for b in range(n) if idle[b] and not (memory[b] or stash[b] or form.parameters[b])}
    before, after = ([set[int]() for _ in range(n)] for _ in range(2))
    for u, v in form.pairs:
        before[v].add(u)
        after[u].add(v)
    members = [{net[1], *net[2]} for net in form.nets]
    of = [set[int]() for _ in range(n)]
    for t, sharing in enumerate(members):
        for b in sharing:
            of[b].add(t)
    host, waiting = list(range(n)), sorted(free) if instance.empty_devices else []
    while waiting:
        v = waiting.pop()
        near = [u for side in (before[v], after[v]) if len(side) == 1 for u in side]
        if not before[v] and not after[v] and of[v]:
            near = sorted(members[min(of[v])] - {v})
        sends = {t for t in of[v] if form.nets[t][1] == v and not form.added}
        if host[v] != v or any(len(members[t]) > 2 for t in sends):
            continue
        u = next((u for u in near if all(u in members[t] for t in of[v])), v)
        if u == v:
            continue
        host[v] = u
        for mine, theirs in ((before, after), (after, before)):
            for w in mine[v]:
                theirs[w] = (theirs[w] - {v}) | ({u} - {w})
                mine[u] |= {w} - {u}
        for t in of[v]:
            members[t].discard(v)
            of[u] -= {t} if len(members[t]) == 1 else set()
        around = {u}.union(before[u], after[u], before[v], after[v], *(members[t] for t in of[v]))
        waiting += sorted(free & around - {v})
    for v in range(n):
        while host[host[v]] != host[v]:
            host[v] = host[host[v]]
    return host, memory, stash


def _bits(mask: int) -> Iterator[int]:
    """Yield the places of the bits of a number."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


def _settled(instance: GraphData, claimed: Claimed, light: int) -> _Form:
    """Return the form in which all blocks that may be one are one."""
    form = _form(instance, claimed)
    host, *columns = _follow(form, light)
    place = _numbered(host)
    sums = [[0] * (max(place) + 1) for _ in columns]
    for column, total in zip(columns, sums, strict=True):
        for b, amount in enumerate(column):
            total[place[b]] += amount
    return _Form(instance, claimed, [place[b] for b in form.block], (sums[0], sums[1]))


# ---------------------------------------------------------------------- all ideals


class _Ideals:
    """The sets of blocks that the last stages may hold, as bits.

    What a stage holds is told by counters: the load of each pass where all is added up, else time,
    what is sent, what is received, and the parameters that replicas exchange.
    """

    def __init__(self, form: _Form, claimed: Claimed, most: float) -> None:
        self._form, self._claimed, self._most, self._steps = form, claimed, most, 0
        self._each = 1 << min(12, form.n.bit_length() // 2)  # a set is looked at bit by bit
        instance = form.instance
        limited = form.by_memory or instance.capacity is not None
        positions = limited and instance.microbatches > 1 and any(form.stash)
        self._anyhow = not instance.contiguous and not positions
        fixed = instance.device_order.value == "fixed" and not self._anyhow
        self._by_kind, self._every = not (fixed or form.shared), not instance.empty_devices
        self._all = (1 << form.n) - 1
        self._needs, self._frees = [0] * form.n, [list[int]() for _ in range(form.n)]
        for u, v in form.pairs:
            self._needs[u] |= 1 << v
            self._frees[v].append(u)
        self._ready = {0: [b for b in range(form.n) if not self._needs[b]]}
        self._rest = {0: sum(form.least[-1])}
        self._of = [list[tuple[int, int, int, int, int]]() for _ in range(form.n)]
        for p, producer, readers, cost in form.nets:
            slots = (p, p) if form.added else (1, 2)
            mask = sum(1 << b for b in readers) | 1 << producer
            for b in {producer, *readers}:
                self._of[b].append((*slots, 1 << producer, mask, cost))

    def least_first(self, limit: float) -> float:
        """Return the least of the largest loads of the first of two passes; inf: there are none.

        Those of the last pass, or of the only one, are below the limit; 0 where there is one.
        """
        least, kinds = math.inf, len(self._form.kinds) if self._by_kind else 1
        # Devices used, of each kind or in all, and stages; of each set the least first load.
        found: dict[Key, dict[int, float]] = {(0,) * (kinds + 1): {0: 0}}
        done: dict[Key, dict[int, float]] = {}
        while found:
            key = min(found)
            new = found.pop(key)
            if not self._every:
                under = [done[k] for k in done if all(a <= b for a, b in zip(k, key, strict=True))]
                new = {i: v for i, v in new.items() if all(u.get(i, math.inf) > v for u in under)}
            done[key] = new
            for c, m, then, left in self._moves(key):
                here = found.setdefault(then, {})
                for ideal, value in new.items():
                    for more, first in self._stages(ideal, c, m, key[-1] + 1, limit):
                        most = max(value, first)
                        if more == self._all:
                            least = least if self._every and left else min(least, most)
                        elif self._rest[more] < left * limit:
                            here[more] = min(most, here.get(more, math.inf))
        return least

    def _moves(self, key: Key) -> Iterator[tuple[int, int, Key, int]]:
        """Yield kind and number of the devices of a next stage, the key then, and devices left."""
        form, k = self._form, self._form.instance.devices
        if self._by_kind:
            for c in range(len(form.kinds)):
                if key[c] < form.kind.count(c):
                    then = (*key[:c], key[c] + 1, *key[c + 1 : -1], key[-1] + 1)
                    yield c, 1, then, k - then[-1]
            return
        used, stages = key
        for more in range(1, k - used + 1):
            then, left = (used + more, stages + 1), k - used - more
            if form.shared:
                yield 0, more, then, left
            elif more == 1 or not self._every:
                yield form.kind[left], 1, then, left

    def _stages(
        self, ideal: int, c: int, m: int, place: int, limit: float
    ) -> Iterator[tuple[int, float]]:
        """Yield what is held with one more stage, and the load of its first of two passes."""
        form, last = self._form, self._form.passes - 1
        rows, room, pays = form.time[c], form.kinds[c].room, form.kinds[c].pays
        flying = min(form.instance.microbatches, place)
        starts = self._ready[ideal]
        if self._anyhow:
            starts = [next(b for b in range(form.n) if not ideal >> b & 1)]
        stack = [(ideal, b, 0, 0, [0, 0] if form.added else [0] * 4) for b in starts]
        seen = set()
        while stack:
            held, b, time, size, loads = stack.pop()
            more = held | 1 << b
            if more in seen or rows[last][b] is None:
                continue
            seen.add(more)
            self._enter(held, b, more)
            time += rows[last][b]
            size += form.memory[b] + flying * form.stash[b]
            if time < limit * m and size <= room:
                loads = self._with(loads, rows, b, held & ~ideal, pays)
                if form.by_memory or self._fits(loads, m, limit):
                    yield more, loads[0] if last else 0
                stack += [(more, then, time, size, loads) for then in self._ready[more]]

    def _with(self, loads: list[int], rows: list[Any], b: int, stage: int, pays: bool) -> list[int]:
        """Return the counters of a stage that gets one more block."""
        found, more = loads[:], stage | 1 << b
        for p, row in enumerate(rows):
            found[p] += row[b]
        if not self._form.added:
            found[3] += self._form.parameters[b]
        for sent, received, producer, mask, cost in self._of[b] if pays else ():
            if producer >> b & 1:
                found[received] -= cost if stage & mask else 0
                found[sent] += cost if mask & ~more else 0
            elif stage & producer:
                found[sent] -= 0 if mask & ~more else cost
            elif not stage & mask:
                found[received] += cost
        return found

    def _fits(self, loads: list[int], m: int, limit: float) -> bool:
        """Whether m devices that share a stage are busy for less than the limit."""
        if self._form.added:
            return loads[self._form.passes - 1] < limit
        time = loads[0] * m + self._form.sync * loads[3] * (m - 1)
        return time < limit * m * m and max(loads[1:3]) < limit * m

    def _enter(self, held: int, b: int, more: int) -> None:
        """Count a set and, when it is met first, note what may follow it and what is left."""
        self._steps += 1
        self._claimed.step(self._steps * self._each)
        if self._steps > self._most:
            raise UnprovedError("there are too many ideals")
        if more not in self._ready:
            freed = [o for o in self._frees[b] if not self._needs[o] & ~more]
            self._ready[more] = [o for o in self._ready[held] if o != b] + freed
            self._rest[more] = self._rest[held] - self._form.least[-1][b]


def ideals(instance: GraphData, evidence: Mapping[str, Any], claimed: Claimed) -> None:
    """Show by all ideals that no partition is better, or that there is none."""
    _refute(_settled(instance, claimed, int(evidence.get("light", 0))), claimed, math.inf)


def few_ideals(instance: GraphData, evidence: Mapping[str, Any], claimed: Claimed) -> None:
    """Do the same where there are few."""
    if instance.n > FEW:
        raise UnprovedError("there are too many nodes")
    _refute(_settled(instance, claimed, 0), claimed, FEW)


def _refute(form: _Form, claimed: Claimed, most: float) -> None:
    """Raise an error if some partition is better.

    Of two passes, let all partitions with a last load below limit - x have a first one of at least
    y > x.  Then those with a first one from x to y are no better than the limit.
    """
    if math.inf in form.least[-1]:
        return
    listed, first = _Ideals(form, claimed, most), 0.0
    while first < math.inf:
        least = listed.least_first(form.limit - first)
        if least <= first:
            raise UnprovedError("some partition is better")
        first = least


RULES: Rules = {
    "work": (Proof.WITNESS, work),
    "anchor": (Proof.WITNESS, anchor),
    "prices": (Proof.DUAL, work),
    "ideals": (Proof.LOG, ideals),
    "few-ideals": (Proof.LOG, few_ideals),
}

UNAIDED = ("work", "few-ideals")
"""Rules that need no evidence, in the order in which they are tried."""
