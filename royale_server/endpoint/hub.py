"""Joins connections, sessions, scheduler and model: the data path of the server.

Runs on the I/O thread. A message goes in, `advance` asks the scheduler what is due, commands go
to the model worker, answers go out. Never blocks, never computes a network, never touches a disk;
every failure of one client ends that client's session and nothing else.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np

from algorithms.noise import slot_key
from royale_client.wire.errors import ProtocolError
from royale_client.wire.grammar import State
from royale_client.wire.limits import Limits
from royale_client.wire.messages import Hello, Log, Step
from royale_server.config import ServerConfig
from royale_server.endpoint.admission import Admission
from royale_server.endpoint.connection import NOTES_PER_TICK, Connection, Peer
from royale_server.endpoint.episodes import EpisodeBook
from royale_server.endpoint.finiteness import NonFinite, find_nonfinite
from royale_server.endpoint.session import (
    Event,
    GoodbyeReceived,
    HelloReceived,
    LogReceived,
    ServerSession,
    StepReceived,
)
from royale_server.model.engine import Engine, Inferred
from royale_server.model.worker import ModelWorker
from royale_server.scheduler import (
    Answer,
    EndRun,
    EndSession,
    Group,
    Infer,
    Learn,
    Member,
    Notice,
    Request,
    Rested,
    Role,
    Scheduler,
)

logger = logging.getLogger(__name__)

BUSY_AFTER_S = 2.0
"""A client that waits longer than this is told why."""
BUSY_EVERY_S = 5.0
WAITING_LINE_EVERY_S = 5.0
HELLO_TIMEOUT_S = 4.0
WARN_EVERY_S = 30.0
"""A client whose numbers are not finite is shown to a person this often."""


class Listener(Protocol):
    """What the run does when the hub has something for it."""

    def client_joined(self, peer: Peer, hello: Hello) -> None:
        """A session was welcomed."""

    def client_left(self, peer: Peer, why: str) -> None:
        """A welcomed session is gone."""

    def episodes_ended(self, rows: list[dict[str, Any]], *, evaluation: bool) -> None:
        """Episodes ended; rows for the record."""

    def inferred(self, result: Inferred) -> None:
        """A batch was answered."""

    def learn_due(self, command: Learn) -> None:
        """The scheduler wants a learn step; answer with `Hub.learned`."""

    def event(self, kind: str, message: str, **facts: object) -> None:
        """Something for the events of the run."""

    def queue_waiting(self, groups: list[Group], since: float) -> None:
        """Nothing could be inferred for a while: these groups owe a request."""

    def must_stop(self, message: str) -> None:
        """The run cannot go on by its own rules."""

    def failed(self, error: BaseException) -> None:
        """The model thread raised: fatal."""


class Hub:
    """All clients of one run.

    Args:
        config: Settings of the server.
        limits: Limits on messages.
        admission: Decides on hellos.
        model: Runs the engine's jobs.
        listener: The run.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        *,
        config: ServerConfig,
        limits: Limits,
        admission: Admission,
        model: ModelWorker,
        listener: Listener,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._limits = limits
        self._admission = admission
        self._model = model
        self._listener = listener
        self._clock = clock
        self._peers: dict[Peer, None] = {}
        self._lobby: list[Peer] = []
        self._by_member: dict[Member, Peer] = {}
        self._episodes = EpisodeBook()
        self._next_episode: Counter[str] = Counter()
        self._is_stopped = False
        self._engine: Engine | None = None
        self._scheduler: Scheduler | None = None
        self._last_dispatch_at = clock()
        self._waiting_said_at = 0.0
        self._learning_since = 0.0
        self.expected_learn_s: float | None = None
        """How long the next learn step is likely to take, for `busy`."""
        self.on_wake: Callable[[float], None] = lambda _at: None
        """Called with the time at which `advance` is due if nothing happens before."""
        self.nonfinite_frames: Counter[str] = Counter()
        """Rows with NaN or infinities, by client."""

    # --- what others may look at -------------------------------------------------------

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler; there is one as soon as the engine is built."""
        assert self._scheduler is not None, "the engine is not built yet"
        return self._scheduler

    @property
    def is_started(self) -> bool:
        """Whether the engine is built and clients are welcomed."""
        return self._scheduler is not None

    @property
    def peers(self) -> Iterable[Peer]:
        """Everybody connected, welcomed or not."""
        return self._peers

    @property
    def num_connections(self) -> int:
        """Connections open, welcomed or not."""
        return len(self._peers)

    @property
    def num_members(self) -> int:
        """Sessions taking part."""
        return len(self._by_member)

    # --- connections --------------------------------------------------------------------

    def opened(self, connection: Connection) -> Peer:
        """Take a new connection; its first message must be a hello."""
        session = ServerSession(self._limits, self._admission.spaces)
        peer = Peer(connection, session, self._clock())
        self._peers[peer] = None
        return peer

    def received(self, peer: Peer, data: bytes) -> None:
        """Take one binary message of a client."""
        if peer.is_closed:
            return
        try:
            for event in self._read(peer, data):
                self._handle(peer, event)
        except ProtocolError as error:
            self._fault(peer, error.code, error.sentence)
        self.advance()

    def _read(self, peer: Peer, data: bytes) -> list[Event]:
        """Decode and check; whatever goes wrong here concerns this client alone."""
        try:
            return peer.session.receive(data)
        except ProtocolError:
            raise
        except Exception:
            logger.exception("client %s: its message could not be read", peer.label)
            self._fault(peer, "internal", "the server failed to read the message")
            return []

    def refuse_text(self, peer: Peer) -> None:
        """A client sent a text frame; the protocol has none."""
        self._fault(peer, "malformed", "got a text frame; every message is one binary frame")
        self.advance()

    def closed(self, peer: Peer, why: str) -> None:
        """A connection is gone, whoever ended it."""
        if peer.is_closed:
            why = "was told to leave"
        peer.is_closed = True
        self._forget(peer, why)
        self.advance()

    def attach(self, engine: Engine, scheduler: Scheduler) -> None:
        """Begin: the engine is built, clients in the lobby are welcomed."""
        self._engine = engine
        self._scheduler = scheduler
        self._last_dispatch_at = self._clock()
        self._admit_lobby()
        self.advance()

    def refuse_lobby(self, message: str) -> None:
        """The engine could not be built for these clients' spaces."""
        for peer in list(self._lobby):
            self._fault(peer, "refused", message)

    def next_episodes(self) -> dict[str, int]:
        """By client name, an episode ordinal that none of its slots has reached.

        Goes into the checkpoint: a client of that name must not draw its old noise again.
        """
        living = {p.name: self.scheduler.next_episode(m) for m, p in self._by_member.items()}
        return {**self._next_episode, **living}

    def expect_episodes(self, next_episodes: Mapping[str, int]) -> None:
        """Continue the episode ordinals of a resumed run."""
        self._next_episode.update(next_episodes)

    def learned(self, *, version: int, target: int | None) -> None:
        """A learn step is done; collecting goes on."""
        self.scheduler.learned(self._clock(), version=version, target=target)
        self._last_dispatch_at = self._clock()
        self.advance()

    def rest(self) -> None:
        """Dispatch nothing more: the run is about to be saved and ended."""
        if self._scheduler is not None:
            self._scheduler.rest(self._clock())

    def stop(self, reason: str, message: str) -> None:
        """Tell every client why the server goes, and close. Nothing is scheduled any more."""
        self._is_stopped = True
        for peer in list(self._peers):
            if peer.session.state in (State.GREETED, State.READY):
                self._send(peer, partial(peer.session.stop, reason, message))
            self._close(peer, reason)

    def fail(self, error: BaseException) -> None:
        """Pass on an error that the run cannot survive."""
        self._listener.failed(error)

    def tick(self) -> None:
        """Do what is due by time alone. Call it about ten times a second."""
        now = self._clock()
        for peer in [p for p in self._peers if p.session.state is State.OPENED]:
            if now - peer.opened_at >= HELLO_TIMEOUT_S:
                text = f"no hello within {HELLO_TIMEOUT_S:g} s; is this a royale client?"
                self._fault(peer, "timeout", text)
        self.advance()
        for peer in list(self._peers):
            peer.notes_left = NOTES_PER_TICK
            self._say_busy(peer, now)
        if self._scheduler is not None:
            self._report_waiting(now)

    # --- messages -----------------------------------------------------------------------

    def _handle(self, peer: Peer, event: Event) -> None:
        match event:
            case StepReceived(step=step):
                self._step(peer, step)
            case HelloReceived(hello=hello):
                self._hello(peer, hello)
            case GoodbyeReceived(goodbye=goodbye):
                self._forget(peer, f"goodbye: {goodbye.exception or goodbye.reason}")
                self._close(peer, "goodbye")
            case LogReceived(log=log):
                self._take_log(peer, log)

    def _hello(self, peer: Peer, hello: Hello) -> None:
        self._admission.check(hello, self.num_members + len(self._lobby), self._scheduler)
        peer.name = self._admission.unique_name(hello.client_name, (p.name for p in self._peers))
        self._lobby.append(peer)
        self._admission.first_spaces(hello)
        difference = self._admission.environment_difference(hello)
        if difference is not None:
            logger.warning("client %s: %s", peer.label, difference)
            self._listener.event("other_environment", f"client {peer.label}: {difference}")
        if self._scheduler is not None:
            self._admit_lobby()

    def _step(self, peer: Peer, step: Step) -> None:
        member = peer.member
        assert member is not None, "the session lets no step through before the welcome"
        group = member.groups[step.group]
        asks = peer.everyone[group] if step.asks is None else step.asks
        if step.terminated is None or step.truncated is None:
            ended = peer.nobody[group]
        else:
            ended = step.terminated | step.truncated
        request = Request(
            number=step.request,
            asks=asks,
            ended=ended,
            has_feedback=step.rewards is not None,
            payload=step,
        )
        bad = find_nonfinite(step, asks, ended)
        if bad is not None:
            self._note_nonfinite(peer, step, bad)
            request.invalid_feedback = bad.feedback
            request.invalid_observation = bad.observation
        self.scheduler.request(group, request, self._clock())
        if step.episodes:
            rows = self._episodes.ended(group, step, self.scheduler.ledger)
            self._listener.episodes_ended(rows, evaluation=member.role is Role.EVAL)

    def _take_log(self, peer: Peer, log: Log) -> None:
        """Pass on what a client logs, as far as its share of the log allows."""
        taken = log.records[: peer.notes_left]
        peer.notes_left -= len(taken)
        dropped = log.dropped + len(log.records) - len(taken)
        for record in taken:
            self._listener.event("client_log", f"client {peer.label}", record=record)
        if dropped:
            text = f"client {peer.label}: {dropped} log records dropped"
            self._listener.event("client_log", text, dropped=dropped)

    def _note_nonfinite(self, peer: Peer, step: Step, bad: NonFinite) -> None:
        rows = bad.rows()
        self.nonfinite_frames[peer.name] += len(rows)
        if self._config.on_nonfinite == "halt":
            self._listener.must_stop(
                f"client {peer.label} sent a NaN or infinity (rows {rows[:8]})"
            )
        if peer.notes_left <= 0:
            return  # counted all the same; the client was told often enough
        peer.notes_left -= 1
        text = (
            f"client {peer.label}: rows {rows[:8]} of group {step.group}, request {step.request}, "
            "hold a NaN, an infinity or a number beyond 1e15; their frames are discarded and the "
            "rest of those episodes is not trained on; check the environment's observations and "
            "rewards"
        )
        total = self.nonfinite_frames[peer.name]
        if self._clock() >= peer.warn_again_at:
            peer.warn_again_at = self._clock() + WARN_EVERY_S
            logger.warning("%s (%d rows so far)", text, total)
        self._listener.event("nonfinite", text, client=peer.name, rows=rows, total=total)
        self._send(peer, partial(peer.session.busy, "invalid", 0.0, None, text))

    # --- admission ----------------------------------------------------------------------

    def _admit_lobby(self) -> None:
        """Welcome who waits: at once, or by name once a deterministic run is complete."""
        waiting = [peer for peer in self._lobby if not peer.is_closed]
        if self._config.deterministic and self.scheduler.accepts_train_sessions:
            trainers = sorted(filter(_is_trainer, waiting), key=lambda peer: peer.name)
            waiting = [peer for peer in waiting if not _is_trainer(peer)]
            if len(trainers) >= self._config.min_clients:
                waiting = trainers + waiting  # those beyond the number are refused below
        for peer in waiting:
            self._lobby.remove(peer)
            hello = peer.session.hello
            assert hello is not None, "only who said hello is in the lobby"
            try:
                self._admission.check(hello, self.num_members, self._scheduler)
                self._welcome(peer, hello)
            except ProtocolError as error:
                self._fault(peer, error.code, error.sentence)

    def _welcome(self, peer: Peer, hello: Hello) -> None:
        first_episode = self._next_episode[peer.name]
        member = self.scheduler.join(
            peer.name, Role(hello.role), hello.groups, self._clock(), first_episode=first_episode
        )
        peer.member = member
        self._by_member[member] = peer
        for group in member.groups:
            peer.everyone[group] = np.ones(group.size, np.bool_)
            peer.nobody[group] = np.zeros(group.size, np.bool_)
        self._episodes.add_slots(member.size)
        keys = [slot_key(self._config.seed, peer.name, slot) for slot in range(member.size)]
        assert self._engine is not None
        add_slots = partial(self._engine.add_slots, np.array(keys, np.uint64))
        self._model.submit(add_slots, lambda _: None, self._listener.failed)
        welcome = self._admission.welcome(
            hello,
            name=peer.name,
            first_slot=member.groups[0].start,
            first_episode=first_episode,
            policy_version=self.scheduler.ledger.version,
        )
        self._send(peer, partial(peer.session.welcome, welcome))
        self._listener.client_joined(peer, hello)

    # --- commands -----------------------------------------------------------------------

    def advance(self) -> None:
        """Carry out everything the scheduler finds due."""
        if self._scheduler is None or self._is_stopped:
            return
        for command in self._scheduler.advance(self._clock()):
            match command:
                case Infer():
                    self._infer(command)
                case Answer(group=group, request=request):
                    self._answer_nobody(group, request)
                case Learn():
                    self._learning_since = self._clock()
                    self._listener.learn_due(command)
                case EndSession(member=member, code=code, message=message):
                    self._fault(self._by_member[member], code, message)
                case EndRun(message=message):
                    self._listener.must_stop(message)
                case Notice(kind=kind, message=message):
                    self._listener.event(kind, message)
                case Rested():
                    self._listener.event("rested", "the run is at rest")
        if self._scheduler.wake_at is not None:
            self.on_wake(self._scheduler.wake_at)

    def _infer(self, batch: Infer) -> None:
        assert self._engine is not None
        self._last_dispatch_at = self._clock()
        self._episodes.acted(batch.items, self.scheduler.ledger.version)
        self._model.submit(
            partial(self._engine.infer, batch), self._inferred, self._listener.failed
        )

    def _inferred(self, result: Inferred) -> None:
        for item, actions in zip(result.batch.items, result.actions, strict=True):
            peer = self._by_member.get(item.group.member)
            if peer is not None:
                answer = partial(
                    peer.session.action,
                    item.group.index,
                    item.request.number,
                    result.policy_version,
                    actions,
                )
                self._send(peer, answer)
        self.scheduler.inferred(self._clock())
        self._listener.inferred(result)
        self.advance()

    def _answer_nobody(self, group: Group, request: Request) -> None:
        peer = self._by_member[group.member]
        none = self._admission.no_actions()
        version = self.scheduler.ledger.version
        answer = partial(peer.session.action, group.index, request.number, version, none)
        self._send(peer, answer)

    # --- saying why -----------------------------------------------------------------------

    def _say_busy(self, peer: Peer, now: float) -> None:
        waits_since = self._waits_since(peer)
        if waits_since is None or now - waits_since < BUSY_AFTER_S:
            return
        if now - peer.busy_said_at < BUSY_EVERY_S:
            return
        peer.busy_said_at = now
        if self._scheduler is None or peer in self._lobby:
            text = f"{self.missing_clients()} more clients"
            busy = partial(peer.session.busy, "start", now - waits_since, None, text)
        elif self._scheduler.collection.learning:
            since = now - self._learning_since
            busy = partial(peer.session.busy, "learn", since, self.expected_learn_s, "")
        else:
            since = now - waits_since
            owing = ", ".join(_owed(group) for group in self._scheduler.awaited_groups()[:4])
            text = owing or f"{self.missing_clients()} more clients"
            busy = partial(peer.session.busy, "collect", since, None, text)
        self._send(peer, busy)

    def _waits_since(self, peer: Peer) -> float | None:
        """Since when the client waits for a welcome or an answer; None if for neither."""
        if peer in self._lobby:
            return peer.opened_at
        if peer.member is None:
            return None
        waits = [g.waiting.received_at for g in peer.member.groups if g.waiting is not None]
        return min(waits) if waits else None

    def missing_clients(self) -> int:
        """Train clients still wanted before the first round."""
        if self._scheduler is not None and self._scheduler.dispatcher.started:
            return 0
        joined = sum(member.role is Role.TRAIN for member in self._by_member)
        joined += sum(_is_trainer(peer) for peer in self._lobby)
        return max(0, self._config.min_clients - joined)

    def _report_waiting(self, now: float) -> None:
        scheduler = self.scheduler
        since = self._last_dispatch_at
        if scheduler.collection.learning or now - since < WAITING_LINE_EVERY_S:
            return
        if now - self._waiting_said_at < WAITING_LINE_EVERY_S or not self._by_member:
            return
        self._waiting_said_at = now
        groups = scheduler.awaited_groups()
        if groups or self.missing_clients():
            self._listener.queue_waiting(groups, since)

    # --- ends -------------------------------------------------------------------------------

    def _send(self, peer: Peer, message: Callable[[], bytes]) -> None:
        if not peer.is_closed:
            peer.connection.send(message())

    def _fault(self, peer: Peer, code: str, message: str) -> None:
        logger.warning("client %s: %s (%s)", peer.label, message, code)
        self._listener.event("fault", f"client {peer.label}: {message}", code=code)
        self._send(peer, partial(peer.session.fault, code, message))
        self._close(peer, "fault")
        self._forget(peer, f"fault: {message}")

    def _close(self, peer: Peer, reason: str) -> None:
        if not peer.is_closed:
            peer.is_closed = True
            peer.connection.close(reason)

    def _forget(self, peer: Peer, why: str) -> None:
        if peer not in self._peers:
            return
        del self._peers[peer]
        if peer in self._lobby:
            self._lobby.remove(peer)
        member = peer.member
        if member is None:
            return
        del self._by_member[member]
        self._next_episode[peer.name] = self.scheduler.next_episode(member)
        if not self._is_stopped:
            self.scheduler.leave(member, self._clock())
        self._listener.client_left(peer, why)


def _is_trainer(peer: Peer) -> bool:
    return peer.session.hello is not None and Role(peer.session.hello.role) is Role.TRAIN


def _owed(group: Group) -> str:
    return f"a request of {group.member.name}/{group.index}"
