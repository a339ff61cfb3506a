"""What a format is, and the list of those there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from stagepack.instances.catalog.parameters import suggest
from stagepack.instances.formats.context import Context
from stagepack.instances.pipeline import PipelinePartition
from stagepack.result import InputError


@dataclass(frozen=True)
class Format:
    """One file format: what it holds, and the functions that read and write it.

    Attributes
    ----------
    name : str
    kinds : tuple of str
        Problems it can describe.
    extensions : tuple of str
        Usual ends of file names; reading goes by content, writing by these.
    description : str
        One line.
    context : frozenset of str
        What may be said beside the file: names of :class:`.context.Context`.
    sniff : callable
        Whether bytes look like this format, complete or not.
    parse : callable
        ``(data, kind, context) -> instances``; raises `InputError` without the file's name.
    dump : callable, optional
        ``instance -> bytes``.
    """

    name: str
    kinds: tuple[str, ...]
    extensions: tuple[str, ...]
    description: str
    context: frozenset[str]
    sniff: Callable[[bytes], bool]
    parse: Callable[[bytes, str | None, Context], list[PipelinePartition]]
    dump: Callable[[PipelinePartition], bytes] | None = None

    @property
    def reads(self) -> bool:
        """Whether the format can be read: all can."""
        return True

    @property
    def writes(self) -> bool:
        """Whether the format can be written."""
        return self.dump is not None


def by_name(known: Iterable[Format], name: str) -> Format:
    """Return the format called `name`.

    Raises
    ------
    InputError
        For an unknown name.
    """
    known = list(known)
    for candidate in known:
        if candidate.name == name:
            return candidate
    raise InputError(
        f"unknown format {name!r}",
        field="format",
        remedy=suggest(name, [candidate.name for candidate in known]),
    )


def by_content(known: Iterable[Format], data: bytes) -> Format:
    """Return the format that `data` is written in.

    Raises
    ------
    InputError
        When no format or several recognise it.
    """
    known = list(known)
    found = [candidate for candidate in known if candidate.sniff(data)]
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(
            "could be " + " or ".join(candidate.name for candidate in found),
            field="format",
            remedy="name the format (--format)",
        )
    raise InputError(
        "is in no format that is known here",
        field="format",
        remedy="known are " + ", ".join(candidate.name for candidate in known),
    )
