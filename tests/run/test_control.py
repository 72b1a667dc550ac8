"""The control file: one letter, however an editor or a shell writes it."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from royale_server.run.control import ControlFile, ControlThread, Letter


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


def test_letters_are_looked_for_in_a_thread_of_their_own(path: Path) -> None:
    seen: list[Letter] = []
    came = threading.Event()

    def on_letter(letter: Letter) -> None:
        seen.append(letter)
        came.set()

    thread = ControlThread(ControlFile(path), on_letter)
    path.write_text("c")
    assert came.wait(30)
    thread.stop()
    assert seen == [Letter.CHECKPOINT]
