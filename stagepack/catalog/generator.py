"""What the catalog asks of each problem: its module ``stagepack/catalog/<family>``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from stagepack import kinds
from stagepack.contracts import JsonObject
from stagepack.instances.words import Words


@dataclass(frozen=True)
class Generator:
    """A function from parameters to an instance, their defaults, and what it is good for."""

    make: Callable[..., Any]
    parameters: Words
    description: str


class Catalog(Protocol):
    """The module of a problem's named instances.

    Names are given without the family: "random" where the catalog has "toy/random".
    """

    GENERATORS: Mapping[str, Generator]
    SUITE: tuple[tuple[str, JsonObject], ...]
    TOUR: tuple[str, JsonObject, tuple[str, ...]]


def catalog_of(kind: str) -> Catalog:
    """Return the module of the named instances of a kind."""
    return cast("Catalog", kinds.part(kind, "catalog"))
