"""Files: what is refused before it is read, links that stay links, devices that stay devices."""

from __future__ import annotations

import gzip
import os
import stat
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack import files
from stagepack.errors import InputError, shown
from stagepack.formats.minimalloc.buffers import read_previous

CSV = b"id,lower,upper,size\n" + b"".join(b"%d,0,1,4\n" % i for i in range(200))
instance = sp.LmemPacking.from_arrays([4, 4], [0, 0], [1, 1])
READERS: dict[str, Callable[[Path], Any]] = {
    "instance": sp.read,
    "instances": sp.read_all,
    "solution": lambda path: sp.read_solution(path, instance),
    "previous": lambda path: read_previous(path, instance),
    "measured": sp.read_measured,
}


@pytest.mark.parametrize("reader", READERS.values(), ids=list(READERS))
@pytest.mark.parametrize("packed", [False, True])
def test_every_reader_refuses_more_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: Callable[[Path], Any], packed: bool
) -> None:
    path = tmp_path / "large"
    path.write_bytes(gzip.compress(CSV) if packed else CSV)
    monkeypatch.setenv(files.VARIABLE, "1kB")
    with pytest.raises(InputError, match=r"the limit is 1,000 bytes; raise the limit with --max-b"):
        reader(path)


def test_a_limit_can_be_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large.csv.gz"
    path.write_bytes(gzip.compress(CSV))
    monkeypatch.setenv(files.VARIABLE, "1kB")
    assert sp.read(path, max_bytes=len(CSV)).n == 200
    with pytest.raises(InputError, match=r"large.csv.gz: holds more when it is unpacked"):
        sp.read(path, max_bytes=len(CSV) - 1)
    monkeypatch.setenv(files.VARIABLE, "0.01MiB")
    assert sp.read(path).n == 200
    for wrong in (0, -1, True, 2.5):
        with pytest.raises(InputError, match="max_bytes"):
            sp.read(path, max_bytes=wrong)
    monkeypatch.setenv(files.VARIABLE, "plenty")
    with pytest.raises(InputError, match=files.VARIABLE):
        sp.read(path)


def test_a_bomb_is_refused_while_it_is_small(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(bytes(2**28)))
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="holds more when it is unpacked"):
            sp.read(path, max_bytes=2**22)
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom", "/dev/null"])
@pytest.mark.parametrize("reader", READERS.values(), ids=list(READERS))
def test_devices_are_not_read(device: str, reader: Callable[[Path], Any]) -> None:
    with pytest.raises(InputError, match=f"{device}: is a device"):
        reader(Path(device))


def test_a_large_file_is_not_even_begun(tmp_path: Path) -> None:
    path = tmp_path / "sparse.json"
    with path.open("wb") as stream:
        stream.truncate(2**40)
    with pytest.raises(InputError, match="holds 1,099,511,627,776 bytes, the limit is 268,435,456"):
        sp.read(path)


def test_pipes_are_read_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    thread = threading.Thread(target=path.write_bytes, args=(CSV,))
    thread.start()
    assert sp.read(path).n == 200
    thread.join()


def test_too_little_memory_is_an_input_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(CSV)

    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(sp.LmemPacking, "from_arrays", full)
    with pytest.raises(InputError, match=r"a.csv: takes more memory than there is"):
        sp.read(path)


# ---------------------------------------------------------------------- writing


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "file", tmp_path / "link"
    link.symlink_to(target)
    for text in ("dangling", "there"):
        files.require_writable(link)
        files.write(link, text)
        assert link.is_symlink()
        assert target.read_text() == text
    assert os.listdir(tmp_path / "real") == ["file"]
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    for use in (files.require_writable, lambda path: files.write(path, "")):
        with pytest.raises(InputError, match="circle"):
            use(circle)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_what_a_pipe_gave_is_kept_for_it_alone(tmp_path: Path) -> None:
    pipe, gone = tmp_path / "pipe", tmp_path / "gone"
    os.mkfifo(pipe)
    os.mkfifo(gone)

    def write_and_remove() -> None:
        with gone.open("wb") as stream:
            gone.unlink()
            stream.write(b"removed")

    for path, write in ((pipe, lambda: pipe.write_bytes(b"piped")), (gone, write_and_remove)):
        writer = threading.Thread(target=write)
        writer.start()
        files.peek(path, 2)
        writer.join()
    assert files.read(pipe) == b"piped"
    with pytest.raises(InputError, match="limit is 4 bytes"):
        files.read(pipe, max_bytes=4)
    with pytest.raises(InputError, match="no such file"):
        files.read(gone)
    pipe.unlink()
    for place in range(9):  # one of these takes the number of what was removed
        path = tmp_path / f"{place}.txt"
        path.write_bytes(b"plain")
        assert files.read(path) == b"plain"


def test_descriptors_and_pipes_are_written_to(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with target.open("w") as stream:
        stream.write("before ")
        stream.flush()
        own = tmp_path / "own"
        own.symlink_to(f"/dev/fd/{stream.fileno()}")
        for path in (f"/dev/fd/{stream.fileno()}", f"/proc/self/fd/{stream.fileno()}", own):
            files.require_writable(path)
            files.write(path, "and ")
            assert os.path.samestat(os.fstat(stream.fileno()), target.stat())
    assert target.read_text() == "before and and and "
    assert own.is_symlink()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    thread.start()
    files.require_writable(pipe)
    files.write(pipe, "through")
    thread.join()
    assert got == [b"through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    files.write("/dev/null", "x")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize(
    "path",
    ["/proc/x.json", "/", "", ".", "/nonexistent/x", "/dev/null/x", "/dev/fd/987", "x" * 300, "\0"],
)
def test_what_cannot_work_is_refused_early(path: str) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        files.require_writable(path)
    with pytest.raises(InputError, match="cannot be written"):
        files.write(path, "x")


def test_what_is_no_path_is_named(tmp_path: Path) -> None:
    instance = sp.load("phases/mnist")
    wrong: Any = instance
    for call in (
        lambda: sp.read(wrong),
        lambda: sp.read_solution(wrong, wrong),
        lambda: sp.write(instance, wrong),
        lambda: sp.read_plan(wrong),
        lambda: sp.read_store(wrong),
    ):
        with pytest.raises(InputError, match=r"^path: PhaseSchedule is no path"):
            call()


def test_directories_for_reports(tmp_path: Path) -> None:
    files.require_directory(tmp_path / "new" / "deep", "index.html")
    assert not (tmp_path / "new").exists()
    (tmp_path / "index.html").mkdir()
    with pytest.raises(InputError, match=r"index.html: cannot be written"):
        files.require_directory(tmp_path, "index.html")
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/new")):
        with pytest.raises(InputError, match="cannot be written"):
            files.require_directory(path)


# ---------------------------------------------------------------------- messages


def test_names_are_shown_as_they_are_written() -> None:
    steering = "a\x1b[31m\n\u202eb\u2066\x9b\ud800\x7f"
    assert shown(steering) == "a\\x1b[31m\\n\\u202eb\\u2066\\x9b\\ud800\\x7f"
    assert shown("Größe – 層") == "Größe – 層"
    assert len(shown("x" * 1000, 60)) == 60
    message = str(
        InputError("is " + steering, file=steering, field="f\r", remedy="r\t" + "y" * 900)
    )
    assert message.isprintable()
    assert len(message) < 600
