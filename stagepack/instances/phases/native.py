"""Native files of phase schedules: ``{"problem": "phase-schedule", "version": 1, ...}``.

``layers`` is either what people write, a list of layer objects, beside ``input``, the bytes of x_0;
or what programs write, an object of columns with one entry a layer (``activations``: one more).
All other fields, their units and defaults are those of
:class:`stagepack.instances.phases.PhaseSchedule` and :class:`stagepack.instances.profile.Chip`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import numpy as np

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.instances.documents.lines import Rows, unless, unusual
from stagepack.instances.phases.data import Policy
from stagepack.instances.phases.instance import PhaseSchedule
from stagepack.instances.phases.modes import Mode
from stagepack.instances.phases.problem import Objective
from stagepack.instances.profile import Bytes, Chip
from stagepack.instances.words import Words

Cycles = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**40)]
Index = Annotated[int, msgspec.Meta(ge=-1, le=2**31)]


class Layer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One layer: cycles forward, backward and of its update, and bytes.

    `output` is what it writes (x_{l+1}); layers of one `layer_class` share their graph.
    """

    forward: Cycles
    output: Bytes
    name: str | None = None
    variables: Bytes = 0
    state: Bytes = 0
    sharding: Count = 1
    backward: Cycles = 0
    update: Cycles = 0
    temporary: Bytes = 0
    tape: Bytes = 0
    forward_fixed: Cycles = 0
    backward_fixed: Cycles = 0
    temporary_fixed: Bytes = 0
    layer_class: Cycles | None = None


class Columns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Layers by column: arrays with an entry a layer, `activations` one more: x_0 ... x_n."""

    variables: list[Bytes]
    forward: list[Cycles]
    activations: list[Bytes]
    names: list[str] | None = None
    state: list[Bytes] | None = None
    sharding: list[Count] | None = None
    backward: list[Cycles] | None = None
    update: list[Cycles] | None = None
    temporary: list[Bytes] | None = None
    tape: list[Bytes] | None = None
    forward_fixed: list[Cycles] | None = None
    backward_fixed: list[Cycles] | None = None
    temporary_fixed: list[Bytes] | None = None
    layer_class: list[Cycles] | None = None


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A phase-schedule instance.

    With `microbatch` the figures are for it; with `global_batch` alone they are per sample.
    """

    problem: Literal["phase-schedule"]
    version: Literal[1]
    layers: list[Layer] | Columns
    chip: Chip
    input: Bytes | None = None
    name: str = "phases"
    source: str = ""
    objective: Objective = Objective.TIME
    skips: list[tuple[Index, Index]] = []
    microbatch: Count | None = None
    global_batch: Count | None = None
    data_parallel: Count = 1
    steps: Count | None = None
    modes: list[Mode] | None = None
    training: bool = False
    policies: list[Policy] | None = None
    recomputations: Cycles = 1
    prefetch: bool = False
    fixed_boundaries: list[Index] | None = None
    remote_memory: Bytes | None = None
    graphs: Bytes | None = None


GIVEN = frozenset({"capacity", "objective", "training"})
"""What may be said beside a file."""
COLUMNS = (
    "state",
    "sharding",
    "backward",
    "update",
    "temporary",
    "tape",
    "forward_fixed",
    "backward_fixed",
    "temporary_fixed",
    "layer_class",
)


def parse(document: Document, given: Words) -> PhaseSchedule:
    """Return the instance of a document, changed as is `given` beside it."""
    fields = msgspec.structs.asdict(document)
    for name in ("problem", "version", "layers", "input"):
        del fields[name]
    for name in ("modes", "policies"):
        if fields[name] is None:
            del fields[name]
    layers = document.layers
    if isinstance(layers, Columns):
        if document.input is not None:
            raise InputError(
                "is the first of the activations",
                field="input",
                remedy="leave it out if the layers are given as columns",
            )
        fields |= msgspec.structs.asdict(layers)
        fields["layer_names"] = fields.pop("names")
    else:
        fields |= _columns(layers, document.input)
    fields |= {"memory" if name == "capacity" else name: said for name, said in given.items()}
    return PhaseSchedule.from_arrays(**fields)


def _columns(layers: list[Layer], first: int | None) -> JsonObject:
    if not layers:
        raise InputError("no layers", field="layers", remedy="give at least one layer")
    if first is None:
        raise InputError("is missing", field="input", remedy="give the bytes of the input x_0")
    found: JsonObject = {
        name: [getattr(layer, name) for layer in layers]
        for name in ("variables", "forward", *COLUMNS)
    }
    found["activations"] = [first, *(layer.output for layer in layers)]
    if all(label is None for label in found["layer_class"]):
        found["layer_class"] = None
    elif None in found["layer_class"]:
        raise InputError(
            "is missing",
            field=f"layers[{found['layer_class'].index(None)}].layer_class",
            remedy="give every layer a class or none",
        )
    names = [layer.name for layer in layers]
    if any(name is not None for name in names):
        found["layer_names"] = [
            f"layer {at}" if name is None else name for at, name in enumerate(names)
        ]
    return found


def dump(instance: PhaseSchedule) -> JsonObject:
    """Return what the document of an instance says: columns, defaults left out."""
    usual = {"sharding": np.ones(instance.n), "layer_class": np.arange(instance.n)}
    columns: JsonObject = {
        "names": instance.layer_names,
        "variables": instance.variables,
        "forward": instance.forward,
        "activations": instance.activations,
        **{name: unless(getattr(instance, name), usual.get(name, 0)) for name in COLUMNS},
    }
    return {
        "chip": {
            key: value
            for key, value in msgspec.structs.asdict(instance.chip).items()
            if repr(value) != repr(getattr(Chip(), key))  # 1e9 and 10**9 have unlike fingerprints
        },
        **unusual(instance, Document, ("microbatch", "global_batch", "data_parallel", "training")),
        "modes": None if instance.modes == tuple(Mode) else list(map(str, instance.modes)),
        "policies": None
        if instance.policies == (Policy.STASH,)
        else list(map(str, instance.policies)),
        **unusual(
            instance,
            Document,
            ("recomputations", "prefetch", "fixed_boundaries", "remote_memory", "graphs"),
        ),
        "skips": instance.skips or None,
        "layers": Rows(columns),
    }
