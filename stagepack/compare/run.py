"""Runs a comparison: instances x methods x seeds.

This module determines the cells and reports progress.  :mod:`stagepack.compare.workers` executes
them.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from stagepack import files
from stagepack.compare.cell import Outcome, Unkept
from stagepack.compare.child import Limits
from stagepack.compare.comparison import Comparison
from stagepack.compare.outcomes import Cell, Failure
from stagepack.compare.store import Store
from stagepack.compare.workers import Run
from stagepack.contracts import Instance, JsonObject
from stagepack.errors import InputError, a, carrying, suggest
from stagepack.instances.arrays import integer
from stagepack.methods.own import Own
from stagepack.methods.own import own as own_method
from stagepack.report.format import numbered
from stagepack.stopping import Stop, heeding

log = logging.getLogger("stagepack")

Asked: TypeAlias = Iterable[str | Callable[..., Any]] | str | Callable[..., Any]
"""Methods: names, functions of the user, or several of either."""
ISOLATION = ("worker", "cell", "none")


def compare(
    instances: Instance | Iterable[Instance] | Mapping[str, Instance],
    methods: Asked | Mapping[str, Asked] | None = None,
    *,
    time_limit: float | None = 10,
    seeds: Iterable[int] = (0,),
    jobs: int | None = None,
    executor: Executor | None = None,
    chunk: int = 1,
    threads: int = 1,
    isolate: str = "worker",
    wall_limit: float | None = None,
    memory_limit: int | str | None = None,
    store: str | Path | None = None,
    on_start: Callable[[Cell, int, int], None] | None = None,
    on_result: Callable[[JsonObject, int, int], None] | None = None,
    stop: Stop | None = None,
    **options: Any,
) -> Comparison:
    """Solve every instance by every method with every seed, and compare the answers.

    Parameters
    ----------
    instances : instance, or iterable or mapping of instances
        The instances.  Equal names get a number; a mapping gives its own labels.
    methods : iterable of str and callables, or mapping, optional
        Names of methods; by default those that :func:`stagepack.methods` marks for the instance.

        A function of yours is one more method: ``mine(instance)``, or ``mine(instance, progress)``
        (an :class:`.OwnProgress`) for one that tells what it finds while it searches.  It returns
        a solution, what :func:`stagepack.solve` returned, the plain data of a solution (offsets,
        boundaries, ...), or None.  Parameters called ``seed``, ``time_limit`` and ``threads`` are
        set.  Nothing ends it at `time_limit` but itself; `wall_limit` does.  Answers that break a
        rule have the status "invalid", exceptions "error"; the others go on.

        A mapping of names to functions, ``{"mine": f, "auto": "auto"}``, says what tables call
        them.  One of labels of instances to methods gives those of each instance; then the
        instances are run in turn, so that the workers do not all compile the kernels of the same
        kind.
    time_limit : float, optional
        Seconds for each cell.
    seeds : iterable of int
        Seeds of each method.
    jobs : int, optional
        Number of worker processes; by default the number of cores divided by `threads`.  0 runs the
        cells one after another in this process.
    executor : concurrent.futures.Executor, optional
        Runs the cells instead of worker processes: that of Dask or Slurm
        (:mod:`stagepack.compare.clusters`), or any other.
    chunk : int
        Cells that an executor gets at a time.
    threads : int
        Threads of each cell.
    isolate : str
        "worker": cells run in child processes of their workers, which are reused, watched, and may
        die without affecting other cells.  "cell": each cell has its own process.  "none": cells
        run in the executor's own workers and are not watched.
    wall_limit : float, optional
        Seconds after which the process of a cell is ended in any case; by default twice
        `time_limit` plus ten minutes for the compilation of kernels.
    memory_limit : int or str, optional
        Bytes, or "3GiB", of data that the process of a cell may hold (Linux).
    store : path-like, optional
        A folder in which every result is stored as soon as it is available.  Cells that it contains
        already are not run.  Results that cannot be written (disk full) are still part of the
        comparison and are listed in its ``unkept``.
    on_start : callable, optional
        Called with ``(cell, done, total)`` when a cell (instance, method, seed) starts, in the
        calling thread; with an `executor`, when it is submitted.
    on_result : callable, optional
        Called with ``(row, done, total)`` when a cell has ended, in the calling thread.
    stop : threading.Event or callable, optional
        Ends the comparison from another thread as Ctrl-C does: cells under way hand over what they
        have, those that have not begun are skipped.
    **options
        Further arguments of :func:`stagepack.solve.solve` (objective, engine, gap, ...).

    Raises
    ------
    InputError
        If there are no instances, or a method is unknown; before anything runs.
    Exception
        Whatever `on_start`, `on_result` or `stop` raises; the comparison so far is its attribute
        `partial_result`.
    """
    from stagepack.solve import plain, require_time, solve

    seeds = _several(seeds)
    time_limit, threads = require_time(time_limit), integer(threads, "threads", 1)
    options = {name: plain(value) for name, value in options.items()}
    jobs = None if jobs is None else integer(jobs, "jobs", 0)
    chunk = integer(chunk, "chunk", 1)
    _require_usable(options, executor)
    given, called = _named(methods)
    limits = _limits(isolate, wall_limit, memory_limit, time_limit, jobs)
    labelled = _asked(labels(instances), options.get("objective"))
    wanted: dict[str, list[str] | None]
    names: list[str] | None
    if isinstance(given, dict):
        wanted = {label: given.get(label, []) for label in labelled}
        names = list(dict.fromkeys(name for of in given.values() for name in of))
    else:
        names = given
        wanted = dict.fromkeys(labelled, names)
    cells, failures, engines = _plan(labelled, wanted, seeds, called)
    if options.get("engine"):
        engines = {options["engine"]}
    comparison = Comparison(
        instances=labelled,
        cells=cells,
        settings={
            "methods": names, "time_limit": time_limit, "seeds": seeds, "threads": threads,
            **options,
        },
        started=time.strftime("%Y-%m-%d %H:%M:%S %z"),
    )  # fmt: skip
    began = time.perf_counter()
    told = _Told(comparison, on_start, on_result)
    shared = {"time_limit": time_limit, "threads": threads, **options}
    folder = None if store is None else Store(store)
    run = Run(solve, labelled, shared, told.start, told.finish, engines, folder, limits, called)
    waiting = [cell for cell in cells if cell not in failures]
    many = jobs if jobs is not None else max(1, _cores() // max(1, threads))
    try:
        for cell, why in failures.items():
            told.finish(cell, why)
        with heeding(stop):
            run.take(_by_turns(waiting) if isinstance(given, dict) else waiting)
            run.carry_out(executor, chunk, many)
    except KeyboardInterrupt:
        comparison.interrupted = True
    except Exception as error:  # of the caller's functions
        comparison.interrupted = True
        raise carrying(error, comparison)  # noqa: B904  it is that one
    finally:
        comparison._close(interrupted=run.interrupted, runtime=time.perf_counter() - began)
    for contradiction in comparison.contradictions:
        log.error("contradiction: %s", contradiction)
    if comparison.unkept:
        log.error("error: %s", comparison.lost)
    return comparison


def _asked(instances: dict[str, Instance], objective: object) -> dict[str, Instance]:
    """Return the instances with the objective that was given, if one was."""
    if objective is None:
        return instances
    return {
        label: instance.replace(objective=objective) if hasattr(instance, "replace") else instance
        for label, instance in instances.items()
    }


def _named(
    methods: Asked | Mapping[str, Asked] | None,
) -> tuple[list[str] | dict[str, list[str]] | None, dict[str, Own]]:
    """Return methods in lists, each once, those of each instance where a mapping gives them.

    And the callables among them by the names that are theirs.
    """
    own: dict[str, Own] = {}
    if methods is None:
        return None, own
    if isinstance(methods, Mapping):
        if not any(map(callable, methods.values())):
            return {label: _names(some, own) for label, some in methods.items()}, own
        asked: object = [
            method if method == name else _called(str(name), method)
            for name, method in methods.items()
        ]
    else:
        asked = methods
    names = _names(asked, own)
    if names:
        return names, own
    remedy = "give names, or None for those that stagepack.methods marks"
    raise InputError("no methods", field="methods", remedy=remedy)


def _called(name: str, method: object) -> Own:
    """Return a method under another name than its own."""
    from stagepack.solve import solve

    if not callable(method) and not isinstance(method, str):
        raise InputError(f"{method!r}", field=f"methods.{name}", remedy="give a function or a name")
    return own_method(method if callable(method) else partial(solve, method=method), name)


def _names(methods: object, own: dict[str, Own]) -> list[str]:
    """Return names of methods, each once; callables go to `own` under names that nothing has."""
    given = [methods] if isinstance(methods, str) or callable(methods) else methods
    if not isinstance(given, Iterable):
        remedy = "give names of methods, or functions of an instance"
        raise InputError(f"{methods!r}", field="methods", remedy=remedy)
    given = list(given)
    found = []
    for method in given:
        if not callable(method):
            found.append(str(method))
            continue
        known = (name for name, one in own.items() if method in (one, one.call))
        name = next(known, "")
        if not name:
            called = own_method(method)
            taken = {*own, *(one for one in given if isinstance(one, str))}
            name = numbered(called.name, taken)
            own[name] = replace(called, name=name)
        found.append(name)
    return list(dict.fromkeys(found))


def _several(seeds: Iterable[int]) -> list[int]:
    """Return seeds, each once."""
    found = list(dict.fromkeys(seeds)) if isinstance(seeds, Iterable) else []
    if not found:
        raise InputError(f"{seeds!r}", field="seeds", remedy="give one or more in a list")
    return [integer(seed, "seeds", 0) for seed in found]


def _require_usable(options: Mapping[str, object], executor: object) -> None:
    """Refuse arguments of a comparison that cannot be used, by name."""
    from stagepack.solve import require_keywords

    require_keywords(options, "compare", ("jobs", "seeds"))
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise InputError(
            f"{a(type(executor).__name__)} runs nothing",
            field="executor",
            remedy="give an executor of concurrent.futures, Dask or Slurm, or None",
        )


def _limits(
    isolate: str,
    wall: float | None,
    memory: int | str | None,
    time_limit: float | None,
    jobs: int | None,
) -> Limits | None:
    """Return what a cell may take in a process of its own; None where nothing is watched."""
    from stagepack.solve import require_number

    if isolate not in ISOLATION:
        raise InputError(
            f"unknown {isolate!r}", field="isolate", remedy=suggest(isolate, ISOLATION)
        )
    wall = require_number(wall, "wall_limit", "a positive number, or None", least=1e-9)
    memory = files.in_bytes(memory, "memory_limit")
    memory = None if memory is None else integer(memory, "memory_limit", 1)
    for name, given in (("wall_limit", wall), ("memory_limit", memory)):
        if given is not None and (isolate == "none" or jobs == 0):
            raise InputError(
                "needs a process that can be ended",
                field=name,
                remedy="use isolate='worker' or 'cell', and at least one job",
            )
    if isolate == "none":
        return None
    if wall is None and time_limit is not None:
        wall = 2 * time_limit + 600.0  # in which engines are imported and kernels compiled
    return Limits(wall, memory, fresh=isolate == "cell")


@dataclass(frozen=True)
class _Told:
    """Who is told of cells that begin and end: the comparison, and whoever asked for it."""

    comparison: Comparison
    on_start: Callable[[Cell, int, int], None] | None
    on_result: Callable[[JsonObject, int, int], None] | None

    @property
    def _standing(self) -> tuple[int, int]:
        """How many cells are done, and how many there are."""
        done = len(self.comparison.results) + len(self.comparison.failures)
        return done, len(self.comparison.cells)

    def start(self, cell: Cell) -> None:
        if self.on_start is not None:
            self.on_start(cell, *self._standing)

    def finish(self, cell: Cell, outcome: Outcome) -> None:
        comparison = self.comparison
        if isinstance(outcome, Unkept):
            comparison.unkept[cell] = outcome.reason
            outcome = outcome.result
        if isinstance(outcome, Failure):
            comparison.failures[cell] = outcome
            if outcome.detail:
                log.debug("%s, %s: %s", cell.instance, cell.method, outcome.detail)
        else:
            comparison.results[cell] = outcome.of(comparison.instances[cell.instance])
        if self.on_result is not None:
            row = comparison._row(cell, comparison._least(cell.instance))
            self.on_result(row, *self._standing)


def labels(instances: object) -> dict[str, Instance]:
    """Return instances by the label that a comparison gives each; a mapping gives its own."""
    if isinstance(instances, Mapping):
        labelled = {str(label): instance for label, instance in instances.items()}
    else:
        if hasattr(instances, "evaluate"):
            instances = [instances]
        if isinstance(instances, str) or not isinstance(instances, Iterable):
            raise InputError(
                f"{a(type(instances).__name__)} is no instance",
                field="instances",
                remedy="give an instance, or several",
            )
        labelled = {}
        for instance in instances:
            name = str(getattr(instance, "name", "") or "instance")
            labelled[numbered(name, labelled)] = instance
    for label, instance in labelled.items():
        if isinstance(instance, type) or not hasattr(instance, "evaluate"):
            raise InputError(
                f"{label!r} is {a(type(instance).__name__)}, not an instance",
                field="instances",
                remedy="read files with stagepack.read, the catalog with stagepack.load",
            )
    if not labelled:
        raise InputError("nothing to compare", field="instances", remedy="give an instance")
    return labelled


def _by_turns(cells: Sequence[Cell]) -> list[Cell]:
    """Return the first cells of all instances, then the second ones, and so on."""
    turns: Counter[str] = Counter()
    keyed = []
    for cell in cells:
        keyed.append((turns[cell.instance], cell))
        turns[cell.instance] += 1
    return [cell for _, cell in sorted(keyed, key=lambda item: item[0])]


def _plan(
    instances: Mapping[str, Instance],
    wanted: Mapping[str, list[str] | None],
    seeds: Sequence[int],
    own: Container[str],
) -> tuple[list[Cell], dict[Cell, Failure], set[str]]:
    """Return all cells in order, those that cannot be run, and the engines of the others.

    Methods that are the user's `own` take every instance.
    """
    from stagepack.solve import REGISTRY, seen_from

    known = {label: {m.name: m for m in REGISTRY[i.kind]} for label, i in instances.items()}
    everyone = list(dict.fromkeys(name for of in known.values() for name in of))
    named = (name for names in wanted.values() for name in names or ())
    for name in dict.fromkeys(named):
        if name not in everyone and name not in own:
            raise InputError(
                f"unknown method {name!r}",
                field="methods",
                remedy=suggest(str(name), everyone),
            )
    cells: list[Cell] = []
    failures: dict[Cell, Failure] = {}
    engines: set[str] = set()
    for label, of in known.items():
        names, instance = wanted[label], instances[label]
        if names is None:
            chosen = [name for name, method in of.items() if method.default]
        else:  # the methods of its own kind, as far as any are named
            chosen = [name for name in names if name in of or name in own] or names
        for name in chosen:
            if name in own:
                cells += [Cell(label, name, seed) for seed in seeds]
                continue
            method = seen_from(instance, of[name]) if name in of else None
            if names is None and method is not None and not method.available:
                continue
            for seed in seeds:
                cell = Cell(label, name, seed)
                cells.append(cell)
                if method is None:
                    kind = instance.kind
                    failures[cell] = Failure("n/a", f"not a method for {kind}")
                elif not method.available:
                    failures[cell] = Failure("n/a", method.reason)
                else:
                    engines.update(method.engines[:1])
    return cells, failures, engines


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
