"""Socket files: nobody else may ever open one, and no server takes the place of another."""

from __future__ import annotations

import os
import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from royale_client.wire.errors import ConfigError
from royale_server.endpoint.socket_file import SocketFile

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no socket files here")


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A short name, since the whole path of a socket file may have a hundred bytes."""
    monkeypatch.chdir(tmp_path)
    return Path("s")


@pytest.fixture
def make():
    """Makes socket files, and closes their sockets at the end."""
    made = []

    def start(path):
        made.append(SocketFile(path))
        return made[-1]

    yield start
    for file in made:
        file.socket.close()


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def dial(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_file_is_for_its_owner_alone_before_it_can_be_reached(path, make, monkeypatch):
    seen = []
    replace = Path.replace

    def watched(self, target):
        seen.append((mode(self), mode(self.parent), path.exists()))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    old = os.umask(0)
    try:
        make(path)
    finally:
        os.umask(old)
    assert seen == [(0o600, 0o700, False)]
    assert mode(path) == 0o600
    dial(path)


def test_nothing_is_left_beside_the_file_and_nothing_at_all_at_the_end(path, make, tmp_path):
    file = make(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["s"]
    file.remove()
    file.remove()
    assert list(tmp_path.iterdir()) == []


def test_url_is_whole_and_quoted(tmp_path, monkeypatch, make):
    monkeypatch.chdir(tmp_path)
    assert make(Path("a #?")).url == f"unix://{tmp_path}/a%20%23%3F"


def test_file_of_a_server_that_is_gone_is_replaced(path, make):
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(path))
        gone.listen()
    make(path)
    dial(path)


def test_file_of_a_server_that_listens_is_refused_and_left_alone(path, make):
    make(path)
    with pytest.raises(ConfigError, match="/s: another server listens there; stop it"):
        make(path)
    dial(path)


def test_one_of_many_that_start_at_once_gets_the_place(path, make, tmp_path):
    def attempt(_):
        try:
            return make(path)
        except ConfigError:
            return None

    with ThreadPoolExecutor(8) as pool:
        winners = [file for file in pool.map(attempt, range(8)) if file is not None]
    assert len(winners) == 1
    dial(path)


@pytest.mark.parametrize("content", ["text", "link"])
def test_what_is_no_socket_is_never_replaced(path, make, content):
    if content == "text":
        path.write_text("mine")
    else:
        path.symlink_to("elsewhere")
    with pytest.raises(ConfigError, match="there is a file that is no socket; remove it"):
        make(path)
    assert path.is_symlink() or path.read_text() == "mine"


def test_missing_folder_is_named(tmp_path, make):
    with pytest.raises(ConfigError, match=r"there is no folder .*none; create it first"):
        make(tmp_path / "none" / "s")


def test_path_that_is_too_long_is_refused_in_a_sentence(tmp_path, make):
    with pytest.raises(ConfigError, match="too long; choose another place"):
        make(tmp_path / ("long" * 40))
    assert list(tmp_path.iterdir()) == []


def test_file_of_the_next_server_is_not_removed_by_the_last(path, make):
    first = make(path)
    first.socket.close()
    make(path)
    first.remove()
    dial(path)
