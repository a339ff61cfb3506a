"""Timestep tables that TPU-MLIR compiled: their cycles, and the least cycles, with proof.

    STAGEPACK_DATA=DIR python -m benchmarks.timesteps [--limit 10]

``tpu-mlir/blazeface_bm1688.json`` has 13 groups of BlazeFace for a BM1688.  For each group, it has
the operations with their cycles of compute or DMA and their readers, the row and the stage of each
operation, and for each buffer its bytes and the rows in which it is in use.  It does not have
kernels and strides, addresses, simulated times of groups, or whether each slice loads weights
again; every group has one slice.

A row takes the longer of its compute and its DMA.  For each group, the table has the cycles of a
*turn* (one pass over the table's rows, as in the middle of many slices) and of a *run* (one slice
through all three stages): as TPU-MLIR placed loads and stores, with the best places for them
(proved; compute stays in its rows), and a lower bound.  In the new placement, buffers are in use
for at most one turn, and fit into local memory.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import stagepack as sp
from stagepack.contracts import JsonObject

STAGES = 3
FILE = Path("tpu-mlir", "blazeface_bm1688.json")


@dataclass(frozen=True)
class Move:
    """A load or a store.

    Attributes
    ----------
    name : str
        Of what is loaded, or stored.
    load : bool
    cycles : int
    given : int
        Its position, stage * rows + row.
    first, last : int
        The positions where it may be.
    """

    name: str
    load: bool
    cycles: int
    given: int
    first: int
    last: int


class Table:
    """The timesteps of a group.

    Parameters
    ----------
    group : dict
        As in the file.
    """

    def __init__(self, group: JsonObject) -> None:
        self.number, self.memory = group["group"], group["lmem_bytes"]
        self.alignment, self.buffers = group["eu_bytes"], group["buffers"]
        rows = group["timestep_table"]
        self.rows = len(rows)
        self._ops = {op["id"]: op for op in group["ops"]}
        self.position = {
            number: self._ops[number]["stage"] * self.rows + row
            for row, numbers in enumerate(rows)
            for number in numbers
        }
        self._maker = {op["result"]: number for number, op in self._ops.items()}

    @cached_property
    def compute(self) -> list[int]:
        """Cycles of compute at every position."""
        found = [0] * (STAGES * self.rows)
        for number, op in self._ops.items():
            found[self.position[number]] += op["tiu_cycles"]
        return found

    @cached_property
    def moves(self) -> list[Move]:
        """Loads and stores, in the order of the file."""
        found = []
        for number, op in self._ops.items():
            place, most = self.position[number], STAGES * self.rows - 1
            if op["kind"] == "Load":
                read = min(self._uses(op["result"]))
                found.append(Move(op["result"], True, op["dma_cycles"], place, 0, read - 1))
            elif op["kind"] == "Store":
                source = op["args"][0]
                made = self.position[self._maker[source]]
                found.append(Move(source, False, op["dma_cycles"], place, made + 1, most))
        return found

    @property
    def given(self) -> list[int]:
        """The position of every move in the file."""
        return [move.given for move in self.moves]

    def _uses(self, name: str) -> list[int]:
        """Return where something is computed with."""
        return [
            self.position[number]
            for number, op in self._ops.items()
            if name in op["args"] and op["kind"] != "Store"
        ]

    def lifetimes(self, positions: Sequence[int]) -> list[tuple[int, int]]:
        """Return the first and last position of every buffer."""
        loads = {m.name: at for m, at in zip(self.moves, positions, strict=True) if m.load}
        stores: dict[str, list[int]] = {}
        for move, at in zip(self.moves, positions, strict=True):
            if not move.load:
                stores.setdefault(move.name, []).append(at)
        found = []
        for buffer in self.buffers:
            name = buffer["name"].removesuffix("_buf")
            first = loads.get(name, self.position[self._maker[name]])
            uses = [] if name != buffer["name"] else self._uses(name) + stores.get(name, [])
            found.append((first, max([first, *uses])))
        return found

    # ------------------------------------------------------------------ cycles

    def transfers(self, positions: Sequence[int]) -> list[int]:
        """Return the cycles of DMA at every position."""
        found = [0] * (STAGES * self.rows)
        for move, at in zip(self.moves, positions, strict=True):
            found[at] += move.cycles
        return found

    def span(self, positions: Sequence[int], slices: int = 1) -> int:
        """Return the cycles of so many slices, iteration by iteration and row by row."""
        moved, total = self.transfers(positions), 0
        for iteration in range(slices + STAGES - 1):
            running = [stage for stage in range(STAGES) if 0 <= iteration - stage < slices]
            for row in range(self.rows):
                places = [stage * self.rows + row for stage in running]
                total += max(sum(self.compute[p] for p in places), sum(moved[p] for p in places))
        return total

    def turn(self, positions: Sequence[int]) -> int:
        """Return the cycles of a turn of the table, in which all stages run."""
        moved, rows = self.transfers(positions), self.rows
        return sum(max(sum(self.compute[r::rows]), sum(moved[r::rows])) for r in range(rows))

    # ------------------------------------------------------------------ what cannot be less

    @property
    def least_turn(self) -> int:
        """A lower bound on a turn: all compute, or all DMA."""
        return max(sum(self.compute), sum(move.cycles for move in self.moves))

    @property
    def least_span(self) -> int:
        """A lower bound on a slice.

        Between any two rows of compute: what the first needs is loaded before it, all compute from
        one to the other follows, and what the second gives out is stored after it.
        """
        found = self.least_turn
        busy = [at for at, cycles in enumerate(self.compute) if cycles]
        for number, first in enumerate(busy):
            before = sum(move.cycles for move in self.moves if move.last < first)
            for last in busy[number:]:
                after = sum(move.cycles for move in self.moves if move.first > last)
                found = max(found, before + sum(self.compute[first : last + 1]) + after)
        return found

    # ------------------------------------------------------------------ what could be

    def best(self, turn: bool, limit: float = 10.0) -> tuple[list[int], bool]:
        """Return where moves take least, and live shortest among those; and whether it is proved.

        Parameters
        ----------
        turn : bool
            Least cycles of a turn; else of a run of one slice.
        limit : float
            Seconds for each of both questions.
        """
        from ortools.sat.python import cp_model

        model = cp_model.CpModel()
        kept = self._kept()
        places = []
        for move in self.moves:
            # No buffer lives for longer than a turn.
            first = max(move.first, kept[move.name] - self.rows + 1) if move.load else move.first
            last = move.last if move.load else min(move.last, kept[move.name] + self.rows - 1)
            places.append({at: model.new_bool_var("") for at in range(first, last + 1)})
            model.add_exactly_one(places[-1].values())
        period = self.rows if turn else STAGES * self.rows
        cost = []
        for row in range(period):
            most = sum(move.cycles for move in self.moves) + sum(self.compute)
            longer = model.new_int_var(sum(self.compute[row::period]), most, "")
            model.add(
                longer
                >= sum(
                    move.cycles * chosen
                    for move, known in zip(self.moves, places, strict=True)
                    for at, chosen in known.items()
                    if at % period == row
                )
            )
            cost.append(longer)
        away = [
            chosen * (move.last - at if move.load else at - move.first)
            for move, known in zip(self.moves, places, strict=True)
            for at, chosen in known.items()
        ]
        solver = cp_model.CpSolver()
        solver.parameters.num_workers, solver.parameters.max_time_in_seconds = 1, limit
        model.minimize(sum(cost))
        proved = solver.solve(model) == cp_model.OPTIMAL
        model.add(sum(cost) <= round(solver.objective_value))
        model.minimize(sum(away))
        solver.solve(model)
        found = [next(at for at, c in known.items() if solver.value(c)) for known in places]
        return found, proved

    def _kept(self) -> dict[str, int]:
        """Return where what is loaded is used last, and where what is stored is made."""
        return {
            move.name: max(self._uses(move.name)) if move.load else move.first - 1
            for move in self.moves
        }

    def fits(self, positions: Sequence[int], turn: bool) -> bool:
        """Return whether local memory holds all buffers."""
        spans = self.lifetimes(positions)
        start = [first % self.rows if turn else first for first, _ in spans]
        instance = sp.LmemPacking.from_arrays(
            [-(-buffer["size"] // self.alignment) * self.alignment for buffer in self.buffers],
            start,
            [at + last - first + 1 for at, (first, last) in zip(start, spans, strict=True)],
            period=self.rows if turn else None,
            capacity=self.memory,
            alignment=self.alignment,
        )
        return sp.solve(instance, time_limit=10).solution is not None


def tables(path: Path) -> list[Table]:
    """Return the tables of a file."""
    return [Table(group) for group in json.loads(path.read_text())["groups"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=float, default=10.0, help="seconds for each question")
    limit = parser.parse_args().limit
    path = Path(
        os.environ.get("STAGEPACK_DATA", "../shared/data"), "tpu-mlir/blazeface_bm1688.json"
    )
    if not path.exists():
        print(f"no {path}: set STAGEPACK_DATA to the folder of public instances")
        return
    print(f"{'':<7}{'':>5}|{'a turn of the table':^42}|{'a run of one slice':^42}")
    names = f"{'given':>8}{'anew':>8}{'least':>8}  {'':<16}"
    print(f"{'group':<7}{'rows':>5}|{names}|{names}")
    for table in tables(path):
        line = f"{table.number:<7}{table.rows:>5}"
        for turn, worth, least in (
            (True, table.turn, table.least_turn),
            (False, table.span, table.least_span),
        ):
            found, proved = table.best(turn, limit)
            words = ("proved" if proved else "not proved") + (
                ", fits" if table.fits(found, turn) else ", too big"
            )
            line += f"|{worth(table.given):>8,}{worth(found):>8,}{least:>8,}  {words:<16}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
