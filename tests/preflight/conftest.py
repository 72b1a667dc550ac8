"""A folder of runs with commands over it."""

from __future__ import annotations

import pytest

from tests.preflight.starts import Starts


@pytest.fixture
def starts(tmp_path, capsys, monkeypatch) -> Starts:
    monkeypatch.delenv("ROYALE_TOKEN", raising=False)
    monkeypatch.chdir(tmp_path)
    base = tmp_path / "runs"
    base.mkdir()
    return Starts(base, capsys)
