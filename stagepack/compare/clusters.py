"""Clusters behind ``concurrent.futures.Executor``: Dask, and Slurm by submitit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, InvalidStateError
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from stagepack.errors import InputError, StagepackError


@contextmanager
def dask(address: str, *, timeout: float = 30) -> Iterator[Executor]:
    """Connect to a Dask scheduler; use with ``with``.

    It has an `address` such as ``tcp://10.0.0.1:8786``, and must answer in `timeout` seconds.  What
    is yielded runs on its workers; cells of one that dies are begun anew on another.
    """
    try:
        from distributed import Client
    except ImportError:
        remedy = "pip install 'stagepack[dask]'"
        raise InputError("Dask is not installed", field="dask", remedy=remedy) from None
    try:
        client = Client(address, timeout=timeout)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no Dask scheduler answers at {address} ({error})",
            field="dask",
            remedy="start one with: dask scheduler",
        ) from None
    try:
        yield _Dask(client)
    finally:
        client.close()


class _Dask(Executor):
    """Runs calls on the workers of a Dask client.

    The client's own executor never ends a future whose result cannot be fetched: when the scheduler
    ends in that moment, or when the result does not unpickle here.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Let a worker call a function; raises BrokenExecutor when the scheduler was lost."""
        try:
            remote = self._client.submit(fn, *args, pure=False, **kwargs)
        except Exception as error:
            if self._client.status == "closed":
                raise BrokenExecutor(str(error)) from error
            raise
        future: Future[Any] = Future()

        def end(future: Future[Any]) -> None:
            if future.cancelled() and not remote.cancelled():
                remote.cancel()

        future.add_done_callback(end)
        self._client.loop.add_callback(_await, remote, future)
        return future


async def _await(remote: Any, future: Future[Any]) -> None:
    """Tell a future what became of Dask's, in the loop of its client."""
    result = error = None
    try:
        result = await remote
    except CancelledError:  # by the client, which lost the scheduler, or by who waited
        future.cancel()
        future.set_running_or_notify_cancel()
        return
    except BaseException as raised:  # asyncio's CancelledError, too, that a function may raise
        error = raised
    with suppress(InvalidStateError):  # cancelled meanwhile
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


class Slurm(Executor):
    """Runs calls as jobs of Slurm, or as processes of this machine, through submitit.

    What is submitted within half a second is one array of jobs.  Jobs, their answers and logs are
    written to `folder`, which all machines must see.  `cluster` is "slurm", or "local" for
    processes of this machine; by default what there is.  Further `parameters` are as
    ``submitit.AutoExecutor.update_parameters`` takes them: ``timeout_min``, ``slurm_partition``,
    ``slurm_array_parallelism``, ``mem_gb``, ``cpus_per_task``, ...
    """

    def __init__(
        self, folder: str | Path, *, cluster: str | None = None, **parameters: Any
    ) -> None:
        try:
            import submitit
        except ImportError:
            remedy = "pip install 'stagepack[slurm]'"
            raise InputError("submitit is not installed", field="slurm", remedy=remedy) from None
        try:
            self._jobs = submitit.AutoExecutor(folder=folder, cluster=cluster)
            self._jobs.update_parameters(**parameters)
        except (TypeError, ValueError, NameError, RuntimeError) as error:
            raise InputError(str(error), field="slurm", remedy="see submitit's help") from None
        self._waiting: list[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = []
        self._lock = threading.Lock()
        self._closing, self._cancelling = threading.Event(), threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Let a job call `fn` with `args`; `kwargs` must be empty."""
        if kwargs:
            raise TypeError("arguments by name are not sent")
        future: Future[Any] = Future()
        with self._lock:
            if self._closing.is_set():
                raise RuntimeError("is shut down")
            self._waiting.append((future, fn, args))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take nothing more; end when all jobs have, or cancel them."""
        with self._lock:
            self._closing.set()
        if cancel_futures:
            self._cancelling.set()
        if wait:
            self._watcher.join()

    def _watch(self) -> None:
        """Submit what waits, and hand over what has ended."""
        jobs: list[tuple[Future[Any], Any]] = []
        while not self._cancelling.wait(0.5):  # seconds between looks at jobs
            closing = self._closing.is_set()
            jobs += self._submitted()
            for future, job in jobs:
                if job.done():
                    _hand_over(future, job)
            jobs = [(future, job) for future, job in jobs if not future.done()]
            if closing and not jobs:
                return
        for future, job in jobs:
            job.cancel()
            future.set_exception(StagepackError("its job was cancelled"))
        for future, *_ in self._waiting:
            future.cancel()

    def _submitted(self) -> list[tuple[Future[Any], Any]]:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        waiting = [one for one in waiting if one[0].set_running_or_notify_cancel()]
        if not waiting:
            return []
        try:
            with self._jobs.batch():
                jobs = [self._jobs.submit(call, *args) for _, call, args in waiting]
        except Exception as error:  # of Slurm, of the folder: who waits must learn of it
            for future, *_ in waiting:
                future.set_exception(error)
            return []
        return [(one[0], job) for one, job in zip(waiting, jobs, strict=True)]


def _hand_over(future: Future[Any], job: Any) -> None:
    """Tell a future what became of its job."""
    error = job.exception()
    if error is None:
        future.set_result(job.result())
    else:
        future.set_exception(error)
