"""Conversations between the two sessions: handshake, turns, endings, and peers that break rules."""

from __future__ import annotations

import logging
import tracemalloc
from typing import Any

import msgpack
import numpy as np
import pytest

from royale_client.session import (
    ClientSession,
    Faulted,
    ServerBusy,
    Stopped,
    Welcomed,
)
from royale_client.wire.errors import (
    ContractError,
    LimitError,
    MessageDecodeError,
    ProtocolError,
    SpaceMismatchError,
    UnexpectedMessageError,
)
from royale_client.wire.grammar import State
from royale_client.wire.limits import Limits
from royale_client.wire.messages import Action, EpisodeMetric, decode_message, encode_message
from royale_client.wire.spaces import BoxSpec, DictSpec, DiscreteSpec, SpaceSpec
from royale_server.endpoint.session import (
    GoodbyeReceived,
    LogReceived,
    ServerSession,
    StepReceived,
    check_spaces,
)
from tests.hostile import framed
from tests.protocol.joined import Joined, ready
from tests.wire.builders import VECTOR, make_hello, make_step, make_welcome, rows_of


class Run:
    """The spaces of a run, as the server session expects them."""

    def __init__(self, observation: SpaceSpec, action: SpaceSpec, masks: bool = False) -> None:
        self.observation = observation
        self.action = action
        self.masks = masks


# Handshake


def test_hello_and_welcome_make_both_sides_ready() -> None:
    joined = Joined()
    hello = joined.greet().hello
    assert (hello.client_name, joined.server.protocol) == ("arm-7", 1)
    (event,) = joined.client.receive(joined.server.welcome(make_welcome(joined.hello)))
    assert isinstance(event, Welcomed)
    assert joined.client.welcome is event.welcome
    assert joined.client.state is joined.server.state is State.READY


def test_a_hello_that_contradicts_itself_never_leaves_the_client() -> None:
    with pytest.raises(ContractError, match="role"):
        ClientSession(make_hello(role="boss"))


def test_the_client_does_not_step_before_the_welcome() -> None:
    joined = Joined()
    joined.greet()
    with pytest.raises(UnexpectedMessageError):
        joined.client.step(0, observations=rows_of(VECTOR, 3))


def test_the_server_does_not_welcome_before_the_hello() -> None:
    with pytest.raises(UnexpectedMessageError):
        ServerSession().welcome(make_welcome(make_hello()))


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol": 2},
        {"seeds": np.arange(2, dtype=np.uint64)},
        {"last_requests": (0, 0)},
        {"horizon": 4},
    ],
)
def test_a_welcome_that_does_not_answer_the_hello_is_refused_on_both_sides(
    changes: dict[str, Any],
) -> None:
    joined = Joined()
    joined.greet()
    welcome = make_welcome(joined.hello, **changes)
    with pytest.raises(ContractError, match="welcome"):
        joined.server.welcome(welcome)
    with pytest.raises(ContractError, match="welcome"):
        joined.client.receive(encode_message(welcome))


def test_numbering_continues_where_the_welcome_says() -> None:
    joined = Joined()
    joined.greet()
    joined.admit(last_requests=(41,))
    event = joined.step()
    assert (event.step.request, event.first) == (42, True)
    joined.answer()
    assert joined.client.outstanding(0) is None


# Spaces of a second client (case H30)

EXPECTED = Run(
    DictSpec((("camera", BoxSpec(0, 255, (8, 8), "uint8")), ("joints", VECTOR))), DiscreteSpec(4)
)
ULP = float(np.nextafter(np.float32(1), np.float32(2)))


def observation(**changes: SpaceSpec) -> SpaceSpec:
    parts: dict[str, SpaceSpec] = {"camera": BoxSpec(0, 255, (8, 8), "uint8"), "joints": VECTOR}
    return DictSpec(tuple({**parts, **changes}.items()))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (
            {"observation_space": observation(joints=BoxSpec(-1, 1, (5,), "float32"))},
            "joints: shape is (5,), expected (4,)",
        ),
        (
            {"observation_space": observation(joints=BoxSpec(-1, 1, (4,), "float64"))},
            "joints: dtype is 'float64', expected 'float32'",
        ),
        ({"action_space": DiscreteSpec(5)}, "n is 5, expected 4"),
        (
            {"observation_space": observation(joints=BoxSpec(-2, 1, (4,), "float32"))},
            "joints: low is -2.0, expected -1.0",
        ),
        ({"observation_space": observation(lidar=VECTOR)}, "lidar: not expected, is Box"),
        ({"action_space": DiscreteSpec(4, start=1)}, "start is 1, expected 0"),
        ({"masks": True}, "masks: is True, expected False"),
    ],
    ids=["shape", "float64", "one more action", "bounds", "extra key", "start", "masks"],
)
def test_other_spaces_than_those_of_the_run_are_refused_with_the_field_named(
    changes: dict[str, Any], named: str
) -> None:
    facts = {"observation_space": observation(), "action_space": DiscreteSpec(4), **changes}
    client = ClientSession(make_hello(**facts))
    server = ServerSession(expected=EXPECTED)
    with pytest.raises(SpaceMismatchError) as caught:
        server.receive(client.start())
    assert named in caught.value.sentence
    assert "arm-7" in caught.value.sentence
    (event,) = client.receive(server.fault_of(caught.value))
    assert isinstance(event, Faulted)
    assert event.fault.code == "spaces"


def test_bounds_one_float32_step_apart_are_admitted() -> None:
    near = observation(joints=BoxSpec(-1, ULP, (4,), "float32"))
    hello = make_hello(observation_space=near, action_space=DiscreteSpec(4))
    Joined(hello, ServerSession(expected=EXPECTED)).greet()


def test_all_differences_are_named_at_once() -> None:
    hello = make_hello(observation_space=observation(lidar=VECTOR), action_space=DiscreteSpec(5))
    with pytest.raises(SpaceMismatchError, match=r"lidar.*n is 5"):
        check_spaces(EXPECTED, hello)


# Turns


def test_turns_go_on_and_carry_what_was_sent() -> None:
    joined = ready()
    first = joined.step()
    assert (first.step.request, first.asking, first.first) == (1, 3, True)
    assert first.step.rewards is None
    answered = joined.answer(version=5, actions=(np.array([1, 0, 1]),), assignments=({"slot": 1},))
    assert (answered.request, answered.policy_version) == (1, 5)
    assert answered.actions[0].tolist() == [1, 0, 1]
    assert answered.assignments == ({"slot": 1},)
    second = joined.step(rewards=np.array([1.0, 2.0, 3.0]), env_time_s=0.5)
    assert second.step.rewards is not None
    assert second.step.rewards.tolist() == [1.0, 2.0, 3.0]
    assert (second.step.request, second.first, second.step.env_time_s) == (2, False, 0.5)


def test_each_group_is_told_the_discount_once_and_again_when_it_moves() -> None:
    joined = Joined(make_hello(groups=(2, 3), features=("discount",)))
    joined.greet()
    joined.admit(features=("discount",))
    told = []
    # Of four turns of the same discount the last ones are written and read as familiar forms.
    for discount in (0.9, 0.9, 0.9, 0.9, 0.95, 0.95, None):
        for group in (0, 1):
            joined.step(group)
            joined.server.discount = discount
            told.append(joined.answer(group).discount)
    assert told == [0.9, 0.9, *[None] * 6, 0.95, 0.95, *[None] * 4]


def test_a_client_that_does_not_want_the_discount_is_not_told() -> None:
    joined = ready()
    joined.step()
    joined.server.discount = 0.9
    assert joined.answer().discount is None


@pytest.mark.parametrize("discount", [-0.1, 1.5])
def test_a_discount_beyond_its_range_is_refused_by_name(discount: float) -> None:
    joined = Joined(make_hello(features=("discount",)))
    joined.greet()
    joined.admit(features=("discount",))
    joined.step()
    joined.server.discount = discount
    with pytest.raises(ProtocolError, match="discount"):
        joined.answer()


def test_float32_rewards_are_widened_once_at_the_client() -> None:
    joined = ready()
    joined.turn()
    event = joined.step(rewards=np.array([0.5, 1.0, 2.0], dtype=np.float32))
    assert event.step.rewards is not None
    assert event.step.rewards.dtype == np.float64


def test_two_groups_are_in_flight_independently() -> None:
    joined = ready(make_hello(groups=(2, 3)))
    joined.step(0)
    joined.step(1)
    assert (joined.client.outstanding(0), joined.client.outstanding(1)) == (1, 1)
    assert joined.answer(1).actions[0].shape == (3,)
    joined.step(1)
    assert joined.answer(0).actions[0].shape == (2,)
    assert (joined.server.outstanding(0), joined.server.outstanding(1)) == (None, 2)


def test_a_second_step_before_the_answer_is_refused_at_the_client() -> None:
    joined = ready()
    joined.step()
    with pytest.raises(UnexpectedMessageError, match="early"):
        joined.client.step(0, **joined.content())
    joined.answer()
    joined.turn()


def test_a_refused_step_changes_nothing_at_the_client() -> None:
    joined = ready()
    with pytest.raises(ContractError):
        joined.client.step(0, observations=rows_of(VECTOR, 2))
    assert joined.client.outstanding(0) is None
    assert joined.step().step.request == 1


def test_an_answer_has_one_row_per_asking_row() -> None:
    joined = ready()
    asks = np.array([True, False, True])
    event = joined.step(asks=asks, observations=rows_of(VECTOR, 2))
    assert event.asking == 2
    with pytest.raises(ContractError, match=r"expected int64 of shape \(2,\)"):
        joined.server.action(0, 1, 0, (np.zeros(3, dtype=np.int64),))
    assert joined.answer(actions=(np.array([1, 1]),)).actions[0].shape == (2,)


def test_a_step_in_which_nobody_asks_is_answered_with_no_rows() -> None:
    joined = ready()
    joined.turn()
    event = joined.step(asks=np.zeros(3, dtype=bool), observations=rows_of(VECTOR, 0))
    assert event.asking == 0
    assert joined.answer(actions=(np.zeros(0, dtype=np.int64),)).actions[0].shape == (0,)


def test_a_client_that_joins_again_may_begin_with_rewards() -> None:
    joined = ready()
    content = {
        **joined.content(),
        "rewards": np.ones(3),
        "terminated": np.zeros(3, dtype=bool),
        "truncated": np.ones(3, dtype=bool),
        "final_observations": rows_of(VECTOR, 3),
    }
    event = joined.step(**content)
    assert event.first
    assert event.step.rewards is not None


def test_the_last_step_of_a_client_truncates_every_row_and_asks_for_nothing() -> None:
    joined = ready()
    joined.turn()
    event = joined.step(
        asks=np.zeros(3, dtype=bool),
        observations=rows_of(VECTOR, 0),
        truncated=np.ones(3, dtype=bool),
        final_observations=rows_of(VECTOR, 3),
    )
    assert event.asking == 0
    (goodbye,) = joined.server.receive(joined.client.goodbye("finished my episodes"))
    assert isinstance(goodbye, GoodbyeReceived)
    assert joined.server.state is State.LEFT


@pytest.mark.parametrize(
    ("actions", "named"),
    [
        ((np.zeros(3, dtype=np.int32),), "int32"),
        ((np.zeros((3, 1), dtype=np.int64),), "(3, 1)"),
        ((), "leaves"),
        ((np.zeros(3, dtype=np.int64),) * 2, "leaves"),
    ],
)
def test_actions_in_another_type_are_refused_on_both_sides(
    actions: tuple[np.ndarray, ...], named: str
) -> None:
    joined = ready()
    joined.step()
    with pytest.raises(ContractError) as caught:
        joined.server.action(0, 1, 0, actions)
    assert named in caught.value.sentence
    answer = Action(group=0, request=1, policy_version=0, actions=actions)
    with pytest.raises(ContractError) as caught:
        joined.client.receive(encode_message(answer))
    assert named in caught.value.sentence


@pytest.mark.parametrize(("group", "number"), [(0, 2), (0, 0), (1, 1), (-1, 1), (7, 1)])
def test_the_server_answers_only_open_requests(group: int, number: int) -> None:
    joined = ready(make_hello(groups=(3, 3)))
    joined.step(0)
    with pytest.raises(UnexpectedMessageError):
        joined.server.action(group, number, 0, rows_of(DiscreteSpec(2), 3))


def test_a_client_refuses_an_answer_nobody_asked_for() -> None:
    joined = ready()
    answer = Action(group=0, request=1, policy_version=0, actions=rows_of(DiscreteSpec(2), 3))
    with pytest.raises(UnexpectedMessageError, match="not open"):
        joined.client.receive(encode_message(answer))


def test_log_records_and_busy_pass_in_between() -> None:
    joined = ready()
    joined.step()
    record = {"time_s": 1.0, "level": "WARNING", "logger": "env", "message": "slow"}
    (log,) = joined.server.receive(joined.client.log([record], dropped=3))
    assert isinstance(log, LogReceived)
    assert (log.log.records, log.log.dropped) == ((record,), 3)
    (busy,) = joined.client.receive(joined.server.busy("learn", 12.0, 48.0, "the learn step"))
    assert isinstance(busy, ServerBusy)
    assert (busy.busy.phase, busy.busy.since_s, busy.busy.expected_s) == ("learn", 12.0, 48.0)
    joined.answer()


# Episode records (case H22)


def test_a_wild_info_never_stops_a_run_and_warns_once_per_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = tuple(EpisodeMetric(name, "1", "all", "mean") for name in ("n", "d"))
    joined = ready(make_hello(episode_metrics=metrics))
    joined.turn()
    info = {1: "a", (1, 2): 3, None: 0, "n": np.float32(2), "d": {1, 2}, "bad": "\ud800"}
    record = {"row": 1, "return": np.float32(4), "length": 9, "time_s": 0.1, "metrics": info}
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            event = joined.step(
                terminated=np.array([False, True, False]),
                final_observations=rows_of(VECTOR, 1),
                episodes=[record],
            )
            assert event.step.episodes[0]["metrics"] == {"n": 2.0}
            assert event.step.episodes[0]["return"] == 4.0
            joined.answer()
    assert [entry.getMessage() for entry in caplog.records] == [
        "episode metric 'd' dropped: {1, 2} is no finite number (said once)"
    ]


def test_records_that_are_too_much_for_one_header_lose_their_last_metrics_evenly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = [f"m{i:02}" for i in range(30)]
    metrics = tuple(EpisodeMetric(name, "1", "all", "count") for name in names)
    joined = ready(make_hello(episode_metrics=metrics))
    joined.turn()
    values = dict.fromkeys(names, [0.5] * 1024)  # 9 bytes each: 276 kB a record, a header has 256
    records = [
        {"row": row, "return": float(row), "length": 9, "time_s": 0.1, "metrics": values}
        for row in range(3)
    ]
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            event = joined.step(
                terminated=np.ones(3, np.bool_),
                final_observations=rows_of(VECTOR, 3),
                episodes=records,
            )
            joined.answer()
            # 245,760 bytes for three: 81,920 each, and a metric takes 4 + 3 + 9,216.
            assert [list(r["metrics"]) for r in event.step.episodes] == [names[:8]] * 3
            assert [r["return"] for r in event.step.episodes] == [0.0, 1.0, 2.0]
    (told,) = (entry.getMessage() for entry in caplog.records)
    assert told.startswith("3 episodes ended in one step: 66 of their metrics are left out")


def test_records_of_more_episodes_than_one_header_holds_lose_the_last_rows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    num_slots = Limits().max_slots_per_session
    joined = ready(make_hello(groups=(num_slots,)))
    joined.turn()
    records = [
        {"row": row, "return": 1.5, "length": 9, "time_s": 0.1, "metrics": {}}
        for row in range(num_slots)
    ]
    with caplog.at_level(logging.WARNING):
        event = joined.step(
            terminated=np.ones(num_slots, np.bool_),
            final_observations=rows_of(VECTOR, num_slots),
            episodes=records,
        )
    # 245,760 bytes, 5 of them for the list. A record takes 54 and 1 to 3 for its row: the first 256
    # take 14,208, and of 57 bytes each there fit 4,062 more.
    assert [record["row"] for record in event.step.episodes] == list(range(256 + 4062))
    (told,) = (entry.getMessage() for entry in caplog.records)
    assert f"and {num_slots - 4318} records, those of the last rows" in told
    joined.answer()
    joined.turn()


# Endings


@pytest.mark.parametrize("reason", ["finished", "stopping", "halted"])
def test_a_stop_is_told_and_the_client_leaves(reason: str) -> None:
    joined = ready()
    joined.turn()
    (event,) = joined.client.receive(joined.server.stop(reason, "bye"))
    assert isinstance(event, Stopped)
    assert (event.stop.reason, event.stop.message) == (reason, "bye")
    (goodbye,) = joined.server.receive(joined.client.goodbye("told to stop", None))
    assert isinstance(goodbye, GoodbyeReceived)


def test_a_step_that_crosses_a_stop_is_taken_but_cannot_be_answered() -> None:
    joined = ready()
    joined.turn()
    step = joined.client.step(0, **joined.content())
    joined.client.receive(joined.server.stop("stopping"))
    (event,) = joined.server.receive(step)
    assert isinstance(event, StepReceived)
    with pytest.raises(UnexpectedMessageError):
        joined.server.action(0, 2, 0, rows_of(DiscreteSpec(2), 3))
    joined.server.receive(joined.client.goodbye("stopped"))


def test_a_stop_instead_of_a_welcome_lets_the_client_only_leave() -> None:
    joined = Joined()
    joined.greet()
    joined.client.receive(joined.server.stop("finished"))
    with pytest.raises(UnexpectedMessageError):
        joined.client.step(0, observations=rows_of(VECTOR, 3))
    joined.server.receive(joined.client.goodbye("finished"))


def test_a_fault_before_the_hello_reaches_the_client() -> None:
    joined = Joined()
    joined.client.start()
    (event,) = joined.client.receive(joined.server.fault("capacity", "full; try again later"))
    assert isinstance(event, Faulted)
    assert (event.fault.code, event.fault.message) == ("capacity", "full; try again later")


def test_after_a_fault_the_server_discards_what_is_still_on_its_way() -> None:
    joined = ready()
    joined.server.fault("timeout", "too long")
    assert joined.server.receive(joined.client.step(0, **joined.content())) == []
    assert joined.server.receive(b"garbage") == []


def test_after_its_goodbye_the_client_discards_what_is_still_on_its_way() -> None:
    joined = ready()
    joined.step()
    answer = joined.server.action(0, 1, 0, rows_of(DiscreteSpec(2), 3))
    joined.client.goodbye("interrupted")
    assert joined.client.receive(answer) == []


def test_a_message_after_the_goodbye_is_refused() -> None:
    joined = ready()
    step = joined.client.step(0, **joined.content())
    joined.server.receive(joined.client.goodbye("done"))
    with pytest.raises(UnexpectedMessageError):
        joined.server.receive(step)


def test_a_broken_step_ends_the_session_with_a_fault_and_nothing_else_is_heard() -> None:
    joined = ready()
    wrong = make_step(joined.hello, observations=rows_of(VECTOR, 2))
    with pytest.raises(ContractError) as caught:
        joined.server.receive(encode_message(wrong))
    assert joined.server.receive(encode_message(make_step(joined.hello))) == []
    (event,) = joined.client.receive(joined.server.fault_of(caught.value))
    assert isinstance(event, Faulted)
    assert event.fault.message == caught.value.sentence


def test_no_fault_ever_carries_a_traceback() -> None:
    joined = ready()
    with pytest.raises(ProtocolError) as caught:
        joined.server.receive(b"\x01\x00\x00\x00\xc1\x00\x00\x00")
    message = decode_message(joined.server.fault_of(caught.value), Limits())
    assert "Traceback" not in repr(message)
    assert "line" not in repr(message)


def test_an_unknown_fault_code_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="oops"):
        ready().server.fault("oops", "")


def test_a_broken_server_is_not_believed_again() -> None:
    joined = ready()
    with pytest.raises(MessageDecodeError):
        joined.client.receive(b"garbage")
    assert joined.client.receive(joined.server.stop("finished")) == []


def test_a_text_frame_is_refused_on_both_sides() -> None:
    joined = ready()
    for session in (joined.server, joined.client):
        with pytest.raises(MessageDecodeError, match="text frame"):
            session.receive("hello")  # type: ignore[arg-type]


def test_the_client_refuses_to_send_more_than_the_server_announced() -> None:
    joined = Joined()
    joined.greet()
    joined.admit(limits={"max_message_bytes": 100})
    with pytest.raises(LimitError, match="at most 100"):
        joined.client.step(0, **joined.content())


def test_a_hello_beyond_the_servers_limits_is_refused() -> None:
    server = ServerSession(Limits(max_slots_per_session=2))
    with pytest.raises(LimitError, match="3 slots"):
        server.receive(ClientSession(make_hello()).start())


BOMB_BYTES = 2**20
BOMBS = {
    "asks": ("asks", "u1", [BOMB_BYTES]),
    "masks of a row": ("masks", "u1", [1, BOMB_BYTES]),
    "masks of many rows": ("masks", "u1", [BOMB_BYTES, 1]),
    "observations": ("o0", "u1", [BOMB_BYTES]),
    "rewards": ("rewards", "f8", [BOMB_BYTES // 8]),
    "endings": ("terminated", "?", [BOMB_BYTES]),
}


def bomb(name: str) -> bytes:
    """A step with a large array that would be larger still if it were unpacked."""
    array, code, dims = BOMBS[name]
    header = {
        "t": "step",
        "group": 0,
        "request": 1,
        "rows": 8 * BOMB_BYTES,
        "env_time_s": 0.0,
        "mask_size": 8 * dims[-1],
        "a": {array: [code, dims, 0]},
    }
    return framed(msgpack.packb(header), bytes(BOMB_BYTES))


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("is_welcome", [False, True])
@pytest.mark.parametrize("name", BOMBS)
def test_a_refused_step_costs_no_more_memory_than_a_few_times_its_bytes(
    name: str, is_welcome: bool, masks: bool
) -> None:
    joined = Joined(make_hello(masks=masks))
    joined.greet()
    if is_welcome:
        joined.admit()
    data = bomb(name)
    for session in (joined.server, joined.client):
        tracemalloc.start()
        with pytest.raises(ProtocolError):
            session.receive(data)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 * len(data)  # bits that are made bytes are eight times as much
