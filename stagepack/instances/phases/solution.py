"""Plans as solutions: boundaries of groups, the mode of each phase, the policy of each layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from stagepack.contracts import JsonObject
from stagepack.instances.documents import strict
from stagepack.instances.phases.data import PhaseData
from stagepack.shown import ShownSolution, some


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
    """One phase of a plan.

    Attributes
    ----------
    index : int
        Its position in time.
    kind : PhaseKind
    group : int
        Index of its group; the layers are [first, end).
    first, end : int
    mode : str
    policy : tuple of str, one a layer of the group
        Empty in inference.
    recompute : tuple of tuple of int, one a layer of the group
        Layers computed again just before the backward pass of each; empty without a backward pass.
    prefetch : bool
        Whether variables of the next phase are loaded beside its loop.
    last : bool
        Whether its group is the last one.
    """

    index: int
    kind: PhaseKind
    group: int
    first: int
    end: int
    mode: str
    policy: tuple[str, ...] = ()
    recompute: tuple[tuple[int, ...], ...] = ()
    prefetch: bool = False
    last: bool = False

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
        the backward pass of layer j, which reads x_j, or of layer b - 1 when j = b (there layer
        b - 1 itself is left out if it has no tape).  Nothing is computed again for the sake of a
        tensor without bytes.  O(n + skips).

        Parameters
        ----------
        instance : PhaseData
        boundaries : sequence of int
            Of the groups, from 0 to n.
        policy : sequence of str, length n
        retained : iterable of int
            Dropped layers whose output the last group retains from its forward part: they are
            computed again just before their own backward pass, for their tapes.

        Returns
        -------
        tuple of tuple of int, length n
            The layers that are computed again just before the backward pass of each layer, in
            order.
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

        Parameters
        ----------
        data : mapping
        instance : PhaseData, optional
            What it should be a solution of.

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
