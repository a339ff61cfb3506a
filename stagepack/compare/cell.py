"""Solves one cell of a comparison, and stores its result if there is a store."""

from __future__ import annotations

import contextlib
import pickle
import signal
import threading
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stagepack import memory
from stagepack.compare.outcomes import Failure
from stagepack.compare.store import Store
from stagepack.contracts import Instance, JsonObject, Solution
from stagepack.errors import AnswerError, InputError
from stagepack.kinds import KINDS
from stagepack.result import Result

NO_ROOM = Failure("n/a", memory.TOO_LITTLE)
DIED = Failure("error", "the worker process died (a crash, or out of memory)")
if memory.is_scarce():  # engines then end their process where they get no more
    DIED = NO_ROOM


@dataclass(frozen=True)
class Unkept:
    """An answer that the store did not take, and why not."""

    result: Result[Solution]
    reason: str


Outcome = Result[Solution] | Failure | Unkept
Kept = tuple[Path, JsonObject]
"""The store in which a cell is kept, and its question."""


def attempt(
    solve: Callable[..., Result[Solution]],
    instance: Instance,
    arguments: JsonObject,
    kept: Kept | None,
) -> Outcome:
    """Run one cell, `solve` with `arguments`; what goes wrong comes back as a :class:`Failure`.

    An answer that is there by now, where it is to be `kept`, is not sought again.
    """
    try:
        if kept is None:
            return solve(instance, **arguments)
        store, question = Store(kept[0]), kept[1]
        known = store.read(question, instance)
        if known is not None:
            return known
        outcome = solve(instance, **arguments)
    except InputError as error:
        return Failure("n/a", str(error))
    except AnswerError as error:
        return Failure("invalid", str(error), traceback.format_exc())
    except KeyboardInterrupt:
        return Failure("skipped", "interrupted with nothing in hand")
    except (Exception, SystemExit) as error:
        if memory.ran_out(error):
            return NO_ROOM
        text = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        if callable(arguments.get("method")):
            last = traceback.extract_tb(error.__traceback__)[-1]
            file = "" if last.filename.startswith("<") else f" of {Path(last.filename).name}"
            text += f" (in {last.name}, line {last.lineno}{file})"
        return Failure("error", text, traceback.format_exc())
    try:
        store.write(question, outcome)
    except (InputError, OSError) as error:
        return Unkept(outcome, str(error))
    return outcome


def run_cell(payload: bytes) -> Outcome:
    """Run one pickled cell in a worker."""
    with _interruptible():
        try:
            solve, instance, arguments, kept, kind = pickle.loads(payload)
            instance = pickle.loads(instance)
            KINDS.setdefault(*kind)  # the script that knows it does not run here
        except Exception as error:
            if memory.ran_out(error):
                return NO_ROOM
            text = f"cannot be read in a worker: {type(error).__name__}: {error}"
            return Failure("error", text, traceback.format_exc())
        return attempt(solve, instance, arguments, kept)


def run_cells(run: Callable[[bytes], Outcome], payloads: Sequence[bytes]) -> list[Outcome]:
    """Run several pickled cells, one after the other."""
    return [run(payload) for payload in payloads]


_in_worker = False


def start_worker() -> None:
    """Make this process a worker: Ctrl-C reaches a running cell, once, and nothing else."""
    global _in_worker
    _in_worker = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    def once(signum: int, frame: types.FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    if not _in_worker or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, once)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
