"""The loop of a client: drivers, session and transport joined in one thread.

One or two groups are in flight at once: while one waits for its actions, the other is stepped. The
loop outlives a connection: what its groups owe is kept and sent again in the next conversation, so
no environment is reset because a cable was pulled. It depends on nothing but the Transport protocol
and never connects by itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import numpy.typing as npt

from royale_client.driver import DiscountedDriver, EnvDriver, SeatedDriver, Turn
from royale_client.probing import ProbingFailedError, ask
from royale_client.saving import SavingFailedError, bring_back, num_asking, save
from royale_client.session import (
    Answered,
    ClientSession,
    Event,
    Faulted,
    ProbeAsked,
    RestoreAsked,
    ServerBusy,
    SnapshotAsked,
    Stopped,
    Welcomed,
)
from royale_client.timing import Timings, WaitingNote
from royale_client.transport import ConnectionLostError, Transport
from royale_client.wire.errors import FAULT_CODES, ConfigError, ProtocolError, RoyaleError
from royale_client.wire.grammar import CLOSE_CODES, Side, State, may_send
from royale_client.wire.limits import Limits
from royale_client.wire.messages import Fault, Goodbye, Hello, Welcome
from royale_client.wire.notices import STOP_REASONS
from royale_client.wire.seating import SeatAssignment, read_assignments

logger = logging.getLogger(__name__)

_POLL_S = 0.25
_LEAVE_WAIT_S = 5.0


class ServerFaultError(RoyaleError):
    """The server ended the session with a fault.

    Args:
        fault: What it said.
    """

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"the server ended the session ({fault.code}): {fault.message}")
        self.code = fault.code
        self.retry = FAULT_CODES[fault.code].retry


class Ending(Enum):
    """Why a conversation ended in order."""

    FINISHED = "finished"
    """The wanted number of episodes is complete."""
    STOPPED = "stopped"
    """The server said stop."""
    LEFT = "left"
    """The person at the client asked to leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a conversation ended."""

    ending: Ending
    message: str
    """A sentence for the log."""


class EnvLoop:
    """Steps the drivers of a client with the actions a server sends.

    Args:
        drivers: One per group.
        hello: How the client introduces itself; see `make_hello`.
        num_episodes: Finished episodes after which the client leaves; None goes on for ever.
        seed: Slot i is seeded with ``seed + i``; None takes the server's seeds.
        wants_to_leave: Asked often; True makes the client send its last step and say goodbye.
        limits: What to refuse from the server for its size.
        clock: Monotonic time in seconds.
        summary_interval_s: Seconds between two summary lines.
    """

    def __init__(
        self,
        drivers: Sequence[EnvDriver],
        hello: Hello,
        *,
        num_episodes: int | None = None,
        seed: int | None = None,
        wants_to_leave: Callable[[], bool] = lambda: False,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
        summary_interval_s: float = 30.0,
    ) -> None:
        self.hello = hello
        self.timings = Timings(clock(), summary_interval_s)
        self._drivers = tuple(drivers)
        self._num_episodes = num_episodes
        self._seed = seed
        self._wants_to_leave = wants_to_leave
        self._limits = limits or Limits()
        self._clock = clock
        self._owed: list[Turn | None] = [None] * len(self._drivers)
        self._session: ClientSession | None = None
        self._idle_since_s = clock()

    def is_done(self) -> bool:
        """Say whether the wanted number of episodes is complete."""
        wanted = self._num_episodes
        return wanted is not None and self.timings.totals.episodes >= wanted

    def forget_episodes(self) -> None:
        """Make the next conversation begin with fresh episodes, as for another run."""
        self._owed = [None] * len(self._drivers)
        self._session = None

    def converse(self, transport: Transport) -> Outcome:
        """Hold one conversation, from hello to goodbye, and close the transport.

        Returns:
            How it ended, if it ended in order.

        Raises:
            ConnectionLostError: If the connection ended; what the groups owe is kept.
            ServerFaultError: If the server refused something.
            ProtocolError: If the server broke the protocol, or an environment its declaration.
            Exception: Whatever an environment raises; the server was told.
        """
        # Until now there was nobody to talk to.
        self.timings.add_wait(self._clock() - self._idle_since_s)
        conversation = _Conversation(self, transport)
        try:
            return conversation.run()
        except ConnectionLostError as error:
            outcome = conversation.last_words() or _stopped_by_close(error)
            if outcome is None:
                raise
            return outcome
        except BaseException as error:
            conversation.excuse(error)
            raise
        finally:
            transport.close(CLOSE_CODES["goodbye"], "")
            self._idle_since_s = self._clock()


class _Conversation:
    """One session of a loop over one transport."""

    def __init__(self, loop: EnvLoop, transport: Transport) -> None:
        self._loop = loop
        self._transport = transport
        self._session = ClientSession(loop.hello, loop._limits, loop._session)
        self._sent_s = [0.0] * len(loop._drivers)
        self._received_s = 0.0
        self._has_left = [False] * len(loop._drivers)
        self._leave_by_s: float | None = None
        self._note = WaitingNote()
        self._assignments: tuple[SeatAssignment, ...] = ()

    def run(self) -> Outcome:
        """Talk until somebody ends it."""
        self._transport.send(self._session.start())
        while True:
            for event in self._receive():
                outcome = self._handle(event)
                if outcome is not None:
                    return outcome
            if self._leave_by_s is not None and self._may_go():
                return self._goodbye()

    def last_words(self) -> Outcome | None:
        """Read what the server sent before the connection ended; it may say why it did.

        A server that stops does not wait until an environment has finished its step: what that step
        brings can no longer be sent, while the reason has been there for long.
        """
        try:
            while (data := self._transport.receive(0.0)) is not None:
                for event in self._session.receive(data):
                    if isinstance(event, Stopped | Faulted):
                        return self._handle(event)
                    if isinstance(event, Answered):
                        self._session.unread(event)
        except ConnectionLostError:
            return None
        return None

    def excuse(self, error: BaseException) -> None:
        """Tell the server why this client vanishes, if it still listens."""
        if not may_send(Side.CLIENT, self._session.state, Goodbye.TYPE):
            return
        self._say_goodbye("the client failed", f"{type(error).__name__}: {error}")

    def _say_goodbye(self, reason: str, exception: str | None = None) -> None:
        """Say goodbye; that the server is gone already changes nothing."""
        try:
            self._transport.send(self._session.goodbye(reason, exception))
        except ConnectionLostError as lost:
            logger.debug("no goodbye: %s", lost)

    def _receive(self) -> list[Event]:
        """Wait a moment for the server; meanwhile say why nothing happens, now and then."""
        clock, timings = self._loop._clock, self._loop.timings
        started_s = clock()
        data = self._transport.receive(_POLL_S)
        now_s = clock()
        timings.add_wait(now_s - started_s)
        if timings.is_due(now_s):
            logger.info("%s", timings.summary(now_s))
        if data is not None:
            self._received_s = now_s
            return self._session.receive(data)
        self._say(self._note.silence(now_s, min(self._sent_s)))
        self._is_leaving()
        return []

    @staticmethod
    def _say(note: str | None) -> None:
        if note is not None:
            logger.info("waiting for the server: %s", note)

    def _handle(self, event: Event) -> Outcome | None:
        match event:
            case Answered():
                self._act(event)
            case Welcomed(welcome=welcome):
                self._begin(welcome)
            case ProbeAsked(number=number, question=question):
                self._probe(number, question)
            case SnapshotAsked(number=number):
                self._snapshot(number)
            case RestoreAsked():
                self._restore(event)
            case ServerBusy(busy=busy):
                self._say(self._note.busy(busy, self._loop._clock()))
            case Stopped(stop=stop):
                self._say_goodbye("the server stopped")
                message = f"the server stopped ({stop.reason}): {stop.message}".rstrip(": ")
                return Outcome(ending=Ending.STOPPED, message=message)
            case Faulted(fault=fault):
                raise ServerFaultError(fault)
        return None

    def _begin(self, welcome: Welcome) -> None:
        """Take up turns, unless the server will first say where from."""
        loop = self._loop
        logger.info(
            "joined run %s as %s: %d slots from %d on, policy version %d",
            welcome.run_name,
            loop.hello.client_name,
            loop.hello.num_slots,
            welcome.first_slot,
            welcome.policy_version,
        )
        self._assignments = read_assignments(welcome.assignments, loop.hello.num_slots)
        if self._assignments:
            if loop.hello.role == "eval" and loop._seed is not None:
                raise ConfigError(
                    f"--seed {loop._seed}: rounds of evaluation play every deal from both sides, "
                    "by the server's seeds; leave the flag out"
                )
            # Whoever plays the episodes under way was told by another session.
            loop.forget_episodes()
        loop._session = self._session
        if welcome.continues:
            self._ask_again()
        elif not welcome.restores:
            self._send_owed(welcome)

    def _ask_again(self) -> None:
        """Send the requests that have no answer once more: they, or the answers, may be lost."""
        for group, owed in enumerate(self._loop._owed):
            if self._session.outstanding(group) is not None:
                self._send(group, owed)

    def _send_owed(self, welcome: Welcome) -> None:
        """Send what every group owes; groups that owe nothing begin fresh episodes."""
        loop = self._loop
        for group, driver in enumerate(loop._drivers):
            owed = loop._owed[group]
            if owed is None:
                self._assign(group, self._assignments, afresh=True)
                owed = driver.reset(_seeds(welcome, loop._seed, self._slots_of(group)))
            loop._owed[group] = owed = owed.already_reported()
            self._send(group, owed)

    def _slots_of(self, group: int) -> slice:
        """The slots of a group, as numbered within the client."""
        first = sum(driver.num_slots for driver in self._loop._drivers[:group])
        return slice(first, first + self._loop._drivers[group].num_slots)

    def _assign(
        self, group: int, assignments: Sequence[SeatAssignment], *, afresh: bool = False
    ) -> None:
        """Hand a group's driver those of the assignments that are about its slots."""
        driver = self._loop._drivers[group]
        if not (assignments and isinstance(driver, SeatedDriver)):
            return
        slots = self._slots_of(group)
        own = [a for a in assignments if slots.start <= a.slot < slots.stop]
        driver.assign([replace(a, slot=a.slot - slots.start) for a in own], afresh=afresh)

    def _probe(self, number: int, question: str) -> None:
        """Let the environments of the first group answer; all groups are of one kind."""
        session = self._session
        try:
            data = session.probed(number, ask(self._loop._drivers[0], question))
        except (ProbingFailedError, ProtocolError) as error:
            logger.warning("no answer to what the server asks (%s): %s", question, error)
            data = session.probed(number, failure=str(error))
        self._transport.send(data)

    def _snapshot(self, number: int) -> None:
        """Hand the server the states of all environments, or say why it gets none."""
        session = self._session
        try:
            if any(self._has_left):
                raise SavingFailedError("the client is leaving")
            data = session.snapshotted(number, save(self._loop._drivers))
        except (SavingFailedError, ProtocolError) as error:
            logger.warning("no snapshot for the server: %s", error)
            data = session.snapshotted(number, failure=str(error))
        self._transport.send(data)

    def _restore(self, event: RestoreAsked) -> None:
        """Go back to the states the server hands out, or begin fresh episodes."""
        loop, session = self._loop, self._session
        assert session.welcome is not None
        failure = None
        # From the first driver on, what was owed belongs to environments that are no more.
        loop.forget_episodes()
        if event.states:
            try:
                turns = bring_back(loop._drivers, event.states)
            except SavingFailedError as error:
                failure = str(error)
                logger.warning("not restored, fresh episodes begin: %s", error)
            else:
                self._go_on(turns)
                return
        self._transport.send(session.restored(failure=failure))
        self._send_owed(session.welcome)

    def _go_on(self, turns: list[Turn]) -> None:
        """Owe restored turns; the server has them and will answer."""
        loop = self._loop
        loop._owed = [turn.already_reported() for turn in turns]
        self._sent_s = [loop._clock()] * len(turns)
        slots = [driver.num_slots for driver in loop._drivers]
        asking = [num_asking(turn, n) for turn, n in zip(turns, slots, strict=True)]
        self._transport.send(self._session.restored(asking=asking))
        logger.info("environments restored; the episodes go on")

    def _act(self, answer: Answered) -> None:
        """Carry out the actions of one group and send what came of it."""
        loop, group = self._loop, answer.group
        loop.timings.answers.add(self._received_s - self._sent_s[group])
        if self._has_left[group]:
            return
        if answer.assignments:
            num_slots = loop.hello.num_slots
            self._assign(group, read_assignments(answer.assignments, num_slots))
        driver = loop._drivers[group]
        if answer.discount is not None and isinstance(driver, DiscountedDriver):
            driver.discount(answer.discount)
        turn = driver.step(answer.actions)
        loop._owed[group] = turn
        loop.timings.add_turn(frames=turn.frames, env_s=turn.env_time_s)
        for episode in turn.episodes:
            loop.timings.add_episode(episode["return"])
        if self._is_leaving():
            self._send(group, loop._drivers[group].last_turn())
            self._has_left[group] = True
        else:
            self._send(group, turn)

    def _send(self, group: int, turn: Turn | None) -> None:
        if turn is None:
            return
        self._sent_s[group] = self._loop._clock()
        send_turn(self._session, self._transport, group, turn)

    def _is_leaving(self) -> bool:
        """Decide, once and for all, whether it is time to go.

        Asked after every step, which may have been the last wanted one, and while nothing comes.
        """
        if self._leave_by_s is None and (self._loop.is_done() or self._loop._wants_to_leave()):
            self._leave_by_s = self._loop._clock() + _LEAVE_WAIT_S
        return self._leave_by_s is not None

    def _may_go(self) -> bool:
        """Say whether every group has reported its last step, or has none or waited long enough.

        A request without an answer holds nothing at the server: leaving it there loses no frame.
        """
        assert self._leave_by_s is not None
        is_ready = self._session.state is State.READY
        if not is_ready or all(self._has_left):
            return True
        return self._loop._clock() >= self._leave_by_s

    def _goodbye(self) -> Outcome:
        is_done = self._loop.is_done()
        reason = "all episodes are complete" if is_done else "the client was asked to leave"
        self._say_goodbye(reason)
        ending = Ending.FINISHED if is_done else Ending.LEFT
        return Outcome(ending=ending, message=reason)


def _seeds(welcome: Welcome, own_seed: int | None, slots: slice) -> npt.NDArray[np.uint64]:
    """Return the seeds of one group's slots: the server's, or the user's counted up by slot."""
    if own_seed is None:
        return welcome.seeds[slots]
    return np.arange(own_seed + slots.start, own_seed + slots.stop, dtype=np.uint64)


def _stopped_by_close(error: ConnectionLostError) -> Outcome | None:
    """Read the close reason of a server that stopped: all that is left after a long sleep."""
    if error.reason not in STOP_REASONS or error.code != CLOSE_CODES[error.reason]:
        return None
    return Outcome(ending=Ending.STOPPED, message=f"the server stopped ({error.reason})")


def send_turn(session: ClientSession, transport: Transport, group: int, turn: Turn) -> None:
    """Send a group's turn as its next request.

    Raises:
        ProtocolError: If the turn does not fit the hello, or it is not this group's time.
        ConnectionLostError: If the connection is gone.
    """
    data = session.step(
        group,
        asks=turn.asks,
        observations=turn.observations,
        masks=turn.masks,
        rewards=turn.rewards,
        terminated=turn.terminated,
        truncated=turn.truncated,
        final_observations=turn.final_observations,
        episodes=turn.episodes,
        env_time_s=turn.env_time_s,
    )
    transport.send(data)
