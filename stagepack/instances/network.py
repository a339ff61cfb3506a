"""A network as a chain of blocks: arithmetic, weights and tensors, before any hardware.

From the formulas of an architecture a family module makes *pieces* (one matrix product or
convolution with what surrounds it), and of these either the layers themselves or, merged, the
layers people speak of: an attention, a feed-forward, a bottleneck.  :meth:`Network.profile` turns
them into cycles and bytes of a device:

- cycles = flops / (flops_per_cycle * utilisation) + values / (values_per_cycle * utilisation),
  each rounded up.  `flops` are those of matrix products (2 m n k) and convolutions (2 * outputs *
  kernel height * kernel width * input channels); `values` counts what pointwise work reads:
  1 pass for a bias, activation, residual or pooling, 3 for a softmax or normalisation;
- a backward pass takes twice the forward one (a product for the inputs, one for the weights);
- bytes: weights; with training gradients and optimiser state; per layer the state of its
  vertices; the code of equal layers once a device (an estimate of the preset, twice as much with
  a backward pass).  While a layer runs: outputs, inputs used for the last time, inner tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stagepack.instances.clusters import Preset
from stagepack.instances.profile import LayerProfile, ModelProfile


@dataclass(frozen=True, kw_only=True)
class Block:
    """One layer of a network, for one batch."""

    name: str
    shape: str  # blocks of one shape run the same code
    # `flops`, `values`: floating-point operations of products and convolutions (a
    # multiply-accumulate is two), and values read by pointwise work.
    flops: int = 0
    values: int = 0
    # `weights`, `weight_bytes`: parameters, and their bytes, where their width is their own.
    weights: int = 0
    weight_bytes: int | None = None
    # `constants`, `scratch`, `saved`: bytes of what is held, but not trained; alive only inside;
    # kept for the backward pass.
    constants: int = 0
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    scratch: int = 0
    saved: int = 0
    variables: tuple[str, ...] = ()  # weights shared with other blocks
    # Of `weights` those that are shared: name, number, and bytes as in `weight_bytes`.  They count
    # in the first block that uses them.
    first: tuple[tuple[str, int, int | None], ...] = ()

    def parameters(self, bytes_per_value: int) -> int:
        """Return the bytes of its weights, each of so many where they do not say their own."""
        own = self.weight_bytes
        return self.weights * bytes_per_value if own is None else own


@dataclass(frozen=True)
class Network:
    """A chain of blocks and the bytes of the tensors between them.

    `results` are the tensors that go back to the host; by default the outputs of the last block.
    """

    name: str
    blocks: tuple[Block, ...]
    tensors: Mapping[str, int]
    results: tuple[str, ...] | None = None

    @property
    def weights(self) -> int:
        """Number of parameters."""
        return sum(block.weights for block in self.blocks)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of a forward pass over the batch."""
        return sum(block.flops for block in self.blocks) // 2

    def profile(
        self,
        preset: Preset,
        *,
        bytes_per_value: int,
        training: bool,
        state_bytes: int,
        utilisation: float | None = None,
    ) -> ModelProfile:
        """Return what the blocks cost on a device of `preset`.

        Weights and gradients take `bytes_per_value` where blocks do not say their own, and in
        `training` each has `state_bytes` of the optimiser; `utilisation` is the share of the peak,
        if not the preset's.
        """
        share = preset.utilisation if utilisation is None else utilisation
        last_use = {tensor: i for i, block in enumerate(self.blocks) for tensor in block.inputs}
        code = self._code(preset, bytes_per_value)
        layers = []

        def trained(weights: int, nbytes: int) -> dict[str, int]:
            """Return the bytes of weights, by category."""
            if not training:
                return {"parameters": nbytes}
            state = weights * state_bytes
            return {"parameters": nbytes, "gradients": nbytes, "optimiser state": state}

        sizes = {
            name: (weights, weights * bytes_per_value if nbytes is None else nbytes)
            for block in self.blocks
            for name, weights, nbytes in block.first
        }
        for index, block in enumerate(self.blocks):
            shared = [sizes[name] for name, _, _ in block.first]
            own = block.weights - sum(weights for weights, _ in shared)
            parameters = block.parameters(bytes_per_value) - sum(nbytes for _, nbytes in shared)
            exclusive = {**trained(own, parameters), "constants": block.constants}
            exclusive["vertex state"] = preset.state_bytes
            ending = [tensor for tensor in block.inputs if last_use[tensor] == index]
            around = sum(self.tensors[tensor] for tensor in (*ending, *block.outputs))
            forward = cycles(block.flops, preset.flops_per_cycle * share)
            forward += cycles(block.values, preset.values_per_cycle * share)
            layers.append(
                LayerProfile(
                    name=block.name,
                    forward=forward,
                    backward=2 * forward,
                    exclusive={key: nbytes for key, nbytes in exclusive.items() if nbytes},
                    shared={f"code of {block.shape}": code[block.shape] * (1 + training)},
                    temporary=block.scratch + around,
                    stash=block.saved,
                    variables=tuple(name for name in block.variables if name not in sizes),
                    tied={name: trained(*sizes[name]) for name in block.variables if name in sizes},
                    inputs=block.inputs,
                    outputs=block.outputs,
                )
            )
        return ModelProfile(
            layers=tuple(layers),
            tensors=dict(self.tensors),
            results=self.results,
            name=self.name,
            training=training,
        )

    def _code(self, preset: Preset, bytes_per_value: int) -> dict[str, int]:
        """Return the bytes of the program of every shape, forward."""
        if preset.code_part is None:
            return dict.fromkeys((block.shape for block in self.blocks), preset.code_bytes)
        found: dict[str, int] = {}
        for block in self.blocks:
            touched = block.parameters(bytes_per_value) + block.constants
            touched += sum(self.tensors[tensor] for tensor in {*block.inputs, *block.outputs})
            found[block.shape] = max(found.get(block.shape, 0), touched)
        return {
            shape: min(nbytes // preset.code_part, preset.code_bytes)
            for shape, nbytes in found.items()
        }


def cycles(work: int, rate: float) -> int:
    """Return the whole cycles in which `work` is done at `rate` a cycle."""
    return -int(-work // rate)


@dataclass
class Chain:
    """A network in the making; in a `fine` one a piece is a layer, else a group of pieces is."""

    bytes_per_value: int
    fine: bool = False
    blocks: list[Block] = field(default_factory=list)
    tensors: dict[str, int] = field(default_factory=dict)

    def tensor(self, name: str, values: int, width: int | None = None) -> str:
        """Declare a tensor of so many `values` of a `width` in bytes, and return its `name`."""
        self.tensors[name] = values * (self.bytes_per_value if width is None else width)
        return name

    def add(self, name: str, shape: str, pieces: Sequence[Block]) -> None:
        """Append a group of `pieces`, as they run, in a `fine` chain, or merged into one layer.

        The layer has a `name` and a `shape`; layers of one shape run the same code.
        """
        if self.fine or len(pieces) == 1:
            self.blocks += pieces
        else:
            self.blocks.append(replace(self._merged(pieces), name=name, shape=shape))

    def layer(self, name: str, **figures: Any) -> None:
        """Append a block that is a layer in any chain, of a shape of its own."""
        self.blocks.append(Block(name=name, shape=name, **figures))

    def _merged(self, pieces: Sequence[Block]) -> Block:
        """Return several pieces as one; what only they exchange becomes inner memory."""
        written = {tensor: i for i, piece in enumerate(pieces) for tensor in piece.outputs}
        outputs = pieces[-1].outputs
        inner = [tensor for tensor in written if tensor not in outputs]
        end = {t: max(i for i, p in enumerate(pieces) if t in p.inputs) for t in inner}
        scratch = max(
            piece.scratch + sum(self.tensors[t] for t in inner if written[t] <= i <= end[t])
            for i, piece in enumerate(pieces)
        )
        inputs = dict.fromkeys(t for p in pieces for t in p.inputs if t not in written)
        for tensor in set(self.tensors) & set(inner):
            del self.tensors[tensor]
        return Block(
            name="",
            shape="",
            flops=sum(piece.flops for piece in pieces),
            values=sum(piece.values for piece in pieces),
            weights=sum(piece.weights for piece in pieces),
            inputs=tuple(inputs),
            outputs=outputs,
            scratch=scratch,
            saved=sum(piece.saved for piece in pieces),
            variables=tuple(dict.fromkeys(v for piece in pieces for v in piece.variables)),
            first=tuple(one for piece in pieces for one in piece.first),
        )

    def network(self, name: str) -> Network:
        """Return the network made so far."""
        return Network(name, tuple(self.blocks), dict(self.tensors))
