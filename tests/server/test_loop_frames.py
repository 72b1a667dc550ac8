"""Which frames reach the learner, and with which successor values: through sessions and engine."""

from __future__ import annotations

import numpy as np
import pytest

from tests.server.loop_world import LoopWorld


def test_truncation_in_the_middle_bootstraps_from_the_final_observation():
    """Case H01: r = 1, V = .5 .6 .7 .4 .3, truncated at t=2 (final value .9), then .2 follows."""
    world = LoopWorld(target=5)
    client = world.client()
    client.step(obs=[0.5])
    client.step(obs=[0.6], rewards=[1])
    client.step(obs=[0.7], rewards=[1])
    client.step(obs=[0.4], rewards=[1], truncated=[True], final=[0.9])
    client.step(obs=[0.3], rewards=[1])
    client.step(obs=[0.2], rewards=[1])
    (lesson,) = world.lessons
    expected = [3.17545394, 2.2131355, 1.191, 1.741569, 0.898]
    assert lesson.advantages == pytest.approx(expected, abs=1e-5)


def test_a_flag_belongs_to_the_action_it_ended():
    """Case H02: r = 0 -1 .5, V = 3 3 50, terminated at t=1 only, then 48 follows."""
    world = LoopWorld(target=3)
    client = world.client()
    client.step(obs=[3])
    client.step(obs=[3], rewards=[0])
    client.step(obs=[50], rewards=[-1], terminated=[True], final=[7])
    client.step(obs=[48], rewards=[0.5])
    assert world.lessons[0].advantages == pytest.approx([-3.792, -4.0, -1.98], abs=1e-5)


def test_termination_wins_over_truncation():
    """Case H03: r = 0 0 -10, V = 1 1.2 .8, both flags at t=2, final value 5."""
    world = LoopWorld(target=3)
    client = world.client()
    client.step(obs=[1])
    client.step(obs=[1.2], rewards=[0])
    client.step(obs=[0.8], rewards=[0])
    client.step(obs=[9], rewards=[-10], terminated=[True], truncated=[True], final=[5])
    expected = [-9.7487587, -10.5654, -10.8]
    assert world.lessons[0].advantages == pytest.approx(expected, abs=1e-5)


def test_rewards_of_silent_rows_add_up_in_the_open_frame():
    """Two seats: seat 1 acts once and is paid over three messages before its episode ends."""
    world = LoopWorld(target=4)
    client = world.client(groups=(2,))
    client.step(obs=[1, 2])
    client.step(obs=[1], asks=[True, False], rewards=[1, 10])
    client.step(obs=[1], asks=[True, False], rewards=[1, 20])
    client.step(obs=[1, 2], rewards=[1, 30], terminated=[False, True], final=[0])
    (lesson,) = world.lessons
    assert lesson.slots == [0, 0, 0, 1]
    assert lesson.rewards == [1, 1, 1, 60]
    assert lesson.terminated == [False, False, False, True]


def test_silent_rows_of_a_parked_request_are_cut_and_bridged_by_their_value():
    """The unfinished frame of seat 1 is given up when nothing else keeps the buffer from filling.

    The frame before it takes the value (6) already inferred for the given-up observation, and
    collection reopens for the frame that is missing now.
    """
    world = LoopWorld(target=5)
    client = world.client(groups=(2,))
    client.step(obs=[1, 5])
    client.step(obs=[1, 6], rewards=[0, 0])
    client.step(obs=[1], asks=[True, False], rewards=[0, 0])
    client.step(obs=[3], asks=[True, False], rewards=[0, 0])
    assert world.lessons == []
    client.step(obs=[4], asks=[True, False], rewards=[0, 0])
    (lesson,) = world.lessons
    assert lesson.slots == [0, 0, 0, 0, 1]
    given_up = world.hub.scheduler.ledger.given_up
    assert {reason.value: n for reason, n in given_up.items() if n} == {"cut": 1}
    assert lesson.advantages[4] == pytest.approx(0.99 * 6 - 5, abs=1e-6)


def test_every_frame_of_a_fault_free_run_is_trained_on_once():
    """Three clients of ten slots and a target of 2,048 that no round divides: no discard at all."""
    world = LoopWorld(target=2048)
    clients = [world.client(name, groups=(10,)) for name in "abc"]
    for client in clients:
        client.step(obs=list(range(10)))
    for turn in range(1, 220):
        for client in clients:
            client.step(obs=[turn * 10 + row for row in range(10)], rewards=[turn] * 10)
    ledger = world.hub.scheduler.ledger
    assert len(world.lessons) == 3
    assert ledger.discarded_total == 0
    assert ledger.conservation_error == 0
    frames = [
        (slot, ordinal)
        for lesson in world.lessons
        for slot, ordinal in zip(lesson.slots, lesson.ordinals, strict=True)
    ]
    assert len(frames) == len(set(frames))
    assert ledger.stored_total == len(frames) + ledger.num_complete
    assert all(all(lesson.usable) for lesson in world.lessons)
    # The last round may overshoot by less than its 30 rows, and all of it is trained on.
    assert all(2048 <= len(lesson.slots) < 2048 + 30 for lesson in world.lessons)
    assert [set(lesson.terminated) for lesson in world.lessons] == [{False}] * 3


def test_rows_are_not_mixed_up_between_clients_and_slots():
    """Observation = 100 x client + slot + turn / 1000: each frame lies under its own slot."""
    world = LoopWorld(target=12)
    clients = [world.client(name, groups=(2, 2)) for name in "ab"]

    def observe(who: int, group: int, turn: int) -> list[float]:
        return [100 * who + 2 * group + row + turn / 1000 for row in (0, 1)]

    for _ in range(12):
        for who, client in enumerate(clients):
            for group in (0, 1):
                if client.may_step(group):
                    client.step(group, obs=observe(who, group, client.turns[group]), rewards=[0, 0])
    assert len(world.lessons) >= 2
    for lesson in world.lessons:
        for slot, ordinal, obs in zip(
            lesson.slots, lesson.ordinals, lesson.observations, strict=True
        ):
            expected = 100 * (slot // 4) + slot % 4 + ordinal / 1000
            assert obs == pytest.approx(expected, abs=1e-4)


def test_the_stored_action_is_the_one_its_row_was_given():
    """Answers carry the asking rows in row order, and so does storage."""
    world = LoopWorld(target=5)
    client = world.client(groups=(3,))
    given: dict[tuple[int, int], int] = {}
    client.step(obs=[0, 1, 2])
    given.update(zip([(0, 0), (1, 0), (2, 0)], client.actions(), strict=True))
    client.step(obs=[3, 5], asks=[True, False, True], rewards=[0, 0, 0])
    given.update(zip([(0, 1), (2, 1)], client.actions(), strict=True))
    client.step(obs=[6, 7, 8], rewards=[0, 0, 0])
    (lesson,) = world.lessons
    frames = zip(lesson.slots, lesson.ordinals, strict=True)
    assert dict(zip(frames, lesson.actions, strict=True)) == given


def test_an_action_depends_on_name_slot_episode_and_step_alone():
    """Adding a client and another order of arrival leave a client's actions unchanged."""

    def actions_of_a(*, others: int) -> list[list[int]]:
        world = LoopWorld(target=1000)
        clients = [world.client(f"other{n}", groups=(3,)) for n in range(others)]
        client = world.client("a", groups=(4,))
        while client.turns[0] < 6:
            for one in (*clients, client):
                if one.may_step(0):
                    num_rows = 4 if one is client else 3
                    one.step(obs=[one.turns[0]] * num_rows, rewards=[0] * num_rows)
        return client.all_actions()[:5]

    alone = actions_of_a(others=0)
    assert alone == actions_of_a(others=2)
    assert len({tuple(row) for row in alone}) > 1


def test_only_legal_actions_are_given_and_the_received_mask_is_stored():
    world = LoopWorld(target=4, masks=True)
    client = world.client(groups=(2,))
    legal = [[False, True, False, False], [True, False, False, True]]
    for turn in range(3):
        client.step(obs=[0, 0], masks=legal, rewards=None if turn == 0 else [0, 0])
        first, second = client.actions()
        assert first == 1
        assert second in (0, 3)
    stored = world.engine.storage.read_masks(np.arange(4))
    assert stored.tolist() == legal * 2
