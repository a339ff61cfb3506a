"""What each problem says of itself: the contract between its folder and everything above.

``instances/<family>/problem.py`` defines ``PROBLEM``; beside it, ``native.py`` reads and writes its
files (``Document``, ``GIVEN``, ``parse``, ``dump``).  It is loaded when it is needed, and so are
the classes: whoever asks for words alone, as the command line does for its help, waits for no
arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from stagepack import kinds
from stagepack.contracts import Instance, JsonObject
from stagepack.instances.words import SHARED, Parameter, Words


@dataclass(frozen=True)
class Change:
    """A field of an instance that the command line changes once the instance is read."""

    name: str  # the field
    option: str  # what the command line calls it
    unit: str  # what its values are
    description: str
    # Where the option names a file, what reads it: module of the wing of formats and function in
    # it, ``(file, instance) -> value``.  Otherwise it takes integers, as often as it is given.
    read: str = ""
    # Or texts, as often: what reads them, as for `read`, ``(texts, instance, changes so far) ->
    # fields that change``.
    texts: str = ""


@dataclass(frozen=True)
class Export:
    """What solutions are written to for other tools."""

    ending: str  # how names of the files end
    # Public name of the function ``(instance, solution) -> JSON data``; without it a format writes
    # them.
    document: str = ""
    # What is in every such document, and in no other.
    marks: Mapping[str, str] = field(default_factory=dict)
    # Public name of the function ``(instance, document) -> (violations, objective)``, if there is
    # one: then ``stagepack check`` takes such a document in place of a solution.
    check: str = ""
    # Where there are several kinds of files: how their names end, and the public name of the
    # function ``(instance, solution) -> text`` of each.
    texts: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()  # what the format that writes them is told besides, if it is


@dataclass(frozen=True)
class Tool:
    """A tool that reads solutions in a form of its own."""

    # Module of the wing of formats and function in it, ``module.function``: ``(instance, solution,
    # **options) -> text or bytes``; the solution is a valid one.
    writer: str
    writes: str  # what the tool reads, in a few words
    # What else that function takes, and what each says; from the command line as text.
    options: Mapping[str, str] = field(default_factory=dict)
    # Function beside `writer`, ``(instance, **options)``, that refuses what no solution could mend,
    # so that it is told before anything is solved; "" for none.
    requires: str = ""
    # How names of its files end, if nothing else is written under such names; "" for none.
    ending: str = ""


class Native(Protocol):
    """The module of a problem's own files."""

    Document: type
    GIVEN: frozenset[str]

    def parse(self, document: Any, given: Words) -> Instance:
        """Return the instance of a `Document`, changed as is `given` of `GIVEN` beside it."""

    def dump(self, instance: Any) -> JsonObject:
        """Return what the document of an instance says, besides kind, version, name, source."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One kind of problem."""

    kind: str  # its name in files
    # Public name of its class, which is a :class:`stagepack.contracts.Instance`; that of its
    # solutions has ``from_dict(data, instance)``, ``to_dict()`` and ``malformed()``.
    instance: str
    objectives: tuple[str, ...]  # what may be minimised
    solution_fields: tuple[str, ...]  # what a document that is a solution must have
    # Whether a solution can be read only beside its instance, which names its parts.
    needs_instance: bool = False
    # Words of its own, or shared ones that mean something else here.
    words: tuple[Parameter, ...] = ()
    changes: tuple[Change, ...] = ()
    # Whether some of its `what_ifs` are options, so that what they save is told unasked.
    frees: bool = False
    export: Export | None = None
    # Tools that solutions are written for, by name.
    tools: Mapping[str, Tool] = field(default_factory=dict)
    # Kinds of which an instance can be made from a solution, and what makes it, among the public
    # names of `stagepack` and what they hold: ``(instance, solution) -> instance``.
    becomes: Mapping[str, str] = field(default_factory=dict)
    # Names of the package `stagepack` that are its own: each with the module of its folder that
    # holds it ("" for the folder itself).
    public: Mapping[str, str] = field(default_factory=dict)

    @functools.cached_property
    def own(self) -> Mapping[str, Parameter]:
        """Its own words by name."""
        return {word.name: word for word in self.words}

    def part(self, name: str) -> Any:
        """Return a module of its folder; "" for the folder itself."""
        return kinds.part(self.kind, "instances", *filter(None, [name]))

    def named(self, name: str) -> Any:
        """Return what a name among `public` stands for."""
        return getattr(self.part(self.public[name]), name)

    @property
    def solution(self) -> type[Any]:
        """The class of its solutions."""
        return cast("type[Any]", self.named(self.instance).solution_type)

    @property
    def native(self) -> Native:
        """The module of its own files."""
        return cast("Native", self.part("native"))


def problem(kind: str) -> Problem:
    """Return what is to be known of a kind."""
    return cast("Problem", kinds.part(kind, "instances", "problem").PROBLEM)


PROBLEMS: kinds.ByKind[Problem] = kinds.ByKind(problem)


_SHARED = {word.name: word for word in SHARED}


@functools.cache
def _words_of(among: tuple[str, ...]) -> dict[str, Parameter]:
    """Return the shared words and those of some kinds, by name; what comes first stays."""
    words = dict(_SHARED)
    for kind in among:
        for word in PROBLEMS[kind].words:
            words.setdefault(word.name, word)
    return words


class _Vocabulary(Mapping[str, Parameter]):
    """The shared words and those of every problem, by name: one table for the kinds there are."""

    def __getitem__(self, name: str) -> Parameter:
        return _SHARED[name] if name in _SHARED else _words_of(tuple(kinds.KINDS))[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_words_of(tuple(kinds.KINDS)))

    def __len__(self) -> int:
        return len(_words_of(tuple(kinds.KINDS)))


VOCABULARY: Mapping[str, Parameter] = _Vocabulary()


def word(name: str, kind: str) -> Parameter:
    """Return a word as a kind of problem means it: its own before what is shared."""
    return PROBLEMS[kind].own.get(name) or VOCABULARY[name]


def choices(word: Parameter, kind: str) -> tuple[str, ...]:
    """Return the values that a word has for a kind of problem; () for any."""
    return PROBLEMS[kind].objectives if word.name == "objective" else word.choices


def coerce(name: str, value: object, kind: str) -> Any:
    """Return the `value` given for the word `name`, perhaps as text, as the type that the word has.

    Refuses another type, numbers out of range, and no objective of this `kind` of problem.
    """
    known = word(name, kind)
    among = choices(known, kind)
    another = (
        isinstance(value, str)
        and name == "objective"
        and value not in among
        and any(value in other.objectives for other in PROBLEMS.values())
    )
    return known.of(value, among, kind if another else "")
