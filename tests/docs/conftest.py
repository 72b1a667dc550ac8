"""A directory in which the commands of a page can run, and the process that runs them fast."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs import fork_server
from tests.docs.pages import ROOT

START_TIMEOUT_S = 60.0
PROGRAMS = (fork_server.SERVER, fork_server.CLIENT, fork_server.PYTHON)
SCRIPT = fork_server.__file__


@pytest.fixture(scope="session")
def forking_socket() -> Iterator[str]:
    """Path of the socket at which commands are asked for; the server behind it ends with us."""
    if os.name != "posix":
        pytest.skip("the commands of the pages are written for a POSIX shell")
    # Not pytest's own folder: the path of a Unix socket must be short.
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/s"
        process = subprocess.Popen(
            [sys.executable, SCRIPT, "serve", path],
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,
        )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not Path(path).exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert process.poll() is None, "the forking process ended; its output says why"
        yield path
        os.killpg(process.pid, signal.SIGKILL)  # a group of its own: forks that hang end too
        process.wait()


@pytest.fixture
def page_environment(tmp_path: Path, forking_socket: str) -> dict[str, str]:
    """Environment in which `royale-server` and the others mean this checkout's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in PROGRAMS:
        shim = folder / program
        shim.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -S "{SCRIPT}" request {program} "$@"\n'
        )
        shim.chmod(0o755)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ROYALE_", "PYTHONPATH"))}
    path = os.pathsep.join([str(folder), clean.get("PATH", os.defpath)])
    return {**clean, "PATH": path, fork_server.SOCKET: forking_socket}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A scratch directory that looks like the checkout as far as the pages need it."""
    directory = tmp_path / "checkout"
    directory.mkdir()
    shutil.copytree(ROOT / "docs", directory / "docs")
    return directory
