"""The grammar: which message may follow which, and how requests are numbered."""

from __future__ import annotations

import pytest

from royale_client.wire.errors import UnexpectedMessageError
from royale_client.wire.grammar import (
    CLOSE_CODES,
    TRANSITIONS,
    Requests,
    Side,
    State,
    Verdict,
    after_welcome,
    judge,
    may_send,
    next_state,
)
from royale_client.wire.messages import MESSAGE_TYPES
from royale_client.wire.notices import STOP_REASONS


def test_every_state_says_what_each_side_may_send() -> None:
    for side in Side:
        assert set(TRANSITIONS[side]) == set(State)


def test_every_message_has_exactly_one_sender() -> None:
    sent = {
        side: {message for legal in TRANSITIONS[side].values() for message in legal}
        for side in Side
    }
    assert sent[Side.CLIENT] | sent[Side.SERVER] == set(MESSAGE_TYPES)
    assert not sent[Side.CLIENT] & sent[Side.SERVER]


def test_the_server_may_end_any_conversation_with_one_fault() -> None:
    for state, legal in TRANSITIONS[Side.SERVER].items():
        assert ("fault" in legal) == (state is not State.FAULTED)


def test_a_conversation_from_hello_to_goodbye() -> None:
    state = State.OPENED
    for side, message in (
        (Side.CLIENT, "hello"),
        (Side.SERVER, "busy"),
        (Side.SERVER, "welcome"),
        (Side.CLIENT, "step"),
        (Side.SERVER, "action"),
        (Side.CLIENT, "log"),
        (Side.SERVER, "stop"),
        (Side.CLIENT, "step"),
        (Side.CLIENT, "goodbye"),
    ):
        state = next_state(side, state, message)
    assert state is State.LEFT


def test_a_message_at_the_wrong_moment_is_refused_with_what_is_legal() -> None:
    with pytest.raises(UnexpectedMessageError) as caught:
        next_state(Side.CLIENT, State.READY, "hello")
    assert caught.value.expected == "step or snapshotted or log or goodbye"
    with pytest.raises(UnexpectedMessageError, match="nothing more"):
        next_state(Side.CLIENT, State.LEFT, "step")


def test_a_message_of_the_other_side_is_unexpected() -> None:
    with pytest.raises(UnexpectedMessageError, match="action is not allowed now"):
        next_state(Side.CLIENT, State.READY, "action")
    with pytest.raises(UnexpectedMessageError, match="step is not allowed now"):
        next_state(Side.SERVER, State.READY, "step")


@pytest.mark.parametrize("restores", [False, True])
def test_a_welcome_that_restores_lets_no_step_through_before_the_restored(restores: bool) -> None:
    state = after_welcome(restores=restores)
    assert may_send(Side.CLIENT, state, "step") is not restores
    if restores:
        assert not may_send(Side.SERVER, state, "action")
        state = next_state(Side.SERVER, state, "restore")
        assert {message for message in MESSAGE_TYPES if may_send(Side.CLIENT, state, message)} == {
            "restored",
            "log",
            "goodbye",
        }
        state = next_state(Side.CLIENT, state, "restored")
    assert state is State.READY


def test_nothing_but_a_promise_leads_to_a_restore() -> None:
    for side, states in TRANSITIONS.items():
        for state, legal in states.items():
            assert State.PROMISED not in legal.values() or state is State.PROMISED
            assert ("restore" in legal) == (side is Side.SERVER and state is State.PROMISED)


@pytest.mark.parametrize(
    ("last", "answered", "number", "verdict"),
    [
        (0, True, 1, Verdict.NEXT),
        (0, True, 0, Verdict.DUPLICATE),
        (0, True, 2, Verdict.GAP),
        (4, True, 5, Verdict.NEXT),
        (4, False, 5, Verdict.EARLY),
        (4, True, 4, Verdict.DUPLICATE),
        (4, False, 4, Verdict.DUPLICATE),
        (4, True, 1, Verdict.DUPLICATE),
        (4, False, 6, Verdict.GAP),
        (4, True, -1, Verdict.DUPLICATE),
    ],
)
def test_a_request_number_is_next_or_it_is_wrong(
    last: int, answered: bool, number: int, verdict: Verdict
) -> None:
    assert judge(last, answered, number) is verdict


def test_groups_are_numbered_apart() -> None:
    requests = Requests((0, 0))
    requests.open(0, requests.next_number(0))
    requests.open(1, 1)
    assert (requests.outstanding(0), requests.outstanding(1)) == (1, 1)
    requests.close(1, 1)
    requests.open(1, 2)
    assert (requests.outstanding(0), requests.outstanding(1)) == (1, 2)


def test_a_second_request_before_the_answer_is_refused() -> None:
    requests = Requests((0,))
    requests.open(0, 1)
    with pytest.raises(UnexpectedMessageError, match="early"):
        requests.next_number(0)
    with pytest.raises(UnexpectedMessageError, match="early"):
        requests.open(0, 2)
    assert requests.outstanding(0) == 1


@pytest.mark.parametrize(("number", "verdict"), [(1, "duplicate"), (3, "gap"), (0, "duplicate")])
def test_a_number_out_of_order_is_refused_and_changes_nothing(number: int, verdict: str) -> None:
    requests = Requests((0,))
    requests.open(0, 1)
    requests.close(0, 1)
    with pytest.raises(UnexpectedMessageError, match=verdict):
        requests.open(0, number)
    requests.open(0, 2)


def test_an_answer_closes_the_open_request_and_no_other() -> None:
    requests = Requests((0,))
    with pytest.raises(UnexpectedMessageError, match="expected none"):
        requests.close(0, 0)
    requests.open(0, 1)
    with pytest.raises(UnexpectedMessageError, match="expected request 1"):
        requests.close(0, 2)
    requests.close(0, 1)
    with pytest.raises(UnexpectedMessageError):
        requests.close(0, 1)


@pytest.mark.parametrize("group", [-1, 1, 2**40])
def test_a_group_that_does_not_exist_is_refused(group: int) -> None:
    for act in (
        lambda requests: requests.open(group, 1),
        lambda requests: requests.close(group, 1),
        lambda requests: requests.next_number(group),
    ):
        with pytest.raises(UnexpectedMessageError, match="no such group"):
            act(Requests((0,)))


def test_numbering_continues_where_the_welcome_says() -> None:
    requests = Requests((17, 0))
    assert requests.next_number(0) == 18
    assert requests.is_first(0, 18)
    requests.open(0, 18)
    requests.close(0, 18)
    assert not requests.is_first(0, requests.next_number(0))


def test_requests_of_an_earlier_session_are_open_again_and_none_after_them_is_first() -> None:
    requests = Requests((17, 3))
    assert not requests.all_open()
    requests.reopen()
    assert requests.all_open()
    assert (requests.outstanding(0), requests.outstanding(1)) == (17, 3)
    with pytest.raises(UnexpectedMessageError, match="early"):
        requests.open(0, 18)
    requests.close(0, 17)
    assert not requests.all_open()
    assert not requests.is_first(0, requests.next_number(0))


def test_there_is_nothing_to_open_again_without_an_earlier_request() -> None:
    requests = Requests((17, 0))
    with pytest.raises(UnexpectedMessageError, match="no request of an earlier session"):
        requests.reopen()
    assert requests.outstanding(0) is None
    requests.open(1, 1)
    requests.close(1, 1)
    with pytest.raises(UnexpectedMessageError, match="no request of an earlier session"):
        requests.reopen()


def test_requests_are_opened_again_once() -> None:
    requests = Requests((17,))
    requests.reopen()
    with pytest.raises(UnexpectedMessageError):
        requests.reopen()
    requests.close(0, 17)
    with pytest.raises(UnexpectedMessageError):
        requests.reopen()


def test_every_way_to_end_has_a_close_code() -> None:
    assert set(CLOSE_CODES) == {*STOP_REASONS, "fault", "goodbye"}
