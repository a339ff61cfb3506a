"""What the layers of a model cost on a device, by its roofline.

A layer takes max(flops / (achieved share * peak), bytes moved / achieved bandwidth of memory), and
what it takes to launch; its backward pass takes twice as long.  Products, those of experts and
pairs of tokens have shares of their own, and their times add up.  Moved are its weights (of experts
those that some token meets, of tables one row a token), what it reads and writes, and while a token
is generated the cache.

With microbatches of b samples of s tokens, values of w bytes and n = b s tokens (b in decoding):

- flops: 2 a token for every entry of its matrices, and 2 for every multiply-accumulate of pairs of
  tokens.  Causal attention has b s (s + 1) / 2 pairs, with a window fewer; all b s^2 are computed
  without flash attention.  A head computes the last token alone in inference.
- kept for the backward pass: n (w values + masks), and without flash attention w bytes a pair and
  head, w + 1 more with dropout.  Layers that are recomputed keep what they read, and take the
  forward pass once more in the backward pass, beside all that they would have kept.

Where devices share layers (:class:`Shares`), each has its part of all of these.  t of them in a
tensor group gather what a section reads, and sum up what it writes, in every pass: the sequence
lies with them in parts between sections (Korthikanti et al., section 4.2.2).  Experts get their
tokens from the e devices of an expert group, and send them back, tokens being spread evenly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import msgspec

from stagepack.errors import InputError
from stagepack.formats.hugging_face.families import Layer, Model
from stagepack.formats.hugging_face.parts import Part
from stagepack.instances.accelerators import CLOCK, GB, Accelerator, Node
from stagepack.instances.collectives import Group
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


@dataclass(frozen=True)
class Shares:
    """Among how many devices the layers of a stage and the samples of a step are shared.

    Devices of a tensor group are neighbours; `data` of these groups have a copy of the stage each.
    Of a copy's experts, each of `expert` groups in a row has its part.

    Attributes
    ----------
    nodes : tuple of Node
        All devices, in order.
    tensor, data, expert : int
        Devices that share each layer; groups that share the samples; of these that share experts.
    zero : int
        What is divided among copies: 0 nothing, 1 the optimiser's state, 2 gradients, too, 3 also
        weights, which are gathered before they are used (Rajbhandari et al., *ZeRO*, 2020).
    overlap : float
        Share of the time of weights and gradients on links during which devices compute.
    """

    nodes: tuple[Node, ...] = ()
    tensor: int = 1
    data: int = 1
    expert: int = 1
    zero: int = 0
    overlap: float = 0.0

    @property
    def devices(self) -> int:
        """Devices of a stage."""
        return self.tensor * self.data

    def local(self, part: Part) -> tuple[int, int]:
        """Return the weights that a device has of a part: those of all copies, and of experts."""
        experts = part.experts * part.expert
        dense = -(-(part.weights - experts) // self.tensor)
        return dense, -(-experts // (self.tensor * self.expert))

    def held(self, dense: int, experts: int, work: Work) -> dict[str, int]:
        """Return the bytes that a device holds of so many local weights, by category.

        `dense` and `experts` are those of :meth:`local`; `work` says of what width.
        """
        copies = self.data, self.data // self.expert
        both = dense, experts
        divided = sum(-(-one // many) for one, many in zip(both, copies, strict=True))
        weights = divided if self.zero == 3 else dense + experts
        found = {"parameters": weights * work.width}
        if work.training:
            found["gradients"] = (divided if self.zero > 1 else dense + experts) * work.width
            found["optimiser state"] = (divided if self.zero else dense + experts) * work.state
        return found

    @cached_property
    def _groups(self) -> tuple[Group, Group, Group, Group]:
        """Groups of tensors, of experts, of copies, and of copies of experts."""
        t, e = self.tensor, self.expert
        sizes = (t, 1), (e, t), (self.data, t), (self.data // e, t * e)
        tensor, expert, data, copies = (Group.of(self.nodes, *one) for one in sizes)
        return tensor, expert, data, copies

    def exchange(self, layer: Layer, model: Model, work: Work, tokens: int) -> float:
        """Return the nanoseconds in which devices of a pass exchange values of `tokens`."""
        part, sent = layer.part, 0.0
        tensor, expert, _, _ = self._groups
        outside = layer.table or layer.logits  # gathered before, or summed up behind
        gathered = [*part.gathered, *[model.width] * outside]
        if self.expert > 1 and part.routed:
            gathered.append(part.routed - model.width)
            sent += 2 * expert.all_to_all(tokens / self.tensor * part.routed * work.width)
        if self.tensor > 1:
            ways = 1 if outside else 2
            sent += ways * sum(tensor.all_gather(tokens * one * work.width) for one in gathered)
        return sent

    def passes(self, layer: Layer, model: Model, work: Work) -> float:
        """Return the nanoseconds on links of all passes of a layer over a microbatch."""
        if self.devices == 1:
            return 0.0
        sent = self.exchange(layer, model, work, _written(layer, model, work))
        gathered = self.gathering(layer, work) if self.zero == 3 else 0.0
        again = work.recomputed and not layer.logits
        return (1 + work.training * (1 + again)) * sent + (1 + 2 * work.training) * gathered

    def gathering(self, layer: Layer, work: Work) -> float:
        """Return the nanoseconds in which copies gather the weights of a layer, or the sums of
        their gradients' parts.
        """
        return self._between_copies(layer, work, Group.all_gather)

    def reduction(self, layer: Layer, work: Work) -> float:
        """Return the nanoseconds in which copies sum up the gradients of a layer, once a step.

        Where their optimisers have parts, they gather the new weights as well.
        """
        if self.data == 1 or not work.training or self.zero == 3:
            return 0.0
        if self.zero:
            return 2 * self.gathering(layer, work)
        return self._between_copies(layer, work, Group.all_reduce)

    def _between_copies(
        self, layer: Layer, work: Work, exchange: Callable[[Group, float], float]
    ) -> float:
        """Return the nanoseconds, not overlapped, in which copies exchange a layer's weights."""
        dense, experts = self.local(layer.part)
        dense += sum(-(-count // self.tensor) for count in layer.tied.values())
        _, _, data, copies = self._groups
        weights = (data, dense), (copies, experts)
        sent = sum(exchange(group, count * work.width) for group, count in weights if count)
        return sent * (1 - self.overlap)


ALONE = Shares()


@dataclass(frozen=True)
class Roofline:
    """What a device reaches.

    Attributes
    ----------
    flops : float
        Of products in a cycle.
    bandwidth : float, optional
        Bytes of its memory in a cycle; None: memory costs no time.
    experts, attention : float
        How much fewer products of experts and pairs of tokens reach: theirs by those of products.
    launch : float
        Cycles of each pass beside these.
    """

    flops: float
    bandwidth: float | None
    experts: float = 1.0
    attention: float = 1.0
    launch: float = 0.0

    @classmethod
    def of(cls, device: Accelerator, share: float | None = None) -> Roofline:
        """Return that of an accelerator, in nanoseconds; with another `share` of all its peaks."""
        own = device.products if share is None else share
        each = (device.experts / own, device.attention / own) if share is None else (1.0, 1.0)
        bandwidth = device.reads * device.bandwidth * GB / CLOCK
        return cls(
            own * device.tflops * 1e12 / CLOCK, bandwidth, *each, device.launch * CLOCK / 1e6
        )

    def cycles(self, flops: Flops, moved: float, devices: int = 1) -> int:
        """Return how long work takes, in whole cycles.

        Parameters
        ----------
        flops : Flops
            That `devices` share.
        moved : float
            Bytes of each one's memory.
        devices : int
        """
        whole = flops.products + flops.experts / self.experts + flops.attention / self.attention
        computed = whole / devices / self.flops
        bound = max(computed, moved / self.bandwidth) if self.bandwidth else computed
        return math.ceil(bound + self.launch)


class Flops(NamedTuple):
    """Operations, of which a multiply-accumulate is two: products, of experts, pairs of tokens."""

    products: int
    experts: int
    attention: int


def flops(part: Part, work: Work, tokens: int) -> Flops:
    """Return the operations of a forward pass of `tokens`."""
    pairs = part.causal * work.causal_pairs(part.window) + part.scores * work.pairs
    routed = part.used * part.expert
    return Flops(*(2 * one for one in ((part.products - routed) * tokens, routed * tokens, pairs)))


def moved(layer: Layer, model: Model, work: Work, tokens: int, shares: Shares = ALONE) -> float:
    """Return the bytes that a forward pass of `tokens` reads and writes in a device's memory."""
    part, out = layer.part, model.width if layer.out is None else layer.out
    t, e = shares.tensor, shares.expert
    met = min(part.experts / e, part.used * tokens)
    dense = part.weights - part.experts * part.expert + sum(layer.tied.values())
    weights = dense + met * part.expert
    if layer.table:
        weights = tokens * model.width
    values: float = tokens * (model.width + out)
    cached = part.cached * work.causal_pairs(part.window) if work.decoding else 0
    return work.width * ((weights + values) / t + cached / copied(part, t))


def copied(part: Part, tensor: int) -> int:
    """Return among how many of a `tensor` group's devices the cache of a part is divided."""
    return min((tensor, *part.groups))


def _require_countable(layers: Sequence[tuple[str, LayerProfile]], many: int) -> None:
    """Refuse layers of so many bytes or cycles that sums of `many` could not be kept."""
    most = LARGEST // many
    for name, layer in layers:
        held = (*layer.exclusive.values(), *map(sum, map(dict.values, map(layer.held, layer.tied))))
        if (
            max(*held, layer.temporary, layer.backward_temporary, layer.stash, layer.backward)
            > most
        ):
            raise InputError(
                f"the layers are too large: {name!r} has more than {most:,} bytes or cycles",
                field="model_type",
                remedy="check the sizes in the file, and sequence and microbatch",
            )


def profile(
    model: Model, work: Work, device: Roofline, name: str, shares: Shares = ALONE
) -> ModelProfile:
    """Return what the layers of a model cost on a device.

    Parameters
    ----------
    model, work, device
    name : str
        Of the profile.
    shares : Shares
        Of which the device is one.
    """
    costs = costs_by_kind(model, work, device, shares)
    tensors: dict[str, int] = {}
    found: list[LayerProfile] = []
    for layer, like in zip(model.layers, model.like, strict=True):
        if layer.mtp and not work.training:
            continue
        before = found[-1].outputs if found else ()
        if layer.fresh or not found:
            tensors[f"inputs of {layer.name}"] = _entry(model, work)
            before = (f"inputs of {layer.name}",)
        reads = tuple(dict.fromkeys((*before, *filter(None, [layer.reads]))))
        tensors[layer.name] = _output(layer, model, work, shares)
        found.append(
            msgspec.structs.replace(
                costs[like], name=layer.name, inputs=reads, outputs=(layer.name,)
            )
        )
    return ModelProfile(layers=tuple(found), tensors=tensors, name=name, training=work.training)


def costs_by_kind(
    model: Model, work: Work, device: Roofline, shares: Shares = ALONE
) -> dict[int, LayerProfile]:
    """Return the figures of layers, without names, by the first of all that cost as much.

    `model`, `work`, `device` and `shares` are those of :func:`profile`.
    """
    found: dict[int, LayerProfile] = {}
    last: Layer | None = None
    for layer, like in zip(model.layers, model.like, strict=True):
        if layer.mtp and not work.training:
            continue
        if like not in found:
            before = None if layer.fresh else last
            read = _entry(model, work)
            if before is not None:
                read = _output(before, model, work, shares)
            if layer.reads and (before is None or before.name != layer.reads):
                other = next(one for one in model.layers if one.name == layer.reads)
                read += _output(other, model, work, shares)
            found[like] = _costs(layer, model, work, device, shares, read)
        last = layer
    _require_countable(
        [(model.layers[at].name, one) for at, one in found.items()], len(model.layers)
    )
    return found


def _entry(model: Model, work: Work) -> int:
    """Return the bytes of a microbatch of the model's inputs."""
    return work.tokens * model.entry * (ID if model.ids else work.width)


def _output(layer: Layer, model: Model, work: Work, shares: Shares) -> int:
    """Return the bytes that a device writes: logits stay where the loss is, a number, computed."""
    if layer.logits and work.training:
        return 4
    out = model.width if layer.out is None else layer.out
    return -(-_written(layer, model, work) * out * work.width // shares.tensor)


def _written(layer: Layer, model: Model, work: Work) -> int:
    """Return the tokens of a microbatch for which a layer computes: in generation, a head one."""
    last = layer.logits and model.generates and not work.training
    return work.microbatch if last else work.tokens


def _costs(
    layer: Layer, model: Model, work: Work, device: Roofline, shares: Shares, inputs: int
) -> LayerProfile:
    """Return the figures of a layer that reads so many bytes of `inputs`."""
    part, t = layer.part, shares.tensor
    tokens, out = _written(layer, model, work), model.width if layer.out is None else layer.out
    pairs = work.pairs * part.heads * (not work.flash)
    kept = tokens * (work.width * part.kept + part.masks)
    kept += pairs * work.width + (pairs and work.pairs * part.dropped * (work.width + 1))
    kept += tokens * out * 4 * layer.logits
    kept = -(-kept // t)
    again = work.training and work.recomputed and not layer.logits
    around = tokens * (model.width + out + part.inner) + pairs
    temporary = work.width * (-(-around // t) + (t > 1) * tokens * model.width)
    dense, experts = shares.local(part)
    if shares.zero == 3:
        temporary += work.width * (dense + experts)
    computed = device.cycles(
        flops(part, work, tokens), moved(layer, model, work, tokens, shares), t
    )
    sent = gathered = 0
    if shares.devices > 1:
        sent = math.ceil(shares.exchange(layer, model, work, tokens))
        gathered = math.ceil(shares.gathering(layer, work)) if shares.zero == 3 else 0
    forward = computed + sent + gathered
    backward = 2 * computed + sent + 2 * gathered  # gradients are summed up, too
    return LayerProfile(
        forward=forward,
        backward=backward + again * (computed + sent),
        exclusive=shares.held(dense, experts, work),
        tied={key: shares.held(-(-count // t), 0, work) for key, count in layer.tied.items()},
        temporary=temporary,
        backward_temporary=temporary + (kept if again else 0),
        stash=(inputs if again else kept) * work.training,
        kv_bytes=-(-work.width * part.cached // copied(part, t)),
    )
