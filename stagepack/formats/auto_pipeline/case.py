"""Case files of *Auto Pipeline* (ipu_tensorflow_addons): profiles with a cluster, as JSON.

A file holds one case or a list of cases with ``name``, ``layers`` (``name``, ``cycles``,
``exclusive_bytes``, ``inputs_bytes``, ``outputs_bytes``), ``cluster`` (``clock`` in Hz,
``memory_MiB``, ``memoryProportion``, and in ``connection`` for every device receive and send GB/s
with their idle cycles) and, for tests, ``answers``, lists of stage boundaries.

Layers of the same name are invocations of one layer and share its variables: they stay in one
stage.  A device may use ``int(memory_MiB * memoryProportion * 2**20)`` bytes.  A stage [a, b)
receives the inputs of layer a and sends the outputs of layer b - 1.  The host talks to the first
device's receive link and the last one's send link, and every device waits for it
(``host_transfer``).  The objective is ``transfer-bounded`` unless another is asked for.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from stagepack.errors import InputError
from stagepack.instances import clusters
from stagepack.instances.cluster_info import ClusterInfo, Connection, cluster_of
from stagepack.instances.documents import strict
from stagepack.instances.pipeline import KIND, Objective, PipelinePartition, Variable
from stagepack.instances.pipeline.native import GIVEN, job
from stagepack.instances.profile import Bytes, Cycles, Positive
from stagepack.instances.words import Words


class Layer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One invocation of a layer: cycles, bytes always alive, bytes received and sent."""

    name: str
    cycles: Cycles
    exclusive_bytes: Bytes = 0
    inputs_bytes: Bytes = 0
    outputs_bytes: Bytes = 0


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The devices: clock in Hz, memory in MiB and the share of it that may be planned with."""

    clock: Positive
    memory: Annotated[float, msgspec.Meta(ge=0, le=2.0**40)] = msgspec.field(name="memory_MiB")
    connection: Annotated[list[Connection], msgspec.Meta(min_length=1)]
    proportion: Annotated[float, msgspec.Meta(gt=0, le=1)] = msgspec.field(
        name="memoryProportion", default=1.0
    )


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One profile with its cluster."""

    layers: list[Layer]
    cluster: Machine
    name: str = "case"
    answers: list[list[int]] = []


def parse(data: bytes, given: Words, file: str) -> list[PipelinePartition]:
    """Return the instances of a case file, in its order."""
    del file  # the cases have names
    if strict.first_byte(data) == b"{":
        return [_build(strict.decode(data, Case), given)]
    cases = strict.decode(data, list[Case])
    if not cases:
        raise InputError("holds no case", remedy="give a file with at least one case")
    instances = []
    for index, case in enumerate(cases):
        try:
            instances.append(_build(case, given))
        except InputError as error:
            error.field = f"[{index}].{error.field}" if error.field else f"[{index}]"
            raise
    return instances


def _build(case: Case, given: Words) -> PipelinePartition:
    machine = case.cluster
    info = ClusterInfo(machine.clock, machine.memory, machine.connection)
    base = cluster_of(info, machine.proportion)
    cluster = clusters.asked(given, base.clock, base)
    if not case.layers:
        raise InputError("no layers", field="layers", remedy="give at least one layer")
    names = [layer.name for layer in case.layers]
    options = {"objective": Objective.TRANSFER_BOUNDED, "host_transfer": True, **job(given)}
    return PipelinePartition.from_arrays(
        [layer.cycles for layer in case.layers],
        cluster=cluster,
        exclusive={"exclusive": [layer.exclusive_bytes for layer in case.layers]},
        in_bytes=[*(layer.inputs_bytes for layer in case.layers), 0],
        out_bytes=[0, *(layer.outputs_bytes for layer in case.layers)],
        variables=invocations(names),
        layer_names=names,
        name=case.name,
        source="Auto Pipeline case",
        **options,
    )


def invocations(names: list[str]) -> list[Variable]:
    """Return the layers that run several times, which have one name, as variables."""
    spans: dict[str, tuple[int, int]] = {}
    for index, name in enumerate(names):
        spans[name] = (spans.get(name, (index, index))[0], index)
    return [Variable(name, first, last) for name, (first, last) in spans.items() if first < last]


CONTEXTS = {KIND: GIVEN - {"training", "microbatches", "backward_transfers", "tied"}}
