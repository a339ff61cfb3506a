"""What a phase moves and how long that takes, straight from the definition.

**Variables.**  V = ceil(sum of ceil(W_l / r_l) / rate) + gather, where gather sums over layers
with r_l > 1 the cycles ceil((W_l - ceil(W_l / r_l)) / gather bandwidth).

**A forward part** loads every tensor made before the group that it reads (x_0 from the host), and
stores every tensor it makes that later groups read, its stashed products (each tensor once), and
in inference x_n, to the host.

**A backward part** loads the forward part's inputs and the group's stashed products again, and the
gradient of every tensor that the group makes and later groups read.  It stores a gradient for
every tensor it reads from before, but x_0; where a later group has stored a part of that gradient
already, it loads that first, adds and stores again.

**The last group, training**, does both in one phase: the forward inputs are loaded once, stashes
are paged out and in within the step, and count in both directions.

**Epilogue** of a phase with a backward part: scatter (the cycles of gather), load of the state
ceil(O_l / r_l), the updates, store of variables and state.

Remote rate and host rate are separate: L = ceil(remote bytes / rate) + ceil(host bytes / rate),
S likewise.  With t I/O tiles a rate is at most t times that of a tile.
"""

from __future__ import annotations

from dataclasses import dataclass

from stagepack.instances.phases.data import Figures, Phase, PhaseData, PhaseSolution
from stagepack.instances.phases.modes import (
    compute_cycles,
    io_slack,
    link_rate,
    phase_time,
    rate,
    transfer_cycles,
)


@dataclass(frozen=True, order=True)
class Tensor:
    """A tensor of a step, with the bytes of a microbatch.

    It is "x" (index t: x_t), "dx" (its gradient) or "tape" (index: the layer).
    """

    what: str
    index: int
    nbytes: int

    @property
    def name(self) -> str:
        """Such as ``x3``, ``dx3``, ``tape2``."""
        return f"{self.what}{self.index}"


@dataclass(frozen=True)
class Moves:
    """What one step of a phase moves; tensors without bytes are left out."""

    # At the start and the end of a step, from and to remote memory.
    loads: tuple[Tensor, ...]
    stores: tuple[Tensor, ...]
    paged: tuple[Tensor, ...]  # stored and loaded again within a step
    # Bytes of x_0 and x_n.
    host_load: int
    host_store: int

    @property
    def load_bytes(self) -> int:
        """Remote bytes loaded in a step."""
        return sum(tensor.nbytes for tensor in (*self.loads, *self.paged))

    @property
    def store_bytes(self) -> int:
        """Remote bytes stored in a step."""
        return sum(tensor.nbytes for tensor in (*self.stores, *self.paged))


@dataclass(frozen=True)
class PhaseCycles:
    """What one phase takes."""

    # V is their sum.
    variables: int
    gather: int
    # L, C and S of one step; C on the compute tiles.
    load: int
    compute: int
    store: int
    epilogue: int  # e
    time: int  # of the whole phase, with its start-up and before anything is hidden
    hidden: int = 0  # cycles of this phase's variables that the phase before it has loaded


def shard(nbytes: int, replicas: int) -> int:
    """Return the bytes that one replica holds of what is sharded."""
    return -(-nbytes // replicas)


def _read_inside(instance: PhaseData, layer: int, first: int, end: int) -> bool:
    """Whether a layer of [first, end) reads what `layer`, one of them, writes."""
    return any(first <= reader < end for reader in instance.readers[layer + 1])


def products(
    instance: PhaseData, figures: Figures, layer: int, first: int, end: int
) -> tuple[Tensor, ...]:
    """Return what the backward part of a group needs of `layer`: its tape, its output.

    The group has the layers from `first` up to `end`; an output counts where one of them reads it.
    None without bytes.
    """
    found = [Tensor("tape", layer, int(figures.tape[layer]))]
    if _read_inside(instance, layer, first, end):
        found.append(Tensor("x", layer + 1, int(figures.activations[layer + 1])))
    return tuple(tensor for tensor in found if tensor.nbytes)


def moves(instance: PhaseData, figures: Figures, phase: Phase) -> Moves:
    """Return what one step of a phase loads and stores.  O(tensors and readers of the group)."""
    first, end, training = phase.first, phase.end, instance.training
    nbytes = figures.activations
    read = sorted({tensor for layer in phase.layers for tensor in instance.reads[layer]})
    inputs = [Tensor("x", t, int(nbytes[t])) for t in read if 0 < t <= first]
    outputs = [
        Tensor("x", t, int(nbytes[t]))
        for t in range(first + 1, end + 1)
        if any(reader >= end for reader in instance.readers[t])
    ]
    stashed = [
        tensor
        for layer in phase.layers
        if phase.policy_of(layer) == "stash"
        for tensor in products(instance, figures, layer, first, end)
    ]
    loads, stores, paged = list(inputs), [], []
    if phase.kind == "F":
        stores += [*outputs, *(tensor for tensor in stashed if tensor not in outputs)]
    elif phase.kind == "FB":
        paged = stashed
    else:
        loads += [*stashed, *(Tensor("dx", t.index, t.nbytes) for t in outputs)]
    if phase.kind.backward:
        gradients = [Tensor("dx", t.index, t.nbytes) for t in inputs]
        stores += gradients
        loads += [g for g in gradients if any(v >= end for v in instance.readers[g.index])]
    return Moves(
        loads=tuple(tensor for tensor in loads if tensor.nbytes),
        stores=tuple(tensor for tensor in stores if tensor.nbytes),
        paged=tuple(paged),
        host_load=int(nbytes[0]) if 0 in read else 0,
        host_store=int(nbytes[-1]) if end == instance.n and not training else 0,
    )


def compute(figures: Figures, phase: Phase) -> int:
    """Return the cycles of one step's layers on all tiles."""
    total = 0
    if phase.kind.forward:
        total += sum(int(figures.forward[layer]) for layer in phase.layers)
    if phase.kind.backward:
        total += sum(int(figures.backward[layer]) for layer in phase.layers)
        total += sum(int(figures.forward[again]) for run in phase.recompute for again in run)
    return total


def cycles(instance: PhaseData, figures: Figures, phase: Phase, io_tiles: int) -> PhaseCycles:
    """Return the cycles that a phase takes, nothing hidden behind other phases.

    The `io_tiles` are 0 in the modes that use none.
    """
    chip = instance.chip
    remote = link_rate(chip, chip.remote_bandwidth, io_tiles)
    host = link_rate(chip, chip.host_bandwidth, io_tiles)
    held = [
        (int(instance.variables[i]), int(instance.state[i]), int(instance.sharding[i]))
        for i in phase.layers
    ]
    wide = rate(chip.gather_bandwidth)
    variables = transfer_cycles(sum(shard(w, r) for w, _, r in held), remote)
    gather = sum(transfer_cycles(w - shard(w, r), wide) for w, _, r in held if r > 1)
    epilogue = 0
    if phase.kind.backward:
        loaded = sum(shard(o, r) for _, o, r in held)
        stored = sum(shard(w, r) + shard(o, r) for w, o, r in held)
        epilogue = gather + transfer_cycles(loaded, remote) + transfer_cycles(stored, remote)
        epilogue += sum(int(instance.update[i]) for i in phase.layers)
    moved = moves(instance, figures, phase)
    load = transfer_cycles(moved.load_bytes, remote) + transfer_cycles(moved.host_load, host)
    store = transfer_cycles(moved.store_bytes, remote) + transfer_cycles(moved.host_store, host)
    computed = compute_cycles(compute(figures, phase), chip.tiles, io_tiles)
    loop = phase_time(phase.mode, variables + gather, load, computed, store, figures.steps)
    return PhaseCycles(
        variables=variables,
        gather=gather,
        load=load,
        compute=computed,
        store=store,
        epilogue=epilogue,
        time=chip.startup + loop + epilogue,
    )


def timeline(instance: PhaseData, solution: PhaseSolution) -> list[PhaseCycles]:
    """Return what every phase of a plan takes, in the order of time, with what is hidden.

    A phase that prefetches loads as much of the next phase's variables as its loop leaves the
    I/O tiles time for; gathering shards is not hidden.
    """
    figures = instance.at(solution.microbatch)
    found: list[PhaseCycles] = []
    slack = 0
    for phase in solution.phases(instance):
        took = cycles(instance, figures, phase, solution.io_tiles)
        hidden = min(took.variables, slack)
        found.append(PhaseCycles(**{**vars(took), "hidden": hidden}))
        slack = 0
        if phase.prefetch:
            slack = io_slack(phase.mode, took.load, took.compute, took.store, figures.steps)
    return found
