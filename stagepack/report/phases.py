"""Phase plans for people: facts, tables, and their part of a report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stagepack.instances.phases import PhaseSchedule, PhaseSolution
from stagepack.instances.phases.least import least_memory
from stagepack.instances.phases.plan import Plan, plan
from stagepack.report import format as as_text
from stagepack.report.parts import Section, charted, described, panel
from stagepack.report.table import cell, facts_table, narrowed, plain
from stagepack.result import InputError, Result

if TYPE_CHECKING:
    from rich.console import RenderableType

COLUMNS = ("phase", "layers", "mode", "V", "L", "C", "S", "E", "time", "memory", "used")
WORDS = ("phase", "layers", "mode")
LISTED = 40  # phases in the table of a terminal


# ---------------------------------------------------------------------- the instance


def facts(instance: PhaseSchedule) -> dict[str, Any]:
    """Return sizes, totals and the machine as plain data."""
    chip, least = instance.chip, least_memory(instance)
    return {
        "layers": instance.n,
        "training": instance.training,
        "classes": len(set(instance.layer_class.tolist())),
        "variable_bytes": int(instance.variables.sum()),
        "state_bytes": int(instance.state.sum()),
        "largest_layer": int(instance.variables.max()),
        "skips": len(instance.skips),
        "global_batch": instance.global_batch,
        "data_parallel": instance.data_parallel,
        "microbatches": list(instance.microbatches),
        "modes": list(map(str, instance.modes)),
        "policies": list(map(str, instance.policies)) if instance.training else [],
        "recomputations": instance.recomputations if instance.training else None,
        "prefetch": instance.prefetch,
        "fixed_boundaries": None
        if instance.fixed_boundaries is None
        else list(instance.fixed_boundaries),
        "remote_memory": instance.remote_memory,
        "graphs": instance.graphs,
        "chip": chip.name or None,
        "memory": chip.memory,
        "least_memory": {
            "bytes": least.memory,
            "layer": instance.layer_name(least.layer),
            "moment": least.moment,
        },
        "tiles": chip.tiles,
        "io_tiles": [instance.io_tile_choices[0], instance.io_tile_choices[-1]],
        "remote_bandwidth": _plain(chip.remote_bandwidth),
        "host_bandwidth": _plain(chip.host_bandwidth),
        "startup": chip.startup,
        "clock": float(chip.clock),
    }


def _plain(rate: Any) -> float | None:
    return None if rate is None else float(rate)


def lines(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return facts as (what, text) for people."""
    number, quantity = as_text.number, as_text.quantity
    batches, least = given["microbatches"], given["least_memory"]
    free = f"{batches[0]} to {batches[-1]}, free" if len(batches) > 1 else number(batches[0])
    found = [
        ("Mode", "training" if given["training"] else "inference"),
        ("Layers", f"{number(given['layers'])} of {as_text.plural(given['classes'], 'class')}"
         if given["classes"] == 1
         else f"{number(given['layers'])} of {number(given['classes'])} classes"),
        ("Variables", quantity(given["variable_bytes"])),
    ]  # fmt: skip
    if given["training"] and given["state_bytes"]:
        found.append(("Optimiser state", quantity(given["state_bytes"])))
    if given["skips"]:
        found.append(("Skip connections", number(given["skips"])))
    replicas = given["data_parallel"]
    found += [
        ("Global batch", number(given["global_batch"])
         + (f" on {number(replicas)} replicas" if replicas > 1 else "")),
        ("Microbatch", free),
        ("Chip", f"{given['chip'] or 'unnamed'}, {quantity(given['memory'])}, "
         f"{as_text.plural(given['tiles'], 'tile')}"),
        ("Least memory", f"{quantity(least['bytes'])}, for the {least['moment']} of "
         f"{least['layer']}"),
        ("I/O tiles", " to ".join(dict.fromkeys(map(number, given["io_tiles"])))),
        ("Remote memory", f"{_rate(given['remote_bandwidth'])}"
         + ("" if given["remote_memory"] is None else f", {quantity(given['remote_memory'])}")),
        ("Host", _rate(given["host_bandwidth"])),
        ("Loops", ", ".join(given["modes"]) + (", prefetch" if given["prefetch"] else "")),
    ]  # fmt: skip
    if given["training"]:
        found.append(("Activations", ", ".join(given["policies"])))
    if given["graphs"] is not None:
        found.append(("Phase graphs", f"{number(given['graphs'])} at most"))
    if given["fixed_boundaries"] is not None:
        found.append(("Boundaries", f"fixed to {given['fixed_boundaries']}"))
    return found


def _rate(rate: float | None) -> str:
    return "free" if rate is None else f"{as_text.number(rate)} bytes a cycle"


def headline(instance: PhaseSchedule) -> str:
    """Return what an instance is, in one line."""
    mode = "training" if instance.training else "inference"
    return (
        f"{as_text.plural(instance.n, 'layer')}, {as_text.quantity(int(instance.variables.sum()))} "
        f"of variables on a chip of {as_text.quantity(instance.chip.memory)}, {mode}"
    )


def worth(instance: PhaseSchedule, value: Any) -> str:
    """Return an objective value or bound in words."""
    return as_text.number(value)


def unit(instance: PhaseSchedule) -> str:
    """Return what objectives are counted in."""
    return "cycles"


# ---------------------------------------------------------------------- a solution


def solution_facts(instance: PhaseSchedule, solution: PhaseSolution) -> dict[str, Any]:
    """Return what a plan amounts to, as plain data under the names it has in JSON."""
    return {"plan": plan(instance, solution).to_dict()}


def solution_lines(
    instance: PhaseSchedule, solution: PhaseSolution, found: Plan
) -> list[tuple[str, str]]:
    """Return what a whole plan amounts to as (what, text) for people."""
    number, quantity = as_text.number, as_text.quantity
    per_sample = found.seconds / found.samples
    rows = sum(buffer.rows for buffer in found.buffers)
    given = [
        ("Time a sample", f"{number(found.time_per_sample)} cycles, {_seconds(per_sample)}"),
        ("Steps", f"{number(found.steps)} of microbatch {number(found.microbatch)}, "
         f"{as_text.plural(found.io_tiles, 'I/O tile')}"),
        ("Phases", f"{number(len(found.phases))} of {as_text.plural(found.graphs, 'graph')}"),
        ("Remote traffic", quantity(found.remote_traffic)),
        ("Remote memory", f"{quantity(found.remote_bytes)}, "
         f"{as_text.plural(len(found.buffers), 'buffer')} of {as_text.plural(rows, 'row')}"),
    ]  # fmt: skip
    if instance.training:
        counts = {name: solution.policy.count(name) for name in dict.fromkeys(solution.policy)}
        text = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        given.append(("Activations", text))
    hidden = sum(part.cycles.hidden for part in found.phases)
    if hidden:
        given.append(("Hidden by prefetching", f"{number(hidden)} cycles"))
    return given


def _seconds(value: float) -> str:
    for factor, name in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= factor:
            return f"{value / factor:.4g} {name}"
    return f"{value / 1e-9:.4g} ns"


def _table(instance: PhaseSchedule, found: Plan) -> tuple[list[str], list[list[str]]]:
    """Return header and lines of the table of phases; E is nothing in inference."""
    number = as_text.number
    rows = []
    for part in found.phases:
        phase, cycles = part.phase, part.cycles
        rows.append(
            [
                phase.name,
                f"{phase.first:,}–{phase.end - 1:,}" if phase.end - phase.first > 1
                else f"{phase.first:,}",
                phase.mode + (" +prefetch" if phase.prefetch else ""),
                number(cycles.variables + cycles.gather),
                number(cycles.load),
                number(cycles.compute),
                number(cycles.store),
                number(cycles.epilogue),
                number(part.time),
                as_text.quantity(part.peak),
                as_text.share(None if part.capacity is None else part.peak / part.capacity),
            ]
        )  # fmt: skip
    if instance.training:
        return list(COLUMNS), rows
    at = COLUMNS.index("E")
    return [*COLUMNS[:at], *COLUMNS[at + 1 :]], [[*row[:at], *row[at + 1 :]] for row in rows]


def solution_table(
    instance: PhaseSchedule, solution: PhaseSolution, width: int = 80
) -> RenderableType:
    """Return what a plan amounts to, for a terminal of `width` columns."""
    from rich.console import Group

    found = plan(instance, solution)
    header, rows = _table(instance, found)
    header, rows = narrowed(header, rows, ("used", "E", "V", "S", "L", "C"), width)
    table = plain(tuple(header), left=WORDS)
    for row in rows[:LISTED]:
        table.add_row(*map(cell, row))
    parts: list[Any] = [facts_table(solution_lines(instance, solution, found), width), cell("")]
    if len(rows) > LISTED:
        parts.append(cell(f"the first {LISTED} of {len(rows):,} phases", "dim"))
    return Group(*parts, table)


def against(
    instance: PhaseSchedule, solution: PhaseSolution, measured: str | Path
) -> list[dict[str, Any]]:
    """Refuse: nothing is measured here."""
    raise InputError("a plan has nothing to measure", field="--measured", remedy="leave it out")


# ---------------------------------------------------------------------- pictures and reports


def picture(instance: PhaseSchedule, solution: Any, scale: str | None = None) -> Any:
    """Return the picture of a plan, drawn with matplotlib."""
    from stagepack.plots import phase_chart

    _require_no_scale(scale)
    return phase_chart(instance, solution)


def page(instance: PhaseSchedule, solution: Any, scale: str | None = None) -> Section:
    """Return the picture of a plan as part of a page."""
    from stagepack.report.phases_figures import phase_charts

    _require_no_scale(scale)
    found = instance.solution_in(solution)
    drawn: dict[str, Any] = {}
    chart = panel("chart", phase_charts(instance, [found])[0], drawn)
    return Section(f"{chart}\n{html(instance, found)}", drawn)


def section(
    instance: PhaseSchedule,
    solved: Mapping[str, Result[Any]],
    best: Result[Any] | None,
    anchor: str,
) -> Section:
    """Return, for a choice of the plans, the chart and the figures of every phase."""
    from stagepack.report.phases_figures import phase_charts

    return charted(
        "Plan of",
        solved,
        best,
        anchor,
        lambda value: worth(instance, value),
        lambda plans: phase_charts(instance, plans),
        lambda solution: html(instance, solution),
    )


def _require_no_scale(scale: str | None) -> None:
    if scale is not None:
        raise InputError("a plan has one scale: cycles", field="--scale", remedy="leave it out")


def html(instance: PhaseSchedule, solution: PhaseSolution) -> str:
    """Return what a plan amounts to, and the figures of its phases, as HTML."""
    found = plan(instance, solution)
    header, rows = _table(instance, found)
    lines = solution_lines(instance, solution, found)
    return described(lines, "Phases in figures", header, rows, WORDS)
