"""Self-contained pages: no network, no other files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stagepack import files
from stagepack.errors import InputError
from stagepack.report.format import escape
from stagepack.report.view import view

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:"
)
"""The browser itself forbids the page to load anything."""


def write_figure(instance: Any, solution: Any, path: str | Path, scale: str | None = None) -> None:
    """Write the picture of one solution as a self-contained page.

    Raises
    ------
    InputError
        When the file cannot be written, or plotly is not installed.
    """
    kind = view(instance.kind)
    section = kind.page(instance, solution, scale)
    body = [
        f"<header><h1>{escape(instance.name)}</h1>"
        f'<p class="muted">{escape(kind.headline(instance))}</p></header>',
        "<main>",
        section.html,
        "</main>",
    ]
    files.write(path, document(instance.name, body, section.figures))


def document(title: str, body: Iterable[str], figures: Mapping[str, Any]) -> str:
    """Return a whole page, with everything that its figures need."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise InputError(
            "the report needs plotly", remedy="pip install 'stagepack[report]'"
        ) from error
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            f"<title>{escape(title)}</title>",
            f"<style>{_static('page.css')}</style>",
            "</head>",
            "<body>",
            *body,
            f'<script type="application/json" id="figures">{_embedded(figures)}</script>',
            f"<script>{get_plotlyjs()}</script>",
            f"<script>{_static('painting.js')}{_static('page.js')}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _static(name: str) -> str:
    """Return a style sheet or script of the page."""
    return (Path(__file__).parent / "static" / name).read_text(encoding="utf-8")


def _embedded(data: Any) -> str:
    """Return data as JSON that cannot end the script element it stands in."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
