"""The catalog: named instances, generators, hardware presets and best-known values.

>>> from stagepack.instances import catalog
>>> catalog.load("pipeline/bert-large", cluster="ipu-pod8", training=True).k
8
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stagepack.instances.catalog import generators, networks
from stagepack.instances.catalog.best_known import BEST_KNOWN, BestKnown, best_known
from stagepack.instances.catalog.clusters import cluster, preset
from stagepack.instances.catalog.parameters import VOCABULARY, coerce, require_known, suggest
from stagepack.instances.pipeline import KIND, PipelinePartition
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

PREFIX = "pipeline/"
RANDOM = "pipeline/random/"


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
        What may be chosen, with the defaults (None: as the cluster has it); their meaning is in
        `VOCABULARY`.
    """

    name: str
    kind: str
    description: str
    parameters: Mapping[str, Any]


def entries(kind: str | None = None) -> list[Entry]:
    """Return what the catalog has, for one kind of problem or all."""
    found = [
        Entry(PREFIX + name, KIND, recipe.description, recipe.parameters)
        for name, recipe in networks.NETWORKS.items()
    ]
    found += [
        Entry(RANDOM + name, KIND, generator.description, dict(generator.parameters))
        for name, generator in generators.GENERATORS.items()
    ]
    return [entry for entry in found if kind in (None, entry.kind)]


def entry(name: str) -> Entry:
    """Return one entry of the catalog.

    Raises
    ------
    InputError
        For an unknown name, suggesting the nearest.
    """
    known = {found.name: found for found in entries()}
    if name not in known:
        raise InputError(f"the catalog has no {name!r}", field="name", remedy=suggest(name, known))
    return known[name]


def load(name: str, **parameters: Any) -> PipelinePartition:
    """Return an instance of the catalog.

    Parameters
    ----------
    name : str
        Such as ``pipeline/bert-large``; see :func:`entries`.
    **parameters
        Choices other than the defaults, as values or as text; None: the default.

    Raises
    ------
    InputError
        For an unknown name (suggesting the nearest), an unknown parameter (listing the known
        ones), or a value that will not do.
    """
    defaults = entry(name).parameters
    given = {key: value for key, value in parameters.items() if value is not None}
    require_known(given, defaults, name)
    given = {key: coerce(key, value) for key, value in given.items()}
    chosen = {**defaults, **given}
    try:
        if name.startswith(RANDOM):
            instance = generators.GENERATORS[name.removeprefix(RANDOM)].make(**chosen)
            if chosen["seed"]:
                instance = instance.replace(name=f"{instance.name}-seed{chosen['seed']}")
        else:
            instance = networks.build(name.removeprefix(PREFIX), chosen)
            if chosen["training"]:
                instance = instance.replace(name=f"{instance.name}-training")
    except (OverflowError, MemoryError):
        raise InputError(
            "the instance would exceed 2**62 bytes or cycles",
            field=name,
            remedy="choose smaller parameters",
        ) from None
    changed = [f"{key}={value}" for key, value in given.items() if value != defaults[key]]
    return instance.replace(source=" ".join([name, *changed]))


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
)


def suite() -> list[PipelinePartition]:
    """Return the instances of `SUITE`, on which methods are compared unless others are named."""
    return [load(name, **parameters) for name, parameters in SUITE]
