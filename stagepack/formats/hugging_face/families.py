"""Which layers models have, family by family, from the fields of their ``config.json``.

Layers have the names of Transformers' modules.  Sources: the papers of the models, and
``modeling_*.py`` of Transformers, with whose number of parameters tests compare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from stagepack.errors import InputError
from stagepack.formats.hugging_face.fields import Fields
from stagepack.formats.hugging_face.parts import (
    Part,
    attention,
    feed_forward,
    latent_attention,
    matrix,
    mixture,
    norm,
)

MOST_LAYERS = 2**14
WEIGHT, OUTPUT = "embedding", "head"
"""Names of weights that several layers use."""


@dataclass(frozen=True)
class Layer:
    """A layer of the chain.

    Attributes
    ----------
    name : str
    part : Part
        What it weighs, computes and keeps, without `tied` weights.
    tied : dict of str to int
        Weights that other layers use, too, by name.
    table : bool
        Whether its weights are looked up, of which a token reads one row.
    out : int or None
        Values of a token that it writes; None: the width of the model.
    logits : bool
        Whether these are logits, kept in 32 bits, and of the last token alone in generation.
    reads : str
        Layer of whose output it reads besides that of the layer before.
    fresh : bool
        Whether it reads inputs of the model in place of the layer before.
    mtp : bool
        Whether it is of multi-token prediction, which is trained and not served.
    """

    name: str
    part: Part
    tied: Mapping[str, int] = field(default_factory=dict)
    table: bool = False
    out: int | None = None
    logits: bool = False
    reads: str = ""
    fresh: bool = False
    mtp: bool = False


@dataclass(frozen=True)
class Model:
    """A model: its layers, values of a token between them, and its inputs.

    `positions` are the most tokens of a sample, 0 where nothing limits them; `tokens` as many as it
    always has, 0: as many as are given.  `context` is what it was made for.  A token, or patch, is
    read as `entry` values, of 8 bytes each where `ids`.  `generates` says that all layers run token
    by token, and the head for the last one.  Neighbours of `together` are one stage.
    """

    layers: tuple[Layer, ...]
    width: int
    context: int = 0
    positions: int = 0
    tokens: int = 0
    entry: int = 1
    ids: bool = True
    generates: bool = True
    together: tuple[tuple[str, str], ...] = ()

    @cached_property
    def like(self) -> tuple[int, ...]:
        """For each layer the first that costs as much: of the same part, and reading as much."""
        firsts: dict[tuple[Any, ...], int] = {}
        found, before = [], None
        for at, one in enumerate(self.layers):
            tied = tuple(one.tied.items())
            own = one.part, tied, one.table, one.out, one.logits, one.reads, one.fresh, one.mtp
            found.append(firsts.setdefault((own, before), at))
            before = one.out, one.logits, one.name == one.reads
        return tuple(found)

    @property
    def parameters(self) -> int:
        """Number of parameters, those of tied weights once, without multi-token prediction."""
        layers = [layer for layer in self.layers if not layer.mtp]
        tied = {name: count for layer in layers for name, count in layer.tied.items()}
        return sum(layer.part.weights for layer in layers) + sum(tied.values())


# ------------------------------------------------------------------------------ decoders

QWEN = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
DEEPSEEK = ("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size")


@dataclass(frozen=True)
class Decoder:
    """A family of decoders with rotary positions, gated feed-forwards and norms with a scale.

    Attributes
    ----------
    bias, out_bias, inner_bias : bool or str
        Whether queries, keys and values have one, the projection behind them, and the feed-forward:
        or which field says so.
    norms : int
        Of a layer.
    normed : bool
        Whether queries and keys are normalised.
    tied : bool
        Whether the head has the weights of the embedding, if no field says so.
    windows : str
        Which layers see a window of `sliding_window`, if no field says so: "", "all", "even" (every
        second, from the first) or "pattern" (all but each sixth).
    experts : (str, str, str) or None
        Fields of experts: how many, how many a token meets, and their inner width.
    latent : bool
        Whether keys and values are made of one vector.
    usual : mapping of str to int
        Fields that published files leave out.
    """

    bias: bool | str = False
    out_bias: bool | str = False
    inner_bias: bool | str = False
    norms: int = 2
    normed: bool = False
    tied: bool = False
    windows: str = ""
    experts: tuple[str, str, str] | None = None
    latent: bool = False
    usual: Mapping[str, int] = field(default_factory=dict)


DECODERS = {
    "llama": Decoder("attention_bias", "attention_bias", "mlp_bias"),
    "mistral": Decoder(windows="all"),
    "mixtral": Decoder(
        windows="all", experts=("num_local_experts", "num_experts_per_tok", "intermediate_size")
    ),
    "qwen2": Decoder(bias=True),
    "qwen2_moe": Decoder(bias=True, experts=QWEN),
    "qwen3": Decoder("attention_bias", "attention_bias", normed=True),
    "qwen3_moe": Decoder("attention_bias", "attention_bias", normed=True, experts=QWEN),
    "gemma": Decoder("attention_bias", "attention_bias", tied=True),
    "gemma2": Decoder("attention_bias", "attention_bias", norms=4, tied=True, windows="even"),
    "gemma3_text": Decoder(
        "attention_bias",
        "attention_bias",
        norms=4,
        normed=True,
        tied=True,
        windows="pattern",
        usual={
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "vocab_size": 262_208,
        },
    ),
    "deepseek_v2": Decoder("attention_bias", latent=True, experts=DEEPSEEK),
    "deepseek_v3": Decoder("attention_bias", latent=True, experts=DEEPSEEK),
}


def _decoder(of: Decoder, given: Fields) -> Model:
    """Return a decoder of a family."""
    given = replace(given, given={**of.usual, **given.given})
    width, count = given.whole("hidden_size"), given.whole("num_hidden_layers", most=MOST_LAYERS)
    around = norm(width, count=of.norms)
    attentions = _attentions(of, given, width, count)
    inners = _inners(of, given, width, count)
    layers = [
        Layer(f"model.layers.{at}", around + one + inner)
        for at, (one, inner) in enumerate(zip(attentions, inners, strict=True))
    ]
    words = given.whole("vocab_size")
    tied = given.flag("tie_word_embeddings", of.tied)
    weight = WEIGHT if tied else ""
    predicts = "num_nextn_predict_layers"
    more = given.whole(predicts, 0, least=0, most=MOST_LAYERS) if of.latent else 0
    output = weight or (OUTPUT if more else "")
    head = Part(products=width * words, kept=width, inner=words)
    merged = norm(width, count=3) + matrix(2 * width, width) + layers[-1].part + head
    shared = {WEIGHT: width * words, output: width * words}
    layers += [
        Layer(f"model.mtp.{at}", merged, shared, out=2 * width, mtp=True) for at in range(more)
    ]
    return Model(
        (
            _table("model.embed_tokens", width * words, WEIGHT if tied or more else ""),
            *layers,
            Layer("model.norm", norm(width)),
            _head("lm_head", width, words, output),
        ),
        width,
        context=given.maybe("max_position_embeddings"),
        together=(("model.norm", "lm_head"),),
    )


def _attentions(of: Decoder, given: Fields, width: int, count: int) -> list[Part]:
    """Return the attention of each of `count` layers."""
    heads = given.whole("num_attention_heads")
    bias, out_bias = (_said(given, one) for one in (of.bias, of.out_bias))
    if of.latent:
        dims = (
            given.whole("qk_nope_head_dim"),
            given.whole("qk_rope_head_dim"),
            given.whole("v_head_dim"),
        )
        rank, q_rank = given.whole("kv_lora_rank"), given.maybe("q_lora_rank")
        return [latent_attention(width, heads, rank, q_rank, dims, bias=bias)] * count
    groups = given.whole("num_key_value_heads", heads)
    if heads % groups:
        what = f"{groups} do not divide {heads} heads"
        given.refuse("num_key_value_heads", what, "give a divisor of num_attention_heads")
    dim = given.whole("head_dim", max(1, width // heads))
    return [
        attention(
            width, heads, dim, groups=groups, bias=bias, out_bias=out_bias, normed=of.normed,
            window=window,
        )
        for window in _windows(of, given, count)
    ]  # fmt: skip


def _windows(of: Decoder, given: Fields, count: int) -> list[int]:
    """Return how many tokens each layer sees at most; 0: all."""
    window = given.maybe("sliding_window")
    kinds = given.items("layer_types", str, count)
    if kinds:
        return [window if kind == "sliding_attention" else 0 for kind in kinds]
    each = given.whole("sliding_window_pattern", 6)
    wide = {"": 1, "all": count + 1, "even": 2, "pattern": each}[of.windows]
    return [window if (at + 1) % wide else 0 for at in range(count)]


def _inners(of: Decoder, given: Fields, width: int, count: int) -> list[Part]:
    """Return the feed-forward of each of `count` layers, of experts or dense."""
    if of.experts is None:
        bias = _said(given, of.inner_bias)
        inner = given.whole("intermediate_size")
        return [feed_forward(width, inner, gated=True, bias=bias)] * count
    other = "num_local_experts"  # what Transformers 5 calls them
    names = of.experts if of.experts[0] in given.given else (other, *of.experts[1:])
    many, used, inner = map(given.whole, names if other in given.given else of.experts)
    if used > many:
        given.refuse(
            of.experts[1], f"{used} of {many} experts", "give at most as many as there are"
        )
    sparse = mixture(width, inner, many, used)
    if of.latent:
        shared = given.maybe("n_shared_experts") * inner
        sparse += feed_forward(width, shared, gated=True) if shared else Part()
        first, step = given.maybe("first_k_dense_replace"), given.whole("moe_layer_freq", 1)
        return _mixed([at >= first and at % step == 0 for at in range(count)], sparse, given, width)
    if of.experts is not QWEN:
        return [sparse] * count
    shared = given.maybe("shared_expert_intermediate_size") if of.bias is True else 0
    if shared:  # behind a gate of one value
        sparse += feed_forward(width, shared, gated=True) + matrix(width, 1)
    step, dense = given.whole("decoder_sparse_step", 1), given.items("mlp_only_layers", int)
    return _mixed(
        [at not in dense and (at + 1) % step == 0 for at in range(count)], sparse, given, width
    )


def _mixed(chosen: list[bool], sparse: Part, given: Fields, width: int) -> list[Part]:
    """Return `sparse` where it is `chosen`, and dense feed-forwards elsewhere."""
    if all(chosen):
        return [sparse] * len(chosen)
    dense = feed_forward(width, given.whole("intermediate_size"), gated=True)
    return [sparse if one else dense for one in chosen]


def _said(given: Fields, bias: bool | str) -> bool:
    return given.flag(bias) if isinstance(bias, str) else bias


def _table(name: str, weights: int, tied: str, rest: Part | None = None) -> Layer:
    """Return an embedding whose weights are `tied` by a name, or its own where that is ""."""
    rest = rest or Part()
    if tied:
        return Layer(name, rest, {tied: weights}, table=True)
    return Layer(name, rest + Part(weights=weights), table=True)


def _head(name: str, width: int, words: int, tied: str, rest: Part | None = None) -> Layer:
    """Return a head of logits, its matrix `tied` by a name, or its own where that is ""."""
    of = (rest or Part()) + matrix(width, words)
    if tied:
        of = replace(of, weights=of.weights - width * words)
    return Layer(name, of, {tied: width * words} if tied else {}, out=words, logits=True)


# ------------------------------------------------------------------- with learned positions


def _gpt2(given: Fields) -> Model:
    """Return a GPT-2."""
    width, heads, words = (given.whole(name) for name in ("n_embd", "n_head", "vocab_size"))
    inner, positions = given.whole("n_inner", 4 * width), given.whole("n_positions", 1024)
    dropout = given.share("attn_pdrop", 0.1) > 0, given.share("resid_pdrop", 0.1) > 0
    layer = norm(width, bias=True, count=2)
    layer += attention(width, heads, _each(given, width, heads), bias=True, dropout=dropout)
    layer += feed_forward(width, inner, gated=False, bias=True, dropout=dropout[1])
    tied = WEIGHT if given.flag("tie_word_embeddings", True) else ""
    count = given.whole("n_layer", most=MOST_LAYERS)
    return Model(
        (
            _table("transformer.wte", words * width, tied),
            Layer("transformer.wpe", Part(weights=positions * width), table=True),
            *(Layer(f"transformer.h.{at}", layer) for at in range(count)),
            Layer("transformer.ln_f", norm(width, bias=True)),
            _head("lm_head", width, words, tied),
        ),
        width,
        context=positions,
        positions=positions,
        together=(("transformer.wte", "transformer.wpe"), ("transformer.ln_f", "lm_head")),
    )


def _opt(given: Fields) -> Model:
    """Return an OPT; positions have two rows more than tokens."""
    width, heads, words = (
        given.whole(name) for name in ("hidden_size", "num_attention_heads", "vocab_size")
    )
    positions, outer = (
        given.whole("max_position_embeddings"),
        given.whole("word_embed_proj_dim", width),
    )
    bias, scaled = (
        given.flag("enable_bias", True),
        given.flag("layer_norm_elementwise_affine", True),
    )
    dropout = given.share("attention_dropout", 0.0) > 0, given.share("dropout", 0.1) > 0
    around = norm(width, bias=True, count=2)
    one = norm(width, bias=True)
    if not scaled:
        around, one = replace(around, weights=0), replace(one, weights=0)
    layer = around + attention(width, heads, _each(given, width, heads), bias=bias, dropout=dropout)
    layer += feed_forward(width, given.whole("ffn_dim"), gated=False, bias=bias, dropout=dropout[1])
    inward, outward = Part(), Part()
    if outer != width:
        inward, outward = matrix(outer, width), matrix(width, outer)
    last = given.flag("do_layer_norm_before", True)
    last = last and not given.flag("_remove_final_layer_norm")
    end = (one if last else Part()) + outward
    tied = WEIGHT if given.flag("tie_word_embeddings", True) else ""
    count = given.whole("num_hidden_layers", most=MOST_LAYERS)
    around_layers = [Layer("model.decoder.final_layer_norm", end, out=outer)] * (end != Part())
    names = ("model.decoder.embed_tokens", "model.decoder.embed_positions")
    return Model(
        (
            _table(names[0], words * outer, tied),
            Layer(names[1], Part(weights=(positions + 2) * width) + inward, table=True),
            *(Layer(f"model.decoder.layers.{at}", layer) for at in range(count)),
            *around_layers,
            _head("lm_head", outer, words, tied),
        ),
        width,
        context=positions,
        positions=positions,
        together=(names, *((one.name, "lm_head") for one in around_layers)),
    )


# ---------------------------------------------------------------------- encoders, and T5


def _bert(given: Fields) -> Model:
    """Return a BERT with what its `architectures` say: a pooler, or the head of masked words."""
    width, words = given.whole("hidden_size"), given.whole("vocab_size")
    positions = given.whole("max_position_embeddings")
    rows = positions + given.whole("type_vocab_size", 2)
    tied = WEIGHT if given.flag("tie_word_embeddings", True) else ""
    kind = _architecture(given, "BertForMaskedLM", "BertForPreTraining", "BertModel")
    tied, own = ("", "") if kind == "BertModel" else (tied, "bert.")
    layers = _encoder_layers(given, width, f"{own}encoder.layer.{{}}")
    rest = norm(width, bias=True) + Part(weights=rows * width)
    table = _table(f"{own}embeddings", words * width, tied, rest)
    made = matrix(width, width, bias=True)
    pooler = [Layer(f"{own}pooler", made)] * (kind != "BertForMaskedLM")
    rest = made + norm(width, bias=True) + Part(weights=words if tied else 2 * words)
    if kind == "BertForPreTraining":
        rest += Part(weights=2 * width + 2)
    head = [_head("cls", width, words, tied, rest)] * (kind != "BertModel")
    return Model(
        (table, *layers, *pooler, *head),
        width,
        context=positions,
        positions=positions,
        generates=False,
        together=(("bert.pooler", "cls"),) if kind == "BertForPreTraining" else (),
    )


def _vit(given: Fields) -> Model:
    """Return a ViT with what its `architectures` say: a classifier, or a pooler."""
    width, image, patch = (
        given.whole(name, usual)
        for name, usual in (("hidden_size", None), ("image_size", 224), ("patch_size", 16))
    )
    patches, values = (image // patch) ** 2, given.whole("num_channels", 3) * patch**2
    if not patches:
        given.refuse("patch_size", f"{patch} is larger than the image", "give a smaller one")
    kind = _architecture(given, "ViTForImageClassification", "ViTModel")
    own = "" if kind == "ViTModel" else "vit."
    layers = _encoder_layers(given, width, f"{own}layers.{{}}", "qkv_bias")
    if kind == "ViTModel":
        out = given.whole("pooler_output_size", width)
        end = Layer("pooler", matrix(width, out, bias=True), out=out)
    else:
        labels = given.given.get("id2label")
        count = len(labels) if isinstance(labels, dict) and labels else given.whole("num_labels", 2)
        end = Layer("classifier", matrix(width, count, bias=True), out=count, logits=True)
    entry = matrix(values, width, bias=True) + Part(weights=(patches + 2) * width)
    return Model(
        (
            Layer(f"{own}embeddings", entry),
            *layers,
            Layer(f"{own}layernorm", norm(width, bias=True)),
            end,
        ),
        width,
        tokens=patches + 1,
        entry=values,
        ids=False,
        generates=False,
        together=((f"{own}layernorm", end.name),),
    )


def _encoder_layers(given: Fields, width: int, name: str, bias: str = "") -> list[Layer]:
    """Return the layers of an encoder.

    The field `bias` says whether queries, keys and values have one; `name` is what layers are
    called, with their number in braces.
    """
    heads, usual = given.whole("num_attention_heads"), 0.0 if bias else 0.1
    dropout = (
        given.share("attention_probs_dropout_prob", usual) > 0,
        given.share("hidden_dropout_prob", usual) > 0,
    )
    layer = norm(width, bias=True, count=2)
    layer += attention(
        width, heads, _each(given, width, heads), bias=given.flag(bias, True), out_bias=True,
        dropout=dropout, causal=False,
    )  # fmt: skip
    layer += feed_forward(
        width, given.whole("intermediate_size"), gated=False, bias=True, dropout=dropout[1]
    )
    count = given.whole("num_hidden_layers", most=MOST_LAYERS)
    return [Layer(name.format(at), layer) for at in range(count)]


def _t5(given: Fields) -> Model:
    """Return a T5: an encoder, and a decoder that reads what it writes, of as many tokens each."""
    width, words, dim = (given.whole(name) for name in ("d_model", "vocab_size", "d_kv"))
    heads, inner = given.whole("num_heads"), given.whole("d_ff")
    count = given.whole("num_layers", most=MOST_LAYERS)
    second = given.whole("num_decoder_layers", count, most=MOST_LAYERS)
    dropped = given.share("dropout_rate", 0.1) > 0
    kind = given.given.get("feed_forward_proj") or "relu"
    dropout, gated = (dropped, dropped), str(kind).startswith("gated-")
    of = norm(width) + feed_forward(width, inner, gated=gated, dropout=dropped)
    around = norm(width) + attention(width, heads, dim, dropout=dropout, causal=False)
    cached = Part(cached=2 * heads * dim)
    own = norm(width) + attention(width, heads, dim, dropout=dropout)
    biases = Part(weights=given.whole("relative_attention_num_buckets", 32) * heads)
    tied = WEIGHT if given.flag("tie_word_embeddings", True) else ""
    encoder = [
        Layer(f"encoder.block.{at}", around + of + (Part() if at else biases))
        for at in range(count)
    ]
    encoded = Layer("encoder.final_layer_norm", norm(width))
    decoder = [
        Layer(
            f"decoder.block.{at}",
            own + around + cached + of + (Part() if at else biases),
            reads=encoded.name,
        )
        for at in range(second)
    ]
    # Both stacks look up the same table.
    looked_up = replace(_table("decoder.embed_tokens", words * width, WEIGHT), fresh=True)
    return Model(
        (
            _table("encoder.embed_tokens", words * width, WEIGHT),
            *encoder,
            encoded,
            looked_up,
            *decoder,
            Layer("decoder.final_layer_norm", norm(width)),
            _head("lm_head", width, words, tied),
        ),
        width,
        context=given.maybe("n_positions"),
        generates=False,
        together=(("decoder.final_layer_norm", "lm_head"),),
    )


def _each(given: Fields, width: int, heads: int) -> int:
    """Return the values of a head that has its share of the width."""
    if width % heads:
        names = "n_head" if "n_head" in given.given else "num_attention_heads"
        given.refuse(names, f"{heads} do not divide {width} values", "give a divisor of the width")
    return width // heads


def _architecture(given: Fields, *known: str) -> str:
    """Return which of the `known` models a file is of; the first where it does not say."""
    said = given.items("architectures", str)
    if said and said[0] not in known:
        given.refuse(
            "architectures", f"{said[0][:60]!r} is not known here", f"give {' or '.join(known)}"
        )
    return said[0] if said else known[0]


def _gemma3(given: Fields) -> Model:
    """Return the text model of a Gemma 3 that reads pictures, too."""
    return _decoder(DECODERS["gemma3_text"], given.part("text_config", "gemma3_text"))


FAMILIES: dict[str, Callable[[Fields], Model]] = {
    **{name: partial(_decoder, of) for name, of in DECODERS.items()},
    "gemma3": _gemma3,
    "gpt2": _gpt2,
    "opt": _opt,
    "t5": _t5,
    "bert": _bert,
    "vit": _vit,
}
OF_ARCHITECTURE = ("bert", "vit")
"""Families that read `architectures` themselves."""
GENERATORS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
"""How names of models end that write tokens."""


def model(given: Fields) -> Model:
    """Return the model of a file; a family that is not known is refused with those that are."""
    if given.model_type not in FAMILIES:
        raise InputError(
            f"{given.model_type[:60]!r} is not known here",
            field="model_type",
            remedy="known are " + ", ".join(FAMILIES),
        )
    said = given.items("architectures", str)
    if given.model_type not in OF_ARCHITECTURE and said and not said[0].endswith(GENERATORS):
        given.refuse(
            "architectures",
            f"{said[0][:60]!r} is not known here",
            f"of {given.model_type} models end in {' or '.join(GENERATORS)}",
        )
    return FAMILIES[given.model_type](given)
