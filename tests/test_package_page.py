"""What stands beside the package: a source distribution with its tests, how to cite it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from email import message_from_string
from pathlib import Path

import pytest

import stagepack as sp
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


@pytest.mark.parametrize("address", ["", "https://example.org/team/stagepack"])
def test_links_of_the_page_lead_to_the_source_that_is_named(tmp_path: Path, address: str) -> None:
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "stagepack").symlink_to(ROOT / "stagepack")
    with (tmp_path / "pyproject.toml").open("a") as project:
        project.write(f'[project.urls]\nSource = "{address}"\n' if address else "")
    code = "from setuptools.build_meta import *; prepare_metadata_for_build_wheel('.')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*.dist-info/METADATA")
    said = message_from_string(path.read_text())
    page, readme = said.get_payload(), (ROOT / "README.md").read_text()
    links = re.findall(r'\]\(([^)]+)\)|(?:src|srcset)="([^"]+)"', str(page))
    assert len(links) > 30
    if not address:
        assert (said["Project-URL"], page) == (None, readme)
        return
    assert said["Project-URL"] == f"Source, {address}"
    for link in map("".join, links):
        kind, at, name = link.removeprefix(f"{address}/").split("/", 2)
        assert (kind, at) == ("raw" if name.endswith(".png") else "blob", "HEAD"), link
        assert (ROOT / name).is_file(), link
    assert (
        str(page).replace(f"{address}/blob/HEAD/", "").replace(f"{address}/raw/HEAD/", "") == readme
    )


def test_one_version_stands_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest is not None
    assert sp.__version__ == newest[1] == project["version"]
    said = re.findall(r"^(version|license): (.+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert dict(said) == {"version": project["version"], "license": project["license"]}
