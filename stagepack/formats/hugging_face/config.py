"""``config.json`` of Hugging Face Transformers as a chain: of its fields alone, without weights.

What the file does not say is given beside it: the ``cluster`` (``4xh100``), ``training`` or
inference, ``sequence`` (4,096 tokens, or as many as the model was made for, if fewer), samples of a
``microbatch`` (1), ``dtype`` (that of the file), ``phase`` (prefill or decode), ``attention``
(flash or eager), ``keep`` (all that the backward pass needs, or inputs of layers, which are then
all recomputed; ``recompute`` chooses which), ``measured`` (a table of what layers cost),
``state_bytes`` of the optimiser for each weight (12:
a copy of the weight and two moments in 32 bits; 8 with weights in 32 bits), ``utilisation``, the
share of the peak.

In inference all microbatches, as many as devices if not said, have their KV cache in memory.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

import msgspec

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.formats.hugging_face import families
from stagepack.formats.hugging_face.costs import Roofline, Shares, Work, profile
from stagepack.formats.hugging_face.fields import Fields
from stagepack.formats.hugging_face.measured import overridden
from stagepack.formats.known import stem_of
from stagepack.instances import accelerators, clusters
from stagepack.instances.documents import strict
from stagepack.instances.pipeline import KIND, Objective, PipelinePartition
from stagepack.instances.pipeline.native import GIVEN, job
from stagepack.instances.profile import Cluster, ModelProfile
from stagepack.instances.words import Parameter, Words

log = logging.getLogger("stagepack")
DTYPES = {
    "float32": 4, "bfloat16": 2, "float16": 2, "float8": 1, "float8_e4m3fn": 1,
    "float8_e5m2": 1, "int8": 1,
}  # fmt: skip
USUAL = 4096
"""Tokens of a sample where nothing says how many."""
OVERLAP = 0.5
"""Share of the time of weights and gradients on links that is hidden; an assumption."""
UNLIKE = 0.05
"""Share by which layers may differ in how much slower another device is, before that is told."""


@dataclass(frozen=True)
class Named:
    """A model that a file describes: what it is called, the fields of the file, and its layers."""

    name: str
    fields: Fields
    model: families.Model

    @classmethod
    def read(cls, data: bytes, file: str) -> Named:
        """Return the model of a file, named after it; of config.json, after its family."""
        fields = _fields(strict.decode(data, dict))
        stem = stem_of(file)
        named = fields.model_type if stem == "config" else stem
        return cls(named, fields, families.model(fields))


def parse(data: bytes, given: Words, file: str) -> list[PipelinePartition]:
    """Return the one instance of a file, named after it; of config.json, after the model."""
    named = Named.read(data, file)
    found = chain(named, given)
    log.info(
        "%s: %s parameters, %s", named.name, f"{named.model.parameters:,}", _told(named, given)
    )
    return [found]


def chain(named: Named, given: Words) -> PipelinePartition:
    """Return the layers of a model as a chain, on stages of so many devices as its degrees say."""
    fields, model = named.fields, named.model
    if "cluster" not in given:
        raise InputError(
            "is missing: the file does not say on what the model runs",
            field="cluster",
            remedy="name the devices, --cluster 4xh100 or 2x8xh100 (two nodes), of "
            + ", ".join(accelerators.ACCELERATORS),
        )
    work, shares = work_of(named, given), shares_of(named, given)
    if shares.devices > 1:
        whole = clusters.cluster(given["cluster"]).name
        width = shares.devices
        given = {**given, "cluster": accelerators.cluster(whole, shares.nodes, width)}
    cluster, (own, share) = clusters.machine(given)[1], roofline(given)
    made = profile(model, work, own, named.name, shares)
    if "measured" in given:
        made = overridden(made, given["measured"])
    if "speed" not in given:
        cluster = _with_speeds(cluster, made, model, work, share, shares)
    options: JsonObject = {"training": work.training, **job(given)}
    options["training"] = work.training
    caches = any(layer.kv_bytes for layer in made.layers) and not work.training
    if caches and "tokens" not in given and given.get("objective") != Objective.HEADROOM:
        samples = work.microbatch * given.get("microbatches", len(cluster))
        options["tokens"] = samples * (work.sequence + work.decoding)
    names = [layer.name for layer in made.layers]
    return PipelinePartition.from_profile(
        made,
        cluster,
        source=f"config.json of {fields.model_type}: {_told(named, given)}",
        forbidden_cuts=[names.index(second) for _, second in model.together],
        **options,
    )


def roofline(given: Words) -> tuple[Roofline, float | None]:
    """Return the first of the devices that are given, and the share of all peaks, if it is said."""
    preset, share = clusters.machine(given)[0], given.get("utilisation")
    nodes = accelerators.nodes(preset.cluster.name)
    if nodes:
        return Roofline.of(nodes[0].of, share), share
    reached = preset.utilisation if share is None else share
    return Roofline(reached * preset.flops_per_cycle, preset.memory_bandwidth), share


def _told(named: Named, given: Words) -> str:
    """Return what is computed, in words."""
    work, shares = work_of(named, given), shares_of(named, given)
    said = (
        f"{work.microbatch} x {work.sequence:,} tokens, {_phase(work)}, {work.width} bytes a value"
    )
    degrees = {name: getattr(shares, name) for name in ("tensor", "data", "expert")}
    return "".join([said, *(f", {name} {count}" for name, count in degrees.items() if count > 1)])


def shares_of(named: Named, given: Words) -> Shares:
    """Return among how many devices stages are shared; refuse degrees that do not divide."""
    cluster = given.get("cluster", "")
    nodes = accelerators.nodes(cluster.name if isinstance(cluster, Cluster) else cluster)
    degrees = {name: given.get(name, 1) for name in ("tensor", "data", "expert")}
    shares = Shares(
        nodes, **degrees, zero=given.get("zero", 1), overlap=given.get("overlap", OVERLAP)
    )
    if shares.devices == shares.expert == 1 and "pipeline" not in given:
        return shares
    named_first = next((name for name, count in degrees.items() if count > 1), "pipeline")
    if not nodes or "devices" in given:
        raise InputError(
            "needs accelerators by name",
            field=named_first,
            remedy="give --cluster 2x8xh100, without --devices",
        )
    wrong = misfit(named.model, shares)
    if wrong:
        field, problem = wrong
        raise InputError(problem, field=field, remedy="give a divisor")
    stages = sum(node.devices for node in nodes) // shares.devices
    if given.get("pipeline", stages) != stages:
        raise InputError(
            f"{given['pipeline']} stages of {shares.devices} devices, but there are {stages}",
            field="pipeline",
            remedy="leave it out, or give other degrees",
        )
    return shares


def misfit(model: families.Model, shares: Shares) -> tuple[str, str] | None:
    """Return the degree that does not divide what it must, and what that is."""
    parts = {layer.part for layer in model.layers}
    t, e = shares.tensor, shares.expert
    whole = sum(node.devices for node in shares.nodes)
    if whole % shares.devices:
        field = "tensor" if shares.data == 1 else "data"
        return field, f"{t} x {shares.data} devices of a stage do not divide {whole}"
    for count in sorted({count for part in parts for count in part.divisible}):
        if count % t:
            return "tensor", f"{t} do not divide {count} heads or inner values"
    for count in sorted({count for part in parts for count in part.groups}):
        if count % t and t % count:
            return "tensor", f"{t} do not divide {count} heads of keys and values"
    experts = math.gcd(*(part.experts for part in parts if part.experts), 0)
    if shares.data % e or (experts or 1) % e:
        return "expert", f"{e} do not divide {shares.data} copies and {experts} experts"
    return None


def _fields(data: JsonObject) -> Fields:
    """Return the fields of a file."""
    kind = data.get("model_type")
    if not isinstance(kind, str):
        raise InputError(
            "is missing" if kind is None else "is no text",
            field="model_type",
            remedy="known are " + ", ".join(families.FAMILIES),
        )
    return Fields(data, kind)


def work_of(named: Named, given: Words) -> Work:
    """Return what is computed, of what was given and what the file says."""
    fields, model = named.fields, named.model
    sequence = given.get("sequence") or model.tokens or min(USUAL, model.context or USUAL)
    most = model.tokens or model.positions
    if most and (sequence > most or (model.tokens and sequence != most)):
        told = "always has" if model.tokens else "has positions for"
        raise InputError(
            f"{sequence:,} tokens, but the model {told} {most:,}",
            field="sequence",
            remedy="leave it out" if model.tokens else f"give at most {most:,}",
        )
    training, phase = bool(given.get("training", False)), given.get("phase", "prefill")
    if phase == "decode" and (training or not model.generates):
        why = "training computes whole samples" if training else "not all layers run token by token"
        raise InputError(f"is decode, but {why}", field="phase", remedy="leave it out")
    width = DTYPES[given["dtype"]] if "dtype" in given else _width(fields)
    return Work(
        microbatch=given.get("microbatch", given.get("batch", 1)),
        sequence=sequence,
        width=width,
        training=training,
        decoding=phase == "decode",
        flash=given.get("attention", "flash") == "flash",
        state=given.get("state_bytes", 8 if width == 4 else 12),
        recomputed=given.get("keep") == "inputs",
    )


def _width(fields: Fields) -> int:
    """Return the bytes of a value that a file says, of the whole or of its text model."""
    said = fields.given
    inner = said.get("text_config")
    places = (said, inner if isinstance(inner, dict) else {})
    for name in ("dtype", "torch_dtype"):
        for place in places:
            value = place.get(name)
            if value is not None:
                if str(value) not in DTYPES:
                    raise InputError(
                        f"{str(value)[:40]!r} is not known here",
                        field=name,
                        remedy=f"say it by --set dtype=: {', '.join(DTYPES)}",
                    )
                return DTYPES[str(value)]
    return DTYPES["bfloat16"]


def _with_speeds(
    cluster: Cluster,
    made: ModelProfile,
    model: families.Model,
    work: Work,
    share: float | None,
    shares: Shares,
) -> Cluster:
    """Return a cluster of unlike accelerators with the speeds that each has for a whole model.

    A device's speed is one number for all layers.  Where layers are bound by other things, products
    or memory, it is right on average, and that is told.

    Parameters
    ----------
    cluster : Cluster
    made : ModelProfile
        The layers on the first device.
    model, work
    share : float, optional
        Of the peak; None: what each device has.
    shares : Shares
    """
    nodes = accelerators.slowest(accelerators.nodes(cluster.name), shares.devices)
    kinds = {node.name: node.of for node in nodes}
    if len(kinds) < 2:
        return cluster
    first = [layer.forward for layer in made.layers]
    speeds = {}
    for name, of in kinds.items():
        roof = Roofline.of(of, share)
        other = [layer.forward for layer in profile(model, work, roof, "", shares).layers]
        speeds[name] = sum(first) / sum(other)
        heavy = [one / its for one, its in zip(first, other, strict=True) if one * 100 > sum(first)]
        if heavy and max(heavy) > min(heavy) * (1 + UNLIKE):
            log.warning(
                "layers differ in how fast they are on %s: by %.2f to %.2f, counted as %.2f",
                name, min(heavy), max(heavy), speeds[name],
            )  # fmt: skip
    return msgspec.structs.replace(
        cluster,
        devices=tuple(
            msgspec.structs.replace(device, speed=1 if speeds[of.name] == 1 else speeds[of.name])
            for device, of in zip(cluster.devices, nodes, strict=True)
        ),
    )


def _phase(work: Work) -> str:
    if work.training:
        return "training"
    return "decode" if work.decoding else "prefill"


WORDS: dict[str, Parameter] = {
    "sequence": Parameter("sequence", int, "tokens of a sample", 1, 2**24),
    "microbatch": Parameter("microbatch", int, "samples of a microbatch", 1, 2**16),
    "dtype": Parameter("dtype", str, "type of weights and activations", choices=tuple(DTYPES)),
    "attention": Parameter(
        "attention", str, "whether scores are kept (eager)", choices=("flash", "eager")
    ),
    "keep": Parameter(
        "keep", str, "for the backward pass: all, or inputs of layers", choices=("all", "inputs")
    ),
    "phase": Parameter(
        "phase", str, "of inference: all tokens, or the next one", choices=("prefill", "decode")
    ),
    "pipeline": Parameter("pipeline", int, "stages: what is left of the devices", 1, 2**16),
    "tensor": Parameter("tensor", int, "devices that share each layer", 1, 2**16),
    "data": Parameter("data", int, "copies of each stage, which share the samples", 1, 2**16),
    "expert": Parameter("expert", int, "copies of a stage that share its experts", 1, 2**16),
    "zero": Parameter("zero", int, "what copies divide: 1 optimiser, 2 gradients, 3 weights", 0, 3),
    "measured": Parameter("measured", str, "table of figures that replace those of layers, .csv"),
    "overlap": Parameter("overlap", float, "hidden part of the time of gradients on links", 0, 1),
}
CONTEXTS = {KIND: GIVEN - {"kv_bytes"} | {*WORDS, "batch", "state_bytes", "utilisation"}}
