"""The names of problems: each has its kind, as files say it, and its family, as here."""

from __future__ import annotations

from typing import Final

from stagepack.result import InputError

PIPELINE: Final = "pipeline-partition"
PACKING: Final = "lmem-packing"
SCHEDULE: Final = "pipeline-schedule"
PHASES: Final = "phase-schedule"

FAMILIES: Final = {
    "pipeline": PIPELINE,
    "packing": PACKING,
    "schedule": SCHEDULE,
    "phases": PHASES,
}
"""Kinds by family: the first part of a name in the catalog, and the name of our folders."""
KINDS: Final = tuple(FAMILIES.values())


def kind_called(name: str) -> str | None:
    """Return the kind that is called `name`, its own name or its family's; None for other words."""
    return name if name in KINDS else FAMILIES.get(name)


def kind_of(name: str, field: str = "kind") -> str:
    """Return the kind that is called `name`, its own name or its family's.

    Raises
    ------
    InputError
        For an unknown one, suggesting the nearest.
    """
    from stagepack.instances.catalog.parameters import suggest  # which is built on this file

    kind = kind_called(name) if isinstance(name, str) else None
    if kind is None:
        raise InputError(f"unknown kind {name!r}", field=field, remedy=suggest(str(name), KINDS))
    return kind


def by_family(name: str) -> str:
    """Return a name of the catalog that begins with a kind as it begins with the family."""
    head, slash, rest = name.partition("/")
    for family, kind in FAMILIES.items():
        if slash and head == kind:
            return f"{family}/{rest}"
    return name
