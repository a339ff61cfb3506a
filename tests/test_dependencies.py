"""What the package asks for: minimums that a lane of CI tries, releases that engines know."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from stagepack.solvers.highs import RELEASES, REMEDY

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ASKED = {
    asked.name: asked
    for asked in map(
        Requirement, [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["test"]]
    )
}


def test_the_oldest_lane_tries_every_minimum() -> None:
    lines = (ROOT / ".ci" / "oldest.txt").read_text().splitlines()
    oldest = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert oldest.keys() == ASKED.keys()
    for name, version in oldest.items():
        (least,) = (part.version for part in ASKED[name].specifier if part.operator == ">=")
        assert f"{version}.".startswith(f"{least}."), name
        assert version in ASKED[name].specifier, name


@pytest.mark.parametrize("version", ["1.11.0", "1.12.0", "1.13.1", "1.14.0", "1.15.1", "1.17.0"])
def test_no_release_of_highspy_is_installed_that_is_refused(version: str) -> None:
    assert version not in ASKED["highspy"].specifier
    assert ".".join(version.split(".")[:2]) not in RELEASES


@pytest.mark.parametrize("release", RELEASES)
def test_releases_of_highspy_that_are_trusted_are_installed(release: str) -> None:
    assert f"{release}.0" in ASKED["highspy"].specifier


def test_the_remedy_names_the_newest_release_of_highspy() -> None:
    named = Requirement(REMEDY.split("'")[1])
    assert f"{max(RELEASES, key=Version)}.0" in named.specifier


def test_every_python_that_is_named_may_install_the_package() -> None:
    head = "Programming Language :: Python :: "
    named = [line.removeprefix(head) for line in PROJECT["classifiers"] if line.startswith(head)]
    allowed = Requirement(f"x{PROJECT['requires-python']}").specifier
    assert named == ["3.11", "3.12", "3.13", "3.14"]
    assert all(f"{version}.0" in allowed for version in named)
