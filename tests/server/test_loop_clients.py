"""Clients that come, go, stall and lie: each costs itself, nobody else."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from royale_client.wire.messages import Goodbye, Hello, Log, Step, encode_message
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


def test_only_clients_that_train_and_did_nothing_wrong_count_as_lost():
    """An alarm ends a run whose clients are lost: nobody can end it by breaking the protocol."""
    world = LoopWorld(target=8)
    stays = world.client("stays")
    for number in range(3):
        liar = world.client(f"liar {number}")
        liar.send_raw(b"\x00\x01garbage")
        assert liar.faults()
    onlooker = world.client("onlooker", role="eval")
    onlooker.vanish()
    assert world.hub.clients_lost == 0
    dies = world.client("dies")
    dies.vanish()
    assert world.hub.clients_lost == 1
    assert stays.faults() == []


def test_the_share_of_lost_clients_falls_when_others_take_their_part():
    world = LoopWorld(target=8)
    fleet = [world.client(f"client {number}") for number in range(4)]
    for client in fleet[:3]:
        client.vanish()
    assert world.hub.clients_lost_share == 3 / 4
    world.client("onlooker", role="eval")
    assert world.hub.clients_lost_share == 3 / 4, "it brings no frames"
    others = [world.client(f"other {number}") for number in range(2)]
    assert world.hub.clients_lost_share == 1 / 4
    others[0].goodbye()
    assert world.hub.clients_lost_share == 1 / 3, "who says goodbye is not missed"
    for number in range(2):
        world.client(f"more {number}")
    assert world.hub.clients_lost_share == 0.0
    fleet[3].vanish()
    assert world.hub.clients_lost_share == 1 / 4, "a larger fleet than before hides no loss"


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
    # Slot 1 had taken one step of its episode when its observation was no number.
    for fact in ("lab", "observation of slot 1 is nan at step 1", "request 2 of group 0"):
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


def test_pass_on_nonfinite_hands_the_numbers_on_and_counts_them():
    world = LoopWorld(target=4, on_nonfinite="pass")
    client = world.client("lab")
    client.step(obs=[1])
    client.step(obs=[2], rewards=[np.inf])
    client.step(obs=[np.nan], rewards=[1])
    client.step(obs=[4], rewards=[1])
    client.step(obs=[5], rewards=[1])
    (lesson,) = world.lessons
    assert lesson.rewards == [np.inf, 1, 1, 1]
    np.testing.assert_equal(lesson.observations, [1, 2, np.nan, 4])
    assert given_up(world) == {}
    assert world.hub.nonfinite_frames["lab"] == 2
    told = [busy.waiting_for for busy in client.busies() if busy.phase == "invalid"]
    assert len(told) == 2
    assert "reward of slot 0 is inf" in told[0]
    assert "--on-nonfinite pass" in told[0]


def break_the_contract(client: ScriptedClient) -> None:
    """Say something that no client may say."""
    client.send_raw(encode_message(Step(group=0, request=9, observations=(np.zeros((1, 1)),))))


def test_a_client_that_breaks_the_protocol_again_and_again_has_to_wait_and_the_others_do_not():
    world = LoopWorld(target=8)
    good = world.client("good")
    for _ in range(5):
        bad = world.client("bad")
        break_the_contract(bad)
        assert bad.faults()[0].startswith("unexpected:")
        world.wait(1.0)
    (fault,) = world.client("bad").faults()
    assert fault.startswith("quarantine:")
    assert "9 s of silence" in fault  # of ten, one has passed since the fifth fault
    assert world.client("other").faults() == good.faults() == []
    play(world, [good], 3)
    world.wait(10.0)
    assert world.client("bad").faults() == []


def test_a_session_that_works_stays_though_its_name_is_in_quarantine():
    world = LoopWorld(target=8)
    twin = world.client("twin")
    for _ in range(5):
        break_the_contract(world.client("twin"))
    assert world.client("twin").faults()[0].startswith("quarantine:")
    play(world, [twin], 20)
    assert world.lessons
    assert twin.faults() == []


def test_clients_that_are_full_late_or_unlucky_are_not_put_into_quarantine():
    world = LoopWorld(target=8, max_sessions=1)
    first = world.client("first")
    for _ in range(20):
        assert world.client("second").faults()[0].startswith("capacity:")
    first.goodbye()
    assert world.client("second").faults() == []


def test_faults_of_strangers_are_written_down_a_few_times_and_those_of_members_always():
    world = LoopWorld(target=8)
    good = world.client("good")
    for number in range(100):
        stranger = ScriptedClient(world, replace(HELLO, client_name=f"n{number}"))
        stranger.send_raw(b"nonsense")
        assert stranger.closed == "fault"
    events = [text for kind, text in world.listener.events if kind == "fault"]
    assert len(events) == 20
    break_the_contract(good)
    assert [kind for kind, _ in world.listener.events].count("fault") == 21


def test_a_full_house_makes_room_by_sending_away_who_has_said_nothing_for_longest():
    world = LoopWorld(target=8)
    member = world.client("member")
    silent = [ScriptedClient(world, HELLO) for _ in range(3)]
    assert world.hub.drop_a_stranger()
    assert [client.closed for client in silent] == ["fault", None, None]
    assert world.hub.drop_a_stranger()
    assert world.hub.drop_a_stranger()
    assert not world.hub.drop_a_stranger()
    assert member.closed is None


def log_of(count: int) -> bytes:
    record = {"time_s": 0.0, "level": "info", "logger": "l", "message": "m"}
    return encode_message(Log(records=(record,) * count))


def test_log_records_beyond_the_rate_are_dropped_and_counted():
    world = LoopWorld(target=8, max_log_rate=50)
    client = world.client("chatty")

    def noted() -> int:
        return sum(text == "client chatty" for _, text in world.listener.events)

    client.send_raw(log_of(20))
    assert noted() == 5  # a tenth of a second's share
    client.send_raw(log_of(1))
    world.wait(0.1)
    assert ("client_log", "client chatty: 16 log records dropped") in world.listener.events
    world.wait(1.0)
    client.send_raw(log_of(20))
    assert noted() == 10


def test_a_low_log_rate_lets_a_record_through_now_and_then():
    world = LoopWorld(target=8, max_log_rate=2)
    client = world.client("quiet")
    noted = 0
    for _ in range(50):  # five seconds
        client.send_raw(log_of(1))
        world.wait(0.1)
    noted = sum(text == "client quiet" for _, text in world.listener.events)
    assert 10 <= noted <= 12  # two a second, and the one to begin with


def test_a_client_that_floods_with_log_messages_is_ended():
    world = LoopWorld(target=8, max_log_rate=50)
    good, client = world.client("good"), world.client("chatty")
    for _ in range(51):
        client.send_raw(log_of(0))
    (fault,) = client.faults()
    assert fault.startswith("limit:")
    assert "at most 500 a second" in fault
    assert "--max-log-rate" in fault
    assert good.faults() == []


def test_what_a_client_says_at_its_end_cannot_steer_a_terminal_or_pass_for_other_lines():
    world = LoopWorld(target=8)
    client = world.client("liar")
    exception = "x\x1b]0;owned\x07\n12:00:00 INFO all is well"
    client.send_raw(encode_message(Goodbye(reason="", exception=exception)))
    (left,) = world.listener.left
    assert left == r"liar: goodbye: x\x1b]0;owned\x07\n12:00:00 INFO all is well"


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
