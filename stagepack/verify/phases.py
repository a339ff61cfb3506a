"""Proofs of phases: why no plan is shorter, or none fits.

path    For each microbatch and number of I/O tiles, the shortest path over boundaries of groups,
        given what each group takes alone: in none of them does a path end below the bound.  Paths
        are labels of cycles and of bytes kept on chip, which all later groups hold as well; of two
        labels of a boundary the one that is larger in neither says all.  Times and moves are those
        of the definition; where phases load ahead, all variables count as hidden but the first.
        Budgets of remote memory and graphs are left out.  What a group takes is one of these:

        1. It has no choice (inference, or all is stashed): the definition says what is live.
        2. In a chain where a layer is computed again once at most, the sequence follows from the
           policies: labels along the layers, below.
        3. Else the same labels, of less: what was dropped is computed again once at least, and only
           where a layer runs backward must what it reads be there.  Of a phase of its own, where
           layers are computed again once, all of a run is there until it has run backward.

budget  Variables and state exceed the remote memory, or no graph is allowed.

Labels along the layers of a group [a, b).  Layers that are dropped form runs [i, j), computed again
just before the backward pass of the layer j that is not; where there is none, or x_j has no bytes,
before that of their last one.  So a group is a row of parts: a run, perhaps of no layer, and such a
layer j.  In a phase of its own, what was stashed before a part stays live in all of it (forward:
stored at the end; backward: loaded at the start); what is kept lies in the base.  In the last group
what was kept before a part is live in all of it, and what is stashed only where it is used.  So a
label knows bytes stashed and kept, cycles computed again, and the most that was live in either
phase; each moment of a part adds to what was there before.  Each layer needs what it touches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from stagepack.evidence import Proof
from stagepack.instances.phases import liveness, traffic
from stagepack.instances.phases.data import Figures, PhaseData
from stagepack.instances.phases.modes import (
    Mode,
    compute_cycles,
    link_rate,
    phase_time,
    rate,
    transfer_cycles,
)
from stagepack.instances.phases.solution import Phase, PhaseKind
from stagepack.verify.rules import Claimed, Rules, UnprovedError

MOST = 500_000
"""Groups that are looked at, in all pairs of microbatch and number of I/O tiles together."""

LABELS = 4_000
"""Labels of one layer or boundary."""

EACH = 64
"""Elementary steps of a group, of a part or a label, on the clock."""


class Way(NamedTuple):
    """What the policies of a group come to: bytes of a step, cycles, and the most that is live."""

    stashed: int
    again: int
    kept: int
    forward: int
    backward: int


def _path(instance: PhaseData, _: Mapping[str, Any], claimed: Claimed) -> None:
    tiles, steps = instance.io_tile_choices, 0
    limit = math.inf if claimed.bound is None else math.ceil(claimed.bound)
    if len(tiles) * len(instance.microbatches) > MOST:
        raise UnprovedError("there are too many numbers of I/O tiles")
    for microbatch in instance.microbatches:
        groups: dict[tuple[int, int], _Group] = {}
        for io_tiles in tiles:
            claimed.step(0)
            steps += _settled(instance, groups, microbatch, io_tiles, limit, claimed)
            if steps > MOST:
                raise UnprovedError("there are too many groups to look at")


def _settled(
    instance: PhaseData,
    groups: dict[tuple[int, int], _Group],
    microbatch: int,
    io_tiles: int,
    limit: float,
    claimed: Claimed,
) -> int:
    """Require that no plan with a microbatch and number of tiles is below a limit; count groups."""
    n, figures = instance.n, instance.at(microbatch)
    compute, io = liveness.capacities(instance, io_tiles)
    room = math.inf if compute is None else compute
    cuts = instance.fixed_boundaries or range(n + 1)
    least: dict[tuple[int, int], int] = {}
    for at, first in enumerate(cuts[:-1]):
        ends = cuts[at + 1 : at + 2] if instance.fixed_boundaries else cuts[at + 1 :]
        held = 0
        for end, before in zip(ends, [first, *ends], strict=False):
            claimed.step(EACH * len(least))
            held += sum(instance.variables[before:end].tolist())
            if (2 if instance.training else 1) * held > room:
                break
            if (first, end) not in groups:
                groups[first, end] = _Group(instance, figures, first, end)
            least[first, end] = groups[first, end].time(io_tiles, io, 0, 0)
    ahead, behind = _potentials(least, n)
    waiting: list[list[tuple[int, int]]] = [[] for _ in range(n + 1)]  # cycles, bytes kept
    waiting[0].append((0, 0))
    for (first, end), alone in sorted(least.items()):
        slack = limit - ahead[first] - behind[end]
        labels = waiting[first] = _undominated(waiting[first], claimed)
        if not labels or alone >= slack:
            continue
        group = groups[first, end]

        def takes(stashed: int, again: int) -> bool:
            return group.time(io_tiles, io, stashed, again) < slack  # noqa: B023

        for way in group.ways(room, takes, claimed):
            time = group.time(io_tiles, io, way.stashed, way.again)
            kept = figures.steps * way.kept
            need = kept + group.need(way)
            need = need if group.plain else max(need, group.least)
            waiting[end] += [
                (cycles + time, before + kept)
                for cycles, before in labels
                if before + need <= room and cycles + time + behind[end] < limit
            ]
    if waiting[n]:
        raise UnprovedError(
            f"{io_tiles} I/O tiles, microbatches of {microbatch}: {min(waiting[n])[0]:,} cycles "
            "are not excluded"
        )
    return len(least)


def _potentials(least: dict[tuple[int, int], int], n: int) -> tuple[list[float], list[float]]:
    """Return the lengths of shortest paths from the start to each boundary, and to the end."""
    ahead, behind = [math.inf] * (n + 1), [math.inf] * (n + 1)
    ahead[0] = behind[n] = 0
    for (first, end), time in sorted(least.items()):
        ahead[end] = min(ahead[end], ahead[first] + time)
    for (first, end), time in sorted(least.items(), reverse=True):
        behind[first] = min(behind[first], behind[end] + time)
    return ahead, behind


def _undominated(labels: list[Any], claimed: Claimed) -> list[Any]:
    """Return the labels of which none is at least as good in each entry as another one."""
    found: list[Any] = []
    for number, label in enumerate(sorted(set(labels))):
        claimed.step(EACH * number)
        if not any(all(x <= y for x, y in zip(one, label, strict=True)) for one in found):
            found.append(label)
        if len(found) > LABELS:
            raise UnprovedError("there are more labels than are followed")
    return found


class _Group:
    """The layers [first, end): what their phases move and take, by the definition."""

    def __init__(self, instance: PhaseData, figures: Figures, first: int, end: int) -> None:
        self.instance, self.figures, self.first, self.end = instance, figures, first, end
        self.plain = not instance.training or instance.policies == ("stash",)
        self.last = end == instance.n
        kinds = [PhaseKind.FORWARD]
        if instance.training:
            kinds = [PhaseKind.FORWARD_BACKWARD] if self.last else [*kinds, PhaseKind.BACKWARD]
        policy = "stash" if self.plain else "keep"
        named = (policy,) * (end - first) if instance.training else ()
        self.phases = [
            Phase(at, kind, at, first, end, "", named, last=self.last)
            for at, kind in enumerate(kinds)
        ]
        self.moves = [traffic.moves(instance, figures, phase) for phase in self.phases]
        self.work = [traffic.compute(figures, phase) for phase in self.phases]
        rows = (instance.variables, instance.state, instance.sharding, instance.update)
        columns: list[list[int]] = [row[first:end].tolist() for row in rows]
        held, states, over, update = columns
        self.held, self.update = sum(held), sum(update)
        self.shards = sum(traffic.shard(w, r) for w, r in zip(held, over, strict=True))
        self.states = sum(traffic.shard(o, r) for o, r in zip(states, over, strict=True))
        wide = rate(instance.chip.gather_bandwidth)
        self.gather = sum(
            transfer_cycles(w - traffic.shard(w, r), wide)
            for w, r in zip(held, over, strict=True)
            if r > 1
        )

    def time(self, io_tiles: int, io: int | None, stashed: int, again: int) -> int:
        """Return the cycles of the phases, each in its best mode, nothing waiting for others."""
        instance, chip = self.instance, self.instance.chip
        remote = link_rate(chip, chip.remote_bandwidth, io_tiles)
        host = link_rate(chip, chip.host_bandwidth, io_tiles)
        variables, total = transfer_cycles(self.shards, remote), 0
        for phase, moved, work in zip(self.phases, self.moves, self.work, strict=True):
            loaded = moved.load_bytes + (stashed if phase.kind.backward else 0)
            stored = moved.store_bytes + (stashed if phase.kind.forward else 0)
            buffered = loaded + stored + moved.host_load + moved.host_store
            load = transfer_cycles(loaded, remote) + transfer_cycles(moved.host_load, host)
            store = transfer_cycles(stored, remote) + transfer_cycles(moved.host_store, host)
            more = again if phase.kind.backward else 0
            step = load, compute_cycles(work + more, chip.tiles, io_tiles), store
            steps = self.figures.steps
            overlaps = io is None or buffered <= io or steps < 2
            total += chip.startup + min(
                (
                    phase_time(mode, variables + self.gather, *step, steps)
                    for mode in instance.modes_with(io_tiles)
                    if mode != Mode.IO_OVERLAPPED or overlaps
                ),
                default=2**62,
            )
            if phase.kind.backward:
                total += self.gather + self.update + transfer_cycles(self.states, remote)
                total += transfer_cycles(self.shards + self.states, remote)
            if instance.prefetch and io_tiles and (self.first or phase.index):
                total -= variables
        return total

    def need(self, way: Way) -> int:
        """Return the bytes that the group needs on chip, but for what is kept."""
        if not self.instance.training:
            return self.held + way.forward
        backward = 2 * self.held + max(way.backward, self.states)
        return max(backward, self.held + way.forward)

    def ways(self, room: float, takes: Any, claimed: Claimed) -> list[Way]:
        """Return what policies come to, none of those left out better in all; see the head.

        `takes` says whether bytes stashed and cycles computed again are not too many.
        """
        figures, instance = self.figures, self.instance
        if self.plain:
            most = [
                max(need for _, need in liveness.profile(instance, figures, phase, 0))
                for phase in self.phases
            ]
            return [
                Way(0, 0, 0, most[0] if not self.last or not instance.training else 0, most[-1])
            ]
        return _Labels(self, room, takes, claimed).ways()

    @cached_property
    def least(self) -> int:
        """The bytes needed where the neediest layer runs, whatever the policies."""
        figures, instance, forward, backward = self.figures, self.instance, 0, 0
        for layer in range(self.first, self.end):
            read = [int(figures.activations[t]) for t in instance.reads[layer]]
            host = int(figures.activations[0]) if 0 in instance.reads[layer] else 0
            written = int(figures.activations[layer + 1])
            own = sum(read) + int(figures.tape[layer] + figures.temporary[layer])
            forward = max(forward, own + written)
            wanted = written if instance.readers[layer + 1] else 0
            backward = max(backward, own + wanted + sum(read) - host)
        if self.last:
            forward, backward = 0, max(forward, backward)
        return self.need(Way(0, 0, 0, forward, backward))


class _Labels:
    """The policies of a group of a chain, part by part."""

    def __init__(self, group: _Group, room: float, takes: Any, claimed: Claimed) -> None:
        self.group, self.room, self.takes, self.claimed = group, room, takes, claimed
        figures, instance = group.figures, group.instance
        self.x, self.tape = figures.activations.tolist(), figures.tape.tolist()
        self.temporary, self.work = figures.temporary.tolist(), figures.forward.tolist()
        self.allowed, once = set(map(str, instance.policies)), instance.recomputations == 1
        self.exact = instance.chain and once  # the sequence follows from the policies
        self.grows = self.exact or (once and not group.last)  # what a run has made stays
        outside = (max(readers, default=0) for readers in instance.readers[1:])
        self.output = [last >= group.end for last in outside]  # of x_{l + 1}: stored anyhow
        self.kept_before = group.first > 0 and "keep" in self.allowed

    def ways(self) -> list[Way]:
        """Return what the policies come to at the end of the group."""
        group = self.group
        # By boundary, and whether the layer before is stashed in the last group.
        waiting: dict[tuple[int, bool], list[Way]] = {(group.first, False): [Way(0, 0, 0, 0, 0)]}
        for i in range(group.first, group.end):
            parts = list(self._parts(i))
            for paged in (False, True):
                labels = _undominated(waiting.pop((i, paged), []), self.claimed)
                for part in parts if labels else ():
                    self._extend(labels, i, paged, part, waiting)
        ends = [*waiting.get((group.end, False), []), *waiting.get((group.end, True), [])]
        if group.last:  # there is no phase to come for which it would be kept
            ends = [way._replace(kept=0) for way in ends]
        return _undominated(ends, self.claimed)

    def _parts(self, i: int) -> Iterator[tuple[int, str]]:
        """Yield where runs from a layer may end, and the policy of the layer there, "" for none."""
        for j in range(i, self.group.end + 1):
            if j > i and "recompute" not in self.allowed:
                return
            if j == self.group.end or (j > i and not self.x[j]):
                yield j, ""
                return
            yield from ((j, policy) for policy in ("stash", "keep") if policy in self.allowed)

    def _extend(
        self,
        labels: list[Way],
        i: int,
        paged: bool,
        part: tuple[int, str],
        waiting: dict[tuple[int, bool], list[Way]],
    ) -> None:
        """Add to `waiting` what labels come to after a part."""
        group, (j, policy) = self.group, part
        made, again, forward, backward = self._part(i, paged, j, policy)
        stash, keep = (made if policy == name else 0 for name in ("stash", "keep"))
        if not self.takes(stash, again):
            return
        at = j + 1 if policy else j
        after = waiting.setdefault((at, group.last and policy == "stash"), [])
        steps = 0 if group.last else group.figures.steps
        for label in labels:
            there = label.kept if group.last else label.stashed
            way = Way(
                label.stashed + stash,
                label.again + again,
                label.kept + keep,
                0 if group.last else max(label.forward, there + forward),
                max(label.backward, there + backward),
            )
            if steps * way.kept + group.need(way) > self.room:
                continue
            if not self.takes(way.stashed, way.again):
                continue
            if not steps and not self.kept_before:  # what is live decides nothing but this
                way = way._replace(backward=0)
            after.append(way)
        self.claimed.step(0)

    def _part(self, i: int, paged: bool, j: int, policy: str) -> tuple[int, int, int, int]:
        """Return products of layer j, cycles computed again, and the most that a part adds.

        To what was there before it: forward (in a phase of its own), and backward.
        """
        x, tape, group = self.x, self.tape, self.group
        a, b, n, last = group.first, group.end, group.instance.n, group.last
        whole = x[a] if last else 0  # the input lives as long as the phase
        extra = x[i] if paged and i > a else 0  # paged in for the part

        def gradient(t: int) -> int:
            return x[t] if 0 < t < n else 0

        stop = j if policy or tape[j - 1] else j - 1  # of the last layer nothing is needed again
        forward = backward = grown = again = 0
        for k in range(i, j):  # the run
            own = tape[k] + x[k + 1] + self.temporary[k]
            entry = x[k] if k > i else extra
            forward = max(
                forward, own + (whole + entry if last else entry + (x[a] if k == a else 0))
            )
            live = grown + extra if self.grows else entry
            live += tape[k] + gradient(k + 1) + gradient(k) + self.temporary[k]
            backward = max(backward, x[a] + live)
            again += self.work[k] if k < stop else 0
            if k < stop and self.exact:
                beside = tape[j] if policy == ("keep" if last else "stash") else 0
                live = grown + own + beside + gradient(j + 1 if policy else j)
                backward = max(backward, x[a] + extra + live)
            grown += tape[k] + x[k + 1]
        made = 0
        if policy:
            stored = policy == "stash" and self.output[j]
            made = tape[j] + (x[j + 1] if j + 1 < b and not stored else 0)
            entry = x[j] if j > i else extra
            if last:
                own = whole + entry + tape[j] + x[j + 1]
            else:
                own = (x[a] if j == a else 0) + (x[j] if j > i else 0)
                own += (made if policy == "stash" else 0) + (x[b] if j == b - 1 else 0)
            forward = max(forward, own + self.temporary[j])
            live = grown + extra if self.grows else entry
            live += gradient(j + 1) + gradient(j) + self.temporary[j]
            live += tape[j] if last or policy == "stash" else 0
            backward = max(backward, x[a] + live)
        return made, again, forward, max(forward, backward) if last else backward


def _budget(instance: PhaseData, _: Mapping[str, Any], claimed: Claimed) -> None:
    rows = (instance.variables, instance.state, instance.sharding)
    held = sum(
        traffic.shard(w, r) + traffic.shard(o, r)
        for w, o, r in zip(*(row.tolist() for row in rows), strict=True)
    )
    if instance.graphs == 0 or (
        instance.remote_memory is not None and held > instance.remote_memory
    ):
        return
    raise UnprovedError("the budgets hold variables and state, and a graph")


RULES: Rules = {"path": (Proof.DUAL, _path), "budget": (Proof.WITNESS, _budget)}

UNAIDED: tuple[str, ...] = ("budget", "path")
"""Rules that need no evidence, in the order in which they are tried."""
