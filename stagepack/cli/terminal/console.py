"""The console that screens are printed on: nothing that a name holds can steer a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NoReturn

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff]"
)


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "�"


class Screen(Console):
    """A console that shows control characters as pictures, one column each."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render as rich does, without control characters but rich's own."""
        for segment in super().render(renderable, options):
            if segment.control or not _STEERING.search(segment.text):
                yield segment
            else:
                yield Segment(_STEERING.sub(_picture, segment.text), segment.style)

    def on_broken_pipe(self) -> NoReturn:
        """Leave a closed pipe to the command's own end."""
        raise BrokenPipeError
