"""The data of the chart of a phase schedule: phases, both engines, memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stagepack.instances.phases.execution.simulate import IO, Event, simulate

if TYPE_CHECKING:
    from stagepack.instances.phases import PhaseSchedule, PhaseSolution
    from stagepack.instances.phases.plan import Plan

ROWS = ("phase", "compute", "I/O")
COLOURS = {
    "variables": "#99ddff",
    "prefetch": "#bbcc33",
    "load": "#77aadd",
    "compute": "#eedd88",
    "store": "#ee8866",
    "gather": "#ffaabb",
    "epilogue": "#44bb99",
    "startup": "#c9ced6",
}
"""By what an engine does, in the order of the legend."""
BANDS = ("#c3cdd9", "#dde4ec")
"""Phases take these in turn: colours are for what engines do."""
FOLDED = 1200
"""Beyond so many events, equal ones that follow one another closely are drawn as one."""


@dataclass(frozen=True)
class Band:
    """A phase on the axis of time, and the memory it needs."""

    name: str
    first: int
    end: int
    mode: str
    start: int
    stop: int
    peak: int
    peak_at: str

    @property
    def width(self) -> int:
        """The cycles that it takes."""
        return self.stop - self.start


@dataclass(frozen=True)
class PhaseBars:
    """The phases of a plan as bands, and what the two engines do as bars."""

    bands: tuple[Band, ...]
    events: tuple[Event, ...]
    capacity: int | None  # bytes of the compute tiles
    end_time: int
    folded: bool  # whether events were joined, because there are too many to tell apart

    def of(self, what: str) -> list[Event]:
        """Return the events in which an engine does something."""
        return [event for event in self.events if event.what == what]


def phase_bars(instance: PhaseSchedule, solution: PhaseSolution) -> PhaseBars:
    """Return what to draw of a plan whose shape is right."""
    from stagepack.instances.phases.plan import plan

    events = simulate(instance, solution)
    drawn = plan(instance, solution)
    bands = _bands(drawn)
    end = max([bands[-1].stop, *(event.end for event in events)])
    folded = len(events) > FOLDED
    return PhaseBars(
        bands=bands,
        events=tuple(_folded(events, end) if folded else events),
        capacity=drawn.phases[0].capacity,
        end_time=end,
        folded=folded,
    )


def _bands(drawn: Plan) -> tuple[Band, ...]:
    found, now = [], 0
    for part in drawn.phases:
        phase = part.phase
        found.append(
            Band(
                phase.name, phase.first, phase.end, phase.mode, now, now + part.time,
                part.peak, part.peak_at,
            )
        )  # fmt: skip
        now += part.time
    return tuple(found)


def _folded(events: list[Event], end: int) -> list[Event]:
    """Join equal events of a phase that stand closer than can be seen."""
    near = end / 3000
    kept: list[Event] = []
    last: dict[tuple[str, str, int], int] = {}
    for event in sorted(events, key=lambda item: item.start):
        key = (event.engine, event.what, event.phase)
        at = last.get(key)
        if at is not None and event.start - kept[at].end <= near:
            old = kept[at]
            kept[at] = Event(old.engine, old.what, old.phase, -1, old.start, event.end)
        else:
            last[key] = len(kept)
            kept.append(event)
    return kept


def row_of(event: Event) -> int:
    """Return the row of an event: 1 for compute, 2 for I/O."""
    return 2 if event.engine == IO else 1


def band_colour(index: int) -> str:
    """Return the colour of phase `index`; neighbours differ."""
    return BANDS[index % len(BANDS)]
