"""Who is admitted when, what waiting clients hear, and what survives a session."""

from __future__ import annotations

import pytest

from royale_server.endpoint.finiteness import MAX_MAGNITUDE
from tests.server.loop_world import LoopWorld
from tests.server.test_loop_clients import given_up, play

DETERMINISTIC = {"deterministic": True, "min_clients": 2}


def welcomed(world: LoopWorld) -> list[str]:
    return [name for kind, name in world.listener.events if kind == "joined"]


def test_a_deterministic_run_admits_its_clients_together_in_order_of_their_names():
    world = LoopWorld(target=8, **DETERMINISTIC)
    late_letter = world.client("z")
    assert welcomed(world) == []
    world.client("a")
    assert welcomed(world) == ["a", "z"]
    assert late_letter.welcome().first_slot == 1


def test_an_evaluation_client_does_not_count_as_one_of_a_deterministic_run():
    world = LoopWorld(target=8, **DETERMINISTIC)
    world.client("judge", role="eval")
    world.client("one")
    assert welcomed(world) == ["judge"]
    world.client("two")
    assert welcomed(world) == ["judge", "one", "two"]


def test_clients_beyond_the_number_of_a_deterministic_run_are_refused_at_once():
    world = LoopWorld(target=8, **DETERMINISTIC)
    clients = [world.client(name) for name in ("one", "two", "three")]
    (fault,) = clients[2].faults()
    assert fault.startswith("refused:")
    assert "--min-clients" in fault
    assert clients[0].faults() == clients[1].faults() == []


def test_a_client_in_the_lobby_hears_every_five_seconds_whom_the_server_waits_for():
    world = LoopWorld(target=8, **DETERMINISTIC)
    client = world.client("patient")
    world.wait(13.0)
    busies = client.busies()
    assert [busy.phase for busy in busies] == ["start"] * 3
    assert {busy.waiting_for for busy in busies} == {"1 more clients"}


def test_a_lost_client_ends_a_deterministic_run_once_and_a_stopped_one_not_at_all():
    world = LoopWorld(target=8, **DETERMINISTIC)
    one, two = world.client("one"), world.client("two")
    play(world, [one, two], 2)
    one.vanish()
    assert len(world.listener.stopped) == 1
    world.hub.stop("halted", "over")
    two.vanish()
    assert len(world.listener.stopped) == 1


def test_nothing_is_dispatched_or_learnt_once_the_run_rests():
    world = LoopWorld(target=4)
    client = world.client("c", groups=(2,))
    play(world, [client], 2)
    world.hub.rest()
    play(world, [client], 4)
    assert world.lessons == []
    assert not client.may_step()


def test_episode_ordinals_outlive_the_attempt():
    """A client of the same name in a resumed run draws other seeds and other noise."""
    first = LoopWorld(target=500)
    before = first.client("robot", groups=(4,))
    play(first, [before], 5)
    ordinals = first.hub.next_episodes()
    resumed = LoopWorld(target=500)
    resumed.hub.expect_episodes(ordinals)
    after = resumed.client("robot", groups=(4,))
    play(resumed, [after], 5)
    assert before.welcome().seeds.tolist() != after.welcome().seeds.tolist()
    assert before.all_actions() != after.all_actions()


@pytest.mark.parametrize("absurd", [1e16, -1e30, 1e38])
def test_absurdly_large_numbers_cost_their_own_frame_only(absurd):
    """Finite, but squared and summed they would overflow the loss of every frame."""
    assert abs(absurd) > MAX_MAGNITUDE
    world = LoopWorld(target=4)
    client = world.client("lab", groups=(2,))
    client.step(obs=[1, 1])
    client.step(obs=[2, absurd], rewards=[1, 1])
    client.step(obs=[3, 3], rewards=[absurd, 1], terminated=[True, True], final=[0, 0])
    client.step(obs=[4, 4], rewards=[1, 1])
    client.step(obs=[5, 5], rewards=[1, 1])
    (lesson,) = world.lessons
    assert max(map(abs, lesson.rewards)) <= 1
    assert max(map(abs, lesson.observations)) <= 5
    assert given_up(world) == {"invalid": 2}


def test_numbers_up_to_the_bound_are_trained_on():
    world = LoopWorld(target=1)
    client = world.client("lab")
    client.step(obs=[1])
    client.step(obs=[1], rewards=[MAX_MAGNITUDE])
    assert world.lessons[0].rewards == [MAX_MAGNITUDE]


def test_an_episode_record_without_metrics_is_a_record():
    world = LoopWorld(target=8)
    client = world.client("bare")
    client.step(obs=[0])
    record = {"row": 0, "return": 1.0, "length": 1, "time_s": 0.1}
    client.step(obs=[0], rewards=[1], terminated=[True], final=[0], episodes=[record])
    assert world.listener.episodes[0]["return"] == 1.0


def test_a_client_that_logs_without_end_fills_no_log():
    world = LoopWorld(target=8)
    client = world.client("chatty")
    record = {"time_s": 0.0, "level": "info", "logger": "x", "message": "y"}
    for _ in range(5):
        client.read()
        client.send_raw(client.session.log([record] * 20))
    logged = [text for kind, text in world.listener.events if kind == "client_log"]
    assert sum("dropped" not in text for text in logged) == 10
    assert not any("dropped" in text for text in logged)
    world.wait(0.9)
    logged = [text for kind, text in world.listener.events if kind == "client_log"]
    assert logged[10:] == ["client chatty: 90 log records dropped"]
