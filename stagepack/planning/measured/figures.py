"""Compares the predictions of a plan with the measured times and memory of its stages."""

from __future__ import annotations

from dataclasses import dataclass

from stagepack import files
from stagepack.contracts import JsonObject
from stagepack.report import format as as_text
from stagepack.report.table import Head, Sheet
from stagepack.shown import Shown

TIMES = ("forward", "backward", "makespan", "span", "replayed")
"""Figures that are seconds; all others are bytes."""


@dataclass(frozen=True)
class Figure:
    """A figure as it was predicted and as it was measured."""

    what: str  # a stage, or the name of a schedule
    figure: str
    # Seconds, or bytes of memory.
    estimated: float
    actual: float

    @property
    def ratio(self) -> float | None:
        """Estimated over actual; None where there was nothing."""
        return self.estimated / self.actual if self.actual else None

    def to_dict(self) -> JsonObject:
        """Return the figure as plain JSON data, with difference and ratio."""
        difference = self.estimated - self.actual
        return {**vars(self), "difference": difference, "ratio": self.ratio}


@dataclass(frozen=True, repr=False)
class PlanMeasure(Shown):
    """A plan against measurements.

    Attributes
    ----------
    name : str
        Of the plan.
    ranks, threads, cores : int
        Processes, threads of each, and processors of this machine: where there are fewer of these,
        stages wait for one another, which no plan knows.
    stages : tuple of Figure
        ``forward`` and ``backward``, seconds of a microbatch; bytes of ``parameters``,
        ``constants``, ``gradients`` and ``optimiser state``, as far as there are any, ``working``,
        all that comes and goes during a step, and ``memory``, of all.
    schedules : tuple of Figure
        ``makespan`` and ``span`` (of the device that takes longest) of a step; ``replayed`` is the
        makespan that stages as slow as they were measured would have in this order.
    """

    name: str
    ranks: int
    threads: int
    cores: int
    stages: tuple[Figure, ...]
    schedules: tuple[Figure, ...]

    def to_dict(self) -> JsonObject:
        """Return everything as one JSON document."""
        data: JsonObject = files.finite(
            {
                **vars(self),
                "stages": [one.to_dict() for one in self.stages],
                "schedules": [one.to_dict() for one in self.schedules],
            }
        )
        return data

    def to_json(self, path: str | None = None) -> str:
        """Return everything as JSON, and write it to `path` if given."""
        text = files.json_text(self.to_dict()) + "\n"
        if path is not None:
            files.write(path, text)
        return text

    def contents(self) -> list[Head | Sheet]:
        """Return what is printed."""
        machine = f"{self.ranks} processes of {as_text.plural(self.threads, 'thread')}"
        pairs = [(f"{self.name}:", machine)]
        figures = [f"on {as_text.plural(self.cores, 'processor')}"]
        return [Head(pairs, figures), *self._sheets()]

    def _sheets(self) -> list[Sheet]:
        return [_sheet("stage", self.stages), _sheet("schedule", self.schedules)]

    def _line(self) -> str:
        return f"{self.name!r} on {self.ranks} ranks"


def _sheet(what: str, rows: tuple[Figure, ...]) -> Sheet:
    header = (what, "figure", "estimated", "actual", "difference", "ratio")
    return Sheet(header, [_cells(row) for row in rows], header[:2])


def _cells(row: Figure) -> list[str]:
    spelt = as_text.seconds if row.figure in TIMES else _nbytes
    numbers = [spelt(value) for value in (row.estimated, row.actual)]
    difference = row.estimated - row.actual
    signed = f"{'-' if difference < 0 else ''}{spelt(abs(difference))}"
    return [row.what, row.figure, *numbers, signed, as_text.number(row.ratio)]


def _nbytes(value: float) -> str:
    return as_text.quantity(int(value))
