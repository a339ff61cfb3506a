"""A plan of a model: its levels, its figures, its checks, and how it is displayed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stagepack import files
from stagepack.contracts import Instance, JsonObject, Number
from stagepack.errors import InputError, a, suggest
from stagepack.evidence import Proof
from stagepack.formats.door import dump
from stagepack.formats.roles import device_list
from stagepack.formats.solutions import write_solution
from stagepack.instances.graph import GraphPartition
from stagepack.instances.groups import LayerGrouping
from stagepack.instances.packing import LmemPacking
from stagepack.instances.phases import PhaseSchedule
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.problem import PROBLEMS
from stagepack.instances.schedule import PipelineSchedule
from stagepack.instances.schedule.check import Measure, measure
from stagepack.instances.violation import Violation
from stagepack.planning.stages import Level, Structure, inside, pace, told
from stagepack.planning.step_labels import Network, Whole, known_of
from stagepack.report import format as as_text
from stagepack.report.extra import Axes
from stagepack.report.pages import Chapter, answers, chapter, report
from stagepack.report.shown import html, picture_of
from stagepack.report.table import Account, Head, Sheet
from stagepack.report.view import view
from stagepack.result import Status, Termination, relative_gap
from stagepack.shown import Shown, dataframe
from stagepack.solve import versions
from stagepack.spelling import renamed

if TYPE_CHECKING:
    import pandas as pd

PROBLEM, VERSION = "model-plan", 1
UNPROVED = {
    Termination.TIME_LIMIT: "its time limit was reached",
    Termination.INTERRUPTED: "it was interrupted",
    Termination.TARGET: "its target was reached",
}
"""Why a level has no proof."""
NETWORKS = "network", "network backward"
"""Levels of whole networks."""


@dataclass(frozen=True)
class Attempt:
    """One way through the levels that was tried.

    Its partition left room for the stashes of `in_flight` microbatches at most; for `lent` rounds a
    device had too little room, and the partition got less of its memory.  The objective is cycles
    of a step.
    """

    in_flight: int
    lent: int
    status: Status
    objective: Number | None
    reason: str = ""


STAGE_COLUMNS = ("stage", "first", "end", "device", "busy", "idle", "memory", "capacity", "inside")


@dataclass(frozen=True, repr=False)
class ModelPlan(Shown):
    """A plan of a whole model: stages, the schedule of their microbatches, and memory addresses.

    Attributes
    ----------
    name : str
    status : Status
        OPTIMAL: no plan with as many stages a device is faster; INFEASIBLE: it is proved that none
        fits.
    levels : tuple of Level
        The partition; the schedule; on chips with local memory the groups of the whole network; and
        the inside of each stage: its groups, its phases if it does not fit on its chip, or else the
        addresses in its memory as far as tensors are known.
    bound : int or None
        Lower bound on the cycles of every plan, with any stages and any schedule.
    bound_source : str
        How the bound was proved.
    proof : Proof or None
        What kind of proof that is, or for INFEASIBLE that of nothing fitting, as of results:
        ``check`` verifies `witness`, `dual` and `log`, by :mod:`stagepack.planning.steps`.
    evidence : dict
        What it needs for that, as plain JSON data.
    microbatches : int
        Of a step.
    attempts : tuple of Attempt
    reason : str
    bundle : int
        Number of microbatches that pass through the phases of a stage together.
    on_chip : tuple of (int or None)
        On-chip bytes of each device if there is remote memory; otherwise empty.
    note : str
        What the plan does not cover, such as other orders of the layers.
    interrupted : bool
        Whether the search was interrupted; this is not written to documents.
    split : bool
        Whether the backward pass may be split into B and W.
    model : instance or None
        Where there are no levels, what was planned; for INFEASIBLE what has no solution.
    """

    name: str
    status: Status
    levels: tuple[Level, ...]
    bound: int | None
    bound_source: str
    microbatches: int
    attempts: tuple[Attempt, ...] = ()
    reason: str = ""
    bundle: int = 1
    on_chip: tuple[int | None, ...] = ()
    note: str = ""
    interrupted: bool = False
    proof: Proof | None = None
    evidence: JsonObject = field(default_factory=dict)
    split: bool = False
    model: Instance | None = None

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
        """The instance that was cut into stages, if it is a chain.

        Raises
        ------
        InputError
            Where it is a graph.
        """
        instance = self.level("partition").instance
        if not isinstance(instance, PipelinePartition):
            raise InputError(
                f"is of {a(instance.kind)}", field="plan", remedy="give a plan of a chain of layers"
            )
        return instance

    @cached_property
    def structure(self) -> Structure:
        """What the levels mean for one another."""
        return Structure(
            self.level("partition"),
            inside(self.levels),
            self.microbatches,
            self.bundle,
            self.schedule.split,
            self.on_chip,
        )

    @property
    def schedule(self) -> PipelineSchedule:
        """The operations of the stages."""
        instance = self.level("schedule").instance
        assert isinstance(instance, PipelineSchedule)
        return instance

    @cached_property
    def measure(self) -> Measure:
        """What the schedule amounts to."""
        return measure(self.schedule, self.level("schedule").result.solution)

    @property
    def objective(self) -> int | None:
        """Cycles of a step: the makespan of the schedule."""
        return self.measure.makespan if self.levels else None

    @property
    def gap(self) -> float | None:
        """Relative gap of the whole plan; it includes the loss of deciding level after level."""
        return relative_gap(self.objective, self.bound)

    @property
    def seconds(self) -> float | None:
        """Seconds of a step; None if the unit of time is unknown."""
        clock = pace(self.levels[0].instance) if self.levels else None
        return None if self.objective is None or clock is None else self.objective / clock

    @property
    def throughput(self) -> float | None:
        """Microbatches a second."""
        return self.microbatches / self.seconds if self.seconds else None

    @property
    def memory(self) -> int | None:
        """The largest number of bytes that a device holds."""
        return max(self.memories) if self.levels else None

    @property
    def memories(self) -> list[int]:
        """Peak bytes of each device: its layers and the microbatches in flight."""
        flying = [device.peak_memory for device in self.measure.devices]
        stages = self.structure.stages()
        return [stage.held + own for stage, own in zip(stages, flying, strict=True)]

    def binds(self) -> Iterator[tuple[str, str]]:
        """Yield what limits the plan: the busiest device, idle time, and the fullest memory."""
        found, memory = self.measure, self.memories
        busiest = max(found.devices, key=lambda device: device.busy)
        at = found.devices.index(busiest)
        share = as_text.share(busiest.busy / found.makespan)
        yield "most work", f"{self.schedule.device_name(at)}: busy {share} of the step"
        idle = as_text.share(found.step_bubble)
        yield "bubble", f"{idle} of all devices' time"
        stages = self.structure.stages()
        shares = [
            (used / stage.capacity, at)
            for at, (used, stage) in enumerate(zip(memory, stages, strict=True))
            if stage.capacity
        ]
        if shares:
            used, stage = max(shares)
            yield "least room", f"{self.schedule.device_name(stage)}: {as_text.share(used)} in use"

    # ------------------------------------------------------------------ checking

    def whole(self, shown: Mapping[str, bool]) -> Whole | None:
        """Return what its claims speak of; None where it does not say.

        `shown` are names of levels whose bounds are verified, and whether by potentials.
        """
        model: Any = self.levels[0].instance if self.levels else self.model
        split = self.schedule.split if self.levels else self.split
        if isinstance(model, PipelinePartition):
            model = known_of(model, split)
        if model is None:
            return None
        grouped = isinstance(model, LayerGrouping)
        inner = {
            level.name: level.instance
            for level in self.levels
            if isinstance(level.instance, LayerGrouping)
        }
        loose = isinstance(model, GraphPartition)
        loose |= any(one.order != "given" for one in inner.values())
        known = []
        for name in NETWORKS:
            if name in inner and name in shown and not (loose and inner[name].order == "given"):
                result = self.level(name).result
                potentials = result.evidence["potentials"] if shown[name] else None
                known.append(Network(inner[name], math.ceil(result.bound or 0), potentials))
        return Whole(
            model if grouped else model.replace(microbatches=1),
            self.microbatches,
            split,
            resident=all(memory is None for memory in self.on_chip),
            grouped=grouped or bool(inner),
            networks=tuple(known),
        )

    def check(self) -> tuple[Violation, ...]:
        """Return all violations within levels and between levels; () for a valid plan."""
        found: list[Violation] = []
        for level in self.levels:
            broken = level.instance.check(level.result.solution)
            found += [Violation(f"{level.name}: {one.rule}", one.detail) for one in broken]
        if found or not self.levels:
            return tuple(found)
        found += self._misfitting()
        if found:
            return tuple(found)
        networks = [level for level in self.levels if level.name in NETWORKS]
        flying = [device.peak_memory for device in self.measure.devices]
        found += self.structure.misplaced(networks, flying)
        try:
            expected = self.structure.schedule().digest
        except InputError as error:
            expected = str(error)
        if expected != self.schedule.digest:
            found.append(
                Violation("schedule: instance", "it is not that of the stages of the partition")
            )
            return tuple(found)
        for at, (used, stage) in enumerate(
            zip(self.memories, self.structure.stages(), strict=True)
        ):
            if stage.capacity is not None and used > stage.capacity:
                detail = f"{used:,} of {stage.capacity:,} bytes"
                found.append(Violation(f"stage {at}: memory", detail))
        if self.bound is not None and self.objective is not None and self.objective < self.bound:
            found.append(Violation("bound", f"{self.objective:,} cycles are below {self.bound:,}"))
        return tuple(found)

    def _misfitting(self) -> Iterator[Violation]:
        """Yield what is said of the whole that the partition, or what is inside, does not allow."""
        partition: Any = self.level("partition").instance
        if self.microbatches % self.bundle:
            detail = f"{self.bundle:,} do not divide {self.microbatches:,} microbatches"
            yield Violation("bundle", detail)
        if self.bundle > 1 and any(isinstance(one.instance, LayerGrouping) for one in self.levels):
            yield Violation("bundle", "layer groups take one microbatch at a time")
        if isinstance(partition, PipelinePartition):
            own = any(device.memory is not None for device in partition.cluster.devices)
        else:
            own = partition.capacity is not None
        if self.on_chip and own:
            yield Violation("on_chip", "devices have memory of their own in the partition")

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
            "proof": self.proof,
            "evidence": self.evidence,
            "gap": self.gap,
            "microbatches": self.microbatches,
            "bundle": self.bundle,
            "split": self.split,
            "on_chip": list(self.on_chip) or None,
            "seconds": self.seconds,
            "throughput": self.throughput,
            "bubble": self.measure.step_bubble if made else None,
            "memory": self.memory,
            "binds": dict(self.binds()) if made else {},
            "inside": [stage.how for stage in self.structure.stages()] if made else [],
            "reason": self.reason or None,
            "note": self.note or None,
            "violations": [str(violation) for violation in self.check()],
            "attempts": [{**vars(one), "status": str(one.status)} for one in self.attempts],
            "versions": versions(),
            "model": None if made or self.model is None else _native(self.model),
            "levels": [_document(level) for level in self.levels],
        }
        plain: JsonObject = files.finite(whole)
        return plain

    def to_json(self, path: str | None = None) -> str:
        """Return the plan as JSON, and write it to `path` if given."""
        text = files.json_text(self.to_dict()) + "\n"
        if path is not None:
            files.write(path, text)
        return text

    @renamed(as_="format")
    def export(
        self,
        path: str | Path,
        *,
        format: str | None = None,
        level: str | None = None,
        **options: object,
    ) -> None:
        """Write one of the levels as another tool reads it.

        Parameters
        ----------
        path : path-like
        format : str, optional
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
        if not self.levels:
            raise InputError(
                "has no levels", field="plan", remedy=self.reason or "give one that fits"
            )
        names = [one.name for one in self.levels]
        if level is None and format is None:
            level = "schedule"
        elif level is None:
            known = {one.name: PROBLEMS[one.instance.kind].tools for one in self.levels}
            level = next((name for name in names if format in known[name]), None)
            if level is None:
                tools = dict.fromkeys(tool for own in known.values() for tool in own)
                raise InputError(
                    f"no level of the plan is written for {format!r}",
                    field="format",
                    remedy=suggest(str(format), tools),
                )
        if level not in names:
            raise InputError(f"unknown {level!r}", field="level", remedy=suggest(level, names))
        chosen, cut = self.level(level), self.levels[0].instance
        if level == "schedule" and isinstance(cut, PipelinePartition) and not cut.placed:
            device_list(cut, self.levels[0].result.solution)  # whose rows are ranks
        write_solution(chosen.instance, chosen.result, path, format=format, **options)

    def to_html(self, path: str | Path) -> None:
        """Write a self-contained page with the figures of the plan and a picture of each level.

        Raises
        ------
        InputError
            When it cannot be written, or what draws is not installed.
        """
        report(self, path)

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row for each stage: its layers ``[first, end)``, device, busy cycles and
        memory.

        Raises
        ------
        InputError
            For a plan without levels, or when pandas is not installed.
        """
        return dataframe(dict(zip(STAGE_COLUMNS, zip(*self._figures(), strict=True), strict=True)))

    def contents(self) -> list[Head | Account | Sheet]:
        """Return what is printed."""
        if not self.levels:
            proof = [f"proof: {self.proof}"] if self.proof is not None else []
            return [Head([(self.name, str(self.status))], proof, reason=self.reason)]
        steps = f"{as_text.number(self.objective)} cycles a step"
        if self.seconds is not None:
            steps += f" ({as_text.seconds(self.seconds)})"
        sources = filter(None, (self.bound_source, self.proof))
        figures = [
            steps,
            f"at least {as_text.number(self.bound)} ({'; '.join(sources)})",
            f"gap {as_text.gap(self.gap)}",
        ]
        if self.throughput is not None:
            figures.append(f"{as_text.number(self.throughput)} microbatches a second")
        placed = sum(isinstance(level.instance, LmemPacking) for level in self.levels)
        lines = [("decided", self._decided()), ("given", self._given()), *self.binds()]
        lines += self._unproved()
        if "B" in self.schedule.kinds:
            split = "split into B and W" if self.schedule.split else "one operation, not split"
            lines.append(("backward pass", split))
        if self.bundle > 1:
            lines.append(("bundles", f"{self.bundle} microbatches go through phases at a time"))
        if placed:
            words = as_text.plural(placed, "stage")
            lines.append(("addresses", f"every buffer of {words} has its place"))
        if self.note:
            lines.append(("note", self.note))
        return [
            Head([(f"{self.name}:", f"{self.status}, {self._mode()}")], figures),
            Account(lines),
            self._levels(),
            self._stages(),
        ]

    def _decided(self) -> str:
        """Return what the plan chose."""
        inner = {LayerGrouping: "layer groups", PhaseSchedule: "phases", LmemPacking: "addresses"}
        there = {type(level.instance) for level in self.levels}
        chosen = getattr(self.levels[0].instance, "alternatives", None)
        said = ["alternatives of layers"] if chosen else []
        said += [what for kind, what in inner.items() if kind in there]
        return ", ".join(["stages", "their schedule", *said])

    def _mode(self) -> str:
        """Return what the step is of."""
        return "training" if "B" in self.schedule.kinds else "inference"

    def _given(self) -> str:
        """Return what it took as it was told, which a better one might do otherwise."""
        said = [self._mode()]
        said.append(f"{self.microbatches:,} microbatch{'es' if self.microbatches > 1 else ''}")
        return ", ".join([*said, *told(self.levels[0].instance)])

    def _unproved(self) -> Iterator[tuple[str, str]]:
        """Yield levels that are no more than feasible, and why; those for which it is the same."""
        found: dict[str, list[str]] = {}
        for level in self.levels:
            result = level.result
            if result.status is Status.FEASIBLE:
                why = UNPROVED.get(result.termination, "its search ended without a proof")
                if not result.options:  # another question led to it
                    why = "chosen for the whole step, not for this value"
                text = f"FEASIBLE, gap {as_text.gap(result.gap)}: {why}"
                found.setdefault(text, []).append(level.name)
        for text, names in found.items():
            yield names[0] + (f" and {len(names) - 1} more" if names[1:] else ""), text

    def _levels(self) -> Sheet:
        """Return what was asked, memory aside, and how good the answers are by themselves."""
        rows = [
            [
                level.name,
                str(level.result.status),
                view(level.instance.kind).goal(level.instance),
                as_text.number(level.result.objective),
                as_text.number(level.result.bound),
            ]
            for level in self.levels
            if not isinstance(level.instance, LmemPacking)
        ]
        header = ("level", "status", "objective", "value", "its bound")
        return Sheet(header, rows, header[:3])

    def _stages(self) -> Sheet:
        """Return the stages as a table."""
        rows = [
            [
                str(at),
                stage.what,
                stage.device_name,
                as_text.number(device.busy),
                as_text.share(device.step_bubble),
                as_text.quantity(used),
                as_text.NOTHING if stage.capacity is None else as_text.quantity(stage.capacity),
                stage.how,
            ]
            for at, (stage, device, used) in enumerate(
                zip(self.structure.stages(), self.measure.devices, self.memories, strict=True)
            )
        ]
        part = "part" if isinstance(self.levels[0].instance, GraphPartition) else "layers"
        header = ("stage", part, "device", "busy", "idle", "memory", "of", "inside")
        return Sheet(header, rows, ("device", "inside"), spare=("device", "of"))

    def _figures(self) -> list[tuple[Any, ...]]:
        """Return the `STAGE_COLUMNS` of each stage; those of a graph have no layers in a row."""
        partition = self.level("partition")
        spans: list[tuple[int | None, int | None]] = [(None, None)] * self.schedule.d
        if isinstance(partition.instance, PipelinePartition) and not partition.instance.placed:
            spans = [(first, end) for first, end, _ in partition.result.solution.stages]
        stages = self.structure.stages()
        return [
            (
                at, *spans[at], stage.device_name, device.busy, device.step_bubble, used,
                stage.capacity, stage.how,
            )
            for at, (stage, device, used) in enumerate(
                zip(stages, self.measure.devices, self.memories, strict=True)
            )
        ]  # fmt: skip

    def _line(self) -> str:
        return f"{self.name!r}, {self.status}, {self.objective} cycles"


def _document(level: Level) -> JsonObject:
    """Return a level as plain JSON data."""
    native = _native(level.instance)
    return {"name": level.name, "instance": native, "result": level.result.to_dict()}


def _native(instance: Instance) -> JsonObject:
    """Return an instance as plain JSON data."""
    found: JsonObject = json.loads(dump(instance, "level.json"))
    return found


@picture_of.register
def _picture(given: ModelPlan) -> tuple[str, Axes | None]:
    if not given.levels:
        return "", None
    from stagepack.report.plot import plot

    level = given.level("schedule")
    return given.name, plot(level.instance, level.result.solution)


@chapter.register
def _chapter(given: ModelPlan, anchor: str, figures: JsonObject) -> Chapter:
    levels = ((level.name, level.instance, level.result) for level in given.levels)
    title = f"Plan of {given.name or 'a model'}"
    return Chapter(
        title, html(given, pictured=False) + answers(levels, anchor, figures, given.microbatches)
    )
