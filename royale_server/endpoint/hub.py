"""The data path of the server: messages in, what is due, commands to the model, answers out.

Runs on the I/O thread. A message goes in, `advance` asks the scheduler what is due, commands go
to the model worker, answers go out. A batch that takes less time than handing it to another thread
and back is inferred right here, while the worker has nothing to do. Never waits, never touches a
disk; every failure of one client ends that client's session and nothing else.
"""

from __future__ import annotations

import logging
from functools import partial

from royale_client.wire.errors import ProtocolError
from royale_client.wire.grammar import State
from royale_client.wire.messages import Step
from royale_server.endpoint.clients import Clients
from royale_server.endpoint.connection import Connection, Peer
from royale_server.endpoint.finiteness import find_nonfinite
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
from royale_server.model.engine import Inferred
from royale_server.scheduler import (
    Answer,
    EndRun,
    EndSession,
    Group,
    Infer,
    Learn,
    Notice,
    Request,
    Rested,
    Role,
)

logger = logging.getLogger(__name__)


class Hub(Clients):
    """Joins connections, sessions, scheduler and model."""

    # --- connections --------------------------------------------------------------------

    def opened(self, connection: Connection) -> Peer:
        """Take a new connection; its first message must be a hello."""
        session = ServerSession(self._limits, self._admission.spaces)
        peer = Peer(connection, session, self._clock())
        self._notes.allow(peer)
        self._roll.peers[peer] = None
        return peer

    def drop_a_stranger(self) -> bool:
        """Make room for a new connection: who has said nothing for longest has to go.

        Returns:
            Whether there was one; who has said hello stays.
        """
        for peer in self._roll.peers:
            if peer.session.state is State.OPENED:
                text = "others came while it said nothing; try again later"
                self._departures.fault(peer, "capacity", text)
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
            self._departures.fault(peer, error.code, error.sentence)
        self.advance()

    def _read(self, peer: Peer, data: bytes) -> list[Event]:
        """Decode and check; whatever goes wrong here concerns this client alone."""
        try:
            return peer.session.receive(data)
        except ProtocolError:
            raise
        except Exception:
            logger.exception("client %s: its message could not be read", peer.label)
            self._departures.fault(peer, "internal", "the server failed to read the message")
            return []

    def refuse_text(self, peer: Peer) -> None:
        """A client sent a text frame; the protocol has none."""
        text = "got a text frame; every message is one binary frame"
        self._departures.fault(peer, "malformed", text)
        self.advance()

    def closed(self, peer: Peer, why: str) -> None:
        """A connection is gone, whoever ended it."""
        if not self._resuming.keep(peer, why):
            self._departures.disconnected(peer, why)
        self.advance()

    def tick(self) -> None:
        """Do what is due by time alone. Call it about ten times a second."""
        now = self._clock()
        self._patience.tick(now)
        self.advance()
        self._notes.tick(now)
        self._explainer.tick(self._core.scheduler_or_none, now)

    # --- messages -----------------------------------------------------------------------

    def _handle(self, peer: Peer, event: Event) -> None:
        match event:
            case StepReceived(step=step):
                self.step_bytes += event.num_bytes
                self._step(peer, step)
            case StepReceivedAgain(step=step):
                self._resuming.step_again(peer, step)
            case HelloReceived(hello=hello):
                self._reception.hello(peer, hello)
            case GoodbyeReceived(goodbye=goodbye):
                self._departures.goodbye(peer, goodbye)
            case ProbedReceived(probed=probed):
                self._probing.answered(peer, probed)
            case LogReceived(log=log):
                self._notes.log(peer, log)
            case SnapshottedReceived(snapshotted=snapshotted):
                self._continuity.snapshotted(peer, snapshotted)
            case RestoredReceived(restored=restored, to_adopt=to_adopt):
                self._continuity.restored(peer, failure=restored.failure, to_adopt=to_adopt)

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
            self._notes.nonfinite(peer, group, request, bad)
            if self._config.on_nonfinite != "pass":
                request.invalid_feedback = bad.feedback
                request.invalid_observation = bad.observation
        scheduler, seating = self.scheduler, self._core.seating
        players = seating.players(group, step)
        seating.requested(group, request)
        scheduler.request(group, request, self._clock())
        if step.episodes:
            rows = self._core.episodes.ended(group, step, scheduler.ledger)
            for record, row in zip(step.episodes, rows, strict=True):
                row.update(players.get(record["row"], {}))
            self._listener.episodes_ended(
                rows,
                request=step.request,
                first_slot=member.groups[0].start,
                evaluation=member.role is Role.EVAL,
            )

    # --- commands -----------------------------------------------------------------------

    def advance(self) -> None:
        """Carry out everything the scheduler finds due."""
        self._carry_out_commands()
        # One after the other, not by recursion: as many batches may be due as there are groups.
        while self._inferred_here:
            self._answer(self._inferred_here.popleft())
            self._carry_out_commands()
            self._settle_if_idle()

    def _carry_out_commands(self) -> None:
        scheduler = self._core.scheduler_or_none
        if scheduler is None or self._core.is_stopped:
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
                    self._departures.end_session(member, code, message)
                case EndRun(message=message):
                    self._listener.must_stop(message)
                case Notice(kind=kind, message=message):
                    self._listener.event(kind, message)
                case Rested():
                    seating = self._core.seating.state()
                    self._continuity.rested(command, scheduler, self._core.episodes, seating)
        self._continuity.gather()
        wake_at = scheduler.wake_at
        if wake_at is not None:
            self.on_wake(wake_at)

    def _infer(self, batch: Infer) -> None:
        engine = self._core.engine_or_none
        assert engine is not None, "there is a scheduler, so there is an engine"
        self._explainer.last_dispatch_at = self._clock()
        self._core.episodes.acted(batch, self.scheduler.ledger.version)
        infer = partial(engine.infer, batch)
        if not self._core.is_quick:
            self._model.submit(infer, self._inferred, self._listener.failed)
            return
        try:
            self._inferred_here.append(infer())
        except Exception as error:  # as where the model thread infers
            self._listener.failed(error)

    def _inferred(self, result: Inferred) -> None:
        self._answer(result)
        self.advance()
        self._settle_if_idle()

    def _answer(self, result: Inferred) -> None:
        self._core.infer_s = result.duration_s
        for item, actions in zip(result.batch.items, result.actions, strict=True):
            group = item.group
            peer = self._roll.by_member.get(group.member)
            if peer is not None:
                number, version = item.request.number, result.policy_version
                told = self._core.seating.unsent(group)
                peer.session.discount = result.discount
                answer = peer.session.action(group.index, number, version, actions, told)
                if not peer.is_closed:  # cut off: it will ask for the answer again
                    peer.connection.send(answer)
        self.scheduler.inferred(self._clock())
        self._listener.inferred(result)

    def _settle_if_idle(self) -> None:
        if self.scheduler.is_idle:
            self._core.settle()

    def _answer_nobody(self, group: Group, request: Request) -> None:
        peer = self._roll.by_member[group.member]
        none = self._admission.no_actions()
        version = self.scheduler.ledger.version
        told = self._core.seating.unsent(group)
        answer = peer.session.action(group.index, request.number, version, none, told)
        if not peer.is_closed:
            peer.connection.send(answer)
