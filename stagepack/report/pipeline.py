"""Pipelines for people: facts, tables, and their part of a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.check import host_cycles
from stagepack.instances.pipeline.estimate import Estimate, estimate, read_measured
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.report import format as as_text
from stagepack.report import pipeline_figures as figures
from stagepack.report.format import escape
from stagepack.report.parts import Section, choices, choose, chosen, panel
from stagepack.report.table import cell, narrowed, natural, plain
from stagepack.result import InputError, Result

if TYPE_CHECKING:
    from rich.console import RenderableType

LISTED = 100  # stages in a table of a notebook
COLUMNS = ("Stage", "Layers", "Device", "Compute", "Transfer", "Memory", "Capacity", "Used")


def facts(instance: PipelinePartition) -> dict[str, Any]:
    """Return sizes, totals and simple bounds as plain data."""
    cluster, cycles = instance.cluster, instance.cycles
    memory = [device.memory for device in cluster.devices]
    limits = [nbytes for nbytes in memory if nbytes is not None]
    largest = int(np.argmax(cycles))
    found: dict[str, Any] = {
        "layers": instance.n,
        "devices": instance.k,
        "kinds_of_devices": len({device.kind for device in cluster.devices}),
        "cluster": cluster.name or None,
        "clock": cluster.clock,
        "training": instance.training,
        "microbatches": instance.microbatches if instance.training else None,
        "host_transfer": instance.host_transfer,
        "host_cycles": host_cycles(instance),
        "cuts": instance.n - 1,
        "allowed_cuts": int(instance.allowed_cuts[1:-1].sum()),
        "fixed_cuts": len(instance.fixed_cuts),
        "variables": len(instance.variables),
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
        "capacity": None if not limits else {"least": min(limits), "most": max(limits)},
        "total_capacity": sum(limits) if len(limits) == len(memory) else None,
        "tables": instance.compute_table is not None or instance.memory_table is not None,
    }
    try:
        costs = RangeCosts.of(instance)
        found["compute_bound"] = costs.value(costs.compute_bound())
    except InputError:  # figures beyond the exact range: solving says so
        found["compute_bound"] = None
    return found


def lines(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return facts as (what, text) for people."""
    number, quantity = as_text.number, as_text.quantity
    mode = "inference"
    if given["training"]:
        count = given["microbatches"]
        mode = f"training, {count:,} microbatch" + ("" if count == 1 else "es")
    kinds = given["kinds_of_devices"]
    devices = number(given["devices"]) + ("" if kinds == 1 else f" of {kinds} kinds")
    layer, capacity = given["largest_layer"], given["capacity"]
    found = [
        ("Mode", mode),
        ("Layers", number(given["layers"])),
        ("Devices", devices + (f" ({given['cluster']})" if given["cluster"] else "")),
        ("Cuts allowed", f"{number(given['allowed_cuts'])} of {number(given['cuts'])}"),
    ]
    if given["cycles"]:
        found += [
            ("Cycles", number(given["cycles"])),
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
    if given["peak_bytes"]:
        found.append(("Largest working memory", f"{quantity(given['peak_bytes'])} at one layer"))
    if capacity is None:
        found.append(("Capacity", "no limit"))
    else:
        span = dict.fromkeys((quantity(capacity["least"]), quantity(capacity["most"])))
        found.append(("Capacity of a device", " to ".join(span)))
    return found


def headline(instance: PipelinePartition) -> str:
    """Return what an instance is, in one line."""
    mode = "training" if instance.training else "inference"
    return (
        f"{as_text.plural(instance.n, 'layer')}, {as_text.plural(instance.k, 'device')}, "
        f"{mode}, {instance.objective}"
    )


def worth(instance: PipelinePartition, value: Any) -> str:
    """Return an objective value or bound in words."""
    return as_text.number(value)


def unit(instance: PipelinePartition) -> str:
    """Return what objectives are counted in."""
    return "cycles"


def solution_facts(instance: PipelinePartition, solution: PipelineSolution) -> dict[str, Any]:
    """Return what a solution amounts to, as plain data under the names it has in JSON."""
    return {"estimate": estimate(instance, solution).to_dict()}


def solution_table(
    instance: PipelinePartition, solution: PipelineSolution, width: int = 80
) -> RenderableType:
    """Return what a solution amounts to, for a terminal of `width` columns."""
    return estimate_table(estimate(instance, solution), width)


def against(
    instance: PipelinePartition, solution: PipelineSolution, measured: str | Path
) -> list[dict[str, Any]]:
    """Return the estimate of a solution beside the measured values of a file."""
    return estimate(instance, solution).against(read_measured(measured))


def picture(instance: PipelinePartition, solution: Any, scale: str | None = None) -> Any:
    """Return the picture of a solution, drawn with matplotlib."""
    from stagepack.plots import stage_map

    return stage_map(instance, solution, scale=scale or "cycles")


def page(instance: PipelinePartition, solution: Any, scale: str | None = None) -> Section:
    """Return the picture of a solution as part of a page; it has a switch for the scale."""
    drawn: dict[str, Any] = {}
    return Section(panel("map", figures.stage_map(instance, solution), drawn), drawn)


def estimate_table(estimate: Estimate, width: int = 80) -> RenderableType:
    """Return the stages of an estimate: layers, cycles, memory against capacity."""
    names = [stage.device_name for stage in estimate.stages]
    header = ["stage", "layers", "device", "compute", "transfer", "memory", "capacity", "used"]
    lines = [
        [
            str(stage.stage),
            f"{stage.first:,}–{stage.end - 1:,}",
            stage.device_name,
            as_text.number(stage.compute),
            as_text.number(stage.transfer),
            as_text.quantity(stage.memory),
            as_text.quantity(stage.capacity),
            as_text.share(stage.utilisation),
        ]
        for stage in estimate.stages
    ]
    header, lines = narrowed(header, lines, ("capacity", "device", "used"), width)
    table = plain(tuple(header), left=("stage", "layers", "device"))
    largest = max(float(stage.compute) for stage in estimate.stages)
    for stage, line in zip(estimate.stages, lines, strict=True):
        over = stage.free is not None and stage.free < 0
        styles = dict.fromkeys(header, "")
        styles["compute"] = "bold" if float(stage.compute) == largest and len(names) > 1 else ""
        styles["memory"] = "bold red" if over else ""
        table.add_row(*(cell(t, styles[column]) for column, t in zip(header, line, strict=True)))
    return table


def against_table(rows: Iterable[Mapping[str, Any]], width: int = 80) -> RenderableType:
    """Return what :meth:`Estimate.against` found: estimated, actual, difference, ratio."""
    header: tuple[str, ...] = (
        "stage",
        "device_name",
        "figure",
        "estimated",
        "actual",
        "difference",
        "ratio",
    )
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
    if natural(list(header), lines) > width:
        header = tuple(column for column in header if column != "device_name")
        lines = [[line[0], *line[2:]] for line in lines]
    shown = tuple(column.replace("device_name", "device") for column in header)
    table = plain(shown, left=("stage", "device", "figure"))
    for line in lines:
        table.add_row(*map(cell, line))
    return table


def section(
    instance: PipelinePartition,
    solved: Mapping[str, Result[Any]],
    best: Result[Any] | None,
    anchor: str,
) -> Section:
    """Return the map of all solutions and, for a choice of them, the bars and the stages."""
    drawn: dict[str, Any] = {}
    parts = [panel(f"{anchor}-map", figures.stage_map(instance, solved), drawn)]
    found = choices(solved)
    estimates: list[Estimate] = [estimate(instance, r.solution) for _, r in found if r.solution]
    selector, start = choose("Stages of", found, best, lambda value: worth(instance, value))
    parts += [selector, '<div class="pair">']
    cycles = [figures.device_bars(e) for e in estimates]
    parts.append(panel(f"{anchor}-cycles", cycles, drawn, start=start))
    if any(stage.memory for e in estimates for stage in e.stages):
        memory = [figures.memory_bars(e, estimates) for e in estimates]
        parts.append(panel(f"{anchor}-memory", memory, drawn, start=start))
    parts.append("</div>")
    tables = [_stages(figures_of) for figures_of in estimates]
    parts += ["<details><summary>Stages in figures</summary>", *chosen(tables, start), "</details>"]
    return Section("\n".join(parts), drawn)


def html(instance: PipelinePartition, solution: PipelineSolution) -> str:
    """Return the stages of a solution as HTML, the first `LISTED` of them."""
    found = estimate(instance, solution)
    more = len(found.stages) - LISTED
    note = f"<p>... and {more:,} more stages</p>" if more > 0 else ""
    return _stages(dataclasses.replace(found, stages=found.stages[:LISTED])) + note


def _stages(figures_of: Estimate) -> str:
    head = "".join(
        f"<th{' class=number' if index > 2 else ''}>{name}</th>"
        for index, name in enumerate(COLUMNS)
    )
    lines = []
    for s in figures_of.stages:
        over = " class=over" if s.free is not None and s.free < 0 else ""
        numbers = (
            as_text.number(s.compute),
            as_text.number(s.transfer),
            as_text.quantity(s.memory),
            as_text.quantity(s.capacity),
            as_text.share(s.utilisation),
        )
        lines.append(
            f"<tr{over}><td>{s.stage}</td><td>{s.first:,}–{s.end - 1:,}</td>"
            f"<td>{escape(s.device_name)}</td>"
            + "".join(f'<td class="number">{text}</td>' for text in numbers)
            + "</tr>"
        )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
