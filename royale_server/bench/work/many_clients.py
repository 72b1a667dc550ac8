"""Many clients in one process, with environments that cost nothing: what loads a server for scale.

Speaks the protocol by its messages alone. Plays until it is ended.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import secrets
import time
from pathlib import Path

import numpy as np
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from royale_client.wire.limits import Limits
from royale_client.wire.messages import Action, Hello, Step, decode_message, encode_message
from royale_client.wire.spaces import BoxSpec, DiscreteSpec
from royale_client.wire.version import SUBPROTOCOL
from royale_server.bench.work import sockets
from royale_server.bench.work.networks import NUM_ACTIONS, NUM_OBSERVATIONS
from royale_server.bench.work.sizes import make_step

SETTINGS = {**sockets.SETTINGS, "subprotocols": [Subprotocol(SUBPROTOCOL)]}


def measure(*, url: str, clients: int, slots: int, answered: str) -> dict[str, float]:
    """Play for ever.

    Args:
        url: Of the server.
        clients: Connections.
        slots: Slots of each.
        answered: File that receives how many seconds passed until every client had its first
            actions.
    """
    sockets.run(_Crowd(url, clients, slots, Path(answered)).play())
    return {}


class _Crowd:
    def __init__(self, url: str, clients: int, slots: int, answered: Path) -> None:
        self._url = url
        self._clients = clients
        self._slots = slots
        self._file = answered
        self._started = time.monotonic()
        self._waiting = clients
        self._step = make_step(slots, [("<f4", (NUM_OBSERVATIONS,))])

    async def play(self) -> None:
        """Let all clients play."""
        await asyncio.gather(*(self._client(number) for number in range(self._clients)))

    async def _client(self, number: int) -> None:
        limits = Limits()
        async with connect(self._url, **SETTINGS) as connection:
            await connection.send(encode_message(self._hello(number)))
            await connection.recv()  # the welcome
            await connection.send(encode_message(self._first()))
            request = 1
            async for data in connection:
                assert isinstance(data, bytes), "the protocol is binary"
                if not isinstance(decode_message(data, limits), Action):
                    continue  # a note that the server is busy
                if request == 1:
                    self._note_answer()
                request += 1
                step = dataclasses.replace(self._step, request=request)
                await connection.send(encode_message(step))

    def _first(self) -> Step:
        return dataclasses.replace(
            self._step, request=1, rewards=None, terminated=None, truncated=None
        )

    def _note_answer(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            seconds = time.monotonic() - self._started
            self._file.write_text(json.dumps({"all_answered_s": seconds}), "utf-8")

    def _hello(self, number: int) -> Hello:
        return Hello(
            client_name=f"client-{number}",
            process_id=secrets.token_hex(8),
            env_id="nothing",
            observation_space=BoxSpec(-np.inf, np.inf, (NUM_OBSERVATIONS,), "float32"),
            action_space=DiscreteSpec(NUM_ACTIONS),
            groups=(self._slots,),
        )
