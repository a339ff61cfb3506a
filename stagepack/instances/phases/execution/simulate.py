"""Simulates a plan step by step on two engines, compute and I/O: events for a Gantt chart.

A task starts when its engine has finished the earlier tasks of its queue and everything that the
task depends on is done.  In the overlapped loop the queue of the I/O engine is load 0, load 1,
store 0, load 2, store 1, ...; compute i depends on load i and, for the room of its output, on store
i - 2; load i depends, for the room of its input, on compute i - 2; store i depends on compute i.
In the other modes all tasks run one after the other.  The formulas of :mod:`.modes` are not used;
the simulation must agree with them.

Prefetching: the idle time of the I/O engine between the start and the end of a loop is used for the
next phase's variables, earliest first, as long as there are any left to load.
"""

from __future__ import annotations

from dataclasses import dataclass

from stagepack.instances.phases import traffic
from stagepack.instances.phases.data import PhaseData, PhaseSolution

COMPUTE, IO = "compute", "io"


@dataclass(frozen=True)
class Event:
    """What one engine ("compute" or "io") does from cycle `start` to `end`.

    `what` is "startup", "variables", "gather", "load", "compute", "store", "prefetch" (of the next
    phase's variables) or "epilogue" (scatter, optimiser state, update).  Outside the loop the step
    is -1.
    """

    engine: str
    what: str
    phase: int
    step: int
    start: int
    end: int


def loop(
    mode: str, v: int, load: int, compute: int, store: int, steps: int, phase: int = 0, at: int = 0
) -> list[Event]:
    """Play the variables and the loop of one `phase`, in a `mode`, from cycle `at` on.

    The variables take `v` cycles, and one of the `steps`, at least one, `load`, `compute` and
    `store`.
    """
    found: list[Event] = []
    clock = {COMPUTE: at, IO: at}

    def run(engine: str, what: str, step: int, cycles: int, *after: int) -> int:
        start = max(clock[engine], *after, at)
        clock[engine] = start + cycles
        if cycles:
            found.append(Event(engine, what, phase, step, start, clock[engine]))
        return clock[engine]

    if mode != "io_overlapped" or steps < 2:
        now = at
        for step in range(steps):
            if step == 0 or mode == "naive":
                now = run(IO, "variables", step if mode == "naive" else -1, v, now)
            now = run(IO, "load", step, load, now)
            now = run(COMPUTE, "compute", step, compute, now)
            now = run(IO, "store", step, store, now)
        return found
    ready = run(IO, "variables", -1, v)
    loaded = [run(IO, "load", 0, load, ready)]
    computed: list[int] = []
    stored: list[int] = []
    for step in range(steps):
        room = stored[step - 2] if step >= 2 else ready
        begin = loaded[step]
        # While this step computes, the I/O engine stores the one before and loads the one after.
        if step >= 1:
            stored.append(run(IO, "store", step - 1, store, computed[step - 1]))
        if step + 1 < steps:
            free = computed[step - 1] if step >= 1 else ready
            loaded.append(run(IO, "load", step + 1, load, free))
        computed.append(run(COMPUTE, "compute", step, compute, begin, room))
    run(IO, "store", steps - 1, store, computed[-1])
    return sorted(found, key=lambda event: (event.start, event.end))


def idle(events: list[Event], begin: int, end: int) -> list[tuple[int, int]]:
    """Return the parts of `begin` to `end` in which no I/O is among the `events`, in any order."""
    found = []
    for event in sorted((e for e in events if e.engine == IO), key=lambda e: e.start):
        if event.start > begin:
            found.append((begin, min(event.start, end)))
        begin = max(begin, event.end)
    if end > begin:
        found.append((begin, end))
    return [(start, stop) for start, stop in found if stop > start]


def simulate(instance: PhaseData, solution: PhaseSolution) -> list[Event]:
    """Play a plan, phase after phase; the end of the last event is what it takes.

    O(phases * G).  Phases that take no time have no events.
    """
    figures = instance.at(solution.microbatch)
    phases = solution.phases(instance)
    took = [traffic.cycles(instance, figures, phase, solution.io_tiles) for phase in phases]
    found: list[Event] = []
    now, ahead = 0, 0
    for phase, part in zip(phases, took, strict=True):
        index = phase.index
        if instance.chip.startup:
            found.append(Event(COMPUTE, "startup", index, -1, now, now + instance.chip.startup))
            now += instance.chip.startup
        v = part.variables - ahead + part.gather
        events = loop(phase.mode, v, part.load, part.compute, part.store, figures.steps, index, now)
        begin = max([now, *(e.end for e in events if e.what == "variables")])
        end = max([now, *(event.end for event in events)])
        ahead = 0
        if phase.prefetch:
            left = took[index + 1].variables
            for start, stop in idle(events, begin, end):
                ahead_now = min(left, stop - start)
                if ahead_now:
                    events.append(Event(IO, "prefetch", index, -1, start, start + ahead_now))
                left -= ahead_now
            ahead = took[index + 1].variables - left
        found += events
        now = end
        if part.epilogue:
            found.append(Event(IO, "epilogue", index, -1, now, now + part.epilogue))
            now += part.epilogue
    return found
