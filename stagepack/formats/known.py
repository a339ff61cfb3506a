"""The list of all formats."""

from __future__ import annotations

import functools

from stagepack.errors import InputError, suggest
from stagepack.formats import native
from stagepack.formats.registry import Format
from stagepack.instances.documents import strict


@functools.cache
def every() -> tuple[Format, ...]:
    """Return all formats; those of other tools, which need most problems, are loaded now."""
    from stagepack.formats import layer_table
    from stagepack.formats.auto_pipeline import case
    from stagepack.formats.auto_pipeline import profile as auto_pipeline_profile
    from stagepack.formats.dnn_partitioning import graph as dnn_partitioning
    from stagepack.formats.minimalloc import buffers as minimalloc
    from stagepack.formats.onnx import instances as onnx_model
    from stagepack.formats.pipedream import profile as pipedream
    from stagepack.formats.tflite import arena as tflite_model
    from stagepack.formats.torch import memory as torch_memory
    from stagepack.formats.torch import schedule as torch_schedule
    from stagepack.formats.tpu_mlir import layer_groups as tpu_mlir
    from stagepack.formats.vela import allocation as vela_allocation
    from stagepack.formats.xla import buffers as xla_buffers

    return (
        native.FORMAT,
        pipedream.FORMAT,
        case.FORMAT,
        auto_pipeline_profile.FORMAT,
        layer_table.FORMAT,
        minimalloc.FORMAT,
        tpu_mlir.FORMAT,
        torch_schedule.FORMAT,
        onnx_model.FORMAT,
        tflite_model.FORMAT,
        vela_allocation.FORMAT,
        xla_buffers.FORMAT,
        torch_memory.FORMAT,
        dnn_partitioning.FORMAT,
    )


def by_name(name: str) -> Format:
    """Return the format called `name`.

    Raises
    ------
    InputError
        For an unknown name.
    """
    for known in every():
        if known.name == name:
            return known
    raise InputError(
        f"unknown format {name!r}",
        field="format",
        remedy=suggest(name, [known.name for known in every()]),
    )


def by_content(data: bytes) -> Format:
    """Return the format that `data` is written in.

    JSON that says its problem is native, whatever else it looks like; so is JSON that nothing
    recognises, and then told what it lacks.

    Raises
    ------
    InputError
        When no format or several recognise it.
    """
    if native.FORMAT.sniff(data):
        return native.FORMAT
    found = [known for known in every() if known.sniff(data)]
    if not found and strict.first_byte(data) in (b"{", b"["):
        return native.FORMAT
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(
            "could be " + " or ".join(known.name for known in found),
            field="format",
            remedy="name the format (format=, --format)",
        )
    known = "known are " + ", ".join(known.name for known in every())
    known += "; anything else can be written as native JSON: see stagepack schema KIND"
    first = data[:4096].partition(b"\n")[0]
    if any(separator in first for separator in (b",", b";", b"\t")):
        # What to write comes first: whoever has a table of his own will rename its columns.
        apart = "" if b"," in first else ", separated by commas"
        known = (
            "a table of buffers begins with the columns id,lower,upper,size, one of layers with "
            f"name,forward,backward,parameters,output{apart}; {known}"
        )
    elif b"Accelerator configuration" in data:
        known = "Vela prints what can be read with --verbose-allocation"
    raise InputError("is in no format that is known here", field="format", remedy=known)
