"""Pictures of solutions: checks before a run that they can be drawn, and draws them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from stagepack.contracts import Instance, Solution
from stagepack.errors import InputError
from stagepack.result import Result


def require_drawable(kind: str, path: Path, option: str) -> None:
    """Refuse a picture that cannot be drawn: of this kind, in this format, or without the extra.

    `kind` is the problem; the end of `path` says the format; `option` named it, for messages.
    """
    from stagepack.report.canvas import require_picture
    from stagepack.report.figures import graph_objects
    from stagepack.report.view import no_picture, view

    known, page = view(kind), path.suffix.lower() == ".html"
    if not known.drawn or (page and not known.interactive):
        raise no_picture(kind, option, interactive=known.drawn)
    try:
        if page:
            graph_objects()
        else:
            require_picture(path)
    except InputError as error:
        error.field = option
        raise


def require_pages(option: str = "--html") -> None:
    """Refuse a page where the extra is missing without which none can be written.

    `option` asks for it, for the message.
    """
    needed = (name for name in ("plotly", "jinja2") if importlib.util.find_spec(name) is None)
    for name in needed:
        raise InputError(f"needs {name}", field=option, remedy="pip install 'stagepack[report]'")


def draw(
    problem: Instance, answer: Solution | Result[Solution], path: Path, scale: str | None = None
) -> None:
    """Write the picture of an `answer` to a `problem`: .html is interactive, others static.

    `scale` is one of the view's `scales`.
    """
    from stagepack.report.plot import plot
    from stagepack.report.view import require_scale, view

    require_scale(view(problem.kind), problem.kind, scale, "--scale")
    plot(problem, answer, path, scale=scale)
