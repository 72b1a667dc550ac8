"""What gets installed and shipped: pins, versions, the contents of wheel and source archive."""

import importlib.metadata
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
PACKAGES = ("royale_server", "royale_client", "algorithms", "checkpoints")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PIN = re.compile(r"^([a-z0-9._-]+)==(\S+)", re.MULTILINE)
PINS = PIN.findall((ROOT / "constraints.txt").read_text("utf-8"))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the source archive, built offline with the installed back-end."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", folder], cwd=ROOT, check=True)
    return folder


def test_wheel_holds_the_four_packages_with_their_types(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    metadata = f"royale_rl-{PROJECT['version']}.dist-info"
    assert {name.partition("/")[0] for name in names} == {*PACKAGES, metadata}
    for package in PACKAGES:
        assert {f"{package}/__init__.py", f"{package}/py.typed"} <= names


def test_source_archive_holds_what_is_listed_and_no_environment(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.split("/")[1] for name in archive.getnames()}
    needed = {*PACKAGES, "tests", "x.py", "constraints.txt", "pyproject.toml", "LICENSE"}
    documents = {"docs", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "PKG-INFO", ".gitignore"}
    assert needed <= names <= needed | documents


def test_installed_torch_is_the_pinned_one():
    # "2.13.0+cpu" and "2.13.0" are builds of the same pinned release.
    assert torch.__version__.partition("+")[0] == dict(PINS)["torch"]


def test_every_requirement_is_pinned():
    groups = PROJECT["optional-dependencies"].values()
    requirements = [*PROJECT["dependencies"], *(line for group in groups for line in group)]
    named = {re.split(r"[^A-Za-z0-9._-]", line)[0] for line in requirements}
    assert named <= {name for name, _ in PINS}


def test_pins_name_no_index_and_no_address():
    assert not re.search(r"://|^-", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)


def test_installed_version_is_the_one_of_pyproject():
    assert importlib.metadata.version("royale-rl") == PROJECT["version"]


def test_changelog_opens_with_the_current_version():
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.findall(r"^## ([0-9.]+)", changelog, re.MULTILINE)[0] == PROJECT["version"]
