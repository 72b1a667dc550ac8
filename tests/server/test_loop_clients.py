"""Clients that come, go, stall and lie: each costs itself, nobody else."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from royale_client.wire.messages import Goodbye, Hello, Step, encode_message
from royale_client.wire.spaces import BoxSpec, DiscreteSpec
from tests.server.loop_world import (
    ACTION,
    OBSERVATION,
    LoopWorld,
    ScriptedClient,
    step_arrays,
)

HELLO = Hello(
    client_name="probe",
    process_id="p",
    env_id="Table-v0",
    observation_space=OBSERVATION,
    action_space=ACTION,
    groups=(1,),
)


def play(world: LoopWorld, clients: list[ScriptedClient], turns: int) -> None:
    """Let every client that may step do so, ``turns`` times."""
    for _ in range(turns):
        for client in clients:
            if client.may_step():
                rows = client.session.welcome.seeds.shape[0]
                client.step(obs=[client.turns[0]] * rows, rewards=[0.0] * rows)


def until_acting(world: LoopWorld, client: ScriptedClient, other: ScriptedClient) -> None:
    """Play until ``client`` holds an action whose outcome it owes."""
    while not client.may_step():
        play(world, [other], 1)


def given_up(world: LoopWorld) -> dict[str, int]:
    reasons = world.hub.scheduler.ledger.given_up
    return {reason.value: n for reason, n in reasons.items() if n}


def test_a_client_that_vanishes_loses_the_frame_in_flight_and_nothing_else():
    world = LoopWorld(target=8)
    stays, goes = world.client("stays"), world.client("goes")
    play(world, [stays, goes], 3)
    until_acting(world, goes, stays)
    goes.vanish()
    assert world.hub.clients_lost == 1
    play(world, [stays], 8)
    assert world.lessons, "the other client's frames are learnt from"
    assert given_up(world) == {"lost": 1}
    assert world.hub.scheduler.ledger.conservation_error == 0
    # The vanished slot's last stored frame takes the value inferred for the lost one's observation.
    assert all(all(lesson.usable) for lesson in world.lessons)


def test_a_last_step_before_goodbye_loses_no_frame():
    """Rule 15: open rows are truncated with their final observation and nobody asks."""
    world = LoopWorld(target=4)
    client = world.client("leaver", groups=(2,))
    client.step(obs=[1, 2])
    client.step(obs=[], asks=[False, False], rewards=[5, 6], truncated=[True, True], final=[3, 4])
    client.goodbye()
    assert world.hub.clients_lost == 0
    assert world.hub.clients_missing == 1  # of --min-clients 1
    other = world.client("other", groups=(2,))
    assert world.hub.clients_missing == 0
    play(world, [other], 3)
    (lesson,) = world.lessons
    assert lesson.rewards[:2] == [5, 6]
    assert lesson.truncated[:2] == [True, True]
    assert lesson.advantages[0] == pytest.approx(5 + 0.99 * 3 - 1)
    assert given_up(world) == {}


def test_a_returning_client_is_a_new_session_whose_first_outcome_has_no_state():
    world = LoopWorld(target=50)
    client = world.client("robot", groups=(2,))
    play(world, [client], 2)
    client.vanish()
    again = world.client("robot", groups=(2,))
    again.step(obs=[7, 7], rewards=[1, 1], rejoined=True)
    ledger = world.hub.scheduler.ledger
    assert ledger.no_state_total == 2
    assert given_up(world) == {"lost": 2}
    assert ledger.conservation_error == 0
    assert again.actions(), "and it is served like any other"


def test_a_returning_client_does_not_draw_its_old_noise_again():
    world = LoopWorld(target=500)
    first = world.client("robot", groups=(8,))
    play(world, [first], 3)
    first.vanish()
    second = world.client("robot", groups=(8,))
    play(world, [second], 3)
    assert not np.array_equal(first.all_actions(), second.all_actions())
    assert first.session.welcome.seeds.tolist() != second.session.welcome.seeds.tolist()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"observation_space": BoxSpec(-1e6, 1e6, (2,), "float32")}, "shape"),
        ({"observation_space": BoxSpec(-1e6, 1e6, (1,), "float64")}, "dtype"),
        ({"observation_space": BoxSpec(-1.0, 1e6, (1,), "float32")}, "low"),
        ({"action_space": DiscreteSpec(5)}, "n"),
        ({"action_space": DiscreteSpec(4, start=1)}, "start"),
        ({"masks": True}, "masks"),
    ],
)
def test_a_client_with_other_spaces_is_refused_by_field_and_nobody_notices(changes, named):
    """Case H30."""
    world = LoopWorld(target=4)
    good = world.client("good")
    bad = world.client("bad", **changes)
    (fault,) = bad.faults()
    assert fault.startswith("spaces:")
    assert named in fault
    assert bad.closed == "fault"
    play(world, [good], 6)
    assert len(world.lessons) == 1


def test_bounds_that_differ_by_float_rounding_are_equal():
    """Case H30 g: one unit in the last place of float32."""
    world = LoopWorld(target=4)
    world.client("first")
    high = float(np.nextafter(np.float32(1e6), np.float32(2e6)))
    second = world.client("second", observation_space=BoxSpec(-1e6, high, (1,), "float32"))
    assert second.faults() == []


def test_a_wrong_client_that_comes_first_is_left_alone_and_the_next_is_told_what_differs():
    world = LoopWorld(target=4)
    world.client("wrong", action_space=DiscreteSpec(9))
    right = world.client("right")
    (fault,) = right.faults()
    assert "9" in fault
    assert "4" in fault


def bad_step(**changes: object) -> bytes:
    """A step that skips the client session's own checks."""
    fields = {"group": 0, "request": 2, **step_arrays(obs=[0.0], rewards=[0.0]), **changes}
    return encode_message(Step(**fields))


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x00\x01garbage", "malformed"),
        (bad_step(observations=(np.zeros((1, 2), np.float32),)), "contract"),
        (bad_step(observations=(np.zeros((1, 1), np.float64),)), "contract"),
        (bad_step(observations=(np.zeros((3, 1), np.float32),)), "contract"),
        (bad_step(request=7), "unexpected"),
        (bad_step(request=1), "unexpected"),
        (bad_step(group=3), "unexpected"),
        (bad_step(rewards=np.zeros(2)), "contract"),
        (bad_step(terminated=np.array([True])), "contract"),
    ],
)
def test_a_message_that_breaks_the_contract_closes_that_session_alone(data, code):
    world = LoopWorld(target=8)
    good, bad = world.client("good"), world.client("bad")
    play(world, [good, bad], 1)
    play(world, [good], 1)
    bad.send_raw(data)
    assert [fault.split(":")[0] for fault in bad.faults()] == [code]
    assert bad.closed == "fault"
    play(world, [good], 12)
    assert world.lessons
    assert world.hub.scheduler.ledger.conservation_error == 0
    assert good.faults() == []


def test_every_order_of_messages_up_to_five_is_survived():
    """Case H35: whatever one client sends, in any order, the other's frames go on."""
    alphabet = {
        "hello": encode_message(HELLO),
        "step": bad_step(),
        "first": bad_step(request=1, rewards=None, terminated=None, truncated=None),
        "bye": encode_message(Goodbye(reason="done")),
        "noise": b"\x07",
        "cut": None,
    }
    world = LoopWorld(target=64)
    good = world.client("good")
    for length in (1, 2, 3, 4):
        for order in itertools.product(alphabet.values(), repeat=length):
            client = ScriptedClient(world, HELLO)
            for data in order:
                if data is None:
                    client.vanish()
                else:
                    client.send_raw(data)
            client.vanish()
    assert len(list(world.hub.peers)) == 1
    play(world, [good], 200)
    assert world.lessons
    assert world.hub.scheduler.ledger.conservation_error == 0
    assert good.faults() == []


def test_a_nonfinite_observation_costs_its_frame_and_the_rest_of_its_episode():
    """Case H29: row 1 sends NaN once; its episode goes on without cells, the next is trained."""
    world = LoopWorld(target=9)
    client = world.client("lab", groups=(2,))
    client.step(obs=[1, 1])
    client.step(obs=[2, np.nan], rewards=[0, 0])
    client.step(obs=[3, 3], rewards=[0, 0])
    assert all(action in range(4) for action in client.actions()), "a legal action all the same"
    client.step(obs=[4, 4], rewards=[0, 0], terminated=[False, True], final=[9])
    client.step(obs=[5, 5], rewards=[0, 7])
    client.step(obs=[6, 6], rewards=[0, 8])
    client.step(obs=[7, 7], rewards=[0, 8])
    (lesson,) = world.lessons
    frames_of_row_1 = [
        (obs, reward)
        for slot, obs, reward in zip(lesson.slots, lesson.observations, lesson.rewards, strict=True)
        if slot == 1
    ]
    assert frames_of_row_1 == [(4, 7), (5, 8), (6, 8)]
    assert given_up(world) == {"invalid": 1}
    assert world.hub.scheduler.ledger.conservation_error == 0
    assert world.hub.nonfinite_frames["lab"] == 1
    (told,) = [busy for busy in client.busies() if busy.phase == "invalid"]
    for fact in ("lab", "[1]", "request 2"):
        assert fact in told.waiting_for


def test_a_nonfinite_reward_is_never_stored():
    world = LoopWorld(target=4)
    client = world.client("lab", groups=(2,))
    client.step(obs=[1, 1])
    client.step(obs=[2, 2], rewards=[1, np.inf], terminated=[True, True], final=[0, 0])
    client.step(obs=[3, 3], rewards=[1, 1])
    client.step(obs=[4, 4], rewards=[1, 1])
    (lesson,) = world.lessons
    assert lesson.rewards == [1, 1, 1, 1, 1]
    assert given_up(world) == {"invalid": 1}


def test_frames_of_the_others_are_the_same_whether_or_not_one_client_sends_nonsense():
    def lessons_of_good(*, nonsense: bool) -> dict[tuple[int, int], tuple[float, float, int]]:
        world = LoopWorld(target=30)
        good, bad = world.client("good", groups=(3,)), world.client("bad", groups=(1,))
        while len(world.lessons) < 2:
            for client, rows in ((good, 3), (bad, 1)):
                if client.may_step():
                    obs = [float(client.turns[0] + row) for row in range(rows)]
                    if client is bad and nonsense and client.turns[0] == 4:
                        obs = [np.nan]
                    client.step(obs=obs, rewards=[1.0] * rows)
        return {
            (slot, ordinal): (obs, reward, action)
            for lesson in world.lessons
            for slot, ordinal, obs, reward, action in zip(
                lesson.slots,
                lesson.ordinals,
                lesson.observations,
                lesson.rewards,
                lesson.actions,
                strict=True,
            )
            if slot < 3
        }

    disturbed, quiet = lessons_of_good(nonsense=True), lessons_of_good(nonsense=False)
    assert disturbed.keys() >= quiet.keys()
    assert {frame: disturbed[frame] for frame in quiet} == quiet


def test_halt_on_nonfinite_asks_the_run_to_stop():
    world = LoopWorld(target=4, on_nonfinite="halt")
    client = world.client("lab")
    client.step(obs=[np.inf])
    (message,) = world.listener.stopped
    assert "lab" in message


def test_a_silent_client_is_ended_with_a_sentence_and_its_frames_are_lost():
    world = LoopWorld(target=8, feedback_wait_timeout=5.0)
    good, silent = world.client("good"), world.client("silent")
    play(world, [good, silent], 2)
    for _ in range(8):
        world.wait(1.0)
        play(world, [good], 1)
    (fault,) = silent.faults()
    assert fault.startswith("timeout:")
    assert "--feedback-wait-timeout" in fault
    assert given_up(world).get("lost", 0) + given_up(world).get("late", 0) == 1
    assert world.lessons


def test_a_connection_without_a_hello_is_closed():
    world = LoopWorld(target=8)
    stranger = ScriptedClient(world, world.client("a").session.hello)
    world.wait(3.9)
    assert stranger.closed is None
    world.wait(0.3)
    assert stranger.closed == "fault"


def test_two_clients_of_one_name_both_play_under_names_of_their_own():
    world = LoopWorld(target=8)
    world.client("twin")
    world.client("twin")
    assert [name for kind, name in world.listener.events if kind == "joined"] == ["twin", "twin~2"]


def test_a_full_server_sends_clients_away_for_now():
    world = LoopWorld(target=8, max_sessions=1)
    world.client("first")
    (fault,) = world.client("second").faults()
    assert fault.startswith("capacity:")
    assert "--max-sessions" in fault


def test_more_slots_than_storage_holds_are_refused():
    world = LoopWorld(target=8)
    world.client("first", groups=(500,))
    (fault,) = world.client("second", groups=(13,)).faults()
    assert fault.startswith("capacity:")
    assert "500 of 512" in fault


def test_a_client_that_waits_for_a_learn_step_is_told_every_five_seconds():
    world = LoopWorld(target=2)
    world.listener.hold_learning = True
    client = world.client("patient")
    play(world, [client], 3)
    assert len(world.listener.due) == 1
    world.wait(21.0)
    phases = [busy.phase for busy in client.busies()]
    assert phases == ["learn"] * 4
    ages = [busy.since_s for busy in client.busies()]
    assert ages == pytest.approx([2.0, 7.1, 12.2, 17.3], abs=0.3)
    world.learn()
    world.run()
    assert client.may_step()


def test_who_keeps_the_queue_waiting_is_named_every_five_seconds_but_not_while_learning():
    world = LoopWorld(target=100, min_clients=2)
    quick, slow = world.client("quick"), world.client("slow")
    for _ in range(4):
        play(world, [quick, slow], 1)
        world.now += 10.0  # turns of ten seconds: nobody is late before thirty
    until_acting(world, slow, quick)
    play(world, [quick], 2)
    assert not quick.may_step()
    world.wait(11.0)
    # The last dispatch was ten seconds ago: at once, after five seconds, and after ten.
    assert world.listener.waiting == [["slow/0"]] * 3


def test_episode_rows_say_which_versions_played_and_how_many_frames_were_stored():
    world = LoopWorld(target=3)
    client = world.client("player")
    for _ in range(4):
        client.step(obs=[0], rewards=[1])
    record = {"row": 0, "return": 4.0, "length": 4, "time_s": 0.5, "metrics": {}}
    client.step(obs=[0], rewards=[1], terminated=[True], final=[0], episodes=[record])
    (row,) = world.listener.episodes
    assert row["client"] == "player"
    assert row["return"] == 4.0
    assert (row["first_policy_version"], row["last_policy_version"]) == (0, 1)
    assert row["trained_frames"] == 4
    assert row["terminated"] is True


def test_evaluation_seats_are_served_while_collection_is_closed_and_never_stored():
    world = LoopWorld(target=2)
    world.listener.hold_learning = True
    trainer = world.client("trainer")
    evaluator = world.client("judge", role="eval")
    play(world, [trainer], 2)
    stored = world.hub.scheduler.ledger.stored_total
    evaluator.step(obs=[1])
    assert evaluator.may_step()
    assert world.hub.scheduler.ledger.stored_total == stored
    assert world.hub.scheduler.ledger.conservation_error == 0
