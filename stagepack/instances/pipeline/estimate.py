"""The costs of every stage of a partition, item by item, and their comparison with measurements.

The definitions are those of :mod:`stagepack.instances.pipeline.check`, evaluated for all stages at
once and broken down: cycles by direction, bytes by category.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from stagepack import files
from stagepack.contracts import JsonObject, Number
from stagepack.errors import InputError
from stagepack.files import finite
from stagepack.instances import accelerators
from stagepack.instances.base import require_instance
from stagepack.instances.pipeline.check import (
    device_memory,
    host_cycles,
    plain,
    recv_cycles,
    reduction_cycles,
    send_cycles,
    stage_compute,
)
from stagepack.instances.pipeline.choices import settled
from stagepack.instances.pipeline.data import PipelineSolution
from stagepack.instances.pipeline.instance import PipelinePartition
from stagepack.instances.pipeline.problem import KIND
from stagepack.instances.profile import Array
from stagepack.result import Result
from stagepack.shown import ShownRows

KV_CACHE = "KV cache"
"""The category of what tokens take."""

IDENTITY = (
    "stage", "first", "end", "device", "device_name", "peak_layer", "peak_layer_name", "choices",
)  # fmt: skip
"""Columns that say which stage a row is about; the others are figures that can be measured."""

OF_A_STAGE = ("stage", "first", "end")


@dataclass(frozen=True)
class StageEstimate:
    """Cycles and bytes of one stage."""

    # `stage`, `first`, `end`: number of the stage; its layers are [first, end).
    stage: int
    first: int
    end: int
    # `device`, `device_name`: the device that runs it.
    device: int
    device_name: str
    # `forward`, `backward`: cycles of the two passes on this device; backward is 0 for inference,
    # both are None when the instance gives explicit compute tables.
    forward: Number | None
    backward: Number | None
    compute: Number  # their sum: what the objectives call compute
    # `recv`, `send`, `host`: cycles to receive from the device before, to send to the one after,
    # and to wait for the exchange with the host.
    recv: Number
    send: Number
    host: Number
    transfer: Number  # recv + send + host
    # Bytes always alive, by category (one category ``table`` where the instance gives tables).
    # Tokens take ``KV cache``.
    exclusive: dict[str, int]
    shared: int  # bytes of shared keys, each key once
    # `peak_layer`, `peak_layer_name`: the layer that needs the most temporary and carried bytes; -1
    # and "" with tables.
    peak_layer: int
    peak_layer_name: str
    # `temporary`, `carry`: bytes alive while that layer runs, and bytes carried past it.
    temporary: int
    carry: int
    stash: int  # bytes kept for the backward passes of the microbatches in flight
    memory: int  # sum of all of these bytes
    capacity: int | None  # bytes of the device; None without a limit
    choices: str = ""  # how many layers take each of their alternatives, "" where they have none

    @property
    def free(self) -> int | None:
        """Bytes left on the device; negative when the stage does not fit, None without a limit."""
        return None if self.capacity is None else self.capacity - self.memory

    @property
    def utilisation(self) -> float | None:
        """Share of the device's memory in use; None without a limit (or with none at all)."""
        return self.memory / self.capacity if self.capacity else None

    def to_row(self) -> JsonObject:
        """Return the stage as one flat row; categories become ``exclusive.<name>``."""
        row: JsonObject = {}
        for key, value in vars(self).items():
            if key == "exclusive":
                row.update({f"exclusive.{name}": nbytes for name, nbytes in value.items()})
            elif key != "choices" or value:
                row[key] = value
        return {**row, "free": self.free, "utilisation": self.utilisation}


@dataclass(frozen=True, repr=False)
class Estimate(ShownRows):
    """Cycles and bytes of every stage of a partition, and their totals."""

    instance: str
    objective_name: str
    objective: Number
    stages: tuple[StageEstimate, ...]
    devices: tuple[StageEstimate, ...]
    """What each device holds in all, in the order of their first stages: a row a device."""
    clock: float | None = None
    """Cycles a second where people count seconds: on accelerators by name."""

    @property
    def placed(self) -> bool:
        """Whether devices hold several stages."""
        return self.devices is not self.stages

    @property
    def totals(self) -> JsonObject:
        """Sums and extremes over the stages, as plain data.

        ``balance`` is the mean compute over the largest: 1 when all devices are equally busy.
        Extremes are those of devices.
        """
        compute = [device.compute for device in self.devices]
        used = [one.utilisation for one in self.devices if one.utilisation is not None]
        return {
            "stages": len(self.stages),
            "layers": self.stages[-1].end,
            "compute": sum(compute),
            "largest_compute": max(compute),
            "largest_transfer": max(device.transfer for device in self.devices),
            "balance": sum(compute) / len(compute) / max(compute) if max(compute) else 1.0,
            "memory": sum(device.memory for device in self.devices),
            "largest_memory": max(device.memory for device in self.devices),
            "largest_utilisation": max(used, default=None),
            "fits": all(one.free is None or one.free >= 0 for one in self.devices),
        }

    @property
    def figures(self) -> tuple[str, ...]:
        """Columns that can be compared with measurements."""
        return tuple(key for key in self.stages[0].to_row() if key not in IDENTITY)

    def rows(self) -> list[JsonObject]:
        """Return one flat row of plain data a stage."""
        return [stage.to_row() for stage in self.stages]

    def device_rows(self) -> list[JsonObject]:
        """Return one flat row of plain data a device, with the numbers of its stages."""
        rows = []
        for one in self.devices:
            stages = [stage.stage for stage in self.stages if stage.device == one.device]
            row = {name: value for name, value in one.to_row().items() if name not in OF_A_STAGE}
            rows.append({"stages": stages, **row})
        return rows

    def to_dict(self) -> JsonObject:
        """Return the estimate as plain JSON data."""
        data: JsonObject = finite(
            {
                "instance": self.instance,
                "objective_name": self.objective_name,
                "objective": self.objective,
                "totals": self.totals,
                "stages": self.rows(),
                **({"devices": self.device_rows()} if self.placed else {}),
            }
        )
        return data

    def _line(self) -> str:
        return (
            f"{self.instance!r}, {len(self.stages)} stages, {self.objective_name} {self.objective}"
        )

    def _columns(self) -> Sequence[str]:
        return tuple(self.stages[0].to_row())

    def _rows(self) -> Sequence[JsonObject]:
        return self.rows()

    def against(self, measured: Sequence[Mapping[str, Any]]) -> list[JsonObject]:
        """Compare the estimate with what was measured on the machine.

        Parameters
        ----------
        measured : sequence of dict
            One a stage, by any columns of the estimate (``compute``, ``recv``, ``memory``,
            ``exclusive.weights``, ...).  A row says its ``stage``, or stands at its place.  Empty
            values are passed over.  Where a row names layers or a device, they must be those of
            the stage.

        Returns
        -------
        list of dict
            ``stage, device_name, figure, estimated, actual, difference, ratio``: difference is
            estimated - actual, ratio estimated / actual (None when the actual value is 0).

        Raises
        ------
        InputError
            For an unknown column, a stage that is not there or comes twice, a value that is not a
            number, or rows that describe another partition.
        """
        estimated, table, seen = self.rows(), [], set()
        for place, row in enumerate(measured):
            where = f"measured[{place}]"
            if not isinstance(row, Mapping):
                raise InputError("is not an object", field=where, remedy="give one object a stage")
            stage = row.get("stage", place)
            if isinstance(stage, bool) or not isinstance(stage, int) or stage in seen:
                problem = "comes twice" if stage in seen else "is not an integer"
                raise InputError(
                    f"stage {stage!r} {problem}", field=where, remedy="give one row a stage"
                )
            if not 0 <= stage < len(estimated):
                raise InputError(
                    f"stage {stage} is not one of the {len(estimated):,} stages",
                    field=where,
                    remedy="count stages from 0",
                )
            seen.add(stage)
            table += self._compare(estimated[stage], row, where)
        return table

    def _compare(
        self, ours: Mapping[str, Any], theirs: Mapping[str, Any], where: str
    ) -> list[JsonObject]:
        lines = []
        for figure, actual in theirs.items():
            field = f"{where}.{figure}"
            if figure not in ours:
                raise InputError(
                    "is not a column of the estimate",
                    field=field,
                    remedy="choose among " + ", ".join(self.figures),
                )
            if actual is None or actual == "":
                continue
            if figure in ("first", "end", "device", "device_name") and actual != ours[figure]:
                raise InputError(
                    f"is {actual!r}, but {ours[figure]!r} in stage {ours['stage']}",
                    field=field,
                    remedy="compare measurements and estimate of the same partition",
                )
            if figure in IDENTITY:
                continue
            if isinstance(actual, bool) or not isinstance(actual, int | float):
                raise InputError(f"{actual!r} is not a number", field=field, remedy="give a number")
            if not math.isfinite(actual):
                raise InputError(f"is {actual}", field=field, remedy="give a finite number")
            value = ours[figure]
            lines.append(
                {
                    "stage": ours["stage"],
                    "device_name": ours["device_name"],
                    "figure": figure,
                    "estimated": value,
                    "actual": actual,
                    "difference": None if value is None else value - actual,
                    "ratio": None if value is None or actual == 0 else value / actual,
                }
            )
        return lines


def estimate(
    instance: PipelinePartition, solution: PipelineSolution | Result[PipelineSolution]
) -> Estimate:
    """Return cycles and bytes of every stage of `solution`, whether or not the stages fit.

    O(n + stages + uses of shared keys).

    Raises
    ------
    InputError
        When the boundaries or devices do not describe stages of this instance, or a result holds
        no solution or belongs to another one.
    """
    require_instance(instance, KIND)
    solution = instance.solution_in(solution, shaped=False)
    cuts, devices = _structure(instance, solution)
    taken, objective = _choices(instance, solution), instance.evaluate(solution)
    instance = settled(instance, solution)
    first, last = cuts[:-1], cuts[1:] - 1
    s, n = len(devices), instance.n
    host = host_cycles(instance)
    forward, backward = _passes(instance, cuts, devices)
    exclusive, shared, stash = _lasting_bytes(instance, cuts, devices)
    peak_layer, temporary, carry = _peaks(instance, first, last)
    stages = []
    for j, device in enumerate(devices):
        layers = int(cuts[j]), int(cuts[j + 1])
        before, after = (devices[at] if 0 <= at < s else device for at in (j - 1, j + 1))
        recv = recv_cycles(instance, device, layers[0]) if before != device else 0
        send = send_cycles(instance, device, layers[1]) if after != device else 0
        if not instance.placed:
            more = reduction_cycles(instance, *layers, device)
            recv, send = recv + more[0], send + more[1]
        split = {name: int(column[j]) for name, column in exclusive.items()}
        peak = int(peak_layer[j])
        bytes_of = [int(column[j]) for column in (shared, temporary, carry, stash)]
        stages.append(
            StageEstimate(
                stage=j,
                first=layers[0],
                end=layers[1],
                device=device,
                device_name=instance.device_name(device),
                forward=None if forward is None else plain(forward[j]),
                backward=None if backward is None else plain(backward[j]),
                compute=plain(stage_compute(instance, *layers, device)),
                recv=recv,
                send=send,
                host=host,
                transfer=recv + send + host,
                exclusive=split,
                shared=bytes_of[0],
                peak_layer=peak,
                peak_layer_name=instance.layer_name(peak) if 0 <= peak < n else "",
                temporary=bytes_of[1],
                carry=bytes_of[2],
                stash=bytes_of[3],
                memory=sum(split.values()) + sum(bytes_of),
                capacity=None if instance.placed else instance.cluster.devices[device].memory,
                choices=taken[j],
            )
        )
    rows, named = tuple(stages), instance.cluster.name.partition("@")[0]
    return Estimate(
        instance=instance.name,
        objective_name=str(instance.objective),
        objective=objective,
        stages=rows,
        devices=_together(instance, rows) if instance.placed else rows,
        clock=float(instance.cluster.clock) if accelerators.nodes(named) else None,
    )


def _together(
    instance: PipelinePartition, rows: tuple[StageEstimate, ...]
) -> tuple[StageEstimate, ...]:
    """Return a row a device: sums over its stages, of shared keys and of the peak what they need.

    Its name is that of the device, its layers are those from its first stage to its last one.
    """
    found = []
    for device in dict.fromkeys(row.device for row in rows):
        mine = [row for row in rows if row.device == device]
        peak = max(mine, key=lambda row: row.temporary + row.carry)
        sums = {
            name: sum(getattr(row, name) for row in mine)
            for name in ("forward", "backward", "compute", "recv", "send", "stash")
        }
        together = dataclasses.replace(
            peak,
            stage=mine[0].stage,
            first=mine[0].first,
            end=mine[-1].end,
            transfer=sums["recv"] + sums["send"] + peak.host,
            exclusive={name: sum(row.exclusive[name] for row in mine) for name in peak.exclusive},
            memory=device_memory(
                instance, [(row.first, row.end, len(rows) - row.stage) for row in mine], device
            ),
            capacity=instance.cluster.devices[device].memory,
            **sums,
        )
        rest = together.stash + together.temporary + together.carry
        shared = together.memory - rest - sum(together.exclusive.values())
        found.append(dataclasses.replace(together, shared=shared))
    return tuple(found)


def read_measured(path: str | Path) -> list[JsonObject]:
    """Read measurements for :meth:`Estimate.against` from a JSON or CSV file.

    JSON: a list with one object a stage, or an object with that list as ``stages`` (what
    :meth:`Estimate.to_dict` makes).  CSV: a header line, then one line a stage; empty cells are
    left out.

    Raises
    ------
    InputError
        Naming the file and what in it cannot be used.
    """
    path = files.require_path(path)
    remedy = "write one row a stage, as JSON or as CSV with a header"
    try:
        text = files.read(path).decode(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("is not text", file=path, remedy=remedy) from error
    rows = _json_rows(path, text) if text.lstrip()[:1] in ("[", "{") else _csv_rows(path, text)
    if not rows or not text.strip():
        raise InputError("holds no measurements", file=path, remedy=remedy)
    for number, row in enumerate(rows):
        for figure, value in row.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(
                    f"is {value}",
                    file=path,
                    field=f"row {number}, {figure}",
                    remedy="give a finite number or leave it empty",
                )
    return rows


def _json_rows(path: Path, text: str) -> list[JsonObject]:
    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    try:
        data = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON ({error})", file=path, remedy="correct the file") from None
    rows = data.get("stages") if isinstance(data, dict) else data
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(
            "is not a list of objects", file=path, field="stages", remedy="write one object a stage"
        )
    return rows


def _csv_rows(path: Path, text: str) -> list[JsonObject]:
    try:
        reader = csv.DictReader(text.splitlines(), strict=True)
        lines = list(reader)
    except csv.Error as error:
        raise InputError(f"is not CSV ({error})", file=path, remedy="correct the file") from None
    rows = []
    for number, line in enumerate(lines, start=2):
        if None in line or None in line.values():
            raise InputError(
                "has another number of cells than the header",
                file=path,
                field=f"line {number}",
                remedy="give every line one cell a column",
            )
        rows.append({key: _cell(value) for key, value in line.items() if value.strip()})
    return rows


def _cell(text: str) -> int | float | str:
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return files.unguarded(text).strip()


def _structure(
    instance: PipelinePartition, solution: PipelineSolution
) -> tuple[Array, tuple[int, ...]]:
    """Return boundaries and devices of stages that exist; other rules may be broken."""
    n, k = instance.n, instance.k
    cuts, devices = solution.boundaries, solution.devices
    problem = ""
    if len(cuts) < 2 or cuts[0] != 0 or cuts[-1] != n:
        problem, field = f"do not run from 0 to {n:,}", "boundaries"
    elif any(a >= b for a, b in pairwise(cuts)):
        problem, field = "do not increase", "boundaries"
    elif len(devices) != len(cuts) - 1:
        problem, field = f"{len(devices):,} for {len(cuts) - 1:,} stages", "devices"
    elif any(not 0 <= device < k for device in devices):
        problem, field = f"one is not in 0..{k - 1}", "devices"
    if problem:
        raise InputError(problem, field=field, remedy="give a solution of this instance")
    return np.array(cuts, dtype=np.int64), devices


def _choices(instance: PipelinePartition, solution: PipelineSolution) -> list[str]:
    """Return how many layers of each stage take which alternative, in words."""
    if not instance.alternatives:
        return [""] * len(solution.devices)
    own, names, found = instance.own_alternative, instance.taken(solution), []
    for first, end, _ in solution.stages:
        counts = Counter(names[first:end])
        order = [name for name in (*instance.alternatives, own) if counts[name]]
        found.append(", ".join(f"{counts[name]} {name}" for name in order))
    return found


def _passes(
    instance: PipelinePartition, cuts: Array, devices: tuple[int, ...]
) -> tuple[list[Any] | None, list[Any] | None]:
    """Return forward and backward cycles of the stages, on their devices, unless by a table."""
    if instance.compute_table is not None:
        return None, None
    speeds = [instance.cluster.devices[device].speed for device in devices]

    def at_speed(cycles: Array) -> list[Any]:
        found = np.add.reduceat(cycles, cuts[:-1]).tolist()
        return [_divide(value, speed) for value, speed in zip(found, speeds, strict=True)]

    nothing = np.zeros_like(instance.forward)
    return at_speed(instance.forward), at_speed(instance.backward if instance.training else nothing)


def _divide(cycles: Any, speed: Number) -> Any:
    if speed == 1:
        return cycles
    return cycles / speed if isinstance(cycles, float) else Fraction(cycles) / Fraction(str(speed))


def _lasting_bytes(
    instance: PipelinePartition, cuts: Array, devices: tuple[int, ...]
) -> tuple[dict[str, Array], Array, Array]:
    """Return bytes by category, of shared keys and of stashes, each of shape (stages,)."""
    first, s = cuts[:-1], len(devices)
    nothing = np.zeros(s, dtype=np.int64)
    stash = nothing
    if instance.training:
        in_flight = np.minimum(instance.microbatches, np.arange(s, 0, -1))
        stash = in_flight * np.add.reduceat(instance.stash, first)
    table = instance.memory_table
    if table is not None:
        place = (first, cuts[1:]) if table.ndim == 2 else (np.array(devices), first, cuts[1:])
        exclusive = {"table": table[place]}
    else:
        exclusive = {
            name: np.add.reduceat(column, first) for name, column in instance.exclusive.items()
        }
    if instance.tokens:
        cached = np.add.reduceat(instance.cached_bytes(instance.tokens), first)
        exclusive[KV_CACHE] = exclusive.get(KV_CACHE, 0) + cached
    if table is not None:
        return exclusive, nothing, stash
    uses = instance.shared
    shared = nothing.copy()
    if len(uses.layer):
        stage = np.searchsorted(cuts, uses.layer, side="right") - 1
        held = np.unique(np.stack([stage, uses.key]), axis=1)
        np.add.at(shared, held[0], uses.nbytes[held[1]])
    return exclusive, shared, stash


def _peaks(instance: PipelinePartition, first: Array, last: Array) -> tuple[Array, Array, Array]:
    """Return the layer with the largest temporary + carried bytes, and the two, by stage."""
    if instance.memory_table is not None:
        nothing = np.zeros(len(first), dtype=np.int64)
        return nothing - 1, nothing, nothing
    both = instance.temporary + instance.carry
    peak = np.maximum.reduceat(both, first)
    hits = np.flatnonzero(both == np.repeat(peak, last - first + 1))
    layer = hits[np.searchsorted(hits, first)]
    return layer, instance.temporary[layer], instance.carry[layer]
