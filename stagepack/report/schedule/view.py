"""Pipeline schedules in text: facts, tables, and their part of a report."""

from __future__ import annotations

import numpy as np

from stagepack.contracts import JsonObject
from stagepack.errors import shown
from stagepack.instances.profile import Array
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution, measure
from stagepack.instances.schedule.check import Measure
from stagepack.report import format as as_text
from stagepack.report.schedule.numbers import LETTERS, device_label
from stagepack.report.table import Account, Head, Sheet
from stagepack.report.view import View
from stagepack.shown import some

LONGEST_NAME = 28
PRINTED = 24  # stages of a solution alone
COLUMNS = ("device", "busy", "span", "idle in span", "share", "in flight", "memory", "limit")


class ScheduleView(View[PipelineSchedule, ScheduleSolution]):
    """What schedules look like."""

    counted = "cycles"
    chosen = "Schedule of"
    things = (ScheduleSolution,)

    def facts(self, instance: PipelineSchedule) -> JsonObject:
        """Return sizes, totals and simple bounds as plain data."""
        from stagepack.heuristics.schedule.lower_bounds.bounds import bound

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

    def lines(self, given: JsonObject) -> list[tuple[str, str]]:
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
                found.append((name, _cycles(given[key])))
        if given["latency"] is not None and given["latency"][1]:
            found.append(("Link latency", _cycles(given["latency"])))
        if given["limit"] is not None:
            found.append(("Memory limit", _range(given["limit"])))
        if given["optimizer"][1]:
            when = "with" if given["post_validation"] else "without"
            step = f"{_cycles(given['optimizer'])}, {when} post-validation"
            found.append(("Optimiser step", step))
        if given["steps"] > 1:
            found.append(("Steps", number(given["steps"])))
        found.append(("Work of a device, at most", f"{number(given['largest_work'])} cycles"))
        found.append(("Lower bound", f"{number(given['bound'])} cycles ({given['bound_source']})"))
        return found

    def headline(self, instance: PipelineSchedule) -> str:
        """Return what an instance is, in one line."""
        count = sorted(set(instance.microbatches.tolist()))
        batches = " and ".join(f"{m:,}" for m in count)
        what = "microbatch" if count == [1] else "microbatches"
        return (
            f"{as_text.plural(instance.p, 'stage')} on {as_text.plural(instance.d, 'device')}, "
            f"{batches} {what}, {'/'.join(instance.kinds)}, {instance.objective}"
        )

    def solution_facts(self, instance: PipelineSchedule, solution: ScheduleSolution) -> JsonObject:
        """Return what a solution amounts to, as plain data under the names it has in JSON."""
        return {"schedule": measure(instance, solution).to_dict()}

    def account(self, instance: PipelineSchedule, solution: ScheduleSolution) -> Account:
        """Return what a whole schedule amounts to, and a line a device."""
        found = measure(instance, solution)
        number = as_text.number
        lines = [
            ("Makespan", f"{number(found.makespan)} cycles"),
            ("Bubble", f"{as_text.share(found.step_bubble)} of all devices' time"),
            (
                "Longest span of a device",
                f"{number(found.span)} cycles, {as_text.share(found.bubble)} of them idle",
            ),
        ]
        if instance.steps > 1:
            lines.append((f"{number(instance.steps)} steps", f"{number(found.total)} cycles"))
        return Account(lines, _sheet(instance, found))

    def columns(self, instance: PipelineSchedule, solution: ScheduleSolution) -> JsonObject:
        """Return the operations by columns."""
        operations = instance.operations
        return {
            "stage": operations.stage,
            "device": operations.device,
            "kind": np.array(LETTERS)[operations.kind],
            "microbatch": operations.microbatch,
            "start": solution.start,
            "end": solution.start + operations.duration,
            "memory": operations.delta,
        }

    def shown(self, thing: object, *, whole: bool = False) -> list[str | Head | Sheet]:
        """Return how a solution prints."""
        assert isinstance(thing, ScheduleSolution)
        names = LETTERS[: thing.kinds]
        lines = [
            f"stage {stage}: "
            + ", ".join(f"{n} {some(row)}" for n, row in zip(names, rows, strict=True))
            for stage, rows in enumerate(thing.stages[:PRINTED])
        ]
        head = as_text.plural(len(thing.start), "operation")
        head += f" of {as_text.plural(len(thing.microbatches), 'stage')}, starts of"
        return ["\n".join([head, *lines])]


def _span(values: Array) -> list[int]:
    return [int(values.min()), int(values.max())]


def _range(span: list[int]) -> str:
    return " to ".join(dict.fromkeys(map(as_text.number, span)))


def _cycles(span: list[int]) -> str:
    return f"{_range(span)} cycle{'' if span[1] == 1 else 's'}"


def _sheet(instance: PipelineSchedule, found: Measure) -> Sheet:
    """Return the table of the devices."""
    header = list(COLUMNS)
    rows = []
    for device, item in enumerate(found.devices):
        limit = None if instance.limit is None else int(instance.limit[device])
        rows.append(
            [
                shown(device_label(instance, device), LONGEST_NAME),
                *(as_text.number(v) for v in (item.busy, item.span, item.idle)),
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
    return Sheet(
        [header[i] for i in keep],
        [[row[i] for i in keep] for row in rows],
        ("device",),
        spare=("limit", "idle in span", "busy"),
        title="Devices in figures",
        what="device",
    )


VIEW = ScheduleView(
    "picture.draw",
    "figure.schedule_charts",
)
