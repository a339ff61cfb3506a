"""Offsets as a header for programs in C."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.formats.c_header import header
from stagepack.formats.linker_script import fragment
from stagepack.formats.solutions import require_expressible

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


def two_memories() -> tuple[sp.LmemPacking, sp.PackingSolution]:
    """Return buffers in two memories, one of them called as a memory is, and one fixed."""
    instance = sp.LmemPacking.from_arrays(
        [64, 32, 32, 16, 8], [0, 1, 0, 2, 0], [2, 2, 4, 5, 1],
        ids=["net/conv1/w", "net/conv2/w", "net/fc.b", "fast", "net/fc.b_start"],
        alignment=[16, 16, 16, 16, 1], fixed=[-1, -1, 32, -1, -1],
        memories=[("fast", 64), ("slow ram", None)], name="two",
    )  # fmt: skip
    return instance, sp.PackingSolution.of(instance, [0, 0, 32, 0, 0], [1, 0, 0, 0, 0])


def test_each_memory_has_a_table(tmp_path: Path) -> None:
    instance, solution = two_memories()
    assert instance.check(solution) == ()
    text = header(instance, solution, prefix="NET", short=True)
    fast, slow = text.partition("/* The memory slow ram. */")[::2]
    assert "#define NET_FAST_SIZE 64ULL\n#define NET_FAST_ALIGNMENT 16ULL\n" in fast
    assert "#define NET_FAST_CAPACITY 64ULL\n" in fast
    assert "#define NET_CONV2_W_OFFSET 0ULL\n" in fast
    assert "#define NET_B_OFFSET 32ULL\n" in fast
    assert "#define NET_FAST_3_SIZE 16ULL\n" in fast  # a buffer called as the memory
    assert "#define NET_SLOW_RAM_SIZE 64ULL\n" in slow
    assert "#define NET_CONV1_W_OFFSET 0ULL\n" in slow
    assert "NET_SLOW_RAM_CAPACITY" not in slow
    assert "#define NET_NET_CONV1_W_OFFSET" in header(instance, solution, prefix="NET")
    if (compiler := shutil.which("cc")) is not None:
        source = tmp_path / "net.c"
        source.write_text(f"{text}\nint main(void) {{ return 0; }}\n")
        command = [compiler, "-std=c11", "-Werror", "-fsyntax-only", str(source)]
        assert subprocess.run(command, check=False).returncode == 0


WHOLE = """\
MEMORY { rest (rwx) : ORIGIN = 0x10000, LENGTH = 64K }
SECTIONS { .all : { *(*) } > rest }
INCLUDE fragment.ld
"""


def symbols(text: str) -> dict[str, tuple[str, int]]:
    """Return what a fragment assigns: the symbol that each begins with, and what is added."""
    assigned = re.findall(r"^(\w+) = (?:(\w+) \+ )?([0-9]+);$", text, re.MULTILINE)
    assert len({name for name, _, _ in assigned}) == len(assigned)
    return {name: (base, int(more)) for name, base, more in assigned}


def test_linker_scripts_say_where_buffers_are(tmp_path: Path) -> None:
    instance, solution = two_memories()
    origin = "fast@0x20000000;slow ram@1610612736"
    text = fragment(instance, solution, origin=origin, short=True)
    regions = re.findall(
        r"^  (\w+) \(rw\) : ORIGIN = (\w+), LENGTH = ([0-9]+)$", text, re.MULTILINE
    )
    assert regions == [("fast", "0x20000000", "64"), ("slow_ram", "0x60000000", "64")]
    said = symbols(text)
    assert said["arena_conv1_w_start"] == ("arena_slow_ram_start", 0)
    assert said["arena_b_start"] == ("arena_fast_start", 32)
    assert said["arena_b_size"] == ("", 32)
    assert said["arena_fast_size"] == ("", 64)
    assert len([name for name in said if name.endswith("_start")]) == instance.n
    assert "ASSERT(arena_fast_start == ORIGIN(fast), " in text  # something is fixed there
    assert "MEMORY" not in fragment(instance, solution)
    linked = defined(tmp_path, text)
    assert linked["arena_b_start"] == 0x20000020
    assert linked["arena_b_size"] == 32
    assert linked["arena_conv1_w_start"] == 0x60000000
    tight = text.replace("LENGTH = 64", "LENGTH = 60", 1)
    assert "overflowed" in defined(tmp_path, tight, fails=True)
    moved = text.replace("arena_fast_start = .;", ". = . + 0;\n arena_fast_start = . + 16;")
    assert "begins where fast does" in defined(tmp_path, moved, fails=True)


def test_one_memory_is_a_region_of_the_script_that_includes_it(tmp_path: Path) -> None:
    instance = sp.LmemPacking.from_arrays([16, 8], [0, 1], [2, 3], ids=["b", "start"], alignment=8)
    solution = sp.PackingSolution.of(instance, [0, 16])
    text = fragment(instance, solution)
    assert symbols(text)["arena_start_start"] == ("arena_start", 16)
    whole = f"MEMORY {{ arena (rw) : ORIGIN = 256, LENGTH = 24 }}\n{text}"
    assert defined(tmp_path, whole)["arena_start_start"] == 256 + 16
    assert "LENGTH = 24" in fragment(instance, solution, origin="256")


def defined(folder: Path, script: str, *, fails: bool = False) -> Any:
    """Return the symbols of a program that is linked by a script; or what the linker says."""
    tools = [shutil.which(name) for name in ("cc", "ld", "nm")]
    if None in tools:
        pytest.skip("there is no compiler, linker or nm")
    compiler, linker, lister = map(str, tools)
    source, made = folder / "x.c", folder / "x.o"
    source.write_text("extern char arena_b_start[];\nchar *used = arena_b_start;\n")
    (folder / "fragment.ld").write_text(script)
    (folder / "x.ld").write_text(WHOLE)
    subprocess.run([compiler, "-c", source, "-o", made], check=True)
    command = [linker, *map(str, ("-L", folder, "-T", folder / "x.ld", made, "-e", "0", "-o"))]
    command.append(str(folder / "x"))
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (found.returncode != 0) == fails, found.stderr
    if fails:
        return found.stderr
    listed = subprocess.run([lister, folder / "x"], check=True, capture_output=True, text=True)
    rows = [line.split() for line in listed.stdout.splitlines()]
    return {row[2]: int(row[0], 16) for row in rows}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"origin": "fast@0x20000000"}, "origin: slow ram has none"),
        ({"origin": "0x20000000"}, "is no begin of a memory; write fast@0x2"),
        ({"origin": "fast=5;slow ram@7"}, "'fast=5' is no begin of a memory"),
        ({"prefix": "9"}, "prefix: '9' is no name"),
        ({"short": "maybe"}, "short"),
    ],
)
def test_what_a_linker_script_cannot_say_is_named(options: dict[str, str], words: str) -> None:
    instance, _ = two_memories()
    with pytest.raises(InputError, match=words):
        require_expressible(instance, "ld", options)


def test_models_have_one_arena(tmp_path: Path) -> None:
    instance, _ = two_memories()
    with pytest.raises(InputError, match="memories: there are several"):
        require_expressible(instance, "tflm", {"model": tmp_path / "x.tflite"})


def test_tables_name_the_memory_of_each_buffer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    instance, solution = two_memories()
    path = tmp_path / "out.csv"
    sp.write_solution(instance, solution, path)
    lines = path.read_text().splitlines()
    assert lines[0] == "id,lower,upper,size,alignment,offset,memory"
    assert lines[1] == "net/conv1/w,0,2,64,16,0,slow ram"
    assert sp.read_solution(path, instance) == solution
    assert sp.read(path).hint.tolist() == [0, 0, 32, 0, 0]
    assert "column memory is where a solution has buffers" in caplog.messages[-1]
    path.write_text("\n".join(lines).replace("slow ram", "other"))
    with pytest.raises(InputError, match=r"buffer net/conv1/w: 'other' is no memory; there are"):
        sp.read_solution(path, instance)
    path.write_text("\n".join(line.rpartition(",")[0] for line in lines))
    with pytest.raises(InputError, match="column memory is missing"):
        sp.read_solution(path, instance)
