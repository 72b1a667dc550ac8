"""A client that is cut off keeps its session: no frame is lost needlessly, none counts twice."""

from __future__ import annotations

from typing import Any

import pytest

from royale_client.session import Answered
from royale_client.wire.errors import ContractError
from royale_client.wire.handshake import RECONNECT
from tests.server.loop_world import LoopWorld, ScriptedClient
from tests.server.test_loop_clients import given_up, play

GRACE_S = 30.0
ENDED: dict[str, Any] = {
    "obs": [2],
    "rewards": [7],
    "terminated": [True],
    "final": [9],
    "episodes": [{"row": 0, "return": 7.0, "length": 1, "time_s": 0.1, "metrics": {}}],
}
"""The step that ends an episode of one row."""


def resuming(world: LoopWorld, name: str, groups: tuple[int, ...] = (1,), **changes: Any):
    """Join a client that can go on over another connection."""
    return world.client(name, groups=groups, features=(RECONNECT,), **changes)


def requests_of(client: ScriptedClient) -> list[int]:
    """Numbers of the requests that the server has of a client."""
    return list(client.peer.session.last_requests)


def last_answer(client: ScriptedClient) -> Answered:
    """The last answer a client read."""
    client.read()
    return [event for event in client.events if isinstance(event, Answered)][-1]


def lose_answer(client: ScriptedClient) -> Answered:
    """Let the last answer to a client be one that never arrived."""
    answer = last_answer(client)
    client.session.unread(answer)
    return answer


def test_an_answer_that_got_lost_is_sent_again_and_is_the_same():
    world = LoopWorld(target=100)
    client = resuming(world, "a", groups=(2,))
    client.step(obs=[1, 2])
    client.step(obs=[3, 4], rewards=[1, 1])
    client.step(obs=[5, 6], rewards=[1, 1])
    lost = lose_answer(client).actions[0].tolist()
    client.vanish()
    back = client.come_back()
    assert back.welcome().continues
    back.step_again(obs=[5, 6], rewards=[1, 1])
    assert back.actions() == lost
    back.step(obs=[7, 8], rewards=[1, 1])
    ledger = world.hub.scheduler.ledger
    assert ledger.stored_total == 3 * 2, "each frame once"
    assert given_up(world) == {}


def test_a_request_that_got_lost_is_taken_with_its_outcome_when_it_comes_again():
    world = LoopWorld(target=100)
    client = resuming(world, "a")
    client.step(obs=[1])
    client.step_into_nothing(**ENDED)
    client.vanish()
    back = client.come_back()
    assert requests_of(client) == [1]
    back.step_again(**ENDED)
    assert world.hub.scheduler.ledger.stored_total == 1
    assert [episode["return"] for episode in world.listener.episodes] == [7.0]
    assert len(back.all_actions()) == 1


def test_the_outcome_of_a_request_that_comes_again_is_taken_once():
    world = LoopWorld(target=100)
    client = resuming(world, "a")
    client.step(obs=[1])
    client.step(**ENDED)
    lose_answer(client)
    client.vanish()
    client.come_back().step_again(**ENDED)
    assert world.hub.scheduler.ledger.stored_total == 1
    assert [episode["return"] for episode in world.listener.episodes] == [7.0]


def test_a_request_that_waits_is_answered_over_the_connection_there_is_then():
    world = LoopWorld(target=100, min_clients=2)
    client = resuming(world, "a")
    client.step(obs=[1])
    client.vanish()
    back = client.come_back()
    back.step_again(obs=[1])
    assert back.all_actions() == [], "nobody is answered before the second client is there"
    other = world.client("b")
    other.step(obs=[1])
    assert len(back.all_actions()) == len(other.all_actions()) == 1


def test_an_answer_made_while_the_client_was_away_awaits_it():
    world = LoopWorld(target=100, min_clients=2)
    client = resuming(world, "a")
    client.step(obs=[1])
    client.vanish()
    other = world.client("b")
    other.step(obs=[1])
    assert len(other.all_actions()) == 1, "nobody waits for a client that is cut off"
    back = client.come_back()
    back.step_again(obs=[1])
    assert len(back.all_actions()) == 1
    back.step(obs=[2], rewards=[1])
    assert world.hub.scheduler.ledger.stored_total == 1


def test_nobody_waits_for_a_client_that_is_cut_off():
    world = LoopWorld(target=1000)
    client, other = resuming(world, "a"), world.client("b")
    play(world, [client, other], 5)
    while not client.may_step():
        play(world, [other], 1)
    client.vanish()
    before = len(other.all_actions())
    play(world, [other], 10)
    assert len(other.all_actions()) - before >= 9, "without a tick of the clock"


def test_frames_others_waited_for_are_given_up_and_the_client_is_asked_anew():
    world = LoopWorld(target=6, close_wait=1.0)
    client, other = resuming(world, "a"), world.client("b")
    play(world, [client, other], 2)
    while not client.may_step():
        play(world, [other], 1)
    lose_answer(client)
    client.vanish()
    for _ in range(6):
        play(world, [other], 1)
        world.wait(1.5)
    assert world.lessons, "the learn step did not wait"
    assert given_up(world) == {"late": 1}
    version = world.learner.policy_version
    back = client.come_back()
    back.step_again(obs=[client.turns[0] - 1], rewards=[0.0])
    while not back.may_step():
        play(world, [other], 1)
    assert last_answer(back).policy_version >= version, "the policy of now acts"
    play(world, [back, other], 10)
    ledger = world.hub.scheduler.ledger
    assert given_up(world) == {"late": 1}
    assert ledger.conservation_error == 0
    stored = [
        pair for lesson in world.lessons for pair in zip(lesson.slots, lesson.ordinals, strict=True)
    ]
    assert len(stored) == len(set(stored)), "no frame is stored twice"


def test_a_request_that_comes_again_may_hold_nonsense_of_an_episode_that_ended():
    world = LoopWorld(target=6, close_wait=1.0)
    client, other = resuming(world, "a"), world.client("b")
    play(world, [client, other], 2)
    nonsense: dict[str, Any] = {
        "obs": [3],
        "rewards": [0],
        "terminated": [True],
        "final": [float("nan")],
    }
    while not client.may_step():
        play(world, [other], 1)
    client.step(**nonsense)
    while not client.may_step():
        play(world, [other], 1)
    lose_answer(client)
    client.vanish()
    for _ in range(6):
        play(world, [other], 1)
        world.wait(1.5)
    back = client.come_back()
    back.step_again(**nonsense)
    play(world, [back, other], 10)
    assert world.listener.errors == []
    assert back.faults() == []
    assert world.hub.scheduler.ledger.conservation_error == 0


def test_a_deterministic_run_is_the_same_with_and_without_cuts():
    lessons = []
    for is_cut in (False, True):
        world = LoopWorld(target=8, deterministic=True, min_clients=2)
        clients = [resuming(world, "a", groups=(2,)), resuming(world, "b", groups=(1,))]
        for turn in range(12):
            for i, client in enumerate(clients):
                rows = (2, 1)[i]
                fields = {"obs": [10 * turn + i] * rows, "rewards": [turn] * rows}
                assert client.may_step()
                client.step(**fields)
            if is_cut and turn % 3 == 1:
                lose_answer(clients[0])
                clients[0].vanish()
                world.wait(5.0)
                clients[0] = clients[0].come_back()
                clients[0].step_again(obs=[10 * turn] * 2, rewards=[turn] * 2)
        lessons.append(world.lessons)
        assert given_up(world) == {}
    assert len(lessons[0]) == 3, "12 rounds of 3 frames, 8 wanted each time: of 9, 9 and 9"
    assert lessons[0] == lessons[1]


def test_a_session_ends_when_its_client_does_not_come_back_in_time():
    world = LoopWorld(target=100, reconnect_grace=GRACE_S)
    client = resuming(world, "a")
    client.step(obs=[1])
    client.read()
    client.vanish()
    world.wait(GRACE_S - 1)
    assert world.listener.left == []
    world.wait(1.5)
    assert world.listener.left == [f"a: did not come back within {GRACE_S:g} s"]
    assert given_up(world) == {"lost": 1}
    back = client.come_back()
    assert not back.welcome().continues
    assert back.peer.name == "a"
    back.step(obs=[2], rejoined=True, rewards=[1])
    assert world.hub.scheduler.ledger.no_state_total == 1, "this server knows nothing of its action"


def test_the_time_to_answer_stands_still_while_a_client_is_cut_off():
    world = LoopWorld(target=100, reconnect_grace=1000.0, feedback_wait_timeout=10.0)
    client = resuming(world, "a")
    client.step(obs=[1])
    lose_answer(client)
    client.vanish()
    world.wait(60)
    back = client.come_back()
    back.step_again(obs=[1])
    assert back.faults() == []
    world.wait(11)
    (fault,) = back.faults()
    assert fault.startswith("timeout: ")


def test_a_client_without_the_feature_and_a_server_without_grace_begin_a_new_session():
    for features, grace_s in (((), GRACE_S), ((RECONNECT,), 0.0)):
        world = LoopWorld(target=100, reconnect_grace=grace_s)
        client = world.client("a", features=features)
        client.step(obs=[1])
        client.vanish()
        assert world.listener.left == ["a: connection lost"]


def test_an_unknown_token_gets_a_new_session_and_no_fault():
    world = LoopWorld(target=100)
    client = resuming(world, "a", resume_token="never given out")
    assert client.faults() == []
    assert not client.welcome().continues


def test_the_newest_connection_has_the_session_and_the_older_is_closed():
    world = LoopWorld(target=100)
    client = resuming(world, "a")
    client.step(obs=[1])
    client.read()
    back = client.come_back()  # the server has not seen the older connection end
    assert back.welcome().continues
    assert client.closed == "fault"
    back.step(obs=[2], rewards=[1])
    assert world.hub.scheduler.ledger.stored_total == 1
    world.hub.closed(client.peer, "connection lost")
    back.step(obs=[3], rewards=[1])
    assert world.hub.scheduler.ledger.stored_total == 2


@pytest.mark.parametrize(
    "changes", [{"groups": (2,)}, {"env_digest": "other"}, {"process_id": "q"}, {"env_id": "B"}]
)
def test_a_token_is_of_no_use_to_a_client_that_is_another_than_it_was(changes):
    world = LoopWorld(target=100, mixed_environments=True)
    client = resuming(world, "a")
    client.step(obs=[1])
    client.vanish()
    token = client.welcome().session_token
    other = resuming(world, "a", **{"resume_token": token, **changes})
    assert not other.welcome().continues
    assert world.listener.left == ["a: its client came back as another one"]
    assert other.peer.name == "a"


@pytest.mark.parametrize(
    "changes", [{"groups": (2,)}, {"env_digest": "other"}, {"process_id": "q"}, {"env_id": "B"}]
)
def test_a_token_that_another_client_brings_ends_a_session_that_is_still_connected(changes):
    world = LoopWorld(target=100, mixed_environments=True)
    client, bystander = resuming(world, "a"), resuming(world, "b")
    client.step(obs=[1])
    bystander.step(obs=[1])
    token = client.welcome().session_token
    other = resuming(world, "a", **{"resume_token": token, **changes})
    assert not other.welcome().continues
    assert client.faults() == ["refused: its client came back as another one"]
    assert client.closed == "fault"
    client.send_raw(client.sent[-1])  # on its way when it was closed
    world.hub.closed(client.peer, "connection lost")
    assert world.hub.num_connections == 2
    assert world.hub.num_members == 2
    bystander.step(obs=[2], rewards=[1])
    assert world.hub.scheduler.ledger.stored_total == 1
    assert world.hub.scheduler.ledger.conservation_error == 0


def test_a_client_that_goes_on_takes_the_part_of_none_that_is_lost():
    world = LoopWorld(target=100)
    lost, client = world.client("lost"), resuming(world, "a")
    for each in (lost, client):
        each.step(obs=[1])
    lost.vanish()
    assert world.hub.clients_lost_share == 0.5  # of two
    client.vanish()
    client.come_back()
    assert world.hub.clients_lost_share == 0.5
    world.client("in its place")
    assert world.hub.clients_lost_share == 0.0


def test_a_client_that_was_started_again_takes_its_name_at_once():
    world = LoopWorld(target=100)
    client = resuming(world, "a", host="box")
    client.step(obs=[1])
    client.read()
    client.vanish()
    again = resuming(world, "a", host="box", process_id="another")
    assert again.peer.name == "a"
    assert given_up(world) == {"lost": 1}
    stranger = resuming(world, "a", host="elsewhere", process_id="third")
    assert stranger.peer.name == "a~2"


def test_a_request_that_comes_again_as_another_ends_the_session():
    world = LoopWorld(target=100)
    client = resuming(world, "a", groups=(2,))
    client.step(obs=[1, 2])
    lose_answer(client)
    client.vanish()
    back = client.come_back()
    back.step_again(obs=[1], asks=[True, False])
    (fault,) = back.faults()
    assert fault.startswith("contract: ")
    assert "a request that is sent again is another than it was" in fault


def test_a_request_may_come_again_once_and_only_over_another_connection():
    world = LoopWorld(target=100)
    client = resuming(world, "a")
    client.step(obs=[1])
    lose_answer(client)
    client.vanish()
    back = client.come_back()
    back.step_again(obs=[1])
    sent = back.sent[-1]
    back.send_raw(sent)
    (fault,) = back.faults()
    assert fault.startswith("unexpected: ")
    assert "a request number out of order (duplicate)" in fault


def test_a_server_that_goes_on_with_other_requests_is_not_believed():
    world = LoopWorld(target=100)
    client = resuming(world, "a")
    client.step(obs=[1])
    client.vanish()
    client.peer.session.ask_again(0)
    client.peer.session._requests._last[0] = 5
    with pytest.raises(ContractError, match="another session"):
        client.come_back()


def test_each_group_goes_on_by_itself():
    world = LoopWorld(target=100)
    client = resuming(world, "a", groups=(1, 1))
    client.step(0, obs=[1])
    client.step(1, obs=[2])
    client.read()
    client.step_into_nothing(1, obs=[4], rewards=[1])
    client.vanish()
    back = client.come_back()
    assert back.welcome().last_requests == (1, 1)
    back.step_again(1, obs=[4], rewards=[1])
    back.step(0, obs=[3], rewards=[1])
    assert world.hub.scheduler.ledger.stored_total == 2
