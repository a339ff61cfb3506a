"""What Stagepack raises, and how a line of text is made safe for a terminal."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TypeVar

LONGEST = 500  # characters of one part of a message

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def shown(text: object, longest: int | None = None) -> str:
    r"""Return a name as one line that a terminal shows as it is.

    Control characters, line ends, marks that turn the direction of writing, invisible characters
    and lone surrogates are written as Python escapes: ``\x1b``, ``\u202e``.  A text of more than
    `longest` characters loses its middle, in whole words where it has any.

    >>> shown("a\x1b[31m")
    'a\\x1b[31m'
    >>> shown("abcdefghij", 5)
    'ab…ij'
    """
    text = str(text)
    if longest is not None and len(text) > longest:
        tail = (longest - 1) // 2
        head, end = text[: longest - 1 - tail], text[len(text) - tail :]
        # A word of more than a third of what is kept is cut: nothing else would be left of it.
        begun, left = head.rfind(" "), end.find(" ")
        head = head[:begun] if begun > len(head) * 2 // 3 else head
        end = end[left + 1 :] if 0 <= left < len(end) // 3 else end
        text = f"{head}…{end}"
    if text.isprintable() and text.isascii():
        return text
    return _UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)


def a(noun: str) -> str:
    """Return a name with its article: an ``int``, an ``lmem-packing``, a ``GraphSolution``.

    >>> a("int"), a("str")
    ('an int', 'a str')
    """
    return f"{'an' if noun.startswith(SPOKEN_AS_VOWELS) else 'a'} {noun}"


SPOKEN_AS_VOWELS = (*"aeioAEIO", "lmem", "LmemPacking", "ndarray")
"""How names begin that are read with a vowel."""

LISTED = 40
"""Words that a remedy lists at most."""


def suggest(word: object, known: Iterable[str]) -> str:
    """Return a remedy that names the nearest of the `known` words, or the first of them, if any."""
    known = list(known)
    if not known:
        return "there is none to choose"
    near = get_close_matches(str(word), known, n=3, cutoff=0.5)
    if near:
        return "did you mean " + " or ".join(near) + "?"
    more = [f"... ({len(known):,} in all)"] if len(known) > LISTED else []
    return "choose one of " + ", ".join(known[:LISTED] + more)


class StagepackError(Exception):
    """Base class of all exceptions that Stagepack raises deliberately."""


class InputError(StagepackError):
    """An input of the user is invalid.

    Parameters
    ----------
    problem : str
        What is wrong, in one line.
    file, field : str, optional
        Where the fault is: the file, and the field (or option) in it.
    remedy : str, optional
        How to correct it.
    """

    def __init__(
        self, problem: str, *, file: str | Path = "", field: str = "", remedy: str = ""
    ) -> None:
        self.problem = problem
        self.file = str(file)
        self.field = field
        self.remedy = remedy
        super().__init__(problem)

    def __str__(self) -> str:
        where = ": ".join(shown(part, LONGEST) for part in (self.file, self.field) if part)
        problem = shown(self.problem, LONGEST)
        text = f"{where}: {problem}" if where else problem
        return f"{text}; {shown(self.remedy, LONGEST)}" if self.remedy else text

    def __reduce__(self) -> tuple[object, ...]:
        where = {"file": self.file, "field": self.field, "remedy": self.remedy}
        return partial(InputError, self.problem, **where), ()

    def at(self, file: str | Path) -> InputError:
        """Return the same error with `file` as its place."""
        return InputError(self.problem, file=file, field=self.field, remedy=self.remedy)


ErrorT = TypeVar("ErrorT", bound=BaseException)


def carrying(error: ErrorT, found: object) -> ErrorT:
    """Return an exception that ended a run, with what the run had found as `partial_result`."""
    error.add_note("what was found by then is the attribute partial_result of this exception")
    with contextlib.suppress(AttributeError):  # a class may allow no attributes
        setattr(error, "partial_result", found)  # noqa: B010  exceptions declare none
    return error


class CheckError(StagepackError):
    """A solution fails its check, or bounds contradict each other: a bug in Stagepack."""


class AnswerError(StagepackError):
    """What a callable of the user returned is no solution, or one that breaks a rule."""


class ContradictionError(CheckError):
    """No solution is said to exist although a valid one is known; an engine's word is dropped."""
