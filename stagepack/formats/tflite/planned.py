"""Writes memory plans into TensorFlow Lite models.

A new root table is placed in front of the file.  All references of a flatbuffer are relative
distances, so the old content remains valid as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from stagepack.formats.known import TFLITE
from stagepack.formats.tflite.flatbuffer import Bytes, Table, broken
from stagepack.formats.tflite.model import METADATA

FIELDS = 8  # of a model in the schema
BUFFERS, LISTED = 4, 6
ROOT = 28  # behind the reference to it, the identifier and its vtable
STEP = 64  # constants are aligned to 16 bytes within the file, and stay so


def with_plan(data: bytes, offsets: Sequence[int], subgraphs: int) -> bytes:
    """Return a model, `data`, that holds a plan in the place of any that it held.

    `offsets` are of the tensors of all `subgraphs`; -1 for those that have no place in the arena.
    """
    old = Bytes(data).root()
    if any(old.place(field) for field in range(FIELDS, old.fields())):
        raise broken("has fields that are not known here")
    buffers = old.tables(BUFFERS)
    if any(buffer.place(1) for buffer in buffers):
        raise broken("keeps constants behind the flatbuffer")
    kept = [entry for entry in old.tables(LISTED) if entry.text(0) != METADATA]
    plan = struct.pack(f"<{3 + len(offsets)}i", 1, subgraphs, len(offsets), *offsets)
    return _joined(data, old, buffers, kept, plan)


def _joined(data: bytes, old: Table, buffers: list[Table], kept: list[Table], plan: bytes) -> bytes:
    """Return the new root, two longer lists, their new items, and the whole old file."""
    name = METADATA.encode()
    at_buffers = ROOT + 4 + 4 * FIELDS
    at_listed = at_buffers + 4 + 4 * (len(buffers) + 1)
    at_entry = at_listed + 4 + 4 * (len(kept) + 1) + 8
    at_name = at_entry + 12
    at_buffer = at_name + -(-(4 + len(name) + 1) // 4) * 4 + 8
    at_plan = -(-(at_buffer + 12) // 16) * 16 - 4  # its bytes begin behind their number
    end = -(-(at_plan + 4 + len(plan)) // STEP) * STEP
    out = bytearray(end)

    def put(at: int, code: str, *values: int) -> None:
        struct.pack_into(f"<{code}", out, at, *values)

    def refer(at: int, target: int) -> None:
        put(at, "I", target - at)

    refer(0, ROOT)
    out[4:8] = TFLITE
    put(8, "2H", 4 + 2 * FIELDS, 4 + 4 * FIELDS)
    put(ROOT, "i", ROOT - 8)
    lists = {BUFFERS: at_buffers, LISTED: at_listed}
    for field in range(FIELDS):
        if not (old.place(field) or field == LISTED):
            continue
        place = ROOT + 4 + 4 * field
        put(12 + 2 * field, "H", place - ROOT)
        if field == 0:
            put(place, "I", old.number(0, "I"))
        else:
            refer(place, lists.get(field, end + old.target(field)))
    for at, items, added in ((at_buffers, buffers, at_buffer), (at_listed, kept, at_entry)):
        put(at, "I", len(items) + 1)
        for number, item in enumerate(items):
            refer(at + 4 + 4 * number, end + item.at)
        refer(at + 4 + 4 * len(items), added)
    put(at_entry - 8, "4H", 8, 12, 4, 8)
    put(at_entry, "i", 8)
    refer(at_entry + 4, at_name)
    put(at_entry + 8, "I", len(buffers))
    put(at_name, "I", len(name))
    out[at_name + 4 : at_name + 4 + len(name)] = name
    put(at_buffer - 8, "3H", 6, 8, 4)
    put(at_buffer, "i", 8)
    refer(at_buffer + 4, at_plan)
    put(at_plan, "I", len(plan))
    out[at_plan + 4 : at_plan + 4 + len(plan)] = plan
    return bytes(out) + data
