"""The server under test: how to connect to it, and how to take part."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence

from royale_client.conformance.link import Link, RefusedError, dialled
from royale_client.conformance.scenario import Settings, SetupError
from royale_client.conformance.scripted_group import ACTION_SPACE, OBSERVATION_SPACE
from royale_client.conformance.server_talk import ServerTalk
from royale_client.transport import ServerAddress
from royale_client.wire.grammar import State
from royale_client.wire.messages import Hello
from royale_client.wire.version import SUBPROTOCOL

NUM_SLOTS = 3
PRESENTED = ""
"""Stands for the token of the settings."""


class ServerUnderTest:
    """Where the server is, and what the suite has learnt of it.

    Args:
        address: Where to connect; its token is presented.
        settings: How patient to be.
    """

    def __init__(self, address: ServerAddress, settings: Settings) -> None:
        self.settings = settings
        self._secrets = {settings.token} if settings.token else set[str]()
        self._address = address
        self._nonce = secrets.token_hex(3)
        self._num_clients = 0

    @contextlib.contextmanager
    def opened(
        self, *, token: str | None = PRESENTED, subprotocols: Sequence[str] = (SUBPROTOCOL,)
    ) -> Iterator[Link]:
        """Open a connection, and close it in the end.

        Args:
            token: What to present as the token; None presents none.
            subprotocols: What to offer.

        Raises:
            RefusedError: The server does not take it.
            SetupError: Nobody answers.
        """
        if token == PRESENTED:
            token = self.settings.token
        with dialled(
            self._address, self.settings.timeout_s, token=token, subprotocols=subprotocols
        ) as link:
            yield link

    def hello(self) -> Hello:
        """Introduce one more client."""
        self._num_clients += 1
        return Hello(
            client_name=f"conformance-{self._nonce}-{self._num_clients}",
            process_id=f"{self._nonce}-{self._num_clients}",
            env_id="royale-conformance-v1",
            observation_space=OBSERVATION_SPACE,
            action_space=ACTION_SPACE,
            groups=(NUM_SLOTS,),
            masks=True,
        )

    @contextlib.contextmanager
    def talk(self, hello: Hello | None = None) -> Iterator[ServerTalk]:
        """Connect; nothing is said yet."""
        try:
            with self.opened() as link:
                yield ServerTalk(link, hello or self.hello(), self.settings, self._secrets)
        except RefusedError as error:
            raise SetupError(
                f"the server refused the connection: {error}; if it wants a token, set "
                "ROYALE_TOKEN or --token-file"
            ) from error

    @contextlib.contextmanager
    def session(self, hello: Hello | None = None) -> Iterator[ServerTalk]:
        """Connect and take part; leave in order, unless something went wrong."""
        with self.talk(hello) as talk:
            talk.greet()
            yield talk
            if talk.state is State.READY:
                talk.leave()
