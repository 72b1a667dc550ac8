"""The log file of an attempt: every line once, and a full disk is nobody else's trouble."""

import errno
import logging
import os

from royale_server.monitoring.logging_setup import LINE_FORMAT, LogFile, copied_to


def raise_full(*_arguments, **_keywords):
    raise OSError(errno.ENOSPC, "No space left on device")


def logged(path):
    prefix = len(logging.Formatter(LINE_FORMAT).formatTime(logging.makeLogRecord({})))
    return [line[prefix + 1 :] for line in path.read_text(encoding="utf-8").splitlines()]


def test_lines_are_appended_to_what_earlier_blocks_wrote(tmp_path):
    path = tmp_path / "server.log"
    for number in (1, 2):
        with copied_to(path):
            logging.getLogger("royale_server").warning("line %d: Übung", number)
    assert logged(path) == ["WARNING line 1: Übung", "WARNING line 2: Übung"]


def test_a_full_disk_shows_no_traceback_and_lines_are_written_once_there_is_room(
    tmp_path, monkeypatch, capsys
):
    path = tmp_path / "server.log"
    log_file = LogFile(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", raise_full)
        log_file.emit(logging.makeLogRecord({"msg": "refused", "levelname": "INFO"}))
    assert logged(path) == []
    log_file.emit(logging.makeLogRecord({"msg": "taken", "levelname": "INFO"}))
    log_file.close()
    assert logged(path) == ["INFO    refused", "INFO    taken"]
    assert capsys.readouterr().err == ""


def test_what_a_full_disk_never_took_ends_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "write", raise_full)
    with copied_to(tmp_path / "server.log"):
        logging.getLogger("royale_server").warning("refused")
    assert logged(tmp_path / "server.log") == []
