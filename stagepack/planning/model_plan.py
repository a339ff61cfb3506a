"""A plan of a model: what it consists of, what it is worth, how it is checked and shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stagepack import files
from stagepack.contracts import Instance, JsonObject, Number
from stagepack.errors import InputError, suggest
from stagepack.instances.formats import dump, write_solution
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.pipeline.estimate import estimate
from stagepack.instances.problem import PROBLEMS
from stagepack.instances.schedule import PipelineSchedule
from stagepack.instances.schedule.check import Measure, measure
from stagepack.instances.violation import Violation
from stagepack.report import format as as_text
from stagepack.report.html import page
from stagepack.report.shown import contents, html
from stagepack.report.table import Account, Head, Sheet
from stagepack.report.view import view
from stagepack.result import Result, Status, relative_gap
from stagepack.shown import Shown, dataframe
from stagepack.solve import versions

if TYPE_CHECKING:
    import pandas as pd

PROBLEM, VERSION = "model-plan", 1


@dataclass(frozen=True)
class Level:
    """One question of a plan, and its answer.

    Attributes
    ----------
    name : str
        "partition", "schedule", or "stage N".
    instance : instance
    result : Result
        Its bound is one of this level alone: of this partition, of this schedule.
    """

    name: str
    instance: Instance
    result: Result[Any]

    def to_dict(self) -> JsonObject:
        """Return the level as plain JSON data."""
        native = json.loads(dump(self.instance, "level.json"))
        return {"name": self.name, "instance": native, "result": self.result.to_dict()}


@dataclass(frozen=True)
class Attempt:
    """One way through the levels that was tried.

    Attributes
    ----------
    in_flight : int
        Microbatches whose stashes the partition left room for, at most.
    lent : int
        Rounds in which a device had too little room, and the partition got less of its memory.
    status : Status
    objective : int or None
        Cycles of a step.
    reason : str
    """

    in_flight: int
    lent: int
    status: Status
    objective: Number | None
    reason: str = ""


STAGE_COLUMNS = ("stage", "first", "end", "device", "busy", "idle", "memory", "capacity")


@dataclass(frozen=True, repr=False)
class ModelPlan(Shown):
    """Stages, the schedule of the microbatches on them, and what is where in each memory.

    Attributes
    ----------
    name : str
    status : Status
        OPTIMAL: no plan with a stage a device is faster; INFEASIBLE: none fits, proved.
    levels : tuple of Level
        The partition, the schedule, and the memory of each stage as far as tensors are known.
    bound, bound_source : int or None, str
        No plan takes fewer cycles: whichever stages, whichever schedule.
    microbatches : int
        Of a step.
    attempts : tuple of Attempt
    reason : str
    """

    name: str
    status: Status
    levels: tuple[Level, ...]
    bound: int | None
    bound_source: str
    microbatches: int
    attempts: tuple[Attempt, ...] = ()
    reason: str = ""

    # ------------------------------------------------------------------ figures

    def level(self, name: str) -> Level:
        """Return one of its levels.

        Raises
        ------
        InputError
            For a name that none has; what fits nowhere has no levels.
        """
        for level in self.levels:
            if level.name == name:
                return level
        remedy = suggest(name, (level.name for level in self.levels)) if self.levels else ""
        raise InputError(f"the plan has no {name!r}", field="level", remedy=remedy or self.reason)

    @property
    def partition(self) -> PipelinePartition:
        """What was cut into stages."""
        instance = self.level("partition").instance
        assert isinstance(instance, PipelinePartition)
        return instance

    @property
    def schedule(self) -> PipelineSchedule:
        """The operations of the stages."""
        instance = self.level("schedule").instance
        assert isinstance(instance, PipelineSchedule)
        return instance

    @property
    def measure(self) -> Measure:
        """What the schedule amounts to."""
        return measure(self.schedule, self.level("schedule").result.solution)

    @property
    def objective(self) -> int | None:
        """Cycles of a step: the makespan of the schedule."""
        return self.measure.makespan if self.levels else None

    @property
    def gap(self) -> float | None:
        """Relative gap of the whole: what the levels apart may have lost, too."""
        return relative_gap(self.objective, self.bound)

    @property
    def seconds(self) -> float | None:
        """Of a step."""
        if self.objective is None:
            return None
        return self.objective / float(self.partition.cluster.clock)

    @property
    def throughput(self) -> float | None:
        """Microbatches a second."""
        return self.microbatches / self.seconds if self.seconds else None

    @property
    def memory(self) -> int | None:
        """The most bytes that any device holds."""
        return max(self.memories) if self.levels else None

    @property
    def memories(self) -> list[int]:
        """Bytes that each stage's device holds at most: its layers, and what is in flight."""
        stages = estimate(self.partition, self.level("partition").result).stages
        flying = [device.peak_memory for device in self.measure.devices]
        held = [stage.memory - stage.stash for stage in stages]
        return [sum(pair) for pair in zip(held, flying, strict=True)]

    def binds(self) -> Iterator[tuple[str, str]]:
        """Yield what keeps the plan from being faster: where work, idling and memory are."""
        found, memory = self.measure, self.memories
        busiest = max(found.devices, key=lambda device: device.busy)
        at = found.devices.index(busiest)
        share = as_text.share(busiest.busy / found.makespan)
        yield "most work", f"{self.schedule.device_name(at)}: busy {share} of the step"
        idle = as_text.share(found.step_bubble)
        yield "bubble", f"{idle} of all devices' time"
        limits = [
            self.partition.cluster.devices[device].memory
            for _, _, device in self.level("partition").result.solution.stages
        ]
        shares = [
            (used / limit, stage)
            for stage, (used, limit) in enumerate(zip(memory, limits, strict=True))
            if limit
        ]
        if shares:
            used, stage = max(shares)
            yield "least room", f"{self.schedule.device_name(stage)}: {as_text.share(used)} in use"

    # ------------------------------------------------------------------ checking

    def check(self) -> tuple[Violation, ...]:
        """Return what is wrong, level by level, and between levels; () for a valid plan."""
        found: list[Violation] = []
        for level in self.levels:
            broken = level.instance.check(level.result.solution)
            found += [Violation(f"{level.name}: {one.rule}", one.detail) for one in broken]
        if found or not self.levels:
            return tuple(found)
        again = PipelineSchedule.from_partition(
            self.partition,
            self.level("partition").result.solution,
            microbatches=self.microbatches,
            split=self.schedule.split,
        )
        if again.digest != self.schedule.digest:
            found.append(
                Violation("schedule: instance", "it is not that of the stages of the partition")
            )
        for stage, used in enumerate(self.memories):
            device = self.level("partition").result.solution.stages[stage][2]
            limit = self.partition.cluster.devices[device].memory
            if limit is not None and used > limit:
                found.append(Violation(f"stage {stage}: memory", f"{used:,} of {limit:,} bytes"))
        if self.bound is not None and self.objective is not None and self.objective < self.bound:
            found.append(Violation("bound", f"{self.objective:,} cycles are below {self.bound:,}"))
        return tuple(found)

    # ------------------------------------------------------------------ showing

    def to_dict(self) -> JsonObject:
        """Return the plan as one JSON document, its instances as native files have them."""
        made = bool(self.levels)
        whole: JsonObject = {
            "problem": PROBLEM,
            "version": VERSION,
            "name": self.name,
            "status": str(self.status),
            "objective": self.objective,
            "objective_name": "cycles of a step",
            "bound": self.bound,
            "bound_source": self.bound_source,
            "gap": self.gap,
            "microbatches": self.microbatches,
            "seconds": self.seconds,
            "throughput": self.throughput,
            "bubble": self.measure.step_bubble if made else None,
            "memory": self.memory,
            "binds": dict(self.binds()) if made else {},
            "reason": self.reason or None,
            "violations": [str(violation) for violation in self.check()],
            "attempts": [{**vars(one), "status": str(one.status)} for one in self.attempts],
            "versions": versions(),
            "levels": [level.to_dict() for level in self.levels],
        }
        plain: JsonObject = files.finite(whole)
        return plain

    def to_json(self, path: str | None = None) -> str:
        """Return the plan as JSON, and write it to `path` if given."""
        text = files.json_text(self.to_dict()) + "\n"
        if path is not None:
            files.write(path, text)
        return text

    def export(
        self,
        path: str | Path,
        *,
        as_: str | None = None,
        level: str | None = None,
        **options: object,
    ) -> None:
        """Write one of the levels as another tool reads it.

        Parameters
        ----------
        path : path-like
        as_ : str, optional
            The tool, such as "megatron" or "vllm" for the stages.
        level : str, optional
            Which: by default the first that is written for this tool, without one the schedule.
        **options
            As for :func:`stagepack.write_solution`.

        Raises
        ------
        InputError
            For a plan without levels, an unknown level or tool, and what the tool cannot do.
        """
        if level is None:
            fits = (one.name for one in self.levels if as_ in PROBLEMS[one.instance.kind].tools)
            level = "schedule" if as_ is None else next(fits, "partition")
        names = [one.name for one in self.levels]
        if level not in names:
            raise InputError(f"unknown {level!r}", field="level", remedy=suggest(level, names))
        chosen = self.level(level)
        write_solution(chosen.instance, chosen.result, path, as_=as_, **options)

    def to_html(self, path: str | Path) -> None:
        """Write a self-contained page: what the plan is worth, and a picture of each level.

        Raises
        ------
        InputError
            When it cannot be written, or what draws is not installed.
        """
        figures: JsonObject = {}
        levels = [_section(level, f"level{at}", figures) for at, level in enumerate(self.levels)]
        text = page(
            "planning/templates/plan.html", f"Plan of {self.name or 'a model'}", figures,
            summary=html(self), levels=levels,
        )  # fmt: skip
        files.write(path, text)

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row a stage: its layers ``[first, end)``, device, busy cycles and memory.

        Raises
        ------
        InputError
            For a plan without levels, or when pandas is not installed.
        """
        return dataframe(dict(zip(STAGE_COLUMNS, zip(*self._figures(), strict=True), strict=True)))

    def contents(self) -> list[Head | Account | Sheet]:
        """Return what is printed."""
        if not self.levels:
            return [Head([(self.name, str(self.status))], reason=self.reason)]
        assert self.seconds is not None
        pace = as_text.number(self.throughput)
        figures = [
            f"{as_text.number(self.objective)} cycles a step ({as_text.seconds(self.seconds)})",
            f"at least {as_text.number(self.bound)} ({self.bound_source})",
            f"gap {as_text.gap(self.gap)}",
            f"{pace} microbatches a second",
        ]
        placed = len(self.levels) - 2
        lines = list(self.binds())
        if placed:
            words = as_text.plural(placed, "stage")
            lines.append(("addresses", f"every buffer of {words} has its place"))
        return [
            Head([(f"{self.name}:", str(self.status))], figures),
            Account(lines),
            self._levels(),
            self._stages(),
        ]

    def _levels(self) -> Sheet:
        """Return what was asked of the whole model, and how good the answers are by themselves."""
        rows = [
            [
                level.name,
                str(level.result.status),
                str(level.instance.objective),
                as_text.number(level.result.objective),
                as_text.number(level.result.bound),
            ]
            for level in self.levels[:2]
        ]
        header = ("level", "status", "objective", "value", "its bound")
        return Sheet(header, rows, header[:3])

    def _stages(self) -> Sheet:
        """Return the stages as a table."""
        rows = [
            [
                str(stage),
                as_text.span(first, end),
                device,
                as_text.number(busy),
                as_text.share(idle),
                as_text.quantity(used),
                as_text.quantity(capacity),
            ]
            for stage, first, end, device, busy, idle, used, capacity in self._figures()
        ]
        header = ("stage", "layers", "device", "busy", "idle", "memory", "of")
        return Sheet(header, rows, ("device",), spare=("device", "of"))

    def _figures(self) -> list[tuple[Any, ...]]:
        """Return the `STAGE_COLUMNS` of each stage."""
        stages = estimate(self.partition, self.level("partition").result).stages
        return [
            (
                stage.stage, stage.first, stage.end, stage.device_name, device.busy,
                device.step_bubble, used, stage.capacity,
            )
            for stage, device, used in zip(stages, self.measure.devices, self.memories, strict=True)
        ]  # fmt: skip

    def _line(self) -> str:
        return f"{self.name!r}, {self.status}, {self.objective} cycles"


def _section(level: Level, anchor: str, figures: JsonObject) -> JsonObject:
    """Return what the page says of a level; its figures go to `figures`."""
    kind, result = view(level.instance.kind), level.result
    section = kind.section(level.instance, {result.method: result}, result, anchor)
    figures.update(section.figures)
    standing = as_text.standing(result.status, result.objective, level.instance)
    worth = kind.worth_with_unit(level.instance, result.objective)
    return {
        "anchor": anchor,
        "name": level.name,
        "headline": f"{kind.headline(level.instance)} · {worth} · {standing}",
        "html": section.html,
    }


@contents.register
def _plan(given: ModelPlan, *, whole: bool = False) -> list[Head | Account | Sheet]:
    return given.contents()
