"""What is on chip at each moment of a phase's step, straight from the definition.

**Moments** of a step: each forward layer, each recomputed layer, each backward layer, in the order
in which they run; then, once, the epilogue (phases with a backward part).

**Held throughout** (the base): the variables of the group, gathered; as much again for their
gradients in phases with a backward part; G times the products kept by groups whose backward phase
is still to come, or that is this phase; the next phase's variables, in shards, if prefetched.

**Live at moments**: a tensor that the step loads, from the first moment to its last use; one that
the step stores, from where it is computed to the last moment; any other from where it is computed
to its last use.  A layer's temporary bytes are live at each of its moments.  In detail:

- what a recomputed layer makes lives, after each computation, to its last use before the layer is
  computed again; in a backward phase there is nothing of it before the first;
- the last group, which runs forward and backward in one step, keeps a kept product to its last
  use, and pages a stashed one: it is live to its last use of the forward part, and again from its
  first to its last use of the backward part (recomputations included);
- a gradient is live from the first backward layer that adds to it (loaded: from the first moment)
  to the backward layer of the tensor's writer (stored: to the last moment).  x_0 and x_n have none;
- epilogue: the base and the state, in shards.

Tensors that live again after each computation are the retention intervals of MOCCASIN (Bartan et
al., ICML 2023); paging within a step beside recomputation is that of POET (Patil et al., ICML
2022).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stagepack.instances.phases.data import Figures, Phase, PhaseData
from stagepack.instances.phases.traffic import Tensor, moves, products, shard


@dataclass(frozen=True)
class Moment:
    """One layer's run in a step: `what` is "forward", "recompute" or "backward"."""

    what: str
    layer: int

    def __str__(self) -> str:
        return f"{self.what} of layer {self.layer}"


@dataclass(frozen=True)
class Span:
    """A tensor that is live at the moments `start` ... `end`, both included."""

    tensor: Tensor
    start: int
    end: int


@dataclass(frozen=True)
class Absence:
    """A tensor that is not there when a moment uses it."""

    tensor: Tensor
    moment: int


def moments(phase: Phase) -> list[Moment]:
    """Return the moments of a step, without the epilogue."""
    found = []
    if phase.kind.forward:
        found += [Moment("forward", layer) for layer in phase.layers]
    if phase.kind.backward:
        for layer in reversed(phase.layers):
            found += [Moment("recompute", again) for again in phase.recomputed_before(layer)]
            found.append(Moment("backward", layer))
    return found


def spans(instance: PhaseData, figures: Figures, phase: Phase) -> tuple[list[Span], list[Absence]]:
    """Return when each tensor of a step is live, and those that are not there when used.

    What the base holds (kept products of groups of two phases) is left out.  O(moments * readers).
    """
    order = moments(phase)
    final = len(order) - 1
    forward = {m.layer: at for at, m in enumerate(order) if m.what == "forward"}
    backward = {m.layer: at for at, m in enumerate(order) if m.what == "backward"}
    again: dict[int, list[int]] = {}
    for at, moment in enumerate(order):
        if moment.what == "recompute":
            again.setdefault(moment.layer, []).append(at)
    moved = moves(instance, figures, phase)
    loaded, stored = set(moved.loads), set(moved.stores)
    found: list[Span] = []
    absent: list[Absence] = []

    def runs(layers: list[int]) -> list[int]:
        """Return the moments at which layers of the group run in any way, in order."""
        return sorted(
            at
            for layer in layers
            for at in (forward.get(layer), backward.get(layer), *again.get(layer, ()))
            if at is not None
        )

    read = {t for layer in phase.layers for t in instance.reads[layer]}
    inside = {
        t: [v for v in instance.readers[t] if phase.first <= v < phase.end]
        for t in sorted(read | set(range(phase.first + 1, phase.end + 1)))
    }
    # Inputs of the group: from the start to their last use.
    for t, layers in inside.items():
        if layers and t <= phase.first:
            tensor = Tensor("x", t, int(figures.activations[t]))
            found.append(Span(tensor, 0, runs(layers)[-1]))
    # What the group's layers make.
    for layer in phase.layers:
        output = Tensor("x", layer + 1, int(figures.activations[layer + 1]))
        tape = Tensor("tape", layer, int(figures.tape[layer]))
        needed = products(instance, figures, layer, phase.first, phase.end)
        computed = sorted([*([forward[layer]] if layer in forward else ()), *again.get(layer, ())])
        for tensor, uses in (
            (output, runs(inside[layer + 1])),
            (tape, [backward[layer]] if layer in backward else []),
        ):
            if tensor.what == "tape" and not (tensor.nbytes and instance.training):
                continue
            live, missing = _product(phase, tensor, tensor in needed, computed, uses)
            if tensor in stored:
                live = [(begin, final) for begin, _ in live]
            elif tensor in loaded:
                live = [(0, max(uses))]
                missing = []
            found += [Span(tensor, begin, end) for begin, end in live]
            absent += [Absence(tensor, at) for at in missing]
    for t, layers in inside.items() if phase.kind.backward else ():
        tensor = Tensor("dx", t, int(figures.activations[t]))  # a gradient
        if t and (layers or tensor in loaded):
            begin = 0 if tensor in loaded else min(backward[layer] for layer in layers)
            end = final if tensor in stored or t <= phase.first else backward[t - 1]
            found.append(Span(tensor, begin, end))
    return (
        [span for span in found if span.tensor.nbytes],
        [item for item in absent if item.tensor.nbytes],
    )


def _product(
    phase: Phase, tensor: Tensor, needed: bool, computed: list[int], uses: list[int]
) -> tuple[list[tuple[int, int]], list[int]]:
    """Return when a product of a layer of the group is live, and the uses that miss it."""
    layer = tensor.index - (tensor.what == "x")
    policy = phase.policy_of(layer)
    if policy == "keep" and needed and not (phase.last and phase.kind.backward):
        return [], []  # the base holds it
    if policy == "stash" and needed and phase.kind == "FB":
        turn = len(phase.layers)  # moments before it are the forward part
        before = [at for at in uses if at < turn]
        after = [at for at in uses if at >= turn]
        live = [(computed[0], max(before, default=computed[0]))]
        return [*live, *([(after[0], after[-1])] if after else [])], []
    missing = [at for at in uses if not computed or at < computed[0]]
    live = []
    for turn, at in enumerate(computed):
        until = computed[turn + 1] if turn + 1 < len(computed) else math.inf
        live.append((at, max((use for use in uses if at < use < until), default=at)))
    return live, missing


def _kept_bytes(instance: PhaseData, figures: Figures, phase: Phase) -> int:
    """Return G times the bytes that a group of two phases keeps between them."""
    if phase.last:
        return 0
    return figures.steps * sum(
        tensor.nbytes
        for layer in phase.layers
        if phase.policy_of(layer) == "keep"
        for tensor in products(instance, figures, layer, phase.first, phase.end)
    )


def base_bytes(instance: PhaseData, figures: Figures, phases: list[Phase]) -> list[int]:
    """Return what each of all `phases` of a plan, in order, holds throughout, in bytes.

    O(layers and readers).
    """
    kept: list[int] = []  # by the groups up to each one; forward phases come first, in order
    for phase in phases:
        if phase.kind.forward:
            before = kept[-1] if kept else 0
            kept.append(before + _kept_bytes(instance, figures, phase))
    found = []
    for index, phase in enumerate(phases):
        held = sum(int(instance.variables[layer]) for layer in phase.layers)
        held += held if phase.kind.backward else 0
        held += kept[phase.group]
        if phase.prefetch and index + 1 < len(phases):
            held += sum(
                shard(int(instance.variables[layer]), int(instance.sharding[layer]))
                for layer in phases[index + 1].layers
            )
        found.append(held)
    return found


def profile(
    instance: PhaseData,
    figures: Figures,
    phase: Phase,
    base: int,
    live_spans: Sequence[Span] | None = None,
) -> list[tuple[str, int]]:
    """Return the bytes in use at every moment of a phase, the epilogue last, each with its name.

    Throughout it holds `base` bytes, of :func:`base_bytes`; `live_spans` are those of
    :func:`spans`, where they are known already.  I/O buffers are not among them: see
    :func:`buffer_bytes`.
    """
    if live_spans is None:
        live_spans = spans(instance, figures, phase)[0]
    order = moments(phase)
    change = [0] * (len(order) + 1)
    for span in live_spans:
        change[span.start] += span.tensor.nbytes
        change[span.end + 1] -= span.tensor.nbytes
    found, live = [], base
    for at, moment in enumerate(order):
        live += change[at]
        found.append((str(moment), live + int(figures.temporary[moment.layer])))
    if phase.kind.backward:
        state = sum(
            shard(int(instance.state[layer]), int(instance.sharding[layer]))
            for layer in phase.layers
        )
        found.append(("epilogue", base + state))
    return found


def buffer_bytes(instance: PhaseData, figures: Figures, phase: Phase) -> int:
    """Return the bytes that a phase's loop needs on I/O tiles: one more input and output set.

    None without overlap, or for a loop of one step.
    """
    if phase.mode != "io_overlapped" or figures.steps < 2:
        return 0
    moved = moves(instance, figures, phase)
    return moved.load_bytes + moved.host_load + moved.store_bytes + moved.host_store


def capacities(instance: PhaseData, io_tiles: int) -> tuple[int | None, int | None]:
    """Return the bytes of the compute tiles and of the I/O tiles, None without a limit."""
    memory, tiles = instance.chip.memory, instance.chip.tiles
    if memory is None:
        return None, None
    return (tiles - io_tiles) * memory // tiles, io_tiles * memory // tiles
