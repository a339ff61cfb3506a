"""Symbolic execution of a program of phases, as a test of its correctness.

Each tensor is a token that records its step, its layer, and for gradients which readers have
contributed.  Tokens are loaded, computed, stored in entries of buffers, and freed.  It is an error
if a token is not where it should be, was overwritten, lacks the contribution of a reader, or does
not fit.  Cycles are summed from the operations alone.  Nothing depends on the plan from which the
program was written.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.instances.phases.data import PhaseData
from stagepack.instances.phases.execution.simulate import idle, loop
from stagepack.instances.phases.modes import compute_cycles, link_rate, rate, transfer_cycles
from stagepack.instances.violation import Violation

Op = JsonObject
OPS = ("load", "store", "gather", "allocate", "compute", "reduce", "update", "free")
MANY = 64  # more steps than this are represented by the first two and the last one
KEPT = "kept_"


@dataclass(frozen=True)
class Token:
    """What a tensor such as ``x3`` holds; its step is -1 where it is of none."""

    name: str
    step: int = -1
    # Of a gradient: the layers (of ``dx``) or the steps (of ``dw``) that are in it.
    parts: frozenset[int] = frozenset()
    # Gathered from all replicas (variables), or not yet reduced to a shard (gradients).
    whole: bool = True
    version: int = 0  # how often the optimiser has updated it
    ready: bool = True  # False: prefetching has begun to load it, and the rest is to come


@dataclass
class Execution:
    """What came of a program: cycles, most bytes on compute tiles in each phase, first twenty
    errors.
    """

    cycles: int = 0
    peaks: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def check_program(
    instance: PhaseData, program: Mapping[str, object]
) -> tuple[tuple[Violation, ...], int]:
    """Run a program symbolically; return what goes wrong, and its cycles.

    Parameters
    ----------
    instance : PhaseSchedule
        Says what the layers read and cost, and what the chip has.
    program : mapping
        What :func:`.program.program` returns, or the document of its file.

    Returns
    -------
    violations : tuple of Violation
        What is used before it is there, overwritten, done twice or not at all, or does not fit:
        the first twenty.
    cycles : int

    Raises
    ------
    InputError
        For what is no program, or cannot be run for lack of a part.
    """
    named = isinstance(program, Mapping) and program.get("program") == "phases"
    if not named or program.get("version") != 1:
        raise InputError(
            "no program of phases", field="program", remedy="give a file that solve --export wrote"
        )
    try:
        found = execute(instance, dict(program))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise InputError(
            f"the program cannot be run: {type(error).__name__}: {error}", field="program"
        ) from error
    return tuple(Violation("program", text) for text in found.errors), found.cycles


def execute(
    instance: PhaseData, program: JsonObject, steps: Iterable[int] | None = None
) -> Execution:
    """Execute a `program` that :func:`.program.program` wrote, or one like it.

    `steps` says which steps; else all are executed, or three where there are many.
    """
    count = program["steps"]
    if steps is None:
        steps = range(count) if count <= MANY else (0, 1, count - 1)
    machine = _Machine(instance, program, tuple(steps))
    for index, phase in enumerate(program["phases"]):
        machine.phase(index, phase)
    machine.finish()
    return machine.result


class _Machine:
    """A chip, its remote memory, and a clock."""

    def __init__(self, instance: PhaseData, program: JsonObject, steps: tuple[int, ...]) -> None:
        self.instance, self.program, self.steps = instance, program, steps
        self.figures = instance.at(program["microbatch"])
        self.result = Execution()
        chip, tiles = instance.chip, program["io_tiles"]
        self.remote = link_rate(chip, chip.remote_bandwidth, tiles)
        self.host = link_rate(chip, chip.host_bandwidth, tiles)
        self.wide = rate(chip.gather_bandwidth)
        self.room: dict[str, int] = {}  # bytes on chip, by tensor
        self.used = 0  # their sum
        self.held: dict[str, Token] = {}
        self.kept: dict[tuple[str, int], Token] = {}
        self.entries: dict[tuple[str, int], Token] = {}
        self.buffers = {item["name"]: item for item in program["buffers"]}
        self.version = Counter[int]()  # of each layer's variables, in remote memory
        self.runs = Counter[tuple[str, int, int]]()
        self.updates = Counter[int]()
        self.results: set[int] = set()  # steps whose result the host has
        self.peak, self.slack, self.where = 0, 0, ""

    def error(self, text: str) -> None:
        """Note what went wrong, and where."""
        if len(self.result.errors) < 20:
            self.result.errors.append(f"{self.where}: {text}")

    def phase(self, index: int, phase: Op) -> None:
        """Execute one phase."""
        self.where = where = f"phase {index} ({phase['name']})"
        self.peak, looped = 0, phase["loop"]
        for op in (*phase["before"], *({**op, "begun": True} for op in looped["beside"])):
            self.run(op, -1)
        for step in self.steps:
            self.where = f"{where}, step {step}"
            for op in looped["body"]:
                self.run(op, step)
        self.where = where
        for op in phase["after"]:
            self.run(op, -1)
        self.result.peaks.append(self.peak)
        self._fits(phase)
        self._time(phase)

    def finish(self) -> None:
        """See that everything was done, once, and nothing is left."""
        instance = self.instance
        self.where = "at the end"
        for layer in range(instance.n):
            for step in self.steps:
                for what in ("forward", "backward")[: 1 + instance.training]:
                    if self.runs[what, layer, step] != 1:
                        self.error(f"{what} of layer {layer} ran {self.runs[what, layer, step]}x")
            if instance.training and self.updates[layer] != 1:
                self.error(f"layer {layer} was updated {self.updates[layer]} times")
            if instance.training and instance.variables[layer] and self.version[layer] != 1:
                self.error(f"the new variables of layer {layer} were not stored")
        if not instance.training and self.figures.activations[-1]:
            for step in sorted(set(self.steps) - self.results):
                self.error(f"the host has no result of step {step}")
        if self.room:
            self.error("left on chip: " + ", ".join(sorted(self.room)[:5]))

    def _fits(self, phase: Op) -> None:
        memory, tiles = self.instance.chip.memory, self.instance.chip.tiles
        if memory is None:
            return
        io = self.program["io_tiles"]
        most = (tiles - io) * memory // tiles
        if self.peak > most:
            self.error(f"{self.peak:,} bytes of {most:,} in use")
        if phase["mode"] == "io_overlapped" and self.program["steps"] > 1:
            moved = (op["bytes"] for op in phase["loop"]["body"] if op["op"] in ("load", "store"))
            if (need := sum(moved)) > io * memory // tiles:
                self.error(f"{need:,} bytes of buffers on {io} I/O tiles")

    def _time(self, phase: Op) -> None:
        """Add the cycles of a phase, from the bytes and cycles of its operations."""
        instance, body = self.instance, phase["loop"]["body"]
        chip, tiles = instance.chip, self.program["io_tiles"]

        def link(ops: Iterable[Op], op: str, side: str, kinds: tuple[str, ...]) -> int:
            total = sum(o["bytes"] for o in ops if o["op"] == op and set(o[side]) & set(kinds))
            return transfer_cycles(total, self.host if kinds == ("host",) else self.remote)

        variables = [
            op
            for op in (*phase["before"], *(body if phase["mode"] == "naive" else ()))
            if op["op"] == "gather" or (op["op"] == "load" and "remote" in op["from"])
        ]
        v = link(variables, "load", "from", ("remote",))
        gather = sum(self._gathering(op) for op in variables if op["op"] == "gather")
        load = link(body, "load", "from", ("buffer",)) + link(body, "load", "from", ("host",))
        store = link(body, "store", "to", ("buffer",)) + link(body, "store", "to", ("host",))
        cycles = sum(op["cycles"] for op in body if op["op"] == "compute")
        compute = compute_cycles(cycles, chip.tiles, tiles)
        after = phase["after"]
        last = sum(self._gathering(op) for op in after if op["op"] == "reduce")
        last += link(after, "load", "from", ("remote",)) + link(after, "store", "to", ("remote",))
        last += sum(op["cycles"] for op in after if op["op"] == "update")
        events = loop(phase["mode"], v + gather, load, compute, store, self.program["steps"])
        end = max((event.end for event in events), default=0)
        self.result.cycles += chip.startup + end + last - min(v, self.slack)
        self.slack = 0
        if phase["loop"]["beside"]:
            free = idle(events, v + gather, end)
            self.slack = sum(stop - start for start, stop in free)

    def _gathering(self, op: Op) -> int:
        layer = int(re.sub(r"\D", "", op["tensor"]))
        whole, replicas = int(self.instance.variables[layer]), int(self.instance.sharding[layer])
        return transfer_cycles(whole - -(-whole // replicas), self.wide)

    def run(self, op: Op, step: int) -> None:
        """Execute one operation; `step` is -1 outside a loop."""
        if op["op"] not in OPS:
            raise ValueError(f"unknown operation {op['op']!r}")
        getattr(self, "_" + op["op"])(op, step)

    def _take(self, name: str, nbytes: int) -> None:
        """Give a tensor room on chip."""
        if name in self.room:
            self.error(f"{name} has room already")
            self.used -= self.room[name]
        self.room[name] = nbytes
        self.used += nbytes
        self.peak = max(self.peak, self.used)

    def _get(self, name: str, step: int) -> Token | None:
        """Return what is on chip under a name, None after noting that nothing is."""
        found = self.kept.get((name, step)) if name.startswith(KEPT) else self.held.get(name)
        if found is None:
            self.error(f"{name} is used but not there")
        elif found.step not in (-1, step) or found.name != name.removeprefix(KEPT):
            self.error(f"{name} holds {found.name} of step {found.step}")
        return found

    def _entry(self, place: Op, nbytes: int, step: int) -> tuple[str, int]:
        """Return the entry of a buffer that a place means."""
        buffer = self.buffers[place["buffer"]]
        row, columns = map(int, place["index"].removesuffix("+step").split("*"))
        at = row * columns + step
        if columns != self.program["steps"] or not 0 <= at < buffer["entries"]:
            self.error(f"there is no entry {place['index']} of {place['buffer']}")
        if nbytes != buffer["entry_bytes"]:
            self.error(f"{nbytes} bytes in an entry of {buffer['entry_bytes']}")
        return place["buffer"], at

    def _load(self, op: Op, step: int) -> None:
        name, nbytes, place = op["tensor"], op["bytes"], op["from"]
        if op.get("reload") or op.get("prefetched"):
            if name not in self.room:
                self.error(f"there is no room for {name}")
                self._take(name, nbytes)
        else:
            self._take(name, nbytes)
        if "remote" in place:
            layer = place["layer"]
            alone = int(self.instance.sharding[layer]) == 1
            version = self.version[layer] if place["remote"] == "variables" else 0
            self.held[name] = Token(name, whole=alone, version=version, ready=not op.get("begun"))
        elif "host" in place:
            self.held[name] = Token(place["host"], step)
        else:
            found = self.entries.get(self._entry(place, nbytes, step))
            if found is None:
                self.error(f"{name} is loaded before it is stored")
            elif (found.name, found.step) != (name, step):
                self.error(f"{name} was overwritten by {found.name} of step {found.step}")
            else:
                self.held[name] = found

    def _store(self, op: Op, step: int) -> None:
        name, place = op["tensor"], op["to"]
        found = self._get(name, step)
        if found is None:
            return
        if "buffer" in place:
            self.entries[self._entry(place, op["bytes"], step)] = found
        elif "host" in place:
            self.results.add(step)
        elif place["remote"] == "variables":
            self.version[place["layer"]] = found.version

    def _gather(self, op: Op, _step: int) -> None:
        name = op["tensor"]
        found = self._get(name, -1)
        if found is not None:
            self.used += op["bytes"] - self.room[name]
            self.room[name] = op["bytes"]
            self.peak = max(self.peak, self.used)
            self.held[name] = replace(found, whole=True)

    def _allocate(self, op: Op, _step: int) -> None:
        name = op["tensor"]
        self._take(name, op["bytes"])
        if name.startswith("dw"):
            self.held[name] = Token(name)

    def _reduce(self, op: Op, step: int) -> None:
        found = self._get(op["tensor"], step)
        if found is not None:
            self.held[op["tensor"]] = Token(found.name, parts=found.parts, whole=False)

    def _update(self, op: Op, step: int) -> None:
        layer = op["layer"]
        self.updates[layer] += 1
        for name in op["reads"]:
            found = self._get(name, step)
            if found is None or not name.startswith("dw"):
                continue
            if set(found.parts) != set(self.steps):
                self.error(f"{name} lacks gradients of some steps")
            if found.whole and self.instance.sharding[layer] > 1:
                self.error(f"{name} is not reduced")
        name = f"w{layer}"
        if self.instance.variables[layer]:
            if not {name, f"d{name}"} <= set(op["reads"]):
                self.error(f"the update of layer {layer} reads too little")
            self.held[name] = Token(name, version=1)

    def _free(self, op: Op, _step: int) -> None:
        name = op["tensor"]
        if name not in self.room:
            self.error(f"{name} is freed but not there")
            return
        self.used -= self.room.pop(name)
        self.held.pop(name, None)
        if name.startswith(KEPT):
            self.kept = {key: token for key, token in self.kept.items() if key[0] != name}

    def _compute(self, op: Op, step: int) -> None:
        layer, what = op["layer"], op["what"]
        if what != "recompute":
            self.runs[what, layer, step] += 1
        needed = self._needs(layer, what)
        found = {name.removeprefix(KEPT): self._get(name, step) for name in op["reads"]}
        for name in needed - set(found):
            self.error(f"{what} of layer {layer} does not read {name}")
        weights = found.get(f"w{layer}")
        if weights is not None and not (weights.whole and weights.ready and weights.version == 0):
            self.error(f"w{layer} is not all there, not gathered, or updated already")
        gradient = found.get(f"dx{layer + 1}")
        if what == "backward" and gradient is not None:
            lacking = set(self.instance.readers[layer + 1]) - gradient.parts
            if lacking:
                self.error(f"dx{layer + 1} lacks the gradients of layers {sorted(lacking)}")
        self._write(op, step)
        self.peak = max(self.peak, self.used + op["temporary"])

    def _needs(self, layer: int, what: str) -> set[str]:
        """Return what a layer's run has to read."""
        instance, figures = self.instance, self.figures
        found = {f"x{t}" for t in instance.reads[layer] if figures.activations[t]}
        found |= {f"w{layer}"} if instance.variables[layer] else set()
        if what == "backward":
            found |= {f"tape{layer}"} if figures.tape[layer] else set()
            if instance.readers[layer + 1] and figures.activations[layer + 1]:
                found.add(f"dx{layer + 1}")
        return found

    def _write(self, op: Op, step: int) -> None:
        """Give room to what a run writes, and add to the gradients that exist."""
        layer, figures = op["layer"], self.figures
        backward = op["what"] == "backward"
        for name, nbytes in op["writes"].items():
            plain = name.removeprefix(KEPT)
            token = Token(plain, step, frozenset([layer]) if backward else frozenset())
            if name.startswith(KEPT):
                if name not in self.room:
                    self.error(f"there is no room for {name}")
                self.kept[name, step] = token
            else:
                self._take(name, nbytes)
                self.held[name] = token
        for name in op["adds"]:
            token = self._get(name, -1 if name.startswith("dw") else step) or Token(name)
            part = step if name.startswith("dw") else layer
            self.held[name] = Token(name, token.step, token.parts | {part})
        made = {name.removeprefix(KEPT) for name in (*op["writes"], *op["adds"])}
        if backward:
            due = {f"dx{t}" for t in self.instance.reads[layer] if t and figures.activations[t]}
            due |= {f"dw{layer}"} if self.instance.variables[layer] else set()
        else:
            due = {f"x{layer + 1}"} if figures.activations[layer + 1] else set()
            tape = figures.tape[layer] and self.instance.training
            due |= {f"tape{layer}"} if tape else set()
        for name in due - made:
            self.error(f"{op['what']} of layer {layer} does not write {name}")
