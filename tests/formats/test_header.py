"""Offsets as a header for programs in C."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import stagepack as sp
from stagepack.formats.c_header import header

NAMES = ["conv1/w:0", "conv1.w-0", "int", 'a"b', "*/ x \\", "\n", "ALIGNMENT", "size", "Größe"]


def text(prefix: str = "ARENA") -> str:
    n = len(NAMES)
    instance = sp.LmemPacking.from_arrays([16] * n, [0] * n, [2] * n, ids=NAMES, alignment=16)
    solution = sp.PackingSolution.of(instance, [16 * at for at in range(n)])
    return header(instance, solution, prefix=prefix)


def test_every_buffer_has_a_name_of_its_own() -> None:
    defined = [line.split()[1] for line in text().splitlines() if line.startswith("#define ARENA")]
    offsets = [name for name in defined if name.endswith("_OFFSET")]
    assert len(set(offsets)) == len(NAMES)
    assert all(name.isascii() for name in offsets)


@pytest.mark.parametrize("standard", ["c99", "c11"])
def test_compilers_take_it_and_hold_it_to_its_asserts(standard: str, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    command = [compiler, f"-std={standard}", "-pedantic-errors", "-Werror", "-fsyntax-only"]
    source = tmp_path / "arena.c"
    source.write_text(f"{text()}\nint main(void) {{ return 0; }}\n")
    assert subprocess.run([*command, source], check=False).returncode == 0
    wrong = source.read_text().replace("_SIZE_OFFSET 112ULL", "_SIZE_OFFSET 113ULL")
    assert wrong != source.read_text()
    source.write_text(wrong)
    found = subprocess.run([*command, source], check=False, capture_output=True)
    assert found.returncode != 0
