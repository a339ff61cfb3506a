"""Phase schedules in text: facts, tables, and their part of a report."""

from __future__ import annotations

from fractions import Fraction

from stagepack.contracts import JsonObject
from stagepack.instances.phases import PhaseSchedule, PhaseSolution
from stagepack.instances.phases.least import least_memory
from stagepack.instances.phases.plan import Plan, phase_rows, plan
from stagepack.report import format as as_text
from stagepack.report.table import Account, Head, Sheet
from stagepack.report.view import View
from stagepack.shown import some

COLUMNS = ("phase", "layers", "mode", "V", "L", "C", "S", "E", "time", "memory", "used")
WORDS = ("phase", "layers", "mode")
LISTED = 40  # phases in the table of a terminal


class PhaseView(View[PhaseSchedule, PhaseSolution]):
    """What phase plans look like."""

    counted = "cycles"
    chosen = "Plan of"
    things = (PhaseSolution, Plan)

    def facts(self, instance: PhaseSchedule) -> JsonObject:
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

    def lines(self, given: JsonObject) -> list[tuple[str, str]]:
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

    def headline(self, instance: PhaseSchedule) -> str:
        """Return what an instance is, in one line."""
        mode = "training" if instance.training else "inference"
        variables = as_text.quantity(int(instance.variables.sum()))
        return (
            f"{as_text.plural(instance.n, 'layer')}, {variables} of variables on a chip of "
            f"{as_text.quantity(instance.chip.memory)}, {mode}"
        )

    def solution_facts(self, instance: PhaseSchedule, solution: PhaseSolution) -> JsonObject:
        """Return what a plan amounts to, as plain data under the names it has in JSON."""
        return {"plan": plan(instance, solution).to_dict()}

    def account(self, instance: PhaseSchedule, solution: PhaseSolution) -> Account:
        """Return what a whole plan amounts to, and a line a phase."""
        found = plan(instance, solution)
        return Account(_lines(instance, solution, found), _sheet(instance, found))

    def columns(self, instance: PhaseSchedule, solution: PhaseSolution) -> list[JsonObject]:
        """Return a row a phase."""
        return phase_rows(plan(instance, solution))

    def shown(self, thing: object, *, whole: bool = False) -> list[str | Head | Sheet]:
        """Return how a solution, or its plan, prints."""
        if isinstance(thing, Plan):
            return _plan(thing)
        assert isinstance(thing, PhaseSolution)
        groups = as_text.plural(len(thing.boundaries) - 1, "group")
        lines = [
            f"{groups} of layers in {as_text.plural(len(thing.mode), 'phase')}",
            f"boundaries {some(thing.boundaries)}",
            f"modes {some(thing.mode)}, microbatch {thing.microbatch}, {thing.io_tiles} I/O tiles",
        ]
        for name in dict.fromkeys(thing.policy):
            lines += [f"{as_text.plural(thing.policy.count(name), 'layer')}: {name}"]
        return ["\n".join(lines)]


def _plain(rate: Fraction | float | None) -> float | None:
    return None if rate is None else float(rate)


def _rate(rate: float | None) -> str:
    return "free" if rate is None else f"{as_text.number(rate)} bytes a cycle"


def _lines(instance: PhaseSchedule, solution: PhaseSolution, found: Plan) -> list[tuple[str, str]]:
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
    if value >= 1:
        return as_text.seconds(value)
    for factor, name in ((1e-3, "ms"), (1e-6, "µs")):
        if value >= factor:
            return f"{value / factor:.4g} {name}"
    return f"{value / 1e-9:.4g} ns"


def _sheet(instance: PhaseSchedule, found: Plan) -> Sheet:
    """Return the table of the phases; E is nothing in inference."""
    number = as_text.number
    rows = []
    for part in found.phases:
        phase, cycles = part.phase, part.cycles
        rows.append(
            [
                phase.name,
                as_text.span(phase.first, phase.end),
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
    header = list(COLUMNS)
    if not instance.training:
        at = header.index("E")
        header = [*header[:at], *header[at + 1 :]]
        rows = [[*row[:at], *row[at + 1 :]] for row in rows]
    return Sheet(
        header,
        rows,
        WORDS,
        spare=("used", "E", "V", "S", "L", "C"),
        title="Phases in figures",
        most=LISTED,
        what="phase",
    )


def _plan(plan: Plan) -> list[str | Head | Sheet]:
    number = as_text.number
    head = (
        f"{as_text.plural(len(plan.phases), 'phase')} of "
        f"{as_text.plural(plan.steps, 'step')}, {number(plan.time)} cycles, "
        f"{number(plan.time_per_sample)} a sample, "
        f"{as_text.quantity(plan.remote_traffic)} of remote traffic"
    )
    rows = [
        [
            part.phase.name,
            f"[{part.phase.first:,}, {part.phase.end:,})",
            part.phase.mode,
            number(part.time),
            as_text.quantity(part.peak),
        ]
        for part in plan.phases
    ]
    header = ("phase", "layers", "mode", "cycles", "memory")
    return [head, Sheet(header, rows, WORDS, what="phase")]


VIEW = PhaseView("picture.draw", "figure.phase_charts")
