"""The loop of a client against a scripted server, in one thread and without a socket."""

import logging

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from royale_client.driver_gymnasium import GymnasiumDriver
from royale_client.envs.dummy import DummyConfig, DummyDriver
from royale_client.hello import make_hello
from royale_client.loop import Ending, EnvLoop, ServerFaultError
from royale_client.timing import WaitingNote
from royale_client.transport import ConnectionLostError, MemoryTransport
from royale_client.wire.errors import ProtocolError
from royale_client.wire.messages import Busy
from tests.client.fake_server import FakeServer, ServerTransport
from tests.client.fakes import counting_vector_env


class SteppingClock:
    """A clock that moves by a fixed step whenever it is read."""

    def __init__(self, step_s: float = 0.001) -> None:
        self.now_s = 1000.0
        self._step_s = step_s

    def __call__(self) -> float:
        self.now_s += self._step_s
        return self.now_s


def make_loop(groups=((3,),), mode=AutoresetMode.DISABLED, **options):
    drivers = [GymnasiumDriver(counting_vector_env(lengths, mode)) for lengths in groups]
    hello = make_hello(drivers, client_name="tester", env_id="Counting-v0")
    return EnvLoop(drivers, hello, **options)


def stop_after(requests):
    """A rule that answers, and stops the run once that many steps have come."""

    def rule(server, step):
        if len(server.steps) < requests:
            return [server.answer(step)]
        is_last = len(server.steps) == requests
        return [server.session.stop("finished", "the budget is used up")] if is_last else []

    return rule


def test_hello_names_one_environment_and_seat_per_slot():
    server = FakeServer(stop_after(1))

    make_loop([(2, 2), (2, 2, 2)]).converse(ServerTransport(server))

    assert server.hello.groups == (2, 3)
    assert server.hello.environments.tolist() == [0, 1, 2, 3, 4]
    assert server.hello.seats.tolist() == [0, 0, 0, 0, 0]
    assert server.hello.masks is False
    assert server.hello.versions["numpy"] == np.__version__


def test_first_step_has_no_rewards_and_later_ones_do():
    server = FakeServer(stop_after(3))

    make_loop().converse(ServerTransport(server))

    assert [step.rewards is None for step in server.steps] == [True, False, False]
    assert [step.request for step in server.steps] == [1, 2, 3]
    # 10 * observation + action 1
    assert [step.rewards.tolist() for step in server.steps[1:]] == [[11.0], [21.0]]


def test_stop_ends_the_conversation_in_order_and_says_goodbye():
    server = FakeServer(stop_after(4))
    transport = ServerTransport(server)

    outcome = make_loop().converse(transport)

    assert outcome.ending is Ending.STOPPED
    assert "the budget is used up" in outcome.message
    assert server.goodbye.reason == "the server stopped"
    assert transport.closed == (1000, "")


def test_stop_instead_of_a_welcome_ends_in_order_too():
    server = FakeServer()
    server.welcome = lambda hello: server.session.stop("finished")

    assert make_loop().converse(ServerTransport(server)).ending is Ending.STOPPED


def test_both_groups_are_in_flight_before_the_first_answer():
    held = []

    def rule(server, step):
        held.append(step)
        if len(held) < 2:
            return []
        steps, held[:] = held[:], []
        return (
            [server.answer(one) for one in steps]
            if len(server.steps) < 8
            else [server.session.stop("finished")]
        )

    server = FakeServer(rule)

    make_loop([(9,), (9, 9)]).converse(ServerTransport(server))

    assert [step.group for step in server.steps[:4]] == [0, 1, 0, 1]
    assert [step.num_rows for step in server.steps[:2]] == [1, 2]


def test_each_group_gets_its_own_slots_seeds():
    server = FakeServer(stop_after(1))
    loop = make_loop([(9, 9), (9,)])

    loop.converse(ServerTransport(server))

    # The fake server seeds slot i with 100 + i.
    seeds = [[env.seeds[-1] for env in driver._env.envs] for driver in loop._drivers]
    assert seeds == [[100, 101], [102]]


def test_own_seed_counts_up_through_the_slots():
    server = FakeServer(stop_after(1))
    loop = make_loop([(9, 9), (9,)], seed=7)

    loop.converse(ServerTransport(server))

    seeds = [[env.seeds[-1] for env in driver._env.envs] for driver in loop._drivers]
    assert seeds == [[7, 8], [9]]


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_num_episodes_ends_with_a_last_step_that_truncates_every_open_row(mode):
    server = FakeServer()

    outcome = make_loop([(2, 5)], mode, num_episodes=1).converse(ServerTransport(server))

    assert outcome.ending is Ending.FINISHED
    last = server.steps[-1]
    # After two steps the first row has ended by itself (truncated: odd episode), the second is cut.
    assert last.asks.tolist() == [False, False]
    assert last.truncated.tolist() == [True, True]
    assert last.final_observations[0].tolist() == [[2.0], [2.0]]
    assert last.rewards.tolist() == [21.0, 21.0]
    assert [episode["row"] for episode in last.episodes] == [0]
    assert server.goodbye.reason == "all episodes are complete"


def test_every_group_reports_its_last_step_before_the_goodbye():
    server = FakeServer()

    make_loop([(2,), (9,)], num_episodes=1).converse(ServerTransport(server))

    last = {step.group: step for step in server.steps}
    assert [last[group].asks.tolist() for group in (0, 1)] == [[False], [False]]
    assert server.goodbye is not None


def test_request_to_leave_carries_out_the_answer_that_is_under_way():
    leave = []
    server = FakeServer()
    loop = make_loop([(9,)], wants_to_leave=lambda: len(server.steps) >= 3 or bool(leave))

    outcome = loop.converse(ServerTransport(server))

    assert outcome.ending is Ending.LEFT
    assert server.steps[-1].truncated.tolist() == [True]
    assert server.steps[-1].final_observations[0].tolist() == [[3.0]]
    assert server.goodbye.reason == "the client was asked to leave"


def test_leaving_does_not_wait_for_ever_for_a_server_that_is_busy():
    server = FakeServer(lambda server, step: [])
    clock = SteppingClock(step_s=0.5)
    loop = make_loop(wants_to_leave=lambda: bool(server.steps), clock=clock)

    outcome = loop.converse(ServerTransport(server))

    assert outcome.ending is Ending.LEFT
    assert len(server.steps) == 1
    assert server.goodbye is not None


def test_lost_connection_keeps_what_the_group_owes_and_sends_it_again():
    first, second = FakeServer(), FakeServer(stop_after(3))
    transport = ServerTransport(first)
    loop = make_loop([(9,)])
    first._rule = lambda server, step: cut(transport, server, step)

    def cut(transport, server, step):
        transport.is_lost = len(server.steps) == 3
        return [] if transport.is_lost else [server.answer(step)]

    with pytest.raises(ConnectionLostError):
        loop.converse(transport)
    loop.converse(ServerTransport(second))

    owed, again = first.steps[-1], second.steps[0]
    assert again.request == 1
    assert again.rewards.tolist() == owed.rewards.tolist() == [21.0]
    assert again.observations[0].tolist() == owed.observations[0].tolist() == [[2.0]]
    # The episode went on: its next step is the third.
    assert second.steps[1].rewards.tolist() == [31.0]


def test_an_episode_is_told_once_even_if_its_turn_is_sent_twice():
    """Episodes of two steps: the third message ends one, and the connection breaks after it."""
    first, second = FakeServer(), FakeServer(stop_after(2))
    transport = ServerTransport(first)
    loop = make_loop([(2,)])

    def cut(server, step):
        transport.is_lost = len(server.steps) == 3
        return [] if transport.is_lost else [server.answer(step)]

    first._rule = cut
    with pytest.raises(ConnectionLostError):
        loop.converse(transport)
    loop.converse(ServerTransport(second))

    assert [len(step.episodes) for step in first.steps] == [0, 0, 1]
    again = second.steps[0]
    assert (again.terminated | again.truncated).tolist() == [True]
    assert again.episodes == ()


def lose(transport, server, request):
    """A rule that answers every request but this one, whose connection is lost."""

    def rule(server, step):
        transport.is_lost = step.request == request
        return [] if transport.is_lost else [server.answer(step)]

    server._rule = rule


def test_a_session_that_goes_on_sends_a_request_without_an_answer_again_as_it_was():
    """Episodes of two steps: the third message ends one, and the connection breaks after it."""
    first = FakeServer()
    second = FakeServer(stop_after(1), earlier=first)
    transport = ServerTransport(first)
    loop = make_loop([(2,)])
    lose(transport, first, request=3)
    with pytest.raises(ConnectionLostError):
        loop.converse(transport)
    loop.converse(ServerTransport(second))

    assert second.hello.resume_token == "token"
    (again,) = second.steps_again
    assert again.request == 3
    assert again.episodes == first.steps[2].episodes != ()
    assert second.steps[0].request == 4


def test_a_request_that_was_lost_on_its_way_is_sent_with_its_number_over_the_next_connection():
    first = FakeServer()
    second = FakeServer(stop_after(1), earlier=first)
    transport = ServerTransport(first)
    send, loop = transport.send, make_loop([(9,)])

    def send_two(data):
        transport.is_lost = len(first.steps) == 2
        send(data)

    transport.send = send_two
    with pytest.raises(ConnectionLostError):
        loop.converse(transport)
    loop.converse(ServerTransport(second))

    assert second.steps_again == []
    assert [step.request for step in (*first.steps, *second.steps)] == [1, 2, 3]
    assert second.steps[0].rewards.tolist() == [21.0], "the outcome of the second answer"


def test_an_answer_found_after_the_loss_is_asked_for_again_and_carried_out_once():
    """What came before the end is read for a farewell; an answer there finds nobody to act."""
    first = FakeServer()
    second = FakeServer(stop_after(1), earlier=first)
    transport = ServerTransport(first)
    receive, loop = transport.receive, make_loop([(9,)])

    def receive_late(timeout_s):
        if len(first.steps) == 2 and not transport.is_lost:
            transport.is_lost = True
            raise ConnectionLostError("cut by the test, with an answer unread")
        return receive(timeout_s)

    transport.receive = receive_late
    with pytest.raises(ConnectionLostError):
        loop.converse(transport)
    loop.converse(ServerTransport(second))

    assert [step.request for step in second.steps_again] == [2]
    assert second.steps[0].request == 3
    assert second.steps[0].rewards.tolist() == [21.0]


@pytest.mark.parametrize(
    ("code", "reason", "is_stop"),
    [
        (1000, "finished", True),
        (1001, "stopping", True),
        (1000, "goodbye", False),
        (1006, "", False),
    ],
)
def test_a_close_that_says_stop_ends_in_order_after_a_long_sleep(code, reason, is_stop):
    """The machine slept through the stop message; the close frame is all that is left of it."""

    class Closed(ServerTransport):
        def receive(self, timeout_s):
            raise ConnectionLostError("closed", code=code, reason=reason)

    loop, transport = make_loop(), Closed(FakeServer())
    if is_stop:
        assert loop.converse(transport).ending is Ending.STOPPED
    else:
        with pytest.raises(ConnectionLostError):
            loop.converse(transport)


def test_next_run_begins_with_fresh_episodes():
    loop = make_loop([(9,)])
    loop.converse(ServerTransport(FakeServer(stop_after(4))))
    loop.forget_episodes()
    second = FakeServer(stop_after(2))

    loop.converse(ServerTransport(second))

    assert second.steps[0].rewards is None
    assert second.steps[0].observations[0].tolist() == [[0.0]]


def test_fault_is_raised_with_its_code_and_sentence():
    server = FakeServer(
        lambda server, step: [server.session.fault("contract", "row 3: no legal action")]
    )

    with pytest.raises(ServerFaultError, match="row 3: no legal action") as caught:
        make_loop().converse(ServerTransport(server))

    assert caught.value.code == "contract"
    assert caught.value.retry is False


def test_server_that_breaks_the_protocol_is_left():
    server = FakeServer()
    transport = ServerTransport(server)
    server.welcome = lambda hello: b"nonsense"

    with pytest.raises(ProtocolError):
        make_loop().converse(transport)

    assert transport.closed is not None


def test_exception_of_an_environment_reaches_the_server_as_a_sentence():
    loop = make_loop([(9,)])

    def broken(action):
        raise RuntimeError("the motor is on fire")

    loop._drivers[0]._env.envs[0].step = broken
    server = FakeServer()

    with pytest.raises(RuntimeError, match="motor"):
        loop.converse(ServerTransport(server))

    assert server.goodbye.exception == "RuntimeError: the motor is on fire"


def test_waiting_client_says_why(caplog):
    def rule(server, step):
        if len(server.steps) == 3:
            return [server.session.stop("finished")]
        return [server.session.busy("learn", 12.0, 3.0, "the learner"), server.answer(step)]

    caplog.set_level(logging.INFO)
    make_loop().converse(ServerTransport(FakeServer(rule)))

    notes = [r.message for r in caplog.records if "waiting for the server" in r.message]
    # The second note within five seconds is left out.
    assert notes == [
        "waiting for the server: learning since 12 s, about 3 s to go, for the learner"
    ]


def test_silent_server_is_mentioned_after_a_while(caplog):
    clock = SteppingClock(step_s=0.5)
    server = FakeServer(lambda server, step: [])
    started_s = clock.now_s
    loop = make_loop(clock=clock, wants_to_leave=lambda: clock.now_s > started_s + 30)
    caplog.set_level(logging.INFO)

    loop.converse(ServerTransport(server))

    notes = [r.message for r in caplog.records if "no answer since" in r.message]
    assert notes[0].startswith("waiting for the server: no answer since 10 s")
    assert 2 <= len(notes) <= 6


def test_summary_line_appears_every_interval_and_never_per_frame(caplog):
    caplog.set_level(logging.INFO)
    loop = make_loop(clock=SteppingClock(step_s=0.01), summary_interval_s=10.0)

    loop.converse(ServerTransport(FakeServer(stop_after(1000))))

    lines = [r.message for r in caplog.records if "frames" in r.message]
    assert 2 <= len(lines) <= 6
    assert "environment" in lines[0]
    assert "answer p50/p95/p99" in lines[0]


def test_loop_works_over_the_in_memory_transport_from_another_thread():
    import threading

    here, there = MemoryTransport.pair()
    server = FakeServer(stop_after(50))
    loop = make_loop([(3, 4)])

    def serve():
        while server.goodbye is None:
            data = there.receive(5.0)
            assert data is not None
            for reply in server.take(data):
                there.send(reply)

    thread = threading.Thread(target=serve)
    thread.start()
    outcome = loop.converse(here)
    thread.join()

    assert outcome.ending is Ending.STOPPED
    assert len(server.steps) == 50


def test_dummy_episodes_have_the_length_asked_for():
    driver = DummyDriver(DummyConfig(episode_length=4, num_actions=2), 2)
    server = FakeServer(action=1)
    hello = make_hello([driver], client_name="d", env_id="dummy-v1")

    EnvLoop([driver], hello, num_episodes=2).converse(ServerTransport(server))

    records = [record for step in server.steps for record in step.episodes]
    # Steps 0..3 with action 1: right at steps 1 and 3.
    assert [(r["row"], r["length"], r["return"]) for r in records] == [(0, 4, 2.0), (1, 4, 2.0)]


def test_time_without_a_server_counts_as_waiting_for_it():
    clock = SteppingClock(step_s=0.0)
    loop = make_loop(clock=clock)
    clock.now_s += 30.0  # nobody answered yet
    loop.converse(ServerTransport(FakeServer(stop_after(2))))
    clock.now_s += 10.0  # the connection was lost

    loop.converse(ServerTransport(FakeServer(stop_after(2))))

    assert loop.timings.totals.waiting_s == 40.0


def lost_with(last_words):
    """A transport that is gone after the second answer; the last words are there to be read."""

    def rule(server, step):
        if len(server.steps) < 2:
            return [server.answer(step)]
        transport.is_lost = True
        return [server.answer(step), last_words(server.session)]

    transport = ServerTransport(FakeServer(rule))
    return transport


def test_stop_that_came_during_an_environment_step_is_read_although_the_connection_is_gone():
    transport = lost_with(lambda session: session.stop("stopping", "Ctrl-C"))

    outcome = make_loop().converse(transport)

    assert outcome.ending is Ending.STOPPED
    assert "Ctrl-C" in outcome.message


def test_fault_that_came_during_an_environment_step_is_read_although_the_connection_is_gone():
    transport = lost_with(lambda session: session.fault("timeout", "too slow"))

    with pytest.raises(ServerFaultError, match="too slow"):
        make_loop().converse(transport)


def test_server_that_says_why_it_keeps_the_client_waiting_is_not_called_silent():
    note = WaitingNote()
    busy = Busy(phase="learn", since_s=9.0, expected_s=None, waiting_for="")
    asked_s = 100.0

    assert note.busy(busy, now_s=109.0) == "learning since 9 s"
    # Ten seconds after the request, one second after the server's word; and ten seconds after that.
    assert note.silence(115.0, asked_s) is None
    assert note.silence(119.0, asked_s) == "no answer since 19 s"
