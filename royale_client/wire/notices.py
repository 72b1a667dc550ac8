"""The messages beside the turns: ``busy``, ``stop``, ``goodbye``, ``fault`` and ``log``.

Free texts are cut and cleaned when they are written, so that saying what went wrong cannot fail,
and when they are read, so that they cannot steer a terminal or pass for lines of a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from royale_client.wire.dtypes import Array
from royale_client.wire.errors import FAULT_CODES, ContractError, brief
from royale_client.wire.fields import (
    Header,
    clean_text,
    free_text,
    integer,
    maps,
    number,
    optional_free_text,
    text,
)
from royale_client.wire.limits import Limits

STOP_REASONS = ("finished", "stopping", "halted")
"""Why a server ends a session in order: run complete, stopped by its operator, or by an alarm."""

_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """Why the client is waiting; sent at least every 5 s while it does."""

    TYPE: ClassVar[str] = "busy"

    phase: str
    """What the server does, such as ``collect`` or ``learn``."""
    since_s: float
    """Seconds this has lasted."""
    expected_s: float | None = None
    """Seconds it is expected to last still; None if unknown."""
    waiting_for: str = ""
    """Who or what is waited for, in words."""

    def to_wire(self) -> tuple[Header, dict[str, Array]]:
        """Return header and no arrays."""
        return {
            "t": self.TYPE,
            "phase": clean_text(self.phase, _LIMITS.max_name_length),
            "since_s": self.since_s,
            "expected_s": self.expected_s,
            "waiting_for": clean_text(self.waiting_for, _LIMITS.max_text_length),
        }, {}

    @classmethod
    def from_wire(cls, header: Header, _arrays: Mapping[str, Array]) -> Busy:
        """Read a busy.

        Raises:
            MessageDecodeError: A field is missing or of another kind.
        """
        expected = header.get("expected_s")
        return cls(
            phase=free_text(header, "phase", "busy", _LIMITS.max_name_length),
            since_s=number(header, "since_s", "busy", 0.0),
            expected_s=None if expected is None else number(header, "expected_s", "busy", 0.0),
            waiting_for=free_text(header, "waiting_for", "busy", _LIMITS.max_text_length),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The server ends the session in order; no answer will come any more."""

    TYPE: ClassVar[str] = "stop"

    reason: str
    """One of ``finished``, ``stopping``, ``halted``."""
    message: str = ""
    """A sentence for the person at the client."""

    def to_wire(self) -> tuple[Header, dict[str, Array]]:
        """Return header and no arrays."""
        message = clean_text(self.message, _LIMITS.max_text_length)
        return {"t": self.TYPE, "reason": self.reason, "message": message}, {}

    @classmethod
    def from_wire(cls, header: Header, _arrays: Mapping[str, Array]) -> Stop:
        """Read a stop.

        Raises:
            MessageDecodeError: A field is missing or of another kind.
            ContractError: An unknown reason.
        """
        reason = text(header, "reason", "stop", _LIMITS.max_name_length)
        if reason not in STOP_REASONS:
            raise _unknown("stop.reason", reason, STOP_REASONS)
        message = free_text(header, "message", "stop", _LIMITS.max_text_length)
        return cls(reason=reason, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodbye:
    """The client leaves; nothing follows."""

    TYPE: ClassVar[str] = "goodbye"

    reason: str
    """Why, in words."""
    exception: str | None = None
    """Text of the exception that ended the client, if one did."""

    def to_wire(self) -> tuple[Header, dict[str, Array]]:
        """Return header and no arrays."""
        size = _LIMITS.max_text_length
        exception = None if self.exception is None else clean_text(self.exception, size)
        return {
            "t": self.TYPE,
            "reason": clean_text(self.reason, size),
            "exception": exception,
        }, {}

    @classmethod
    def from_wire(cls, header: Header, _arrays: Mapping[str, Array]) -> Goodbye:
        """Read a goodbye.

        Raises:
            MessageDecodeError: A field is missing or of another kind.
        """
        size = _LIMITS.max_text_length
        return cls(
            reason=free_text(header, "reason", "goodbye", size),
            exception=optional_free_text(header, "exception", "goodbye", size),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The server ends the session because of what the client sent, or of what itself failed at."""

    TYPE: ClassVar[str] = "fault"

    code: str
    """Key into ``FAULT_CODES``."""
    message: str
    """What, where, got, expected and remedy, in one line. Never a traceback."""

    def to_wire(self) -> tuple[Header, dict[str, Array]]:
        """Return header and no arrays."""
        message = clean_text(self.message, _LIMITS.max_text_length)
        return {"t": self.TYPE, "code": self.code, "message": message}, {}

    @classmethod
    def from_wire(cls, header: Header, _arrays: Mapping[str, Array]) -> Fault:
        """Read a fault.

        Raises:
            MessageDecodeError: A field is missing or of another kind.
            ContractError: An unknown code.
        """
        code = text(header, "code", "fault", _LIMITS.max_name_length)
        if code not in FAULT_CODES:
            raise _unknown("fault.code", code, tuple(FAULT_CODES))
        message = free_text(header, "message", "fault", _LIMITS.max_text_length)
        return cls(code=code, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Log records of the client, sent when there is room and lost when there is not."""

    TYPE: ClassVar[str] = "log"

    records: tuple[dict[str, Any], ...]
    """Each with ``time_s`` (Unix time at the client), ``level``, ``logger`` and ``message``."""
    dropped: int = 0
    """Records lost since the last log message."""

    def to_wire(self) -> tuple[Header, dict[str, Array]]:
        """Return header and no arrays."""
        records = [
            {
                "time_s": record["time_s"],
                "level": clean_text(record["level"], _LIMITS.max_name_length),
                "logger": clean_text(record["logger"], _LIMITS.max_name_length),
                "message": clean_text(record["message"], _LIMITS.max_text_length),
            }
            for record in self.records
        ]
        return {"t": self.TYPE, "records": records, "dropped": self.dropped}, {}

    @classmethod
    def from_wire(cls, header: Header, _arrays: Mapping[str, Array]) -> Log:
        """Read a log.

        Raises:
            MessageDecodeError: A field of the message or of a record is missing or of another kind.
        """
        records = tuple(
            {
                "time_s": number(record, "time_s", "log.records"),
                "level": free_text(record, "level", "log.records", _LIMITS.max_name_length),
                "logger": free_text(record, "logger", "log.records", _LIMITS.max_name_length),
                "message": free_text(record, "message", "log.records", _LIMITS.max_text_length),
            }
            for record in maps(header, "records", "log", _LIMITS.max_log_records)
        )
        return cls(records=records, dropped=integer(header, "dropped", "log"))


def _unknown(where: str, got: str, known: tuple[str, ...]) -> ContractError:
    return ContractError(
        "an unknown word", where=where, got=brief(got), expected=f"one of {', '.join(known)}"
    )
