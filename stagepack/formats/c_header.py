"""Exports offsets as a header for C or C++."""

from __future__ import annotations

import re

from stagepack.errors import InputError
from stagepack.instances.packing.data import PackingSolution
from stagepack.instances.packing.instance import LmemPacking
from stagepack.instances.words import Parameter

PREFIX = Parameter("prefix", str, "what all names begin with")
WORD = re.compile(r"[^A-Z0-9]+")
ASSERTS = """\
#if !defined(__cplusplus) && (!defined(__STDC_VERSION__) || __STDC_VERSION__ < 201112L)
#define {prefix}_ASSERT(holds, words) extern char {prefix}_asserted[(holds) ? 1 : -1]
#else
#include <assert.h>
#define {prefix}_ASSERT(holds, words) static_assert(holds, words)
#endif
"""
"""C has static_assert since 2011; what is older takes no array of a negative size."""


def header(instance: LmemPacking, solution: PackingSolution, *, prefix: str = "ARENA") -> str:
    """Return a header with the size and offset of each buffer, the size of the whole, and asserts.

    The instance has one memory, the solution is valid; all names begin with `prefix`.
    """
    require_header(instance, prefix=prefix)
    names = _names(instance)
    total = int((solution.offsets + instance.size).max())
    alignment = instance.alignment.tolist()
    guard = f"{prefix}_OFFSETS_H"
    lines = [
        f"/* {_comment(instance.name)}: offsets found and checked by Stagepack. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        *ASSERTS.format(prefix=prefix).splitlines(),
        "",
        f"#define {prefix}_SIZE {total}ULL",
        f"#define {prefix}_ALIGNMENT {max(alignment)}ULL",
    ]
    for number, name in enumerate(names):
        size, offset = int(instance.size[number]), int(solution.offsets[number])
        lines += [
            "",
            f"/* {_comment(instance.buffer_id(number))} */",
            f"#define {prefix}_{name}_SIZE {size}ULL",
            f"#define {prefix}_{name}_OFFSET {offset}ULL",
            f"{prefix}_ASSERT({prefix}_{name}_OFFSET + {prefix}_{name}_SIZE <= {prefix}_SIZE, "
            f'"{name} ends within the whole");',
        ]
        if alignment[number] > 1:
            lines.append(
                f"{prefix}_ASSERT({prefix}_{name}_OFFSET % {alignment[number]}ULL == 0, "
                f'"{name} is aligned");'
            )
    return "\n".join([*lines, "", f"#endif /* {guard} */", ""])


def require_header(instance: LmemPacking, *, prefix: str = "ARENA") -> None:
    """Refuse several memories, and a prefix that is no name."""
    if instance.memories:
        raise InputError(
            "there are several", field="memories", remedy="write a header for each memory"
        )
    if not re.fullmatch(r"[A-Za-z_]\w*", PREFIX.of(prefix), re.ASCII):
        raise InputError(f"{prefix[:40]!r} is no name in C", field="prefix", remedy="give a word")


def _names(instance: LmemPacking) -> list[str]:
    """Return a name in C for each buffer, no two alike."""
    found: dict[str, None] = {}
    for number in range(instance.n):
        word = WORD.sub("_", instance.buffer_id(number).upper()).strip("_") or "BUFFER"
        if word in found:
            word = f"{word}_{number}"
            while word in found:
                word += "_"
        found[word] = None
    return list(found)


def _comment(text: str) -> str:
    """Return text that ends no comment, and begins no line."""
    return re.sub(r"[^\x20-\x7e]|\*/|/\*|\\", "?", text)
