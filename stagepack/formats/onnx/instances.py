"""ONNX models as instances of every kind of problem.

For a layer grouping, a model is read by :mod:`.onnx.groups`.  For all other kinds it becomes a
network of operators with costs (:mod:`.onnx.network`) on a machine: the preset that ``cluster``
names, or ``generic-N`` for N ``devices``.  Layer groupings, packings and phases use one device of
it.  Without a machine, layer groupings use the generic chip, packings contain the activations
without a capacity, and phases use the chip of the catalog.  A warning names unused properties of
the machine and unknown operators.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from msgspec.structs import replace

from stagepack.contracts import JsonObject
from stagepack.errors import InputError, shown
from stagepack.formats.known import stem_of
from stagepack.formats.onnx import branches, costs, groups
from stagepack.formats.onnx.model import Model, load
from stagepack.formats.onnx.network import NetworkReader, reader_of
from stagepack.instances import clusters
from stagepack.instances.graph import KIND as GRAPH
from stagepack.instances.graph import GraphPartition
from stagepack.instances.graph.native import JOB as GRAPH_JOB
from stagepack.instances.groups import KIND as GROUPS
from stagepack.instances.groups import LayerGrouping
from stagepack.instances.groups.chip import GENERIC
from stagepack.instances.groups.native import GIVEN as GROUPS_GIVEN
from stagepack.instances.groups.native import changed
from stagepack.instances.groups.stage import on_device
from stagepack.instances.network import Network
from stagepack.instances.packing import KIND as PACKING
from stagepack.instances.packing import LmemPacking, profiled
from stagepack.instances.phases import KIND as PHASES
from stagepack.instances.phases import PhaseSchedule
from stagepack.instances.phases.chips import GC200
from stagepack.instances.pipeline import KIND as PIPELINE
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.pipeline.native import JOB, job
from stagepack.instances.problem import VOCABULARY
from stagepack.instances.profile import Cluster, ModelProfile
from stagepack.instances.schedule import KIND as SCHEDULE
from stagepack.instances.schedule import PipelineSchedule
from stagepack.instances.words import Words

log = logging.getLogger("stagepack")
OPEN = {"batch", "sequence", "image", "dim", "shape"}
"""Words for sizes of inputs."""
NETWORK = {*OPEN, "training", "bytes_per_value", "tied"}
"""Words that say what the network is."""
WORK = {"utilisation", "state_bytes"}
"""Words that turn it into cycles and bytes."""
AROUND = clusters.MACHINE - {"capacity"}
"""Words that say on what machine a network of one device runs."""
SCHEDULE_JOB = ("training", "microbatches", "split", "objective", "steps", "whole_first")
LISTED = 3


def _open(data: bytes, given: Words) -> Model:
    """Return the model of a file, its inputs as large as is given."""
    return load(data, {name: given[name] for name in given if name.partition(".")[0] in OPEN})


def _warn(unknown: Mapping[str, list[str]], model: Model, what: str) -> None:
    """Name the operators that nobody knows."""
    for kind, names in unknown.items():
        few = ", ".join(map(shown, names[:LISTED])) + ", ..." * (len(names) > LISTED)
        log.warning("%s is not known here: %s %s", shown(kind), few, what)
    if model.assumed:
        few = ", ".join(shown(node.name or node.outputs[0]) for node in model.assumed[:LISTED])
        log.warning("what %s write is taken to be as large as what they read first", few)


def _warn_of_flows(unknown: Mapping[str, list[str]], model: Model) -> None:
    """Name branches of which any may run, and loops of which nobody knows how often they do."""
    flows = [
        one
        for node in model.nodes
        if node.bodies and node.kind not in unknown
        for one in (node, *costs.inside(node))
    ]
    for said, found in (
        ("counted by its dearer branch", [one for one in flows if len(one.bodies) > 1]),
        ("counted once, as nobody knows how often it runs", [o for o in flows if o.turns is None]),
    ):
        if found:
            few = ", ".join(shown(node.name or node.outputs[0]) for node in found[:LISTED])
            log.warning("%s%s is %s", few, ", ..." * (len(found) > LISTED), said)


def _machine(given: Words, what: str) -> tuple[clusters.Preset, Cluster] | None:
    """Return arithmetic and cluster of a kind of one device; None where no machine is given."""
    if not AROUND & given.keys():
        return None
    preset, cluster = clusters.machine(given)
    title = shown(cluster.name) if cluster.name else "the cluster"
    log.warning("only one device of %s counts, with %s", title, what)
    return preset, cluster


def _network(data: bytes, given: Words, file: str) -> Network:
    """Return the network of a file, named after it."""
    network, reader = _reading(data, given, file)
    _warn_of_flows(reader.unknown, reader.model)
    return network


def _reading(data: bytes, given: Words, file: str) -> tuple[Network, NetworkReader]:
    """Return the network of a file, named after it, and what made it."""
    reader = reader_of(_open(data, given), stem_of(file), given)
    network = reader.network()
    _warn(reader.unknown, reader.model, "is counted by the values that it reads and writes")
    return network, reader


def _profile(network: Network, preset: clusters.Preset, given: Words) -> ModelProfile:
    """Return what a network costs on a device."""
    wide = given.get("bytes_per_value", 4)
    profile = network.profile(
        preset,
        bytes_per_value=wide,
        training=given.get("training", False),
        state_bytes=given.get("state_bytes", 2 * wide),
        utilisation=given.get("utilisation"),
    )
    return profile if given.get("tied") == "copied" else profile.together()


def _grouping(data: bytes, given: Words, file: str) -> list[LayerGrouping]:
    """Return the network of a file on a chip, a device of a cluster, or the generic chip."""
    if "chip" in given and AROUND & given.keys():
        raise InputError(
            f"is chip {given['chip']}, or a device of a cluster",
            field="chip",
            remedy="leave out " + " and ".join(sorted(AROUND & given.keys())),
        )
    machine = _machine(given, "its memory, speed and link to the host")
    model = _open(data, given)
    reader = groups.Reader(model, given.get("bytes_per_value", 1))
    _warn(reader.unknown, model, "stands alone")
    times = _times(model, given)
    instance = LayerGrouping.from_arrays(
        [replace(op, shape=(times * op.shape[0], *op.shape[1:])) for op in reader.found],
        [replace(one, shape=(times * one.shape[0], *one.shape[1:])) for one in reader.sources],
        outputs=reader.outputs,
        chip=GENERIC,
        name=stem_of(file),
        source=file,
    )
    made = changed(instance, {name: given[name] for name in given if name in GROUPS_GIVEN})
    return [made if machine is None else on_device(made, *machine, given.get("utilisation"))]


def _times(model: Model, given: Words) -> int:
    """Return how many times the batch of a model is wanted."""
    batch = given.get("batch")
    if batch is None or not model.leading:
        return 1
    if batch % model.leading:
        raise InputError(
            f"{batch} is no multiple of the model's {model.leading}",
            field="batch",
            remedy="give a multiple",
        )
    return int(batch) // model.leading


def _chain(data: bytes, given: Words, file: str) -> list[PipelinePartition]:
    """Return the operators of a file, in its order, as a chain on a cluster."""
    preset, cluster = clusters.machine(given)
    network = _network(data, given, file)
    usual = {"objective": "transfer-bounded", "host_transfer": True}
    return [
        PipelinePartition.from_profile(
            _profile(network, preset, given), cluster, source=file, **{**usual, **job(given)}
        )
    ]


def _graph(data: bytes, given: Words, file: str) -> list[GraphPartition]:
    """Return the operators of a file as a graph on a cluster."""
    preset, cluster = clusters.machine(given)
    network = _network(data, given, file)
    return [
        GraphPartition.from_profile(
            _profile(network, preset, given),
            cluster,
            training=given.get("training", False),
            source=file,
            **{name: given[name] for name in GRAPH_JOB if name in given},
        )
    ]


def _packing(data: bytes, given: Words, file: str) -> list[LmemPacking]:
    """Return the activations of a file as buffers, on a device beside what layers hold.

    In inference what each branch holds has buffers of its own.
    """
    preset, cluster = _machine(given, "its memory") or (clusters.preset("generic-1"), None)
    network, reader = _reading(data, given, file)
    known = {name: given[name] for name in ("capacity", "objective") if name in given}
    profile, training = _profile(network, preset, given), given.get("training", False)
    if training:
        _warn_of_flows(reader.unknown, reader.model)
    elif reader.branches:

        def columns(of: Network) -> JsonObject:
            machine = cluster if of is network else None
            return profiled.columns(_profile(of, preset, given), machine, training=False)

        known |= branches.opened(network, reader, columns)
    return [
        LmemPacking.from_profile(
            profile,
            cluster,
            training=training,
            name=f"activations-{network.name}",
            source=file,
            **known,
        )
    ]


def _phases(data: bytes, given: Words, file: str) -> list[PhaseSchedule]:
    """Return the operators of a file on a chip, or device, that runs them in phases."""
    machine = _machine(given, "its memory, speed and link to the host")
    preset, chip = machine or (clusters.preset("ipu-pod4"), GC200)
    words = {"capacity": "memory", "microbatches": "steps", "objective": "objective"}
    return [
        PhaseSchedule.from_profile(
            _profile(_network(data, given, file), preset, given),
            chip,
            training=given.get("training", False),
            microbatch=given.get("batch", 1),
            source=file,
            **{field: given[name] for name, field in words.items() if name in given},
        )
    ]


def _schedule(data: bytes, given: Words, file: str) -> list[PipelineSchedule]:
    """Return the operators of a file as stages of about equal cycles, one a device."""
    preset, cluster = clusters.machine(given)
    network = _network(data, given, file)
    return [
        PipelineSchedule.from_profile(
            _profile(network, preset, given),
            cluster,
            source=file,
            **{name: given[name] for name in SCHEDULE_JOB if name in given},
        )
    ]


CONTEXTS = {
    PIPELINE: clusters.MACHINE | NETWORK | WORK | {*JOB},
    GRAPH: clusters.MACHINE | NETWORK | WORK | {*GRAPH_JOB},
    GROUPS: clusters.MACHINE | GROUPS_GIVEN | OPEN | {"bytes_per_value", "utilisation"},
    PACKING: clusters.MACHINE | NETWORK | {"state_bytes", "objective"},
    PHASES: clusters.MACHINE | NETWORK | WORK | {"microbatches", "objective"},
    SCHEDULE: clusters.MACHINE | NETWORK | WORK | {*SCHEDULE_JOB},
}
WORDS = {"bandwidth": VOCABULARY["bandwidth"]}
parse = _chain
PARSERS = {
    PIPELINE: _chain,
    GRAPH: _graph,
    GROUPS: _grouping,
    PACKING: _packing,
    PHASES: _phases,
    SCHEDULE: _schedule,
}
