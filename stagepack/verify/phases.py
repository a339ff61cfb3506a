"""Proofs of phases: why no plan is shorter, or none fits.

For each microbatch and number of I/O tiles, paths over the boundaries of groups are followed, given
what each group takes alone, by the definition.  Paths are labels: cycles, and bytes kept on chip,
which all later groups hold as well.  Of two labels of a boundary the one that is larger in neither
says all.  Where no path ends below the bound, no plan does.  Budgets of remote memory and graphs
are left out, and where phases load ahead, all variables count as hidden but the first: both only
allow for more plans.  A group without a choice (inference, or all is stashed) needs what the
definition says.  Of any other, labels along its layers follow the policies:

Layers that are dropped form runs [i, j), computed again once at least for the layer j that is not;
where there is none, or x_j has no bytes, for the last of them, which needs that only for a tape.  A
group [a, b) is a row of parts: a run, perhaps of no layer, and such a layer j.  Of what is live,
only this counts: the variables and their gradients (throughout), x_a, and what was stashed before
the part (in the last group: kept), for it serves layers that run backward later; where a layer runs
backward, its own tape and temporary bytes, both gradients, and what it reads: in a chain whose
layers are computed again once at most, all that the run has made by then; in the last group, where
it runs forward, what it touches; and in such a chain, where it is computed again, all that the run
has made and what the layer j has there already.  What is kept for all steps comes on top.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from stagepack.evidence import Proof
from stagepack.verify.rules import Claimed, Rules, UnprovedError, defined

if TYPE_CHECKING:
    from stagepack.instances.phases.data import PhaseData

MOST = 100_000
"""Groups that are looked at, in all pairs of microbatch and number of I/O tiles together."""

LABELS = 4_000
"""Labels of one layer or boundary."""

FOREVER = 2**62
"""Cycles of a phase that no mode can run."""

EACH = 64
"""Elementary steps of a group or a label, on the clock."""


class Way(NamedTuple):
    """What policies come to: bytes stashed, cycles again, bytes kept, and the most that is live."""

    stashed: int
    again: int
    kept: int
    live: int


def _path(instance: PhaseData, _: Mapping[str, Any], claimed: Claimed) -> None:
    if instance.objective.value != "time":
        raise UnprovedError("is about the time")
    pairs = len(instance.io_tile_choices) * len(instance.microbatches)
    for microbatch in instance.microbatches:
        for io_tiles in instance.io_tile_choices:
            groups = _groups(instance, microbatch, io_tiles, MOST // pairs, claimed)
            _follow(instance, groups, claimed)


def _groups(
    instance: PhaseData, microbatch: int, io_tiles: int, most: int, claimed: Claimed
) -> dict[tuple[int, int], _Group]:
    """Return the groups whose variables fit, in order."""
    fixed, found = instance.fixed_boundaries, dict[tuple[int, int], _Group]()
    cuts = fixed or range(instance.n + 1)
    for at, first in enumerate(cuts[:-1]):
        for end in cuts[at + 1 : at + 2] if fixed else cuts[at + 1 :]:
            claimed.step(EACH * len(found))
            group = _Group(instance, microbatch, io_tiles, first, end)
            if group.held > group.room:
                break
            found[first, end] = group
            if len(found) > most:
                raise UnprovedError("there are too many groups to look at")
    return found


def _follow(instance: PhaseData, groups: dict[tuple[int, int], _Group], claimed: Claimed) -> None:
    """Require that no path over groups ends below what is claimed."""
    n, limit = instance.n, math.inf if claimed.bound is None else math.ceil(claimed.bound)
    behind = [math.inf] * n + [0]  # cycles from a boundary to the end, at least
    for (first, end), group in reversed(groups.items()):
        behind[first] = min(behind[first], behind[end] + group.time(0, 0))
    waiting: list[list[tuple[int, int]]] = [[] for _ in range(n + 1)]  # cycles, bytes kept
    waiting[0].append((0, 0))
    for (first, end), group in groups.items():
        labels = waiting[first] = _undominated(waiting[first], claimed)
        if not labels:
            continue
        for way in group.ways(limit - behind[end] - labels[0][0], claimed):
            time, kept = group.time(way.stashed, way.again), group.steps * way.kept
            waiting[end] += [
                (cycles + time, before + kept)
                for cycles, before in labels
                if before + kept + way.live <= group.room and cycles + time + behind[end] < limit
            ]
    if waiting[n]:
        raise UnprovedError(f"{min(waiting[n])[0]:,} cycles are not excluded")


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

    def __init__(
        self, instance: PhaseData, microbatch: int, io_tiles: int, first: int, end: int
    ) -> None:
        self.instance, self.first, self.end, self.io_tiles = instance, first, end, io_tiles
        self.last, self.figures = end == instance.n, instance.at(microbatch)
        self.steps, self.loops = self.figures.steps, instance.modes_with(io_tiles)
        own = (defined(instance.kind, name) for name in ("modes", "traffic", "liveness", "data"))
        self.modes, self.traffic, self.liveness, data = own
        room, buffers = self.liveness.capacities(instance, io_tiles)
        self.room = math.inf if room is None else room
        self.buffers = math.inf if buffers is None or self.steps < 2 else buffers
        self.ahead = instance.prefetch and io_tiles > 0  # what was loaded beside an earlier phase
        self.held = sum(instance.variables[first:end].tolist())
        self.plain = not instance.training or instance.policies == ("stash",)
        policy = ("stash" if self.plain else "keep",) * (end - first) if instance.training else ()
        kinds = ["F"]
        if instance.training:
            kinds = ["FB"] if self.last else ["F", "B"]
        self.phases = []
        for kind in kinds:
            phase = data.Phase(0, data.PhaseKind(kind), 0, first, end, "", policy, last=self.last)
            moved = self.traffic.moves(instance, self.figures, phase)
            took = self.traffic.cycles(instance, self.figures, phase, io_tiles)
            self.phases.append((phase, moved, took, self.traffic.compute(self.figures, phase)))

    def time(self, stashed: int, again: int) -> int:
        """Return the cycles of the phases, each in its best mode."""
        chip, total, modes = self.instance.chip, 0, self.modes
        remote = modes.link_rate(chip, chip.remote_bandwidth, self.io_tiles)
        host = modes.link_rate(chip, chip.host_bandwidth, self.io_tiles)
        for phase, moved, took, work in self.phases:
            load, store = moved.load_bytes, moved.store_bytes
            load += stashed if phase.kind.backward else 0
            store += stashed if phase.kind.forward else 0
            work += again if phase.kind.backward else 0
            step = (
                modes.transfer_cycles(load, remote) + modes.transfer_cycles(moved.host_load, host),
                modes.compute_cycles(work, chip.tiles, self.io_tiles),
                modes.transfer_cycles(store, remote)
                + modes.transfer_cycles(moved.host_store, host),
            )
            narrow = load + moved.host_load + store + moved.host_store > self.buffers
            loops = [
                modes.phase_time(mode, took.variables + took.gather, *step, self.steps)
                for mode in self.loops
                if not (narrow and mode == modes.Mode.IO_OVERLAPPED)
            ]
            total += chip.startup + min(loops, default=FOREVER) + took.epilogue
            if self.ahead and (self.first or phase.kind == "B"):
                total -= took.variables
        return total

    def ways(self, limit: float, claimed: Claimed) -> list[Way]:
        """Return what policies of less time than a limit come to, none of those left out better."""
        if self.plain:
            most = 0
            for phase, *_ in self.phases:
                base = self.held * (2 if phase.kind.backward else 1)
                moments = self.liveness.profile(self.instance, self.figures, phase, base)
                most = max(most, *(need for _, need in moments))
            return [Way(0, 0, 0, most)]
        rows = zip(self.instance.state.tolist(), self.instance.sharding.tolist(), strict=True)
        state = sum(self.traffic.shard(o, r) for o, r in list(rows)[self.first : self.end])
        waiting: list[list[Way]] = [[] for _ in range(self.end + 1)]
        waiting[self.first].append(Way(0, 0, 0, 2 * self.held + state))
        for i in range(self.first, self.end):
            labels = waiting[i] = _undominated(waiting[i], claimed)
            for end, part in self._parts(i) if labels else ():
                for label in labels:
                    claimed.step(0)
                    way = self._after(label, part)
                    kept = 0 if self.last else self.steps * way.kept
                    fits = kept + way.live <= self.room
                    if fits and self.time(way.stashed, way.again) < limit:
                        waiting[end].append(way)
        ends = waiting[self.end]
        if self.last:  # there is no phase to come for which it would be kept
            ends = [way._replace(kept=0) for way in ends]
        return _undominated(ends, claimed)

    def _after(self, label: Way, part: Way) -> Way:
        """Return what policies come to with one part more."""
        there = 2 * self.held + (label.kept if self.last else label.stashed)
        return Way(
            label.stashed + part.stashed,
            label.again + part.again,
            label.kept + part.kept,
            max(label.live, there + part.live),
        )

    def _parts(self, i: int) -> Iterator[tuple[int, Way]]:
        """Yield where parts from a layer may end, and what each comes to alone."""
        figures, instance, last = self.figures, self.instance, self.last
        x, tape = figures.activations.tolist(), figures.tape.tolist()
        gradient = [0, *x[1:-1], 0]
        once = instance.chain and instance.recomputations == 1
        grown = again = live = peak = 0  # of the run: bytes, cycles, most live, and most made
        for j in range(i, self.end):
            entry, temporary = x[j] if j > i else 0, int(figures.temporary[j])
            own = entry + tape[j] + x[j + 1] + temporary if last else 0  # as it runs forward
            there = (grown if once else entry) + gradient[j] + gradient[j + 1] + temporary
            before = peak + gradient[j + 1]
            inner = 0 if j + 1 == self.end else x[j + 1]  # read in the group
            if "keep" in instance.policies:
                more = tape[j] if last else 0
                most = x[self.first] + max(live, own, more + max(there, before))
                yield j + 1, Way(0, again, tape[j] + inner, most)
            if "stash" in instance.policies:
                stored = max(instance.readers[j + 1], default=0) >= self.end  # anyhow
                most = x[self.first] + max(live, own, tape[j] + there, before)
                yield j + 1, Way(tape[j] + (0 if stored else inner), again, 0, most)
            if "recompute" not in instance.policies:
                return
            live = max(live, own, tape[j] + there)
            if j + 1 == self.end or not x[j + 1]:
                work = int(figures.forward[j]) if tape[j] else 0
                yield j + 1, Way(0, again + work, 0, x[self.first] + max(live, before))
                if not x[j + 1]:
                    return
            again += int(figures.forward[j])
            if once:
                peak = max(peak, grown + tape[j] + x[j + 1] + temporary)
            grown += tape[j] + x[j + 1]


RULES: Rules = {"path": (Proof.DUAL, _path)}
UNAIDED = ("path",)
