"""The interface of a problem's report, with defaults for everything a problem does not define."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from stagepack import kinds
from stagepack.contracts import InstanceOf, JsonObject, Number, SolutionT
from stagepack.errors import InputError, a
from stagepack.report import format as as_text
from stagepack.report.table import Account, Head, Sheet
from stagepack.result import Result

if TYPE_CHECKING:
    from stagepack.report.canvas import Drawn
    from stagepack.report.extra import Axes, Figure
    from stagepack.report.parts import Section

InstanceT = TypeVar("InstanceT", bound=InstanceOf[Any])


class Charts(NamedTuple):
    """Interactive figures of several solutions, on equal axes."""

    # One for each solution, in their order.  Their layout is ``look(title)`` of
    # :mod:`stagepack.report.figures`, with a height.
    figures: list[Figure]
    # What the page's script paints below them, if anything.
    rectangles: Mapping[str, Any] = MappingProxyType({})
    # Whether a page of several solutions draws the one that it shows first alone.
    first: bool = False


class View(Generic[InstanceT, SolutionT]):
    """What a kind of problem looks like; a kind replaces what it knows better.

    ``draw(instance, solution, ax)`` draws a solution, or that of a `Result`, with matplotlib, with
    ``scale=`` where there are several, on `ax` or, where that is None, a new figure
    (:func:`.canvas.axes`), and returns :class:`.canvas.Drawn`.  ``figures(instance, solutions)``
    are interactive ones on equal axes, also with ``scale=``; where there are several of one
    solution, by name.  Both may be names of functions beside the view, ``module.function``: they
    are loaded when something is drawn.
    """

    counted = ""  # what objectives are counted in
    chosen = "Solution of"  # what people choose in a report
    scales: tuple[str, ...] = ()  # of its pictures; none where there is only one
    things: tuple[type, ...] = ()  # solutions, and whatever else of this kind shows itself

    def __init__(
        self,
        draw: Callable[..., Drawn] | str | None = None,
        figures: Callable[..., Charts | dict[str, Charts]] | str | None = None,
    ) -> None:
        self._draw, self._figures = draw, figures

    @property
    def drawn(self) -> bool:
        """Whether there are pictures of solutions."""
        return self._draw is not None

    @property
    def interactive(self) -> bool:
        """Whether there are interactive ones."""
        return self._figures is not None

    def _function(self, given: Callable[..., Any] | str) -> Callable[..., Any]:
        """Return a function that is given, perhaps by its name."""
        if not isinstance(given, str):
            return given
        package, (module, name) = type(self).__module__.rpartition(".")[0], given.split(".")
        found: Callable[..., Any] = getattr(importlib.import_module(f"{package}.{module}"), name)
        return found

    def facts(self, instance: InstanceT) -> JsonObject:
        """Return sizes, totals and simple bounds as plain data."""
        return {}

    def lines(self, given: JsonObject) -> list[tuple[str, str]]:
        """Return facts as (what, text) for people."""
        return []

    def headline(self, instance: InstanceT) -> str:
        """Return what an instance is, in one line."""
        return f"{instance.kind}, {instance.objective}"

    def part(self, instance: InstanceT, microbatches: int) -> str:
        """Return what an instance is as part of a step of a plan, in one line."""
        return self.headline(instance)

    def worth(self, instance: InstanceT, value: Number | None) -> str:
        """Return an objective value or bound in words."""
        return as_text.number(value)

    def worth_with_unit(self, instance: InstanceT, value: Number | None) -> str:
        """Return it in words with what it is counted in, where the words do not say that."""
        words, unit = self.worth(instance, value), self.unit(instance)
        return f"{words} {unit}" if words == as_text.number(value) and unit.isalpha() else words

    def unit(self, instance: InstanceT) -> str:
        """Return what objectives are counted in."""
        return self.unit_of(str(instance.objective))

    def unit_of(self, objective: str) -> str:
        """Return what an objective is counted in, as far as its name tells."""
        return self.counted

    def goal(self, instance: InstanceT) -> str:
        """Return the objective in words."""
        return str(instance.objective)

    def objective(self, instance: InstanceT) -> str:
        """Return the objective with its unit: ``peak in bytes``."""
        name, unit = self.goal(instance), self.unit(instance)
        return name if unit in ("", name) else f"{name} in {unit}"

    def solution_facts(self, instance: InstanceT, solution: SolutionT) -> JsonObject:
        """Return what a solution amounts to, as plain data under the names it has in JSON."""
        return {"objective": instance.evaluate(solution)}

    def account(self, instance: InstanceT, solution: SolutionT) -> Account:
        """Return what a solution amounts to, for people."""
        return Account([("Objective", self.worth(instance, instance.evaluate(solution)))])

    def columns(self, instance: InstanceT, solution: SolutionT) -> JsonObject | list[JsonObject]:
        """Return the parts of a solution by columns, or by rows."""
        return [self.solution_facts(instance, solution)]

    def against(
        self, instance: InstanceT, solution: SolutionT, measured: str | Path
    ) -> list[JsonObject]:
        """Return what a solution should cost beside values `measured`, a file of JSON or CSV."""
        raise InputError(
            f"nothing is measured of {a(instance.kind)}",
            field="--measured",
            remedy="leave it out",
        )

    def against_sheet(self, rows: Sequence[JsonObject]) -> Sheet:
        """Return what :meth:`against` found, for people."""
        return Sheet(list(rows[0]), [list(map(str, row.values())) for row in rows])

    def shown(self, thing: object, *, whole: bool = False) -> list[str | Head | Sheet]:
        """Return how one of `things` prints; the `whole` of it has all its columns."""
        return [repr(thing)]

    def picture(
        self,
        instance: InstanceT,
        solution: object,
        ax: Axes | None = None,
        scale: str | None = None,
    ) -> Drawn:
        """Return a solution, or several where the kind has such pictures, drawn with matplotlib.

        On `ax`, or a new figure; `scale` is one of `scales`, or the usual one.
        """
        if self._draw is None:
            raise no_picture(instance.kind)
        drawn: Drawn = self._function(self._draw)(instance, solution, ax, **_scaled(scale))
        return drawn

    def charts(
        self, instance: InstanceT, solutions: Sequence[SolutionT], scale: str | None = None
    ) -> dict[str, Charts]:
        """Return interactive figures of several `solutions`, by the ends of their elements' ids.

        `scale` is one of `scales`, or the usual one.
        """
        if self._figures is None:
            raise no_picture(instance.kind, interactive=True)
        found = self._function(self._figures)(instance, solutions, **_scaled(scale))
        return found if isinstance(found, dict) else {"chart": found}

    def page(
        self, instance: InstanceT, solution: SolutionT | Result[SolutionT], scale: str | None = None
    ) -> Section:
        """Return the picture of a `solution` as part of a page; `scale` as in :meth:`picture`."""
        from stagepack.report.parts import Section, panel

        found = instance.solution_in(solution)
        drawn: JsonObject = {}
        parts = [
            panel(name, charts.figures[0], drawn, rectangles=charts.rectangles)
            for name, charts in self.charts(instance, [found], scale).items()
        ]
        return Section("\n".join([*parts, self.html(instance, found)]), drawn)

    def section(
        self,
        instance: InstanceT,
        solved: Mapping[str, Result[SolutionT]],
        best: Result[SolutionT] | None,
        anchor: str,
    ) -> Section:
        """Return, for a choice of solutions, the chart and what each amounts to.

        Results that have a solution are `solved`, by the name of their method; the `best` is shown
        first, if there is one.  Ids of elements begin with an `anchor`.
        """
        from stagepack.report.parts import choices, choose, panel, section

        found = choices(solved)
        selector, start = choose(self.chosen, found, best, lambda v: self.worth(instance, v))
        solutions: list[SolutionT] = [result.solution for _, result in found]
        drawn: JsonObject = {}
        charts = {} if self._figures is None else self.charts(instance, solutions)
        panels = [
            panel(
                f"{anchor}-{name}", one.figures[start], drawn, of=f"{self.chosen} {found[start][0]}"
            )
            if one.first and len(found) > 1
            else panel(
                f"{anchor}-{name}", one.figures, drawn, start=start, rectangles=one.rectangles
            )
            for name, one in charts.items()
        ]
        accounts = [self.html(instance, solution) for solution in solutions]
        return section(drawn, selector, start, panels=panels, accounts=accounts, stacked=True)

    def beside(
        self, instance: InstanceT, solved: Mapping[str, Result[SolutionT]], anchor: str
    ) -> Section:
        """Return the main chart of each of a few results, at one scale.

        Parameters
        ----------
        instance : instance of this kind
        solved : mapping
            Results that have a solution, by their titles.
        anchor : str
            What the ids of elements begin with.
        """
        from stagepack.report.parts import Section, panel

        drawn: JsonObject = {}
        solutions = [instance.solution_in(result) for result in solved.values()]
        charts = next(iter(self.charts(instance, solutions).values()))
        panels = []
        for at, (title, figure) in enumerate(zip(solved, charts.figures, strict=True)):
            figure.update_layout(title_text=title)
            panels.append(
                panel(f"{anchor}{at}", figure, drawn, start=at, rectangles=charts.rectangles)
            )
        return Section(f'<div class="pair">{"".join(panels)}</div>', drawn)

    def html(self, instance: InstanceT, solution: SolutionT) -> str:
        """Return what a solution amounts to, as HTML without scripts or styles."""
        from stagepack.report.templating import part

        return part("account", self.account(instance, solution))


AnyView = View[Any, Any]
"""That of a kind which its reader does not know."""


def view(kind: str) -> AnyView:
    """Return what a kind of problem looks like; the defaults where it says nothing."""
    if kind not in kinds.KINDS:
        return View()
    try:
        found: AnyView = kinds.part(kind, "report").VIEW
    except ModuleNotFoundError as missing:
        if not str(missing.name).startswith(f"{kinds.KINDS[kind].home}.report"):
            raise
        return View()
    return found


def no_picture(kind: str, field: str = "", *, interactive: bool = False) -> InputError:
    """Return the error that there is no picture of a `kind`, or none that is `interactive`.

    `field`: the option that asked for it.
    """
    if interactive:
        return InputError(
            f"there is no interactive picture of {a(kind)}",
            field=field,
            remedy="end the name in .png, .svg or .pdf",
        )
    return InputError(f"there is no picture of {a(kind)}", field=field)


def require_scale(view: AnyView, kind: str, scale: str | None, field: str = "scale") -> None:
    """Refuse a scale that the pictures of a `kind` do not have; None is the usual one.

    `view` is that of the kind.  Messages name the argument or option, `field`.
    """
    if scale is None or scale in view.scales:
        return
    if not view.scales:
        raise InputError(f"a {kind} has one scale", field=field, remedy="leave it out")
    raise InputError(
        f"unknown scale {scale!r}", field=field, remedy="choose " + " or ".join(view.scales)
    )


def _scaled(scale: str | None) -> dict[str, str]:
    return {} if scale is None else {"scale": scale}
