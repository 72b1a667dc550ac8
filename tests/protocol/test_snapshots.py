"""Both sessions about environments that are saved and brought back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from royale_client.session import ClientSession, RestoreAsked, SnapshotAsked, Stopped
from royale_client.wire.errors import (
    ContractError,
    LimitError,
    ProtocolError,
    UnexpectedMessageError,
)
from royale_client.wire.grammar import State
from royale_client.wire.limits import Limits
from royale_client.wire.messages import Restore, Restored, Snapshot, Snapshotted, encode_message
from royale_client.wire.snapshots import as_states
from royale_client.wire.spaces import DiscreteSpec
from royale_server.endpoint.session import (
    GoodbyeReceived,
    LogReceived,
    RestoredReceived,
    ServerSession,
    SnapshottedReceived,
    StepReceived,
)
from tests.protocol.joined import Joined, ready
from tests.wire.builders import make_hello, make_step, make_welcome, rows_of

ABLE = ("snapshot", "restart")
TWO_GROUPS = make_hello(groups=(3, 2), features=ABLE)
BLOCKS = (b"the first", b"the second")


def waiting(**changes: Any) -> Joined:
    """A conversation in which every group waits for its second actions."""
    joined = ready(make_hello(**{"groups": (3, 2), "features": ABLE, **changes}))
    for group in range(len(joined.hello.groups)):
        joined.turn(group)
        joined.step(group)
    return joined


def promised(last_requests: tuple[int, ...] = (41, 9), **changes: Any) -> Joined:
    """A conversation whose welcome promises a restore."""
    joined = Joined(make_hello(**{"groups": (3, 2), "features": ABLE, **changes}))
    joined.greet()
    joined.admit(last_requests=last_requests, restores=True)
    return joined


def restored(asking: tuple[int, ...] = (3, 1)) -> Joined:
    """A conversation in which the requests of an earlier one are open again."""
    joined = promised()
    joined.client.receive(joined.server.restore(BLOCKS))
    (event,) = joined.server.receive(joined.client.restored(asking=asking))
    assert isinstance(event, RestoredReceived)
    assert event.to_adopt
    joined.server.adopt(asking)
    joined._started = {0, 1}
    return joined


def ask(joined: Joined, number: int = 7) -> None:
    (event,) = joined.client.receive(joined.server.snapshot(number))
    assert isinstance(event, SnapshotAsked)
    assert event.number == number


# Snapshots


def test_states_come_back_as_they_were_handed_over_and_turns_go_on() -> None:
    joined = waiting()
    ask(joined)
    (event,) = joined.server.receive(joined.client.snapshotted(7, BLOCKS))
    assert isinstance(event, SnapshottedReceived)
    assert event.snapshotted.failure is None
    assert [state.tobytes() for state in event.snapshotted.states] == list(BLOCKS)
    assert (joined.server.outstanding(0), joined.server.outstanding(1)) == (2, 2)
    assert joined.answer(0).request == 2
    assert joined.step(0).step.request == 3


def test_a_failure_is_told_and_the_next_snapshot_may_be_asked_for() -> None:
    joined = waiting()
    ask(joined)
    (event,) = joined.server.receive(joined.client.snapshotted(7, failure="no disk"))
    assert isinstance(event, SnapshottedReceived)
    assert (event.snapshotted.states, event.snapshotted.failure) == ((), "no disk")
    ask(joined, 7)
    joined.server.receive(joined.client.snapshotted(7, BLOCKS))


def test_an_answer_may_overtake_the_states_that_were_asked_for_before_it() -> None:
    joined = waiting()
    snapshot = joined.server.snapshot(7)
    action = joined.server.action(0, 2, 0, rows_of(DiscreteSpec(2), 3))
    joined.client.receive(snapshot)
    states = joined.client.snapshotted(7, BLOCKS)
    joined.client.receive(action)
    step = joined.client.step(0, **joined.content(0))
    kinds = [type(event) for data in (states, step) for event in joined.server.receive(data)]
    assert kinds == [SnapshottedReceived, StepReceived]


def test_a_snapshot_is_asked_for_only_while_every_group_waits() -> None:
    joined = waiting()
    joined.answer(1)
    with pytest.raises(UnexpectedMessageError, match="not at rest"):
        joined.server.snapshot(7)
    with pytest.raises(UnexpectedMessageError, match="not at rest"):
        joined.client.receive(encode_message(Snapshot(number=7)))
    assert joined.client.state is State.LEFT


def test_a_second_snapshot_before_the_answer_is_refused_on_both_sides() -> None:
    joined = waiting()
    ask(joined)
    for act in (
        lambda: joined.server.snapshot(8),
        lambda: joined.client.receive(encode_message(Snapshot(number=8))),
    ):
        with pytest.raises(UnexpectedMessageError, match="until 7 is answered"):
            act()


def test_a_client_without_the_feature_is_not_asked() -> None:
    joined = waiting(features=("restart",))
    for act in (
        lambda: joined.server.snapshot(7),
        lambda: joined.client.receive(encode_message(Snapshot(number=7))),
    ):
        with pytest.raises(UnexpectedMessageError, match="neither snapshot nor restore"):
            act()


@pytest.mark.parametrize("number", [6, 8])
def test_states_of_another_snapshot_are_refused_on_both_sides(number: int) -> None:
    joined = waiting()
    ask(joined)
    with pytest.raises(UnexpectedMessageError, match="expected snapshot 7"):
        joined.client.snapshotted(number, BLOCKS)
    answer = Snapshotted(number=number, states=as_states(BLOCKS))
    with pytest.raises(UnexpectedMessageError, match="expected snapshot 7"):
        joined.server.receive(encode_message(answer))
    assert joined.server.receive(encode_message(answer)) == []


def test_states_that_nobody_asked_for_are_refused_on_both_sides() -> None:
    joined = waiting()
    with pytest.raises(UnexpectedMessageError, match="expected none"):
        joined.client.snapshotted(7, BLOCKS)
    with pytest.raises(UnexpectedMessageError, match="expected none"):
        joined.server.receive(encode_message(Snapshotted(number=7, failure="so there")))


@pytest.mark.parametrize("blocks", [(), BLOCKS[:1], (*BLOCKS, b"the third")])
def test_there_is_one_state_per_group(blocks: tuple[bytes, ...]) -> None:
    joined = waiting()
    ask(joined)
    with pytest.raises(ContractError):
        joined.client.snapshotted(7, blocks)
    if blocks:
        with pytest.raises(ContractError):
            joined.server.receive(
                encode_message(Snapshotted(number=7, states=as_states(blocks[:1])))
            )


def test_states_beside_a_failure_are_refused() -> None:
    joined = waiting()
    ask(joined)
    with pytest.raises(ContractError, match="none and a failure"):
        joined.client.snapshotted(7, BLOCKS, failure="no disk")


def test_states_the_server_would_not_take_leave_room_for_a_failure() -> None:
    joined = Joined(make_hello(features=ABLE))
    joined.greet()
    joined.admit(limits={"max_message_bytes": 500})
    joined.step()
    ask(joined)
    with pytest.raises(LimitError, match="at most 500"):
        joined.client.snapshotted(7, [bytes(600)])
    (event,) = joined.server.receive(joined.client.snapshotted(7, failure="too large"))
    assert isinstance(event, SnapshottedReceived)


def test_states_the_client_would_not_take_back_are_not_handed_over() -> None:
    joined = Joined(make_hello(features=ABLE))
    joined.client = ClientSession(joined.hello, Limits(max_message_bytes=300_000))
    joined.greet()
    joined.admit(limits=Limits().to_data())
    joined.step()
    ask(joined)
    with pytest.raises(LimitError, match="at most 300000"):
        joined.client.snapshotted(7, [bytes(300_001)])


def test_states_that_cross_a_stop_are_taken() -> None:
    joined = waiting()
    ask(joined)
    states = joined.client.snapshotted(7, BLOCKS)
    joined.client.receive(joined.server.stop("stopping"))
    (event,) = joined.server.receive(states)
    assert isinstance(event, SnapshottedReceived)
    joined.server.receive(joined.client.goodbye("stopped"))


# Restore


def test_restored_requests_are_open_again_and_answered_for_the_rows_that_asked() -> None:
    joined = restored(asking=(3, 1))
    for session in (joined.client, joined.server):
        assert (session.outstanding(0), session.outstanding(1)) == (41, 9)
    with pytest.raises(ContractError):
        joined.server.action(1, 9, 0, rows_of(DiscreteSpec(2), 2))
    answered = joined.answer(1, actions=(np.array([1]),))
    assert (answered.request, answered.actions[0].tolist()) == (9, [1])
    event = joined.step(1)
    assert (event.step.request, event.first) == (10, False)


def test_the_step_after_a_restored_request_has_rewards() -> None:
    joined = restored()
    joined.answer(0)
    bare = {"rewards": None, "terminated": None, "truncated": None}
    with pytest.raises(ContractError, match="after the first request"):
        joined.client.step(0, **joined.content(0, **bare))
    step = make_step(TWO_GROUPS, request=42, **bare)
    with pytest.raises(ContractError, match="after the first request"):
        joined.server.receive(encode_message(step))


def test_the_restored_states_are_those_that_were_saved() -> None:
    joined = promised()
    saved = np.arange(256, dtype=np.uint8), np.array([3], dtype=np.uint8)
    (event,) = joined.client.receive(joined.server.restore(saved))
    assert isinstance(event, RestoreAsked)
    assert [state.tolist() for state in event.states] == [list(range(256)), [3]]


@pytest.mark.parametrize("blocks", [(), BLOCKS])
def test_fresh_episodes_begin_without_rewards_after_the_requests_of_before(
    blocks: tuple[bytes, ...],
) -> None:
    joined = promised()
    joined.client.receive(joined.server.restore(blocks))
    failure = "of other environments" if blocks else None
    (event,) = joined.server.receive(joined.client.restored(failure))
    assert isinstance(event, RestoredReceived)
    assert (event.restored.failure, event.to_adopt) == (failure, False)
    assert joined.server.outstanding(0) is None
    first = joined.step(0)
    assert (first.step.request, first.first, first.step.rewards) == (42, True, None)
    joined.answer(0)
    assert joined.step(0).first is False


def test_a_client_sends_no_step_between_the_welcome_and_its_restored() -> None:
    joined = promised()
    with pytest.raises(UnexpectedMessageError):
        joined.client.step(0, **joined.content(0))
    with pytest.raises(UnexpectedMessageError):
        joined.client.restored()
    joined.client.receive(joined.server.restore())
    with pytest.raises(UnexpectedMessageError):
        joined.client.step(0, **joined.content(0))
    with pytest.raises(UnexpectedMessageError, match="expected restored or log or goodbye"):
        joined.server.receive(encode_message(make_step(TWO_GROUPS, request=42)))


def test_a_server_does_nothing_else_until_the_client_has_restored() -> None:
    joined = promised()
    for again in (False, True):
        for act in (
            lambda: joined.server.snapshot(7),
            lambda: joined.server.action(0, 41, 0, rows_of(DiscreteSpec(2), 3)),
            lambda: joined.server.adopt((3, 2)),
        ):
            with pytest.raises(UnexpectedMessageError):
                act()
        joined.client.receive(joined.server.busy("restore", 1.0))
        if not again:
            joined.client.receive(joined.server.restore(BLOCKS))
    with pytest.raises(UnexpectedMessageError):
        joined.server.restore(BLOCKS)


def test_logs_and_a_goodbye_pass_while_environments_are_restored() -> None:
    joined = promised()
    record = {"time_s": 1.0, "level": "INFO", "logger": "env", "message": "loading"}
    (event,) = joined.server.receive(joined.client.log([record]))
    assert isinstance(event, LogReceived)
    joined.client.receive(joined.server.restore(BLOCKS))
    joined.server.receive(joined.client.log([record]))
    (event,) = joined.server.receive(joined.client.goodbye("interrupted"))
    assert isinstance(event, GoodbyeReceived)


def test_a_restore_comes_only_after_the_promise() -> None:
    joined = ready(TWO_GROUPS)
    with pytest.raises(UnexpectedMessageError):
        joined.server.restore()
    with pytest.raises(UnexpectedMessageError):
        joined.client.receive(encode_message(Restore()))


def test_a_restore_comes_at_most_once() -> None:
    joined = restored()
    with pytest.raises(UnexpectedMessageError):
        joined.server.restore(BLOCKS)
    with pytest.raises(UnexpectedMessageError):
        joined.client.receive(encode_message(Restore(states=as_states(BLOCKS))))


def test_a_restored_comes_at_most_once() -> None:
    joined = restored()
    with pytest.raises(UnexpectedMessageError):
        joined.client.restored()
    with pytest.raises(UnexpectedMessageError):
        joined.server.receive(encode_message(Restored()))


def test_a_client_that_cannot_begin_afresh_is_promised_nothing() -> None:
    joined = Joined()
    joined.greet()
    welcome = make_welcome(joined.hello, restores=True)
    with pytest.raises(ContractError, match=r"welcome\.restores"):
        joined.server.welcome(welcome)
    with pytest.raises(ContractError, match=r"welcome\.restores"):
        joined.client.receive(encode_message(welcome))


@pytest.mark.parametrize(
    ("changes", "last_requests", "blocks"),
    [
        ({"features": ("restart",)}, (41, 9), BLOCKS),
        ({}, (41, 0), BLOCKS),
        ({}, (41, 9), BLOCKS[:1]),
        ({"groups": (3,)}, (41,), BLOCKS),
    ],
    ids=["no feature", "no request", "too few", "too many"],
)
def test_states_that_nobody_can_go_on_from_are_refused_on_both_sides(
    changes: dict[str, Any], last_requests: tuple[int, ...], blocks: tuple[bytes, ...]
) -> None:
    joined = promised(last_requests, **changes)
    with pytest.raises(ProtocolError, match="restore"):
        joined.server.restore(blocks)
    with pytest.raises(ProtocolError, match="restore"):
        joined.client.receive(encode_message(Restore(states=as_states(blocks))))


def test_states_larger_than_a_message_may_be_can_be_left_out() -> None:
    server = ServerSession(Limits(max_message_bytes=300_000))
    joined = Joined(make_hello(features=ABLE), server)
    joined.greet()
    joined.admit(last_requests=(41,), restores=True)
    with pytest.raises(LimitError, match="at most 300000"):
        server.restore([bytes(300_000)])
    (event,) = joined.client.receive(server.restore())
    assert isinstance(event, RestoreAsked)


def test_asking_rows_go_with_restored_states_and_nothing_else() -> None:
    joined = promised()
    joined.client.receive(joined.server.restore(BLOCKS))
    with pytest.raises(ValueError, match="asking rows"):
        joined.client.restored()
    with pytest.raises(ValueError, match="asking rows"):
        joined.client.restored("no disk", asking=(3, 2))
    joined.client.restored("no disk")
    joined = promised()
    joined.client.receive(joined.server.restore())
    with pytest.raises(ValueError, match="asking rows"):
        joined.client.restored(asking=(3, 2))


@pytest.mark.parametrize("asking", [(3,), (3, 2, 1), (4, 2), (3, -1)])
def test_asking_rows_fit_the_groups(asking: tuple[int, ...]) -> None:
    joined = promised()
    joined.client.receive(joined.server.restore(BLOCKS))
    with pytest.raises(ContractError, match="asking"):
        joined.client.restored(asking=asking)
    joined.server.receive(joined.client.restored(asking=(3, 2)))
    with pytest.raises(ContractError, match="asking"):
        joined.server.adopt(asking)
    joined.server.adopt((3, 2))


def test_requests_are_adopted_once_and_only_if_the_states_were_restored() -> None:
    joined = restored()
    with pytest.raises(UnexpectedMessageError):
        joined.server.adopt((3, 1))
    for blocks, failure in (((), None), (BLOCKS, "no disk")):
        joined = promised()
        joined.client.receive(joined.server.restore(blocks))
        joined.server.receive(joined.client.restored(failure))
        with pytest.raises(UnexpectedMessageError, match="no restored requests"):
            joined.server.adopt((3, 2))


def test_restored_environments_can_be_saved_at_once() -> None:
    joined = restored()
    ask(joined)
    joined.server.receive(joined.client.snapshotted(7, BLOCKS))


def test_a_restored_that_crosses_a_stop_is_taken_and_goes_nowhere() -> None:
    joined = promised()
    joined.client.receive(joined.server.restore(BLOCKS))
    answer = joined.client.restored(asking=(3, 2))
    (stopped,) = joined.client.receive(joined.server.stop("stopping"))
    assert isinstance(stopped, Stopped)
    (event,) = joined.server.receive(answer)
    assert isinstance(event, RestoredReceived)
    assert not event.to_adopt
    with pytest.raises(UnexpectedMessageError):
        joined.server.adopt((3, 2))
    joined.server.receive(joined.client.goodbye("stopped"))
    assert joined.server.state is State.LEFT


def test_first_steps_that_cross_a_stop_after_a_failed_restore_are_taken() -> None:
    joined = promised()
    joined.client.receive(joined.server.restore(BLOCKS))
    sent = [joined.client.restored("no disk"), joined.client.step(0, **joined.content(0))]
    joined.client.receive(joined.server.stop("stopping"))
    events = [event for data in sent for event in joined.server.receive(data)]
    assert [type(event) for event in events] == [RestoredReceived, StepReceived]


def test_a_stop_instead_of_the_restore_lets_the_client_only_leave() -> None:
    joined = promised()
    joined.client.receive(joined.server.stop("finished"))
    with pytest.raises(UnexpectedMessageError):
        joined.client.step(0, **joined.content(0))
    joined.server.receive(joined.client.goodbye("stopped"))


def test_a_client_without_features_takes_a_saved_place_with_its_numbers_only() -> None:
    joined = Joined()
    joined.greet()
    joined.admit(last_requests=(41,))
    event = joined.step()
    assert (event.step.request, event.first, event.step.rewards) == (42, True, None)
