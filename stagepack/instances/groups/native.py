"""Native files of layer groupings: ``{"problem": "layer-grouping", "version": 1, ...}``.

``operators`` is a list of :class:`.operators.Operator`, ``inputs`` one of :class:`.data.Source`;
``chip`` is a :class:`.chip.LaneChip` or the name of one of :mod:`.chips`, the generic one where it
is left out.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.instances.documents.lines import Items, unusual
from stagepack.instances.groups.chip import GENERIC, LaneChip
from stagepack.instances.groups.chips import CHIPS, of_file, preset
from stagepack.instances.groups.data import HALF, Source
from stagepack.instances.groups.instance import LayerGrouping
from stagepack.instances.groups.operators import Operator, Size
from stagepack.instances.groups.problem import Objective, Order, Slicing, Standalone, Timesteps
from stagepack.instances.words import Words

Part = Annotated[float, msgspec.Meta(ge=0, le=2**31)]


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A layer-grouping instance."""

    problem: Literal["layer-grouping"]
    version: Literal[1]
    operators: Annotated[list[Operator], msgspec.Meta(min_length=1)]
    inputs: list[Source]
    chip: LaneChip | str = GENERIC
    outputs: list[str] = []
    name: str = "groups"
    source: str = ""
    slicing: Slicing = Slicing.N_THEN_H
    standalone: Standalone = Standalone.ANY
    timesteps: Timesteps = Timesteps.NEAREST
    order: Order = Order.GIVEN
    max_slices: Size = 64
    max_group: Size = 64
    overlap_limit: Part | Literal["half", "none"] | None = HALF
    objective: Objective = Objective.CYCLES


CHANGED = (
    "slicing",
    "standalone",
    "timesteps",
    "order",
    "max_slices",
    "max_group",
    "overlap_limit",
)
GIVEN = frozenset({"chip", "capacity", "rates", "objective", *CHANGED})
"""What may be said beside a file."""


def parse(document: Document, given: Words) -> LayerGrouping:
    """Return the instance of a document, changed as is `given` beside it."""
    fields = msgspec.structs.asdict(document)
    del fields["problem"], fields["version"]
    if isinstance(document.chip, str):
        fields["chip"] = preset(document.chip)
    return changed(LayerGrouping.from_arrays(**fields), given)


def changed(instance: LayerGrouping, given: Words) -> LayerGrouping:
    """Return an instance as is said beside its file."""
    said = dict(given)
    chip = _chip(said.pop("chip")) if "chip" in said else instance.chip
    if "capacity" in said:
        chip = msgspec.structs.replace(chip, memory=said.pop("capacity"))
    if "rates" in said:
        chip = msgspec.structs.replace(chip, rates=_rates(said.pop("rates")))
    if chip is not instance.chip:
        said["chip"] = chip
    return instance.replace(**said) if said else instance


def _chip(said: str) -> LaneChip:
    """Return a chip of the catalog, or of a file; the documents themselves name no files."""
    return preset(said) if said in CHIPS else of_file(said)


def _rates(text: str) -> dict[str, object]:
    """Return rates by kind as a file says them, from ``kind:number,...``; "" for none."""
    found: dict[str, object] = {}
    for item in filter(None, text.split(",")):
        kind, _, rate = item.partition(":")
        try:
            found[kind.strip()] = float(rate)
        except ValueError:
            raise InputError(
                f"{item!r} is no kind with a number", field="rates", remedy="give conv:128,pool:8"
            ) from None
    return found


def dump(instance: LayerGrouping) -> JsonObject:
    """Return what the document of an instance says: an operator a line, defaults left out."""
    return {
        "chip": None if instance.chip == GENERIC else brief(instance.chip),
        **unusual(instance, Document, CHANGED),
        **({"overlap_limit": "none"} if instance.overlap_limit is None else {}),
        "inputs": list(map(brief, instance.inputs)),
        "outputs": instance.outputs or None,
        "operators": Items(map(brief, instance.operators)),
    }


def brief(struct: msgspec.Struct) -> JsonObject:
    """Return the fields of a struct that are not what they are by default."""
    found = {}
    for name, default in _defaults(type(struct)):
        value = getattr(struct, name)
        if value != default:
            found[name] = list(map(brief, value)) if name == "weights" else value
    return found


@lru_cache(maxsize=8)
def _defaults(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (field.name, {} if field.default_factory is dict else field.default)
        for field in msgspec.structs.fields(kind)
    )
