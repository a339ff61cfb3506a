"""How objects are displayed: printed, in notebooks, and as pandas data frames.

The code that formats them is in ``stagepack.report``.  It is imported when something is displayed
for the first time, so that importing the classes stays cheap.
"""

from __future__ import annotations

import html
import importlib
import importlib.util
import logging
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stagepack import files
from stagepack.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

PRESENTER = "stagepack.report.shown"
"""The module whose ``text`` and ``html`` show whatever is given."""
FEW = 8  # numbers of a sequence that one line names

log = logging.getLogger("stagepack")


class Shown:
    """What prints as a few readable lines, and in notebooks as a table, with a picture if it can.

    A subclass says in ``_line`` what it is, in one line without its name: cheap, and safe for
    objects that are not whole.
    """

    __slots__ = ()

    def _line(self) -> str:
        return ""

    def __repr__(self) -> str:
        try:
            line = self._line()
        except Exception:  # an object that is not whole yet, in a debugger
            line = ""
        return f"<{type(self).__name__}{': ' if line else ''}{line}>"

    def _text(self, width: int) -> str:
        """Return a few readable lines of at most `width` columns."""
        return str(presenter().text(self, width))

    def _html(self) -> str:
        """Return HTML without scripts or styles."""
        return str(presenter().html(self))

    def __str__(self) -> str:
        try:
            return self._text(shutil.get_terminal_size((100, 40)).columns)
        except Exception:  # to print something never fails, whatever is in it
            log.debug("cannot be shown", exc_info=True)
            return repr(self)

    def _repr_html_(self) -> str:
        if importlib.util.find_spec("jinja2") is None:  # which writes the HTML
            return f"<pre>{html.escape(str(self))}</pre>"
        return self._html()


class ShownRows(Shown):
    """What is a list of rows: it becomes CSV, and a table of pandas.

    A subclass says in ``_columns`` and ``_rows`` which.
    """

    __slots__ = ()

    def _columns(self) -> Sequence[str]:
        raise NotImplementedError

    def _rows(self) -> Iterable[Mapping[str, object]]:
        raise NotImplementedError

    def to_csv(self, path: str | Path | None = None) -> str:
        """Return the rows as CSV, and write them to `path` if given."""
        columns = tuple(self._columns())
        text = files.csv_text(columns, (tuple(row[key] for key in columns) for row in self._rows()))
        if path is not None:
            files.write(path, text)
        return text

    def to_dataframe(self) -> pd.DataFrame:
        """Return the rows as a table; pandas must be installed."""
        return dataframe(self._rows())


class ShownSolution(Shown):
    """A solution: it shows itself alone, and as a table with its instance."""

    __slots__ = ()

    def to_dataframe(self, instance: Any) -> pd.DataFrame:
        """Return one row a stage, buffer, operation or phase, with what it costs there.

        Raises
        ------
        InputError
            When it is no solution of `instance`, or pandas is not installed.
        """
        return dataframe(presenter().columns(instance, self))


def presenter() -> Any:
    """Return the module that shows things."""
    return importlib.import_module(PRESENTER)


def some(values: Iterable[object]) -> str:
    """Return a sequence in short: ``0, 2, 4, ..., 60``.

    >>> some(range(100))
    '0, 1, 2, 3, 4, 5, 6, ..., 99'
    """
    sliced = isinstance(values, Sequence) or hasattr(values, "dtype")  # however long
    known: Any = values if sliced else list(values)
    texts = [str(value) for value in known[: FEW - 1]]
    if len(known) > FEW:
        texts.append("...")
    return ", ".join([*texts, *map(str, known[FEW - 1 :][-1:])])


def dataframe(columns: Mapping[str, object] | Iterable[Mapping[str, object]]) -> pd.DataFrame:
    """Return columns, or rows, as a table of pandas."""
    try:
        import pandas as pd
    except ImportError as error:
        remedy = "pip install 'stagepack[frame]'"
        raise InputError("tables need pandas", remedy=remedy) from error
    return pd.DataFrame(dict(columns) if isinstance(columns, Mapping) else list(columns))
