"""When environments may be saved and brought back, beyond the order of messages in ``grammar``.

Both sessions hold these rules: the server before it asks, the client before it believes.
"""

from __future__ import annotations

from collections.abc import Sequence

from royale_client.wire.errors import ContractError, UnexpectedMessageError, brief
from royale_client.wire.grammar import Requests
from royale_client.wire.handshake import Hello
from royale_client.wire.snapshots import SNAPSHOT, Snapshotted


class Snapshots:
    """The snapshots of one session: one at a time, and only while the client waits for actions.

    Args:
        hello: What the client declared.
    """

    def __init__(self, hello: Hello) -> None:
        self._hello = hello
        self._asked: int | None = None

    @property
    def outstanding(self) -> int | None:
        """Number of the snapshot that has no answer, or None."""
        return self._asked

    def ask(self, number: int, requests: Requests) -> None:
        """Record that the server asks for a snapshot.

        Raises:
            UnexpectedMessageError: The client cannot do that, one is outstanding, or a request of
                the client has its answer already, so that its environments are not at rest.
        """
        _check_feature(self._hello, "snapshot")
        if self._asked is not None:
            raise UnexpectedMessageError(
                "a snapshot before the answer to the last",
                where="snapshot",
                got=f"snapshot {number}",
                expected=f"none, until {self._asked} is answered",
            )
        if not requests.all_open():
            raise UnexpectedMessageError(
                "a snapshot of environments that are not at rest",
                where="snapshot",
                got=f"snapshot {number}",
                expected="every group to have a request without an answer",
            )
        self._asked = number

    def check(self, answer: Snapshotted) -> None:
        """Refuse an answer that does not fit what was asked.

        Raises:
            UnexpectedMessageError: That snapshot was not asked for.
            ContractError: There are neither as many states as groups nor a failure without any.
        """
        if answer.number != self._asked:
            raise UnexpectedMessageError(
                "an answer to a snapshot that was not asked for",
                where="snapshotted",
                got=f"snapshot {answer.number}",
                expected="none" if self._asked is None else f"snapshot {self._asked}",
            )
        wanted = len(self._hello.groups) if answer.failure is None else 0
        if len(answer.states) != wanted:
            raise ContractError(
                "another number of states than groups",
                where="snapshotted",
                got=f"{len(answer.states)} states and {brief(answer.failure)}",
                expected=f"{len(self._hello.groups)} states, or none and a failure",
            )

    def answered(self) -> None:
        """Record that the answer was sent or received; the next snapshot may be asked for."""
        self._asked = None


def check_restore(num_states: int, last_requests: Sequence[int], hello: Hello) -> None:
    """Refuse states that do not fit the session.

    Args:
        num_states: How many there are.
        last_requests: Last request of each group, as the welcome names them.
        hello: What the client declared.

    Raises:
        UnexpectedMessageError: States for a client that cannot use them, or for groups that have
            no request to go on with.
        ContractError: Neither one state per group nor none.
    """
    if num_states == 0:
        return
    _check_feature(hello, "restore")
    if num_states != len(hello.groups):
        raise ContractError(
            "another number of states than groups",
            where="restore",
            got=f"{num_states} states",
            expected=f"{len(hello.groups)}, or none",
        )
    if 0 in last_requests:
        raise UnexpectedMessageError(
            "states for groups without a request to go on with",
            where="restore",
            got=f"last requests {brief(last_requests)}",
            expected="a request of every group, or no states",
        )


def check_asking(asking: Sequence[int], hello: Hello) -> None:
    """Refuse numbers of asking rows that the groups cannot have.

    Raises:
        ContractError: Not one number per group, or more rows than the group has.
    """
    sizes = hello.groups
    if len(asking) != len(sizes) or any(
        not 0 <= count <= size for count, size in zip(asking, sizes, strict=True)
    ):
        raise ContractError(
            "restored requests ask for another number of rows than their groups have",
            where="asking",
            got=brief(tuple(asking)),
            expected=f"per group, at most {brief(sizes)}",
        )


def _check_feature(hello: Hello, where: str) -> None:
    """Refuse a message about states of environments that have none.

    Raises:
        UnexpectedMessageError: The client has not the feature.
    """
    if SNAPSHOT not in hello.features:
        raise UnexpectedMessageError(
            "the client can neither snapshot nor restore its environments",
            where=where,
            got=f"features {brief(hello.features)}",
            expected=f"the feature {SNAPSHOT!r}",
        )
