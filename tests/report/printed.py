"""What a terminal shows."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console


def printed(content: Any, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, no_color=True)
    console.print(content)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
