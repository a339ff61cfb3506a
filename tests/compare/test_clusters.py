"""Comparisons on real clusters of this machine: a Dask scheduler with workers, submitit's jobs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.compare import clusters
from tests.cli.shell import run

SEEDS = range(12)


def sweep() -> dict[str, Any]:
    name = "pipeline/random/heterogeneous"
    return {f"s{s}": sp.load(name, layers=8, devices=3, seed=s) for s in SEEDS}


def outline(comparison: sp.Comparison) -> list[Any]:
    return [(r["instance"], r["method"], r["status"], r["objective"]) for r in comparison.rows]


@pytest.fixture(scope="module")
def alone() -> list[Any]:
    return outline(sp.compare(sweep(), ["greedy", "dp"], jobs=0, time_limit=5))


class Dask:
    """A scheduler and its workers, each a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        file = folder / "scheduler.json"
        self.start("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file))
        while not file.exists() or not file.read_text().endswith("}"):
            assert self.processes[0].poll() is None
            time.sleep(0.1)
        self.address: str = json.loads(file.read_text())["address"]

    def start(self, what: str, *arguments: str) -> subprocess.Popen[bytes]:
        self.processes.append(
            subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    f"distributed.cli.dask_{what}",
                    "--no-dashboard",
                    *arguments,
                ],
                stderr=subprocess.DEVNULL,
                cwd=self.folder,
            )
        )
        return self.processes[-1]

    def worker(self) -> subprocess.Popen[bytes]:
        return self.start("worker", self.address, "--nthreads", "1", "--no-nanny")


@contextmanager
def running(folder: Path) -> Iterator[Dask]:
    dask = Dask(folder)
    try:
        yield dask
    finally:
        for process in dask.processes:
            process.kill()
            process.wait()


def test_dask_gives_what_one_process_gives(tmp_path: Path, alone: list[Any]) -> None:
    pytest.importorskip("distributed")
    store = tmp_path / "store"
    done = 0

    def kill_one(row: Any, *_: int) -> None:
        nonlocal done
        done += 1
        if done == 6:
            victim.send_signal(signal.SIGKILL)

    with running(tmp_path) as dask:
        victim, _ = dask.worker(), dask.worker()
        with clusters.dask(dask.address) as executor:
            found = sp.compare(
                sweep(), ["greedy", "dp"], executor=executor, store=store, time_limit=5,
                on_result=kill_one,
            )  # fmt: skip
        assert outline(found) == alone
        begun: list[Any] = []
        with clusters.dask(dask.address) as executor:
            again = sp.compare(
                sweep(), ["greedy", "dp"], executor=executor, store=store, time_limit=5,
                on_start=lambda cell, *_: begun.append(cell),
            )  # fmt: skip
        assert (outline(again), begun) == (alone, [])
        with clusters.dask(dask.address) as executor:
            bare = sp.compare(sweep(), "dp", executor=executor, isolate="none", chunk=5)
        assert outline(bare) == [row for row in alone if row[1] == "dp"]


def test_a_result_of_dask_that_cannot_be_fetched_ends_its_future(tmp_path: Path) -> None:
    pytest.importorskip("distributed")

    class Strange:
        def __reduce__(self) -> Any:
            return int, ("no number",)

    def cancelled() -> None:
        raise asyncio.CancelledError

    with running(tmp_path) as dask:
        dask.worker()
        with clusters.dask(dask.address) as executor:
            strange, good = executor.submit(lambda: Strange()), executor.submit(int, "7")
            with pytest.raises(ValueError, match="no number"):
                strange.result(timeout=60)
            assert good.result(timeout=60) == 7
            with pytest.raises(asyncio.CancelledError):
                executor.submit(cancelled).result(timeout=60)


def test_without_a_scheduler_nothing_runs(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    with (
        pytest.raises(sp.InputError, match="no Dask scheduler"),
        clusters.dask("tcp://127.0.0.1:9", timeout=1),
    ):
        pass


def test_a_scheduler_that_ends_costs_only_what_was_under_way(tmp_path: Path) -> None:
    pytest.importorskip("distributed")

    def end(row: Any, done: int, total: int) -> None:
        if done == 3:
            dask.processes[0].kill()

    with running(tmp_path) as dask:
        dask.worker()
        with clusters.dask(dask.address) as executor:
            found = sp.compare(
                sweep(), "dp", executor=executor, store=tmp_path / "store",
                on_result=end,
            )  # fmt: skip
    status = [row["status"] for row in found.rows]
    assert status.count("OPTIMAL") >= 3
    assert set(status) <= {"OPTIMAL", "error"}


@pytest.mark.skipif(os.name != "posix", reason="submitit")
def test_jobs_of_submitit_give_what_one_process_gives(tmp_path: Path, alone: list[Any]) -> None:
    pytest.importorskip("submitit")
    with clusters.Slurm(tmp_path / "jobs", cluster="local", timeout_min=5) as executor:
        found = sp.compare(
            sweep(), ["greedy", "dp"], executor=executor, store=tmp_path / "store", time_limit=5,
            chunk=8,
        )  # fmt: skip
    assert outline(found) == alone
    assert len(list((tmp_path / "jobs").glob("*_submitted.pkl"))) == 3
    with pytest.raises(sp.InputError, match="slurm"):
        clusters.Slurm(tmp_path / "jobs", cluster="local", minutes=5)


def test_places_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    cases = (
        (["--dask", "tcp://127.0.0.1:9", "--slurm", str(tmp_path)], "--slurm"),
        (["--isolate", "box"], "--isolate"),
        (["--isolate", "none", "--wall-limit", "3"], "--wall-limit"),
        (["-j", "0", "--memory-limit", "4GiB"], "--memory-limit"),
        (["--memory-limit", "much"], "--memory-limit"),
        (["--chunk", "0"], "--chunk"),
    )
    for arguments, field in cases:
        done = run("compare", "pipeline/bert-base", "--no-html", *arguments)
        assert done.returncode == 2, (arguments, done.stderr)
        assert field in done.stderr
