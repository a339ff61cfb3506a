"""A process that has loaded what commands load, and lets children of its own run them.

``python -m tests.cli.server``: a line of stdin is a command, the answer is its exit code.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import sys
import threading

LOADED = (
    "highspy",
    "jinja2",
    "ortools.sat.python.cp_model",
    "plotly.graph_objects",
    "rich.live",
    "stagepack.__main__",
    "stagepack.cli",
    "stagepack.compare.page",
    "stagepack.catalog",
    "stagepack.formats.door",
    "stagepack.report.html",
    "stagepack.report.shown",
    "stagepack.solve",
    "typer.rich_utils",
)


def probe() -> None:
    """Run a kernel."""
    from stagepack.heuristics.pipeline.prober import LeastLimit
    from stagepack.instances.pipeline import PipelinePartition
    from stagepack.instances.pipeline.ranges import RangeCosts

    LeastLimit(RangeCosts(PipelinePartition.from_arrays([1, 1], devices=2)), 1).go_on()


def serve() -> None:
    """Answer until stdin ends."""
    from stagepack.methods import Deferred
    from stagepack.solve import REGISTRY

    runs = [method.run for methods in REGISTRY.values() for method in methods]
    late = {run.module: None for run in runs if isinstance(run, Deferred)}
    for name in (*LOADED, *late):
        importlib.import_module(name)
    probe()  # the first kernel of a process takes a quarter of a second, whichever it is
    gc.freeze()  # a child that looks for garbage would copy all pages
    for line in sys.stdin:
        child = os.fork()
        if not child:
            run(**json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def run(arguments: list[str], folder: str, variables: dict[str, str], out: str, err: str) -> None:
    """Become the process that runs a command.

    Parameters
    ----------
    arguments : list of str
    folder : str
        Where it runs.
    variables : dict of str to str
        Its environment.
    out, err : str
        Files of what it prints.
    """
    from stagepack.__main__ import main

    for descriptor, path in enumerate((os.devnull, out, err)):
        opened = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as end:
        if threading.active_count() > 1 or not isinstance(end.code, int):
            raise
        # What is registered runs, but nothing is torn down: that would touch, and so copy, all
        # that was loaded, which takes as long as most commands.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code)


if __name__ == "__main__":
    serve()
