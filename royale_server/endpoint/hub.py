"""Joins connections, sessions, scheduler and model: the data path of the server.

Runs on the I/O thread. A message goes in, `advance` asks the scheduler what is due, commands go
to the model worker, answers go out. Never blocks, never computes a network, never touches a disk;
every failure of one client ends that client's session and nothing else.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from algorithms.noise import slot_key
from royale_client.wire.errors import LimitError, ProtocolError, one_line
from royale_client.wire.grammar import Side, State, may_send
from royale_client.wire.limits import Limits
from royale_client.wire.messages import Hello, Log, Step, Stop
from royale_server.config import ServerConfig
from royale_server.endpoint.absence import Absence, is_same_client
from royale_server.endpoint.admission import Admission
from royale_server.endpoint.complaints import Complaints
from royale_server.endpoint.connection import Connection, Peer
from royale_server.endpoint.continuity import Continuity, RestListener, noise_slots
from royale_server.endpoint.episodes import EpisodeBook
from royale_server.endpoint.explaining import Explainer
from royale_server.endpoint.finiteness import NonFinite, find_nonfinite, nonfinite_observations
from royale_server.endpoint.nonfinite_notes import complaint
from royale_server.endpoint.probing import ProbeReport, Probing
from royale_server.endpoint.quarantine import Quarantine
from royale_server.endpoint.roll import Roll
from royale_server.endpoint.seating import Seating
from royale_server.endpoint.session import (
    Event,
    GoodbyeReceived,
    HelloReceived,
    LogReceived,
    ProbedReceived,
    RestoredReceived,
    ServerSession,
    SnapshottedReceived,
    StepReceived,
    StepReceivedAgain,
)
from royale_server.evaluation.desk import Round
from royale_server.model.engine import Engine, Inferred
from royale_server.model.worker import ModelWorker
from royale_server.saved_run import Sessions
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

HELLO_TIMEOUT_S = 4.0
TICKS_PER_S = 10.0
MESSAGES_PER_RECORD = 10
"""A client may send so many log messages for each record that is taken; empty ones cost as well."""
WARN_EVERY_S = 30.0
"""A client whose numbers are not finite is shown to a person this often."""


class Listener(RestListener, Protocol):
    """What the run does when the hub has something for it."""

    def client_joined(self, peer: Peer, hello: Hello) -> None:
        """A session was welcomed."""

    def client_left(self, peer: Peer, why: str) -> None:
        """A welcomed session is gone."""

    def probed(self, report: ProbeReport) -> None:
        """An environment has answered; answer with `Hub.passed` or `Hub.refuse_environment`."""

    def episodes_ended(
        self, rows: list[dict[str, Any]], *, request: int, first_slot: int, evaluation: bool
    ) -> None:
        """Episodes ended; rows for the record.

        Args:
            rows: One an episode; its ``slot`` counts from the client's first.
            request: Number of the request that told of it.
            first_slot: The client's first slot within the run.
            evaluation: Whether they are not for training.
        """

    def evaluated(self, round_: Round, *, is_last: bool) -> None:
        """A round of evaluation is complete, and whether no other follows."""

    def inferred(self, result: Inferred) -> None:
        """A batch was answered."""

    def learn_due(self, command: Learn) -> None:
        """The scheduler wants a learn step; answer with `Hub.learned`."""

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
        self._roll = Roll()
        self._continuity = Continuity(
            config,
            self._roll,
            listener,
            restart=self._restart,
            returned=self._returned,
            clock=clock,
        )
        self._absence = Absence(config.reconnect_grace)
        self._explainer = Explainer(config, self._roll, listener.queue_waiting, clock())
        self._probing = Probing(self._roll, listener.probed, clock)
        self._episodes = EpisodeBook()
        self._next_episode: Counter[str] = Counter()
        self._quarantine = Quarantine()
        self._complaints = Complaints()
        self._is_stopped = False
        self._engine: Engine | None = None
        self._scheduler: Scheduler | None = None
        self._seating_or_none: Seating | None = None
        self.on_wake: Callable[[float], None] = lambda _at: None
        """Called with the time at which `advance` is due if nothing happens before."""
        self.nonfinite_frames: Counter[str] = Counter()
        """Rows with NaN or infinities, by client."""
        self.step_bytes = 0
        """Size of all requests received."""
        self.clients_lost = 0
        """Clients that took part and are gone without a goodbye."""

    # --- what others may look at -------------------------------------------------------

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler; there is one as soon as the engine is built."""
        assert self._scheduler is not None, "the engine is not built yet"
        return self._scheduler

    @property
    def _seating(self) -> Seating:
        assert self._seating_or_none is not None, "the engine is not built yet"
        return self._seating_or_none

    @property
    def peers(self) -> Iterable[Peer]:
        """Everybody connected, welcomed or not."""
        return self._roll.peers

    @property
    def num_connections(self) -> int:
        """Connections open, welcomed or not."""
        return len(self._roll.peers)

    @property
    def num_members(self) -> int:
        """Sessions taking part."""
        return len(self._roll.by_member)

    @property
    def clients_missing(self) -> int:
        """Train clients that take part fewer than the run is meant to have."""
        present = sum(member.role is Role.TRAIN for member in self._roll.by_member)
        return max(0, self._config.min_clients - present)

    # --- connections --------------------------------------------------------------------

    def opened(self, connection: Connection) -> Peer:
        """Take a new connection; its first message must be a hello."""
        session = ServerSession(self._limits, self._admission.spaces)
        peer = Peer(connection, session, self._clock())
        self._allow_notes(peer)
        self._roll.peers[peer] = None
        return peer

    def drop_a_stranger(self) -> bool:
        """Make room for a new connection: who has said nothing for longest has to go.

        Returns:
            Whether there was one; who has said hello stays.
        """
        for peer in self._roll.peers:
            if peer.session.state is State.OPENED:
                self._fault(peer, "capacity", "others came while it said nothing; try again later")
                return True
        return False

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
        elif self._absence.may_come_back(peer) and not self._is_stopped:
            self._cut_off(peer, why)
            self.advance()
            return
        else:
            self._miss(peer, why)
        peer.is_closed = True
        self._forget(peer, why)
        self.advance()

    def attach(
        self, engine: Engine, scheduler: Scheduler, sessions: Sessions | None = None
    ) -> None:
        """Begin: the engine is built, clients in the lobby are welcomed.

        Args:
            engine: The engine.
            scheduler: The scheduler, fresh.
            sessions: The clients of the checkpoint that the run is resumed from.
        """
        self._engine = engine
        self._scheduler = scheduler
        saved = None if sessions is None else (sessions.seating, sessions.scheduler.seats)
        listener = self._listener
        self._seating_or_none = Seating(
            self._config,
            engine,
            self._do,
            listener.event,
            evaluated=listener.evaluated,
            saved=saved,
        )
        if sessions is not None:
            members = self._continuity.expect(sessions, scheduler)
            self._episodes.load_versions(sessions.versions)
            self._add_slots(noise_slots(members, len(sessions.scheduler.steps)))
            self._seating.expect(members)
        self._explainer.last_dispatch_at = self._clock()
        self._admit_lobby()
        self.advance()

    @property
    def first_hello(self) -> Hello | None:
        """Of the client that came first in this attempt."""
        return self._admission.first_hello

    @property
    def is_probing(self) -> bool:
        """Whether an environment is asked what it can do."""
        return self._probing.is_open

    def passed(self, hello: Hello) -> None:
        """Admit clients with the environment of this hello from now on."""
        self._probing.passed(hello)
        if self._scheduler is not None:
            self._admit_lobby()

    def refuse_environment(self, hello: Hello, message: str) -> None:
        """Send away the clients with the environment of this hello."""
        for peer in self._probing.refused(hello):
            self._fault(peer, "refused", message)

    def refuse_lobby(self, message: str) -> None:
        """The engine could not be built for these clients' spaces."""
        for peer in list(self._roll.lobby):
            self._fault(peer, "refused", message)

    def next_episodes(self) -> dict[str, int]:
        """By client name, an episode ordinal that none of its slots has reached.

        Goes into the checkpoint: a client of that name must not draw its old noise again.
        """
        living = {m.name: self.scheduler.next_episode(m) for m in self.scheduler.members}
        return {**self._next_episode, **living}

    def expect_episodes(self, next_episodes: Mapping[str, int]) -> None:
        """Continue the episode ordinals of a resumed run."""
        self._next_episode.update(next_episodes)

    def snapshot_if_due(self, version: int) -> None:
        """The policy has this version now: keep it as an opponent, if it is time for one."""
        self._seating.learned(version)

    def learned(self, *, version: int, target: int | None, duration_s: float) -> None:
        """A learn step is done; collecting goes on."""
        self._explainer.expected_learn_s = duration_s
        self.scheduler.learned(self._clock(), version=version, target=target)
        self._explainer.last_dispatch_at = self._clock()
        self.advance()

    def learn_aborted(self) -> None:
        """The learn step was undone."""
        self.scheduler.learn_aborted(self._clock())
        self.advance()

    def rest(self) -> None:
        """Come to rest, so that the run can be saved; `Listener.rested` and `gathered` follow."""
        if self._scheduler is not None:
            self._scheduler.rest(self._clock())
            self.advance()

    def pause(self) -> None:
        """Come to rest until `resume`."""
        self._explainer.is_paused = True
        self.rest()

    @property
    def is_paused(self) -> bool:
        """Whether a person has paused the run."""
        return self._explainer.is_paused

    def end_pause(self, *, stay_at_rest: bool) -> None:
        """End a pause.

        Args:
            stay_at_rest: A checkpoint is taken, and `saved` goes on after it, or the run ends.
        """
        self._explainer.is_paused = False
        if not stay_at_rest:
            self.resume()

    def saved(self) -> None:
        """Go on after a rest for a checkpoint, unless the run is paused."""
        if not self._explainer.is_paused:
            self.resume()

    def resume(self) -> None:
        """Go on after a rest, reached or not."""
        self._explainer.is_paused = False
        self._continuity.stop_gathering()
        self.scheduler.resume(self._clock())
        self._explainer.last_dispatch_at = self._clock()
        self.advance()

    def give_up_gathering(self) -> None:
        """Wait for no further snapshot; `Listener.gathered` follows at once."""
        self._continuity.give_up()
        self.advance()

    @property
    def awaited(self) -> list[str]:
        """Names of the clients of the checkpoint that are not back."""
        return sorted(self._continuity.awaited)

    def missing_clients(self) -> int:
        """Train clients still wanted before the first round."""
        return self._explainer.missing_clients(self._scheduler)

    def stop(self, reason: str, message: str) -> None:
        """Tell every client why the server goes, and close. Nothing is scheduled any more."""
        self._is_stopped = True
        for peer in list(self._roll.peers):
            if may_send(Side.SERVER, peer.session.state, Stop.TYPE):
                self._roll.send(peer, partial(peer.session.stop, reason, message))
            self._close(peer, reason)

    def fail(self, error: BaseException) -> None:
        """Pass on an error that the run cannot survive."""
        self._listener.failed(error)

    def tick(self) -> None:
        """Do what is due by time alone. Call it about ten times a second."""
        now = self._clock()
        for peer in [p for p in self._roll.peers if p.session.state is State.OPENED]:
            if now - peer.opened_at >= HELLO_TIMEOUT_S:
                text = f"no hello within {HELLO_TIMEOUT_S:g} s; is this a royale client?"
                self._fault(peer, "timeout", text)
        limit_s = self._config.feedback_wait_timeout
        for peer in [p for p in self._roll.peers if p.remembered is not None]:
            if now - peer.restoring_since >= limit_s:
                text = (
                    f"its environments are not restored within {limit_s:g} s; if they need longer, "
                    "raise --feedback-wait-timeout on the server"
                )
                self._fault(peer, "timeout", text)
        for peer in self._absence.overdue(now):
            self._forget(peer, f"did not come back within {self._config.reconnect_grace:g} s")
        for peer in self._probing.overdue(self._config.first_step_timeout):
            text = (
                "its environment has not answered what it was asked within "
                f"{self._config.first_step_timeout:g} s; if it needs longer, raise "
                "--first-step-timeout on the server"
            )
            self._fault(peer, "timeout", text)
        self.advance()
        for peer in self._roll.peers:
            self._allow_notes(peer)
            self._tell_dropped(peer, now)
        self._explainer.tick(self._scheduler, now)

    def _allow_notes(self, peer: Peer) -> None:
        """Renew what a client may make the log say; where that is rare, it is saved up for one."""
        share = self._config.max_log_rate / TICKS_PER_S
        peer.notes_left = min(max(1.0, share), peer.notes_left + share)
        peer.messages_left = MESSAGES_PER_RECORD * max(1.0, share)

    def _tell_dropped(self, peer: Peer, now: float) -> None:
        """Note how many log records of a client were dropped, once a second at most."""
        if peer.records_dropped and now >= peer.tell_dropped_at:
            peer.tell_dropped_at = now + 1.0
            dropped, peer.records_dropped = peer.records_dropped, 0
            text = f"client {peer.label}: {dropped} log records dropped"
            self._listener.event("client_log", text, dropped=dropped)

    # --- messages -----------------------------------------------------------------------

    def _handle(self, peer: Peer, event: Event) -> None:
        match event:
            case StepReceived(step=step):
                self.step_bytes += event.num_bytes
                self._step(peer, step)
            case StepReceivedAgain(step=step):
                self._step_again(peer, step)
            case HelloReceived(hello=hello):
                self._hello(peer, hello)
            case GoodbyeReceived(goodbye=goodbye):
                said = one_line(goodbye.exception or goodbye.reason)
                self._miss(peer, said)
                self._forget(peer, f"goodbye: {said}", said_goodbye=True)
                self._close(peer, "goodbye")
            case ProbedReceived(probed=probed):
                self._probing.answered(peer, probed)
            case LogReceived(log=log):
                self._take_log(peer, log)
            case SnapshottedReceived(snapshotted=snapshotted):
                self._continuity.snapshotted(peer, snapshotted)
            case RestoredReceived(restored=restored, to_adopt=to_adopt):
                self._continuity.restored(peer, failure=restored.failure, to_adopt=to_adopt)

    def _hello(self, peer: Peer, hello: Hello) -> None:
        if self._goes_on(peer, hello):
            return
        self._quarantine.check(peer.place, hello.client_name, self._clock())
        name = self._name_for(hello)
        self._check(hello, name, self.num_members + len(self._roll.lobby))
        peer.name = name
        self._roll.lobby.append(peer)
        self._probing.greeted(peer, hello)
        self._admission.first_spaces(hello)
        difference = self._admission.noted_difference(hello)
        if difference is not None:
            logger.warning("client %s: %s", peer.label, difference)
            self._listener.event("other_environment", f"client {peer.label}: {difference}")
        if self._scheduler is not None:
            self._admit_lobby()

    def _name_for(self, hello: Hello) -> str:
        """Its name in this run; that of a client that is awaited is kept for who trains."""
        gone = self._absence.started_again(hello)
        if gone is not None:
            self._forget(gone, "its process was started again")
        taken = self._roll.names
        if Role(hello.role) is not Role.TRAIN:
            taken += self._continuity.awaited
        return self._admission.unique_name(hello.client_name, taken)

    def _step(self, peer: Peer, step: Step) -> None:
        member = peer.member
        assert member is not None, "the session lets no step through before the welcome"
        group = member.groups[step.group]
        asks = group.everyone if step.asks is None else step.asks
        if step.terminated is None or step.truncated is None:
            ended = group.nobody
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
            self._note_nonfinite(peer, group, request, bad)
            if self._config.on_nonfinite != "pass":
                request.invalid_feedback = bad.feedback
                request.invalid_observation = bad.observation
        scheduler, seating = self.scheduler, self._seating
        players = seating.players(group, step)
        seating.requested(group, request)
        scheduler.request(group, request, self._clock())
        if step.episodes:
            rows = self._episodes.ended(group, step, scheduler.ledger)
            for record, row in zip(step.episodes, rows, strict=True):
                row.update(players.get(record["row"], {}))
            self._listener.episodes_ended(
                rows,
                request=step.request,
                first_slot=member.groups[0].start,
                evaluation=member.role is Role.EVAL,
            )

    def _step_again(self, peer: Peer, step: Step) -> None:
        """A client that was cut off has no answer to its last request; its outcome was taken."""
        member, session = peer.member, peer.session
        assert member is not None, "the session lets no step through before the welcome"
        group = member.groups[step.group]
        if session.outstanding(step.group) is not None:
            return  # the answer will go to this connection
        if self.scheduler.is_of_use(group):
            peer.connection.send(session.last_answer(step.group))
            return
        session.ask_again(step.group)
        request = Request(
            number=step.request,
            asks=group.everyone if step.asks is None else step.asks,
            ended=group.nobody,
            has_feedback=False,
            payload=step,
        )
        if self._config.on_nonfinite != "pass":
            request.invalid_observation = nonfinite_observations(step, request.asks)
        self._seating.requested(group, request)
        self.scheduler.request_again(group, request, self._clock())

    def _take_log(self, peer: Peer, log: Log) -> None:
        """Pass on what a client logs, as far as its share of the log allows."""
        peer.messages_left -= 1
        if peer.messages_left < 0:
            raise LimitError(
                "too many log messages",
                where="log",
                expected=f"at most {MESSAGES_PER_RECORD * self._config.max_log_rate} a second",
                remedy="send several records in one message, or raise --max-log-rate on the server",
            )
        taken = log.records[: int(peer.notes_left)]
        peer.notes_left -= len(taken)
        peer.records_dropped += log.dropped + len(log.records) - len(taken)
        for record in taken:
            self._listener.event("client_log", f"client {peer.label}", record=record)

    def _note_nonfinite(self, peer: Peer, group: Group, request: Request, bad: NonFinite) -> None:
        rows = bad.rows()
        self.nonfinite_frames[peer.name] += len(rows)
        if self._config.on_nonfinite == "halt":
            self._listener.must_stop(
                f"client {peer.label} sent a NaN or infinity (rows {rows[:8]})"
            )
        if peer.notes_left < 1:
            return  # counted all the same; the client was told often enough
        peer.notes_left -= 1
        hello = peer.session.hello
        assert hello is not None, "only who said hello sends steps"
        what = complaint(hello, group, request, self._config.on_nonfinite)
        text = f"client {peer.label}: {what}"
        total = self.nonfinite_frames[peer.name]
        if self._clock() >= peer.warn_again_at:
            peer.warn_again_at = self._clock() + WARN_EVERY_S
            logger.warning("%s (%d rows so far)", text, total)
        self._listener.event("nonfinite", text, client=peer.name, rows=rows, total=total)
        self._roll.send(peer, partial(peer.session.busy, "invalid", 0.0, None, text))

    # --- admission ----------------------------------------------------------------------

    def _admit_lobby(self) -> None:
        """Welcome who waits: at once, or by name once a deterministic run is complete."""
        waiting = [p for p in self._roll.lobby if not (p.is_closed or self._is_held(p))]
        if self._config.deterministic and self.scheduler.accepts_train_sessions:
            awaited = self._continuity.awaited
            fresh = [p for p in waiting if p.is_trainer and p.name not in awaited]
            waiting = [peer for peer in waiting if peer not in fresh]
            if len(fresh) >= self._config.min_clients - self.scheduler.num_train_sessions:
                # Those beyond the number are refused below.
                waiting = sorted(fresh, key=lambda peer: peer.name) + waiting
        for peer in waiting:
            self._roll.lobby.remove(peer)
            hello = peer.session.hello
            assert hello is not None, "only who said hello is in the lobby"
            try:
                self._check(hello, peer.name, self.num_members)
                self._welcome(peer, hello)
            except ProtocolError as error:
                self._fault(peer, error.code, error.sentence)

    def _is_held(self, peer: Peer) -> bool:
        """Whether its environment has still to show that it does what it says."""
        return peer.session.hello is not None and self._probing.is_held(peer.session.hello)

    def _check(self, hello: Hello, name: str, num_sessions: int) -> None:
        """Refuse a hello that cannot take part; raises `ProtocolError`."""
        awaited = self._continuity.awaited
        self._admission.check(hello, name, num_sessions, self._scheduler, awaited)
        if self._seating_or_none is not None:
            self._seating.check(hello)

    def _welcome(self, peer: Peer, hello: Hello) -> None:
        remembered = self._continuity.take(peer, self.scheduler)
        if remembered is None:
            self._welcome_new(peer, hello)
        else:
            member = remembered.member
            self._roll.seat(peer, member)
            requests = tuple(group.waiting.number for group in member.groups if group.waiting)
            fresh = self.scheduler.next_episode(member)
            told = self._seating.came_back(member, hello, fresh)
            self._send_welcome(peer, hello, fresh, told, requests)
        self._admission.admitted(hello)
        self._listener.client_joined(peer, hello)
        if remembered is not None:
            self._continuity.welcomed_back(peer, remembered)

    def _welcome_new(self, peer: Peer, hello: Hello) -> None:
        first_episode = self._next_episode[peer.name]
        member = self.scheduler.join(
            peer.name, Role(hello.role), hello.groups, self._clock(), first_episode=first_episode
        )
        self._roll.seat(peer, member)
        self._episodes.add_slots(member.size)
        self._add_slots([(peer.name, slot) for slot in range(member.size)])
        told = self._seating.joined(member, hello, first_episode)
        self._send_welcome(peer, hello, first_episode, told)

    def _goes_on(self, peer: Peer, hello: Hello) -> bool:
        """Let a client that was cut off go on with its session, if it names one that can.

        The newest connection has it: that the older one is dead may not be known here yet.
        """
        earlier = self._absence.session_of(hello)
        if earlier is None:
            return False
        before = earlier.session.hello
        assert before is not None, "only who said hello has a session"
        if not is_same_client(before, hello):
            self._forget(earlier, "its client came back as another one")
            return False
        session, member, welcome = earlier.session, earlier.member, earlier.welcome
        assert member is not None, "only who takes part can come back"
        assert welcome is not None, "only who takes part can come back"
        last_requests = session.last_requests
        self._supersede(earlier)
        peer.carry_on(earlier)
        peer.welcome = replace(
            welcome,
            policy_version=self.scheduler.ledger.version,
            last_requests=last_requests,
            restores=False,
            continues=True,
            assignments=(),
        )
        self._roll.seat(peer, member)
        self._absence.know(peer)
        self._roll.send(peer, partial(peer.session.welcome, peer.welcome, session))
        self.scheduler.reconnected(member, self._clock())
        text = f"client {peer.name} is back and goes on"
        logger.info("%s", text)
        self._listener.event("reconnected", text, client=peer.name)
        return True

    def _supersede(self, earlier: Peer) -> None:
        """A session goes on over another connection; nothing more is expected of this one."""
        if not earlier.is_closed:
            text = "this session goes on over another connection"
            self._roll.send(earlier, partial(earlier.session.fault, "refused", text))
            self._close(earlier, "fault")
            self._roll.peers.pop(earlier, None)
        self._continuity.left(earlier)
        self._absence.forget(earlier)

    def _cut_off(self, peer: Peer, why: str) -> None:
        """A connection is lost; its session is kept for a while."""
        assert peer.member is not None, "only who takes part can come back"
        peer.is_closed = True
        del self._roll.peers[peer]
        self._continuity.left(peer)
        self._absence.begins(peer, self._clock())
        self.scheduler.cut_off(peer.member)
        grace_s = self._config.reconnect_grace
        text = f"client {peer.name} is cut off ({why}); its session is kept for {grace_s:g} s"
        logger.warning("%s", text)
        self._listener.event("cut_off", text, client=peer.name)

    def _returned(self, member: Member) -> None:
        """All episodes of a client go on where they were."""
        self._seating.returned(member)
        self.scheduler.returned(member, self._clock())

    def _restart(self, member: Member) -> None:
        """All episodes of a client begin anew."""
        self._seating.restarted(member)
        self.scheduler.restart(member, self._clock())

    def _send_welcome(
        self,
        peer: Peer,
        hello: Hello,
        first_episode: int,
        assignments: tuple[dict[str, Any], ...],
        last_requests: tuple[int, ...] | None = None,
    ) -> None:
        assert peer.member is not None
        welcome = self._admission.welcome(
            hello,
            name=peer.name,
            first_slot=peer.member.groups[0].start,
            first_episode=first_episode,
            policy_version=self.scheduler.ledger.version,
            assignments=assignments,
            last_requests=last_requests,
        )
        peer.welcome = welcome
        self._absence.know(peer)
        self._roll.send(peer, partial(peer.session.welcome, welcome))

    def _add_slots(self, slots: Sequence[tuple[str, int]]) -> None:
        """Give the engine the noise keys of further slots: client names and slots within them."""
        assert self._engine is not None
        keys = [slot_key(self._config.seed, name, slot) for name, slot in slots]
        add_slots = partial(self._engine.add_slots, np.array(keys, np.uint64))
        self._do(add_slots)

    def _do(self, job: Callable[[], None]) -> None:
        """Have the model thread do something that nobody waits for."""
        self._model.submit(job, None, self._listener.failed)

    # --- commands -----------------------------------------------------------------------

    def advance(self) -> None:
        """Carry out everything the scheduler finds due."""
        scheduler = self._scheduler
        if scheduler is None or self._is_stopped:
            return
        for command in scheduler.advance(self._clock()):
            match command:
                case Infer():
                    self._infer(command)
                case Answer(group=group, request=request):
                    self._answer_nobody(group, request)
                case Learn():
                    self._explainer.learning_since = self._clock()
                    self._listener.learn_due(command)
                case EndSession(member=member, code=code, message=message):
                    self._end_session(member, code, message)
                case EndRun(message=message):
                    self._listener.must_stop(message)
                case Notice(kind=kind, message=message):
                    self._listener.event(kind, message)
                case Rested():
                    seating = self._seating.state()
                    self._continuity.rested(command, scheduler, self._episodes, seating)
        self._continuity.gather()
        wake_at = scheduler.wake_at
        if wake_at is not None:
            self.on_wake(wake_at)

    def _infer(self, batch: Infer) -> None:
        assert self._engine is not None
        self._explainer.last_dispatch_at = self._clock()
        self._episodes.acted(batch, self.scheduler.ledger.version)
        self._model.submit(
            partial(self._engine.infer, batch), self._inferred, self._listener.failed
        )

    def _inferred(self, result: Inferred) -> None:
        for item, actions in zip(result.batch.items, result.actions, strict=True):
            group = item.group
            peer = self._roll.by_member.get(group.member)
            if peer is not None:
                number, version = item.request.number, result.policy_version
                told = self._seating.unsent(group)
                peer.session.discount = result.discount
                answer = peer.session.action(group.index, number, version, actions, told)
                if not peer.is_closed:  # cut off: it will ask for the answer again
                    peer.connection.send(answer)
        self.scheduler.inferred(self._clock())
        self._listener.inferred(result)
        self.advance()
        if self.scheduler.is_idle:
            self._settle()

    def _settle(self) -> None:
        """Have the batch written while nobody waits for the model."""
        assert self._engine is not None
        self._do(self._engine.settle)

    def _answer_nobody(self, group: Group, request: Request) -> None:
        peer = self._roll.by_member[group.member]
        none = self._admission.no_actions()
        version = self.scheduler.ledger.version
        told = self._seating.unsent(group)
        answer = peer.session.action(group.index, request.number, version, none, told)
        if not peer.is_closed:
            peer.connection.send(answer)

    # --- ends -------------------------------------------------------------------------------

    def _end_session(self, member: Member, code: str, message: str) -> None:
        peer = self._roll.by_member.get(member)
        if peer is None:
            self._continuity.given_up(member)
        else:
            self._fault(peer, code, message)

    def _fault(self, peer: Peer, code: str, message: str) -> None:
        message = one_line(message)
        self._quarantine.fault(peer.place, _own_name(peer), code, self._clock())
        swallowed = self._complaints.may_say(peer.place, self._clock())
        if peer.member is not None or swallowed is not None:
            logger.warning("client %s: %s (%s)", peer.label, message, code)
            self._listener.event("fault", f"client {peer.label}: {message}", code=code)
        self._roll.send(peer, partial(peer.session.fault, code, message))
        self._close(peer, "fault")
        self._forget(peer, f"fault: {message}")

    def _close(self, peer: Peer, reason: str) -> None:
        if not peer.is_closed:
            peer.is_closed = True
            peer.connection.close(reason)

    def _miss(self, peer: Peer, why: str) -> None:
        """Say of a client that leaves before it took part that it did not come up."""
        if peer in self._roll.lobby and not self._is_stopped:
            text = f"client {peer.label} did not come up: {why}"
            logger.warning("%s", text)
            self._listener.event("not_up", text, client=peer.name)

    def _forget(self, peer: Peer, why: str, *, said_goodbye: bool = False) -> None:
        if peer not in self._roll.peers and peer not in self._absence:
            return
        self._roll.peers.pop(peer, None)
        self._absence.forget(peer)
        if peer in self._roll.lobby:
            self._roll.lobby.remove(peer)
            self._probing.left(peer)
        member = peer.member
        if member is None:
            return
        del self._roll.by_member[member]
        self.clients_lost += not (said_goodbye or self._is_stopped)
        self._next_episode[peer.name] = self.scheduler.next_episode(member)
        self._continuity.left(peer)
        if not self._continuity.gone_before_restored(peer) and not self._is_stopped:
            self.scheduler.leave(member, self._clock())
        self._listener.client_left(peer, why)


def _own_name(peer: Peer) -> str:
    """What a client calls itself, whatever it is called here; empty before its hello."""
    return "" if peer.session.hello is None else peer.session.hello.client_name
