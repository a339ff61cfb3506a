"""The list of problems: the kind that files name, and the name of the problem's folders.

This is the only such list.  Every other package looks up its part of a problem by this name when
the part is first needed.  A new problem consists of its folders (``instances/<family>``,
``heuristics/<family>``, ``formulations/<family>``, ``methods/<family>``, ``report/<family>``, as
many of them as it needs) and one line here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from stagepack.errors import InputError, suggest

T = TypeVar("T")


@dataclass(frozen=True)
class Kind:
    """Where a problem is: its folder in every wing, which begins catalog names, and their home."""

    family: str
    home: str = "stagepack"


KINDS: dict[str, Kind] = {
    "pipeline-partition": Kind("pipeline"),
    "lmem-packing": Kind("packing"),
    "pipeline-schedule": Kind("schedule"),
    "phase-schedule": Kind("phases"),
    "layer-grouping": Kind("groups"),
    "graph-partition": Kind("graph"),
}


def part(kind: str, *wing: str) -> Any:
    """Return a module of a kind: ``part(kind, "instances", "problem")``.

    That is ``stagepack.instances.<family>.problem`` for those of ours.
    """
    known = KINDS[kind]
    first, *rest = wing
    return importlib.import_module(".".join((known.home, first, known.family, *rest)))


def named(kind: str, wing: str, name: str) -> Any:
    """Return what a wing's module holds: ``named(kind, "formats", "megatron.layout.layout")``.

    `name` is the module in the `wing`, and what it holds; the wing is in the home of the `kind`.
    """
    module, _, own = name.rpartition(".")
    return getattr(importlib.import_module(f"{KINDS[kind].home}.{wing}.{module}"), own)


def later(package: str, **modules: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package whose names are loaded when they are asked for.

    `modules` are its own, each with the names that it holds, blanks between.
    """
    homes = {name: module for module, names in modules.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return find


def on_demand(package: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package whose modules are loaded when they are asked for.

    A method loads what it runs, and takes no time for that.
    """

    def find(name: str) -> Any:
        from stagepack.progress import compilation

        if name.startswith("_"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        compilation.pause()
        try:
            return importlib.import_module(f"{package}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{package}.{name}":
                raise
            raise AttributeError(f"module {package!r} has no attribute {name!r}") from None
        finally:
            compilation.resume()

    return find


class ByKind(Mapping[str, T]):
    """A table by kind, whose entries are found when they are asked for."""

    def __init__(self, entry: Callable[[str], T]) -> None:
        self._entry = entry

    def __getitem__(self, kind: str) -> T:
        if kind not in KINDS:
            raise KeyError(kind)
        return self._entry(kind)

    def __iter__(self) -> Iterator[str]:
        return iter(KINDS)

    def __len__(self) -> int:
        return len(KINDS)


def kind_called(name: str) -> str | None:
    """Return the kind that is called `name`, its own name or its family's; None for other words."""
    if name in KINDS:
        return name
    return next((kind for kind, known in KINDS.items() if known.family == name), None)


def kind_of(name: str, field: str = "kind") -> str:
    """Return the kind of a name, its own or its family's; messages call the name `field`."""
    kind = kind_called(name) if isinstance(name, str) else None
    if kind is None:
        raise InputError(f"unknown kind {name!r}", field=field, remedy=suggest(str(name), KINDS))
    return kind


def by_family(name: str) -> str:
    """Return a name of the catalog that begins with a kind as it begins with the family."""
    head, slash, rest = name.partition("/")
    return f"{KINDS[head].family}/{rest}" if slash and head in KINDS else name
