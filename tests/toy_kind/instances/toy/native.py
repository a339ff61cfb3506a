"""Native files of knapsacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from tests.toy_kind.instances.toy import Knapsack

GIVEN = frozenset({"capacity", "objective"})


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A toy-knapsack instance."""

    problem: Literal["toy-knapsack"]
    version: Literal[1]
    sizes: list[int]
    values: list[int]
    capacity: int
    name: str = "bag"
    source: str = ""


def parse(document: Document, given: Mapping[str, Any]) -> Knapsack:
    said = msgspec.structs.asdict(document) | dict(given)
    del said["problem"], said["version"]
    return Knapsack.from_arrays(**said)


def dump(instance: Knapsack) -> dict[str, Any]:
    return {
        "sizes": instance.sizes,
        "values": instance.values,
        "capacity": instance.capacity,
    }
