"""Pipeline schedules for people: facts, tables, and their part of a report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution, measure
from stagepack.plots.schedule import device_label
from stagepack.report import format as as_text
from stagepack.report.parts import Section, charted, described, panel
from stagepack.report.table import cell, facts_table, narrowed, plain
from stagepack.result import InputError, Result

if TYPE_CHECKING:
    from rich.console import RenderableType

LONGEST_NAME = 28
COLUMNS = ("device", "busy", "idle", "span", "bubble", "in flight", "memory", "limit")


# ---------------------------------------------------------------------- the instance


def facts(instance: PipelineSchedule) -> dict[str, Any]:
    """Return sizes, totals and simple bounds as plain data."""
    from stagepack.heuristics.schedule.bounds import bound

    operations = instance.operations
    value, source = bound(instance)
    return {
        "stages": instance.p,
        "devices": instance.d,
        "microbatches": sorted(set(instance.microbatches.tolist())),
        "operations": len(operations.stage),
        "kinds": list(instance.kinds),
        "training": instance.training,
        "split": instance.split,
        "forward": _span(instance.forward),
        "backward": None if instance.backward is None else _span(instance.backward),
        "weight": None if instance.weight is None else _span(instance.weight),
        "latency": _span(instance.lag) if len(instance.lag) else None,
        "largest_work": int(instance.work.max()),
        "limit": None if instance.limit is None else _span(instance.limit),
        "optimizer": _span(instance.optimizer),
        "post_validation": instance.post_validation,
        "steps": instance.steps,
        "bound": value,
        "bound_source": source,
    }


def _span(values: Any) -> list[int]:
    return [int(values.min()), int(values.max())]


def lines(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return facts as (what, text) for people."""
    number = as_text.number
    mode = "inference"
    if given["training"]:
        mode = "training, backward " + ("split into B and W" if given["split"] else "fused")
    found = [
        ("Mode", mode),
        ("Stages", number(given["stages"])),
        ("Devices", number(given["devices"])),
        ("Microbatches", " and ".join(map(number, given["microbatches"]))),
        ("Operations", number(given["operations"])),
    ]
    names = {"forward": "Forward", "backward": "Backward", "weight": "Weight gradient"}
    for key, name in names.items():
        if given[key] is not None:
            found.append((name, f"{_range(given[key])} cycles"))
    if given["latency"] is not None and given["latency"][1]:
        found.append(("Link latency", f"{_range(given['latency'])} cycles"))
    if given["limit"] is not None:
        found.append(("Memory limit", _range(given["limit"])))
    if given["optimizer"][1]:
        when = "with" if given["post_validation"] else "without"
        step = f"{_range(given['optimizer'])} cycles, {when} post-validation"
        found.append(("Optimiser step", step))
    if given["steps"] > 1:
        found.append(("Steps", number(given["steps"])))
    found.append(("Work of a device, at most", f"{number(given['largest_work'])} cycles"))
    found.append(("Lower bound", f"{number(given['bound'])} cycles ({given['bound_source']})"))
    return found


def _range(span: list[int]) -> str:
    return " to ".join(dict.fromkeys(map(as_text.number, span)))


def headline(instance: PipelineSchedule) -> str:
    """Return what an instance is, in one line."""
    count = sorted(set(instance.microbatches.tolist()))
    batches = " and ".join(f"{m:,}" for m in count)
    what = "microbatch" if count == [1] else "microbatches"
    return (
        f"{as_text.plural(instance.p, 'stage')} on {as_text.plural(instance.d, 'device')}, "
        f"{batches} {what}, {'/'.join(instance.kinds)}, {instance.objective}"
    )


def worth(instance: PipelineSchedule, value: Any) -> str:
    """Return an objective value or bound in words."""
    return as_text.number(value)


def unit(instance: PipelineSchedule) -> str:
    """Return what objectives are counted in."""
    return "cycles"


# ---------------------------------------------------------------------- a solution


def solution_facts(instance: PipelineSchedule, solution: ScheduleSolution) -> dict[str, Any]:
    """Return what a solution amounts to, as plain data under the names it has in JSON."""
    return {"schedule": measure(instance, solution).to_dict()}


def solution_table(
    instance: PipelineSchedule, solution: ScheduleSolution, width: int = 80
) -> RenderableType:
    """Return what a solution amounts to, for a terminal of `width` columns."""
    from rich.console import Group

    header, rows = _rows(instance, solution)
    header, rows = narrowed(
        header, [[_short(row[0]), *row[1:]] for row in rows], ("limit", "idle", "busy"), width
    )
    table = plain(tuple(header), left=("device",))
    for row in rows:
        table.add_row(*map(cell, row))
    return Group(facts_table(solution_lines(instance, solution), width), cell(""), table)


def _short(name: str) -> str:
    """Return the name of a device, its middle left out where it is long."""
    if len(name) <= LONGEST_NAME:
        return name
    return name[: LONGEST_NAME // 2] + "…" + name[-(LONGEST_NAME // 2) + 1 :]


def solution_lines(instance: PipelineSchedule, solution: ScheduleSolution) -> list[tuple[str, str]]:
    """Return what a whole schedule amounts to as (what, text) for people."""
    found = measure(instance, solution)
    number = as_text.number
    facts = [
        ("Makespan", f"{number(found.makespan)} cycles"),
        ("Longest span of a device", f"{number(found.span)} cycles"),
        ("Bubble", f"{as_text.share(found.bubble)} of the longest span is idle"),
    ]
    if instance.steps > 1:
        facts.append((f"{number(instance.steps)} steps", f"{number(found.total)} cycles"))
    return facts


def _rows(
    instance: PipelineSchedule, solution: ScheduleSolution
) -> tuple[list[str], list[list[str]]]:
    """Return header and lines of the table of the devices."""
    found = measure(instance, solution)
    header = list(COLUMNS)
    rows = []
    for device, item in enumerate(found.devices):
        limit = None if instance.limit is None else int(instance.limit[device])
        rows.append(
            [
                device_label(instance, device),
                *(as_text.number(v) for v in (item.busy, item.idle, item.span)),
                as_text.share(item.bubble),
                as_text.number(item.in_flight),
                as_text.number(item.peak_memory),
                as_text.number(limit),
            ]
        )
    told = [
        any(text not in ("0", as_text.NOTHING) for text in column)
        for column in zip(*rows, strict=True)
    ]
    keep = [i for i, name in enumerate(header) if told[i] or name not in ("memory", "limit")]
    return [header[i] for i in keep], [[row[i] for i in keep] for row in rows]


def against(
    instance: PipelineSchedule, solution: ScheduleSolution, measured: str | Path
) -> list[dict[str, Any]]:
    """Refuse: nothing is measured here."""
    raise InputError("a schedule has nothing to measure", field="--measured", remedy="leave it out")


# ---------------------------------------------------------------------- pictures and reports


def picture(instance: PipelineSchedule, solution: Any, scale: str | None = None) -> Any:
    """Return the picture of a solution, drawn with matplotlib."""
    from stagepack.plots import schedule_chart

    _require_no_scale(scale)
    return schedule_chart(instance, solution)


def page(instance: PipelineSchedule, solution: Any, scale: str | None = None) -> Section:
    """Return the picture of a solution as part of a page."""
    from stagepack.report.schedule_figures import schedule_charts

    _require_no_scale(scale)
    found = instance.solution_in(solution)
    drawn: dict[str, Any] = {}
    chart = panel("chart", schedule_charts(instance, [found])[0], drawn)
    return Section(f"{chart}\n{html(instance, found)}", drawn)


def section(
    instance: PipelineSchedule,
    solved: Mapping[str, Result[Any]],
    best: Result[Any] | None,
    anchor: str,
) -> Section:
    """Return, for a choice of the solutions, the chart and the figures of every device."""
    from stagepack.report.schedule_figures import schedule_charts

    return charted(
        "Schedule of",
        solved,
        best,
        anchor,
        lambda value: worth(instance, value),
        lambda schedules: schedule_charts(instance, schedules),
        lambda solution: html(instance, solution),
    )


def _require_no_scale(scale: str | None) -> None:
    if scale is not None:
        raise InputError("a schedule has one scale: cycles", field="--scale", remedy="leave it out")


def html(instance: PipelineSchedule, solution: ScheduleSolution) -> str:
    """Return what a solution amounts to, and the figures of its devices, as HTML."""
    header, rows = _rows(instance, solution)
    lines = solution_lines(instance, solution)
    return described(lines, "Devices in figures", header, rows, ("device",))
