"""Self-contained pages: no network, no other files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

from stagepack import files
from stagepack.contracts import Instance
from stagepack.report.style import DARK
from stagepack.report.templating import render
from stagepack.report.view import view

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:"
)
"""The browser itself forbids the page to load anything."""
SCRIPTS = ("dark.js", "rectangles.js", "page.js")


def write_figure(
    instance: Instance,
    solution: object,
    path: str | Path,
    scale: str | None = None,
) -> None:
    """Write the picture of one `solution` as a self-contained page.

    `scale` is one of the view's `scales`; the usual one when absent.
    """
    kind = view(instance.kind)
    section = kind.page(instance, solution, scale)
    text = page(
        "report/templates/figure.html",
        instance.name,
        section.figures,
        headline=kind.headline(instance),
        section=section.html,
    )
    files.write(path, text)


def page(template: str, title: str, figures: Mapping[str, object], **given: object) -> str:
    """Return a whole page with this `title`, and everything that its figures need.

    The `template` extends ``report/templates/page.html``; `figures` are by the ids of their
    elements, `given` is what else the template is about.
    """
    drawing = [_static("plotly-basic.min.js.gz")] if figures else []
    html = render(
        template,
        title=title,
        policy=POLICY,
        style=_static("page.css"),
        figures=_embedded(figures),
        scripts=[*drawing, f"var DARK = {_embedded(DARK)};\n" + "".join(map(_static, SCRIPTS))],
        **given,
    )
    return str(html)


def _static(name: str) -> str:
    """Return a style sheet or script of the page.

    ``plotly-basic.min.js`` is a packed copy of the npm package plotly.js-basic-dist-min: it draws
    bars and lines and weighs a quarter of what the Python package plotly carries.
    """
    data = (Path(__file__).parent / "static" / name).read_bytes()
    return (gzip.decompress(data) if name.endswith(".gz") else data).decode()


def _embedded(data: object) -> str:
    """Return data as JSON that cannot end the script element it stands in."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
