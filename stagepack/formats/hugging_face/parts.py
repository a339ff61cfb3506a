"""What the parts of transformers weigh, compute and keep, a token: attention, feed-forward, norms.

With width h, products of matrices cost 2 flops a token for every entry that a token meets, and
scores 2 a d for each pair of tokens (a heads of d values; as much for the weighted sum).  What is
kept for the backward pass follows Korthikanti et al., *Reducing Activation Recomputation in Large
Transformer Models*, 2022, section 4: the inputs of products, norms and activations, queries, keys
and values, and dropout masks of a byte.  For GPT's layer in 16 bits this is their 34 s b h, and
without flash attention 5 a s^2 b more.  Gated feed-forwards keep both halves and their product;
experts their inputs and outputs for every expert of a token.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a layer; all but `weights`, `experts` and `expert` count one token.

    Attributes
    ----------
    weights : int
        Parameters.
    products : int
        Entries of matrices that a token meets.
    causal, scores : int
        Multiply-accumulates with each token before it and itself, and with each of all.
    heads, dropped : int
        Heads of both kinds, which without flash attention keep a value a pair of tokens; of these
        with dropout.
    kept, masks : int
        Values kept for the backward pass, and bytes beside them.
    inner : int
        The most values alive at once within it.
    cached : int
        Values of the KV cache.
    window : int
        Tokens that causal attention sees at most; 0: all.
    experts, used, expert : int
        Number of experts of which a token meets `used`, and the weights of one.
    gathered : tuple of int
        Values that devices sharing the part gather before each section of it, and sum up behind.
    routed : int
        Values sent to experts, and back.
    divisible : tuple of int
        Heads and inner widths, which devices that share the part must divide.
    groups : tuple of int
        Heads of keys and values: as many devices divide them, or are a multiple and have copies.
    """

    weights: int = 0
    products: int = 0
    causal: int = 0
    scores: int = 0
    heads: int = 0
    dropped: int = 0
    kept: int = 0
    masks: int = 0
    inner: int = 0
    cached: int = 0
    window: int = 0
    experts: int = 0
    used: int = 0
    expert: int = 0
    gathered: tuple[int, ...] = ()
    routed: int = 0
    divisible: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()

    def __add__(self, other: Part) -> Part:
        """Return both, one after the other."""
        mine, its = dataclasses.asdict(self), dataclasses.asdict(other)
        both = {name: mine[name] + its[name] for name in mine}
        return Part(**{**both, "inner": max(self.inner, other.inner)})


def norm(width: int, *, bias: bool = False, count: int = 1) -> Part:
    """Return `count` normalisations of `width` values, with a scale, and a shift if `bias`."""
    return Part(weights=count * width * (1 + bias), kept=count * width)


def attention(
    width: int,
    heads: int,
    dim: int,
    *,
    groups: int | None = None,
    bias: bool = False,
    out_bias: bool | None = None,
    normed: bool = False,
    dropout: tuple[bool, bool] = (False, False),
    causal: bool = True,
    window: int = 0,
) -> Part:
    """Return attention with its projections.

    Parameters
    ----------
    width, heads, dim : int
        Values of a token, heads, and values of a head.
    groups : int, optional
        Heads of keys and values; as many as of queries when absent.
    bias, out_bias : bool
        Whether queries, keys and values have one, and the projection behind; that as these when
        absent.
    normed : bool
        Whether queries and keys are normalised, head by head.
    dropout : (bool, bool)
        Whether scores have some, and what comes out.
    causal : bool
    window : int
        Tokens seen at most; 0: all.
    """
    q, kv = heads * dim, (heads if groups is None else groups) * dim
    out_bias = bias if out_bias is None else out_bias
    products = width * (q + 2 * kv) + q * width
    return Part(
        weights=products + bias * (q + 2 * kv) + out_bias * width + normed * 2 * dim,
        products=products,
        causal=causal * 2 * q,
        scores=(not causal) * 2 * q,
        heads=heads,
        dropped=dropout[0] * heads,
        kept=width + (q + 2 * kv) + normed * (q + kv) + q,
        masks=dropout[1] * width,
        inner=2 * q + 2 * kv,
        cached=causal * 2 * kv,
        window=window,
        gathered=(width,),
        divisible=(heads,),
        groups=(heads if groups is None else groups,),
    )


def latent_attention(
    width: int, heads: int, rank: int, q_rank: int, dims: tuple[int, int, int], *, bias: bool
) -> Part:
    """Return attention whose keys and values are made of one vector a token (MLA).

    Source: DeepSeek-AI, *DeepSeek-V2*, 2024, section 2.1; its cache holds that vector and the key
    with the position.

    Parameters
    ----------
    width, heads : int
    rank, q_rank : int
        Values of that vector, and of the one that queries are made of; 0: of the token itself.
    dims : (int, int, int)
        Of a head: values without position, with position, and of what is summed up.
    bias : bool
        Whether the projections of tokens have one.
    """
    plain, placed, value = dims
    q, k, v = heads * (plain + placed), heads * plain, heads * value
    queries = width * q_rank + q_rank * q if q_rank else width * q
    products = queries + width * (rank + placed) + rank * (k + v) + v * width
    biases = (q_rank + rank + placed + width) if q_rank else rank + placed + width
    return Part(
        weights=products + q_rank + rank + bias * biases,
        products=products,
        causal=q + v,
        heads=heads,
        kept=width + 2 * q_rank + q + 2 * rank + placed + q + v + v,
        inner=2 * q + 2 * v,
        cached=rank + placed,
        gathered=(width,),
        divisible=(heads,),
        groups=(1,),
    )


def feed_forward(
    width: int, inner: int, *, gated: bool, bias: bool = False, dropout: bool = False
) -> Part:
    """Return a feed-forward network.

    Parameters
    ----------
    width, inner : int
        Values of a token outside and inside.
    gated : bool
        Whether there are two products inwards, of which one is the gate.
    bias, dropout : bool
        Whether all products have one, and whether there is some behind.
    """
    products = (2 + gated) * width * inner
    return Part(
        weights=products + bias * ((1 + gated) * inner + width),
        products=products,
        kept=width + (2 + gated) * inner,
        masks=dropout * width,
        inner=(2 + gated) * inner,
        gathered=(width,),
        divisible=(inner,),
    )


def mixture(width: int, inner: int, count: int, used: int) -> Part:
    """Return `count` gated experts of which a token meets `used`, and their router.

    `width` and `inner` are those of :func:`feed_forward`.
    """
    one = 3 * width * inner
    return Part(
        weights=count * one + count * width,
        products=used * one + count * width,
        kept=width + count + used * (2 * width + 3 * inner),
        inner=used * (2 * width + 3 * inner),
        experts=count,
        used=used,
        expert=one,
        gathered=(width,),
        routed=used * width,
        divisible=(inner,),
    )


def matrix(width: int, out: int, *, bias: bool = False) -> Part:
    """Return a product of `width` by `out`, perhaps with a `bias`."""
    return Part(weights=width * out + bias * out, products=width * out, kept=width, inner=out)
