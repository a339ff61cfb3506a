"""Running the command line as a process of its own, and what it is tried on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

CHAIN = {
    "problem": "pipeline-partition",
    "version": 1,
    "name": "five",
    "layers": {"forward": [1, 5, 3, 2, 4], "exclusive": {"weights": [4, 4, 4, 4, 4]}},
    "cluster": {"devices": [{"memory": 12}, {"memory": 12}]},
}


def run(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stagepack", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "100", **options.pop("env", {})},
        **options,
    )


def python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **options.pop("env", {})}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, env=env
    )
