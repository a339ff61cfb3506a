"""BERT, GPT-2 and ViT as chains: embedding, attention and feed-forward by turns, head.

Sources: Devlin et al., *BERT: Pre-training of Deep Bidirectional Transformers for Language
Understanding*, 2019; Radford et al., *Language Models are Unsupervised Multitask Learners*, 2019;
Dosovitskiy et al., *An Image is Worth 16x16 Words*, 2021.

With batch b, tokens s, width h and a heads, a layer has 12 h^2 + 13 h weights (two normalisations
included) and 24 b s h^2 + 4 b s^2 h flops:

========== ============ =================== =========================== =====================
piece      flops        weights             writes                      keeps for backward
========== ============ =================== =========================== =====================
qkv        6 b s h^2    3 h^2 + 3 h         3 b s h                     b s h
attend     4 b s^2 h    0                   b s h (scratch: scores,     3 b s h + a b s^2
                                            a b s^2)
project    2 b s h^2    h^2 + h             b s h                       b s h
up         8 b s h^2    4 h^2 + 4 h         4 b s h                     5 b s h
down       8 b s h^2    4 h^2 + h           b s h                       4 b s h
========== ============ =================== =========================== =====================

Each residual connection brings a normalisation (2 h weights): after it in BERT, before the layer
in GPT-2 and ViT.
"""

from __future__ import annotations

from dataclasses import dataclass

from stagepack.errors import InputError
from stagepack.instances.network import Block, Chain, Network


@dataclass(frozen=True)
class Size:
    """Layers, width and heads of a transformer."""

    layers: int
    width: int
    heads: int


BERT = {"base": Size(12, 768, 12), "large": Size(24, 1024, 16)}
BERT_WORDS, BERT_POSITIONS, BERT_SEGMENTS, BERT_CLASSES = 30_522, 512, 2, 2
GPT2 = {
    "small": Size(12, 768, 12),
    "medium": Size(24, 1024, 16),
    "large": Size(36, 1280, 20),
    "xl": Size(48, 1600, 25),
}
GPT2_WORDS, GPT2_POSITIONS = 50_257, 1024
VIT = {"b-16": Size(12, 768, 12), "l-16": Size(24, 1024, 16)}
VIT_PATCH, VIT_CLASSES = 16, 1000


def bert(
    size: str,
    *,
    batch: int,
    sequence: int,
    bytes_per_value: int,
    granularity: str,
    training: bool,
) -> Network:
    """Return BERT with its pooler and a classifier of two classes.

    The model reads token and segment ids (4 bytes each) and an attention mask of a value a
    token, which every attention uses and so every cut before the last one carries; when training
    also a label a sample.

    `size` is a key of `BERT`, `batch` the texts of a microbatch, `sequence` the tokens of one, at
    most 512, `bytes_per_value` that of a weight and of an activation.  With the `granularity`
    "block" attention and feed-forward are a layer each, with "matmul" every product is one.  In
    `training` labels go in and a loss comes out.
    """
    of = BERT[size]
    b, s, h = batch, _within(sequence, BERT_POSITIONS), of.width
    chain = Chain(bytes_per_value, fine=granularity == "matmul")
    ids = chain.tensor("ids", b * s, 4), chain.tensor("segments", b * s, 4)
    mask = chain.tensor("mask", b * s)
    words = BERT_WORDS + BERT_POSITIONS + BERT_SEGMENTS
    # Three lookups and a normalisation.
    chain.layer(
        "embedding",
        values=6 * b * s * h,
        weights=words * h + 2 * h,
        inputs=ids,
        outputs=(chain.tensor("x0", b * s * h),),
        saved=b * s * (8 + h * bytes_per_value),
    )
    x = "x0"
    for index in range(of.layers):
        x = _layer(chain, of, b, s, index, x, before=False, mask=mask)
    result = chain.tensor("loss", 1, 4) if training else chain.tensor("logits", b * BERT_CLASSES)
    labels = (chain.tensor("labels", b, 4),) if training else ()
    chain.layer(
        "head",
        flops=2 * b * h * (h + BERT_CLASSES),
        values=2 * b * h,
        weights=h * h + h + BERT_CLASSES * (h + 1),
        inputs=(x, *labels),
        outputs=(result,),
        saved=2 * b * h * bytes_per_value,
    )
    return chain.network(f"bert-{size}")


def gpt2(
    size: str,
    *,
    batch: int,
    sequence: int,
    bytes_per_value: int,
    granularity: str,
    training: bool,
    tied: bool | str,
) -> Network:
    """Return GPT-2 with its language-model head.

    Inference computes the logits of the last token only; training those of all tokens, a loss, and
    hands the token ids down the whole chain, to be compared with.

    If `tied`, the head uses the embedding's weights, as published: "copied" to the first and the
    last stage, or "together" (true), which forces the whole chain into one stage; otherwise it has
    a copy of its own.
    `size`, `batch`, `sequence` (at most 1024), `bytes_per_value`, `granularity` and `training` are
    those of :func:`bert`.
    """
    of = GPT2[size]
    b, s, h = batch, _within(sequence, GPT2_POSITIONS), of.width
    chain = Chain(bytes_per_value, fine=granularity == "matmul")
    ids = chain.tensor("ids", b * s, 4)
    table = ("token embedding",) if tied else ()
    chain.layer(
        "embedding",
        values=2 * b * s * h,
        weights=(GPT2_WORDS + GPT2_POSITIONS) * h,
        inputs=(ids,),
        outputs=(chain.tensor("x0", b * s * h),),
        saved=4 * b * s,
        variables=table,
        first=tuple((name, GPT2_WORDS * h, None) for name in table),
    )
    x = "x0"
    for index in range(of.layers):
        x = _layer(chain, of, b, s, index, x, before=True)
    tokens = b * s if training else b
    logits = tokens * GPT2_WORDS
    result = chain.tensor("loss", 1, 4) if training else chain.tensor("logits", logits)
    chain.layer(
        "head",
        flops=2 * tokens * h * GPT2_WORDS,
        values=3 * b * s * h + (3 * logits if training else 0),
        weights=2 * h + (0 if tied else GPT2_WORDS * h),
        inputs=(x, ids) if training else (x,),
        outputs=(result,),
        scratch=logits * bytes_per_value if training else 0,
        saved=(2 * b * s * h + logits) * bytes_per_value,
        variables=table,
    )
    return chain.network(f"gpt2-{size}")


def vit(
    size: str,
    *,
    batch: int,
    image: int,
    bytes_per_value: int,
    granularity: str,
    training: bool,
) -> Network:
    """Return ViT with patches of 16 x 16 pixels and a classifier of 1000 classes.

    `image` is height and width in pixels, whole patches; `size`, `batch`, `bytes_per_value`,
    `granularity` and `training` are those of :func:`bert`.
    """
    of = VIT[size]
    if image % VIT_PATCH:
        raise InputError(
            f"{image} pixels are not whole patches",
            field="image",
            remedy=f"give a multiple of {VIT_PATCH}",
        )
    patches = (image // VIT_PATCH) ** 2
    b, s, h = batch, patches + 1, of.width
    chain = Chain(bytes_per_value, fine=granularity == "matmul")
    pixels = 3 * VIT_PATCH**2
    chain.layer(
        "embedding",
        flops=2 * b * patches * pixels * h,
        values=2 * b * s * h,
        weights=(pixels + 1) * h + h + s * h,
        inputs=(chain.tensor("image", 3 * b * image * image),),
        outputs=(chain.tensor("x0", b * s * h),),
        saved=3 * b * image * image * bytes_per_value,
    )
    x = "x0"
    for index in range(of.layers):
        x = _layer(chain, of, b, s, index, x, before=True)
    result = chain.tensor("loss", 1, 4) if training else chain.tensor("logits", b * VIT_CLASSES)
    labels = (chain.tensor("labels", b, 4),) if training else ()
    chain.layer(
        "head",
        flops=2 * b * h * VIT_CLASSES,
        values=3 * b * s * h + b * VIT_CLASSES,
        weights=2 * h + (h + 1) * VIT_CLASSES,
        inputs=(x, *labels),
        outputs=(result,),
        saved=b * (2 * s * h + VIT_CLASSES) * bytes_per_value,
    )
    return chain.network(f"vit-{size}")


def _layer(
    chain: Chain, of: Size, b: int, s: int, index: int, x: str, *, before: bool, mask: str = ""
) -> str:
    """Append one transformer layer that reads `x`; return the tensor it writes.

    `before` says where the normalisations are: before each half, or after it.
    """
    unit = b * s * of.width
    norm = (2 * of.width, 3 * unit)  # weights and values of a normalisation
    norms = (norm, (0, 0)) if before else ((0, 0), norm)
    middle = _attention(chain, of, (b, s), index, x, norms, mask)
    return _feed_forward(chain, of, (b, s), index, middle, norms)


Norms = tuple[tuple[int, int], tuple[int, int]]
"""Weights and values of what is normalised at the beginning of a half layer, and at its end."""


def _attention(
    chain: Chain, of: Size, tokens: tuple[int, int], index: int, x: str, norms: Norms, mask: str
) -> str:
    """Append the first half of a layer."""
    (b, s), h, width, (first, last) = tokens, of.width, chain.bytes_per_value, norms
    unit, scores = b * s * h, of.heads * b * s * s
    qkv = chain.tensor(f"qkv{index}", 3 * unit)
    context = chain.tensor(f"context{index}", unit)
    out = chain.tensor(f"middle{index}", unit)
    blocks = [
        Block(
            name=f"qkv {index}",
            shape="qkv",
            flops=6 * unit * h,
            values=3 * unit + first[1],
            weights=3 * h * h + 3 * h + first[0],
            inputs=(x,),
            outputs=(qkv,),
            saved=unit * width,
        ),
        Block(
            name=f"attend {index}",
            shape="attend",
            flops=4 * unit * s,
            values=3 * scores,
            inputs=(qkv, mask) if mask else (qkv,),
            outputs=(context,),
            scratch=scores * width,
            saved=(3 * unit + scores) * width,
        ),
        Block(
            name=f"project {index}",
            shape="project",
            flops=2 * unit * h,
            values=2 * unit + last[1],
            weights=h * h + h + last[0],
            inputs=(context, x),
            outputs=(out,),
            saved=unit * width,
        ),
    ]
    chain.add(f"attention {index}", "attention", blocks)
    return out


def _feed_forward(
    chain: Chain, of: Size, tokens: tuple[int, int], index: int, x: str, norms: Norms
) -> str:
    """Append the second half of a layer."""
    (b, s), h, width, (first, last) = tokens, of.width, chain.bytes_per_value, norms
    unit = b * s * h
    inner = chain.tensor(f"inner{index}", 4 * unit)
    out = chain.tensor(f"x{index + 1}", unit)
    blocks = [
        Block(
            name=f"up {index}",
            shape="up",
            flops=8 * unit * h,
            values=8 * unit + first[1],
            weights=4 * h * h + 4 * h + first[0],
            inputs=(x,),
            outputs=(inner,),
            saved=5 * unit * width,
        ),
        Block(
            name=f"down {index}",
            shape="down",
            flops=8 * unit * h,
            values=2 * unit + last[1],
            weights=4 * h * h + h + last[0],
            inputs=(inner, x),
            outputs=(out,),
            saved=4 * unit * width,
        ),
    ]
    chain.add(f"feed-forward {index}", "feed-forward", blocks)
    return out


def _within(sequence: int, positions: int) -> int:
    if sequence > positions:
        raise InputError(
            f"{sequence} tokens but {positions} positions",
            field="sequence",
            remedy=f"give at most {positions}",
        )
    return sequence
