"""The package's page is README.md; on it links lead to the source that pyproject.toml names."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import setup

PICTURES = (".png", ".svg")


def absolute(text: str, source: str) -> str:
    """Return a page whose links and pictures are found from everywhere."""

    def found(match: re.Match[str]) -> str:
        path = match["path"]
        kind = "raw" if path.partition("#")[0].endswith(PICTURES) else "blob"
        return f"{match['before']}{source.rstrip('/')}/{kind}/HEAD/{path}{match['after']}"

    for before, path, after in (
        (r"\]\(", r"[^)\s]+", r"\)"),
        ('(?:src|srcset|href)="', '[^"]+', '"'),
    ):
        link = rf"(?P<before>{before})(?!\w+:|#)(?P<path>{path})(?P<after>{after})"
        text = re.sub(link, found, text)
    return text


here = Path(__file__).parent
readme = (here / "README.md").read_text(encoding="utf-8")
project = tomllib.loads((here / "pyproject.toml").read_text(encoding="utf-8"))["project"]
address = project.get("urls", {}).get("Source")
setup(
    long_description=absolute(readme, address) if address else readme,
    long_description_content_type="text/markdown",
)
