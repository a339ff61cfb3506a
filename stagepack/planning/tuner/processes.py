"""Measures configurations: each in a process of its own, which is ended at its limit.

The process leads a group, so that all that it starts ends with it: at the limit, after Ctrl-C, and
when the process that asked dies.  What a measurement comes to, a failure included, is written into
the store at once.  A lock for each configuration keeps two runs on one store from measuring it
twice.
"""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import multiprocessing.connection
import os
import pickle
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, BinaryIO

from stagepack import files
from stagepack.contracts import JsonObject
from stagepack.errors import InputError, shown
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.profile import ModelProfile
from stagepack.stopping import stop_asked

Measure = Callable[..., Any]
TAIL, HEARD = 2000, 1 << 16
"""Bytes of stderr that are kept of a failure; bytes at the end of stdout that are read."""
LOOKED = 0.2
"""Seconds between two looks at whether the caller wants an end."""
GRACE = 2.0
"""Seconds between the request to end and the end."""
CODES, LAST = ("exit code", "killed by"), 200
"""Reasons that say little without the last line of stderr, and how much of that is said."""
NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
PLACE = re.compile(r"(?<!\$)\{(\w+)\}")
WHERE = "--command"


@dataclass(frozen=True)
class Answer:
    """What one measurement came to."""

    throughput: float | None = None  # None of a failure, and of a profile
    reason: str = ""  # why there is none
    log: str = ""  # the end of what a failure wrote to stderr
    memory: int | None = None  # the most bytes that a device held, if that was told
    seconds: float = 0.0  # how long it took
    limit: float | None = None  # the seconds at which it was ended, if it was
    model: PipelinePartition | ModelProfile | None = None  # a profile, of which a plan is made
    plan: JsonObject | None = None  # status, cycles and bound of that plan

    def to_dict(self) -> JsonObject:
        """Return plain JSON data; of a profile the plan is kept, elsewhere."""
        return {name: value for name, value in vars(self).items() if name != "model"}


def answered(found: Any) -> Answer:
    """Return what a profiler returned as an answer: what is no throughput is a failure."""
    if isinstance(found, PipelinePartition | ModelProfile):
        return Answer(model=found)
    memory: Any = None
    if isinstance(found, Mapping):
        if "throughput" not in found:
            return Answer(reason=f"returned no throughput, but {', '.join(map(str, found))}")
        found, memory = found["throughput"], found.get("memory")
    try:
        value = math.nan if isinstance(found, bool | str) else float(found)
        held = None if memory is None else int(memory)
    except (TypeError, ValueError, OverflowError):
        value, held = math.nan, None
    if not 0 < value < math.inf:
        return Answer(reason=f"returned {shown(repr(found))[:80]}, which is no throughput above 0")
    return Answer(throughput=value, memory=held)


# ---------------------------------------------------------------------- a command


@dataclass(frozen=True)
class Command:
    """A command of the shell that measures, with ``{name}`` for the value of each option.

    It prints, as the last of such lines, a JSON object with ``throughput`` and perhaps ``memory``
    (bytes), or with ``profile``, a file; where there is none, its last number is the throughput.
    Any exit code but 0 is a failure.  `read` reads the profile of a configuration.
    """

    text: str
    read: Callable[[str, JsonObject], Any]

    def require(self, options: Mapping[str, object]) -> None:
        """Refuse a command that does not hear of every option."""
        for name in options:
            if name not in PLACE.findall(self.text):
                problem = f"does not say where the value of {name} goes"
                raise InputError(problem, field=WHERE, remedy=f"write {{{name}}} there")

    def filled(self, options: JsonObject) -> str:
        """Return the command of a configuration."""

        def value(found: re.Match[str]) -> str:
            if found[1] not in options:
                return found[0]
            one = options[found[1]]
            return shlex.quote(one if isinstance(one, str) else json.dumps(one))

        return PLACE.sub(value, self.text)

    def __call__(self, **options: Any) -> Any:
        """Run the command with these options; return what it said."""
        with tempfile.TemporaryFile() as heard:
            command = self.filled(options)
            done = subprocess.run(command, shell=True, stdin=subprocess.DEVNULL, stdout=heard)
            told = _end(heard, HEARD)
        if done.returncode:
            return Answer(reason=_code(done.returncode, shell=True))
        said = list(_objects(told))
        for one in reversed(said):
            if "profile" in one:
                return self.read(str(one["profile"]), options)
            if "throughput" in one:
                return one
        numbers = NUMBER.findall(told)
        return float(numbers[-1]) if numbers else Answer(reason="printed no number")


def _objects(text: str) -> Iterator[JsonObject]:
    """Yield the JSON objects that stand on lines of their own."""
    for line in text.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            if line.lstrip().startswith("{") and isinstance(one := json.loads(line), dict):
                yield one


def _code(code: int, *, shell: bool = False) -> str:
    """Return what an exit code says; that of a `shell` may be a signal's."""
    number = -code if code < 0 else code - 128 if shell and code > 128 else 0
    try:
        name = signal.Signals(number).name if number else ""
    except ValueError:
        name = ""
    if not name:
        return f"exit code {code}"
    memory = ", perhaps for want of memory" if name == "SIGKILL" else ""
    return f"killed by {name}{memory}"


# ---------------------------------------------------------------------- a process


@dataclass
class Run:
    """A measurement under way."""

    process: BaseProcess
    pipe: Connection
    log: Path  # what it writes, instead of on the screen
    limit: float | None
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float | None:
        """Seconds to its limit."""
        return None if self.limit is None else self.began + self.limit - time.monotonic()

    @property
    def over(self) -> bool:
        """Whether its time is up, or it has died."""
        return not self.process.is_alive() or (self.left is not None and self.left <= 0)

    def finish(self) -> Answer:
        """Return what became of a run that has ended, or is ended now since its time is up."""
        spent = time.monotonic() - self.began
        dead = not self.process.is_alive()
        if not (dead or self.pipe.poll()):
            limit, log = self.limit or 0.0, self._tail()
            self.stop()
            why = f"was ended after {limit:g} s, the limit of a measurement"
            return Answer(reason=why, log=log, seconds=spent, limit=limit)
        try:
            if not self.pipe.poll():
                raise EOFError  # it left behind what holds the pipe
            answer: Answer = pickle.loads(self.pipe.recv_bytes())
        except EOFError:
            self.process.join(GRACE)
            answer = Answer(reason=_code(self.process.exitcode or 0))
        known = {**vars(answer), "seconds": spent}
        if answer.reason:
            known["log"] = log = answer.log or self._tail()
            if answer.reason.startswith(CODES) and log:
                known["reason"] += f": {shown(log.splitlines()[-1], LAST)}"
        self.stop(grace=0.0)
        return Answer(**known)

    def _tail(self) -> str:
        with self.log.open("rb") as stream:
            return _end(stream, TAIL).strip()

    def stop(self, grace: float = GRACE) -> None:
        """End the process and all that it started."""
        end_all(self.process.pid or 0, self.process.is_alive, grace)
        self.process.kill()
        self.process.join()
        self.pipe.close()
        self.log.unlink(missing_ok=True)


def start(measure: Measure, options: JsonObject, limit: float | None) -> Run:
    """Start to `measure` with some `options`, until a `limit` in seconds; it writes to a file, not
    to the screen.

    Functions of modules begin in a fresh interpreter, since libraries of accelerators do not
    outlive a fork; others (of the script itself, of a notebook) in a copy of this process.
    """
    here, there = multiprocessing.Pipe(duplex=False)
    handle, log = tempfile.mkstemp(prefix="stagepack-", suffix=".log")
    os.close(handle)
    context: Any = multiprocessing.get_context(_way(measure))
    target = context.Process(
        target=_serve, args=(there, measure, options, log, os.getpid()), daemon=False
    )
    main = sys.modules["__main__"]
    if context.get_start_method() == "spawn":  # it would run the user's script again
        sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        target.start()
    finally:
        sys.modules["__main__"] = main
    there.close()
    return Run(target, here, Path(log), limit)


def _way(measure: Measure) -> str:
    """Return how a process begins that can call this function."""
    forks = "fork" in multiprocessing.get_all_start_methods()
    if isinstance(measure, Command) and forks:
        return "fork"
    try:
        pickle.dumps(measure)
        fresh = getattr(measure, "__module__", "__main__") != "__main__"
    except Exception:
        fresh = False
    if not fresh and not forks:
        remedy = "import it from a module: here processes begin anew"
        raise InputError("cannot be handed to a process", field="measure", remedy=remedy)
    return "spawn" if fresh else "fork"


def require_going() -> None:
    """End as Ctrl-C does where the caller has asked for it."""
    if stop_asked():
        raise KeyboardInterrupt


def wait(runs: list[Run]) -> list[Run]:
    """Wait until some of the runs have ended, or their time is up; return these."""
    require_going()
    while True:
        left = [one.left for one in runs if one.left is not None]
        # Ctrl-C is heard at once on POSIX; elsewhere between two looks.
        patience = max(0.0, min(LOOKED, *left)) if left else LOOKED
        ready = multiprocessing.connection.wait([one.pipe for one in runs], patience)
        over = [one for one in runs if one.pipe in ready or one.over]
        if over:
            return over
        require_going()


def _serve(pipe: Connection, measure: Measure, options: JsonObject, log: str, asker: int) -> None:
    """Measure, in a process of its own, and say what came of it."""
    if os.name == "posix":
        os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    with open(log, "wb", buffering=0) as sink:
        for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
            os.dup2(sink.fileno(), descriptor)
    sys.stdout = sys.stderr = open(2, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
    threading.Thread(target=_watch, args=(asker,), daemon=True).start()
    try:
        found = measure(**options)
        answer = found if isinstance(found, Answer) else answered(found)
    except SystemExit as error:
        answer = Answer(reason=f"exit code {error.code}")
    except BaseException as error:
        import traceback

        traceback.print_exc()
        answer = Answer(reason=shown(f"{type(error).__name__}: {error}".strip(": "))[:300])
    try:
        told = pickle.dumps(answer)
    except Exception as error:
        told = pickle.dumps(Answer(reason=f"cannot be handed over: {error}"))
    with contextlib.suppress(OSError):
        pipe.send_bytes(told)
    sys.stderr.flush()
    os._exit(0)  # what a library left running would keep it


def _watch(asker: int) -> None:
    """End this process and all that it started once who asked is gone."""
    while os.getppid() == asker or os.name != "posix":
        time.sleep(0.5)
    end_all(os.getpid(), lambda: False, 0.0)
    os._exit(1)


def end_all(leader: int, alive: Callable[[], bool], grace: float) -> None:
    """End a process, its group, and what left the group: first by asking, after `grace` for good.

    `leader` is the process, `alive` tells whether it still runs.
    """
    if os.name != "posix":
        return
    family = _descendants(leader)
    _tell([*family, leader], leader, signal.SIGTERM if grace else signal.SIGKILL)
    until = time.monotonic() + grace
    while time.monotonic() < until and (alive() or any(map(_lives, family))):
        time.sleep(0.02)
    # What was started meanwhile has the same group, or is a child of those that were known.
    later = [one for known in (leader, *family) for one in _descendants(known)]
    _tell([one for one in {*family, *later} if _lives(one)], leader, signal.SIGKILL)


def _tell(family: list[int], leader: int, number: int) -> None:
    for one in family:
        if one not in (leader, os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(one, number)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def _descendants(process: int) -> list[int]:
    """Return the children of a process and theirs, where the system shows them (Linux)."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = path.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found, known = list(children.get(process, ())), 0
    while known < len(found):
        found += children.get(found[known], ())
        known += 1
    return found


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False


def _end(stream: BinaryIO, most: int) -> str:
    """Return the last lines of a file as text."""
    begin = max(0, stream.seek(0, os.SEEK_END) - most)
    stream.seek(begin)
    text = stream.read().decode(errors="replace")
    return text.partition("\n")[2] if begin and "\n" in text else text


# ---------------------------------------------------------------------- what is kept


class Kept:
    """The measurements in a store, by their key, and who is making which.

    Without a folder nothing is kept.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._locks = None if folder is None else (folder / "locks").open("ab")

    def close(self) -> None:
        """Let go of all locks."""
        if self._locks is not None:
            self._locks.close()

    def keys(self) -> set[str]:
        """Return the keys of all answers."""
        return set() if self.folder is None else {one.stem for one in self.folder.glob("*.json")}

    def read(self, key: str, question: JsonObject) -> list[Answer]:
        """Return the answers to a question."""
        if self.folder is None:
            return []
        try:
            document = json.loads((self.folder / f"{key}.json").read_text(encoding="utf-8"))
            whole = document["question"] == question
            return [Answer(**one) for one in document["answers"]] if whole else []
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def write(self, key: str, question: JsonObject, answers: list[Answer]) -> None:
        """Keep all `answers` to a `question`, by its `key`."""
        if self.folder is not None:
            document = {"question": question, "answers": [one.to_dict() for one in answers]}
            text = files.json_text(files.finite(document))
            files.write(self.folder / f"{key}.json", text + "\n")

    def claim(self, key: str, *, take: bool = True) -> bool:
        """Say that this run measures a question, or with `take` false, no longer.

        Returns false where another run measures it.  The system forgets the claims of a process
        that has died.
        """
        if self._locks is None or sys.platform == "win32":
            return True
        import fcntl

        wish = fcntl.LOCK_EX | fcntl.LOCK_NB if take else fcntl.LOCK_UN
        try:
            fcntl.lockf(self._locks, wish, 1, int(key[:12], 16))
        except (BlockingIOError, PermissionError):  # as systems say it
            return False
        return True
