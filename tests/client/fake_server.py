"""A server for tests: the real server session, answering by a rule, in memory or over a socket.

It learns nothing and schedules nothing: every request is answered as soon as it is allowed.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

from royale_client.transport import ConnectionLostError
from royale_client.wire.messages import (
    Goodbye,
    Hello,
    Restored,
    Snapshotted,
    Step,
    Welcome,
)
from royale_client.wire.spaces import leaves
from royale_client.wire.version import SUBPROTOCOL
from royale_server.endpoint.session import (
    GoodbyeReceived,
    HelloReceived,
    RestoredReceived,
    ServerSession,
    SnapshottedReceived,
    StepReceived,
    StepReceivedAgain,
)

Rule = Callable[["FakeServer", Step], list[bytes]]


class FakeServer:
    """One session of a server that records what it gets.

    Args:
        rule: Returns the messages to send for one step; the default answers it at once.
        action: Value of every action that is answered.
        last_requests: Last request of each group, as another server has left them.
        states: What to restore; None promises no restore, and an empty list means afresh.
        asking: Rows of each group that ask in its restored request; None takes all.
        features: Those of the client's that it makes use of, if the client has them.
        earlier: The server of the lost connection, whose session goes on here.
    """

    def __init__(
        self,
        rule: Rule | None = None,
        action: int = 1,
        last_requests: tuple[int, ...] | None = None,
        states: Sequence[bytes] | None = None,
        asking: tuple[int, ...] | None = None,
        *,
        features: tuple[str, ...] = (),
        earlier: FakeServer | None = None,
    ) -> None:
        self.session = ServerSession()
        self.steps_again: list[Step] = []
        self._earlier = earlier
        self.steps: list[Step] = []
        self.snapshots: list[Snapshotted] = []
        self.restored: Restored | None = None
        self.hello: Hello | None = None
        self.goodbye: Goodbye | None = None
        self.version = 0
        self._rule = rule or (lambda server, step: [server.answer(step)])
        self._action = action
        self._last_requests = last_requests
        self._states = states
        self._restored_asking = asking
        self._features = features
        self._asking: dict[int, int] = {}

    def take(self, data: bytes) -> list[bytes]:
        """Take one message of the client and return what to send."""
        replies = []
        for event in self.session.receive(data):
            match event:
                case HelloReceived(hello=hello):
                    self.hello = hello
                    replies.append(self.welcome(hello))
                    replies += self.restore()
                case StepReceived(step=step, asking=asking):
                    self.steps.append(step)
                    self._asking[step.group] = asking
                    replies += self._rule(self, step)
                case StepReceivedAgain(step=step):
                    self.steps_again.append(step)
                    replies.append(self._answer_again(step))
                case SnapshottedReceived(snapshotted=snapshotted):
                    self.snapshots.append(snapshotted)
                    replies += self.answer_all()
                case RestoredReceived(restored=restored, to_adopt=to_adopt):
                    self.restored = restored
                    replies += self._adopt() if to_adopt else []
                case GoodbyeReceived(goodbye=goodbye):
                    self.goodbye = goodbye
        return replies

    def _answer_again(self, step: Step) -> bytes:
        if self.session.outstanding(step.group) is None:
            return self.session.last_answer(step.group)
        self._asking[step.group] = step.num_rows
        return self.answer(step)

    def welcome(self, hello: Hello) -> bytes:
        earlier = None if self._earlier is None else self._earlier.session
        return self.session.welcome(
            Welcome(
                protocol=1,
                session_token="token",
                run_id="run",
                run_name="a run",
                policy_version=self.version,
                first_slot=0,
                seeds=np.arange(100, 100 + hello.num_slots, dtype=np.uint64),
                last_requests=(
                    self._last_requests or (0,) * len(hello.groups)
                    if earlier is None
                    else earlier.last_requests
                ),
                continues=earlier is not None,
                restores=self._states is not None,
                features=tuple(name for name in self._features if name in hello.features),
            ),
            earlier,
        )

    def restore(self) -> list[bytes]:
        """Hand out what is to be restored, if anything was promised."""
        return [] if self._states is None else [self.session.restore(self._states)]

    def _adopt(self) -> list[bytes]:
        assert self.hello is not None
        asking = self._restored_asking or self.hello.groups
        self.session.adopt(asking)
        self._asking = dict(enumerate(asking))
        return self.answer_all()

    def answer(self, step: Step) -> bytes:
        """Answer one step with the same action in every asking row."""
        return self._answer(step.group, step.request)

    def answer_all(self) -> list[bytes]:
        """Answer every open request."""
        numbers = {group: self.session.outstanding(group) for group in self._asking}
        return [self._answer(group, number) for group, number in numbers.items() if number]

    def _answer(self, group: int, request: int) -> bytes:
        assert self.hello is not None
        actions = tuple(
            np.full((self._asking[group], *leaf.shape), self._action, leaf.dtype)
            for leaf in leaves(self.hello.action_space)
        )
        return self.session.action(group, request, self.version, actions)


class ServerTransport:
    """The client's transport to a FakeServer in the same thread; nothing ever waits."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.closed: tuple[int, str] | None = None
        self.is_lost = False
        self._inbox: deque[bytes] = deque()

    def send(self, data: bytes) -> None:
        if self.is_lost:
            raise ConnectionLostError("cut by the test")
        self._inbox.extend(self.server.take(data))

    def receive(self, timeout_s: float | None) -> bytes | None:
        if self._inbox:
            return self._inbox.popleft()
        if self.is_lost:
            raise ConnectionLostError("cut by the test")
        return None

    def close(self, code: int, reason: str) -> None:
        self.closed = (code, reason)


class SocketServer:
    """FakeServers behind a real WebSocket on loopback, one per connection.

    Args:
        make: Returns the session for the next connection.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        options: Passed on to websockets.
    """

    def __init__(
        self,
        make: Callable[[], FakeServer] = FakeServer,
        host: str = "127.0.0.1",
        port: int = 0,
        **options: Any,
    ) -> None:
        self.sessions: list[FakeServer] = []
        self.num_ended = 0
        self.changed = threading.Condition()
        self._make = make
        self._server: Server = serve(
            self._serve, host, port, subprotocols=[SUBPROTOCOL], compression=None, **options
        )
        self.port: int = self._server.socket.getsockname()[1]
        self._thread = threading.Thread(target=self._server.serve_forever)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def __enter__(self) -> SocketServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()

    def _serve(self, connection: ServerConnection) -> None:
        server = self._make()
        with self.changed:
            self.sessions.append(server)
            self.changed.notify_all()
        try:
            while True:
                replies = server.take(connection.recv(decode=False))
                with self.changed:
                    self.changed.notify_all()
                for reply in replies:
                    # A client that has said goodbye is not there to hear the answer.
                    with contextlib.suppress(ConnectionClosed):
                        connection.send(reply)
        except ConnectionClosed:
            with self.changed:
                self.num_ended += 1
                self.changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
        """Wait until something holds that messages and connections change."""
        with self.changed:
            assert self.changed.wait_for(condition, timeout_s)
