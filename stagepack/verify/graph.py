"""Proofs of graph partitions: why no assignment is better, or none fits.

All figures become whole ticks.  Rules that are left out allow more partitions only: that devices
have an order, or must all be used; that earlier stages keep more stashes; and where links are
unlike, all count as the fastest.  For the objective `memory` the times are bytes.  For
`forward+backward` each pass has times and tensors of its own, and what is added up are the largest
loads of both, which may be those of different devices.  For `replicated` a stage may have several
devices, which share what it does, and exchange parameters.

**work**: a block, the nodes of one colour, takes its time on whatever device holds it, and its
bytes.  So some load is at least that of any block, unless devices share it, and at least an equal
share of all; in each pass.

**cut**: the same with a flow, for objectives that add up.  A tensor may hand time to some of its
blocks and take as much from others, no more than it costs: a device that holds some of its blocks
and not all pays that much, and one that holds all got nothing in sum.  So every device is busy for
at least the times of its blocks with what they were handed.  Where none of these is negative, some
device is for at least the greatest of them.

**dual**: whole multipliers of linear rows that all partitions below the limit keep to, see
:func:`rows`.  No values between 0 and 1 have the sum that they add up to.

**ideals**: stages are laid out from the last one to the first.  What the last stages hold together
is an ideal: all that must not be before any of it is in it, too.  All ideals that can be had with
loads below the limit are listed; if the set of all blocks is not among them, nothing is better than
claimed.  An ideal that was had with no more devices of any kind, and no larger loads in either
pass, need not be listed again: whatever follows it can follow there.  Those whose rest is too much
for the devices left are passed over.  Of devices that share a stage the fewest that do are taken.
Blocks that must neither be before nor after one another share a stage, and count as one; so do some
that take neither time nor bytes, see :func:`_hosts`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from itertools import chain, compress, product
from operator import le
from typing import TYPE_CHECKING, Any, NamedTuple

from stagepack.evidence import Proof
from stagepack.verify.rules import Claimed, Rules, UnprovedError, exact

if TYPE_CHECKING:
    from stagepack.instances.graph.data import GraphData

FEW, MANY = 30_000, 2_000_000
"""Stages up to which they are looked at where no evidence speaks of them, and where some does."""
MOST = 2_000
"""Blocks up to which ideals are looked at."""
SHARED = 64
"""Devices up to which these may share stages."""
OBJECTIVES = ("sum", "overlap", "memory", "forward+backward", "replicated")
Row = tuple[list[tuple[int, int, int]], float]
"""Variables with their factors, and what the sum is at most."""


_Given = Mapping[str, Any]


class _Kind(NamedTuple):
    """Devices that are alike: accelerators, which pay for traffic, or CPUs."""

    pays: bool
    speed: Fraction
    room: float


class Net(NamedTuple):
    """A tensor: the block of its producer, those that read it, its ticks, and of which pass."""

    producer: int
    readers: frozenset[int]
    cost: int
    backward: bool


class Form:
    """Blocks of nodes that share a device, tensors between them, and kinds of devices, in ticks.

    `block`: that of each node.  Nodes that take no time, and no more bytes than `light`, count as
    if they had none.
    """

    def __init__(self, instance: GraphData, claimed: Claimed, block: list[int], light: float = 0):
        self.instance, self.block, self.n = instance, block, max(block) + 1
        objective = instance.objective.value
        if objective not in OBJECTIVES:
            raise UnprovedError(f"the objective {objective} is not looked at")
        self.shared, self.by_memory = objective == "replicated", objective == "memory"
        self.added = objective in ("sum", "forward+backward")
        self.passes = 1 + (objective == "forward+backward")
        if self.shared and instance.devices > SHARED:
            raise UnprovedError("too many devices may share a stage")
        # A stage of whatever place keeps one stash or more.
        held = instance.memory, instance.stash, instance.time, instance.cpu_time
        rows = zip(*(column.tolist() for column in held), strict=True)
        light = 0 if self.by_memory else light
        self.size = self._sums(a + b if any(t) or a + b > light else 0 for a, b, *t in rows)
        speeds, capacity = instance.speeds.tolist(), instance.capacity
        rooms = [math.inf] * len(speeds) if capacity is None else capacity.tolist()
        ends = zip(speeds, rooms, strict=True)
        devices = [_Kind(True, Fraction(1 if self.by_memory else str(v)), room) for v, room in ends]
        devices += [_Kind(False, Fraction(1), math.inf)] * instance.cpus
        self.kinds = list(dict.fromkeys(devices))
        self.kind = [self.kinds.index(kind) for kind in devices]
        works = [[self._work(kind, p) for kind in self.kinds] for p in range(self.passes)]
        costs, exchanged = self._traffic(), [Fraction(0)] * self.n
        if self.shared:
            pace = Fraction(str(instance.bandwidth))
            exchanged = [4 * nbytes / pace for nbytes in self._sums(instance.parameters.tolist())]
        figures = [*chain(*chain(*works)), *costs.values(), *exchanged]
        scale = math.lcm(*{figure.denominator for figure in figures})
        if self.shared:  # m devices take an m-th each, and exchange an m-th of that
            scale *= math.lcm(*range(1, instance.devices + 1)) ** 2
        barred = [self._sums((~may).tolist()) for may in (instance.cpu, instance.accelerator)]
        self.parts: list[list[list[Any]]] = [[] for _ in works]
        for which, (c, kind) in product(range(self.passes), enumerate(self.kinds)):
            rows = zip(works[which][c], barred[kind.pays], self.size, strict=True)
            ticks = [
                math.inf if no or nbytes > kind.room else int(f * scale) for f, no, nbytes in rows
            ]
            self.parts[which].append(ticks)
        both = zip(*self.parts, strict=True)
        self.time = [[sum(times) for times in zip(*rows, strict=True)] for rows in both]
        self.nets = [Net(p, r, int(cost * scale), back) for (p, r, back), cost in costs.items()]
        self.exchanged = [int(figure * scale) for figure in exchanged]
        self.limit = math.inf if claimed.bound is None else _least_ticks(claimed.bound, scale)
        self.least = [min(column) for column in zip(*self.time, strict=True)]

    def _work(self, kind: _Kind, which: int) -> list[Fraction]:
        """Return the times of blocks on a kind of device, in one pass of two, or in all."""
        column = self.instance.time if kind.pays else self.instance.cpu_time
        if self.by_memory:
            return [Fraction(nbytes) for nbytes in self.size]
        passes, times = self.instance.backward.tolist(), column.tolist()
        if self.passes > 1:
            times = [t if back == which else 0 for t, back in zip(times, passes, strict=True)]
        return [Fraction(t) / kind.speed for t in self._sums(times)]

    def _sums(self, values: Iterable[Any]) -> list[Any]:
        """Return the exact sum of each block."""
        found: list[Any] = [0] * self.n
        for b, value in zip(self.block, values, strict=True):
            found[b] += value if isinstance(value, int) else Fraction(value)
        return found

    def _traffic(self) -> dict[tuple[int, frozenset[int], bool], Fraction]:
        """Return the times of tensors by their producer, those that read them, and the pass."""
        instance, found = self.instance, dict[tuple[int, frozenset[int], bool], Fraction]()
        bandwidth: Any = instance.bandwidth
        fastest = Fraction(str(bandwidth if instance.uniform else bandwidth.max().item()))
        ends, readers = instance.consumer_ptr.tolist(), instance.consumers.tolist()
        rows = zip(instance.producer.tolist(), instance.traffic.tolist(), strict=True)
        for t, (node, amount) in enumerate(rows if not self.by_memory else ()):
            others = frozenset(self.block[v] for v in readers[ends[t] : ends[t + 1]])
            back = self.passes > 1 and bool(instance.backward[node])
            key = self.block[node], others - {self.block[node]}, back
            if key[1] and amount:
                found[key] = found.get(key, Fraction(0)) + Fraction(amount) / fastest
        return found

    @property
    def pairs(self) -> set[tuple[int, int]]:
        """Blocks (u, v) of which the stage of u must not be after that of v."""
        rows = self.instance.precedence.tolist() if self.instance.contiguous else []
        return {(self.block[u], self.block[v]) for u, v in rows if self.block[u] != self.block[v]}


def _least_ticks(bound: Fraction, scale: int) -> int:
    """Return the least ticks that, told as a float where they are not whole, are not below."""
    if bound.denominator > 1 and Fraction(float(bound)) == bound:
        middle = (bound + Fraction(math.nextafter(float(bound), -math.inf))) / 2
        return math.floor(middle * scale) + 1
    return math.ceil(bound * scale)


def _numbered(names: list[Any]) -> list[int]:
    """Return a number for each name, the same for the same."""
    number: dict[Any, int] = {}
    return [number.setdefault(name, len(number)) for name in names]


def coloured(instance: GraphData, claimed: Claimed, light: float = 0) -> Form:
    """Return the form in which all nodes of a colour are a block; see :class:`Form` for `light`."""
    colours = enumerate(instance.colour.tolist())
    block = _numbered([(c, -1 if c >= 0 else v) for v, c in colours])
    return Form(instance, claimed, block, light)


def settled(instance: GraphData, claimed: Claimed, light: float = 0) -> Form:
    """Return the form in which all that may as well share a device is a block; `light` likewise."""
    form = coloured(instance, claimed, light)
    if form.n > MOST:
        raise UnprovedError("there are too many nodes")
    names = _reached(form, claimed)  # those of a circle are the same
    while names != list(range(form.n)):
        form = Form(instance, claimed, _numbered([names[b] for b in form.block]), light)
        names = _hosts(form)
    return form


def _hosts(form: Form) -> list[int]:
    """Return for each block the one that it follows, itself for most.

    A block v of no time and no bytes may follow u, its only neighbour before or after it, that
    shares all tensors of v.  Take any partition and move v to where u is: the order of stages stays
    right, no device works longer, and no tensor is where it was not.  Where sending and receiving
    are not added up, v must have no tensors: u might send what it received.
    """
    pairs, host = form.pairs, list(range(form.n))
    for v in host[:]:
        takes = form.size[v] or form.exchanged[v] or any(row[v] for row in form.time)
        if takes or host.count(v) > 1:
            continue
        nets = [{p, *readers} for p, readers, *_ in form.nets if v == p or v in readers]
        sides = {u for u, w in pairs if w == v}, {w for u, w in pairs if u == v}
        for u in (min(side) for side in sides if len(side) == 1 and (form.added or not nets)):
            if host[u] == u and all(u in members for members in nets):
                host[v] = u
    return host


def work(instance: GraphData, evidence: _Given, claimed: Claimed) -> None:
    """Show that all devices together cannot hold all blocks, or no device one of them."""
    form, least = coloured(instance, claimed), 0
    crowded = instance.devices > form.n and not (instance.empty_devices or form.shared)
    room = sum(form.kinds[c].room for c in form.kind)
    if crowded or sum(form.size) > room or math.inf in form.least:
        return
    handed: list[Any] = [0] * form.n
    for net, given in zip(form.nets, evidence.get("flow", ()), strict=False):
        producer, readers, cost, _ = net
        amounts = [exact(amount) for amount in given]
        if not form.added or sum(amounts) != 0 or sum(map(abs, amounts)) > 2 * cost:
            raise UnprovedError("a tensor hands out more than it costs, or than it takes")
        for b, amount in zip(sorted({producer, *readers}), amounts, strict=bool(amounts)):
            handed[b] += amount
    rows = zip(form.kinds, form.time, strict=True)
    each = [[row[b] + a * kind.pays for b, a in enumerate(handed)] for kind, row in rows]
    busy = [min(column) for column in zip(*each, strict=True)]
    for part in form.parts:
        alone = [min(column) for column in zip(*part, strict=True)]
        share = -(-sum(alone) // instance.devices)
        least += share if form.shared else max(share, *alone)
    if min(busy) < 0 or max(0 if form.shared else max(busy), least) < form.limit:
        raise UnprovedError("devices may hold their share of the work")


def places(form: Form, claimed: Claimed) -> tuple[list[int], list[int]]:
    """Return the first and the last slot of each block, for the work before and after it.

    All work before a block, with itself, is on its slot and those before, each below the limit.
    """
    k, nets, most = form.instance.devices, len(form.nets), max(1, form.limit - 1)
    leads = [[mask >> b & 1 for b in range(form.n)] for mask in _reached(form, claimed)]
    after, before = (
        [int(-(-sum(compress(form.least, row)) // most)) for row in side]
        for side in (leads, zip(*leads, strict=True))
    )
    first, last = [max(0, c - 1) for c in before], [min(k - 1, k - c) for c in after]
    return first + [0] * nets, last + [k] * nets


def rows(form: Form) -> Iterator[Row]:
    """Yield linear rows that partitions below the limit keep to.

    Slots are devices in the order of stages; they are alike, or their order is fixed.  A variable
    (v, s) says whether block v is on slot s or an earlier one; it is 0 before the first of
    :func:`places`, and 1 from the last one on.  Variables (n + j, s) say whether slot s has some
    block of tensor j and not all: it sends it, or receives it.  Last come the loads: of each slot,
    or of two passes, that of one slot in the first and that of any in the second.
    """
    k, n, most = form.instance.devices, form.n, form.limit - 1
    if len(form.kinds) > 1 and form.instance.device_order.value != "fixed":
        raise UnprovedError("devices have no order")
    if form.shared:
        raise UnprovedError("devices may share a stage")
    for v, s in product(range(n), range(k)):
        yield [(v, s - 1, 1), (v, s, -1)], 0
    for (u, v), s in product(sorted(form.pairs), range(k)):
        yield [(v, s, 1), (u, s, -1)], 0
    for j, (producer, readers, *_) in enumerate(form.nets, n):
        for b, s in product(sorted(readers), range(k)):
            for u, v in ((producer, b), (b, producer)):
                yield [(u, s, 1), (u, s - 1, -1), (v, s, -1), (v, s - 1, 1), (j, s, -1)], 0
    loads: list[list[list[tuple[int, int, int]]]] = []
    for which, part in enumerate(form.parts):
        loads.append([])
        for s, c in enumerate(form.kind):
            times = [(v, t) for v, t in enumerate(part[c]) if t < math.inf]
            load = [(v, s - i, t - 2 * i * t) for v, t in times for i in (0, 1)]
            if form.added and form.kinds[c].pays:
                nets = enumerate(form.nets, n)
                load += [(j, s, net.cost) for j, net in nets if net.backward == which]
            loads[-1].append(load)
    for chosen in product(*loads):
        yield [*chain(*chosen)], most


def dual(instance: GraphData, evidence: _Given, claimed: Claimed) -> None:
    """Show that a sum of rows cannot be kept to by values between 0 and 1."""
    form, total, left = settled(instance, claimed), Counter[tuple[int, int]](), Fraction(0)
    if math.inf in form.least:
        return
    first, last = places(form, claimed)
    given = {at: times for at, times in evidence["times"] if isinstance(times, int) and times > 0}
    for at, (terms, most) in enumerate(rows(form)):
        claimed.step(at)
        times = given.get(at, 0)
        left += times and times * exact(most)
        for v, s, factor in terms if times else ():
            if s >= last[v]:
                left -= times * factor
            elif s >= first[v]:
                total[v, s] += times * factor
    if sum(min(0, factor) for factor in total.values()) <= left:
        raise UnprovedError("the rows can be kept to")


class _Ideals:
    """The sets of blocks that the last stages may hold, as bits."""

    def __init__(self, form: Form, claimed: Claimed, most: int) -> None:
        self._form, self._claimed, self._most, self._steps = form, claimed, most, 0
        self._each = 1 << min(12, form.n.bit_length() // 2)  # a set is looked at bit by bit
        self._needs = [0] * form.n
        for u, v in form.pairs:
            self._needs[u] |= 1 << v
        # Of each block its tensors: producer and members as bits, ticks, and pass.
        self._of = [list[tuple[int, int, int, bool]]() for _ in range(form.n)]
        for producer, readers, cost, back in form.nets:
            members = sum(1 << b for b in {producer, *readers})
            for b in {producer, *readers}:
                self._of[b].append((1 << producer, members, cost, back))
        self._known: dict[int, tuple[list[int], list[int]]] = {}
        self._least = [[min(column) for column in zip(*part, strict=True)] for part in form.parts]
        self._apart = (form.parts[1:] or [[form.exchanged] * len(form.kinds)])[0]

    def refuted(self) -> bool:
        """Whether no partition is better."""
        form, every = self._form, (1 << self._form.n) - 1
        # How many devices of each kind the last stages took, and, of two passes, the largest loads.
        none = (0,) * (len(form.kinds) + 2 * (form.passes > 1))
        layer, listed = [(0, none)], {0: [none]}
        while layer:
            then = []
            for ideal, label in layer:
                for c, count in sorted(Counter(form.kind).items()):
                    if label[c] == count:
                        continue
                    for more, devices, *loads in self._stages(ideal, c, count - label[c]):
                        peaks = tuple(map(max, label[len(form.kinds) :], loads))
                        if sum(peaks) >= form.limit:
                            continue
                        if more == every:
                            return False
                        used = (*label[:c], label[c] + devices, *label[c + 1 : len(form.kinds)])
                        now, others = (*used, *peaks), listed.setdefault(more, [])
                        if any(all(map(le, o, now)) for o in others):
                            continue
                        others.append(now)
                        left = form.instance.devices - sum(used)
                        rests = self._seen(more)[1]
                        if left and self._shares(rests, left, peaks) < form.limit:
                            then.append((more, now))
            layer = then
        return True

    def _shares(self, rests: list[int], left: int, peaks: tuple[int, ...]) -> int:
        """Return the least objective where so many devices are left for the rest."""
        pairs = zip(rests, peaks or (0,), strict=True)
        return sum(max(peak, -(-rest // left)) for rest, peak in pairs)

    def _stages(self, ideal: int, c: int, left: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield what is held with one more stage on a kind of devices, how many, and its loads.

        Loads are those of the two passes, where they are added up; in that case `apart` is the time
        of the second, and else what devices exchange that share the stage.
        """
        form, kind, row, apart_of = self._form, self._form.kinds[c], self._form.time[c], self._apart
        most = left if form.shared else 1
        stack = [(ideal, b, 0, 0, 0, 0, 0) for b in self._seen(ideal)[0]]
        seen = set()
        while stack:
            held, b, time, size, apart, sent, received = stack.pop()
            more = held | 1 << b
            if more in seen:
                continue
            seen.add(more)
            self._steps += 1
            self._claimed.step(self._steps * self._each)
            if self._steps > self._most:
                raise UnprovedError("there are too many ideals")
            time, size, apart = time + row[b], size + form.size[b], apart + apart_of[c][b]
            if time >= form.limit * most or size > kind.room:
                continue
            for net in self._of[b] if kind.pays else ():
                was, now = self._crossing(net, held & ~ideal), self._crossing(net, more & ~ideal)
                sent, received = sent + now[0] - was[0], received + now[1] - was[1]
            if form.added and time + sent + received < form.limit:
                yield more, 1, time - apart + sent, apart + received
            for m in range(1, most + 1) if not form.added else ():
                load = max(m * time + (m - 1) * apart, m * sent, m * received)
                if load < form.limit * m * m:
                    yield more, m, 0, 0
                    break
            stack += [(more, o, time, size, apart, sent, received) for o in self._seen(more)[0]]

    def _crossing(self, net: tuple[int, int, int, bool], stage: int) -> tuple[int, int]:
        """Return for how long a stage passes a tensor: in each pass, or sending and receiving."""
        producer, members, cost, back = net
        cost *= bool(members & stage and members & ~stage)
        second = back if self._form.added else not producer & stage
        return (0, cost) if second else (cost, 0)

    def _seen(self, held: int) -> tuple[list[int], list[int]]:
        """Return which blocks may follow a set next, and the least times of all outside it."""
        if held not in self._known:
            rest = [(b, need) for b, need in enumerate(self._needs) if not held >> b & 1]
            ready = [b for b, need in rest if not need & ~held]
            times = [sum(least[b] for b, _ in rest) for least in self._least]
            self._known[held] = ready, times
        return self._known[held]


def _reached(form: Form, claimed: Claimed) -> list[int]:
    """Return for each block those that it leads to, itself included, as bits."""
    found, steps, grown = [1 << b for b in range(form.n)], 0, True
    pairs = sorted(form.pairs, reverse=True)
    while grown:
        grown = False
        for u, v in pairs:
            claimed.step(steps := steps + 1)
            grown |= bool(found[v] & ~found[u])
            found[u] |= found[v]
    return found


def ideals(instance: GraphData, evidence: _Given, claimed: Claimed, most: int = MANY) -> None:
    """Show by all ideals, `most` at most, that no partition is better, or that there is none."""
    form = settled(instance, claimed, evidence.get("light", 0))
    if math.inf not in form.least and not _Ideals(form, claimed, most).refuted():
        raise UnprovedError("some partition is better")


RULES: Rules = {
    "work": (Proof.WITNESS, work),
    "cut": (Proof.WITNESS, work),
    "dual": (Proof.DUAL, dual),
    "ideals": (Proof.LOG, ideals),
    "few-ideals": (Proof.LOG, partial(ideals, most=FEW)),
}
UNAIDED = ("work", "few-ideals")
