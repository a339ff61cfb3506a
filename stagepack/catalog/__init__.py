"""The catalog: named instances, generators, hardware presets and best-known values.

>>> from stagepack import catalog
>>> catalog.load("pipeline/bert-large", cluster="ipu-pod8", training=True).k
8
>>> catalog.load("packing/random/planted", buffers=100).n
100
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from stagepack.catalog.best_known import BEST_KNOWN, BestKnown, best_known
from stagepack.catalog.generator import Generator, catalog_of
from stagepack.errors import InputError, suggest
from stagepack.instances.clusters import cluster, preset
from stagepack.instances.problem import VOCABULARY, coerce
from stagepack.instances.words import Words, require_known
from stagepack.kinds import KINDS, by_family, kind_of

if TYPE_CHECKING:
    from stagepack.catalog import names
    from stagepack.instances import types

__all__ = [
    "BEST_KNOWN",
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


@dataclass(frozen=True)
class Entry:
    """A named family of instances."""

    name: str  # what :func:`load` takes
    kind: str  # the problem
    description: str  # one line
    # What may be chosen, with the defaults (None: as it is made, or as the cluster has it); their
    # meaning is in `VOCABULARY`.
    parameters: Words


def entries(kind: str | None = None) -> list[Entry]:
    """Return what the catalog has, for one kind of problem (or family: "packing") or all."""
    wanted = None if kind is None else kind_of(kind)
    return [
        Entry(f"{known.family}/{name}", kind, made.description, made.parameters)
        for kind, known in KINDS.items()
        if wanted in (None, kind)
        for name, made in catalog_of(kind).GENERATORS.items()
    ]


def entry(name: str) -> Entry:
    """Return one entry of the catalog; an unknown name is refused with the nearest."""
    known = {found.name: found for found in entries()}
    name = by_family(str(name))
    if name not in known:
        whole = [found for found in known if found.endswith(f"/{name}")]
        remedy = f"give {' or '.join(whole)}" if whole else suggest(name, known)
        raise InputError(f"the catalog has no {name!r}", field="name", remedy=remedy)
    return known[name]


@overload
def load(name: names.PipelineName, **parameters: object) -> types.PipelinePartition: ...
@overload
def load(name: names.PackingName, **parameters: object) -> types.LmemPacking: ...
@overload
def load(name: names.ScheduleName, **parameters: object) -> types.PipelineSchedule: ...
@overload
def load(name: names.PhaseName, **parameters: object) -> types.PhaseSchedule: ...
@overload
def load(name: names.GroupingName, **parameters: object) -> types.LayerGrouping: ...
@overload
def load(name: names.GraphName, **parameters: object) -> types.GraphPartition: ...
@overload
def load(name: str, **parameters: object) -> Any: ...
def load(name: str, **parameters: object) -> Any:
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
        instance = _generator(found).make(**chosen)
    except (OverflowError, MemoryError):
        raise InputError(
            "the instance would exceed 2**62 bytes or cycles",
            field=name,
            remedy="choose smaller parameters",
        ) from None
    ends = "-training" if chosen.get("training") else ""
    ends += f"-seed{chosen['seed']}" if chosen.get("seed") else ""
    changed = [f"{key}={_text(value)}" for key, value in given.items() if value != defaults[key]]
    return instance.replace(name=instance.name + ends, source=" ".join([name, *changed]))


def _generator(entry: Entry) -> Generator:
    family = KINDS[entry.kind].family
    return catalog_of(entry.kind).GENERATORS[entry.name.removeprefix(f"{family}/")]


def _text(value: object) -> str:
    """Return a value as it can be said again, of a list with commas between."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def suite(kind: str | None = None) -> list[Any]:
    """Return the instances of each `SUITE`: many, of many sorts, to compare methods on.

    Parameters
    ----------
    kind : str, optional
        Only those of one kind of problem (or family: "packing").
    """
    wanted = None if kind is None else kind_of(kind)
    return [
        load(f"{known.family}/{name}", **parameters)
        for kind, known in KINDS.items()
        if wanted in (None, kind)
        for name, parameters in catalog_of(kind).SUITE
    ]


def tour() -> list[tuple[Any, tuple[str, ...]]]:
    """Return the `TOUR` of each kind: an instance that tells methods apart, and these methods."""
    shown = []
    for kind, known in KINDS.items():
        name, parameters, methods = catalog_of(kind).TOUR
        shown.append((load(f"{known.family}/{name}", **parameters), methods))
    return shown
