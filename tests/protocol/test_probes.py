"""Both sessions about probes: when they may be sent, and what an answer must look like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from royale_client.session import ProbeAsked, Stopped
from royale_client.wire.codec import encode
from royale_client.wire.errors import ContractError, ProtocolError, UnexpectedMessageError
from royale_client.wire.grammar import State
from royale_client.wire.messages import Probe, Probed, encode_message
from royale_client.wire.probes import LAYOUT, LEGALITY, WAITING, ProbeAnswer
from royale_client.wire.spaces import DiscreteSpec
from royale_server.endpoint.session import ProbedReceived
from tests.protocol.joined import Joined, ready
from tests.wire.builders import make_hello, make_welcome

ABLE: dict[str, Any] = {"features": ("probe",), "masks": True, "action_space": DiscreteSpec(3)}
LEGAL = np.array([[True, True, False], [True, False, False]])
ANSWERS = {
    LAYOUT: ProbeAnswer(columns=("slot", "tile"), layout=np.zeros((3, 2), np.int64)),
    WAITING: ProbeAnswer(states=("a", "b"), masks=LEGAL),
    LEGALITY: ProbeAnswer(states=("a", "b"), masks=LEGAL, verdicts=LEGAL),
}


def greeted(**changes: Any) -> Joined:
    joined = Joined(make_hello(**{**ABLE, **changes}))
    joined.greet()
    return joined


def ask(joined: Joined, question: str = LEGALITY, number: int = 7) -> None:
    (event,) = joined.client.receive(joined.server.probe(number, question))
    assert event == ProbeAsked(number=number, question=question)


@pytest.mark.parametrize("question", ANSWERS)
def test_an_answer_arrives_as_it_was_given(question: str) -> None:
    joined = greeted()
    ask(joined, question)
    given = ANSWERS[question]
    (event,) = joined.server.receive(joined.client.probed(7, given))
    assert isinstance(event, ProbedReceived)
    got = event.probed.answer
    assert (got.states, got.columns) == (given.states, given.columns)
    for name in ("masks", "verdicts", "layout"):
        np.testing.assert_array_equal(getattr(got, name), getattr(given, name))
    joined.admit()


def test_a_failure_stands_in_for_an_answer_and_the_next_probe_may_follow() -> None:
    joined = greeted()
    ask(joined)
    (event,) = joined.server.receive(joined.client.probed(7, failure="no rules here"))
    assert isinstance(event, ProbedReceived)
    assert event.probed.failure == "no rules here"
    ask(joined, LAYOUT, 8)


def test_a_client_without_the_feature_is_not_asked_and_believes_no_server_that_asks() -> None:
    joined = greeted(features=())
    with pytest.raises(UnexpectedMessageError, match="the feature 'probe'"):
        joined.server.probe(1, LAYOUT)
    with pytest.raises(UnexpectedMessageError, match="answers no probes"):
        joined.client.receive(encode_message(Probe(number=1, question=LAYOUT)))


def test_probes_come_one_at_a_time_and_before_the_welcome() -> None:
    joined = greeted()
    ask(joined)
    with pytest.raises(UnexpectedMessageError, match="before the answer to the last"):
        joined.server.probe(8, LAYOUT)
    with pytest.raises(UnexpectedMessageError, match="before the answer to a probe"):
        joined.server.welcome(make_welcome(joined.hello))
    with pytest.raises(UnexpectedMessageError, match="not allowed now"):
        ready(make_hello(**ABLE)).server.probe(1, LAYOUT)


def test_a_client_refuses_a_welcome_that_passes_over_its_answer() -> None:
    joined = greeted()
    ask(joined)
    with pytest.raises(UnexpectedMessageError, match="before the answer to a probe"):
        joined.client.receive(encode_message(make_welcome(joined.hello)))


BROKEN = {
    "another number": Probed(number=8, answer=ANSWERS[LEGALITY]),
    "no verdicts": Probed(number=7, answer=ANSWERS[WAITING]),
    "a layout": Probed(number=7, answer=ANSWERS[LAYOUT]),
    "masks of other actions": Probed(
        number=7, answer=ProbeAnswer(states=("a",), masks=LEGAL[:1, :2], verdicts=LEGAL[:1, :2])
    ),
    "masks of other states": Probed(
        number=7, answer=ProbeAnswer(states=("a",), masks=LEGAL, verdicts=LEGAL)
    ),
    "arrays beside a failure": Probed(number=7, answer=ANSWERS[LEGALITY], failure="no"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_answer_that_does_not_fit_the_question_ends_the_session(name: str) -> None:
    joined = greeted()
    ask(joined)
    with pytest.raises(ProtocolError):
        joined.server.receive(encode_message(BROKEN[name]))


def test_a_client_that_cannot_send_its_answer_can_still_say_why() -> None:
    joined = greeted()
    ask(joined)
    with pytest.raises(ContractError, match=r"probed\.masks"):
        joined.client.probed(7, ProbeAnswer(states=("a",), masks=LEGAL, verdicts=LEGAL))
    joined.server.receive(joined.client.probed(7, failure="too many states"))


def test_an_answer_that_crosses_a_stop_is_no_error() -> None:
    joined = greeted()
    ask(joined)
    answer = joined.client.probed(7, ANSWERS[LEGALITY])
    (event,) = joined.client.receive(joined.server.stop("stopping"))
    assert isinstance(event, Stopped)
    joined.server.receive(answer)
    assert joined.server.state is State.DISMISSED


@pytest.mark.parametrize(
    ("key", "value"), [("states", ["x" * 257]), ("columns", ["c"] * 17), ("failure", 3)]
)
def test_texts_of_an_answer_are_bounded(key: str, value: object) -> None:
    joined = greeted()
    ask(joined)
    header, arrays = Probed(number=7, answer=ANSWERS[LEGALITY]).to_wire()
    with pytest.raises(ProtocolError, match=key):
        joined.server.receive(encode({**header, key: value}, arrays))
