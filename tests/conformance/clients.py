"""A small client that is sound and runs the probe, and clients that each break one thing."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from royale_client.conformance.probe import (
    ACTION_SPACE,
    OBSERVATION_SPACE,
    PROBE_ENV_ID,
    ProbeState,
)
from royale_client.session import Answered, ClientSession, Faulted, Stopped, Welcomed
from royale_client.wire.errors import ProtocolError
from royale_client.wire.messages import Goodbye, Hello, Step, Welcome, encode_message
from royale_client.wire.version import SUBPROTOCOL

GROUPS = (3, 2)


class SoundClient:
    """Plays the probe in two groups; a row that ended asks at once in its next episode."""

    def __init__(self) -> None:
        self.slots: list[list[ProbeState]] = []

    # --- what others break ---------------------------------------------------------------

    def hello(self) -> Hello:
        return Hello(
            client_name="small",
            process_id="p",
            env_id=PROBE_ENV_ID,
            observation_space=OBSERVATION_SPACE,
            action_space=ACTION_SPACE,
            groups=GROUPS,
        )

    def greeted(self, connection: ClientConnection) -> None:
        """The hello was said."""

    def seeds(self, welcome: Welcome) -> list[int]:
        return list(welcome.seeds.tolist())

    def believe(self, session: ClientSession, data: bytes | str) -> list[Any]:
        """Read a message; raises what a server must not send."""
        return session.receive(data)

    def act(self, group: int, actions: list[int]) -> Step:
        """Carry actions out, and describe what came of them; the number is added later."""
        slots = [
            slot.after(action) for slot, action in zip(self.slots[group], actions, strict=True)
        ]
        ended = [slot for slot in slots if slot.terminated or slot.truncated]
        self.slots[group] = [
            slot.next_episode() if slot.terminated or slot.truncated else slot for slot in slots
        ]
        return Step(
            group=group,
            request=0,
            observations=(observed(self.slots[group]),),
            rewards=np.array([slot.reward for slot in slots]),
            terminated=np.array([slot.terminated for slot in slots]),
            truncated=np.array([slot.truncated for slot in slots]),
            final_observations=(observed(ended),) if ended else None,
        )

    def send_step(self, connection: ClientConnection, step: Step) -> None:
        connection.send(encode_message(step))

    def leave(self, connection: ClientConnection) -> None:
        """The server said stop."""
        connection.send(encode_message(Goodbye(reason="stopped")))

    def first_number(self, welcome: Welcome, group: int) -> int:
        return welcome.last_requests[group] + 1

    def after_fault(self, url: str) -> None:
        """The server said fault; the connection is closed."""

    # --- the rest --------------------------------------------------------------------------

    def run(self, url: str) -> None:
        fault = None
        with contextlib.suppress(ConnectionClosed, ProtocolError), self._connected(url) as link:
            fault = self._converse(link)
        if fault:
            self.after_fault(url)

    @staticmethod
    def _connected(url: str) -> ClientConnection:
        return connect(
            url, subprotocols=[SUBPROTOCOL], compression=None, proxy=None, close_timeout=0.2
        )

    def _converse(self, link: ClientConnection) -> bool:
        session = ClientSession(self.hello())
        link.send(session.start())
        self.greeted(link)
        numbers: dict[int, int] = {}
        while True:
            for event in self.believe(session, link.recv()):
                match event:
                    case Welcomed(welcome=welcome):
                        self._begin(session, link, welcome, numbers)
                    case Answered(group=group, actions=actions):
                        numbers[group] += 1
                        step = self.act(group, actions[0].tolist())
                        self._send(session, link, replace(step, request=numbers[group]))
                    case Stopped():
                        self.leave(link)
                        link.recv()  # until it is closed
                    case Faulted():
                        return True

    def _begin(
        self,
        session: ClientSession,
        link: ClientConnection,
        welcome: Welcome,
        numbers: dict[int, int],
    ) -> None:
        seeds = self.seeds(welcome)
        self.slots = []
        for group, rows in enumerate(GROUPS):
            self.slots.append([ProbeState.seeded(seed) for seed in seeds[:rows]])
            seeds = seeds[rows:]
            numbers[group] = self.first_number(welcome, group)
            first = Step(
                group=group,
                request=numbers[group],
                observations=(observed(self.slots[group]),),
            )
            self._send(session, link, first)

    def _send(self, session: ClientSession, link: ClientConnection, step: Step) -> None:
        # The session has to know of it, and what is sent is the affair of `send_step`.
        outcome = {} if step.rewards is None else {"rewards": step.rewards}
        if outcome:
            outcome |= {"terminated": step.terminated, "truncated": step.truncated}
        session.step(
            step.group,
            observations=step.observations,
            final_observations=step.final_observations,
            **outcome,
        )
        self.send_step(link, step)


def observed(slots: list[ProbeState]) -> np.ndarray[Any, Any]:
    return np.array([slot.observation for slot in slots], np.float32).reshape(len(slots), 4)


def starting(kind: type[SoundClient]) -> Callable[[str], Callable[[], None]]:
    """What starts such a client in a thread, and ends it."""

    def start(url: str) -> Callable[[], None]:
        thread = threading.Thread(target=kind().run, args=(url,))
        thread.start()
        return lambda: thread.join(10.0)

    return start


class ShiftsRows(SoundClient):
    def act(self, group, actions):
        return super().act(group, actions[1:] + actions[:1])


class ActsTwice(SoundClient):
    def act(self, group, actions):
        super().act(group, actions)
        return super().act(group, actions)


class MergesEndings(SoundClient):
    def act(self, group, actions):
        step = super().act(group, actions)
        ended = step.terminated | step.truncated
        return replace(step, terminated=ended, truncated=np.zeros_like(ended))


class SendsNextEpisodeAsFinal(SoundClient):
    def act(self, group, actions):
        step = super().act(group, actions)
        if step.final_observations is None:
            return step
        ended = step.terminated | step.truncated
        return replace(step, final_observations=(step.observations[0][ended],))


class ForgetsToReset(SoundClient):
    def act(self, group, actions):
        step = super().act(group, actions)
        if step.final_observations is None:
            return step
        shown = step.observations[0].copy()
        shown[step.terminated | step.truncated] = step.final_observations[0]
        return replace(step, observations=(shown,))


class SeedsAsItLikes(SoundClient):
    def seeds(self, welcome):
        return [seed + 1 for seed in super().seeds(welcome)]


class SendsText(SoundClient):
    def send_step(self, connection, step):
        connection.send(encode_message(step).decode("latin-1"))


class SendsWideObservations(SoundClient):
    def send_step(self, connection, step):
        wide = step.observations[0].astype(np.float64)
        super().send_step(connection, replace(step, observations=(wide,)))


class AsksTwice(SoundClient):
    def send_step(self, connection, step):
        super().send_step(connection, step)
        super().send_step(connection, replace(step, request=step.request + 1))


class CountsFromOne(SoundClient):
    def send_step(self, connection, step):
        first = 41 if step.group == 0 else 7
        request = step.request - first if step.request > first else step.request
        super().send_step(connection, replace(step, request=request))


class StepsUnwelcome(SoundClient):
    def greeted(self, connection):
        slots = [ProbeState.seeded(0)] * GROUPS[0]
        connection.send(encode_message(Step(group=0, request=1, observations=(observed(slots),))))


class IgnoresStop(SoundClient):
    def leave(self, connection):
        """Stay."""


class LeavesWithoutGoodbye(SoundClient):
    def leave(self, connection):
        connection.close()


class SpeaksAfterGoodbye(SoundClient):
    def leave(self, connection):
        super().leave(connection)
        super().leave(connection)


class ComesBackAfterFault(SoundClient):
    def after_fault(self, url):
        with contextlib.suppress(ConnectionClosed), self._connected(url) as link:
            link.recv()


class BelievesEverything(SoundClient):
    """Takes whatever comes for an answer to its first group's third request."""

    def believe(self, session, data):
        try:
            return super().believe(session, data)
        except ProtocolError:
            slots = [ProbeState.seeded(0)] * GROUPS[0]
            step = Step(group=0, request=4, observations=(observed(slots),))
            self._link.send(encode_message(step))
            return []

    def greeted(self, connection):
        self._link = connection


class HangsOnNonsense(SoundClient):
    """Neither believes a broken server nor leaves it."""

    def believe(self, session, data):
        try:
            return super().believe(session, data)
        except ProtocolError:
            return []


class ComesBackWithoutToken(SoundClient):
    def hello(self):
        return replace(super().hello(), features=("reconnect",))

    def run(self, url):
        super().run(url)
        super().run(url)


class StaysAway(SoundClient):
    def hello(self):
        return replace(super().hello(), features=("reconnect",))
