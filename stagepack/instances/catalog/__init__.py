"""The catalog: named instances, generators, hardware presets and best-known values.

>>> from stagepack.instances import catalog
>>> catalog.load("pipeline/bert-large", cluster="ipu-pod8", training=True).k
8
>>> catalog.load("packing/random/planted", buffers=100).n
100
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, overload

from stagepack.errors import suggest
from stagepack.instances.catalog import generators, networks, packing, phases, schedule
from stagepack.instances.catalog.best_known import BEST_KNOWN, BestKnown, best_known
from stagepack.instances.catalog.clusters import cluster, preset
from stagepack.instances.catalog.names import (
    PackingName,
    PhaseName,
    PipelineName,
    ScheduleName,
)
from stagepack.instances.catalog.parameters import VOCABULARY, coerce, require_known
from stagepack.instances.packing import KIND as PACKING
from stagepack.instances.packing import LmemPacking, Objective
from stagepack.instances.phases import KIND as PHASES
from stagepack.instances.phases import PhaseSchedule
from stagepack.instances.pipeline import KIND as PIPELINE
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.schedule import KIND as SCHEDULE
from stagepack.instances.schedule import PipelineSchedule
from stagepack.kinds import by_family, kind_of
from stagepack.result import InputError

__all__ = [
    "BEST_KNOWN",
    "SUITE",
    "VOCABULARY",
    "BestKnown",
    "Entry",
    "best_known",
    "cluster",
    "entries",
    "entry",
    "load",
    "preset",
    "suite",
]

# Every packing may have a capacity and another objective.
GIVEN = {"capacity": None, "objective": None}


@dataclass(frozen=True)
class Entry:
    """A named family of instances.

    Attributes
    ----------
    name : str
        What :func:`load` takes.
    kind : str
        The problem.
    description : str
        One line.
    parameters : dict
        What may be chosen, with the defaults (None: as it is made, or as the cluster has it);
        their meaning is in `VOCABULARY`.
    """

    name: str
    kind: str
    description: str
    parameters: Mapping[str, Any]


def entries(kind: str | None = None) -> list[Entry]:
    """Return what the catalog has, for one kind of problem (or family: "packing") or all."""
    found = [
        Entry(f"pipeline/{name}", PIPELINE, recipe.description, recipe.parameters)
        for name, recipe in networks.NETWORKS.items()
    ]
    found += [
        Entry(f"pipeline/random/{name}", PIPELINE, made.description, dict(made.parameters))
        for name, made in generators.GENERATORS.items()
    ]
    found += [
        Entry(f"packing/{name}", PACKING, made.description, {**made.parameters, **GIVEN})
        for name, made in packing.GENERATORS.items()
    ]
    found += [
        Entry(f"schedule/{name}", SCHEDULE, made.description, made.parameters)
        for name, made in schedule.GENERATORS.items()
    ]
    found += [
        Entry(f"phases/{name}", PHASES, made.description, made.parameters)
        for name, made in phases.GENERATORS.items()
    ]
    wanted = None if kind is None else kind_of(kind)
    return [entry for entry in found if wanted in (None, entry.kind)]


def entry(name: str) -> Entry:
    """Return one entry of the catalog.

    Raises
    ------
    InputError
        For an unknown name, suggesting the nearest.
    """
    known = {found.name: found for found in entries()}
    name = by_family(name)
    if name not in known:
        raise InputError(f"the catalog has no {name!r}", field="name", remedy=suggest(name, known))
    return known[name]


@overload
def load(name: PipelineName, **parameters: Any) -> PipelinePartition: ...
@overload
def load(name: PackingName, **parameters: Any) -> LmemPacking: ...
@overload
def load(name: ScheduleName, **parameters: Any) -> PipelineSchedule: ...
@overload
def load(name: PhaseName, **parameters: Any) -> PhaseSchedule: ...
@overload
def load(name: str, **parameters: Any) -> Any: ...
def load(name: str, **parameters: Any) -> Any:
    """Return an instance of the catalog.

    Parameters
    ----------
    name : str
        Such as ``pipeline/bert-large`` (or ``pipeline-partition/bert-large``); see
        :func:`entries`.
    **parameters
        Choices other than the defaults, as values or as text; None: the default.

    Raises
    ------
    InputError
        For an unknown name (suggesting the nearest), an unknown parameter (listing the known
        ones), or a value that will not do.
    """
    found = entry(name)
    name = found.name
    defaults = found.parameters
    require_known(parameters, defaults, name)
    given = {
        key: coerce(key, value, found.kind)
        for key, value in parameters.items()
        if value is not None
    }
    chosen = {**defaults, **given}
    try:
        instance = _make(found, chosen)
    except (OverflowError, MemoryError):
        raise InputError(
            "the instance would exceed 2**62 bytes or cycles",
            field=name,
            remedy="choose smaller parameters",
        ) from None
    ends = "-training" if chosen.get("training") else ""
    ends += f"-seed{chosen['seed']}" if chosen.get("seed") else ""
    changed = [f"{key}={value}" for key, value in given.items() if value != defaults[key]]
    return instance.replace(name=instance.name + ends, source=" ".join([name, *changed]))


def _make(found: Entry, chosen: dict[str, Any]) -> Any:
    """Return the instance of an entry with all its parameters."""
    _, _, name = found.name.partition("/")
    if found.kind == PACKING:
        made = packing.GENERATORS[name]
        instance = made.make(**{key: chosen[key] for key in made.parameters})
        return limited(instance, chosen["capacity"], chosen["objective"])
    if found.kind == SCHEDULE:
        return schedule.GENERATORS[name].make(**chosen)
    if found.kind == PHASES:
        return phases.GENERATORS[name].make(**chosen)
    if name.startswith("random/"):
        return generators.GENERATORS[name.removeprefix("random/")].make(**chosen)
    return networks.build(name, chosen)


def limited(instance: LmemPacking, capacity: int | None, objective: str | None) -> LmemPacking:
    """Return a packing with another capacity or objective, where they are not None.

    A capacity asks for a packing that fits it, unless something else is minimised.
    """
    if capacity is None and objective is None:
        return instance
    if objective is None and instance.objective is Objective.PEAK:
        objective = Objective.FIT
    return instance.replace(
        capacity=instance.capacity if capacity is None else capacity,
        objective=instance.objective if objective is None else objective,
    )


SUITE: tuple[tuple[str, dict[str, Any]], ...] = (
    # inference
    ("pipeline/bert-base", {"granularity": "matmul"}),
    ("pipeline/vit-l-16", {"cluster": "ipu-pod8", "objective": "sum"}),
    ("pipeline/resnet-50", {"granularity": "matmul", "cluster": "ipu-pod8"}),
    # training
    (
        "pipeline/bert-large",
        {"training": True, "batch": 1, "cluster": "ipu-pod8", "objective": "sum"},
    ),
    ("pipeline/gpt2-small", {"training": True, "batch": 1, "objective": "bottleneck"}),
    ("pipeline/vgg-16", {"training": True, "batch": 4, "objective": "overlap"}),
    # generated
    ("pipeline/random/heterogeneous", {}),
    ("pipeline/random/unlike-devices", {}),
    ("pipeline/random/infeasible", {}),
    # schedules
    ("schedule/zero-bubble/small", {}),
    ("schedule/interleaved", {}),
    ("schedule/bert-large", {}),
    # phases
    ("phases/mnist", {}),
    ("phases/six-layers", {}),
    ("phases/bert-large", {}),
    ("phases/random/heterogeneous", {}),
    ("phases/random/chain-remat", {}),
    ("phases/random/skip-remat", {"layers": 20}),
    # packing
    ("packing/activations/bert-base", {"training": True}),
    ("packing/activations/resnet-50", {"training": True}),
    ("packing/random/planted", {}),
    ("packing/random/pinwheel", {}),
    ("packing/random/evolved", {}),
    ("packing/random/pipelined", {}),
    ("packing/adversarial/all", {}),
)


def suite(kind: str | None = None) -> list[Any]:
    """Return the instances of `SUITE`, on which methods are compared unless others are named.

    Parameters
    ----------
    kind : str, optional
        Only those of one kind of problem (or family: "packing").
    """
    wanted = None if kind is None else kind_of(kind)
    return [
        load(name, **parameters) for name, parameters in SUITE if wanted in (None, entry(name).kind)
    ]
