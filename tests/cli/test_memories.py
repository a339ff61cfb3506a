"""The command line on packings of several memories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.shell import run

BUFFERS = """id,lower,upper,size
conv1,0,3,4096
conv2,2,5,8192
tensor3,4,7,6144
fc,6,9,10240
bias,0,9,512
"""
MEMORIES = ("--memory", "fast=12KiB,alignment=64", "--memory", "slow=8MiB,reserved=0-1KiB")


@pytest.fixture
def buffers(tmp_path: Path) -> Path:
    path = tmp_path / "buffers.csv"
    path.write_text(BUFFERS)
    return path


@pytest.mark.parametrize("width", [80, 120])
def test_a_line_for_each_memory(buffers: Path, width: int) -> None:
    done = run("solve", buffers, *MEMORIES, "--only", "fast=conv*", columns=width)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= width
    assert "Peak of fast  12,288 bytes (12.0 KiB), 100.0 % of 12.0 KiB" in done.stdout
    assert "% of 8.0 MiB" in done.stdout
    assert "5 buffers alive in [lower, upper), 2 memories, fit" in " ".join(done.stdout.split())
    assert "Cost of accesses" not in done.stdout
    shown = run("show", buffers, *MEMORIES, "--only", "fast=conv*", columns=width).stdout
    assert "Memory fast     12.0 KiB, alignment 64, 2 buffers only here" in shown
    assert "Memory slow     8.0 MiB, 1,024 bytes (1.0 KiB) reserved" in shown


def test_an_answer_is_written_and_checked(buffers: Path, tmp_path: Path) -> None:
    answer, said = tmp_path / "result.json", (*MEMORIES, "--objective", "peak")
    assert run("solve", buffers, *said, "-o", answer).returncode == 0
    found = json.loads(answer.read_text())["solution"]["memories"]
    assert list(found) == ["conv1", "conv2", "tensor3", "fc", "bias"]
    assert set(found.values()) <= {"fast", "slow"}
    assert run("check", buffers, answer, *said).returncode == 5  # valid; the engine's word


def test_what_is_wrong_is_told_by_option(buffers: Path) -> None:
    for options, words in (
        (("--memory", "fast"), "--memory: 'fast' is no memory"),
        (("--only", "fast=fc"), "--only: 'fast' in 'fast=fc' is no memory; give --memory"),
        ((*MEMORIES, "--only", "fast=fx"), "--only: no buffer is called 'fx'; did you mean fc"),
        (("--memory", "a=1KiB", "--memory", "a=2KiB"), "--memory: two are called 'a'; give each"),
        (("--memory", "a=1KiB,reserved=5"), "'reserved=5' in 'a=1KiB,reserved=5' is no range"),
    ):
        done = run("solve", buffers, *options)
        assert done.returncode == 2
        assert words in done.stderr


def test_what_fits_nowhere_says_in_which_memory(buffers: Path) -> None:
    done = run("solve", buffers, "--memory", "fast=9KiB", "--memory", "slow=1MiB",
               "--only", "fast=conv*")  # fmt: skip
    assert done.returncode == 3
    assert "give fast 3,072 bytes more, or allow buffer conv1 in slow" in " ".join(
        done.stdout.split()
    )
