"""Where machine code is kept."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import shutil
import sys
from pathlib import Path

KERNELS = ("*kernels.py", "*_state.py", "rules.py", "sweep.py")
"""Files that hold kernels, or constants that are compiled into them; they import no others."""
COMPILERS = ("cache.py", "compiled.py", "dispatchers.py")
"""Files that say how these are compiled."""


@functools.cache
def folder_of(own: str, checked: bool) -> Path | None:
    """Return where machine code of these sources is kept; None where nothing can be written.

    Numba looks at the function's own file only to tell whether what it has kept is of this source;
    constants and kernels of other files are compiled into it.  So each state of all sources, and
    each version of numba, has a folder of its own.  That of another state goes.

    `own` is the folder that a user names (NUMBA_CACHE_DIR), or ""; `checked`: the code checks
    indices.
    """
    package = Path(__file__).parents[1]
    place = hashlib.sha256(str(package).encode()).hexdigest()[:8] + "-checked" * checked
    for root in [Path(own)] if own else [package / "__pycache__", _user_cache()]:
        folder = root / f"stagepack-kernels-{place}" / sources()
        with contextlib.suppress(OSError):
            new = not folder.is_dir()
            folder.mkdir(parents=True, exist_ok=True)
            if not os.access(folder, os.W_OK):
                continue
            for other in folder.parent.iterdir() if new else ():
                if other != folder:
                    shutil.rmtree(other, ignore_errors=True)
            return folder
    return None


def _user_cache() -> Path:
    """Return the folder for what programs keep for a user."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@functools.cache
def sources() -> str:
    """Return a fingerprint of the sources of all kernels, and of what compiles these, and how."""
    package = Path(__file__).parents[1]
    files = {path for pattern in KERNELS for path in package.rglob(pattern)}
    files |= {Path(__file__).parent / name for name in COMPILERS}
    whole = hashlib.sha256(importlib.metadata.version("numba").encode())
    for path in sorted(files):
        whole.update(path.read_bytes())
    return whole.hexdigest()[:16]
