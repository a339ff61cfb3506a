"""Native files of pipeline partitions: ``{"problem": "pipeline-partition", "version": 1, ...}``.

``layers`` is either what people write, a list of layer objects whose tensors have names and, in
``tensors``, sizes; or what programs write, an object of columns with one entry a layer.  All other
fields, their units and defaults are those of
:class:`stagepack.instances.pipeline.PipelinePartition`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.instances import clusters
from stagepack.instances.documents.lines import Rows, unless, unusual
from stagepack.instances.pipeline.data import GraphOrder, SharedBytes, Variable
from stagepack.instances.pipeline.instance import PipelinePartition
from stagepack.instances.pipeline.problem import MEMORY, TIED, Objective
from stagepack.instances.pipeline.validate import require_tied
from stagepack.instances.profile import (
    Array,
    Bytes,
    Cluster,
    LayerProfile,
    Lifetimes,
    ModelProfile,
)
from stagepack.instances.words import Words

Time = (
    Annotated[int, msgspec.Meta(ge=0, le=2**62)] | Annotated[float, msgspec.Meta(ge=0, le=2.0**62)]
)
Index = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
JOB = (
    "objective", "training", "microbatches", "backward_transfers", "host_transfer", "fewer_stages",
    "free_order", "tokens", "stages_per_device", "placement", "alternatives_per", "limited",
    "limit",
)  # fmt: skip
PLAIN = (
    "tokens", "training", "host_transfer", "fewer_stages", "free_order", "stages_per_device",
    "placement", "alternatives_per", "own_alternative", "limited", "limit",
)  # fmt: skip
AS_THEY_ARE = (
    "name", "source", "forbidden_cuts", "fixed_cuts", "memory", "previous", "own_alternative",
)  # fmt: skip
ASIDE = ("memory", "kv_bytes", "tied", "recompute")
GIVEN = frozenset({*clusters.MACHINE, *JOB, *ASIDE})
"""What may be said beside a file."""
FORMER = {"microbatches": 1, "backward_transfers": False}
"""What training meant before files could say it: so it is where they do not."""
TABLES = ("recv_cycles", "send_cycles", "compute_table", "memory_table")
Table = list[list[Time | list[Time]]]


class Shared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`bytes` that a device holds once for all of `layers` it runs."""

    bytes: Bytes
    layers: list[Index]


class Span(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A variable used by the layers `first` to `last`: they stay in one stage."""

    first: Index
    last: Index
    name: str = ""


class Values(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tensors that layers pass on, by column: those that `carry` counts.

    Layer `born` writes one, -1 for the host; layer `last_use` is the last that reads it, the number
    of layers where the host does.
    """

    names: list[str]
    born: list[Annotated[int, msgspec.Meta(ge=-1, le=2**62)]]
    last_use: list[Index]
    bytes: list[Bytes]


class Columns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Layers by column: arrays with an entry a layer, `in_bytes` and `out_bytes` one a cut.

    Cycles in `forward` and `backward`, bytes in all others; what is left out is 0.  `passing` tells
    one by one of what `carry` is the sum; `tied` names weights that several layers use, which are
    not in `shared`.
    """

    forward: list[Time]
    backward: list[Time] | None = None
    names: list[str] | None = None
    exclusive: dict[str, list[Bytes]] = {}
    temporary: list[Bytes] | None = None
    carry: list[Bytes] | None = None
    stash: list[Bytes] | None = None
    kv_bytes: list[Bytes] | None = None
    shared: dict[str, Shared] = {}
    tied: dict[str, Shared] = {}
    in_bytes: list[Bytes] | None = None
    out_bytes: list[Bytes] | None = None
    passing: Values | None = None


class Alternative(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What layers may be instead: figures in place of their own, for all or one for each.

    `layers` are the numbers of those that have it, all when absent; of others figures say nothing.
    """

    layers: list[Index] | None = None
    forward: Time | list[Time] | None = None
    backward: Time | list[Time] | None = None
    exclusive: Bytes | list[Bytes] | dict[str, Bytes | list[Bytes]] | None = None
    temporary: Bytes | list[Bytes] | None = None
    stash: Bytes | list[Bytes] | None = None
    kv_bytes: Bytes | list[Bytes] | None = None


class Document(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
):
    """A pipeline-partition instance.

    `layers` as a list of objects goes with `tensors` (bytes by name) and `results` (tensors that
    return to the host); as an object of columns it goes with `variables`.
    """

    ELSEWHERE: ClassVar[Mapping[str, str]] = {
        "stages": "leave it out, and give --devices, or the cluster's devices: each takes a stage"
    }

    problem: Literal["pipeline-partition"]
    version: Literal[1]
    layers: list[LayerProfile] | Columns
    cluster: Cluster | None = None
    name: str = "pipeline"
    source: str = ""
    objective: Objective | None = None
    training: bool = False
    microbatches: Count | None = None
    backward_transfers: bool | None = None
    memory: list[str] | None = None
    tokens: Bytes = 0
    host_transfer: bool = False
    fewer_stages: bool = False
    free_order: bool = False
    stages_per_device: Count = 1
    placement: str | list[Index] = "loop"
    previous: list[Annotated[int, msgspec.Meta(ge=-1, le=2**31)]] | None = None
    limited: Objective = Objective.BOTTLENECK
    limit: Time | None = None
    alternatives: dict[str, Alternative] = {}
    alternatives_per: Literal["layer", "stage"] = "layer"
    own_alternative: str = "own"
    tensors: dict[str, Bytes] = {}
    results: list[str] | None = None
    order: GraphOrder | None = None
    variables: list[Span] = []
    forbidden_cuts: list[Index] = []
    fixed_cuts: list[Index] = []
    recv_cycles: list[list[Time]] | None = None
    send_cycles: list[list[Time]] | None = None
    compute_table: Table | None = None
    memory_table: Table | None = None


def job(given: Words) -> JsonObject:
    """Return what was said of the work alone, not of the machine."""
    said = {name: value for name, value in given.items() if name in (*JOB, *ASIDE)}
    if isinstance(said.get("tied"), bool):
        said["tied"] = TIED[said["tied"]]
    return said


def parse(document: Document, given: Words) -> PipelinePartition:
    """Return the instance that a document describes, changed as is `given` beside it."""
    base = document.cluster
    cluster = clusters.asked(given, 1_000_000_000 if base is None else base.clock, base)
    for name in ("recv_cycles", "send_cycles"):
        if getattr(document, name) is not None and "bandwidth" in given:
            raise InputError(
                "replaces the links, so that bandwidth would change nothing",
                field=name,
                remedy="leave out --bandwidth",
            )
    options: JsonObject = {
        **{name: getattr(document, name) for name in (*AS_THEY_ARE, *JOB)},
        "alternatives": _alternatives(document),
        **_as_it_was(document),
        **{name: _table(getattr(document, name), name) for name in TABLES},
        **({} if document.order is None else {"order": document.order}),
        **job(given),
    }
    if isinstance(document.layers, Columns):
        return _from_columns(document, document.layers, cluster, options)
    if document.variables:
        raise InputError(
            "goes with columns; here the layers name their variables",
            field="variables",
            remedy="list them in layers[...].variables",
        )
    if not document.layers:
        raise InputError("no layers", field="layers", remedy="give at least one layer")
    _require_small_sum(document.tensors.values(), "tensors")
    for index, layer in enumerate(document.layers):
        _require_small_sum(layer.exclusive.values(), f"layers[{index}].exclusive")
        _require_small_sum((layer.forward, layer.backward), f"layers[{index}]")
    profile = ModelProfile(
        layers=tuple(document.layers),
        tensors=document.tensors,
        results=None if document.results is None else tuple(document.results),
    )
    return PipelinePartition.from_profile(profile, cluster, **options)


def _alternatives(document: Document) -> JsonObject:
    """Return what layers may be instead, only what is said of it."""
    found = {name: msgspec.structs.asdict(one) for name, one in document.alternatives.items()}
    return {
        name: {key: value for key, value in figures.items() if value is not None}
        for name, figures in found.items()
    }


def _as_it_was(document: Document) -> JsonObject:
    """Return what files of training do not say: it means what it meant before it could be said."""
    former = FORMER if document.training else {}
    return {name: value for name, value in former.items() if getattr(document, name) is None}


def _from_columns(
    document: Document, columns: Columns, cluster: Cluster, options: JsonObject
) -> PipelinePartition:
    for name, empty in (("tensors", {}), ("results", None)):
        if getattr(document, name) != empty:
            raise InputError(
                "goes with a list of layers, not with columns",
                field=name,
                remedy="give in_bytes, out_bytes and carry",
            )
    if not columns.forward:
        raise InputError("no layers", field="layers.forward", remedy="give at least one layer")
    passing = _passing(columns)
    variables = [Variable(span.name, span.first, span.last) for span in document.variables]
    tied, shared = _shared(columns.tied), _shared(columns.shared)
    if "tied" in options:
        require_tied(options["tied"], bool(variables))
    if options.pop("tied", None) == "together":
        spans = tied.uses().items()
        variables += [Variable(name, min(users), max(users)) for name, (_, users) in spans]
        shared, tied = shared.beside(tied), _shared({})  # of one stage, which holds them once
    try:
        return PipelinePartition.from_arrays(
            columns.forward,
            cluster=cluster,
            backward=columns.backward,
            exclusive=columns.exclusive,
            shared=shared.beside(tied),
            tied=tied,
            temporary=columns.temporary,
            carry=columns.carry,
            stash=columns.stash,
            **{"kv_bytes": columns.kv_bytes, **options},
            in_bytes=columns.in_bytes,
            out_bytes=columns.out_bytes,
            variables=variables,
            layer_names=columns.names,
            tensors=passing,
        )
    except InputError as error:
        at = error.field.partition(".")[0]
        if at == "layer_names":
            error.field = "layers.names"
        elif at in Columns.__struct_fields__:
            error.field = f"layers.{error.field}"
        raise


def _passing(columns: Columns) -> Lifetimes | None:
    """Return the tensors that a file tells of."""
    told, n = columns.passing, len(columns.forward)
    if told is None:
        return None
    if len({len(told.names), len(told.born), len(told.last_use), len(told.bytes)}) > 1:
        raise InputError(
            "its columns differ in length", field="layers.passing", remedy="give an entry a tensor"
        )
    for name, born, last in zip(told.names, told.born, told.last_use, strict=True):
        if not born + 1 < last <= n:
            raise InputError(
                f"{name[:60]!r} is born in layer {born} and last used in {last}, of {n} layers",
                field="layers.passing",
                remedy="leave out tensors that are not kept across a layer; layer n is the host",
            )
    _require_small_sum(told.bytes, "layers.passing.bytes")
    found = Lifetimes(
        n=n,
        born=np.array(told.born, dtype=np.int64),
        last_use=np.array(told.last_use, dtype=np.int64),
        nbytes=np.array(told.bytes, dtype=np.int64),
        names=tuple(told.names),
    )
    carry = columns.carry
    if carry is not None and len(carry) == n and not found.tell(np.array(carry)):
        raise InputError(
            "is not the sum of the tensors in passing",
            field="layers.carry",
            remedy="leave out one of the two",
        )
    return found


def _table(rows: list[Any] | None, name: str) -> Array | None:
    """Return nested lists as an array of numbers, whose shape the instance checks."""
    if rows is None:
        return None
    try:
        table = np.asarray(rows)
    except (ValueError, OverflowError):
        table = None
    if table is None or table.dtype.kind not in "iuf" or table.ndim not in (2, 3):
        raise InputError(
            "is not a table of numbers below 2**62",
            field=name,
            remedy="give rows of equal length",
        )
    return table


def _shared(uses: dict[str, Shared]) -> SharedBytes:
    counts = [len(use.layers) for use in uses.values()]
    layer = np.array([at for use in uses.values() for at in use.layers], dtype=np.int64)
    key = np.repeat(np.arange(len(uses), dtype=np.int64), counts)
    order = np.lexsort((key, layer))
    layer, key = layer[order], key[order]
    fresh = np.ones(len(layer), dtype=bool)
    fresh[1:] = (layer[1:] != layer[:-1]) | (key[1:] != key[:-1])
    return SharedBytes(
        names=tuple(uses),
        nbytes=np.array([use.bytes for use in uses.values()], dtype=np.int64),
        layer=layer[fresh],
        key=key[fresh],
    )


def _require_small_sum(values: Any, field: str) -> None:
    total = math.fsum(map(float, values)) if all(v < 2**63 for v in values) else math.inf
    if total >= 2**62:
        raise InputError("the sum exceeds 2**62", field=field, remedy="use a coarser unit")


def dump(instance: PipelinePartition) -> JsonObject:
    """Return what the document of an instance says: columns, defaults left out."""
    columns = {
        "names": instance.layer_names,
        "forward": instance.forward,
        "backward": unless(instance.backward),
        "exclusive": instance.exclusive or None,
        "temporary": unless(instance.temporary),
        "carry": unless(instance.carry),
        "stash": unless(instance.stash),
        "kv_bytes": instance.kv_bytes,
        "shared": _shared_object(instance.shared, instance.tied),
        "tied": None if instance.tied is None else _shared_object(instance.tied),
        "in_bytes": unless(instance.in_bytes),
        "out_bytes": unless(instance.out_bytes),
        "passing": None if instance.tensors is None else _values(instance.tensors.passing),
    }
    return {
        "objective": str(instance.objective),
        **unusual(instance, Document, PLAIN),
        "previous": None if instance.previous is None else list(instance.previous),
        **_of_training(instance),
        "memory": _counted(instance),
        "cluster": _lean(instance.cluster),
        "order": instance.order and _lean(instance.order),
        "alternatives": _instead(instance),
        "layers": Rows(columns),
        "variables": [
            {"name": v.name, "first": v.first, "last": v.last} for v in instance.variables
        ]
        or None,
        "forbidden_cuts": list(instance.forbidden_cuts) or None,
        "fixed_cuts": list(instance.fixed_cuts) or None,
        **{name: getattr(instance, name) for name in TABLES},
    }


def _counted(instance: PipelinePartition) -> list[str] | None:
    """Return the terms of memory that a file has to name; None where all of it count."""
    missing = set() if instance.received else {"received"}
    if instance.tied is not None and not set(instance.tied.names) <= set(instance.shared.names):
        missing.add("shared")
    return [term for term in MEMORY if term not in missing] if missing else None


def _instead(instance: PipelinePartition) -> JsonObject | None:
    """Return the alternatives of layers, without what are the layers' own figures."""
    own: JsonObject = {"kv_bytes": instance.cached_bytes(1)}
    found = {}
    for name, one in instance.alternatives.items():
        said: JsonObject = {"layers": None if one.layers.all() else np.flatnonzero(one.layers)}
        for figure, value in one.parts().items():
            usual: Any = own.get(figure, getattr(instance, figure, None))
            if figure == "exclusive":
                unlike = {k: v for k, v in value.items() if not np.array_equal(v, usual.get(k, ()))}
                said[figure] = unlike or None
            elif figure != "layers" and not np.array_equal(value, usual):
                said[figure] = value
        found[name] = {key: value for key, value in said.items() if value is not None}
    return found or None


def _values(tensors: Lifetimes) -> JsonObject:
    return {
        "names": tensors.names,
        "born": tensors.born,
        "last_use": tensors.last_use,
        "bytes": tensors.nbytes,
    }


def _of_training(instance: PipelinePartition) -> JsonObject:
    """Return what files of training say in any case, others where it is not as it was."""
    said = {name: getattr(instance, name) for name in FORMER}
    return said if instance.training else {n: v for n, v in said.items() if v != FORMER[n]}


def _shared_object(shared: SharedBytes, tied: SharedBytes | None = None) -> JsonObject | None:
    """Return keys as a file has them, without those that are `tied`."""
    if len(set(shared.names)) < len(shared.names):
        raise InputError(
            "two keys have one name", field="shared", remedy="give every key a name of its own"
        )
    order = np.argsort(shared.key, kind="stable")
    layers = np.split(
        shared.layer[order], np.cumsum(np.bincount(shared.key, minlength=len(shared.names)))
    )
    return {
        name: {"bytes": nbytes, "layers": users}
        for name, nbytes, users in zip(shared.names, shared.nbytes.tolist(), layers, strict=False)
        if tied is None or name not in tied.names
    } or None


def _lean(struct: msgspec.Struct) -> JsonObject:
    """Return a struct as JSON data without the fields that have their default (1 is not 1.0)."""
    lean: JsonObject = {}
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        if type(value) is type(field.default) and value == field.default:
            continue
        if isinstance(value, msgspec.Struct):
            value = _lean(value)
        elif isinstance(value, tuple):
            value = [_lean(item) for item in value]
        lean[field.encode_name] = value
    return lean
