"""Documents with something wrong: valid ones of every kind, mutated step by step."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

import stagepack as sp
from stagepack.formats import door

ODD: tuple[Any, ...] = (
    None, True, "", "x", "\x1b[31m", "\u202e", "é" * 300, -1, 0, 1, 3, 0.5, -0.0, 1e-300, 1e300,
    5e-324, 2**31, 2**53 + 1, 2**62, 2**63, 2**64, -(2**63), 10**30, 1e18, [], {}, [[]], [None],
    [0, 0],
    [-1], {"": None}, {"a": 1}, [[[[[]]]]], [2**62, 2**62], ["a", "a"], [1e-300, 1e-300],
)  # fmt: skip


def valid_documents() -> dict[str, dict[str, Any]]:
    """Return a small valid document of every kind, with as many fields as go together."""
    pipeline = sp.PipelinePartition.from_arrays(
        [1.5, 5, 3, 2, 4], devices=2, exclusive=[4] * 5, capacity=40, name="p",
        backward=[1, 2, 3, 4, 5], temporary=[1] * 5, variables=[("v", 1, 2)], training=True,
    )  # fmt: skip
    packing = sp.LmemPacking.from_arrays(
        [4, 4, 8, 4], [0, 3, 0, 5], [3, 9, 9, 9], ids=["a", "b", "c", "d"], capacity=40,
        alignment=[1, 2, 4, 1], gaps=[(2, 3, 5, 0, 8)], reserved=[(36, 40)], name="m",
        hint=[0, -1, -1, 4],
    )  # fmt: skip
    small: dict[str, Any] = {
        "schedule": sp.load("schedule/uniform"),
        "phases": sp.load("phases/six-layers"),
    }
    found = {"pipeline": pipeline, "packing": packing, **small}
    return {name: json.loads(door.dump(value, "x.json")) for name, value in found.items()}


def mutated(document: dict[str, Any], rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """Return a copy with one to three places changed, dropped, doubled or added; and which."""
    changed, what = copy.deepcopy(document), []
    for _ in range(int(rng.integers(1, 4))):
        places = list(_places(changed))
        if not places:
            break
        holder, key, path = places[int(rng.integers(len(places)))]
        act = int(rng.integers(8))
        if act == 0:
            del holder[key]
        elif act == 1 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif act == 2 and isinstance(holder, dict):
            holder["surplus"] = copy.deepcopy(holder[key])
        elif act == 3 and isinstance(holder[key], int | float):
            holder[key] = holder[key] * 2 ** int(rng.integers(-20, 60))
        else:
            holder[key] = copy.deepcopy(ODD[int(rng.integers(len(ODD)))])
        what.append(f"{path}: {act}")
    return "; ".join(what), changed


def _places(value: Any, path: str = "") -> Iterator[tuple[Any, Any, str]]:
    items: Any = ()
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, part in items:
        yield value, key, f"{path}.{key}"
        yield from _places(part, f"{path}.{key}")
