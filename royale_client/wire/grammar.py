"""The one place that says which message may follow which, and how requests are numbered.

Both sessions, and whoever grades a peer, read these tables. Data and small functions: no bytes, no
arrays, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from royale_client.wire.errors import UnexpectedMessageError


class Side(Enum):
    """Who sends."""

    __hash__ = object.__hash__  # every message is looked up; an Enum's own is a Python function

    CLIENT = "client"
    SERVER = "server"


class State(Enum):
    """Where a conversation stands."""

    __hash__ = object.__hash__

    OPENED = "opened"
    """The connection is there; nothing was said."""
    GREETED = "greeted"
    """The client has said hello."""
    PROMISED = "promised"
    """The server has said a welcome that promises a restore; the client waits for it."""
    RESTORING = "restoring"
    """The server has said restore; the client brings its environments back."""
    READY = "ready"
    """The handshake is over; turns go on."""
    STOPPING = "stopping"
    """The server has said stop; the client reports its last step, if it has one, and leaves."""
    INTERRUPTED = "interrupted"
    """The server has said stop while the client restores."""
    DISMISSED = "dismissed"
    """The server has said stop instead of welcome or restore; the client leaves."""
    LEFT = "left"
    """The client has said goodbye. It discards whatever arrives after it."""
    FAULTED = "faulted"
    """The server has said fault. It discards whatever arrives after it."""


TRANSITIONS: dict[Side, dict[State, dict[str, State]]] = {
    Side.CLIENT: {
        State.OPENED: {"hello": State.GREETED},
        State.GREETED: {"probed": State.GREETED, "goodbye": State.LEFT},
        State.PROMISED: {"log": State.PROMISED, "goodbye": State.LEFT},
        State.RESTORING: {
            "restored": State.READY,
            "log": State.RESTORING,
            "goodbye": State.LEFT,
        },
        State.READY: {
            "step": State.READY,
            "snapshotted": State.READY,
            "log": State.READY,
            "goodbye": State.LEFT,
        },
        State.STOPPING: {
            "step": State.STOPPING,
            "snapshotted": State.STOPPING,
            "log": State.STOPPING,
            "goodbye": State.LEFT,
        },
        State.INTERRUPTED: {
            "restored": State.STOPPING,
            "log": State.INTERRUPTED,
            "goodbye": State.LEFT,
        },
        State.DISMISSED: {
            "probed": State.DISMISSED,
            "log": State.DISMISSED,
            "goodbye": State.LEFT,
        },
        State.LEFT: {},
        State.FAULTED: {},
    },
    Side.SERVER: {
        State.OPENED: {"fault": State.FAULTED},
        State.GREETED: {
            "probe": State.GREETED,
            "welcome": State.READY,
            "busy": State.GREETED,
            "stop": State.DISMISSED,
            "fault": State.FAULTED,
        },
        State.PROMISED: {
            "restore": State.RESTORING,
            "busy": State.PROMISED,
            "stop": State.DISMISSED,
            "fault": State.FAULTED,
        },
        State.RESTORING: {
            "busy": State.RESTORING,
            "stop": State.INTERRUPTED,
            "fault": State.FAULTED,
        },
        State.READY: {
            "action": State.READY,
            "snapshot": State.READY,
            "busy": State.READY,
            "stop": State.STOPPING,
            "fault": State.FAULTED,
        },
        State.STOPPING: {"fault": State.FAULTED},
        State.INTERRUPTED: {"fault": State.FAULTED},
        State.DISMISSED: {"fault": State.FAULTED},
        State.LEFT: {"fault": State.FAULTED},
        State.FAULTED: {},
    },
}
"""For each sender and state, the messages that are legal and the state that follows.

A welcome that promises a restore is followed by ``PROMISED`` instead, see `after_welcome`.
"""


class Verdict(Enum):
    """What a request number means, given the last one of its group."""

    NEXT = "next"
    """The one number that may come."""
    DUPLICATE = "duplicate"
    """A number that came before."""
    EARLY = "early"
    """The next number, but the last request has no answer yet."""
    GAP = "gap"
    """A number beyond the next."""


CLOSE_CODES = {"finished": 1000, "stopping": 1001, "halted": 1001, "fault": 1008, "goodbye": 1000}
"""WebSocket close code after a stop (by its reason), a fault, or the client's goodbye."""


def may_send(side: Side, state: State, message: str) -> bool:
    """Tell whether ``side`` may send ``message`` now."""
    return message in TRANSITIONS[side][state]


def next_state(side: Side, state: State, message: str) -> State:
    """Return the state after ``side`` has sent ``message``.

    Raises:
        UnexpectedMessageError: That message is not legal in this state, or never sent by this side.
    """
    legal = TRANSITIONS[side][state]
    if message in legal:
        return legal[message]
    raise UnexpectedMessageError(
        f"{message} is not allowed now",
        where=f"{side.value}, session {state.value}",
        got=message,
        expected=" or ".join(legal) or "nothing more",
        remedy="follow the grammar of the protocol document",
    )


def after_welcome(*, restores: bool) -> State:
    """Return the state after a welcome, which may promise a restore."""
    return State.PROMISED if restores else State.READY


def judge(last: int, answered: bool, request: int) -> Verdict:
    """Say what request number ``request`` means after ``last``.

    Args:
        last: Number of the group's last request; 0 if there was none.
        answered: Whether that one has its answer. True if there was none.
        request: The number that came.
    """
    if request <= last:
        return Verdict.DUPLICATE
    if request > last + 1:
        return Verdict.GAP
    return Verdict.NEXT if answered else Verdict.EARLY


class Requests:
    """The request numbers of one session: at most one open request per group, none twice.

    Args:
        last_requests: Last number of each group, as the welcome names them; all answered.
    """

    def __init__(self, last_requests: Sequence[int]) -> None:
        self._first = [last + 1 for last in last_requests]
        self._last = list(last_requests)
        self._open = [False] * len(last_requests)
        self._may_come_again = [False] * len(last_requests)

    @property
    def last(self) -> tuple[int, ...]:
        """Number of each group's last request; 0 if there was none."""
        return tuple(self._last)

    def over_another_connection(self) -> Requests:
        """Return these requests as they stand, for a session that goes on over a new connection.

        The last request of each group may come once more there, before any other of the group.
        """
        requests = Requests(self._last)
        requests._first = list(self._first)
        requests._open = list(self._open)
        requests._may_come_again = [last > 0 for last in self._last]
        return requests

    def are_known_as(self, last_requests: Sequence[int]) -> bool:
        """Tell whether a server that received these can go on with what this client sent.

        It has every last request, but for those without an answer, which may be lost.
        """
        pairs = zip(self._last, self._open, last_requests, strict=True)
        return all(known in (last, last - is_open) for last, is_open, known in pairs)

    def comes_again(self, group: int, request: int) -> bool:
        """Record a last request that is sent once more, and tell whether this is one."""
        is_known = 0 <= group < len(self._last) and self._may_come_again[group]
        if not is_known or request != self._last[group]:
            return False
        self._may_come_again[group] = False
        return True

    def outstanding(self, group: int) -> int | None:
        """Return the number of the group's request that has no answer, or None.

        Raises:
            UnexpectedMessageError: There is no such group.
        """
        self._check_group(group)
        return self._last[group] if self._open[group] else None

    def is_first(self, group: int, request: int) -> bool:
        """Tell whether this is the group's first request, with no action before it."""
        return request == self._first[group]

    def all_open(self) -> bool:
        """Tell whether every group has a request without an answer."""
        return all(self._open)

    def reopen(self) -> None:
        """Take the last request of every group as open, as it was in an earlier session.

        Raises:
            UnexpectedMessageError: A request was sent in this session, or a group has none.
        """
        for group, last in enumerate(self._last):
            if last == 0 or self._open[group] or not self.is_first(group, last + 1):
                raise UnexpectedMessageError(
                    "there is no request of an earlier session to go on with",
                    where=f"group {group}",
                    got=f"last request {last}" + (", open" if self._open[group] else ""),
                )
        self._first = [0] * len(self._last)
        self._open = [True] * len(self._last)

    def next_number(self, group: int) -> int:
        """Return the number the group's next request must carry.

        That of the last if it has no answer and may come again.

        Raises:
            UnexpectedMessageError: There is no such group, or its last request has no answer.
        """
        self._check_group(group)
        last = self._last[group]
        if self._open[group]:
            if self._may_come_again[group]:
                return last
            self._check(group, last + 1)
        return last + 1

    def open(self, group: int, request: int) -> None:
        """Record a request, sent or received.

        Raises:
            UnexpectedMessageError: The number is not the group's next, the last one has no answer
                and may not come again, or there is no such group.
        """
        if not self.opens(group, request) and not self.comes_again(group, request):
            self._check_group(group)
            self._check(group, request)

    def opens(self, group: int, request: int) -> bool:
        """Record a request if it may come now, and tell whether it may."""
        if not 0 <= group < len(self._last):
            return False
        if judge(self._last[group], not self._open[group], request) is not Verdict.NEXT:
            return False
        self._last[group] = request
        self._open[group] = True
        self._may_come_again[group] = False
        return True

    def open_again(self, group: int) -> None:
        """Take the last request of a group as one without an answer: the answer was of no use."""
        self._check_group(group)
        self._open[group] = True

    def close(self, group: int, request: int) -> None:
        """Record the answer to a request, sent or received.

        Raises:
            UnexpectedMessageError: That request is not the one without an answer.
        """
        if not self.closes(group, request):
            self._check_group(group)
            raise UnexpectedMessageError(
                "an answer to a request that is not open",
                where=f"action, group {group}",
                got=f"request {request}",
                expected=f"request {self._last[group]}" if self._open[group] else "none",
            )

    def closes(self, group: int, request: int) -> bool:
        """Record the answer to a request if it is the open one, and tell whether it is."""
        if not 0 <= group < len(self._last):
            return False
        if not self._open[group] or request != self._last[group]:
            return False
        self._open[group] = False
        return True

    def _check(self, group: int, request: int) -> None:
        verdict = judge(self._last[group], not self._open[group], request)
        if verdict is not Verdict.NEXT:
            state = "open" if self._open[group] else "answered"
            raise UnexpectedMessageError(
                f"a request number out of order ({verdict.value})",
                where=f"step, group {group}",
                got=f"request {request}",
                expected=f"request {self._last[group] + 1}, after the answer to the one before; "
                f"{self._last[group]} is {state}",
                remedy="number the requests of each group 1, 2, 3, … and wait for each answer",
            )

    def _check_group(self, group: int) -> None:
        if not 0 <= group < len(self._last):
            raise UnexpectedMessageError(
                "no such group",
                where="group",
                got=str(group),
                expected=f"0 to {len(self._last) - 1}",
            )
