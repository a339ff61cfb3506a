"""The interface of a file format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stagepack.contracts import Instance, Solution
from stagepack.errors import InputError
from stagepack.instances.words import Parameter, Words

Parse = Callable[[bytes, Words, str], Sequence[Instance]]


@dataclass(frozen=True, repr=False)
class Format:
    """One file format: what it holds, and the functions that read and write it.

    Attributes
    ----------
    name : str
    contexts : mapping of str to frozenset of str
        The kinds of problem it can describe, and for each what may be said beside the file: words
        of :data:`stagepack.instances.problem.VOCABULARY`.
    words : mapping of str to Parameter
        Words that mean something else here than to the kind.
    beside : mapping of str to (str, str)
        Words that name a second file: how names of the first end, and that of the second in its
        place, which is taken where it is there and nothing else is said.
    extensions : tuple of str
        Usual ends of file names, in lower case; reading goes by content, writing by these.
    description : str
        One line.
    sniff : callable
        Whether bytes look like this format, complete or not.
    parse : callable
        ``(data, given, file name) -> instances``, where `given` is what was said beside the file,
        checked; raises `InputError` without the file's name.
    parsers : mapping of str to callable
        What parses other kinds than the first, where the file does not tell.
    dump : callable, optional
        ``(instance, file name) -> bytes``.
    binary : bool
        Whether its files are no text.
    tell : callable, optional
        Which kind the bytes hold, for a format of several.
    solution : callable, optional
        ``(data, instance) -> solution``, where files may hold one.
    dump_solution : callable, optional
        ``(solution, instance, **options) -> bytes``.
    """

    name: str
    contexts: Mapping[str, frozenset[str]]
    extensions: tuple[str, ...]
    description: str
    sniff: Callable[[bytes], bool]
    parse: Parse
    words: Mapping[str, Parameter] = field(default_factory=dict)
    beside: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    parsers: Mapping[str, Parse] = field(default_factory=dict)
    dump: Callable[[Any, str], bytes] | None = None
    binary: bool = False
    tell: Callable[[bytes], str] | None = None
    solution: Callable[[bytes, Any], Solution] | None = None
    dump_solution: Callable[..., bytes] | None = None

    def __repr__(self) -> str:
        return f"<Format {self.name}: {self.description}>"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Problems it can describe."""
        return tuple(self.contexts)

    @property
    def context(self) -> frozenset[str]:
        """What may be said beside a file of any of its kinds."""
        return frozenset().union(*self.contexts.values())

    @property
    def reads(self) -> bool:
        """Whether the format can be read: all can."""
        return True

    @property
    def writes(self) -> bool:
        """Whether the format can be written."""
        return self.dump is not None

    def ending(self, name: str) -> int:
        """Return how long the end of a file's name is that tells this format: 0 for none."""
        ends = (end for end in self.extensions if name.lower().endswith(end))
        return max(map(len, ends), default=0)

    def kind_of(self, data: bytes, wanted: str | None) -> str:
        """Return the kind of problem that `data` holds.

        Raises
        ------
        InputError
            When it is not the one that is `wanted`, or fits several and none is.
        """
        if wanted in self.parsers:
            return str(wanted)
        if wanted is None and self.parsers:
            raise InputError(
                "fits several kinds of problem",
                field="problem",
                remedy="say which (--kind): " + " or ".join(self.kinds),
            )
        kind = self.kinds[0] if self.tell is None else self.tell(data)
        if wanted not in (None, kind):
            raise InputError(
                f"holds {kind}, not {wanted}",
                field="problem",
                remedy="give another file or kind (--kind)",
            )
        return kind


def stem_of(file: str) -> str:
    """Return a file's name without the folder, ``.gz`` and the extension."""
    name = file.removesuffix(".gz")
    stem, _, _ = name.rpartition(".")
    return stem or name
