"""Files on the command line: outputs that cannot work, answers that are never lost, limits."""

from __future__ import annotations

import gzip
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import STAGEPACK, run, shell


def test_outputs_that_cannot_work_are_refused_before_anything_runs(
    chain: Path,
    tmp_path: Path,
) -> None:
    solution = tmp_path / "solution.json"
    solution.write_text('{"boundaries": [0, 2, 5]}')
    hopeless = "/proc/hopeless.json"
    for arguments in (
        ("solve", chain, "-o", hopeless),
        ("solve", chain, "-o", tmp_path),
        ("solve", chain, "--trace", hopeless),
        ("solve", chain, "--export", "/proc/hopeless.csv"),
        ("solve", chain, "-o", tmp_path / "a", "--trace", tmp_path / "a"),
        ("compare", chain, "--csv", hopeless),
        ("compare", chain, "--html", "/proc/hopeless"),
        ("plot", chain, solution, "-o", "/proc/hopeless.png"),
        ("convert", chain, hopeless),
        ("solve", chain, "-o", chain),
        ("pareto", f"{chain}#five", "--csv", chain),
        ("plan", chain, "--html", chain),
        ("plan", chain, "--plot", tmp_path / "a.xyz"),
    ):
        done = run("-v", *arguments)
        assert done.returncode == 2, arguments
        assert done.stdout == ""
        (line,) = done.stderr.splitlines()  # and no incumbent was found before it
        assert line.startswith("error: /")
    assert not (tmp_path / "a").exists()
    done = run("solve", chain, "-o", "-")
    assert (done.returncode, done.stderr) == (
        2,
        "error: -: is no file; name a file; --json prints to stdout\n",
    )


def test_what_is_not_installed_is_told_in_one_line(chain: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nfor name in ('distributed', 'highspy', 'plotly'): sys.modules[name] = None\n"
    )
    bare = {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    for arguments, said in (
        (("compare", chain, "--no-html", "--dask", "x:1"), "stagepack[dask]"),
        (("solve", chain, "-m", "milp-interval"), "highspy is missing"),
        (("plan", chain, "--html", tmp_path / "page.html"), "--html: needs plotly"),
    ):
        done = run(*arguments, env=bare)
        assert done.returncode == 2, done.stderr
        assert said in done.stderr.splitlines()[-1]
        assert done.stdout == ""


def test_a_packed_result_is_a_warm_start(chain: Path, tmp_path: Path) -> None:
    done = run("solve", chain, "-m", "greedy", "--json")
    (tmp_path / "result.json.gz").write_bytes(gzip.compress(done.stdout.encode()))
    again = run("solve", chain, "--warm-start", "result.json.gz", cwd=tmp_path)
    assert again.returncode == 0, again.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_what_cannot_be_written_in_the_end_is_on_stdout(chain: Path) -> None:
    for option, flags in (("-o", ()), ("--trace", ("--json",)), ("--trace", ())):
        done = run("solve", chain, option, "/dev/full", *flags)
        assert done.returncode == 2
        document = json.loads(done.stdout)
        assert document["solution"] == {"boundaries": [0, 3, 5], "devices": [0, 1]}
        assert document["trace"]
        assert "error: /dev/full: cannot be written" in done.stderr
        assert "the whole result is on stdout instead" in done.stderr
    done = run("compare", chain, "-m", "dp", "-j", "0", "--no-html", "--csv", "/dev/full")
    assert done.returncode == 2
    assert json.loads(done.stdout)["rows"][0]["objective"] == 9


def test_stdout_is_an_output_like_any_other(chain: Path, tmp_path: Path) -> None:
    before = os.lstat("/dev/stdout")
    out = tmp_path / "out"
    done = shell(f"{STAGEPACK} solve {chain} -o /dev/stdout > {out}")
    assert done.returncode == 0
    assert "OPTIMAL" in done.stderr, "the summary goes where it does not mix"
    assert os.lstat("/dev/stdout").st_ino == before.st_ino
    assert json.loads(out.read_text())["objective"] == 9
    quiet = shell(f"{STAGEPACK} -q solve {chain} -o /dev/stdout")
    assert (json.loads(quiet.stdout)["objective"], quiet.stderr) == (9, "")
    done = shell(f"{STAGEPACK} pareto {chain} -x memory -o /dev/stdout")
    assert json.loads(done.stdout)["points"], done.stderr
    assert done.stderr
    done = run("solve", chain, "--json", "-o", "/dev/stdout")
    assert json.loads(done.stdout)["objective"] == 9
    done = shell(f"{STAGEPACK} solve {chain} --trace /dev/fd/3 3>&1 >/dev/null | head -1")
    assert done.stdout == "time,kind,value,source\n"


@pytest.mark.parametrize(
    "command", ["list", "methods", "schema pipeline", "list --json", "solve --help"]
)
def test_a_reader_that_leaves_is_no_failure(command: str) -> None:
    done = shell(f"{STAGEPACK} {command} | head -1")
    assert (done.returncode, done.stderr) == (0, "")


def test_limits_on_what_is_read(chain: Path, tmp_path: Path) -> None:
    bomb = tmp_path / "b.json"
    bomb.write_bytes(gzip.compress(bytes(2**21)))
    cases: list[tuple[Any, ...]] = [
        ("solve", "/dev/zero"),
        ("solve", bomb, "--max-bytes", "1MiB"),
        ("check", chain, "/dev/zero"),
        ("check", chain, bomb, "--max-bytes", "1MiB"),
        ("solve", chain, "--max-bytes", "100"),
        ("solve", chain, "--warm-start", bomb, "--max-bytes", "1e6"),
    ]
    for arguments in cases:
        done = run(*arguments)
        assert done.returncode == 2
        assert "is a device" in done.stderr or "raise the limit with --max-bytes" in done.stderr
    assert run("show", chain, env={"STAGEPACK_MAX_BYTES": "100"}).returncode == 2
    assert run("show", chain, "--max-bytes", "1e6").returncode == 0


def test_too_little_memory_is_one_line_and_exit_2(tmp_path: Path) -> None:
    large = tmp_path / "sparse.json"
    with large.open("wb") as stream:
        stream.truncate(2**33)
    done = shell(f"ulimit -v 4000000; {STAGEPACK} solve {large} --max-bytes 16GiB")
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"error: {large}: takes more memory than there is")
    assert len(done.stderr.splitlines()) == 1


def test_a_run_in_little_address_space_ends() -> None:
    """OpenBLAS would ask for ever for memory that it does not get."""
    run_it = f"timeout -s KILL 300 {STAGEPACK} solve packing/above-load -m cp-sat -t 1"
    done = shell(f"ulimit -v 600000; {run_it}")
    assert done.returncode != 137, "killed: it would not end"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "setting",
    [
        "layers=" + "[" * 20_000,
        "batch=" + "9" * 5000,
        "nonsense=null",
        "kind=5",
        "kind=[]",
        "objective=[]",
        "batch=NaN",
    ],
    ids=lambda setting: setting[:16],
)
def test_odd_settings_are_one_line_and_exit_2(
    chain: Path,
    setting: str,
) -> None:
    for source in ("pipeline/bert-base", chain):
        done = run("show", source, "--set", setting)
        assert done.returncode == 2, done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert len(done.stderr) < 600


def test_without_the_report_extra(chain: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules['plotly'] = sys.modules['matplotlib'] = None\n"
    )
    bare = {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    solution = tmp_path / "solution.json"
    solution.write_text('{"boundaries": [0, 2, 5]}')
    for name in ("map.png", "map.html"):
        done = run("plot", chain, solution, "-o", tmp_path / name, env=bare)
        assert done.returncode == 2
        assert "pip install 'stagepack[report]'" in done.stderr
    compare = ("compare", chain, "-m", "dp", "-j", "0")
    done = run(*compare, "--html", tmp_path / "report", env=bare)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "--html: needs plotly" in done.stderr
    done = run(*compare, env=bare, cwd=tmp_path)
    assert done.returncode == 0
    assert "no report: it needs plotly" in done.stderr
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['jinja2'] = None\n")
    done = run("plot", chain, solution, "-o", tmp_path / "map.html", env=bare)
    assert done.returncode == 2
    assert "the report needs jinja2" in done.stderr
    done = run(*compare, env=bare, cwd=tmp_path)
    assert done.returncode == 0
    assert "no report: it needs jinja2" in done.stderr


@pytest.mark.parametrize(
    "env",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=["PYTHONIOENCODING", "LC_ALL"],
)
def test_terminals_without_unicode(
    chain: Path,
    tmp_path: Path,
    env: dict[str, str],
) -> None:
    named = tmp_path / "named.json"
    named.write_text(chain.read_text().replace("five", "f\\u00fcnf \\u5c64"))
    for arguments in (("solve", named), ("show", chain), ("list", "pipeline/bert-base")):
        done = run(*arguments, env=env)
        assert done.returncode == 0, done.stderr
        assert done.stdout.isascii()
    assert "f\\xfcnf \\u5c64" in run("solve", named, env=env).stdout
    missing = run("solve", tmp_path / "f\u00fcnf.json", env=env)
    assert missing.returncode == 2
    assert "nf.json: no such file" in missing.stderr
    assert missing.stderr.isascii()


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        SystemError("error return without exception set"),
        OSError("Could not load shared object file 'libllvmlite.so'"),
        ImportError("failed to map segment from shared object"),
        RuntimeError("can't start new thread"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_libraries_that_get_no_memory_end_in_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    resource = pytest.importorskip("resource")
    from stagepack import cli

    def starve(**_: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", starve)
    monkeypatch.setattr(sys, "argv", ["stagepack", "list"])
    monkeypatch.setattr(resource, "getrlimit", lambda _: (2**29, 2**29))
    monkeypatch.setattr("stagepack.cli.guard.guarded", lambda _: lambda: None)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit) as end:
        cli.main()
    signal.signal(signal.SIGINT, before)  # a command that ends hears nothing any more
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith("error: the run takes more memory than there is")
