"""A plan as a neutral program, JSON data from which code for a chip could be generated.

::

    {"program": "phases", "version": 1, "steps": G, "microbatch": b, "io_tiles": t,
     "buffers": [{"name": "buffer_64", "entry_bytes": 64, "rows": 3, "entries": 24}, ...],
     "phases": [{"name": "F0", "kind": "F", "layers": [0, 2], "mode": "io",
                 "before": [op, ...],
                 "loop": {"steps": G, "beside": [op, ...], "body": [op, ...]},
                 "after": [op, ...]}, ...]}

The body runs once a step; in mode ``io_overlapped`` its first loads run beside the step before,
its last stores beside the step after.  Operations:

- ``{"op": "load", "tensor": t, "bytes": n, "from": place}`` and ``{"op": "store", ..., "to":
  place}``, where a place is ``{"buffer": name, "row": r, "index": "r*G+step"}``, ``{"host": t}``,
  or ``{"remote": "variables" or "state", "layer": l}`` (a shard);  ``"reload": true``: into the
  room of the step before; ``"prefetched": true``: the rest of what an earlier ``beside`` began;
- ``{"op": "gather", "tensor": t, "bytes": n}``: the shards of all replicas become the whole;
- ``{"op": "allocate", "tensor": t, "bytes": n}``: room, filled with zeros;
- ``{"op": "compute", "what": "forward" | "recompute" | "backward", "layer": l, "cycles": c,
  "temporary": n, "reads": [t, ...], "writes": {t: n, ...}, "adds": [t, ...]}``: `adds` are
  gradients that exist and to which a term is added;
- ``{"op": "reduce", "tensor": t}``: gradients are summed over the replicas, each keeps its shard;
- ``{"op": "update", "layer": l, "cycles": c, "reads": [t, ...]}``: the optimiser's step;
- ``{"op": "free", "tensor": t}``.

Tensors: ``x3`` (what layer 2 writes), ``dx3`` (its gradient), ``tape2``, ``w2`` (variables),
``dw2`` (accumulated gradients), ``state2``.  ``kept_x3`` has G entries, one a step, and lives from
the forward to the backward phase; in a loop it means the entry of the step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagepack.contracts import JsonObject
from stagepack.instances.base import require_instance
from stagepack.instances.phases import liveness, traffic
from stagepack.instances.phases.rows import Buffer, buffers
from stagepack.instances.phases.traffic import Tensor, shard

if TYPE_CHECKING:
    from stagepack.instances.phases.data import Figures, Phase, PhaseSolution
    from stagepack.instances.phases.instance import PhaseSchedule
    from stagepack.result import Result

Op = JsonObject


def program(instance: PhaseSchedule, solution: PhaseSolution | Result[PhaseSolution]) -> JsonObject:
    """Return the program of a valid plan.  O(moments * readers), whatever G is."""
    require_instance(instance, "phase-schedule")
    solution = instance.solution_in(solution)
    figures = instance.at(solution.microbatch)
    remote = buffers(instance, solution)
    place = {name: buffer for buffer in remote for name in buffer.row}
    phases = solution.phases(instance)
    written = []
    for phase in phases:
        before = phases[phase.index - 1] if phase.index else None
        after = phases[phase.index + 1] if phase.index + 1 < len(phases) else None
        writer = _Writer(instance, figures, phase, place)
        written.append(writer.write(before is not None and before.prefetch, after))
    return {
        "program": "phases",
        "version": 1,
        "name": instance.name,
        "steps": figures.steps,
        "microbatch": figures.microbatch,
        "io_tiles": solution.io_tiles,
        "buffers": [
            {
                "name": buffer.name,
                "entry_bytes": buffer.nbytes,
                "rows": buffer.rows,
                "entries": buffer.rows * buffer.steps,
            }
            for buffer in remote
        ],
        "phases": written,
    }


class _Writer:
    """Writes the program of one phase."""

    def __init__(
        self, instance: PhaseSchedule, figures: Figures, phase: Phase, place: dict[str, Buffer]
    ) -> None:
        self.instance, self.figures, self.phase, self.place = instance, figures, phase, place
        self.moves = traffic.moves(instance, figures, phase)
        self.kept: dict[str, int] = {}
        if not phase.last:
            self.kept = {
                tensor.name: tensor.nbytes
                for layer in phase.layers
                if phase.policy_of(layer) == "keep"
                for tensor in traffic.products(instance, figures, layer, phase.first, phase.end)
            }

    def write(self, prefetched: bool, after: Phase | None) -> Op:
        """Return the whole phase."""
        phase, steps = self.phase, self.figures.steps
        naive = phase.mode == "naive"
        begin: list[Op] = []
        if phase.kind == "F":
            begin += [
                {"op": "allocate", "tensor": f"kept_{name}", "bytes": steps * nbytes}
                for name, nbytes in self.kept.items()
            ]
        if naive:
            begin += [self._room("w", layer) for layer in phase.layers if self._variables(layer)]
        else:
            begin += self._load_variables(phase, prefetched=prefetched)
        if phase.kind.backward:
            begin += [self._room("dw", layer) for layer in phase.layers if self._variables(layer)]
        body = self._load_variables(phase, reload=True) if naive else []
        beside: list[Op] = []
        if phase.prefetch and after is not None:
            beside = [op for op in self._load_variables(after) if op["op"] == "load"]
        end = self._epilogue() if phase.kind.backward else []
        end += [_free(f"w{layer}") for layer in phase.layers if self._variables(layer)]
        if phase.kind == "B":
            end += [_free(f"kept_{name}") for name in self.kept]
        return {
            "name": phase.name,
            "kind": str(phase.kind),
            "layers": [phase.first, phase.end],
            "mode": phase.mode,
            "before": begin,
            "loop": {"steps": steps, "beside": beside, "body": body + self._body()},
            "after": end,
        }

    def _variables(self, layer: int) -> int:
        return int(self.instance.variables[layer])

    def _room(self, what: str, layer: int) -> Op:
        return {"op": "allocate", "tensor": f"{what}{layer}", "bytes": self._variables(layer)}

    def _load_variables(self, phase: Phase, **marks: bool) -> list[Op]:
        found: list[Op] = []
        for layer in phase.layers:
            whole, replicas = self._variables(layer), int(self.instance.sharding[layer])
            if not whole:
                continue
            held = {"remote": "variables", "layer": layer}
            load: Op = {"op": "load", "tensor": f"w{layer}", "bytes": shard(whole, replicas)}
            found.append({**load, "from": held, **{k: v for k, v in marks.items() if v}})
            if replicas > 1:
                found.append({"op": "gather", "tensor": f"w{layer}", "bytes": whole})
        return found

    def _epilogue(self) -> list[Op]:
        instance, layers = self.instance, self.phase.layers
        found: list[Op] = [
            {"op": "reduce", "tensor": f"dw{layer}"}
            for layer in layers
            if self._variables(layer) and instance.sharding[layer] > 1
        ]
        state = {
            layer: shard(int(instance.state[layer]), int(instance.sharding[layer]))
            for layer in layers
            if instance.state[layer]
        }
        found += [
            {
                "op": "load",
                "tensor": f"state{layer}",
                "bytes": nbytes,
                "from": {"remote": "state", "layer": layer},
            }
            for layer, nbytes in state.items()
        ]
        for layer in layers:
            trained = [f"w{layer}", f"dw{layer}"] if self._variables(layer) else []
            found.append(
                {
                    "op": "update",
                    "layer": layer,
                    "cycles": int(instance.update[layer]),
                    "reads": [*trained, *([f"state{layer}"] if layer in state else [])],
                }
            )
        for layer in layers:
            if self._variables(layer):
                nbytes = shard(self._variables(layer), int(instance.sharding[layer]))
                held = {"remote": "variables", "layer": layer}
                found.append({"op": "store", "tensor": f"w{layer}", "bytes": nbytes, "to": held})
            if layer in state:
                held = {"remote": "state", "layer": layer}
                store: Op = {"op": "store", "tensor": f"state{layer}", "bytes": state[layer]}
                found.append({**store, "to": held})
        found += [_free(f"dw{layer}") for layer in layers if self._variables(layer)]
        found += [_free(f"state{layer}") for layer in state]
        return found

    def _name(self, tensor: str) -> str:
        return f"kept_{tensor}" if tensor in self.kept else tensor

    def _remote(self, tensor: Tensor) -> Op:
        buffer = self.place[tensor.name]
        row = buffer.row[tensor.name]
        return {"buffer": buffer.name, "row": row, "index": f"{row}*{buffer.steps}+step"}

    def _load(self, tensor: Tensor) -> Op:
        held = {"host": "x0"} if tensor.name == "x0" else self._remote(tensor)
        return {"op": "load", "tensor": tensor.name, "bytes": tensor.nbytes, "from": held}

    def _store(self, tensor: Tensor) -> Op:
        last = tensor.name == f"x{self.instance.n}"
        held = {"host": tensor.name} if last else self._remote(tensor)
        name = self._name(tensor.name)
        return {"op": "store", "tensor": name, "bytes": tensor.nbytes, "to": held}

    def _body(self) -> list[Op]:
        """Return the operations of a step, in an order that liveness allows."""
        instance, figures, phase = self.instance, self.figures, self.phase
        order = liveness.moments(phase)
        spans, _ = liveness.spans(instance, figures, phase)
        paged = {tensor.name for tensor in self.moves.paged}
        first = [*self.moves.loads]
        if self.moves.host_load:
            first.append(Tensor("x", 0, self.moves.host_load))
        last = [*self.moves.stores]
        if self.moves.host_store:
            last.append(Tensor("x", instance.n, self.moves.host_store))
        found = [self._load(tensor) for tensor in first]
        present = {tensor.name for tensor in first}
        begins: dict[int, list[liveness.Span]] = {}
        ends: dict[int, list[liveness.Span]] = {}
        for span in spans:
            begins.setdefault(span.start, []).append(span)
            ends.setdefault(span.end, []).append(span)
        out: set[str] = set()  # paged out, and not in again
        for at, moment in enumerate(order):
            new: dict[str, int] = {}
            for span in begins.get(at, ()):
                name = span.tensor.name
                if name in out:
                    found.append(self._load(span.tensor))
                    out.discard(name)
                elif name not in present:
                    new[name] = span.tensor.nbytes
                present.add(name)
            found.append(self._compute(moment, new))
            for span in ends.get(at, ()):
                name = span.tensor.name
                forward = at < len(phase.layers) and phase.kind == "FB"
                if name in paged and forward:
                    found.append(self._store(span.tensor))
                    out.add(name)
                if at < len(order) - 1:
                    found.append(_free(name))
                    present.discard(name)
        found += [self._store(tensor) for tensor in last]
        found += [_free(span.tensor.name) for span in ends.get(len(order) - 1, ())]
        return found

    def _compute(self, moment: liveness.Moment, new: dict[str, int]) -> Op:
        """Return one layer's run; `new` are the tensors that begin to live with it."""
        instance, figures, layer = self.instance, self.figures, moment.layer
        reads = [f"w{layer}"] if self._variables(layer) else []
        reads += [self._name(f"x{t}") for t in instance.reads[layer] if int(figures.activations[t])]
        adds: list[str] = []
        cycles = int(figures.forward[layer])
        if moment.what == "backward":
            cycles = int(figures.backward[layer])
            if int(figures.tape[layer]):
                reads.append(self._name(f"tape{layer}"))
            if instance.readers[layer + 1] and int(figures.activations[layer + 1]):
                reads.append(f"dx{layer + 1}")
            gradients = [t for t in instance.reads[layer] if t and int(figures.activations[t])]
            adds = [f"dx{t}" for t in gradients if f"dx{t}" not in new]
            if self._variables(layer):
                adds.append(f"dw{layer}")
        else:
            for tensor in (
                Tensor("x", layer + 1, int(figures.activations[layer + 1])),
                Tensor("tape", layer, int(figures.tape[layer])),
            ):
                if tensor.name in self.kept:
                    new = {**new, self._name(tensor.name): tensor.nbytes}
        return {
            "op": "compute",
            "what": moment.what,
            "layer": layer,
            "cycles": cycles,
            "temporary": int(figures.temporary[layer]),
            "reads": reads,
            "writes": new,
            "adds": adds,
        }


def _free(name: str) -> Op:
    return {"op": "free", "tensor": name}
