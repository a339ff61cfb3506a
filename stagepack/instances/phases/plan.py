"""The figures of a plan, phase by phase: times, memory, traffic and buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stagepack.contracts import JsonObject
from stagepack.instances.base import require_instance
from stagepack.instances.phases import liveness, traffic
from stagepack.instances.phases.check import graph_keys
from stagepack.instances.phases.rows import Buffer, buffers, remote_bytes
from stagepack.shown import Shown, dataframe

if TYPE_CHECKING:
    import pandas as pd

    from stagepack.instances.phases.data import Phase, PhaseSolution
    from stagepack.instances.phases.instance import PhaseSchedule
    from stagepack.result import Result


@dataclass(frozen=True)
class PhasePlan:
    """One phase of a plan in figures."""

    phase: Phase
    # V (in two parts), L, C, S, E, the whole time and what is hidden of it.
    cycles: traffic.PhaseCycles
    moves: traffic.Moves  # the tensors of a step
    memory: tuple[tuple[str, int], ...]  # bytes in use at every moment
    # `peak`, `peak_at`: the most of them, and when.
    peak: int
    peak_at: str
    capacity: int | None  # bytes of the compute tiles
    # `buffer_bytes`, `buffer_capacity`: what the loop needs on I/O tiles, and what there is.
    buffer_bytes: int
    buffer_capacity: int | None
    # `remote_loads`, `remote_stores`, `host_loads`, `host_stores`: bytes that the whole phase
    # moves.
    remote_loads: int
    remote_stores: int
    host_loads: int
    host_stores: int

    @property
    def time(self) -> int:
        """Cycles of the phase less what is hidden."""
        return self.cycles.time - self.cycles.hidden


@dataclass(frozen=True, repr=False)
class Plan(Shown):
    """A plan in figures."""

    phases: tuple[PhasePlan, ...]  # in the order of time
    buffers: tuple[Buffer, ...]  # remote buffers with the rows of their tensors
    # `steps`, `microbatch`, `io_tiles`: steps of a loop; the two numbers of the whole plan.
    steps: int
    microbatch: int
    io_tiles: int
    time: int  # cycles of the global batch, as :meth:`PhaseSchedule.evaluate` counts them
    samples: int  # the global batch
    seconds: float  # `time` at the chip's clock
    remote_bytes: int  # remote memory of one replica: variables, state and buffers
    graphs: int  # distinct phase graphs

    @property
    def time_per_sample(self) -> float:
        """Cycles a sample of the global batch."""
        return self.time / self.samples

    @property
    def remote_traffic(self) -> int:
        """Bytes between chip and remote memory, both ways."""
        return sum(part.remote_loads + part.remote_stores for part in self.phases)

    @property
    def host_traffic(self) -> int:
        """Bytes between chip and host, both ways."""
        return sum(part.host_loads + part.host_stores for part in self.phases)

    def _line(self) -> str:
        return f"{len(self.phases):,} phases, {self.steps:,} steps, {self.time:,} cycles"

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row a phase; pandas must be installed."""
        return dataframe(phase_rows(self))

    def to_dict(self) -> JsonObject:
        """Return the plan as JSON data: one object a phase, and the buffers."""
        return {
            "time": self.time,
            "time_per_sample": self.time_per_sample,
            "seconds": self.seconds,
            "steps": self.steps,
            "microbatch": self.microbatch,
            "io_tiles": self.io_tiles,
            "remote_bytes": self.remote_bytes,
            "remote_traffic": self.remote_traffic,
            "host_traffic": self.host_traffic,
            "graphs": self.graphs,
            "phases": [
                {
                    "name": part.phase.name,
                    "layers": [part.phase.first, part.phase.end],
                    "mode": part.phase.mode,
                    "V": part.cycles.variables + part.cycles.gather,
                    "L": part.cycles.load,
                    "C": part.cycles.compute,
                    "S": part.cycles.store,
                    "E": part.cycles.epilogue,
                    "time": part.time,
                    "hidden": part.cycles.hidden,
                    "peak": part.peak,
                    "peak_at": part.peak_at,
                    "capacity": part.capacity,
                    "io_bytes": part.buffer_bytes,
                    "io_capacity": part.buffer_capacity,
                    "remote_loads": part.remote_loads,
                    "remote_stores": part.remote_stores,
                }
                for part in self.phases
            ],
            "buffers": [
                {
                    "name": buffer.name,
                    "nbytes": buffer.nbytes,
                    "rows": buffer.rows,
                    "steps": buffer.steps,
                    "row": buffer.row,
                    "certificate": buffer.certificate,
                }
                for buffer in self.buffers
            ],
        }


def phase_rows(found: Plan) -> list[JsonObject]:
    """Return one flat row of plain data a phase."""
    rows = []
    for row in found.to_dict()["phases"]:
        first, end = row.pop("layers")
        rows.append({"name": row.pop("name"), "first": first, "end": end, **row})
    return rows


def plan(instance: PhaseSchedule, solution: PhaseSolution | Result[PhaseSolution]) -> Plan:
    """Return the cycles and bytes of each phase of a plan, which may exceed the memory.

    Its boundaries and the lengths of its fields must be right.
    """
    require_instance(instance, "phase-schedule")
    solution = instance.solution_in(solution)
    figures = instance.at(solution.microbatch)
    steps = figures.steps
    phases = solution.phases(instance)
    bases = liveness.base_bytes(instance, figures, phases)
    capacity, io_capacity = liveness.capacities(instance, solution.io_tiles)
    found = []
    times = traffic.timeline(instance, solution)
    for phase, base, cycles in zip(phases, bases, times, strict=True):
        moved = traffic.moves(instance, figures, phase)
        memory = liveness.profile(instance, figures, phase, base)
        peak_at, peak = max(memory, key=lambda item: item[1])
        held = [
            (
                traffic.shard(int(instance.variables[i]), int(instance.sharding[i])),
                traffic.shard(int(instance.state[i]), int(instance.sharding[i])),
            )
            for i in phase.layers
        ]
        variables, state = (sum(column) for column in zip(*held, strict=True))
        backward = int(phase.kind.backward)
        found.append(
            PhasePlan(
                phase=phase,
                cycles=cycles,
                moves=moved,
                memory=tuple(memory),
                peak=peak,
                peak_at=peak_at,
                capacity=capacity,
                buffer_bytes=liveness.buffer_bytes(instance, figures, phase),
                buffer_capacity=io_capacity,
                remote_loads=variables * (steps if phase.mode == "naive" else 1)
                + steps * moved.load_bytes
                + backward * state,
                remote_stores=steps * moved.store_bytes + backward * (variables + state),
                host_loads=steps * moved.host_load,
                host_stores=steps * moved.host_store,
            )
        )
    time = sum(part.time for part in found)
    return Plan(
        phases=tuple(found),
        buffers=tuple(buffers(instance, solution)),
        steps=steps,
        microbatch=solution.microbatch,
        io_tiles=solution.io_tiles,
        time=time,
        samples=instance.global_batch,
        seconds=time / float(instance.chip.clock),
        remote_bytes=remote_bytes(instance, solution),
        graphs=len(graph_keys(phases, instance)),
    )
