"""Pipeline partitions in text: facts, the table of stages, and their part of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stagepack.contracts import JsonObject, Number
from stagepack.errors import InputError, shown
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.check import evaluate, host_cycles, token_bytes
from stagepack.instances.pipeline.data import GraphOrder
from stagepack.instances.pipeline.estimate import Estimate, estimate, read_measured
from stagepack.instances.pipeline.problem import Objective
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.report import format as as_text
from stagepack.report.parts import Section, choices, choose, panel, section
from stagepack.report.pipeline import figure as figures
from stagepack.report.pipeline.numbers import SCALES
from stagepack.report.search import named
from stagepack.report.table import Account, Head, Sheet
from stagepack.report.templating import part
from stagepack.report.view import View
from stagepack.result import Result
from stagepack.shown import some

UNITS: dict[str, str] = {Objective.HEADROOM: "tokens", Objective.MOVES: "bytes"}
"""Of objectives that count no cycles."""


class PipelineView(View[PipelinePartition, PipelineSolution]):
    """What pipelines look like."""

    counted = "cycles"
    scales = SCALES
    things = (PipelineSolution, Estimate)
    interactive = True

    def facts(self, instance: PipelinePartition) -> JsonObject:
        """Return sizes, totals and simple bounds as plain data."""
        cluster, cycles = instance.cluster, instance.cycles
        memory = [device.memory for device in cluster.devices]
        limits = [nbytes for nbytes in memory if nbytes is not None]
        largest = int(np.argmax(cycles))
        found: JsonObject = {
            "layers": instance.n,
            "order": None if instance.order is None else msgspec.structs.asdict(instance.order),
            "devices": instance.k,
            "stages": len(instance.stage_devices),
            "placement": instance.placement if instance.placed else None,
            "kinds_of_devices": len({device.kind for device in cluster.devices}),
            "cluster": cluster.name or None,
            "clock": cluster.clock,
            "training": instance.training,
            "microbatches": instance.microbatches if instance.training else None,
            "backward_transfers": instance.trips > 1,
            "host_transfer": instance.host_transfer,
            "host_cycles": host_cycles(instance),
            "cuts": instance.n - 1,
            "allowed_cuts": int(instance.allowed_cuts[1:-1].sum()),
            "fixed_cuts": len(instance.fixed_cuts),
            "variables": len(instance.variables),
            "tied": 0 if instance.tied is None else len(instance.tied.names),
            "previous": instance.previous and sum(at >= 0 for at in instance.previous),
            "limited": str(instance.limited),
            "limit": instance.limit,
            "cycles": cycles.sum().item(),
            "largest_layer": {
                "index": largest,
                "name": instance.layer_name(largest),
                "cycles": cycles[largest].item(),
            },
            "exclusive_bytes": {name: int(col.sum()) for name, col in instance.exclusive.items()},
            "shared_bytes": int(instance.shared.nbytes.sum()),
            "shared_keys": len(instance.shared.nbytes),
            "peak_bytes": int((instance.temporary + instance.carry).max()),
            "stash_bytes": int(instance.stash.sum()) if instance.training else None,
            "token_bytes": token_bytes(instance, 0, instance.n),
            "tokens": instance.tokens,
            "capacity": None if not limits else {"least": min(limits), "most": max(limits)},
            "total_capacity": sum(limits) if len(limits) == len(memory) else None,
            "alternatives": [*instance.alternatives],
            "alternatives_per": instance.alternatives_per if instance.alternatives else None,
            "tables": instance.compute_table is not None or instance.memory_table is not None,
        }
        try:
            costs = RangeCosts.of(instance)
            found["compute_bound"] = costs.value(costs.compute_bound())
        except InputError:  # figures beyond the exact range: solving says so
            found["compute_bound"] = None
        return found

    def lines(self, given: JsonObject) -> list[tuple[str, str]]:
        """Return facts as (what, text) for people."""
        number, quantity = as_text.number, as_text.quantity
        mode = "inference"
        if given["training"]:
            mode = f"training, {_batches(given['microbatches'], given['devices'])}"
            mode += ", gradients come back over the links" if given["backward_transfers"] else ""
        kinds = given["kinds_of_devices"]
        devices = number(given["devices"]) + ("" if kinds == 1 else f" of {kinds} kinds")
        layer, capacity = given["largest_layer"], given["capacity"]
        found = [
            ("Mode", mode),
            ("Layers", number(given["layers"])),
            ("Devices", devices + (f" ({given['cluster']})" if given["cluster"] else "")),
            ("Cuts allowed", f"{number(given['allowed_cuts'])} of {number(given['cuts'])}"),
        ]
        if given["placement"]:
            found.insert(3, ("Stages", _placement(given["stages"], given["placement"])))
        if given["order"]:
            found.insert(2, ("Their order", str(GraphOrder(**given["order"]))))
        if given["cycles"]:
            found += [
                ("Cycles", number(given["cycles"])),
                ("A cycle", as_text.duration(1 / given["clock"])),
                ("Largest layer", f"{layer['name']}: {number(layer['cycles'])}"),
            ]
        if given["host_cycles"]:
            found.append(("Exchange with host", f"{number(given['host_cycles'])} cycles"))
        if given["compute_bound"]:
            found.append(("Compute is at least", f"{number(given['compute_bound'])} cycles"))
        total = sum(given["exclusive_bytes"].values())
        parts = [(total, "exclusive"), (given["shared_bytes"], "shared")]
        parts += [(given["stash_bytes"] or 0, "stashed")]
        if any(nbytes for nbytes, _ in parts):
            text = ", ".join(f"{quantity(nbytes)} {what}" for nbytes, what in parts if nbytes)
            found.append(("Memory", text))
        if given["tied"]:
            found.append(("Tied weights", f"{number(given['tied'])}, copied to stages that use it"))
        if given["previous"] is not None:
            text = f"{number(given['previous'])} layers"
            if given["limit"] is not None:
                text += f"; {given['limited']} is at most {number(given['limit'])}"
            found.append(("Held by devices", text))
        if given["alternatives"]:
            names = ", ".join(given["alternatives"])
            found.append(("Alternatives", f"{names}, chosen for each {given['alternatives_per']}"))
        if given["token_bytes"]:
            held = f", for {number(given['tokens'])} tokens" if given["tokens"] else ""
            found.append(("KV cache", f"{quantity(given['token_bytes'])} a token{held}"))
        if given["peak_bytes"]:
            found.append(
                ("Largest working memory", f"{quantity(given['peak_bytes'])} at one layer")
            )
        if capacity is None:
            found.append(("Capacity", "no limit"))
        else:
            span = dict.fromkeys((quantity(capacity["least"]), quantity(capacity["most"])))
            found.append(("Capacity of a device", " to ".join(span)))
        return found

    def headline(self, instance: PipelinePartition) -> str:
        """Return what an instance is, in one line."""
        mode, stages = "inference", len(instance.stage_devices)
        if instance.training:
            mode = f"training with {_batches(instance.microbatches, instance.k)}"
        several = f"{_placement(stages, instance.placement)}, " if instance.placed else ""
        return (
            f"{as_text.plural(instance.n, 'layer')}, {as_text.plural(instance.k, 'device')}, "
            f"{several}{mode}, {self.goal(instance)}"
        )

    def part(self, instance: PipelinePartition, microbatches: int) -> str:
        """Return what an instance is as part of a step: its own microbatches are in flight."""
        whole = self.headline(instance.replace(microbatches=microbatches))
        own = self.headline(instance)
        return own if own == whole else f"{whole}, {instance.microbatches:,} in flight at most"

    def worth(self, instance: PipelinePartition, value: Number | None) -> str:
        """Return an objective value or bound in words: of headroom the tokens."""
        if instance.objective is Objective.HEADROOM and value is not None:
            return f"{as_text.number(-value)} tokens"
        if instance.objective is Objective.MOVES and value is not None:
            return f"{as_text.number(value)} bytes"
        return super().worth(instance, value)

    def unit_of(self, objective: str) -> str:
        """Return what an objective is counted in."""
        return UNITS.get(objective, self.counted)

    def goal(self, instance: PipelinePartition) -> str:
        """Return the objective; of the bottleneck, whether it leaves out transfers."""
        if instance.objective == Objective.BOTTLENECK and instance.linked:
            return f"{instance.objective} without transfers"
        return str(instance.objective)

    def solution_facts(self, instance: PipelinePartition, solution: PipelineSolution) -> JsonObject:
        """Return what a solution amounts to, as plain data under the names it has in JSON."""
        return {"estimate": estimate(instance, solution).to_dict()}

    def account(self, instance: PipelinePartition, solution: PipelineSolution) -> Account:
        """Return the stages of a solution: layers, cycles, memory against capacity."""
        found = estimate(instance, solution)
        said = [*_in_time(instance, found), *_uncounted(instance, found)]
        if instance.objective is Objective.MOVES:
            value = abs(evaluate(instance, solution, instance.limited))
            within = "" if instance.limit is None else f", of {as_text.number(instance.limit)}"
            said.append((f"Its {instance.limited}", f"{as_text.number(value)}{within}"))
        return Account(said, stages(found))

    def columns(self, instance: PipelinePartition, solution: PipelineSolution) -> list[JsonObject]:
        """Return a row a stage."""
        return estimate(instance, solution).rows()

    def against(
        self, instance: PipelinePartition, solution: PipelineSolution, measured: str | Path
    ) -> list[JsonObject]:
        """Return the estimate of a solution beside the measured values of a file.

        `instance`, `solution`, `measured`: as any view takes them.
        """
        return estimate(instance, solution).against(read_measured(measured))

    def against_sheet(self, rows: Sequence[JsonObject]) -> Sheet:
        """Return what :meth:`against` found: estimated, actual, difference, ratio."""
        lines = [
            [
                str(row["stage"]),
                str(row["device_name"]),
                str(row["figure"]),
                *(as_text.number(row[key]) for key in ("estimated", "actual", "difference")),
                as_text.NOTHING if row["ratio"] is None else f"{row['ratio']:.3f}",
            ]
            for row in rows
        ]
        words = ("stage", "device", "figure")
        header = (*words, "estimated", "actual", "difference", "ratio")
        return Sheet(header, lines, words, spare=("device",))

    def shown(self, thing: object, *, whole: bool = False) -> list[str | Head | Sheet]:
        """Return how a solution, or an estimate, prints."""
        if isinstance(thing, PipelineSolution):
            head = as_text.plural(len(thing.boundaries) - 1, "stage")
            head += f" of {as_text.plural(thing.boundaries[-1], 'layer')}"
            cuts, devices = some(thing.boundaries), some(thing.devices)
            taken = f"\nchoices {some(thing.choices)}" if thing.choices else ""
            return [f"{head}\nboundaries {cuts}\ndevices {devices}{taken}"]
        assert isinstance(thing, Estimate)
        if whole:
            rows = thing.rows()
            names = [name for name in rows[0] if name != "peak_layer"]
            texts = [[_figure(row[name]) for name in names] for row in rows]
            return [Sheet(names, texts, ("device_name",), what="stage")]
        totals = thing.totals
        value = f"{thing.objective_name} {as_text.number(abs(thing.objective))} "
        value += self.unit_of(thing.objective_name)  # tokens count below 0
        head = f"{shown(thing.instance)}: {value}"
        fits = "" if totals["fits"] else ", does not fit"
        return [f"{head}, balance {as_text.share(totals['balance'])}{fits}", stages(thing)]

    def page(self, instance: PipelinePartition, solution: Any, scale: str | None = None) -> Section:
        """Return the map of the stages as part of a page, and what those of a single one cost.

        The map has a switch for the scale.

        `instance`, `solution`, `scale`: as any view takes them.
        """
        drawn: JsonObject = {}
        text = panel("map", figures.stage_map(instance, solution), drawn)
        found = list(named(solution).values())
        if len(found) == 1:
            text += self.html(instance, instance.solution_in(found[0]))
        return Section(text, drawn)

    def beside(
        self,
        instance: PipelinePartition,
        solved: Mapping[str, Result[PipelineSolution]],
        anchor: str,
    ) -> Section:
        """Return the map of the results, a row each; their titles are the names of `solved`.

        `anchor` is what the ids of elements begin with.
        """
        drawn: JsonObject = {}
        return Section(panel(anchor, figures.stage_map(instance, solved), drawn), drawn)

    def section(
        self,
        instance: PipelinePartition,
        solved: Mapping[str, Result[PipelineSolution]],
        best: Result[PipelineSolution] | None,
        anchor: str,
    ) -> Section:
        """Return the map of all solutions and, for a choice of them, the bars and the stages.

        `solved` are results by method, `best` is the best of all; `anchor` begins the ids of all
        elements.
        """
        drawn: JsonObject = {}
        stage_map = panel(f"{anchor}-map", figures.stage_map(instance, solved), drawn)
        found = choices(solved)
        estimates = [estimate(instance, r.solution) for _, r in found if r.solution]
        selector, start = choose("Stages of", found, best, lambda v: self.worth(instance, v))
        cycles = [figures.device_bars(e) for e in estimates]
        panels = [panel(f"{anchor}-cycles", cycles, drawn, start=start)]
        if any(stage.memory for e in estimates for stage in e.stages):
            memory = [figures.memory_bars(e, estimates) for e in estimates]
            panels.append(panel(f"{anchor}-memory", memory, drawn, start=start))
        return section(
            drawn,
            selector,
            start,
            above=[stage_map],
            panels=panels,
            accounts=[part("sheet", stages(one)) for one in estimates],
            title="Stages in figures",
        )


def stages(estimate: Estimate) -> Sheet:
    """Return the stages of an estimate: layers, cycles, memory against capacity.

    Where devices have several stages, a row a device with the numbers of these.
    """
    if estimate.placed:
        return _devices(estimate)
    rows = [
        [
            str(stage.stage),
            as_text.span(stage.first, stage.end),
            stage.device_name,
            _time(estimate, stage.compute),
            _time(estimate, stage.transfer),
            as_text.quantity(stage.memory),
            as_text.quantity(stage.capacity),
            as_text.share(stage.utilisation),
        ]
        for stage in estimate.stages
    ]
    words: tuple[str, ...] = ("stage", "layers", "device")
    if any(stage.choices for stage in estimate.stages):
        words = (*words, "alternatives")
        rows = [
            [*row[:3], stage.choices, *row[3:]]
            for row, stage in zip(rows, estimate.stages, strict=True)
        ]
    header = (*words, "compute", "transfer", "memory", "capacity", "used")
    marks: dict[tuple[int, str], str] = {}
    largest = max(float(stage.compute) for stage in estimate.stages)
    for at, stage in enumerate(estimate.stages):
        if float(stage.compute) == largest and len(estimate.stages) > 1:
            marks[at, "compute"] = "bold"
        if stage.free is not None and stage.free < 0:
            marks[at, "memory"] = "bold red"
    spare = ("capacity", "device", "used")
    return Sheet(header, rows, words, spare=spare, marks=marks, what="stage")


def _time(estimate: Estimate, cycles: Number) -> str:
    """Return a time in seconds where people count these, in cycles elsewhere."""
    clock = estimate.clock
    return as_text.number(cycles) if clock is None else as_text.duration(float(cycles) / clock)


def _devices(estimate: Estimate) -> Sheet:
    """Return what devices hold in all: stages, their layers, cycles, memory against capacity."""
    rows = []
    for device in estimate.devices:
        mine = [stage for stage in estimate.stages if stage.device == device.device]
        rows.append(
            [
                device.device_name,
                ", ".join(str(stage.stage) for stage in mine),
                ", ".join(as_text.span(stage.first, stage.end) for stage in mine),
                _time(estimate, device.compute),
                as_text.quantity(device.memory),
                as_text.quantity(device.capacity),
                as_text.share(device.utilisation),
            ]
        )
    words = ("device", "stages", "layers")
    largest = max(float(device.compute) for device in estimate.devices)
    marks = {
        (at, "compute"): "bold"
        for at, device in enumerate(estimate.devices)
        if float(device.compute) == largest and len(rows) > 1
    }
    marks |= {
        (at, "memory"): "bold red"
        for at, device in enumerate(estimate.devices)
        if device.free is not None and device.free < 0
    }
    header = (*words, "compute", "memory", "capacity", "used")
    return Sheet(header, rows, words, spare=("capacity", "used"), marks=marks, what="device")


def _placement(count: int, placement: str | Sequence[int]) -> str:
    """Return how many stages there are, and where."""
    how = {"loop": "in a loop", "v": "in a V"}
    return f"{count:,} stages {how.get(str(placement), 'as placed')}"


def _in_time(instance: PipelinePartition, found: Estimate) -> list[tuple[str, str]]:
    """Return the objective in seconds, where the clock comes from a file or a named cluster."""
    timed = (instance.source or instance.cluster.name) and found.objective
    if not timed or instance.objective in UNITS:
        return []
    clock = float(instance.cluster.clock)
    time, cycle = as_text.duration(found.objective / clock), as_text.duration(1 / clock)
    return [("In time", f"{time} (a cycle is {cycle})")]


def _uncounted(instance: PipelinePartition, found: Estimate) -> list[tuple[str, str]]:
    """Return that bytes on a link take longer than the bottleneck, which counts no transfers."""
    slowest = max(max(stage.recv, stage.send) for stage in found.stages)
    if instance.objective != Objective.BOTTLENECK or slowest <= found.objective:
        return []
    text = f"transfers of up to {as_text.number(slowest)} cycles, by objective {instance.objective}"
    counted = "" if instance.placed else "; --objective overlap or sum counts them"
    return [("Not counted", text + counted)]


def _batches(count: int, devices: int) -> str:
    """Return how many microbatches a step has, and whether they fill the pipeline."""
    text = f"{count:,} microbatch" + ("" if count == 1 else "es")
    if count == devices > 1:
        return f"{text} (as many as devices)"
    return f"{text} ({devices:,} fill the pipeline)" if count < devices else text


def _figure(value: str | Number | None) -> str:
    return value if isinstance(value, str) else as_text.number(value)


VIEW = PipelineView("picture.draw")
