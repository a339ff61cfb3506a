"""HTML from templates; inserted text is escaped unless it is HTML already."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stagepack.errors import shown
from stagepack.report import format as as_text
from stagepack.report.extra import extra

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

PACKAGE = Path(__file__).parent.parent
PARTS = "report/templates/parts.html"


def render(template: str, **given: object) -> Markup:
    """Return a template, filled in.

    `template` is a file, relative to the package; `given` is what it calls by these names.
    """
    from markupsafe import Markup

    return Markup(_environment().get_template(template).render(given))


def part(name: str, *given: object) -> Markup:
    """Return one of the parts that pages are made of: a macro of ``parts.html``."""
    macros: Any = _environment().get_template(PARTS).module
    found: Markup = getattr(macros, name)(*given)
    return found


@cache
def _environment() -> Environment:
    jinja2 = extra("jinja2")
    environment: Environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PACKAGE),
        autoescape=True,
        finalize=_visible,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for words in (as_text.number, as_text.gap, as_text.seconds, as_text.ratio, as_text.plural):
        environment.filters[words.__name__] = words
    environment.filters["longest_word"] = _longest_word
    return environment


def _longest_word(text: str) -> int:
    """Return how many letters the longest word has, for which there should be room."""
    return max(map(len, text.split()), default=0)


def _visible(value: object) -> object:
    """Return text with its control characters escaped; HTML as it is."""
    return value if hasattr(value, "__html__") else shown(value)
