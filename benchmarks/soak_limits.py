"""Soak of limits: every method of every kind on hostile instances, against the CPU it may use.

    python -m benchmarks.soak_limits --kind lmem-packing --method auto --limit 1

A cell is a method on an instance of a family of :mod:`benchmarks.hostile`, once with the limit in
seconds and once ``deterministic``.  Clocks are those of the CPU, so that a busy machine changes
nothing; imports, compilation and a run on a small instance of the family come first and do not
count.  Reported are cells that used more than the limit and half a second, those that went for
more than 0.2 s without asking whether to stop (from which line to which), and ``deterministic``
ones that ended by their limit before half of it was used.  Work is counted in seconds of a usual
machine: what ``deterministic`` runs used is divided by the pace of this one, which a small piece of
reference work says again and again while they run.  Not reported is what :data:`KNOWN`
allows for, where nothing of ours can end a wait sooner: these cells are counted by themselves, each
reason is told.  What users pay outside of methods (building, reading, the checks of answers) is
listed by itself.  Exit code 1 if any cell is reported.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import faulthandler
import functools
import json
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import benchmarks.child_clock  # first: it says what the time is
import stagepack as sp
from benchmarks.hostile import FAMILIES, Family
from stagepack.errors import StagepackError
from stagepack.progress import Progress, compilation
from stagepack.solve import REGISTRY, methods, solve
from stagepack.solvers.engine import left_behind

CPU = benchmarks.child_clock.CPU

OVER, SILENT = 0.5, 0.2
"""Seconds of CPU beyond the limit, and without a question, that go unreported."""

LEAST = 0.5
"""Part of the limit that a run which counts its work has to use before it ends by it."""

PIECE, USUAL, OFTEN = 30_000, 3.1e-3, 0.1
"""Steps of the reference work, its seconds of CPU on a usual machine, and those between pieces."""

CAP = 10
"""Seconds of CPU after which a cell is killed."""

WARMING = 120
"""The same for a first run, in which all is compiled."""

MEMORY = 2**33
"""Bytes that a child may use."""

SMALL = 0.002
"""Share of its full size that an instance for warming up has."""

LOOKS = 3
"""Frames that are told of a place in the code,"""

ASKING = ("progress.py", "effort.py", "soak_limits.py")
"""files left out: there questions are only handed on."""


@dataclasses.dataclass(kw_only=True)
class Cell:
    """What one method did on one instance, in seconds of CPU.

    Attributes
    ----------
    status : str
        Of the result; or the error; or that it was killed.
    cpu : float
        Of the run without setup.
    checking : float
        The part of it in which answers were checked and evaluated.
    pace : float
        How many times as long as usual the machine took meanwhile.
    silence : float
        The longest stretch without a question whether to stop; checks are left out.
    begin, end : str
        Where the stretch began and ended.
    left : float
        Used by threads left behind, within a moment after the run.
    printed : str
        What came out beside the report.
    """

    method: str
    deterministic: bool
    status: str = ""
    cpu: float = 0.0
    checking: float = 0.0
    pace: float = 1.0
    silence: float = 0.0
    begin: str = ""
    end: str = ""
    left: float = 0.0
    printed: str = ""

    @property
    def used(self) -> float:
        """Seconds that the run used; of a usual machine if it counts its work."""
        return self.cpu / self.pace if self.deterministic else self.cpu


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wait:
    """What some cells may use beyond their limit, because nothing can end them sooner.

    Attributes
    ----------
    kind, method, family : str
        Of the cells; '' stands for all.
    deterministic : bool or None
        None stands for both.
    times : float
        How many times the limit they may use, and
    seconds : float
        how much beyond that.
    least : float
        Part of the limit after which one that counts its work may end by it.
    why : str
    """

    kind: str
    method: str = ""
    family: str = ""
    deterministic: bool | None = None
    times: float = 1.0
    seconds: float = 0.0
    least: float = LEAST
    why: str

    def covers(self, kind: str, family: str, cell: Cell) -> bool:
        """Whether this is about a cell."""
        return (
            self.kind == kind
            and self.family in ("", family)
            and self.method in ("", cell.method)
            and self.deterministic in (None, cell.deterministic)
        )


KNOWN = (
    Wait(
        kind="lmem-packing",
        method="milp",
        deterministic=True,
        times=1.8,
        why="HiGHS counts no work before its search: the clock ends it at 1.8 times the limit",
    ),
    *(
        Wait(
            kind="graph-partition",
            method=method,
            family=family,
            deterministic=True,
            times=1.8,
            why="engines count no work before their search: the clock ends them at 1.8 times the "
            "limit",
        )
        for method, family in (
            ("auto", "links-unlike"),
            ("auto", "free-stages"),
            ("cp-sat", ""),
            ("milp", ""),
        )
    ),
    *(
        Wait(
            kind="lmem-packing",
            method="cp-sat",
            family=family,
            deterministic=True,
            times=1.8,
            why="CP-SAT counts no work in its presolve: the clock ends it at 1.8 times the limit",
        )
        for family in ("in-place-chain", "prime-alignments-dense")
    ),
)
"""All of them: as few as can be, and no longer than seen."""


def busy() -> float:
    """Return the seconds of CPU so far, without those of compiling: that is setup anywhere."""
    return CPU() - compilation.seconds


class Watch:
    """Listens to what methods ask of :class:`Progress`, from outside."""

    def __init__(self) -> None:
        self.checking = self.setup = self.silence = 0.0
        self.begin = self.end = "start"
        self.paced: list[float] = []
        self._asked, self._place = busy(), "start"
        self._measured = self._asked

    def hear(self, place: str) -> None:
        """Note a question."""
        now = busy()
        if now - self._asked > self.silence:
            self.silence, self.begin, self.end = now - self._asked, self._place, place
        self._asked, self._place = now, place
        if now - self._measured > OFTEN:
            self.paced.append(_reference())
            self.leave_out(self.paced[-1])
            self._measured = busy()

    def pace(self) -> float:
        """Return how many times as long as usual the machine took for the pieces of reference."""
        paced = self.paced or [_reference()]
        return sum(paced) / len(paced) / USUAL

    def leave_out(self, seconds: float) -> None:
        """Take time off the stretch at hand."""
        self._asked += seconds


def _reference() -> float:
    """Return the seconds of a piece of work such as methods do: arithmetic and memory.

    Those of the thread: under a limit of CPU, the clock of a process goes on by whole ticks.
    """
    began = time.thread_time()
    table: dict[int, int] = {}  # of numbers alone: nothing for the collector to look at
    total = 0
    for at in range(PIECE):
        table[at] = 7 * at
        total += table[at >> 1] & 7
    return time.thread_time() - began


_watch = Watch()


def install() -> None:
    """Make every :class:`Progress` tell the watch of its questions, checks and setups."""
    begun, asked, setup = Progress.__init__, Progress.stop_reason, Progress.setup
    remaining: Any = vars(Progress)["remaining"]  # the property itself

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(solution: Any) -> Any:
            began = busy()
            try:
                return function(solution)
            finally:
                _watch.checking += busy() - began
                _watch.leave_out(busy() - began)

        return run

    def begin(self: Any, evaluate: Any, check: Any, **options: Any) -> None:
        if options.get("secondary") is not None:
            options["secondary"] = timed(options["secondary"])
        begun(self, timed(evaluate), timed(check), **options)

    def stop_reason(self: Any) -> Any:
        _watch.hear(_place(sys._getframe(1)))
        return asked(self)

    def left(self: Any) -> float:
        _watch.hear(_place(sys._getframe(1)))
        return float(remaining.fget(self))

    @contextlib.contextmanager
    def setting_up(self: Any, what: str) -> Iterator[None]:
        began = busy()
        try:
            with setup(self, what):
                yield
        finally:
            _watch.setup += busy() - began
            _watch.leave_out(busy() - began)

    for name, made in (
        ("__init__", begin),
        ("stop_reason", stop_reason),
        ("remaining", property(left)),
        ("setup", setting_up),
    ):
        setattr(Progress, name, made)


def _place(frame: FrameType | None) -> str:
    """Return where a question was asked: the innermost frames outside of :data:`ASKING`."""
    found: list[str] = []
    while frame is not None and len(found) < LOOKS:
        name = _named(frame.f_code, frame.f_lineno)
        if name:
            found.append(name)
        frame = frame.f_back
    return " < ".join(found)


@functools.cache  # ten thousand questions a second would take half of it else
def _named(code: CodeType, line: int) -> str:
    """Return how a line is called; "" within :data:`ASKING`."""
    path = Path(code.co_filename)
    return "" if path.name in ASKING else f"{path.parent.name}/{path.stem}:{line}"


# ---------------------------------------------------------------------- in a child


def child(kind: str, family: str, cells: list[tuple[str, bool]], limit: float) -> None:
    """Run cells of one family and print a line of JSON for each; the first is about the family."""
    make = FAMILIES[kind][family]
    small = make(SMALL)
    install()
    instance, outside = _outside(make)
    _tell({"outside": outside})
    reasons = {info.name: info.reason for info in methods(instance)}
    apart = {info.name: info.reason for info in methods(small)}
    outside["which methods apply"] = _seconds(methods, instance)[1]
    _tell({"outside": outside})
    for method, deterministic in cells:
        _tell({"begins": [method, deterministic]})
        if reasons[method]:
            _tell({"refused": [method, reasons[method]]})
            continue
        options = {"deterministic": deterministic}
        _cap(WARMING)
        for start in ("auto", None):  # without one, kernels are needed that a good one spares
            if not apart[method]:
                with contextlib.suppress(StagepackError):
                    solve(small, method, time_limit=0.1, warm_start=start, options=options)
        while left_behind():  # of the first runs
            time.sleep(0.05)
        # What an earlier cell found out about it would cost nothing, but be counted as work.
        instance = instance.replace(name=instance.name)
        assert instance.digest  # of what users pay in any case
        cell, answer = run(instance, method, deterministic, limit)
        if answer is not None and "check of an answer" not in outside:
            outside["check of an answer"] = _seconds(instance.check, answer)[1]
            outside["evaluation of an answer"] = _seconds(instance.evaluate, answer)[1]
            _tell({"outside": outside})
        _tell(dataclasses.asdict(cell))


def run(instance: Any, method: str, deterministic: bool, limit: float) -> tuple[Cell, Any]:
    """Return what a method did, watched, and its answer."""
    global _watch
    cell, answer = Cell(method=method, deterministic=deterministic), None
    _cap(CAP)
    _watch, began = Watch(), busy()
    try:
        options = {"deterministic": deterministic}
        result = solve(instance, method, time_limit=limit, options=options)
        cell.status, answer = f"{result.status} {result.termination}", result.solution
    except StagepackError as error:
        cell.status = f"{type(error).__name__}: {error}"
    except MemoryError:
        cell.status = "MemoryError"
    _watch.hear("end")
    cell.cpu = busy() - began - _watch.setup - sum(_watch.paced)
    cell.checking, cell.pace = _watch.checking, _watch.pace()
    cell.silence, cell.begin, cell.end = _watch.silence, _watch.begin, _watch.end
    if threading.active_count() > 1:
        began = CPU()
        time.sleep(0.5)
        cell.left = CPU() - began
    return cell, answer


def _cap(seconds: int) -> None:
    """Have this process killed after so many more seconds of CPU."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(CPU()) + seconds + 1, hard))


def _outside(make: Family) -> tuple[Any, dict[str, float]]:
    """Return the instance and what it costs outside of any method."""
    made, building = _seconds(make, 1)
    outside = {"building": building, "digest": _seconds(lambda: made.digest)[1]}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "instance.json")
        outside["writing"] = _seconds(sp.write, made, path)[1]
        outside["reading"] = _seconds(sp.read, path)[1]
    return made, outside


def _seconds(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    began = CPU()
    value = function(*arguments)
    return value, CPU() - began


def _tell(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


# ---------------------------------------------------------------------- in the parent


@dataclasses.dataclass
class Report:
    """Cells and costs outside of methods by (kind, family), why methods do not apply by name."""

    cells: dict[tuple[str, str], list[Cell]] = dataclasses.field(
        default_factory=lambda: collections.defaultdict(list)
    )
    outside: dict[tuple[str, str], dict[str, float]] = dataclasses.field(default_factory=dict)
    refused: dict[str, str] = dataclasses.field(default_factory=dict)

    def wrong(self, limit: float) -> int:
        """Return how many cells are to be reported."""
        return sum(
            bool(verdict(cell, limit, known(*where, cell)))
            for where, cells in self.cells.items()
            for cell in cells
        )

    def waited(self, limit: float) -> collections.Counter[Wait]:
        """Return how many cells needed what is allowed for, by the reason."""
        needed: collections.Counter[Wait] = collections.Counter()
        for where, cells in self.cells.items():
            for cell in cells:
                wait = known(*where, cell)
                if wait is not None and verdict(cell, limit) and not verdict(cell, limit, wait):
                    needed[wait] += 1
        return needed


def known(kind: str, family: str, cell: Cell) -> Wait | None:
    """Return what is allowed for in a cell."""
    return next((wait for wait in KNOWN if wait.covers(kind, family, cell)), None)


def verdict(cell: Cell, limit: float, wait: Wait | None = None) -> str:
    """Return what is wrong with a cell, or ''."""
    found = []
    told = f"{cell.used:.2f} s"
    if cell.used != cell.cpu:
        told += f" ({cell.cpu:.2f} s at pace {cell.pace:.2f})"
    most = limit if wait is None else wait.times * limit + wait.seconds
    least = limit * (LEAST if wait is None else wait.least)
    if cell.used > most + OVER:
        told = f"used {told}"
        if cell.checking > SILENT:
            told += f", {cell.checking:.2f} s of it to check answers"
        found.append(told)
    if cell.deterministic and cell.status.endswith("TIME_LIMIT") and cell.used < least:
        found.append(f"counted the limit as used after {told}")
    if cell.silence > SILENT:
        found.append(f"asked nothing for {cell.silence:.2f} s, from {cell.begin} to {cell.end}")
    if cell.left > SILENT:
        found.append(f"left a thread behind that used {cell.left:.2f} s in half a second")
    if cell.printed:
        found.append(f"printed {cell.printed!r}")
    return "; ".join(found)


def soak(
    kinds: list[str],
    chosen: str | None,
    family: str | None,
    limit: float,
    deterministic: list[bool],
) -> Report:
    """Run the cells asked for, a child process a family; print what is wrong as it is found.

    A child that has to be killed is replaced, and goes on with the next cell.
    """
    report = Report()
    for kind in kinds:
        for name in FAMILIES[kind]:
            if family not in (None, name):
                continue
            cells = [
                (method.name, repeats)
                for method in REGISTRY[kind]
                for repeats in deterministic
                if chosen in (None, method.name)
            ]
            while cells:
                cells = _replaced(kind, name, cells, limit, report)
    return report


def _replaced(
    kind: str, family: str, cells: list[tuple[str, bool]], limit: float, report: Report
) -> list[tuple[str, bool]]:
    """Run cells in a child; return those after the one at which it ended before its time."""
    arguments = ["--kind", kind, "--family", family, "--limit", str(limit)]
    command = [sys.executable, "-m", "benchmarks.soak_limits", *arguments, "--child"]
    begun: tuple[str, bool] | None = None
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(
            [*command, json.dumps(cells)], stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                try:
                    told = json.loads(line)
                except json.JSONDecodeError:  # an engine's own words
                    method, repeats = begun or ("(none yet)", False)
                    cell = Cell(method=method, deterministic=repeats, printed=line)
                    _enter(kind, family, cell, limit, report)
                    continue
                if "outside" in told:
                    report.outside[kind, family] = told["outside"]
                elif "refused" in told:
                    report.refused.update([told["refused"]])
                elif "begins" in told:
                    begun = (told["begins"][0], told["begins"][1])
                else:
                    _enter(kind, family, Cell(**told), limit, report)
        if process.returncode == 0:
            return []
        errors.seek(0)
        lines = [line.strip() for line in errors if line.strip()]
    stack = [line for line in lines if line.startswith("File")]
    if process.returncode == -signal.SIGXCPU:  # faulthandler begins with the innermost frame
        reason = f"killed after {CAP} s at {' < '.join(stack[:LOOKS])}"
    else:
        error = lines[-1] if lines else f"exit code {process.returncode}"
        reason = f"broke down: {error} at {' < '.join(stack[: -LOOKS - 1 : -1])}"
    method, repeats = begun or ("(none yet)", False)
    cell = Cell(method=method, deterministic=repeats, status=reason, cpu=CAP, silence=CAP)
    _enter(kind, family, cell, limit, report)
    return [] if begun is None else cells[cells.index(begun) + 1 :]


def _enter(kind: str, family: str, cell: Cell, limit: float, report: Report) -> None:
    report.cells[kind, family].append(cell)
    wrong = verdict(cell, limit, known(kind, family, cell))
    if wrong:
        how = " --deterministic" if cell.deterministic else ""
        print(f"{kind} {family} {cell.method}{how} [{cell.status}]: {wrong}", flush=True)


def summarise(report: Report, limit: float) -> None:
    """Print costs outside of methods above `SILENT`, and one line a method."""
    print("\nseconds outside of methods:")
    for (kind, family), costs in report.outside.items():
        long = [f"{what} {seconds:.2f}" for what, seconds in costs.items() if seconds > SILENT]
        if long:
            print(f"  {kind} {family}: {', '.join(long)}")
    for wait, number in report.waited(limit).items():
        print(f"known, {number} cells: {wait.why}")
    by_method: dict[tuple[str, str], list[tuple[Cell, bool]]] = collections.defaultdict(list)
    for (kind, family), cells in report.cells.items():
        for cell in cells:
            wrong = bool(verdict(cell, limit, known(kind, family, cell)))
            by_method[kind, cell.method].append((cell, wrong))
    print(f"\n{'method':<44}{'cells':>7}{'wrong':>7}{'most s':>9}{'silence':>9}")
    for (kind, method), judged in by_method.items():
        most = max(cell.used for cell, _ in judged)
        silence = max(cell.silence for cell, _ in judged)
        wrongs = sum(wrong for _, wrong in judged)
        print(f"{kind + ' ' + method:<44}{len(judged):>7}{wrongs:>7}{most:>9.2f}{silence:>9.2f}")


def main() -> int:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=list(FAMILIES), help="default: all")
    parser.add_argument("--method", help="default: every method")
    parser.add_argument("--family", help="default: every family")
    parser.add_argument("--limit", type=float, default=1.0, help="seconds")
    parser.add_argument("--mode", choices=("clock", "deterministic"), help="default: both")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        faulthandler.register(signal.SIGXCPU, chain=True)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        cells = [(str(method), bool(repeats)) for method, repeats in json.loads(given.child)]
        child(given.kind, given.family, cells, given.limit)
        return 0
    modes = [False, True] if given.mode is None else [given.mode == "deterministic"]
    kinds = list(FAMILIES) if given.kind is None else [given.kind]
    report = soak(kinds, given.method, given.family, given.limit, modes)
    if not report.cells:
        why = [f"{method} does not apply: {reason}" for method, reason in report.refused.items()]
        none = "no family or no method is called so: see benchmarks/hostile"
        parser.error("; ".join(why) or none)
    summarise(report, given.limit)
    wrong = report.wrong(given.limit)
    print(f"{sum(map(len, report.cells.values()))} cells, {wrong} reported")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
