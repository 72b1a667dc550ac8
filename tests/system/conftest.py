"""Fixtures that start and end the processes of a test."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.processes import Processes, Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """The process whose forks are our commands."""
    started = Zygote()
    yield started
    started.close()


@pytest.fixture
def unused_port() -> int:
    """A port that was free just now, for those who must know it before anybody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture
def processes(tmp_path: Path, zygote: Zygote) -> Iterator[Processes]:
    """Starts processes, ends them after the test, and sees that none shows a traceback."""
    started = Processes(tmp_path, zygote)
    yield started
    started.close()
    suspects = [program for program in started.all if program not in started.may_crash]
    torn = [program.name for program in suspects if "Traceback" in program.output]
    assert not torn, f"a traceback in the output of {', '.join(torn)}"
