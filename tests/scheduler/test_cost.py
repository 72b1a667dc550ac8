"""What a request costs the core: the same at any number of rows, and at any number of clients."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from types import FrameType

import numpy as np
import pytest

from royale_server.scheduler import (
    Dispatch,
    Group,
    Infer,
    Learn,
    Request,
    Role,
    Scheduler,
    SchedulerConfig,
)

SETTINGS = {
    "barrier": {},
    "dynamic": {"dispatch": Dispatch.DYNAMIC},
    "mini": {"mini_infer_batch_size": 4},
}
TURN_S = 0.01


class Loop:
    """Sessions in step with each other, as cheap as possible beside the core."""

    def __init__(self, sessions: int, size: int, dispatch: str, *, target: int) -> None:
        config = SchedulerConfig(min_clients=sessions, **SETTINGS[dispatch])
        self.now = 0.0
        self.target = target
        self.frames = 0
        self.scheduler = Scheduler(config, target=target)
        members = [
            self.scheduler.join(f"c{k}", Role.TRAIN, (size,), self.now) for k in range(sessions)
        ]
        self.groups = [member.groups[0] for member in members]
        self.asks = np.ones(size, np.bool_)
        self.ended = np.zeros(size, np.bool_)
        self.ended[0] = True
        self.number = 0

    def round(self) -> None:
        """Every session sends a request; batches and learn steps are done at once."""
        self.now += TURN_S
        self.number += 1
        for group in self.groups:
            self.request(group)

    def request(self, group: Group) -> None:
        ended = self.ended if self.number > 1 else np.zeros_like(self.ended)
        request = Request(
            number=self.number, asks=self.asks, ended=ended, has_feedback=self.number > 1
        )
        scheduler = self.scheduler
        scheduler.request(group, request, self.now)
        commands = scheduler.advance(self.now)
        while commands:
            last = commands[-1]
            if isinstance(last, Infer):
                self.frames += len(last.cells)
                scheduler.inferred(self.now)
            elif isinstance(last, Learn):
                version = scheduler.ledger.version + 1
                scheduler.learned(self.now, version=version, target=self.target)
            else:
                raise AssertionError(last)
            commands = scheduler.advance(self.now)


def python_calls(work: Callable[[], None]) -> int:
    calls = 0

    def count(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    gc.disable()  # test tools hang Python callbacks on the collector
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return calls


@pytest.mark.parametrize("dispatch", SETTINGS)
def test_a_request_takes_the_same_python_calls_with_8_and_with_256_slots(dispatch: str) -> None:
    calls = {}
    for size in (8, 256):
        loop = Loop(2, size, dispatch, target=5 * 2 * size)  # a learn step every five rounds
        for _ in range(3):
            loop.round()
        calls[size] = [python_calls(loop.round) for _ in range(10)]
    assert calls[8] == calls[256]


def test_a_request_takes_few_python_calls() -> None:
    loop = Loop(1, 64, "barrier", target=10**6)
    for _ in range(3):
        loop.round()
    # Request, batch, answer and the two looks for what is due: 50 when this was written.
    assert python_calls(loop.round) <= 53


@pytest.mark.parametrize("dispatch", SETTINGS)
def test_a_request_takes_no_more_python_calls_beside_255_other_sessions(dispatch: str) -> None:
    """While collecting, and while closed: nothing looks at every session for every request."""
    per_request = {}
    for sessions in (4, 256):
        loop = Loop(sessions, 1, dispatch, target=8 * sessions)
        for _ in range(3):
            loop.round()
        rounds = 8  # one learn step
        per_request[sessions] = sum(python_calls(loop.round) for _ in range(rounds)) / (
            rounds * sessions
        )
    assert per_request[256] <= 1.3 * per_request[4]


def test_the_time_per_frame_does_not_grow_with_the_number_of_sessions() -> None:
    def seconds_per_frame(sessions: int) -> float:
        loop = Loop(sessions, 1, "barrier", target=8 * sessions)
        rounds = 4096 // sessions
        for _ in range(3):
            loop.round()
        best = float("inf")
        for _ in range(3):
            frames, start = loop.frames, time.process_time()
            for _ in range(rounds // 4):
                loop.round()
            best = min(best, (time.process_time() - start) / (loop.frames - frames))
        return best

    # A generous bound: a scan of 256 sessions for every request costs more than ten times as much.
    assert seconds_per_frame(256) <= 3 * seconds_per_frame(1)
