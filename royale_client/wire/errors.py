"""The exception tree of the whole product, and the fault codes that travel over the wire.

::

    RoyaleError                      root of everything this product raises on purpose
    ├── ConfigError (ValueError)     a setting or a local description is wrong; the user repairs it
    └── ProtocolError                a message or a peer broke the protocol; has a fault ``code``
        ├── MessageDecodeError       malformed   the bytes are no message
        ├── UnexpectedMessageError   unexpected  a legal message at an illegal moment
        ├── VersionMismatchError     version     the protocol ranges do not meet
        ├── SpaceMismatchError       spaces      the environment differs from the run's
        ├── LimitError               limit       larger than what is allowed
        └── ContractError            contract    shape, dtype, count, mask or value broke the hello

Packages add their own branches below ``RoyaleError``. An error says what, where, what was got, what
was expected and what to do about it; it never carries a traceback of the peer.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import ClassVar

MAX_SENTENCE_LENGTH = 1024
"""Characters of an error sentence; longer ones are cut, since a peer may be quoted in them."""

_brief = reprlib.Repr()
_brief.maxstring = 80
_brief.maxother = 80
_brief.maxlevel = 3


def brief(value: object) -> str:
    """Show a value of any size in at most a few dozen characters, for an error sentence."""
    return _brief.repr(value)


def one_line(text: str) -> str:
    """Write what a peer said so that it cannot pass for lines of a log, or steer a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class RoyaleError(Exception):
    """Root of all errors this product raises on purpose."""


class ConfigError(RoyaleError, ValueError):
    """A setting, or a description made by the local program, is wrong."""


class ProtocolError(RoyaleError):
    """A message, or the peer that sent it, broke the protocol.

    Args:
        what: What is wrong, as the core of a sentence.
        where: Message, field, row or path it concerns; empty if the whole message.
        got: What arrived, already readable; empty if that says nothing.
        expected: What would have been right, already readable.
        remedy: What the person at the other end can do about it.
    """

    code: ClassVar[str] = "malformed"
    """Key into ``FAULT_CODES``; what a ``fault`` message about this error carries."""

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        got: str = "",
        expected: str = "",
        remedy: str = "",
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.got = got
        self.expected = expected
        self.remedy = remedy

    @property
    def sentence(self) -> str:
        """The error as one readable line, fit to be sent to the peer."""
        facts = [f"got {self.got}"] if self.got else []
        facts += [f"expected {self.expected}"] if self.expected else []
        parts = [self.what, ", ".join(facts), self.remedy]
        text = "; ".join(part for part in parts if part)
        return (f"{self.where}: {text}" if self.where else text)[:MAX_SENTENCE_LENGTH]

    def __str__(self) -> str:
        return self.sentence


class MessageDecodeError(ProtocolError):
    """The bytes are not a message of this protocol."""

    code = "malformed"


class UnexpectedMessageError(ProtocolError):
    """A well-formed message that the grammar does not allow at this moment."""

    code = "unexpected"


class VersionMismatchError(ProtocolError):
    """Client and server have no protocol version in common."""

    code = "version"


class SpaceMismatchError(ProtocolError):
    """The environment of this client is not the one the run is about."""

    code = "spaces"


class LimitError(ProtocolError):
    """A message, or what it announces, is larger than allowed."""

    code = "limit"


class ContractError(ProtocolError):
    """A message contradicts what its session declared in the hello."""

    code = "contract"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultCode:
    """What a fault code means to the client that receives it."""

    retry: bool
    """True if the same client may connect again by itself and hope to be served."""
    meaning: str
    """One sentence for the documentation and for log lines."""


FAULT_CODES: dict[str, FaultCode] = {
    "malformed": FaultCode(retry=False, meaning="The bytes are not a message of this protocol."),
    "unexpected": FaultCode(retry=False, meaning="The grammar does not allow this message now."),
    "version": FaultCode(retry=False, meaning="No protocol version in common; upgrade one side."),
    "spaces": FaultCode(retry=False, meaning="The environment's spaces are not those of the run."),
    "limit": FaultCode(retry=False, meaning="Something is larger than the server allows."),
    "contract": FaultCode(retry=False, meaning="The message contradicts the session's hello."),
    "timeout": FaultCode(retry=True, meaning="A request was owed for longer than allowed."),
    "capacity": FaultCode(retry=True, meaning="The server is full now; try again later."),
    "quarantine": FaultCode(
        retry=True, meaning="The client broke the protocol too often; try again later."
    ),
    "refused": FaultCode(retry=False, meaning="The server does not admit this client to the run."),
    "internal": FaultCode(retry=True, meaning="The server failed; the client did nothing wrong."),
}
"""Every code a ``fault`` message may carry."""
