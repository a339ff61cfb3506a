"""What stands beside the package: a source distribution with its tests, how to cite it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

from tests.imports import ROOT

FOLDERS = ("stagepack", "tests", "benchmarks", "docs", "examples", ".ci")
LEFT_OUT = shutil.ignore_patterns("__pycache__", ".*_cache")


def test_a_source_distribution_holds_its_tests_and_what_they_read(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in FOLDERS:
        shutil.copytree(ROOT / name, source / name, ignore=LEFT_OUT)
    for path in ROOT.iterdir():
        if path.is_file() and not path.name.startswith("."):
            shutil.copy(path, source)
    wanted = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    build = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "-o", str(tmp_path)]
    done = subprocess.run([*build, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        held = {member.name.partition("/")[2] for member in opened.getmembers()}
    assert not wanted - held


def test_the_citation_is_of_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = re.findall(r"^(version|license): (.+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert dict(said) == {"version": project["version"], "license": project["license"]}
