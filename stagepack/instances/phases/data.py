"""Phase scheduling: when the parts of a model too large for its chip run, and what stays on chip.

n layers in a row are cut into groups.  A group's variables are loaded from remote memory once,
then G gradient-accumulation steps each load inputs, compute and store outputs.  This module and
its neighbours are the definition of the problem: the figures here, times in :mod:`.modes`, what
is live when in :mod:`.liveness`, what moves when in :mod:`.traffic`, remote memory in :mod:`.rows`.

**Layers and tensors.**  x_0 is the input, from the host; x_{l+1} is what layer l writes.  Layer l
reads x_l, and x_{u+1} for each skip (u, l).  Layer n - 1 includes the loss when training: x_n is
then read by nobody and has no gradient; in inference it goes to the host.  x_0 has no gradient.

**Phases.**  Groups [c_j, c_{j+1}).  Inference: F_0 ... F_{k-1}.  Training: F_0 ... F_{k-2}, then
FB_{k-1} (forward, loss and backward of the last group), then B_{k-2} ... B_0.

**Policies** (training) say what becomes of the products of a layer that the backward part needs:
its tape, and what it writes if a layer of its own group reads that.  ``stash``: stored remotely by
the forward part, loaded by the backward part.  ``keep``: stays on chip.  ``recompute``: dropped,
and computed again.  A tensor that other groups read is stored for them anyhow: stashing it costs
no second store.

Everything is integers (bytes, cycles); rates may be fractional.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import pairwise

import msgspec
import numpy as np

from stagepack.contracts import JsonObject, cached
from stagepack.errors import InputError
from stagepack.instances.arrays import distinct
from stagepack.instances.base import digest_of
from stagepack.instances.documents import strict
from stagepack.instances.phases.modes import Mode
from stagepack.instances.phases.problem import KIND, Objective
from stagepack.instances.profile import Array, Chip, TileCounts
from stagepack.shown import ShownSolution, some

SEPARATE = 4096
"""Pairs of microbatch and number of I/O tiles up to which each is a problem of its own."""

FIGURES = 16
"""Microbatches whose figures are kept at a time."""


class Policy(StrEnum):
    """What becomes of the products of a layer that its backward part needs."""

    STASH = "stash"
    """Stored in remote memory, and loaded again."""
    KEEP = "keep"
    """Kept on chip, for all steps at once where forward and backward are phases of their own."""
    RECOMPUTE = "recompute"
    """Dropped, and computed again."""


@dataclass(frozen=True, eq=False)
class Figures:
    """The figures of one step of `microbatch` samples on one replica, as :class:`PhaseData` has
    them.

    Every phase's loop has G = `steps` steps.
    """

    microbatch: int
    steps: int
    forward: Array
    backward: Array
    temporary: Array
    tape: Array
    activations: Array


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PhaseData:
    """An instance of phase scheduling; :meth:`.PhaseSchedule.from_arrays` says what fields mean.

    Columns are int64, shape (n,), `activations` (n + 1,).  With a `microbatch` all figures are for
    it; None: it is free, and figures are per sample.
    """

    name: str
    variables: Array
    state: Array
    sharding: Array
    forward: Array
    backward: Array
    update: Array
    temporary: Array
    tape: Array
    activations: Array
    forward_fixed: Array
    backward_fixed: Array
    temporary_fixed: Array
    skips: tuple[tuple[int, int], ...] = ()
    layer_class: Array
    chip: Chip
    microbatch: int | None = 1
    global_batch: int = 1
    data_parallel: int = 1
    modes: tuple[Mode, ...] = tuple(Mode)
    training: bool = False
    policies: tuple[Policy, ...] = (Policy.STASH,)
    recomputations: int = 1
    prefetch: bool = False
    fixed_boundaries: tuple[int, ...] | None = None
    remote_memory: int | None = None
    graphs: int | None = None
    layer_names: tuple[str, ...] | None = None
    objective: Objective = Objective.TIME
    source: str = field(default="", compare=False)

    kind = KIND
    tolerance = 0.0

    @property
    def n(self) -> int:
        """Number of layers."""
        return len(self.variables)

    @cached_property
    def microbatches(self) -> tuple[int, ...]:
        """The allowed microbatches, rising: the given one, or the divisors of a replica's batch."""
        if self.microbatch is not None:
            return (self.microbatch,)
        batch = self.global_batch // self.data_parallel
        small = [size for size in range(1, int(batch**0.5) + 1) if batch % size == 0]
        return tuple(sorted({*small, *(batch // size for size in small)}))

    @cached_property
    def io_tile_choices(self) -> TileCounts:
        """The numbers of I/O tiles that the chip allows and an allowed mode can use, rising."""
        allowed = self.chip.io_tile_choices
        some = allowed.some if self.modes_with(1) else range(0)
        return TileCounts(allowed.none and bool(self.modes_with(0)), some)

    def modes_with(self, io_tiles: int) -> tuple[Mode, ...]:
        """Return the allowed modes for a number of I/O tiles."""
        return tuple(mode for mode in self.modes if mode.uses_io_tiles == (io_tiles > 0))

    def at(self, microbatch: int) -> Figures:
        """Return the figures of a step for one microbatch.

        Raises
        ------
        InputError
            When it is not one of :attr:`microbatches`.
        """
        if microbatch not in self.microbatches:
            raise InputError(
                f"{microbatch} samples are not allowed",
                field="microbatch",
                remedy="choose one of " + ", ".join(map(str, self.microbatches)),
            )
        if microbatch not in self._figures:
            if len(self._figures) >= FIGURES:
                self._figures.clear()
            scale = 1 if self.microbatch is not None else microbatch
            self._figures[microbatch] = Figures(
                microbatch,
                self.global_batch // (microbatch * self.data_parallel),
                self.forward_fixed + scale * self.forward,
                self.backward_fixed + scale * self.backward,
                self.temporary_fixed + scale * self.temporary,
                scale * self.tape,
                scale * self.activations,
            )
        return self._figures[microbatch]

    @cached_property
    def _figures(self) -> dict[int, Figures]:
        return {}

    @cached_property
    def read_pairs(self) -> tuple[Array, Array]:
        """Every tensor that a layer reads, and the layer; by rising tensor, then layer."""
        own = np.arange(self.n)
        if self.chain:
            return own, own
        skips = np.array(self.skips, dtype=np.int64)
        tensors = np.concatenate((own, skips[:, 0] + 1))
        layers = np.concatenate((own, skips[:, 1]))
        pairs = distinct(tensors * self.n + layers)
        return pairs // self.n, pairs % self.n

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """The layers that read x_t, rising, for t = 0 ... n."""
        tensors, layers = self.read_pairs
        return _sliced(layers, np.bincount(tensors, minlength=self.n + 1))

    @cached_property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """The tensors that layer l reads, rising, for l = 0 ... n - 1."""
        tensors, layers = self.read_pairs
        order = np.argsort(layers, kind="stable")
        return _sliced(tensors[order], np.bincount(layers, minlength=self.n))

    @property
    def chain(self) -> bool:
        """Whether every layer reads only what the layer before it writes."""
        return not self.skips

    def layer_name(self, index: int) -> str:
        """Name of a layer for messages and plots."""
        return f"layer {index}" if self.layer_names is None else self.layer_names[index]

    @cached
    def digest(self) -> str:
        """Fingerprint of everything that matters to an answer: equal digests, equal instances."""
        return digest_of(self, _parts)

    def _line(self) -> str:
        return f"{self.name!r}, {self.n} layers"


def _parts(value: object) -> Iterator[bytes]:
    """Yield the bytes that tell a value from another one."""
    if isinstance(value, np.ndarray):
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, Chip):
        yield msgspec.json.encode(msgspec.structs.replace(value, name=""))
    else:
        yield repr(value).encode()


def _sliced(values: Array, sizes: Array) -> tuple[tuple[int, ...], ...]:
    """Return values cut into pieces of given sizes."""
    ends, flat = np.cumsum(sizes), values.tolist()
    pieces = zip((ends - sizes).tolist(), ends.tolist(), strict=True)
    return tuple(tuple(flat[first:end]) for first, end in pieces)


class PhaseKind(StrEnum):
    """What a phase does with its group of layers."""

    FORWARD = "F"
    """The forward pass."""
    FORWARD_BACKWARD = "FB"
    """Forward, loss and backward of the last group."""
    BACKWARD = "B"
    """The backward pass, and the optimiser's step."""

    @property
    def forward(self) -> bool:
        """Whether the forward pass runs."""
        return self is not PhaseKind.BACKWARD

    @property
    def backward(self) -> bool:
        """Whether the backward pass runs."""
        return self is not PhaseKind.FORWARD


@dataclass(frozen=True)
class Phase:
    """One phase of a plan."""

    index: int  # its position in time
    kind: PhaseKind
    group: int  # index of its group; the layers are [first, end)
    first: int
    end: int
    mode: str
    policy: tuple[str, ...] = ()  # empty in inference
    # Layers computed again just before the backward pass of each; empty without a backward pass.
    recompute: tuple[tuple[int, ...], ...] = ()
    prefetch: bool = False  # whether variables of the next phase are loaded beside its loop
    last: bool = False  # whether its group is the last one

    @property
    def layers(self) -> range:
        """The layers of its group."""
        return range(self.first, self.end)

    @property
    def name(self) -> str:
        """Such as ``FB3``: kind and group."""
        return f"{self.kind}{self.group}"

    def policy_of(self, layer: int) -> str:
        """Return the policy of one of its layers, "" in inference."""
        return self.policy[layer - self.first] if self.policy else ""

    def recomputed_before(self, layer: int) -> tuple[int, ...]:
        """Return the layers computed again just before the backward pass of one."""
        return self.recompute[layer - self.first] if self.recompute else ()


@dataclass(frozen=True, repr=False)
class PhaseSolution(ShownSolution):
    """A plan of phases: groups of layers, with the mode of each phase and what is recomputed.

    Attributes
    ----------
    boundaries : tuple of int
        0 = c_0 < ... < c_k = n: group j is the layers [c_j, c_{j+1}).
    mode : tuple of str
        Mode of each phase, in the order of time (k phases in inference, 2k - 1 in training).
    io_tiles : int
        Number of tiles reserved for input and output, the same in all phases.
    microbatch : int
        Its size.
    policy : tuple of str
        Policy of each layer; empty in inference.  It has no effect for a layer without a tape whose
        output no layer of its group reads.
    recompute : tuple of tuple of int, or None
        recompute[l] lists the layers that are computed again just before the backward pass of layer
        l, in rising order (the stages of Checkmate: Jain et al., MLSys 2020).  They have the policy
        ``recompute``, belong to the same group, and are at most l.  None:
        :meth:`canonical_recompute`.  In a chain where a layer may be computed again only once, no
        other sequence is allowed.
    prefetch : tuple of bool
        Whether each phase loads the variables of the next one ahead; empty: none does.
    """

    boundaries: tuple[int, ...]
    mode: tuple[str, ...]
    io_tiles: int = 0
    microbatch: int = 1
    policy: tuple[str, ...] = ()
    recompute: tuple[tuple[int, ...], ...] | None = None
    prefetch: tuple[bool, ...] = ()

    @staticmethod
    def canonical_recompute(
        instance: PhaseData,
        boundaries: Sequence[int],
        policy: Sequence[str],
        retained: Iterable[int] = (),
    ) -> tuple[tuple[int, ...], ...]:
        """Return the sequence that recomputes dropped outputs as late as possible.

        A layer whose output was dropped is computed again just before the first backward pass that
        needs it, after the dropped layers that it needs itself; each layer once.  In a chain, a
        maximal run [i, j) of recomputed layers of a group [a, b) is so computed again just before
        the backward pass of layer j, which reads x_j, or of layer b - 1 when j = b (there layer b -
        1 itself is left out if it has no tape).  Nothing is computed again for the sake of a tensor
        without bytes.  O(n + skips).

        Parameters
        ----------
        boundaries : sequence of int
            Of the groups, from 0 to n.
        policy : sequence of str, length n
            That of every layer.
        retained : iterable of int
            Dropped layers whose output the last group retains from its forward part: they are
            computed again just before their own backward pass, for their tapes.
        """
        found: list[tuple[int, ...]] = [()] * instance.n
        if "recompute" not in policy:
            return tuple(found)
        there = {int(layer) for layer in retained}

        def makers(layer: int) -> list[int]:
            tensors = [t for t in instance.reads[layer] if instance.activations[t]]
            return [t - 1 for t in tensors if t - 1 not in there]

        for first, end in pairwise(boundaries):
            done: set[int] = set()
            for layer in reversed(range(first, end)):
                wanted = makers(layer)
                if instance.tape[layer] or layer in there:
                    wanted.append(layer)
                now: set[int] = set()
                while wanted:
                    dropped = wanted.pop()
                    if dropped < first or dropped in done or policy[dropped] != "recompute":
                        continue
                    done.add(dropped)
                    now.add(dropped)
                    wanted += makers(dropped)
                found[layer] = tuple(sorted(now))
        return tuple(found)

    def recomputed(self, instance: PhaseData) -> tuple[tuple[int, ...], ...]:
        """Return the layers that are recomputed before each backward pass, given or canonical."""
        if not instance.training:
            return ()
        if self.recompute is not None:
            return self.recompute
        return self.canonical_recompute(instance, self.boundaries, self.policy)

    def phases(self, instance: PhaseData) -> list[Phase]:
        """Return the phases in the order of time; boundaries and lengths must be right."""
        groups = list(pairwise(self.boundaries))
        k = len(groups)
        order = [(PhaseKind.FORWARD, j) for j in range(k)]
        if instance.training:
            order[-1] = (PhaseKind.FORWARD_BACKWARD, k - 1)
            order += [(PhaseKind.BACKWARD, j) for j in reversed(range(k - 1))]
        again = self.recomputed(instance)
        found = []
        for index, (kind, j) in enumerate(order):
            first, end = groups[j]
            found.append(
                Phase(
                    index=index,
                    kind=kind,
                    group=j,
                    first=first,
                    end=end,
                    mode=str(self.mode[index]),
                    policy=tuple(map(str, self.policy[first:end])),
                    recompute=tuple(again[first:end]) if kind.backward else (),
                    prefetch=bool(self.prefetch[index]) if self.prefetch else False,
                    last=j == k - 1,
                )
            )
        return found

    def _line(self) -> str:
        modes = some(dict.fromkeys(map(str, self.mode)))
        return f"boundaries {some(self.boundaries)}, {len(self.mode):,} phases ({modes})"

    def malformed(self) -> str:
        """Return the name of a field of the wrong type, or ''."""
        for name in ("boundaries", "mode", "policy", "prefetch"):
            if not isinstance(getattr(self, name), tuple | list):
                return name
        if not all(hasattr(cut, "__index__") for cut in self.boundaries):
            return "boundaries"
        for name in ("io_tiles", "microbatch"):
            if not hasattr(getattr(self, name), "__index__"):
                return name
        again = self.recompute
        return "" if again is None or isinstance(again, tuple | list) else "recompute"

    @classmethod
    def from_dict(cls, data: object, instance: object = None) -> PhaseSolution:
        """Read ``{"boundaries": [...], "mode": [...], "io_tiles": int, "microbatch": int, ...}``.

        ``policy``, ``recompute`` and ``prefetch`` may be left out.

        Raises
        ------
        InputError
            When a field is missing, unknown or of another type, or it ends elsewhere than the
            instance.
        """
        answer = strict.convert(data, cls)
        if instance is not None:
            strict.require_end(answer.boundaries, instance)
        return answer

    def to_dict(self) -> JsonObject:
        """Return the plan as JSON data."""
        again = self.recompute
        return {
            "boundaries": [int(cut) for cut in self.boundaries],
            "mode": list(map(str, self.mode)),
            "io_tiles": int(self.io_tiles),
            "microbatch": int(self.microbatch),
            "policy": list(map(str, self.policy)),
            "recompute": None if again is None else [[int(at) for at in run] for run in again],
            "prefetch": [bool(flag) for flag in self.prefetch],
        }
