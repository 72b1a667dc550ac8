"""The hub asks the first client of each environment, and lets nobody in before it has answered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from royale_client.session import Faulted, ProbeAsked, Stopped, Welcomed
from royale_client.wire.messages import Probed, encode_message
from royale_client.wire.probes import LAYOUT, LEGALITY, QUESTIONS, WAITING, ProbeAnswer
from tests.server.loop_world import LoopWorld, ScriptedClient

PROBED: dict[str, Any] = {"masks": True, "features": ("probe",)}
ANSWERS = {
    LAYOUT: ProbeAnswer(columns=("index",), layout=np.arange(4)[:, None]),
    WAITING: ProbeAnswer(states=("start",), masks=np.ones((1, 4), bool)),
    LEGALITY: ProbeAnswer(
        states=("start",), masks=np.ones((1, 4), bool), verdicts=np.ones((1, 4), bool)
    ),
}


@pytest.fixture
def world() -> LoopWorld:
    return LoopWorld(target=8)


def asked(client: ScriptedClient) -> list[str]:
    client.read()
    return [event.question for event in client.events if isinstance(event, ProbeAsked)]


def is_in(client: ScriptedClient) -> bool:
    client.read()
    return any(isinstance(event, Welcomed) for event in client.events)


def faults(client: ScriptedClient) -> list[str]:
    client.read()
    return [event.fault.message for event in client.events if isinstance(event, Faulted)]


def answer_all(client: ScriptedClient) -> None:
    for question in QUESTIONS:
        assert asked(client)[-1] == question
        number = len(asked(client))
        client.send_raw(client.session.probed(number, ANSWERS[question]))


def test_one_client_of_a_kind_is_asked_and_all_of_it_wait(world):
    first, second = world.client("one", **PROBED), world.client("two", **PROBED)
    assert (asked(first), asked(second)) == ([LAYOUT], [])
    assert world.hub.is_probing
    answer_all(first)
    (report,) = world.listener.reports
    assert (report.hello.client_name, set(report.answers)) == ("one", set(QUESTIONS))
    assert not any(is_in(client) for client in (first, second))
    assert not world.hub.is_probing
    world.hub.passed(report.hello)
    assert is_in(first)
    assert is_in(second)
    assert is_in(world.client("three", **PROBED))


def test_a_client_without_the_ability_is_not_asked(world):
    client = world.client("plain", masks=True)
    assert is_in(client)
    assert not asked(client)


def test_if_the_client_that_is_asked_leaves_the_next_one_is_asked(world):
    first, second = world.client("one", **PROBED), world.client("two", **PROBED)
    first.send_raw(first.session.goodbye("failed", "ValueError: no display"))
    assert asked(second) == [LAYOUT]
    told = [text for kind, text in world.listener.events if kind == "not_up"]
    assert told == ["client one did not come up: ValueError: no display"]


def test_if_nobody_is_left_the_next_one_that_comes_is_asked(world):
    first = world.client("one", **PROBED)
    world.hub.closed(first.peer, "cable")
    assert not world.hub.is_probing
    assert asked(world.client("two", **PROBED)) == [LAYOUT]


def test_who_does_not_answer_in_time_is_sent_away(world):
    client = world.client("slow", **PROBED)
    world.now += 299.0
    world.hub.tick()
    assert not faults(client)
    world.now += 2.0
    world.hub.tick()
    (text,) = faults(client)
    assert "--first-step-timeout" in text


def test_a_failure_is_reported_beside_the_answers(world):
    client = world.client("one", **PROBED)
    assert asked(client) == [LAYOUT]
    client.send_raw(client.session.probed(1, failure="ValueError: no rules"))
    for number, question in ((2, WAITING), (3, LEGALITY)):
        client.read()
        client.send_raw(client.session.probed(number, ANSWERS[question]))
    (report,) = world.listener.reports
    assert report.failures == {LAYOUT: "ValueError: no rules"}
    assert set(report.answers) == {WAITING, LEGALITY}


def test_a_refused_environment_is_sent_away_and_asked_anew_when_it_comes_back(world):
    client = world.client("one", **PROBED)
    answer_all(client)
    world.hub.refuse_environment(world.listener.reports[0].hello, "the mask is wrong")
    assert faults(client) == ["the mask is wrong"]
    assert asked(world.client("one", **PROBED)) == [LAYOUT]


def test_an_answer_that_nobody_asked_for_ends_the_session(world):
    client = world.client("one", **PROBED)
    answer_all(client)
    client.send_raw(encode_message(Probed(number=9, answer=ANSWERS[LAYOUT])))
    (text,) = faults(client)
    assert "was not sent" in text


def test_a_stop_reaches_a_client_that_is_being_asked(world):
    client = world.client("one", **PROBED)
    client.read()
    world.hub.stop("stopping", "Ctrl-C")
    client.read()
    assert any(isinstance(event, Stopped) for event in client.events)
    client.session.probed(1, ANSWERS[LAYOUT])  # it was on its way


def test_a_client_of_another_build_is_refused_also_when_it_comes_back():
    world = LoopWorld(target=8)
    world.client("one", env_digest="abc")
    two = world.client("two", env_digest="abc")
    assert is_in(two)
    world.hub.closed(two.peer, "rebuilt")
    (text,) = faults(world.client("two", env_digest="xyz"))
    for fact in ("another version or other settings", "xyz", "abc", "'one'",
                 "--mixed-environments"):  # fmt: skip
        assert fact in text
    (text,) = faults(world.client("three", env_id="Other-v0", env_digest="abc"))
    assert "Other-v0" in text


def test_declared_mixtures_are_taken_and_told():
    world = LoopWorld(target=8, mixed_environments=True)
    world.client("one", env_digest="abc")
    world.client("two", env_digest="abc")
    assert is_in(world.client("three", env_digest="xyz"))
    assert is_in(world.client("four", env_id="Other-v0", env_digest="abc"))
    told = [text for kind, text in world.listener.events if kind == "other_environment"]
    assert len(told) == 2
    assert "three" in told[0]
    assert "Other-v0" in told[1]
