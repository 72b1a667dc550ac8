"""The messages that save environments and bring them back: ``snapshot`` to ``restored``.

What is inside a state only the client that wrote it knows; here it is a block of bytes. When these
messages may be sent stands in ``grammar``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from royale_client.wire.dtypes import DTYPES, Array
from royale_client.wire.errors import ContractError, brief
from royale_client.wire.fields import Header, array, clean_text, integer, optional_free_text
from royale_client.wire.limits import Limits

Block: TypeAlias = bytes | bytearray | memoryview | np.ndarray[Any, np.dtype[np.uint8]]
"""A state as a caller may hand it over: bytes, or an array of them."""

SNAPSHOT = "snapshot"
"""Feature of a client whose environments can be snapshotted and restored."""
RESTART = "restart"
"""Feature of a client that can begin fresh episodes when it is told to."""

STATES = tuple(f"s{index}" for index in range(Limits().max_groups))
"""Array names of the states, one per group."""

_LIMITS = Limits()
_U1 = DTYPES["u1"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The server wants the environments of all groups as they are now."""

    TYPE: ClassVar[str] = "snapshot"

    number: int
    """Names this snapshot in the answer."""

    def to_wire(self) -> tuple[Header, dict[str, Array]]:
        """Return header and no arrays."""
        return {"t": self.TYPE, "number": self.number}, {}

    @classmethod
    def from_wire(cls, header: Header, arrays: Mapping[str, Array]) -> Snapshot:
        """Read a snapshot.

        Raises:
            MessageDecodeError: The number is missing or of another kind.
            ContractError: There are arrays.
        """
        _refuse_strangers(arrays, 0, cls.TYPE)
        return cls(number=integer(header, "number", cls.TYPE))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Snapshotted:
    """The answer to a snapshot: the states, or why there are none."""

    TYPE: ClassVar[str] = "snapshotted"

    number: int
    """Number of the snapshot it answers."""
    states: tuple[Array, ...] = ()
    """State of each group, opaque. Shape ``(k,)``, k >= 1, uint8; none with a failure."""
    failure: str | None = None
    """Why there is no snapshot, as a sentence; None if there is one."""

    def to_wire(self) -> tuple[Header, dict[str, Array]]:
        """Return header and one array per state."""
        header = {"t": self.TYPE, "number": self.number, "failure": _cleaned(self.failure)}
        return header, _named(self.states)

    @classmethod
    def from_wire(cls, header: Header, arrays: Mapping[str, Array]) -> Snapshotted:
        """Read a snapshotted.

        Raises:
            MessageDecodeError: A header field is missing or of another kind.
            ContractError: A state is no block of bytes, or there are states beside a failure, or
                neither.
        """
        snapshotted = cls(
            number=integer(header, "number", cls.TYPE),
            states=_states(arrays, cls.TYPE),
            failure=_failure(header, cls.TYPE),
        )
        if bool(snapshotted.states) == (snapshotted.failure is not None):
            raise ContractError(
                "a snapshot has either states or a failure",
                where="snapshotted.failure",
                got=f"{len(arrays)} states and {brief(snapshotted.failure)}",
                expected="one state per group and nil, or no state and a sentence",
            )
        return snapshotted


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Restore:
    """The server hands back the states of an earlier snapshot, or says that it has none."""

    TYPE: ClassVar[str] = "restore"

    states: tuple[Array, ...] = ()
    """State of each group. Shape ``(k,)``, k >= 1, uint8; none makes the episodes begin afresh."""

    def to_wire(self) -> tuple[Header, dict[str, Array]]:
        """Return header and one array per state."""
        return {"t": self.TYPE}, _named(self.states)

    @classmethod
    def from_wire(cls, _header: Header, arrays: Mapping[str, Array]) -> Restore:
        """Read a restore.

        Raises:
            ContractError: A state is no block of bytes.
        """
        return cls(states=_states(arrays, cls.TYPE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The answer to a restore: the environments stand where they stood, or begin afresh."""

    TYPE: ClassVar[str] = "restored"

    failure: str | None = None
    """Why the states could not be used, as a sentence; the episodes then begin afresh."""

    def to_wire(self) -> tuple[Header, dict[str, Array]]:
        """Return header and no arrays."""
        return {"t": self.TYPE, "failure": _cleaned(self.failure)}, {}

    @classmethod
    def from_wire(cls, header: Header, arrays: Mapping[str, Array]) -> Restored:
        """Read a restored.

        Raises:
            MessageDecodeError: The failure is no sentence.
            ContractError: There are arrays.
        """
        _refuse_strangers(arrays, 0, cls.TYPE)
        return cls(failure=_failure(header, cls.TYPE))


def as_states(blocks: Sequence[Block]) -> tuple[Array, ...]:
    """Return states as the arrays that travel, without copying them.

    Raises:
        ContractError: A state is empty.
    """
    for group, block in enumerate(blocks):
        if not len(block):
            raise _empty(f"state of group {group}")
    return tuple(np.frombuffer(block, dtype=_U1) for block in blocks)


def _named(states: tuple[Array, ...]) -> dict[str, Array]:
    return dict(zip(STATES, states, strict=False))


def _states(arrays: Mapping[str, Array], where: str) -> tuple[Array, ...]:
    """Read the states, which are numbered from 0 without a gap."""
    count = 0
    while count < len(STATES) and STATES[count] in arrays:
        count += 1
    _refuse_strangers(arrays, count, where)
    states = tuple(array(arrays, name, where, _U1, 1) for name in STATES[:count])
    for name, state in zip(STATES, states, strict=False):
        if not len(state):
            raise _empty(f"{where}.{name}")
    return states


def _refuse_strangers(arrays: Mapping[str, Array], known: int, where: str) -> None:
    if len(arrays) != known:
        raise ContractError(
            "the message holds arrays it should not",
            where=where,
            got=brief(sorted(arrays)),
            expected="names and numbering as in the protocol document",
        )


def _empty(where: str) -> ContractError:
    return ContractError("a state is empty", where=where, got="0 bytes", expected="at least 1")


def _cleaned(failure: str | None) -> str | None:
    return None if failure is None else clean_text(failure, _LIMITS.max_text_length)


def _failure(header: Header, where: str) -> str | None:
    return optional_free_text(header, "failure", where, _LIMITS.max_text_length)
