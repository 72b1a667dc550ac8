"""What a person sees while the arena is compiled."""

from __future__ import annotations

import threading

import pytest

from royale_client.envs.arena import warm_up


def test_a_long_compilation_says_how_long_it_has_taken_and_stops_when_it_is_done(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(warm_up, "_SAY_EVERY_S", 0.001)
    said: list[str] = []
    has_spoken = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        has_spoken.set()

    with warm_up._progress(say):
        assert has_spoken.wait(10)
    assert said[0] == "still compiling the arena, 0 s so far"
    assert "royale-compiling" not in [thread.name for thread in threading.enumerate()]
