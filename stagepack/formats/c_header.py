"""Exports offsets as a header for C or C++."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stagepack.errors import InputError
from stagepack.instances.packing.data import PackingSolution
from stagepack.instances.packing.instance import LmemPacking
from stagepack.instances.words import Parameter

PREFIX = Parameter("prefix", str, "what all names begin with")
SHORT = Parameter("short", bool, "names of buffers by their last parts, as far as these differ")
WORD = re.compile(r"[^A-Z0-9]+")
PART = re.compile(r"[/.]|::")
"""What parts the names of nested modules."""
ASSERTS = """\
#if !defined(__cplusplus) && (!defined(__STDC_VERSION__) || __STDC_VERSION__ < 201112L)
#define {prefix}_ASSERT(holds, words) extern char {prefix}_asserted[(holds) ? 1 : -1]
#else
#include <assert.h>
#define {prefix}_ASSERT(holds, words) static_assert(holds, words)
#endif
"""
"""C has static_assert since 2011; what is older takes no array of a negative size."""


@dataclass(frozen=True)
class Region:
    """One memory as programs are told of it."""

    name: str  # in capitals; "" where there is one memory only
    title: str  # what the instance calls it
    buffers: tuple[int, ...]  # those that lie in it, in the order of the instance
    # `nbytes`, `alignment`: what they take in all, and the strictest alignment of one.
    nbytes: int
    alignment: int
    capacity: int | None  # bytes that there are; None: not said


def header(
    instance: LmemPacking,
    solution: PackingSolution,
    *,
    prefix: str = "ARENA",
    short: bool | str = False,
) -> str:
    """Return a header with a table of sizes and offsets for each memory, its whole, and asserts.

    The solution is valid; all names begin with `prefix`; those of buffers are `short` if asked for.
    """
    require_header(instance, prefix=prefix, short=short)
    found = regions(instance, solution)
    names = names_of(instance, SHORT.of(short), [region.name for region in found])
    guard = f"{prefix}_OFFSETS_H"
    lines = [
        f"/* {comment(instance.name)}: offsets found and checked by Stagepack. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        *ASSERTS.format(prefix=prefix).splitlines(),
    ]
    for region in found:
        whole = f"{prefix}_{region.name}" if region.name else prefix
        lines += ["", *_whole(region, prefix, whole)]
        for number in region.buffers:
            lines += ["", *_buffer(instance, solution, number, (prefix, names[number], whole))]
    return "\n".join([*lines, "", f"#endif /* {guard} */", ""])


def _whole(region: Region, prefix: str, whole: str) -> Iterator[str]:
    """Yield what a memory holds in all, under the name `whole`."""
    if region.name:
        yield f"/* The memory {comment(region.title)}. */"
    yield f"#define {whole}_SIZE {region.nbytes}ULL"
    yield f"#define {whole}_ALIGNMENT {region.alignment}ULL"
    if region.name and region.capacity is not None:
        yield f"#define {whole}_CAPACITY {region.capacity}ULL"
        yield f'{prefix}_ASSERT({whole}_SIZE <= {whole}_CAPACITY, "{region.name} is large enough");'


def _buffer(
    instance: LmemPacking, solution: PackingSolution, number: int, names: tuple[str, str, str]
) -> Iterator[str]:
    """Yield size and offset of a buffer; `names` are the prefix, its own, and its memory's."""
    prefix, name, whole = names
    own, alignment = f"{prefix}_{name}", int(instance.alignment[number])
    yield f"/* {comment(instance.buffer_id(number))} */"
    yield f"#define {own}_SIZE {instance.size[number]}ULL"
    yield f"#define {own}_OFFSET {solution.offsets[number]}ULL"
    inside = f"{own}_OFFSET + {own}_SIZE <= {whole}_SIZE"
    yield f'{prefix}_ASSERT({inside}, "{name} ends within the whole");'
    if alignment > 1:
        yield f'{prefix}_ASSERT({own}_OFFSET % {alignment}ULL == 0, "{name} is aligned");'


def regions(instance: LmemPacking, solution: PackingSolution) -> list[Region]:
    """Return the memories that a solution uses, in the order of the instance."""
    tops, found = solution.offsets + instance.size, []
    memory = solution.memory
    words = _unlike([one.name for one in instance.memories])
    for at, word in enumerate(words or [""]):
        here = np.arange(instance.n) if memory is None else np.flatnonzero(memory == at)
        level = instance.memories[at] if words else None
        found.append(
            Region(
                word,
                level.name if level else "",
                tuple(here.tolist()),
                int(tops[here].max(initial=0)),
                max(int(instance.alignment[here].max(initial=1)), level.alignment if level else 1),
                level.capacity if level else instance.capacity,
            )
        )
    return found


def require_header(
    instance: LmemPacking, *, prefix: str = "ARENA", short: bool | str = False
) -> None:
    """Refuse a `prefix` that is no name, and what says not whether names are `short`."""
    del instance
    SHORT.of(short)
    if not re.fullmatch(r"[A-Za-z_]\w*", PREFIX.of(prefix), re.ASCII):
        raise InputError(f"{prefix[:40]!r} is no name in C", field="prefix", remedy="give a word")


def names_of(instance: LmemPacking, short: bool, taken: list[str]) -> list[str]:
    """Return a name in C for each buffer, in capitals, no two alike and none `taken`.

    If `short`, of names such as ``encoder.0.conv/w`` only the last parts that tell it from others.
    """
    ids = [instance.buffer_id(number) for number in range(instance.n)]
    return _unlike(_last_parts(ids) if short else ids, taken)


def _last_parts(ids: list[str]) -> list[str]:
    """Return of each name the fewest of its last parts that no other name ends with."""
    parts = [[part for part in PART.split(name) if part] or [name] for name in ids]
    ends = Counter(tuple(one[at:]) for one in parts for at in range(len(one)))
    return [
        "_".join(
            next((one[at:] for at in reversed(range(len(one))) if ends[tuple(one[at:])] == 1), one)
        )
        for one in parts
    ]


def _unlike(ids: list[str], taken: list[str] | None = None) -> list[str]:
    """Return words of C in capitals, no two alike, and none that is `taken`."""
    found: dict[str, None] = {}
    for number, name in enumerate(ids):
        word = WORD.sub("_", name.upper()).strip("_") or "BUFFER"
        if word in found or word in (taken or ()):
            word = f"{word}_{number}"
            while word in found or word in (taken or ()):
                word += "_"
        found[word] = None
    return list(found)


def comment(text: str) -> str:
    """Return text that ends no comment, and begins no line."""
    return re.sub(r"[^\x20-\x7e]|\*/|/\*|\\", "?", text)
