"""A server for tests: the real server session, answering by a rule, in memory or over a socket.

It learns nothing and schedules nothing: every request is answered as soon as it is allowed.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

from royale_client.transport import ConnectionLostError
from royale_client.wire.messages import Goodbye, Hello, Step, Welcome
from royale_client.wire.spaces import leaves
from royale_client.wire.version import SUBPROTOCOL
from royale_server.endpoint.session import (
    GoodbyeReceived,
    HelloReceived,
    ServerSession,
    StepReceived,
)

Rule = Callable[["FakeServer", Step], list[bytes]]


class FakeServer:
    """One session of a server that records what it gets.

    Args:
        rule: Returns the messages to send for one step; the default answers it at once.
        action: Value of every action that is answered.
    """

    def __init__(self, rule: Rule | None = None, action: int = 1) -> None:
        self.session = ServerSession()
        self.steps: list[Step] = []
        self.hello: Hello | None = None
        self.goodbye: Goodbye | None = None
        self.version = 0
        self._rule = rule or (lambda server, step: [server.answer(step)])
        self._action = action

    def take(self, data: bytes) -> list[bytes]:
        """Take one message of the client and return what to send."""
        replies = []
        for event in self.session.receive(data):
            match event:
                case HelloReceived(hello=hello):
                    self.hello = hello
                    replies.append(self.welcome(hello))
                case StepReceived(step=step):
                    self.steps.append(step)
                    replies += self._rule(self, step)
                case GoodbyeReceived(goodbye=goodbye):
                    self.goodbye = goodbye
        return replies

    def welcome(self, hello: Hello) -> bytes:
        return self.session.welcome(
            Welcome(
                protocol=1,
                session_token="token",
                run_id="run",
                run_name="a run",
                policy_version=self.version,
                first_slot=0,
                seeds=np.arange(100, 100 + hello.num_slots, dtype=np.uint64),
                last_requests=(0,) * len(hello.groups),
            )
        )

    def answer(self, step: Step) -> bytes:
        """Answer one step with the same action in every asking row."""
        assert self.hello is not None
        rows = step.num_rows if step.asks is None else int(step.asks.sum())
        actions = tuple(
            np.full((rows, *leaf.shape), self._action, leaf.dtype)
            for leaf in leaves(self.hello.action_space)
        )
        return self.session.action(step.group, step.request, self.version, actions)


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
