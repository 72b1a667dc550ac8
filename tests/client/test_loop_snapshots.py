"""The loop of a client that is asked to save its environments, and to bring them back."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from royale_client.driver import SnapshotError, Turn
from royale_client.hello import make_hello
from royale_client.loop import Ending, EnvLoop
from royale_client.transport import ConnectionLostError
from royale_client.wire.grammar import State
from royale_client.wire.limits import Limits
from royale_client.wire.spaces import BoxSpec, DiscreteSpec
from tests.client.fake_server import FakeServer, ServerTransport


class TallyDriver:
    """Observation and reward of every row are the number of steps since the reset.

    Its state is that number in decimal, padded with blanks to ``size`` bytes.
    """

    observation_space = BoxSpec(0, 1000, (1,), "float32")
    action_space = DiscreteSpec(3)
    has_masks = False
    num_seats = 1
    episode_metrics = ()
    snapshot_obstacle = None

    def __init__(self, num_slots: int = 1, size: int = 4) -> None:
        self.num_slots = num_slots
        self.tally = 0
        self.seeds: list[list[int]] = []
        self.failure: Exception | None = None
        self._size = size

    def reset(self, seeds) -> Turn:
        self.seeds.append(seeds.tolist())
        self.tally = 0
        return Turn.first(self._observations(), None)

    def step(self, actions) -> Turn:
        self.tally += 1
        return self._turn()

    def snapshot(self) -> bytes:
        if self.failure is not None:
            raise self.failure
        return str(self.tally).encode().ljust(self._size)

    def restore(self, state: bytes) -> Turn:
        if self.failure is not None:
            raise self.failure
        self.tally = int(state)
        record = {"row": 0, "return": 1.0, "length": 1, "time_s": 0.0, "metrics": {}}
        return self._turn()._replace(episodes=(record,))

    def last_turn(self) -> Turn:
        nobody = np.zeros(self.num_slots, np.bool_)
        none = (self._observations()[0][:0],)
        cut = {"truncated": ~nobody, "final_observations": self._observations()}
        return self._turn()._replace(asks=nobody, observations=none, **cut)

    def _turn(self) -> Turn:
        never = np.zeros(self.num_slots, np.bool_)
        first = Turn.first(self._observations(), None)
        rewards = np.full(self.num_slots, float(self.tally))
        return first._replace(rewards=rewards, terminated=never, truncated=never)

    def _observations(self):
        return (np.full((self.num_slots, 1), self.tally, np.float32),)


def make_loop(*drivers, **options):
    drivers = drivers or (TallyDriver(),)
    hello = make_hello(drivers, client_name="tester", env_id="Tally-v0")
    return EnvLoop(drivers, hello, **options)


def until(number, otherwise=None):
    """A rule that answers, or does something else, and stops at the given request of group 0."""

    def rule(server, step):
        if server.session.state is not State.READY:
            return []
        if (step.group, step.request) == (0, number):
            return [server.session.stop("finished")]
        return [server.answer(step)] if otherwise is None else otherwise(server, step)

    return rule


def snapshot_when_waiting(number):
    """Ask for a snapshot once that request of every group is there."""

    def act(server, step):
        if step.request != number:
            return [server.answer(step)]
        groups = range(len(server.hello.groups))
        is_open = all(server.session.outstanding(group) == number for group in groups)
        return [server.session.snapshot(77)] if is_open else []

    return act


def texts(states):
    return [state.tobytes().decode().strip() for state in states]


# Snapshots


def test_states_of_all_groups_are_handed_over_and_turns_go_on():
    server = FakeServer(until(5, snapshot_when_waiting(3)))

    make_loop(TallyDriver(2), TallyDriver(3)).converse(ServerTransport(server))

    (snapshotted,) = server.snapshots
    assert (snapshotted.number, snapshotted.failure) == (77, None)
    # Two steps lie behind the third request of each group.
    assert texts(snapshotted.states) == ["2", "2"]
    rewards = [step.rewards.tolist() for step in server.steps if step.request == 4]
    assert rewards == [[3.0, 3.0], [3.0, 3.0, 3.0]]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (SnapshotError("the wheels are turning"), "group 1: the wheels are turning"),
        (RuntimeError("no disk"), "group 1: RuntimeError: no disk"),
    ],
)
def test_environment_that_cannot_be_saved_is_told_and_goes_on(error, sentence, caplog):
    server = FakeServer(until(5, snapshot_when_waiting(3)))
    drivers = TallyDriver(), TallyDriver()
    drivers[1].failure = error

    outcome = make_loop(*drivers).converse(ServerTransport(server))

    assert outcome.ending is Ending.STOPPED
    (snapshotted,) = server.snapshots
    assert (snapshotted.states, snapshotted.failure) == ((), sentence)
    assert sentence in caplog.text
    assert server.steps[-1].rewards.tolist() == [4.0]


@pytest.mark.parametrize("size", [0, 300_000])
def test_states_that_cannot_travel_are_told_and_the_client_goes_on(size):
    server = FakeServer(until(5, snapshot_when_waiting(3)))
    driver = TallyDriver(size=size)
    driver.snapshot = lambda: b"x" * size
    loop = make_loop(driver, limits=Limits(max_message_bytes=290_000))

    loop.converse(ServerTransport(server))

    (snapshotted,) = server.snapshots
    assert snapshotted.failure is not None
    assert ("empty" if size == 0 else "at most 290000") in snapshotted.failure
    assert len(server.steps) == 5


def test_client_that_has_reported_its_last_step_gives_no_snapshot():
    """The farewell of the first group is still open when the second group's request comes."""

    def act(server, step):
        if step.asks is not None and step.group == 0:
            return [server.session.snapshot(1)]
        return [server.answer(step)] if step.group == 0 else []

    server = FakeServer(act)
    loop = make_loop(TallyDriver(), TallyDriver(), wants_to_leave=lambda: len(server.steps) > 5)

    assert loop.converse(ServerTransport(server)).ending is Ending.LEFT

    (snapshotted,) = server.snapshots
    assert snapshotted.failure == "the client is leaving"


# Restore


def test_restored_client_sends_nothing_and_its_open_requests_are_answered():
    server = FakeServer(until(43), last_requests=(41, 9), states=[b"12", b"30"])
    drivers = TallyDriver(2), TallyDriver(3)

    make_loop(*drivers).converse(ServerTransport(server))

    assert server.restored.failure is None
    first = {step.group: step for step in reversed(server.steps)}
    assert [first[group].request for group in (0, 1)] == [42, 10]
    assert first[0].rewards.tolist() == [13.0, 13.0]
    assert first[1].rewards.tolist() == [31.0, 31.0, 31.0]
    assert drivers[0].seeds == drivers[1].seeds == []


def test_restored_client_sends_nothing_before_its_answer():
    server = FakeServer(last_requests=(41,), states=[b"12"])
    server.answer_all = list
    loop = make_loop(wants_to_leave=lambda: server.restored is not None)
    loop._clock = iter(np.arange(0.0, 1e6, 1.0)).__next__

    loop.converse(ServerTransport(server))

    assert server.steps == []
    assert server.goodbye is not None


def test_only_the_rows_that_asked_are_answered_after_a_restore():
    driver = TallyDriver(2)
    asks = np.array([False, True])
    seen = []
    driver.restore = lambda state: driver._turn()._replace(
        asks=asks, observations=(np.zeros((1, 1), np.float32),)
    )
    driver.step = lambda actions: (seen.append(actions[0].tolist()), driver._turn())[1]
    server = FakeServer(until(43), last_requests=(41,), states=[b"12"], asking=(1,))

    make_loop(driver).converse(ServerTransport(server))

    assert seen[0] == [1]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (SnapshotError("of other environments"), "group 1: of other environments"),
        (KeyError("wheel"), "group 1: KeyError: 'wheel'"),
    ],
)
def test_states_that_do_not_fit_are_told_and_all_groups_begin_afresh(error, sentence, caplog):
    server = FakeServer(until(44), last_requests=(41, 9), states=[b"12", b"30"])
    drivers = TallyDriver(2), TallyDriver()
    drivers[1].failure = error

    with caplog.at_level(logging.WARNING):
        make_loop(*drivers).converse(ServerTransport(server))

    assert server.restored.failure == sentence
    assert sentence in caplog.text
    # The fake server seeds slot i with 100 + i.
    assert [driver.seeds for driver in drivers] == [[[100, 101]], [[102]]]
    assert [(step.group, step.request) for step in server.steps[:2]] == [(0, 42), (1, 10)]
    assert all(step.rewards is None for step in server.steps[:2])
    assert [step.rewards[0] for step in server.steps[2:4]] == [1.0, 1.0]


def played(driver):
    """A loop whose connection was lost after the third step; it owes the second reward."""
    loop, server = make_loop(driver), FakeServer()
    transport = ServerTransport(server)

    def cut(server, step):
        transport.is_lost = step.request == 3
        return [] if transport.is_lost else [server.answer(step)]

    server._rule = cut
    with pytest.raises(ConnectionLostError):
        loop.converse(transport)
    return loop


def lose(loop, server, after):
    """Hold a conversation that is cut once ``after`` is true."""

    class Cut(ServerTransport):
        def receive(self, timeout_s):
            data = super().receive(timeout_s)
            self.is_lost = after()
            if self.is_lost:
                self._inbox.clear()
            return data

    with pytest.raises(ConnectionLostError):
        loop.converse(Cut(server))


def test_without_states_the_client_forgets_what_it_owed_and_begins_afresh():
    driver = TallyDriver()
    loop = played(driver)
    server = FakeServer(until(44), last_requests=(41,), states=[])

    loop.converse(ServerTransport(server))

    assert server.restored.failure is None
    assert driver.seeds == [[100], [100]]
    assert [step.request for step in server.steps] == [42, 43, 44]
    assert server.steps[0].rewards is None
    assert server.steps[0].observations[0].tolist() == [[0.0]]


def test_connection_lost_before_the_restore_keeps_what_was_owed():
    loop = played(TallyDriver())
    promising = FakeServer(last_requests=(41,), states=[b"12"])
    lose(loop, promising, after=lambda: promising.hello is not None)
    last = FakeServer(until(2))

    loop.converse(ServerTransport(last))

    assert promising.steps == []
    assert promising.restored is None
    assert last.steps[0].rewards.tolist() == [2.0]


def test_connection_lost_after_the_restore_owes_what_was_restored():
    loop = played(TallyDriver())
    restoring = FakeServer(last_requests=(41,), states=[b"12"])
    restoring.answer_all = list
    lose(loop, restoring, after=lambda: restoring.restored is not None)
    last = FakeServer(until(2))

    loop.converse(ServerTransport(last))

    assert restoring.steps == []
    owed = last.steps[0]
    assert (owed.request, owed.rewards.tolist(), owed.episodes) == (1, [12.0], ())


def test_connection_lost_while_a_failure_is_told_begins_afresh_later():
    driver = TallyDriver()
    loop = played(driver)
    driver.failure = SnapshotError("of other environments")
    server = FakeServer(last_requests=(41,), states=[b"12"])

    class Cut(ServerTransport):
        def send(self, data):
            self.is_lost = self.server.session.state is State.RESTORING
            super().send(data)

    with pytest.raises(ConnectionLostError):
        loop.converse(Cut(server))
    last = FakeServer(until(2))
    loop.converse(ServerTransport(last))

    assert server.restored is None
    assert driver.seeds == [[100], [100]]
    assert last.steps[0].rewards is None


def test_restored_client_can_be_saved_again_at_once():
    server = FakeServer(until(43), last_requests=(41,), states=[b"12"])
    answer_all = server.answer_all

    def ask():
        server.answer_all = answer_all
        return [server.session.snapshot(3)]

    server.answer_all = ask

    make_loop().converse(ServerTransport(server))

    assert texts(server.snapshots[0].states) == ["12"]
    assert server.steps[0].rewards.tolist() == [13.0]


def test_client_that_is_told_to_leave_does_not_wait_for_the_restore():
    server = FakeServer(last_requests=(41,), states=[b"12"])
    server.restore = list
    loop = make_loop(wants_to_leave=lambda: server.hello is not None)

    outcome = loop.converse(ServerTransport(server))

    assert outcome.ending is Ending.LEFT
    assert server.steps == []
    assert server.goodbye is not None


def test_environment_that_fails_to_begin_afresh_is_told_as_any_failure():
    driver = TallyDriver()

    def broken(seeds):
        raise RuntimeError("the motor is on fire")

    driver.reset = broken
    server = FakeServer(last_requests=(41,), states=[])

    with pytest.raises(RuntimeError, match="motor"):
        make_loop(driver).converse(ServerTransport(server))

    assert server.goodbye.exception == "RuntimeError: the motor is on fire"
