"""Memories and homes as the command line says them: ``fast=256KiB,cost=1``, ``fast=conv*``."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stagepack.contracts import JsonObject
from stagepack.errors import InputError, suggest
from stagepack.files import size_of
from stagepack.instances.packing import relations
from stagepack.instances.packing.data import Memory, PackingData
from stagepack.instances.packing.instance import usual_objective

UNLIMITED = "unlimited"
"""A size without end."""
REMEDY = (
    f"write fast=256KiB, or {UNLIMITED} for a size, then ,reserved=0-4KiB ,alignment=64 ,cost=2"
)


def memories(texts: Sequence[str], instance: PackingData, changes: Mapping[str, Any]) -> JsonObject:
    """Return the fields of an instance with memories that are given as texts.

    They replace those of equal names, and come after others that it has.  A capacity of all is
    dropped; the objective is what is usual.  `texts`: ``NAME=SIZE[,reserved=LOW-HIGH][,alignment=N]
    [,cost=C]``, or SIZE alone with a name of its own; `changes` are what else changes.
    """
    given: dict[str, Memory] = {}
    for memory in map(_memory, texts):
        if memory.name in given:
            raise InputError(
                f"two are called {memory.name!r}", field="memories", remedy="give each its own name"
            )
        given[memory.name] = memory
    known = [given.pop(memory.name, memory) for memory in instance.memories]
    levels = relations.memories([*known, *given.values()])
    found: JsonObject = {"memories": levels, "capacity": None}
    if instance.homes is not None:  # who may live anywhere may live in new ones, too
        anywhere = np.repeat(
            np.asarray(instance.homes.all(axis=1)).reshape(-1, 1), len(given), axis=1
        )
        found["homes"] = np.concatenate([instance.homes, anywhere], axis=1)
    return {**found, "objective": usual_objective(None, levels, instance.penalties)}


def _memory(text: str) -> Memory:
    name, equals, rest = text.partition("=")
    size, *words = rest.split(",")
    if not equals or not name or not size:
        raise InputError(f"{text!r} is no memory", field="memories", remedy=REMEDY)
    values: dict[str, Any] = {"reserved": []}
    for word in words:
        key, equals, value = word.strip().partition("=")
        if not equals or key not in ("reserved", "alignment", "cost"):
            remedy = suggest(key, ["reserved", "alignment", "cost"])
            raise InputError(f"{word!r} in {text!r} is unknown", field="memories", remedy=remedy)
        if key == "reserved":
            low, dash, high = value.partition("-")
            if not dash:
                told = f"{word!r} in {text!r} is no range"
                raise InputError(told, field="memories", remedy=REMEDY)
            values[key].append((_number(low, text, size_of), _number(high, text, size_of)))
        else:
            values[key] = _number(value, text, size_of if key == "alignment" else int)
    capacity = None if size == UNLIMITED else _number(size, text, size_of)
    return Memory(name, capacity, **{**values, "reserved": tuple(values["reserved"])})


def _number(word: str, text: str, read: Callable[[str], int]) -> int:
    """Return a number; `text` is what it is part of."""
    try:
        return read(word)
    except ValueError:
        raise InputError(
            f"{word!r} in {text!r} is no number", field="memories", remedy=REMEDY
        ) from None


def homes(texts: Sequence[str], instance: PackingData, changes: Mapping[str, Any]) -> JsonObject:
    """Return the field of an instance with homes that are given as texts.

    `texts`: ``MEMORY=BUFFER``, where names of buffers may have * and ?; one that is named for
    several memories may live in each of them.  Of what else changes, `changes`, memories count.
    """
    names = [memory.name for memory in changes.get("memories", instance.memories)]
    old = changes.get("homes", instance.homes)
    found = np.ones((instance.n, len(names)), dtype=bool) if old is None else np.array(old)
    said = np.zeros_like(found)
    ids = instance.ids or tuple(map(str, range(instance.n)))
    for text in texts:
        # Names of memories hold no "=", those of buffers may.
        memory, equals, pattern = text.partition("=")
        pattern = pattern.strip("'\"")
        if memory not in names:
            remedy = f"there are {', '.join(names)}" if names else "give --memory NAME=SIZE, too"
            raise InputError(f"{memory!r} in {text!r} is no memory", field="homes", remedy=remedy)
        match = [at for at, name in enumerate(ids) if name == pattern]
        match = match or [at for at, name in enumerate(ids) if fnmatch.fnmatchcase(name, pattern)]
        if not match:
            remedy = suggest(pattern, ids) if equals else "write --only fast=tensor3"
            raise InputError(f"no buffer is called {pattern!r}", field="homes", remedy=remedy)
        said[match, names.index(memory)] = True
    chosen = said.any(axis=1)
    found[chosen] = said[chosen]
    return {"homes": found}
