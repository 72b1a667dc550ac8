"""Clients and servers that let seats be assigned and that probe, sound ones and broken ones."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.sync.server import ServerConnection

from royale_client.conformance.probe import OBSERVATION_SPACE
from royale_client.conformance.seat_ledger import environments_of
from royale_client.conformance.server_seats import RATES
from royale_client.session import Answered, ClientSession, Event, ProbeAsked, Stopped, Welcomed
from royale_client.wire.errors import ProtocolError
from royale_client.wire.grammar import State
from royale_client.wire.messages import (
    Action,
    Goodbye,
    Hello,
    Probe,
    Probed,
    Step,
    encode_message,
)
from royale_client.wire.probes import QUESTIONS, ProbeAnswer
from royale_client.wire.seating import (
    Player,
    SeatAssignment,
    read_assignments,
    seating_features,
    write_assignments,
)
from royale_client.wire.spaces import DiscreteSpec
from royale_client.wire.version import SUBPROTOCOL
from royale_server.endpoint.session import ServerSession, StepReceived
from tests.conformance.servers import SoundServer, welcome

ACTIONS = 3
GROUPS = (4, 4)
LENGTH = 2
"""Steps of an episode."""


class SoundClient:
    """Two groups of two environments of two seats; a row that ended asks at once."""

    role = "train"

    def __init__(self) -> None:
        self.told: list[list[SeatAssignment]] = []
        self.seeds: list[int] = []
        self.episodes = [0] * sum(GROUPS)
        self.steps = [0] * len(GROUPS)

    # --- what others break ---------------------------------------------------------------

    def hello(self) -> Hello:
        slots = np.arange(sum(GROUPS))
        return Hello(
            client_name="seated",
            process_id="p",
            role=self.role,
            env_id="two-seats-v0",
            observation_space=OBSERVATION_SPACE,
            action_space=DiscreteSpec(ACTIONS),
            groups=GROUPS,
            environments=slots // 2,
            seats=slots % 2,
            masks=True,
            episode_metrics=RATES if self.role == "eval" else (),
            features=(*seating_features(["idle", "wild"]), "probe"),
        )

    def asks(self, slot: int) -> bool:
        """Whether a slot's row asks in the episode under way."""
        return self.told[slot][0].player is not Player.SCRIPTED

    def ends(self, slot: int) -> bool:
        """Whether a slot's episode ends with the last of its steps."""
        return True

    def note(self, assignments: Any) -> None:
        """Take what was told with an answer."""
        for assignment in read_assignments(assignments, sum(GROUPS)):
            self.told[assignment.slot].append(assignment)

    def observed(self, slot: int) -> list[float]:
        return [self.seeds[slot] % 97, self.episodes[slot], self.steps[slot // GROUPS[0]], 0]

    def probed(self, question: str) -> ProbeAnswer:
        legal = np.ones((1, ACTIONS), bool)
        match question:
            case "layout":
                layout = np.arange(ACTIONS, dtype=np.int64)[:, None]
                return ProbeAnswer(columns=("choice",), layout=layout)
            case "waiting":
                return ProbeAnswer(states=("x",), masks=legal)
        return ProbeAnswer(states=("x",), masks=legal, verdicts=legal)

    def send_probed(self, link: ClientConnection, number: int, question: str) -> None:
        is_known = question in QUESTIONS
        answer = self.probed(question) if is_known else ProbeAnswer()
        failure = None if is_known else "never heard of it"
        link.send(encode_message(Probed(number=number, answer=answer, failure=failure)))

    # --- the rest ------------------------------------------------------------------------

    def run(self, url: str) -> None:
        settings: dict[str, Any] = {"subprotocols": [SUBPROTOCOL], "compression": None}
        with (
            contextlib.suppress(ConnectionClosed, ProtocolError),
            connect(url, **settings, proxy=None, close_timeout=0.2) as link,
        ):
            session = ClientSession(self.hello())
            link.send(session.start())
            while True:
                for event in session.receive(link.recv()):
                    self._handle(session, link, event)

    def _handle(self, session: ClientSession, link: ClientConnection, event: Event) -> None:
        match event:
            case ProbeAsked(number=number, question=question):
                session.probed(number, failure="what is sent is the affair of `send_probed`")
                self.send_probed(link, number, question)
            case Welcomed(welcome=welcome):
                self.seeds = welcome.seeds.tolist()
                self.told = [[] for _ in self.seeds]
                told = welcome.assignments or write_assignments(
                    SeatAssignment(slot=slot, episode=k, player=Player.LEARNER)
                    for slot in range(len(self.seeds))
                    for k in range(2)
                )
                self.note(told)
                for group in range(len(GROUPS)):
                    self._send(session, link, group, is_first=True)
            case Answered(group=group, assignments=assignments):
                self.note(assignments)
                self._send(session, link, group, is_first=False)
            case Stopped():
                link.send(encode_message(Goodbye(reason="stopped")))

    def _send(
        self, session: ClientSession, link: ClientConnection, group: int, *, is_first: bool
    ) -> None:
        first = group * GROUPS[0]
        slots = range(first, first + GROUPS[group])
        outcome: dict[str, Any] = {}
        if not is_first:
            self.steps[group] += 1
            ended = np.array([self.steps[group] == LENGTH and self.ends(s) for s in slots])
            finals = [self.observed(s) for s, end in zip(slots, ended, strict=True) if end]
            nothing = np.zeros(len(slots))
            outcome = {"rewards": nothing, "terminated": ended, "truncated": nothing > 0}
            if finals:
                outcome["final_observations"] = (np.array(finals, np.float32),)
                self.steps[group] = 0
            for slot, end in zip(slots, ended, strict=True):
                if end:
                    self.episodes[slot] += 1
                    if len(self.told[slot]) > 1:
                        self.told[slot].pop(0)
        asks = np.array([self.asks(slot) for slot in slots])
        rows = [self.observed(s) for s, ask in zip(slots, asks, strict=True) if ask]
        observations = (np.array(rows, np.float32).reshape(len(rows), 4),)
        masks = np.ones((len(rows), ACTIONS), bool)
        link.send(session.step(group, asks=asks, observations=observations, masks=masks, **outcome))


class SoundJudge(SoundClient):
    role = "eval"


class AsksForBots(SoundClient):
    def asks(self, slot):
        return True


class LeavesSeatsEmpty(SoundClient):
    def asks(self, slot):
        return slot % 2 == 0 and super().asks(slot)


class PlaysOneEpisodeLate(SoundClient):
    def asks(self, slot):
        return self.told[slot][1].player is not Player.SCRIPTED


class EndsSeatsApart(SoundClient):
    def ends(self, slot):
        return slot % 2 == 0


class DealsAsItLikes(SoundJudge):
    def observed(self, slot):
        return [float(slot), *super().observed(slot)[1:]]


class SaysNotWhoWon(SoundJudge):
    def hello(self):
        return replace(super().hello(), episode_metrics=())


class AnswersAnotherProbe(SoundClient):
    def send_probed(self, link, number, question):
        super().send_probed(link, number + 1, question)


class AnswersInAnotherShape(SoundClient):
    def probed(self, question):
        return ProbeAnswer(columns=("a", "b"), layout=np.zeros((ACTIONS, 1), np.int64))


class KnowsEverything(SoundClient):
    def send_probed(self, link, number, question):
        answer = self.probed(question)
        link.send(encode_message(Probed(number=number, answer=answer)))


class SeatedServer(SoundServer):
    """Assigns seats to those who follow, a bot to the second seat of every other episode."""

    def __init__(self) -> None:
        super().__init__()
        self._next: dict[int, list[int]] = {}
        self._running: dict[int, list[int]] = {}

    # --- what others break ---------------------------------------------------------------

    def assign(self, slot: int, episode: int) -> SeatAssignment:
        is_bot = slot % 2 == 1 and episode % 2 == 1
        player, name = (Player.SCRIPTED, "conformance") if is_bot else (Player.LEARNER, "")
        return SeatAssignment(slot=slot, episode=episode, player=player, name=name)

    def seeds(self, hello: Hello) -> Any:
        deals = np.arange(hello.num_slots, dtype=np.uint64)
        return deals // 4 * 2 + deals % 2 if hello.role == "eval" else deals

    def told(self, slots: list[int], episodes: list[int]) -> list[SeatAssignment]:
        """Assign the episodes after the next."""
        return [self.assign(slot, episodes[slot]) for slot in slots]

    def refuses_end(self, hello: Hello, ended: Any) -> bool:
        return bool((ended[0::2] != ended[1::2]).any())

    def refuses_bot(self, slot: int, episode: int) -> bool:
        return self.assign(slot, episode).player is Player.SCRIPTED

    # --- the rest ------------------------------------------------------------------------

    def _welcome(self, session: ServerSession, connection: ServerConnection, hello: Hello) -> bytes:
        if not _is_seated(hello):
            return super()._welcome(session, connection, hello)
        if hello.role == "eval" and not hello.episode_metrics:
            return session.fault("refused", "it does not say who won")
        self._next[id(session)] = [2] * hello.num_slots
        self._running[id(session)] = [0] * hello.num_slots
        first = [self.assign(slot, k) for slot in range(hello.num_slots) for k in range(2)]
        return session.welcome(
            welcome(
                hello,
                session_token="seated",
                seeds=self.seeds(hello),
                features=("assignments",),
                assignments=write_assignments(first),
            )
        )

    def respond(self, session: ServerSession, step: Step) -> bytes:
        """Answer a request, or fault it."""
        hello = session.hello
        assert hello is not None
        following, running = self._next[id(session)], self._running[id(session)]
        rows = hello.groups[step.group]
        asks = np.ones(rows, bool) if step.asks is None else step.asks
        ended = np.zeros(rows, bool)
        if step.terminated is not None and step.truncated is not None:
            ended = step.terminated | step.truncated
        gone = np.flatnonzero(ended).tolist()
        if asks.any() and self.refuses_end(hello, ended):
            return session.fault("contract", "the seats of an environment end apart")
        for slot in gone:
            running[slot] += 1
        if any(self.refuses_bot(slot, running[slot]) for slot in np.flatnonzero(asks).tolist()):
            return session.fault("contract", "the row of a bot asks")
        told = write_assignments(self.told(gone, following))
        for slot in gone:
            following[slot] += 1
        actions = self.actions(hello, step)
        session.action(step.group, step.request, 0, (actions,), told)
        return encode_message(
            Action(
                group=step.group,
                request=step.request,
                policy_version=0,
                actions=(actions,),
                assignments=told,
            )
        )

    def _take(self, session: ServerSession, connection: ServerConnection, data: Any) -> None:
        if id(session) not in self._next:
            super()._take(session, connection, data)
            if session.state is State.FAULTED:  # instead of a welcome
                self.end(connection, "fault")
            return
        try:
            events = session.receive(data)
        except ProtocolError as error:
            connection.send(session.fault(error.code, error.sentence))
            self.end(connection, "fault")
            return
        for event in events:
            if isinstance(event, StepReceived):
                connection.send(self.respond(session, event.step))
                if session.state is State.FAULTED:
                    self.end(connection, "fault")
            else:
                self.end(connection, "goodbye")


def _is_seated(hello: Hello) -> bool:
    is_follower = "assignments" in hello.features
    return is_follower and int(np.bincount(environments_of(hello)).min()) > 1


class AssignsTooFew(SeatedServer):
    def told(self, slots, episodes):
        return super().told(slots[1:], episodes)


class AssignsTheNext(SeatedServer):
    def told(self, slots, episodes):
        return [replace(a, episode=a.episode - 1) for a in super().told(slots, episodes)]


class NamesStrangeBots(SeatedServer):
    def assign(self, slot, episode):
        assignment = super().assign(slot, episode)
        return replace(assignment, name="stranger") if assignment.name else assignment


class LetsBotsAsk(SeatedServer):
    def refuses_bot(self, slot, episode):
        return False


class LetsSeatsEndApart(SeatedServer):
    def refuses_end(self, hello, ended):
        return False


class DealsUnevenly(SeatedServer):
    def seeds(self, hello):
        return np.arange(hello.num_slots, dtype=np.uint64)


class AsksFirst(SeatedServer):
    """Asks each client that lets itself be asked, and hears the answer before the welcome."""

    def hear(self, session: ServerSession, data: bytes) -> None:
        session.receive(data)

    def _welcome(self, session: ServerSession, connection: ServerConnection, hello: Hello) -> bytes:
        if "probe" in hello.features:
            connection.send(session.probe(1, "layout"))
            try:
                self.hear(session, connection.recv(decode=False))
            except ProtocolError as error:
                return session.fault(error.code, error.sentence)
        return super()._welcome(session, connection, hello)


class BelievesAnyAnswer(AsksFirst):
    def hear(self, session, data):
        session.receive(encode_message(Probed(number=1, failure="whatever it was")))


class AsksTwiceAtOnce(SoundServer):
    num_questions = 2

    def _welcome(self, session: ServerSession, connection: ServerConnection, hello: Hello) -> bytes:
        if "probe" in hello.features:
            for number in range(self.num_questions):
                connection.send(encode_message(Probe(number=number, question="layout")))
        return super()._welcome(session, connection, hello)


class WaitsForNoAnswer(AsksTwiceAtOnce):
    num_questions = 1


class AsksAnybody(SoundServer):
    def _welcome(self, session: ServerSession, connection: ServerConnection, hello: Hello) -> bytes:
        connection.send(encode_message(Probe(number=1, question="layout")))
        return super()._welcome(session, connection, hello)
