"""How results, instances and all that is made of them print, and show themselves in notebooks."""

from __future__ import annotations

import base64
import dataclasses
import io
from collections.abc import Iterable, Mapping, Sequence
from functools import singledispatch
from typing import TYPE_CHECKING, Any

import numpy as np

from stagepack.errors import StagepackError
from stagepack.errors import shown as safe
from stagepack.instances.answer import Answered, require_instance
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.instances.phases import PhaseSolution
from stagepack.instances.phases.plan import Plan, phase_rows, plan
from stagepack.instances.pipeline import PipelineSolution
from stagepack.instances.pipeline.estimate import Estimate, estimate
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.report import format as as_text
from stagepack.report import summary
from stagepack.report.format import escape
from stagepack.report.kinds import face
from stagepack.report.pipeline import estimate_table
from stagepack.report.table import cell, facts_table, methods_table, plain
from stagepack.result import Result, Termination, Trace
from stagepack.shown import some
from stagepack.solve import MethodList

if TYPE_CHECKING:
    from rich.console import RenderableType

MOST = 24  # lines that are printed
ROWS = 16  # and rows of their table
WIDEST = 120  # columns
MOST_ROWS = 200  # of a table in a notebook
WORDS = ("phase", "layers", "mode", "kind", "source")  # columns to the left
DPI = 90  # of a picture in a notebook


# ---------------------------------------------------------------------- as text


def text(given: Any, width: int) -> str:
    """Return a few readable lines of at most `width` columns, or `WIDEST`."""
    lines = _text(given, min(WIDEST, width))
    return lines.rstrip() if isinstance(given, MethodList) else _clipped(lines)


@singledispatch
def _text(given: Any, width: int) -> str:
    return repr(given)


def rendered(content: RenderableType, width: int) -> str:
    """Return what rich prints in `width` columns, without colours."""
    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=width, no_color=True, legacy_windows=False).print(content)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def _clipped(lines: str) -> str:
    """Return text of at most `MOST` lines and a word about the others."""
    kept = lines.strip("\n").split("\n")
    if len(kept) > MOST + 1:
        kept = [*kept[:MOST], f"... and {len(kept) - MOST:,} more lines"]
    return "\n".join(kept)


@_text.register(Result)
def _(given: Result[Any], width: int) -> str:
    lines = [" ".join(filter(None, line)) for line in headlines(given, width)]
    if given.problem is not None and given.solution is not None:
        lines.append(rendered(_solution_table(given.problem, given.solution, width), width))
    return "\n".join(lines)


def headlines(result: Result[Any], width: int = WIDEST) -> list[tuple[str, str]]:
    """Return the lines of a summary as (what stands out, the rest), safe to print.

    Figures that do not fit on one line of `width` columns get a line each.
    """
    instance = result.problem
    about = result.kind if instance is None else face(instance).headline(instance)
    lines = [(f"{result.instance}:" if result.instance else "", about)]
    status = as_text.standing(result.status, result.objective, instance)
    if status != result.status:
        status = f"{status} ({result.status})"
    ended = "" if result.termination is Termination.PROVED else f", {_words(result.termination)}"
    by = f" by {result.method}" if result.method else ""
    engine = f" on {result.engine}" if result.engine else ""
    lines.append((status + ended, f"{by}{engine} in {_seconds(result)}".strip()))
    if result.objective is not None or result.bound is not None:
        named = f" ({result.objective_name})" if result.objective_name else ""
        source = f" ({result.bound_source})" if result.bound_source else ""
        figures = [
            f"objective{named} {worth(result, result.objective)}",
            f"bound {worth(result, result.bound)}{source}",
            *([] if result.gap is None else [f"gap {as_text.gap(result.gap)}"]),
        ]
        joined = ", ".join(figures)
        lines += [("", line) for line in ([joined] if len(joined) <= width else figures)]
    if result.reason:
        lines.append(("", result.reason))
    return [(safe(bold), safe(rest)) for bold, rest in lines]


def worth(result: Result[Any], value: Any) -> str:
    """Return an objective value or bound in words, with its unit."""
    instance = result.problem
    if value is None:
        return as_text.NOTHING
    if instance is not None:
        kind = face(instance)
        shown, unit = kind.worth(instance, value), kind.unit(instance)
        return f"{shown} {unit}" if shown == as_text.number(value) and unit.isalpha() else shown
    if result.kind == "lmem-packing":
        unit = "" if result.objective_name in ("bank-conflicts", "spill") else " bytes"
    else:
        unit = " cycles" if result.kind else ""
    return as_text.number(value) + unit


def _words(termination: Termination) -> str:
    return termination.value.lower().replace("_", " ")


def _seconds(result: Result[Any]) -> str:
    setup = f" (and {result.setup_time:.1f} s of setup)" if result.setup_time >= 0.1 else ""
    return as_text.seconds(result.runtime) + setup


def _solution_table(instance: Any, solution: Any, width: int) -> RenderableType:
    """Return the table of a solution, without more stages than are printed."""
    if isinstance(solution, PipelineSolution) and len(solution.devices) > ROWS:
        return _stages(estimate(instance, solution), width)
    return face(instance).solution_table(instance, solution, width)


def _stages(figures: Estimate, width: int) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    table = estimate_table(dataclasses.replace(figures, stages=figures.stages[:ROWS]), width)
    more = len(figures.stages) - ROWS
    return table if more <= 0 else Group(table, Text(f"... and {more:,} more stages"))


@_text.register(Answered)
def _(given: Any, width: int) -> str:
    lines = [f"{given.name}: {face(given).headline(given)}"]
    lines.append(rendered(facts_table(summary.lines(given), width), width))
    return "\n".join(lines)


@_text.register(Estimate)
def _(given: Estimate, width: int) -> str:
    totals = given.totals
    head = f"{given.instance}: {given.objective_name} {as_text.number(given.objective)} cycles"
    fits = "" if totals["fits"] else ", does not fit"
    head += f", balance {as_text.share(totals['balance'])}{fits}"
    return f"{head}\n{rendered(_stages(given, width), width)}"


@_text.register(Plan)
def _(given: Plan, width: int) -> str:
    head, names, rows = _plan(given)
    return f"{head}\n{rendered(_table(names, rows[:ROWS]), width)}" + (
        f"\n... and {len(rows) - ROWS:,} more phases" if len(rows) > ROWS else ""
    )


def _plan(given: Plan) -> tuple[str, list[str], list[list[str]]]:
    """Return the head of a plan, and the table of its phases."""
    number = as_text.number
    head = (
        f"{as_text.plural(len(given.phases), 'phase')} of "
        f"{as_text.plural(given.steps, 'step')}, {number(given.time)} cycles, "
        f"{number(given.time_per_sample)} a sample, "
        f"{as_text.quantity(given.remote_traffic)} of remote traffic"
    )
    rows = [
        [
            part.phase.name,
            f"[{part.phase.first:,}, {part.phase.end:,})",
            part.phase.mode,
            number(part.time),
            as_text.quantity(part.peak),
        ]
        for part in given.phases
    ]
    return head, ["phase", "layers", "mode", "cycles", "memory"], rows


@_text.register(MethodList)
def _(given: MethodList, width: int) -> str:
    return rendered(methods_table(given, width), width)


@_text.register(Trace)
def _(given: Trace, width: int) -> str:
    names, rows = _events(given)
    head = as_text.plural(len(given.incumbents), "incumbent") + ", "
    head += as_text.plural(len(given.bounds), "bound")
    skipped = [f"... {len(rows) - ROWS:,} earlier ones"] if len(rows) > ROWS else []
    table = rendered(_table(names, rows[-ROWS:]), width) if rows else ""
    return "\n".join(filter(None, [head, *skipped, table]))


def _events(given: Trace) -> tuple[list[str], list[list[str]]]:
    rows = [
        [as_text.seconds(e.time), e.kind, as_text.number(e.value), e.source] for e in given.events
    ]
    return ["time", "kind", "value", "source"], rows


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> RenderableType:
    table = plain(tuple(names), left=WORDS)
    for row in rows:
        table.add_row(*map(cell, row))
    return table


@_text.register(PipelineSolution)
def _(given: PipelineSolution, width: int) -> str:
    stages = len(given.boundaries) - 1
    head = f"{as_text.plural(stages, 'stage')} of {as_text.plural(given.boundaries[-1], 'layer')}"
    return f"{head}\nboundaries {some(given.boundaries)}\ndevices {some(given.devices)}"


@_text.register(PackingSolution)
def _(given: PackingSolution, width: int) -> str:
    offsets = given.offsets
    ids = given.ids or tuple(map(str, range(min(len(offsets), MOST))))
    shown = zip(ids[:MOST], offsets[:MOST].tolist(), strict=True)
    lines = [f"{as_text.plural(len(offsets), 'buffer')} at offsets up to {int(offsets.max()):,}"]
    lines.append(some(f"{name} at {offset:,}" for name, offset in shown))
    return "\n".join(lines)


@_text.register(ScheduleSolution)
def _(given: ScheduleSolution, width: int) -> str:
    stages = len(given.microbatches)
    head = f"{as_text.plural(len(given.start), 'operation')} of {as_text.plural(stages, 'stage')}"
    names = ("F", "B", "W")[: given.kinds]
    lines = [
        f"stage {stage}: "
        + ", ".join(f"{n} {some(row)}" for n, row in zip(names, rows, strict=True))
        for stage, rows in enumerate(given.stages[:MOST])
    ]
    return "\n".join([f"{head}, starts of", *lines])


@_text.register(PhaseSolution)
def _(given: PhaseSolution, width: int) -> str:
    groups, phases = len(given.boundaries) - 1, len(given.mode)
    lines = [
        f"{as_text.plural(groups, 'group')} of layers in {as_text.plural(phases, 'phase')}",
        f"boundaries {some(given.boundaries)}",
        f"modes {some(given.mode)}, microbatch {given.microbatch}, {given.io_tiles} I/O tiles",
    ]
    for name in dict.fromkeys(given.policy):
        lines += [f"{as_text.plural(given.policy.count(name), 'layer')}: {name}"]
    return "\n".join(lines)


# ---------------------------------------------------------------------- in a notebook


@singledispatch
def html(given: Any) -> str:
    """Return HTML without scripts or styles, for a notebook."""
    lines = map(escape, text(given, WIDEST).splitlines())
    return f"<pre>{'<br>'.join(lines)}</pre>"


@html.register(Result)
def _(given: Result[Any]) -> str:
    lines = [f"<b>{escape(bold)}</b> {escape(rest)}" for bold, rest in headlines(given)]
    parts = [f"<p>{'<br>'.join(lines)}</p>"]
    if given.problem is not None and given.solution is not None:
        parts += [face(given.problem).html(given.problem, given.solution), _picture(given)]
    return f"<div>{''.join(parts)}</div>"


def _picture(result: Result[Any]) -> str:
    """Return the picture of a solution as part of HTML; nothing where matplotlib is missing."""
    from stagepack.plots.style import close

    try:
        figure = face(result.problem).picture(result.problem, result.solution).figure
    except StagepackError:
        return ""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=DPI)
    close(figure)
    data = base64.b64encode(stream.getvalue()).decode()
    return f'<img alt="{escape(result.instance)}" src="data:image/png;base64,{data}">'


@html.register(Answered)
def _(given: Any) -> str:
    head = f"<b>{escape(given.name)}</b>: {escape(face(given).headline(given))}"
    rows = [[what, found] for what, found in summary.lines(given)]
    return f"<div><p>{head}</p>{html_table((), rows)}</div>"


@html.register(Estimate)
def _(given: Estimate) -> str:
    names = [name for name in given.rows()[0] if name != "peak_layer"]
    rows = [[_figure(row[name]) for name in names] for row in given.rows()[:MOST_ROWS]]
    return html_table(names, rows, len(given.stages) - len(rows))


@html.register(Plan)
def _(given: Plan) -> str:
    head, names, rows = _plan(given)
    return f"<p>{escape(head)}</p>" + html_table(names, rows[:MOST_ROWS], len(rows) - MOST_ROWS)


@html.register(MethodList)
def _(given: MethodList) -> str:
    names = ("method", "proves", "available", "what it does")
    rows = [
        [m.name, "yes" if m.exact else "no", "yes" if m.available else m.reason, m.description]
        for m in given
    ]
    return html_table(names, rows)


@html.register(Trace)
def _(given: Trace) -> str:
    names, rows = _events(given)
    return html_table(names, rows[-MOST_ROWS:], len(rows) - MOST_ROWS)


def _figure(value: Any) -> str:
    return value if isinstance(value, str) else as_text.number(value)


def html_table(names: Sequence[str], rows: Sequence[Sequence[str]], more: int = 0) -> str:
    """Return a table, and a word about the rows that are left out."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(entry)}</td>" for entry in row) + "</tr>" for row in rows
    )
    rest = f"<p>... and {more:,} more</p>" if more > 0 else ""
    head = f"<thead><tr>{head}</tr></thead>" if names else ""
    return f"<table>{head}<tbody>{body}</tbody></table>{rest}"


# ---------------------------------------------------------------------- as columns


def columns(instance: Any, solution: Any) -> Mapping[str, Any] | list[dict[str, Any]]:
    """Return the stages, buffers, operations or phases of a solution, by columns or rows.

    Raises
    ------
    InputError
        When it is no solution of `instance`.
    """
    require_instance(instance)
    found = instance.solution_in(solution)
    if isinstance(found, PipelineSolution):
        return estimate(instance, found).rows()
    if isinstance(found, PackingSolution):
        return _buffers(instance, found)
    if isinstance(found, ScheduleSolution):
        return _operations(instance, found)
    return phase_rows(plan(instance, found))


def _buffers(instance: LmemPacking, solution: PackingSolution) -> dict[str, Any]:
    timed = instance.conflicts is None
    found = {
        "id": list(instance.ids or map(str, range(instance.n))),
        "size": instance.size,
        "start": instance.start if timed else None,
        "end": instance.end if timed else None,
        "offset": solution.offsets,
        "top": solution.offsets + instance.size,
        "alignment": instance.alignment,
    }
    if solution.memory is not None:
        names = np.array([memory.name for memory in instance.memories])
        found["memory"] = names[solution.memory]
    return found


def _operations(instance: PipelineSchedule, solution: ScheduleSolution) -> dict[str, Any]:
    operations = instance.operations
    return {
        "stage": operations.stage,
        "device": operations.device,
        "kind": np.array(("F", "B", "W"))[operations.kind],
        "microbatch": operations.microbatch,
        "start": solution.start,
        "end": solution.start + operations.duration,
        "memory": operations.delta,
    }
