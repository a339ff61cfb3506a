"""Running the command line as a process of its own, and what it is tried on."""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
STAGEPACK = f"{sys.executable} -m stagepack"

CHAIN = {
    "problem": "pipeline-partition",
    "version": 1,
    "name": "five",
    "layers": {"forward": [1, 5, 3, 2, 4], "exclusive": {"weights": [4, 4, 4, 4, 4]}},
    "cluster": {"devices": [{"memory": 12}, {"memory": 12}]},
}


def shell(command: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )


def run(
    *arguments: str | Path,
    columns: int = 100,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own: from scratch where its environment is given.

    Else it is a child of one that has loaded the libraries, which takes most of the time.
    """
    words = [str(word) for word in arguments]
    variables = {**os.environ, "COLUMNS": str(columns), **(env or {})}
    if env is None and hasattr(os, "fork"):
        return _run_in_child(words, variables, cwd or Path.cwd())
    return subprocess.run(
        [sys.executable, "-m", "stagepack", *words],
        capture_output=True,
        text=True,
        check=False,
        env=variables,
        cwd=cwd,
    )


def _run_in_child(
    words: list[str], variables: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Let the server of this process run a command."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as scratch:
        out, err = Path(scratch) / "out", Path(scratch) / "err"
        task = {
            "arguments": words,
            "folder": str(folder),
            "variables": variables,
            "out": str(out),
            "err": str(err),
        }
        server.stdin.write(json.dumps(task) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(words, code, out.read_text(), err.read_text())


@functools.cache
def _server() -> subprocess.Popen[str]:
    """Return the server of :mod:`tests.cli.server`, which ends with this process."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    atexit.register(server.communicate)
    return server


def python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **options.pop("env", {})}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, env=env
    )
