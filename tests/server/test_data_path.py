"""What a request costs on its way from bytes to storage and back."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

import numpy as np
import pytest

from royale_client.wire.messages import Step, encode_message
from royale_server.model.keeping import COMPLETED_ROWS, FrameKeeper
from tests.server.loop_world import LoopWorld, ScriptedClient, step_arrays


def python_calls(job: Callable[[], object]) -> int:
    """Calls of Python functions while ``job`` runs; calls into C do not count.

    The garbage collector rests meanwhile: test tools hang Python callbacks on it.
    """
    count = 0

    def profile(_frame, event, _argument) -> None:
        nonlocal count
        count += event == "call"

    gc.disable()
    sys.setprofile(profile)
    try:
        job()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def warmed_up(rows: int, target: int = 10_000) -> tuple[LoopWorld, ScriptedClient]:
    world = LoopWorld(target=target)
    client = world.client("c", groups=(rows,))
    for _ in range(3):
        client.step(obs=[0.0] * rows, rewards=[0.0] * rows)
    return world, client


def encoded_step(client: ScriptedClient, rows: int) -> bytes:
    fields = step_arrays(obs=[1.0] * rows, rewards=[1.0] * rows)
    return encode_message(Step(group=0, request=client.turns[0] + 1, **fields))


def test_python_calls_per_request_do_not_depend_on_the_number_of_slots():
    """Decode, validate, schedule, gather, infer, store, split, encode: all of it."""

    def calls(rows: int) -> int:
        _, client = warmed_up(rows)
        data = encoded_step(client, rows)
        return python_calls(lambda: client.send_raw(data))

    # Few rows cost less: their step state is completed together with that of later batches.
    assert calls(8) <= calls(COMPLETED_ROWS) == calls(2 * COMPLETED_ROWS)


def test_each_observation_byte_is_copied_once_into_storage(monkeypatch):
    """Plus once per slot and iteration: the parked observation that is also a bootstrap."""
    rows, turns = 16, 20
    world, client = warmed_up(rows, target=rows * turns)
    copied = 0
    frame_bytes = 4

    class Counting(np.ndarray):
        """Storage that counts the bytes written into it."""

        def __setitem__(self, key, value) -> None:
            nonlocal copied
            before = self[key]
            copied += np.asarray(before).nbytes
            super().__setitem__(key, value)

    storage = world.engine.storage
    storage.observations = tuple(leaf.view(Counting) for leaf in storage.observations)
    original = FrameKeeper._value_later

    def value_later(self, cells, observations, places):
        nonlocal copied
        copied += len(places) * frame_bytes
        original(self, cells, observations, places)

    monkeypatch.setattr(FrameKeeper, "_value_later", value_later)
    world.engine.policy.keep_seen = False
    frames_before = world.hub.scheduler.ledger.reserved_total
    while not world.lessons:
        client.step(obs=[1.0] * rows, rewards=[1.0] * rows)
    frames = world.hub.scheduler.ledger.reserved_total - frames_before
    assert copied == (frames + rows) * frame_bytes


def test_scattered_cells_hold_the_right_frames():
    """After cells were given up and freed, a batch may get cells that do not follow each other."""
    world = LoopWorld(target=10)
    quick, gone = world.client("quick", groups=(3,)), world.client("gone", groups=(3,))
    for client in (quick, gone, quick):
        client.step(obs=[client.turns[0] * 10 + row for row in range(3)], rewards=[0.0] * 3)
    gone.vanish()
    while not world.lessons:
        turn = quick.turns[0]
        quick.step(obs=[turn * 10 + row for row in range(3)], rewards=[turn] * 3)
    (lesson,) = world.lessons
    for slot, ordinal, obs in zip(lesson.slots, lesson.ordinals, lesson.observations, strict=True):
        assert obs == ordinal * 10 + slot


def test_a_received_message_is_not_written_to():
    """Observations are views of the message; storage must hold its own copy."""
    world, client = warmed_up(4)
    data = encoded_step(client, 4)
    before = bytes(data)
    client.send_raw(data)
    world.engine.storage.observations[0][:] = -1
    assert data == before


@pytest.mark.parametrize("rows", [1, 7])
def test_episodes_that_end_every_step_need_no_more_than_their_record(rows):
    world = LoopWorld(target=rows * 4)
    client = world.client("c", groups=(rows,))
    client.step(obs=[0.0] * rows)
    while not world.lessons:
        client.step(
            obs=[0.0] * rows,
            rewards=[1.0] * rows,
            terminated=[True] * rows,
            final=[5.0] * rows,
        )
    (lesson,) = world.lessons
    assert lesson.advantages == pytest.approx([1.0] * len(lesson.slots))
