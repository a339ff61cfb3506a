"""A comparison as users see it: printed, in notebooks, as a table, a page or a file."""

from __future__ import annotations

import shutil
from pathlib import Path

from stagepack import files
from stagepack.compare import page
from stagepack.compare import table as tables
from stagepack.compare.outcomes import Cell, Failure, Outcomes
from stagepack.compare.results import NOTHING, StoredResults, gathered
from stagepack.contracts import JsonObject
from stagepack.files import finite, json_text
from stagepack.report.extra import Axes
from stagepack.report.pages import Chapter, chapter
from stagepack.report.templating import render
from stagepack.spelling import renamed

__all__ = ["Cell", "Comparison", "Failure"]


class Comparison(Outcomes):
    """The results of a comparison, and ways to show and export them.

    The data are those of :class:`stagepack.compare.outcomes.Outcomes`.
    """

    def table(self, width: int | None = None, *, color: bool = False) -> str:
        """Return the comparison as text of at most `width` columns (the terminal's by default)."""
        return tables.render(
            self, width or shutil.get_terminal_size((120, 40)).columns, color=color
        )

    def to_dict(self) -> JsonObject:
        """Return everything but the instances as plain JSON data."""
        data: JsonObject = finite(
            {
                "settings": {key: _plain(value) for key, value in self.settings.items()},
                "repeat": self.repeat,
                "started": self.started,
                "runtime": round(self.runtime, 3),
                "interrupted": self.interrupted,
                "contradictions": self.contradictions,
                "unkept": self.lost,
                "versions": self.versions,
                "rows": self.rows,
                "results": [
                    {"label": c.instance, "seed": c.seed, **self.results[c].to_dict()}
                    for c in self.cells
                    if c in self.results
                ],
            }
        )
        return data

    def to_json(self, path: str | Path | None = None) -> str:
        """Return :meth:`to_dict` as one JSON document, and write it to `path` if given."""
        text = json_text(self.to_dict()) + "\n"
        if path is not None:
            files.write(path, text)
        return text

    def to_results(self) -> StoredResults:
        """Return the cells as those of a store are read: profiles, curves, wins and losses."""
        ran = [cell for cell in self.cells if self._status(cell) not in ("n/a", "skipped")]
        return gathered((self._question(cell), self._found(cell)) for cell in ran)

    def plot(
        self,
        path: str | Path | None = None,
        ax: Axes | None = None,
        *,
        what: str = "ratio",
        goal: str | float | None = None,
    ) -> Axes:
        """Draw a curve for each method: see :meth:`.StoredResults.plot`.

        `path`, `ax`, `goal`: as there; `what`: "ratio", "profile", "cactus", "gap" or "integral".
        """
        return self.to_results().plot(path, ax, what=what, goal=goal)

    @renamed(directory="path")
    def to_html(self, path: str | Path) -> Path:
        """Write a page of its own, ``index.html``, into the folder `path`, and return where."""
        return page.write_html(self, path)

    def _status(self, cell: Cell) -> str:
        failure = self.failures.get(cell)
        return str(self.results[cell].status) if failure is None else failure.status

    def _question(self, cell: Cell) -> JsonObject:
        """Return what a cell answers, as a store has it."""
        instance = self.instances[cell.instance]
        asked = {"method": cell.method, "seed": cell.seed}
        problem, digest = getattr(instance, "kind", ""), getattr(instance, "digest", "")
        return {"label": cell.instance, "problem": problem, "digest": digest, "arguments": asked}

    def _found(self, cell: Cell) -> JsonObject:
        """Return the answer of a cell, or why there is none, as a store has it."""
        failure = self.failures.get(cell)
        if failure is not None:
            return {**NOTHING, "status": failure.status, "reason": failure.reason}
        result = self.results[cell]
        trace = [{"time": e.time, "kind": e.kind, "value": e.value} for e in result.trace.events]
        return {**self._row(cell, None), "trace": trace}

    def _text(self, width: int) -> str:
        return self.table().rstrip()

    def _html(self) -> str:
        return tables.fragment(self)


def _plain(setting: object) -> object:
    """Return a setting as JSON can hold it: callbacks and results as they are called."""
    known = isinstance(setting, str | int | float | list | tuple | dict | None)
    return setting if known else repr(setting)


@chapter.register
def _chapter(given: Comparison, anchor: str, figures: JsonObject) -> Chapter:
    about = page.shown_in(given, anchor, figures)
    return Chapter(f"{given.verdict}.", render("compare/templates/comparison.html", **about))
