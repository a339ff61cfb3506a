"""What the layers of a model cost on a device, by its roofline.

A layer takes max(flops / (achieved share * peak), bytes moved / bandwidth of memory), its backward
pass twice as long.  Moved are its weights (of experts those that some token meets, of
tables one row a token), what it reads and writes, and while a token is generated the cache.

With microbatches of b samples of s tokens, values of w bytes and n = b s tokens (b in decoding):

- flops: 2 a token for every entry of its matrices, and 2 for every multiply-accumulate of pairs of
  tokens.  Causal attention has b s (s + 1) / 2 pairs, with a window fewer; all b s^2 are computed
  without flash attention.  A head computes the last token alone in inference.
- kept for the backward pass: n (w values + masks), and without flash attention w bytes a pair and
  head, w + 1 more with dropout.  Layers that are recomputed keep what they read, and take the
  forward pass once more in the backward pass, beside all that they would have kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stagepack.errors import InputError
from stagepack.formats.hugging_face.families import Layer, Model
from stagepack.formats.hugging_face.parts import Part
from stagepack.instances.profile import LayerProfile, ModelProfile
from stagepack.instances.words import LARGEST

ID = 8
"""Bytes of a token's number."""


@dataclass(frozen=True)
class Work:
    """What is computed, and in which width.

    Attributes
    ----------
    microbatch, sequence : int
        Samples, and tokens of each: those read, or that a next one is written after.
    width : int
        Bytes of a value.
    training, decoding : bool
        Whether there is a backward pass; whether one token a sample is computed after the others.
    flash : bool
        Whether attention never writes its scores.
    state : int
        Bytes of the optimiser for each weight (training).
    recomputed : bool
        Whether all layers but the head are computed again in the backward pass.
    """

    microbatch: int
    sequence: int
    width: int
    training: bool = False
    decoding: bool = False
    flash: bool = True
    state: int = 12
    recomputed: bool = False

    @property
    def tokens(self) -> int:
        """Tokens of a microbatch that are computed."""
        return self.microbatch * (1 if self.decoding else self.sequence)

    def causal_pairs(self, window: int) -> int:
        """Return the pairs of a token and one that it sees, of a microbatch."""
        s = self.sequence
        seen = min(s, window or s)
        if self.decoding:
            return self.microbatch * seen
        if not self.flash:
            return self.microbatch * s * s
        return self.microbatch * (seen * (seen + 1) // 2 + (s - seen) * seen)

    @property
    def pairs(self) -> int:
        """Pairs of tokens of a microbatch, whatever is seen."""
        return self.tokens * self.sequence

    def bytes_by_category(self, weights: int) -> dict[str, int]:
        """Return what so many weights take."""
        found = {"parameters": weights * self.width}
        if self.training:
            found["gradients"] = weights * self.width
            found["optimiser state"] = weights * self.state
        return found


@dataclass(frozen=True)
class Roofline:
    """A device: flops and bytes of its memory in a cycle; None: memory costs no time."""

    flops: float
    bandwidth: float | None

    def cycles(self, flops: int, moved: int) -> int:
        """Return how long work takes, in whole cycles."""
        computed = flops / self.flops
        return math.ceil(max(computed, moved / self.bandwidth) if self.bandwidth else computed)


def flops(part: Part, work: Work, tokens: int) -> int:
    """Return the operations of a forward pass of `tokens`; a multiply-accumulate is two."""
    pairs = part.causal * work.causal_pairs(part.window) + part.scores * work.pairs
    return 2 * (part.products * tokens + pairs)


def moved(layer: Layer, model: Model, work: Work, tokens: int) -> int:
    """Return the bytes that a forward pass of `tokens` reads and writes in a device's memory."""
    part, out = layer.part, model.width if layer.out is None else layer.out
    met = min(part.experts, part.used * tokens)
    weights = part.weights + sum(layer.tied.values()) - (part.experts - met) * part.expert
    if layer.table:
        weights = tokens * model.width
    values = tokens * (model.width + out)
    if work.decoding:
        values += part.cached * work.causal_pairs(part.window)
    return work.width * (weights + values)


def _require_countable(layers: Sequence[LayerProfile]) -> None:
    """Refuse layers of so many bytes or cycles that sums of them could not be kept."""
    most = LARGEST // len(layers)
    for layer in layers:
        held = (*layer.exclusive.values(), *map(sum, map(dict.values, map(layer.held, layer.tied))))
        if (
            max(*held, layer.temporary, layer.backward_temporary, layer.stash, layer.backward)
            > most
        ):
            raise InputError(
                f"the layers are too large: {layer.name!r} has more than {most:,} bytes or cycles",
                field="model_type",
                remedy="check the sizes in the file, and sequence and microbatch",
            )


def profile(model: Model, work: Work, device: Roofline, name: str) -> ModelProfile:
    """Return what the layers of a model cost on a device.

    Parameters
    ----------
    model, work, device
    name : str
        Of the profile.
    """
    tensors: dict[str, int] = {}
    found: list[LayerProfile] = []
    entry = work.tokens * model.entry * (ID if model.ids else work.width)
    for layer in model.layers:
        if layer.mtp and not work.training:
            continue
        tokens, out = work.tokens, model.width if layer.out is None else layer.out
        if layer.logits and model.generates and not work.training:
            tokens = work.microbatch
        before = found[-1].outputs if found else ()
        if layer.fresh or not found:
            tensors[f"inputs of {layer.name}"] = entry
            before = (f"inputs of {layer.name}",)
        reads = tuple(dict.fromkeys((*before, *filter(None, [layer.reads]))))
        # Logits stay where the loss is, a number, computed of them.
        tensors[layer.name] = 4 if layer.logits and work.training else tokens * out * work.width
        pairs = work.pairs * layer.part.heads * (not work.flash)
        kept = tokens * (work.width * layer.part.kept + layer.part.masks)
        kept += pairs * work.width + (pairs and work.pairs * layer.part.dropped * (work.width + 1))
        kept += tokens * out * 4 * layer.logits
        again = work.training and work.recomputed and not layer.logits
        around = tokens * (model.width + out + layer.part.inner)
        cycles = device.cycles(flops(layer.part, work, tokens), moved(layer, model, work, tokens))
        found.append(
            LayerProfile(
                name=layer.name,
                forward=cycles,
                backward=(3 if again else 2) * cycles,
                exclusive=work.bytes_by_category(layer.part.weights),
                tied={key: work.bytes_by_category(count) for key, count in layer.tied.items()},
                temporary=work.width * (around + pairs),
                backward_temporary=work.width * (around + pairs) + (kept if again else 0),
                stash=(sum(map(tensors.__getitem__, reads)) if again else kept) * work.training,
                kv_bytes=work.width * layer.part.cached,
                inputs=reads,
                outputs=(layer.name,),
            )
        )
    _require_countable(found)
    return ModelProfile(layers=tuple(found), tensors=tensors, name=name, training=work.training)
