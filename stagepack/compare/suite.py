"""Suites of a comparison in TOML: instances by files, by names of the catalog and by ranges.

::

    methods = ["auto", "greedy"]        # those that are usual where left out
    seeds = [0, 1]
    time_limit = 5                      # seconds of each cell; 0: no limit
    threads = 1

    [[instances]]
    files = "cases/*.csv"               # or a list; what they do not say stands beside it
    kind = "packing"

    [[instances]]
    catalog = "packing/random/*"        # every entry whose name fits
    buffers = [50, 100]                 # every combination of values
    seed = { from = 0, to = 9 }         # both ends included
"""

from __future__ import annotations

import fnmatch
import glob
import itertools
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stagepack import catalog, files
from stagepack.compare.run import labels
from stagepack.contracts import Instance, JsonObject
from stagepack.errors import InputError, suggest
from stagepack.formats import door

SETTINGS = {"methods": list, "seeds": list, "time_limit": (int, float), "threads": int}
KNOWN = ("instances", *SETTINGS)
SOURCES = ("files", "catalog")
MOST = 1_000_000
"""Instances that one entry may say."""


@dataclass(frozen=True)
class Suite:
    """The contents of a suite.

    Attributes
    ----------
    instances : dict
        By label.
    settings : dict
        Settings of the comparison (methods, seeds, time_limit, threads), as far as the suite gives
        them.
    """

    instances: dict[str, Instance]
    settings: JsonObject


def read_suite(path: str | Path) -> Suite:
    """Read a suite.

    Raises
    ------
    InputError
        Naming file and key: no TOML, an unknown key, no instances, a value of another type.
    """
    try:
        text = files.read(path).decode()
        document = tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"is no TOML ({error})", file=path, remedy="mend it") from None
    try:
        for key in document:
            if key not in KNOWN:
                raise InputError("is not known", field=key, remedy=suggest(key, KNOWN))
        settings = {key: _setting(key, document[key]) for key in SETTINGS if key in document}
        groups = document.get("instances", [])
        if not isinstance(groups, list) or not all(isinstance(one, dict) for one in groups):
            raise InputError("is no list", field="instances", remedy="write [[instances]]")
        found = [
            instance
            for number, group in enumerate(groups)
            for instance in _instances(group, f"instances[{number}]", Path(path).parent)
        ]
        if not found:
            raise InputError("has no instances", field="instances", remedy="write [[instances]]")
    except InputError as error:
        raise error.at(path) from None
    return Suite(labels(found), settings)


def _setting(key: str, value: object) -> Any:
    kinds: Any = SETTINGS[key]
    if isinstance(value, bool) or not isinstance(value, kinds) or value == []:
        wanted = "a list that is not empty" if kinds is list else "a number"
        raise InputError(f"is {value!r}", field=key, remedy=f"give {wanted}")
    if isinstance(value, list):
        holds = str if key == "methods" else int
        for one in value:
            if isinstance(one, bool) or not isinstance(one, holds):
                wanted = "names" if holds is str else "integers"
                raise InputError(f"holds {one!r}", field=key, remedy=f"give {wanted}")
    return (value or None) if key == "time_limit" else value


def _instances(group: JsonObject, where: str, folder: Path) -> Iterator[Instance]:
    """Yield the instances of one entry of a suite."""
    source, patterns = _source(group, where)
    rest = {key: value for key, value in group.items() if key not in SOURCES}
    for pattern in patterns:
        found = 0
        for chosen in _combinations(rest, where):
            for instance in _of(source, pattern, chosen, folder):
                found += 1
                yield instance
        if not found:
            looked = f"looked in {(folder / pattern).parent}"
            remedy = "see stagepack list" if source == "catalog" else looked
            raise InputError(f"{pattern!r} fits nothing", field=where, remedy=remedy)


def _source(group: JsonObject, where: str) -> tuple[str, list[str]]:
    """Return which source an entry has, and its patterns: one, or a list of them."""
    sources = [name for name in SOURCES if name in group]
    if len(sources) != 1:
        given = "" if sources else f" ({', '.join(map(str, group))} is none)" if group else ""
        what = f"has {' and '.join(sources)}" if sources else f"says no source{given}"
        raise InputError(what, field=where, remedy='write files = "..." or catalog')
    patterns = group[sources[0]]
    if isinstance(patterns, str):
        patterns = [patterns]
    if not isinstance(patterns, list) or not all(isinstance(one, str) for one in patterns):
        raise InputError(
            f"is {patterns!r}", field=f"{where}.{sources[0]}", remedy="give a pattern, or a list"
        )
    if not patterns:
        raise InputError("is empty", field=f"{where}.{sources[0]}", remedy="give a pattern")
    return sources[0], patterns


def _of(source: str, pattern: str, given: JsonObject, folder: Path) -> Iterator[Instance]:
    """Yield the instances that a pattern names, in the order of their names."""
    if source == "files":
        # Path.glob refuses absolute patterns; glob.glob takes both
        for name in sorted(glob.glob(pattern, root_dir=folder, recursive=True)):
            yield from door.read_all(folder / name, **given)
        return
    for entry in catalog.entries():
        if fnmatch.fnmatchcase(entry.name, pattern):
            yield catalog.load(entry.name, **given)


def _combinations(given: Mapping[str, Any], where: str) -> Iterator[JsonObject]:
    """Yield every combination of the values of parameters: a list, a range, or one value."""
    values: list[range | list[Any]] = []
    for key, value in given.items():
        if isinstance(value, dict):
            ends = value.get("from"), value.get("to")
            whole = set(value) == {"from", "to"} and all(type(end) is int for end in ends)
            if not whole or value["from"] > value["to"]:
                raise InputError(
                    f"is {value!r}", field=f"{where}.{key}", remedy="write {from = 0, to = 9}"
                )
            values.append(range(value["from"], value["to"] + 1))
        else:
            values.append(value if isinstance(value, list) else [value])
    many = math.prod(map(len, values))
    if many > MOST:
        raise InputError(f"says {many:,} instances", field=where, remedy=f"at most {MOST:,}")
    for chosen in itertools.product(*values):
        yield dict(zip(given, chosen, strict=True))
