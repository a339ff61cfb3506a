"""Files that commands write."""

from __future__ import annotations

import os
from pathlib import Path

from stagepack.result import InputError


def require_writable(*targets: Path | None) -> None:
    """Refuse what cannot be written before anything is solved."""
    for target in targets:
        if target is None:
            continue
        place = target if target.is_dir() else target.parent
        while not place.exists() and place != place.parent and target.suffix == "":
            place = place.parent
        writable = place.is_dir() and os.access(place, os.W_OK)
        if not writable or (target.exists() and not os.access(target, os.W_OK)):
            raise InputError("cannot be written", file=target, remedy="choose a writable place")
