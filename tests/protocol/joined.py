"""A client and a server session joined in memory, with shorthands for the tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from royale_client.session import Answered, ClientSession
from royale_client.wire.messages import Hello, Welcome
from royale_client.wire.spaces import mask_size
from royale_server.endpoint.session import HelloReceived, ServerSession, StepReceived
from tests.wire.builders import make_hello, make_welcome, rows_of


class Joined:
    """Both sessions of one conversation; every helper carries bytes across."""

    def __init__(self, hello: Hello | None = None, server: ServerSession | None = None) -> None:
        self.hello = hello or make_hello()
        self.client = ClientSession(self.hello)
        self.server = server or ServerSession()
        self._started: set[int] = set()

    def greet(self) -> HelloReceived:
        (event,) = self.server.receive(self.client.start())
        assert isinstance(event, HelloReceived)
        return event

    def admit(self, **changes: Any) -> Welcome:
        welcome = make_welcome(self.hello, **changes)
        self.client.receive(self.server.welcome(welcome))
        return welcome

    def step(self, group: int = 0, **changes: Any) -> StepReceived:
        (event,) = self.server.receive(self.client.step(group, **self.content(group, **changes)))
        assert isinstance(event, StepReceived)
        self._started.add(group)
        return event

    def answer(self, group: int = 0, version: int = 0, **changes: Any) -> Answered:
        request = self.server.outstanding(group)
        assert request is not None
        actions = changes.pop("actions", rows_of(self.hello.action_space, self.hello.groups[group]))
        data = self.server.action(group, request, version, actions, **changes)
        (event,) = self.client.receive(data)
        assert isinstance(event, Answered)
        return event

    def turn(self, group: int = 0) -> StepReceived:
        event = self.step(group)
        self.answer(group)
        return event

    def content(self, group: int = 0, **changes: Any) -> dict[str, Any]:
        """What a step of this group holds; with rewards after the first of the session."""
        n = self.hello.groups[group]
        size = mask_size(self.hello.action_space) if self.hello.masks else None
        content: dict[str, Any] = {"observations": rows_of(self.hello.observation_space, n)}
        if size is not None:
            content["masks"] = np.ones((n, size), dtype=bool)
        if group in self._started:
            content["rewards"] = np.ones(n)
            content["terminated"] = np.zeros(n, dtype=bool)
            content["truncated"] = np.zeros(n, dtype=bool)
        return {**content, **changes}


def ready(hello: Hello | None = None) -> Joined:
    """A conversation past its handshake."""
    joined = Joined(hello)
    joined.greet()
    joined.admit()
    return joined
