"""Exports offsets as a fragment of a linker script, as GNU ld and lld read it.

For each memory an output section that takes what the buffers need there and is not loaded; for each
buffer symbols for its address and size: in C, ``extern char arena_conv1_start[];``.  Offsets that
are given (fixed, reserved) count from where a memory begins, and the fragment asserts that the
section does.  Where origins of memories are said, the fragment has the regions; otherwise the
script that includes it has them, called as the memories are.
"""

from __future__ import annotations

import re

from stagepack.errors import InputError
from stagepack.formats.c_header import SHORT, Region, comment, names_of, regions, require_header
from stagepack.instances.packing.data import PackingSolution
from stagepack.instances.packing.instance import LmemPacking

ORIGIN = re.compile(r"(?:(.+)@)?(0[xX][0-9a-fA-F]{1,16}|[0-9]{1,19})")


def fragment(
    instance: LmemPacking,
    solution: PackingSolution,
    *,
    prefix: str = "arena",
    origin: str = "",
    short: bool | str = False,
) -> str:
    """Return the fragment; the solution is valid, and all symbols begin with `prefix`.

    `origin` is where each memory begins: ``fast@0x20000000;slow@0x60000000``, or a number where
    there is one; names of buffers are `short` if asked for.
    """
    begins = require_fragment(instance, prefix=prefix, origin=origin, short=short)
    found = regions(instance, solution)
    names = names_of(instance, SHORT.of(short), [region.name for region in found])
    parts = [f"/* {comment(instance.name)}: offsets found and checked by Stagepack. */"]
    if begins:
        parts += ["MEMORY", "{", *(_region(one, prefix, begins[one.title]) for one in found), "}"]
    parts += ["SECTIONS", "{"]
    for region in found:
        where, whole = region_name(region, prefix), _whole(region, prefix)
        parts += [
            f"  .{whole} (NOLOAD) : ALIGN({region.alignment})",
            "  {",
            f"    {whole}_start = .;",
            f"    . = . + {region.nbytes};",
            f"  }} > {where}",
        ]
    parts.append("}")
    for region in found:
        where, whole = region_name(region, prefix), _whole(region, prefix)
        parts.append(f"{whole}_size = {region.nbytes};")
        if _anchored(instance, region):
            holds = f"{whole}_start == ORIGIN({where})"
            parts.append(f'ASSERT({holds}, "{whole} begins where {where} does")')
        for number in region.buffers:
            own = f"{prefix}_{names[number].lower()}"
            parts.append(f"{own}_start = {whole}_start + {solution.offsets[number]};")
            parts.append(f"{own}_size = {instance.size[number]};")
    return "\n".join([*parts, ""])


def _whole(region: Region, prefix: str) -> str:
    return f"{prefix}_{region.name.lower()}" if region.name else prefix


def _anchored(instance: LmemPacking, region: Region) -> bool:
    """Whether addresses of a memory count from where it begins, and not just from one another."""
    level = next((one for one in instance.memories if one.name == region.title), None)
    return bool(
        instance.reserved
        or instance.allowed
        or instance.segment
        or (level is not None and level.reserved)
        or (instance.fixed[list(region.buffers)] >= 0).any()
    )


def region_name(region: Region, prefix: str) -> str:
    """Return what the region of a memory is called: as it is, or `prefix` where there is one."""
    return re.sub(r"\W", "_", region.title, flags=re.ASCII) or prefix


def _region(region: Region, prefix: str, origin: int) -> str:
    length = region.nbytes if region.capacity is None else region.capacity
    return f"  {region_name(region, prefix)} (rw) : ORIGIN = {origin:#x}, LENGTH = {length}"


def require_fragment(
    instance: LmemPacking, *, prefix: str = "arena", origin: str = "", short: bool | str = False
) -> dict[str, int]:
    """Return where each memory begins, by name; refuse options that cannot be followed.

    `prefix`, `origin` and `short` are those of :func:`fragment`.
    """
    require_header(instance, prefix=prefix, short=short)
    names = [memory.name for memory in instance.memories] or [""]
    found: dict[str, int] = {}
    remedy = "write " + (";".join(f"{name}@0x20000000" for name in names) if names[0] else "0x100")
    for part in filter(None, str(origin).split(";")):
        match = ORIGIN.fullmatch(part.strip())
        if match is None or (match[1] or "") not in names:
            raise InputError(
                f"{part[:40]!r} is no begin of a memory", field="origin", remedy=remedy
            )
        found[match[1] or ""] = int(match[2], 0)
    missing = next((name for name in names if name not in found), None)
    if found and missing is not None:
        raise InputError(f"{missing} has none", field="origin", remedy=remedy)
    regions = [re.sub(r"\W", "_", name, flags=re.ASCII) for name in names]
    if len(set(regions)) < len(regions):
        raise InputError("two are alike to a linker", field="memories", remedy="rename one")
    return found
