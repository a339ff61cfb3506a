"""Measured figures in place of estimated ones: a table of layers by name.

Its columns are those of tables of layers (:mod:`stagepack.formats.layer_table`).  A name may hold
``*``, as in ``model.layers.*``, for all layers alike; where several lines name a layer, the last
that has a figure counts.  What a line leaves empty stays estimated.  A measured forward pass
changes the backward pass in proportion, unless that is measured as well.  Times are nanoseconds on
the first device, with its part of a layer and all that it waits for; bytes are those of a device.
"""

from __future__ import annotations

import fnmatch
import logging
from typing import Any

import msgspec

from stagepack import files
from stagepack.errors import InputError, suggest
from stagepack.formats import layer_table
from stagepack.instances.profile import LayerProfile, ModelProfile

log = logging.getLogger("stagepack")
TAKEN = ("forward", "backward", "exclusive", "temporary", "stash", "output")


def overridden(made: ModelProfile, path: str) -> ModelProfile:
    """Return a profile with the figures of a table in place of its own.

    Parameters
    ----------
    made : ModelProfile
    path : str
        Of the table; refusals name it, and a line that names no layer.
    """
    try:
        return _overridden(made, layer_table.table(files.read(path), needed="name"))
    except InputError as error:
        where = f"{path}: {error.field}" if error.field else path
        raise InputError(
            f"{where}: {error.problem}", field="measured", remedy=error.remedy
        ) from None


def _overridden(made: ModelProfile, table: layer_table.Table) -> ModelProfile:
    names = [layer.name for layer in made.layers]
    known: dict[str, dict[str, Any]] = {name: {} for name in names}
    left = table.numbers.keys() - set(TAKEN)
    if left:
        raise InputError(
            f"column {min(left)} is not a figure of layers here",
            remedy=f"give {', '.join(TAKEN)}",
        )
    for at, ((line, _), pattern) in enumerate(zip(table.cells["name"], table.names, strict=True)):
        meant = fnmatch.filter(names, pattern)
        if not meant:
            raise InputError(
                f"{pattern[:60]!r} names no layer", field=f"line {line}",
                remedy=suggest(pattern[:60], names),
            )  # fmt: skip
        said = {
            name: numbers[at] for name, numbers in table.numbers.items() if table.cells[name][at][1]
        }
        for name in meant:
            known[name] |= said
    touched = sum(map(bool, known.values()))
    log.info("%d of %d layers have measured figures, all others are estimates", touched, len(names))
    sent = {name: said["output"] for name, said in known.items() if "output" in said}
    return msgspec.structs.replace(
        made,
        layers=tuple(_changed(layer, known[layer.name]) for layer in made.layers),
        tensors={**made.tensors, **sent},
    )


def _changed(layer: LayerProfile, said: dict[str, Any]) -> LayerProfile:
    """Return a layer with what was `said` of it."""
    new: dict[str, Any] = {
        name: said[name] for name in ("forward", "backward", "stash") if name in said
    }
    if "forward" in said and "backward" not in said and layer.forward:
        new["backward"] = round(layer.backward * said["forward"] / layer.forward)
    if "exclusive" in said:
        new |= {"exclusive": {"measured": said["exclusive"]}, "tied": {}}
    if "temporary" in said:
        more = layer.backward_temporary - layer.temporary
        new |= {"temporary": said["temporary"], "backward_temporary": said["temporary"] + more}
    return msgspec.structs.replace(layer, **new)
