"""The options of a group: its possible costs for one microbatch size and number of I/O tiles.

An option of a group fixes the mode of each of its phases and the policy of each of its layers.  Its
cost is independent of other groups except for memory: bytes kept on the chip by earlier groups, and
variables loaded ahead for the next phase.  For an optimal plan, it is sufficient to consider the
options that are not dominated in cycles, kept bytes and memory; if phases load ahead, the idle
cycles of the I/O tiles are a further criterion.

Cost: O(rows * modes) for the rows of policies, and O(rows^2) at worst to compare those of a group.
Source: own work.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from stagepack.heuristics.effort import spend
from stagepack.heuristics.phases.cycles import (
    UNLIMITED,
    idle_times,
    on_tiles,
    phase_times,
    rooms,
    transfers,
)
from stagepack.heuristics.phases.policies import PolicyRows, find_policies
from stagepack.heuristics.phases.ranges import RangeCosts
from stagepack.heuristics.phases.ranges_kernels import undominated
from stagepack.heuristics.phases.tuning import TUNING, PhasesTuning
from stagepack.instances.phases.data import PhaseSolution
from stagepack.instances.phases.modes import Mode
from stagepack.instances.profile import Array

if TYPE_CHECKING:
    from stagepack.instances.phases.instance import PhaseSchedule

REMOTE, GRAPHS = "remote", "graphs"


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run a group; tuples by phase are in the order of time."""

    # The layers.
    first: int
    end: int
    modes: tuple[str, ...]
    policy: tuple[str, ...]  # empty in inference
    times: tuple[int, ...]  # cycles of each phase, start-up and epilogue included, nothing hidden
    # Bytes on the compute tiles: all but those kept by groups before and variables loaded ahead.
    needs: tuple[int, ...]
    kept: int  # bytes on chip for all steps between the group's phases
    hideable: tuple[int, ...]  # cycles of each phase that the phase before it could hide, at most
    # Bytes of variables each phase loads: what the phase before it holds if it loads ahead.
    variables: tuple[int, ...]
    free: tuple[int, ...]  # cycles that each phase's loop leaves the I/O tiles
    graphs: tuple[Hashable, ...]  # equal for phases that share a graph


class OptionTable:
    """Options of all groups for one microbatch and number of I/O tiles, by rising group.

    "First" is a group's forward phase (or only one), "last" its backward phase (or only one); in
    inference there is no last.  `rows` are policies worth having, by group; `distinguish` is as for
    :func:`group_options`.  Once `keep_going`, asked now and then, says no, options that others beat
    stay in the table.  With `most` the table is for bounds: no number of I/O tiles from `io_tiles`
    to this one has a better plan.  Compute and its memory are those of the fewest, transfers and
    buffers those of the most.

    - `capacity`, `io_capacity`: bytes on the compute tiles and on the I/O tiles; 2**62 without a
      limit.
    - `start`, int64, shape (n + 1,): options of the groups from layer a are
      start[a] ... start[a + 1] - 1.
    - `first`, `end`, int64, shape (options,): the layers of each option's group.
    - `time`, `need`, `kept`, int64, shape (options,): of all phases; the most any needs; see
      :class:`Option`.
    - `need_first`, `need_last`, `free_first`, `free_last`, `hide_first`, `hide_last`, `shards`,
      int64: what the first and the last phase need; cycles that each leaves free, and that may be
      hidden of it; bytes of variables: see :class:`Option`.
    - `inexact`: why a better option may be missing; '' when none is.
    """

    def __init__(
        self,
        costs: RangeCosts,
        rows: PolicyRows,
        io_tiles: int,
        distinguish: Collection[str] = (),
        keep_going: Callable[[], bool] = lambda: True,
        most: int | None = None,
    ) -> None:
        unknown = set(distinguish) - {REMOTE, GRAPHS}
        if unknown:
            raise ValueError(f"options can be told apart by remote and graphs, not by {unknown}")
        self.costs, self.rows, self.io_tiles = costs, rows, io_tiles
        self.instance = instance = costs.instance
        self.n, self.steps, self.microbatch = costs.n, costs.steps, costs.microbatch
        self.prefetch = instance.prefetch and io_tiles > 0
        self.inexact = rows.inexact or costs.inexact
        self.most = io_tiles if most is None else most
        self.capacity = rooms(instance.chip, io_tiles)[0]
        self.io_capacity = rooms(instance.chip, self.most)[1]
        self._build(frozenset(distinguish), keep_going)

    def _build(self, distinguish: frozenset[str], keep_going: Callable[[], bool]) -> None:
        """Compute all phases in all modes, and keep the options worth having.  O(rows)."""
        costs, rows = self.costs, self.rows
        training, group = self.instance.training, rows.group

        def of(values: Array) -> Array:
            """Return the values of the rows' groups; as there may be many, time is asked."""
            keep_going()
            return np.asarray(values[group])

        alone = of(costs.together) | (not training)  # one phase only
        need_first, need_last = self._needs(of)
        modes = _worthwhile(
            self.instance.modes_with(self.io_tiles), self.steps, GRAPHS in distinguish
        )
        every = self.prefetch or GRAPHS in distinguish
        chosen = _Choice(*self._phases(of), alone, modes, every=every, keep_going=keep_going)
        prices = costs.tuning.prices
        made = len(rows) * len(modes) + len(chosen.row)
        spend(40 * prices.look_price + prices.row_price * made)
        need, kept = np.maximum(need_first, need_last), self.steps * rows.kept
        kept_rows = np.flatnonzero((need[chosen.row] <= self.capacity) & chosen.possible)
        row = chosen.row[kept_rows]
        keep_going()
        free_first = chosen.free_first[kept_rows]
        free_last = np.where(alone[row], free_first, chosen.free_last[kept_rows])
        if not training:
            free_last = np.zeros_like(free_last)
        values = {"time": chosen.time[kept_rows], "kept": kept[row]}
        if self.prefetch:
            values |= {
                "need_first": need_first[row],
                "need_last": need_last[row],
                "free_first": -free_first,
                "free_last": -free_last,
            }
        elif values["kept"].any():
            values["need"] = need[row]
        else:
            del values["kept"]  # nothing burdens anything
        keep_going()
        order = np.argsort(group[row], kind="stable")
        if not distinguish:
            order = _undominated(group[row], values, costs.tuning, keep_going)
        keep_going()
        row, at, group = row[order], kept_rows[order], group[row[order]]
        self.row, self._alone = row, alone[row]
        self._mode_names, self._modes = modes, (chosen.first_mode[at], chosen.last_mode[at])
        self._times = (chosen.first_time[at], chosen.last_time[at])
        keep_going()
        self.time, self.kept, self.need = chosen.time[at], kept[row], need[row]
        self.need_first, self.need_last = need_first[row], need_last[row]
        self.free_first, self.free_last = free_first[order], free_last[order]
        self.first, self.end, self.shards = of(costs.first), of(costs.end), of(costs.shards)
        self.start = np.searchsorted(self.first, np.arange(self.n + 1)).astype(np.int64)
        self.hide_first = of(transfers(costs.shards, costs.links.remote(self.most)))
        self.hide_last = np.where(self._alone, 0, self.hide_first)

    def _needs(self, of: Callable[[Array], Array]) -> tuple[Array, Array]:
        """Return the bytes that the first and the last phase of rows need on the compute tiles."""
        costs, rows = self.costs, self.rows
        weights, kept = of(costs.weights), self.steps * rows.kept
        first = weights + kept + rows.first_peak
        if not self.instance.training:
            return first, np.zeros_like(first)
        last = 2 * weights + kept + np.maximum(rows.last_peak, of(costs.states))
        return np.where(of(costs.together), last, first), last

    def _phases(self, of: Callable[[Array], Array]) -> tuple[_Phases, _Phases]:
        """Return the first and the last phases of rows; in inference they are the same."""
        costs, rows = self.costs, self.rows
        remote, host = costs.links.remote(self.most), costs.links.host(self.most)
        variables = of(transfers(costs.shards, remote) + costs.gather)
        from_host, nbytes = of(transfers(costs.host, host)), of(costs.host)
        loaded, stored, compute = of(costs.loaded), of(costs.stored), of(costs.forward)
        if not self.instance.training:
            results = int(costs.figures.activations[-1])
            to_host = np.where(of(costs.end) == self.n, results, 0)
            only = _Phases(
                self,
                variables,
                transfers(loaded, remote) + from_host,
                compute,
                transfers(stored, remote) + transfers(to_host, host),
                np.zeros_like(variables),
                loaded + nbytes + stored + to_host,
            )
            return only, only
        together, backward = of(costs.together), of(costs.backward) + rows.again
        update = transfers(costs.states, remote) + costs.update + costs.gather
        epilogue = of(update + transfers(costs.shards + costs.states, remote))
        load = loaded + np.where(together, rows.stored, 0)
        store = np.where(together, loaded, stored) + rows.stored
        first = _Phases(
            self,
            variables,
            transfers(load, remote) + from_host,
            compute + np.where(together, backward, 0),
            transfers(store, remote),
            np.where(together, epilogue, 0),
            load + nbytes + store,
        )
        load = stored + loaded + of(costs.added) + rows.reloaded
        last = _Phases(
            self,
            variables,
            transfers(load, remote) + from_host,
            backward,
            transfers(loaded, remote),
            epilogue,
            load + nbytes + loaded,
        )
        return first, last

    # ------------------------------------------------------------------ as objects

    def __len__(self) -> int:
        return len(self.row)

    def __iter__(self) -> Iterator[Option]:
        return (self.option(number) for number in range(len(self)))

    def modes(self, numbers: Array) -> tuple[tuple[str, ...], ...]:
        """Return the modes of the phases of each option."""
        names = [str(name) for name in self._mode_names]
        first, last = (mode[numbers].tolist() for mode in self._modes)
        return tuple(
            (names[one],) if alone else (names[one], names[other])
            for one, other, alone in zip(first, last, self._alone[numbers].tolist(), strict=True)
        )

    def policy(self, number: int) -> tuple[str, ...]:
        """Return the policies of an option's layers."""
        return self.rows.policies(self.row[[number]])

    def option(self, number: int) -> Option:
        """Return an option as an object."""
        training, alone = self.instance.training, bool(self._alone[number])
        first, end = int(self.first[number]), int(self.end[number])
        count = 1 if alone else 2
        kinds = ("F", "B") if not alone else ("FB",) if training else ("F",)
        modes, policy = self.modes(np.array([number]))[0], self.policy(number)
        classes = tuple(self.instance.layer_class[first:end].tolist())
        again: tuple[tuple[int, ...], ...] = ()
        if training:
            whole = [""] * self.n
            whole[first:end] = policy
            again = PhaseSolution.canonical_recompute(self.instance, (first, end), whole)
            again = tuple(tuple(at - first for at in run) for run in again[first:end])
        return Option(
            first=first,
            end=end,
            modes=modes,
            policy=policy,
            times=tuple(int(time[number]) for time in self._times[:count]),
            needs=(int(self.need_first[number]), int(self.need_last[number]))[:count],
            kept=int(self.kept[number]),
            hideable=(int(self.hide_first[number]), int(self.hide_last[number]))[:count],
            variables=(int(self.shards[number]),) * count,
            free=(int(self.free_first[number]), int(self.free_last[number]))[:count],
            graphs=tuple(
                (kind, classes, mode, policy, again if "B" in kind else ())
                for kind, mode in zip(kinds, modes, strict=True)
            ),
        )


class _Phases:
    """The phases of one kind of all rows, in every mode."""

    def __init__(
        self,
        table: OptionTable,
        variables: Array,
        load: Array,
        compute: Array,
        store: Array,
        epilogue: Array,
        buffers: Array,
    ) -> None:
        chip = table.instance.chip
        self.steps, self.variables, self.load, self.store = table.steps, variables, load, store
        self.compute = on_tiles(compute, chip.tiles, table.io_tiles)
        # Beside more compute more can be loaded ahead.
        self.beside = on_tiles(compute, chip.tiles, table.most)
        self.fixed = chip.startup + epilogue
        self.buffered = buffers <= table.io_capacity

    def run(self, mode: Mode) -> tuple[Array, Array, Array]:
        """Return times, idle cycles of the I/O tiles, and whether the buffers fit."""
        time = self.fixed + phase_times(
            mode, self.variables, self.load, self.compute, self.store, self.steps
        )
        free = idle_times(mode, self.load, self.beside, self.store, self.steps)
        fits = self.buffered
        if mode is not Mode.IO_OVERLAPPED or self.steps < 2:
            fits = np.ones_like(fits)
        return time, free, fits


class _Choice:
    """A mode for each phase of each row: the fastest ones, or every combination.

    All arrays have shape (choices,).  `row`, `first_mode` and `last_mode`, int64, are the row, and
    the modes of its phases as indices into `modes`; `possible`: the buffers of both phases fit.
    `time`, `first_time` and `last_time` are cycles of both phases and of each, `free_first` and
    `free_last` those that each leaves free.
    """

    def __init__(
        self,
        first: _Phases,
        last: _Phases,
        alone: Array,
        modes: Sequence[Mode],
        *,
        every: bool,
        keep_going: Callable[[], bool],
    ) -> None:
        ones, others = [], []
        for mode in modes:
            keep_going()
            ones.append(first.run(mode))
            keep_going()
            others.append(ones[-1] if last is first else last.run(mode))
        keep_going()
        size = len(alone)
        if not every:
            self.row = np.arange(size)
            self.first_mode = _fastest(ones)
            self.last_mode = _fastest(others)
        else:
            pairs = [(i, j) for i in range(len(modes)) for j in range(len(modes))]
            self.row = np.concatenate(
                [np.arange(size) if j == 0 else np.flatnonzero(~alone) for i, j in pairs]
            )
            counts = [size if j == 0 else int((~alone).sum()) for i, j in pairs]
            self.first_mode = np.repeat([i for i, _ in pairs], counts)
            self.last_mode = np.repeat([j for _, j in pairs], counts)
        self.first_time, self.free_first, fits = self._picked(ones, self.first_mode)
        keep_going()
        self.last_time, self.free_last, fit = self._picked(others, self.last_mode)
        single = alone[self.row]
        self.possible = np.asarray(fits & (fit | single))
        self.time = self.first_time + np.where(single, 0, self.last_time)

    def _picked(
        self, runs: list[tuple[Array, Array, Array]], mode: Array
    ) -> tuple[Array, Array, Array]:
        """Return times, idle cycles and fitting of the mode of each choice."""
        stacked = [np.stack(parts) for parts in zip(*runs, strict=True)]
        time, free, fits = (part[mode, self.row] for part in stacked)
        return time, free, fits


def _fastest(runs: list[tuple[Array, Array, Array]]) -> Array:
    """Return the fastest mode that fits, by row."""
    times = np.stack([np.where(fits, time, UNLIMITED) for time, _, fits in runs])
    return np.asarray(times.argmin(axis=0))


def _worthwhile(modes: tuple[Mode, ...], steps: int, every: bool) -> tuple[Mode, ...]:
    """Return the modes without those that are the same as another one at so few steps."""
    if every:
        return modes
    double = {Mode.IO_OVERLAPPED: Mode.IO, Mode.NAIVE: Mode.COMPUTE}
    return tuple(
        mode for mode in modes if not (double.get(mode) in modes and (steps < 2 or mode == "naive"))
    )


def _undominated(
    group: Array,
    values: dict[str, Array],
    tuning: PhasesTuning,
    keep_going: Callable[[], bool],
) -> Array:
    """Return the rows worth having, by rising group, those of one group by rising time.

    Once `keep_going`, asked now and then, says no, all others count as worth having.
    """
    if len(values) == 1:
        if (group[1:] > group[:-1]).all():  # each has one row only
            return np.arange(len(group))
        order = np.lexsort((values["time"], group))
        return order[np.concatenate(([True], np.diff(group[order]) > 0))] if len(order) else order
    order = np.lexsort((*reversed(list(values.values())), group))
    table = np.ascontiguousarray(np.stack([column[order] for column in values.values()], axis=1))
    ordered = group[order]
    begin = np.searchsorted(ordered, ordered).astype(np.int64)
    # Each row is compared with those of its group before it.
    done = np.cumsum(np.arange(len(order)) - begin + 1)
    stays = np.ones(len(order), dtype=bool)
    low, part = 0, tuning.options.comparisons_at_once
    while low < len(order) and (low == 0 or keep_going()):
        before = int(done[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(done, before + part, side="right")))
        undominated(table, begin, stays, low, high)
        spend(tuning.prices.comparison_price * (int(done[high - 1]) - before))
        low = high
    return np.asarray(order[stays])


def group_options(
    instance: PhaseSchedule,
    microbatch: int,
    io_tiles: int,
    *,
    distinguish: Collection[str] = (),
    keep_going: Callable[[], bool] = lambda: True,
    tuning: PhasesTuning = TUNING,
) -> OptionTable:
    """Return the options of every group that fits, for an allowed `microbatch` and `io_tiles`.

    `distinguish` is what else tells options apart than cycles, kept bytes, memory and (where phases
    may load ahead) idle cycles: "remote" and "graphs" keep all policies, "graphs" all modes, too;
    `ValueError` is raised for an unknown word.  `keep_going` is asked now and then; once it says
    no, options are missing and the table says so.
    """
    costs = RangeCosts(instance, microbatch, keep_going=keep_going, tuning=tuning)
    rows = find_policies(
        costs,
        track=instance.prefetch and io_tiles > 0,
        every=bool(set(distinguish) & {REMOTE, GRAPHS}),
        keep_going=keep_going,
    )
    return OptionTable(costs, rows, io_tiles, distinguish, keep_going)


def assemble(
    table: OptionTable, chosen: Sequence[int], prefetch: Sequence[bool] | None = None
) -> PhaseSolution:
    """Return the plan made of options, whose numbers are `chosen`, in order.

    Without `prefetch`, one a phase, every phase loads ahead that may and has room and time for it.
    """
    numbers = np.asarray(chosen, dtype=np.int64)
    modes = table.modes(numbers)
    order = [mode[0] for mode in modes]
    order += [mode[1] for mode in reversed(modes[:-1]) if len(mode) > 1]
    if prefetch is None:
        prefetch = ahead(table, chosen) if table.prefetch else ()
    boundaries = (0, *table.end[numbers].tolist())
    policy = table.rows.policies(table.row[numbers])
    retained = table.rows.retained(int(table.row[chosen[-1]]))
    recompute = None
    if retained.any():
        recompute = PhaseSolution.canonical_recompute(
            table.instance, boundaries, policy, boundaries[-2] + np.flatnonzero(retained)
        )
    return PhaseSolution(
        boundaries=boundaries,
        mode=tuple(order),
        io_tiles=table.io_tiles,
        microbatch=table.microbatch,
        policy=policy,
        recompute=recompute,
        prefetch=tuple(prefetch),
    )


def ahead(table: OptionTable, chosen: Sequence[int]) -> tuple[bool, ...]:
    """Return which phases of a plan have room and time to load variables ahead."""
    k = len(chosen)
    kept = np.concatenate(([0], np.cumsum(table.kept[list(chosen)])))
    # (room taken by others, need, idle cycles, variables) of phases in the order of time.
    phases = [(kept[j], table.need_first[i], table.free_first[i], i) for j, i in enumerate(chosen)]
    if table.instance.training:
        i = chosen[-1]
        phases[-1] = (kept[k - 1], table.need_last[i], table.free_last[i], i)
        phases += [
            (kept[j], table.need_last[chosen[j]], table.free_last[chosen[j]], chosen[j])
            for j in range(k - 2, -1, -1)
        ]
    found = []
    for (held, need, free, _), (_, _, _, after) in pairwise(phases):
        room = held + need + table.shards[after] <= table.capacity
        found.append(bool(room and free > 0 and table.shards[after] > 0))
    return (*found, False)
