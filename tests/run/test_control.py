"""The control file: one letter, however an editor or a shell writes it."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from royale_server.run.control import ControlFile, ControlThread, Letter
from royale_server.run.inbox import Inbox
from royale_server.run.layout import RunLayout
from royale_server.run.requests import RequestFolder, Verb, leave_request


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "control"


@pytest.mark.parametrize(
    "data",
    [b"q", b"q\n", b"Q\r\n", b"  q  ", b"\xef\xbb\xbfq\r\n", "q\r\n".encode("utf-16")],
    ids=["bare", "line", "windows", "blanks", "utf-8 mark", "utf-16"],
)
def test_a_letter_is_taken_once_whatever_wrote_it(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    control = ControlFile(path)
    assert control.take() is Letter.QUIT
    assert not path.exists()
    assert control.take() is None


def test_every_letter_has_its_meaning(path: Path) -> None:
    taken = []
    for letter in "cqp":
        path.write_text(letter)
        taken.append(ControlFile(path).take())
    assert taken == [Letter.CHECKPOINT, Letter.QUIT, Letter.PAUSE]


def test_a_file_that_is_being_written_is_left_until_it_holds_something(path: Path) -> None:
    path.write_bytes(b"")
    control = ControlFile(path)
    assert control.take() is None
    assert path.exists()
    path.write_bytes(b"p")
    assert control.take() is Letter.PAUSE


@pytest.mark.parametrize("data", [b"x", b"quit", b"\xff", b"c" * 100])
def test_what_is_no_letter_is_said_and_removed(
    path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        assert ControlFile(path).take() is None
    assert not path.exists()
    assert "expected one of c (checkpoint), q (quit), p (pause)" in caplog.text


def test_a_file_that_cannot_be_removed_is_not_obeyed_and_said_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.mkdir()  # reading it fails
    control = ControlFile(path)
    with caplog.at_level(logging.WARNING):
        assert [control.take(), control.take()] == [None, None]
    assert len(caplog.records) == 1


def test_letters_and_requests_are_looked_for_in_a_thread_of_their_own(tmp_path: Path) -> None:
    layout = RunLayout(base=tmp_path, algorithm="a", policy="p", name="r")
    layout.directory.mkdir(parents=True)
    inbox = Inbox(layout)
    seen: list[object] = []
    came = threading.Event()

    def look() -> None:
        inbox.look(seen.append, seen.append)
        if len(seen) == 2:
            came.set()

    layout.control.write_text("c")
    request = leave_request(layout.requests, Verb.PAUSE)
    thread = ControlThread(look)
    assert came.wait(30)
    thread.stop()
    assert seen == [Letter.CHECKPOINT, request]
    assert not layout.control.exists()
    assert not list(layout.requests.iterdir())


def test_what_was_asked_before_the_start_is_forgotten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    layout = RunLayout(base=tmp_path, algorithm="a", policy="p", name="r")
    layout.directory.mkdir(parents=True)
    layout.control.write_text("q")
    leave_request(layout.requests, Verb.STOP)
    Inbox(layout).clear()
    seen: list[object] = []
    Inbox(layout).look(seen.append, seen.append)
    assert seen == []
    assert caplog.text.count("is not obeyed") == 2


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"id": "1", "verb": "explode"}'])
def test_what_is_no_request_is_said_and_removed(
    tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "1.json").write_bytes(data)
    assert RequestFolder(tmp_path).take() == []
    assert not list(tmp_path.iterdir())
    assert "expected an id and one of checkpoint, stop, pause, continue" in caplog.text
