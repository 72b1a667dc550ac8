"""A small server that is sound, and servers that each break one thing. They learn nothing."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from royale_client.conformance.made_up_actions import made_up_actions
from royale_client.wire.codec import decode, encode
from royale_client.wire.errors import ProtocolError
from royale_client.wire.grammar import CLOSE_CODES, State
from royale_client.wire.limits import Limits
from royale_client.wire.messages import Action, Busy, Hello, Step, Welcome, encode_message
from royale_client.wire.version import SUBPROTOCOL
from royale_server.endpoint.session import (
    GoodbyeReceived,
    HelloReceived,
    ServerSession,
    StepReceived,
    StepReceivedAgain,
)

TIMEOUTS = ("feedback_wait_s", "first_step_s", "ping_interval_s", "ping_timeout_s")
TOKEN = "secret-of-session"


class SoundServer:
    """Answers every request at once with some legal actions."""

    def __init__(self) -> None:
        self.spaces: Any = None
        self.token = ""
        """Token of the newest session."""
        self._num_sessions = 0
        self._kept: dict[str, tuple[ServerSession, ServerConnection]] = {}

    # --- what others break ---------------------------------------------------------------

    def begin(self, connection: ServerConnection) -> None:
        """A connection was opened."""

    def recover(self, error: ProtocolError, connection: ServerConnection) -> bool:
        """Take what must be refused after all; false refuses it."""
        return False

    def actions(self, hello: Hello, step: Step) -> Any:
        """Choose the actions of an answer."""
        asks = np.ones(hello.groups[step.group], bool) if step.asks is None else step.asks
        rows = np.flatnonzero(asks)
        return made_up_actions(hello.action_space, rows, step.request, step.masks)[0]

    def answer(self, step: Step, actions: Any) -> bytes | str:
        """Write an answer."""
        return encode_message(
            Action(group=step.group, request=step.request, policy_version=0, actions=(actions,))
        )

    def sentence(self, error: ProtocolError) -> str:
        """Say in a fault what is wrong."""
        return error.sentence

    def end(self, connection: ServerConnection, reason: str) -> None:
        """End a conversation."""
        connection.close(CLOSE_CODES[reason], reason)

    def keeps(self, before: Hello, now: Hello) -> bool:
        """Tell whether a session goes on with a client that names it."""
        return before.process_id == now.process_id

    def last_requests(self, earlier: ServerSession) -> tuple[int, ...]:
        """Tell a client that is back which requests have come."""
        return earlier.last_requests

    def supersede(self, session: ServerSession, connection: ServerConnection) -> None:
        """End the older connection of a session that goes on over another."""
        with contextlib.suppress(ConnectionClosed):
            connection.send(session.fault("refused", "the session goes on elsewhere"))
        self.end(connection, "fault")

    def repeat(self, session: ServerSession, connection: ServerConnection, group: int) -> None:
        """Answer a request that has come again."""
        connection.send(session.last_answer(group))

    # --- the rest --------------------------------------------------------------------------

    def handle(self, connection: ServerConnection) -> None:
        session = ServerSession(Limits(), self.spaces)
        with contextlib.suppress(ConnectionClosed):
            self.begin(connection)
            while session.state not in (State.LEFT, State.FAULTED):
                self._take(session, connection, connection.recv())
            connection.recv()  # until it is closed

    def _take(self, session: ServerSession, connection: ServerConnection, data: Any) -> None:
        try:
            events = session.receive(data)
        except ProtocolError as error:
            if not self.recover(error, connection):
                connection.send(session.fault(error.code, self.sentence(error)))
                self.end(connection, "fault")
            return
        for event in events:
            match event:
                case HelloReceived(hello=hello):
                    self.spaces = self.spaces or SimpleNamespace(
                        observation=hello.observation_space,
                        action=hello.action_space,
                        masks=hello.masks,
                    )
                    connection.send(self._welcome(session, connection, hello))
                case StepReceivedAgain(step=step):
                    self.repeat(session, connection, step.group)
                case StepReceived(step=step):
                    assert session.hello is not None
                    actions = self.actions(session.hello, step)
                    session.action(step.group, step.request, 0, (actions,))
                    connection.send(self.answer(step, actions))
                case GoodbyeReceived():
                    self._kept = {t: kept for t, kept in self._kept.items() if kept[0] != session}
                    self.end(connection, "goodbye")

    def _welcome(self, session: ServerSession, connection: ServerConnection, hello: Hello) -> bytes:
        token = hello.resume_token or ""
        earlier, older = self._kept.get(token, (None, None))
        if earlier is None or not earlier.can_go_on or not self.keeps(earlier.hello, hello):
            self._num_sessions += 1
            self.token = f"{TOKEN}-{self._num_sessions}"
            self._kept[self.token] = session, connection
            return session.welcome(welcome(hello, session_token=self.token))
        numbers = self.last_requests(earlier)
        self._kept[token] = session, connection
        changes = {"session_token": token, "last_requests": numbers, "continues": True}
        data = session.welcome(welcome(hello, **changes), earlier)
        self.supersede(earlier, older)
        return data


def welcome(hello: Hello, **changes: Any) -> Welcome:
    fields: dict[str, Any] = {
        "protocol": 1,
        "run_id": "run",
        "run_name": "a run",
        "policy_version": 0,
        "first_slot": 0,
        "seeds": np.arange(hello.num_slots, dtype=np.uint64),
        "last_requests": (0,) * len(hello.groups),
        "limits": Limits().to_data(),
        "timeouts": dict.fromkeys(TIMEOUTS, 20.0),
    }
    return Welcome(**(fields | changes))


@contextlib.contextmanager
def listening(server: SoundServer) -> Iterator[str]:
    """Serve on loopback; yields the URL."""
    listener = serve(
        server.handle,
        "127.0.0.1",
        0,
        subprotocols=[SUBPROTOCOL],
        compression=None,
        close_timeout=0.2,
    )
    thread = threading.Thread(target=listener.serve_forever)
    thread.start()
    try:
        yield f"ws://127.0.0.1:{listener.socket.getsockname()[1]}"
    finally:
        listener.shutdown()
        thread.join()


class AnswersAnotherNumber(SoundServer):
    def answer(self, step, actions):
        action = Action(
            group=step.group, request=step.request + 1, policy_version=0, actions=(actions,)
        )
        return encode_message(action)


class SendsText(SoundServer):
    def answer(self, step, actions):
        return super().answer(step, actions).decode("latin-1")


class ShiftsRows(SoundServer):
    def answer(self, step, actions):
        return super().answer(step, np.roll(actions, 1))


class ExchangesGroups(SoundServer):
    def answer(self, step, actions):
        action = Action(
            group=1 - step.group, request=step.request, policy_version=0, actions=(actions,)
        )
        return encode_message(action)


class AnswersInNarrowIntegers(SoundServer):
    def answer(self, step, actions):
        return super().answer(step, actions.astype(np.int32))


class ForgetsWhereActionsStart(SoundServer):
    def answer(self, step, actions):
        return super().answer(step, actions - 5)


class IgnoresMasks(SoundServer):
    def answer(self, step, actions):
        return super().answer(step, np.where(actions > 5, actions - 1, actions + 1))


class AnswersAll(SoundServer):
    """Answers the rows that are silent as well."""

    def answer(self, step, actions):
        if step.asks is not None:
            actions = np.full(len(step.asks), 5, np.int64)
        return super().answer(step, actions)


class SpeaksFirst(SoundServer):
    def begin(self, connection):
        connection.send(encode_message(Busy(phase="collect", since_s=0.0)))


class TakesAnything(SoundServer):
    """Answers a step that it cannot take as if nothing were wrong with it."""

    def recover(self, error, connection):
        connection.send(
            encode_message(
                Action(group=0, request=2, policy_version=0, actions=(np.full(3, 5, np.int64),))
            )
        )
        return True


class IsSilentAboutFaults(SoundServer):
    def recover(self, error, connection):
        connection.close(1008, "")
        return True


class TellsSecrets(SoundServer):
    def sentence(self, error):
        return f"session {self.token}: {error.sentence}"


class TellsTracebacks(SoundServer):
    def sentence(self, error):
        return 'Traceback (most recent call last):\n  File "x.py", line 3'


class StaysAfterFault(SoundServer):
    def end(self, connection, reason):
        if reason != "fault":
            super().end(connection, reason)


class GoesOnAfterFault(SoundServer):
    def end(self, connection, reason):
        connection.send(encode_message(Busy(phase="collect", since_s=0.0)))
        super().end(connection, reason)


class ClosesWithAnotherCode(SoundServer):
    def end(self, connection, reason):
        connection.close(1011, reason)


class GoesOnWithAnybody(SoundServer):
    def keeps(self, before, now):
        return True


class ForgetsNumbers(SoundServer):
    def last_requests(self, earlier):
        return (0,) * len(earlier.last_requests)


class RepeatsItself(SoundServer):
    def repeat(self, session, connection, group):
        super().repeat(session, connection, group)
        super().repeat(session, connection, group)


class LeavesOlderConnectionAlone(SoundServer):
    def supersede(self, session, connection):
        """Let it wait."""


class GivesAnotherToken(SoundServer):
    def handle(self, connection):
        send = connection.send

        def send_changed(data):
            header, arrays = decode(data, Limits())
            if header.get("continues"):
                data = encode(header | {"session_token": "another"}, arrays)
            send(data)

        connection.send = send_changed
        super().handle(connection)
