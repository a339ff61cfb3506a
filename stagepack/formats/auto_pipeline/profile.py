"""Model profiles of *Auto Pipeline* (ipu_tensorflow_addons), as JSON.

What its ``create_model_profile`` returns: ``layerName``, ``layerType`` and ``layerInfo``, a list
with ``cycle`` (``forward``, ``backward``) and ``memory`` of every layer: ``shared`` (bytes by key,
once a device), ``exclusive`` (bytes by category), ``inputs``, ``outputs``, ``maxTemporary``,
``curCarryOver`` and ``curActivation`` (kept for the backward pass).  Layers of the same name are
invocations of one layer.

A profile names no cluster, so that one is given beside it, or in the file as ``cluster_info``, with
``config`` for the share of memory.  Its cycles are those of the cluster's clock; all else is as in
case files (:mod:`.case`).
"""

from __future__ import annotations

import msgspec

from stagepack.errors import InputError
from stagepack.formats.auto_pipeline.case import invocations
from stagepack.formats.known import stem_of
from stagepack.instances import clusters
from stagepack.instances.cluster_info import ClusterInfo, Config, cluster_of
from stagepack.instances.documents import strict
from stagepack.instances.pipeline import KIND, Objective, PipelinePartition
from stagepack.instances.pipeline.data import uses_of
from stagepack.instances.pipeline.native import GIVEN, job
from stagepack.instances.profile import Bytes, Cluster, Cycles
from stagepack.instances.words import Words


class Cycle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cycles of a layer; the total is not needed."""

    forward: Cycles
    backward: Cycles = 0
    total: Cycles | None = None


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Bytes of a layer."""

    shared: dict[str, Bytes] = {}
    exclusive: dict[str, Bytes] = {}
    inputs: Bytes = 0
    outputs: Bytes = 0
    max_temporary: Bytes = 0
    cur_carry_over: Bytes = 0
    cur_activation: Bytes = 0


class LayerInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one layer costs."""

    cycle: Cycle
    memory: Memory


class ModelInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model profile, perhaps with its cluster."""

    names: list[str] = msgspec.field(name="layerName")
    layers: list[LayerInfo] = msgspec.field(name="layerInfo")
    types: list[str] | None = msgspec.field(name="layerType", default=None)
    cluster_info: ClusterInfo | None = None
    config: Config = Config()


def parse(data: bytes, given: Words, file: str) -> list[PipelinePartition]:
    """Return the one instance of a profile, named after its file."""
    model = strict.decode(data, ModelInfo)
    layers = model.layers
    for field, entries in (("layerName", model.names), ("layerType", model.types)):
        if entries is not None and len(entries) != len(layers):
            raise InputError(
                f"{len(entries):,} entries for {len(layers):,} layers",
                field=field,
                remedy="give one a layer",
            )
    categories = dict.fromkeys(key for layer in layers for key in layer.memory.exclusive)
    options = {"objective": Objective.TRANSFER_BOUNDED, "host_transfer": True, **job(given)}
    return [
        PipelinePartition.from_arrays(
            [layer.cycle.forward for layer in layers],
            backward=[layer.cycle.backward for layer in layers],
            cluster=_cluster(model, given),
            exclusive={
                key: [layer.memory.exclusive.get(key, 0) for layer in layers] for key in categories
            },
            shared=uses_of(
                (layer.memory.shared for layer in layers), "layerInfo[{}].memory.shared"
            ),
            temporary=[layer.memory.max_temporary for layer in layers],
            carry=[layer.memory.cur_carry_over for layer in layers],
            stash=[layer.memory.cur_activation for layer in layers],
            in_bytes=[*(layer.memory.inputs for layer in layers), 0],
            out_bytes=[0, *(layer.memory.outputs for layer in layers)],
            variables=invocations(model.names),
            layer_names=model.names,
            name=stem_of(file),
            source="Auto Pipeline profile",
            **options,
        )
    ]


def _cluster(model: ModelInfo, given: Words) -> Cluster:
    """Return the cluster of the file, changed as asked, or else the one given beside it."""
    info, named = model.cluster_info, given.get("cluster")
    if info is not None:
        base = cluster_of(info, model.config.memory_proportion)
        return clusters.asked(given, base.clock, base)
    if named is None:
        return clusters.asked(given, 1_850_000_000)  # the clock of the readme
    own = clusters.cluster(named) if isinstance(named, str) else named
    return clusters.asked(given, own.clock)


CONTEXTS = {KIND: GIVEN - {"tied"}}
