"""The messages by which a server asks about an environment before anybody acts in it.

``probe`` asks one question of ``QUESTIONS``, ``probed`` answers it with what the environment itself
says. When they may be sent stands in ``grammar``; `Probes` holds what both sides must respect
besides. What an answer means is judged by the server's preflight, not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from royale_client.wire.dtypes import DTYPES, Array
from royale_client.wire.errors import ContractError, UnexpectedMessageError, brief
from royale_client.wire.fields import (
    Header,
    array,
    clean_text,
    free_text,
    free_texts,
    integer,
    optional_free_text,
)
from royale_client.wire.handshake import Hello
from royale_client.wire.limits import Limits
from royale_client.wire.spaces import mask_size

PROBE = "probe"
"""Feature of a client whose environments answer probes."""

LAYOUT, WAITING, LEGALITY = "layout", "waiting", "legality"
QUESTIONS = (LAYOUT, WAITING, LEGALITY)
"""What a server asks: what each action number does; which actions are legal in states that play
leads to, ended episodes among them; where the masks and what the environment then carries out
differ."""

MAX_STATES = 4096
"""States of one answer."""
MAX_STATE_LENGTH = 256
"""Characters of a state's description."""
MAX_COLUMNS = 16
"""Columns of a layout."""

_LIMITS = Limits()
_BOOL = np.dtype(np.bool_)
_I8 = DTYPES["i8"]

BoolArray = np.ndarray[Any, np.dtype[np.bool_]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProbeAnswer:
    """What an environment says; k states, A entries of an action mask."""

    states: tuple[str, ...] = ()
    """What each state is, for people."""
    masks: BoolArray | None = None
    """Legal actions as they would be sent with an observation. Shape ``(k, A)``."""
    verdicts: BoolArray | None = None
    """Whether the environment carried each action out when it was tried. Shape ``(k, A)``; absent
    where nothing was tried."""
    columns: tuple[str, ...] = ()
    """Names of the layout's columns."""
    layout: IntArray | None = None
    """What each action did when it was tried, -1 in every column where nothing happened. Shape
    ``(A, d)``; absent but for the question ``layout``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The server asks one question about the environment."""

    TYPE: ClassVar[str] = "probe"

    number: int
    """Names this probe in the answer."""
    question: str
    """One of ``QUESTIONS``; a client that does not know it answers with a failure."""

    def to_wire(self) -> tuple[Header, dict[str, Array]]:
        """Return header and no arrays."""
        return {"t": self.TYPE, "number": self.number, "question": self.question}, {}

    @classmethod
    def from_wire(cls, header: Header, arrays: Mapping[str, Array]) -> Probe:
        """Read a probe.

        Raises:
            MessageDecodeError: A header field is missing or of another kind.
            ContractError: There are arrays.
        """
        _refuse_strangers(arrays, (), cls.TYPE)
        return cls(
            number=integer(header, "number", cls.TYPE),
            question=free_text(header, "question", cls.TYPE, _LIMITS.max_name_length),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Probed:
    """The answer to a probe, or why there is none."""

    TYPE: ClassVar[str] = "probed"

    number: int
    """Number of the probe it answers."""
    answer: ProbeAnswer = field(default_factory=ProbeAnswer)
    """What the environment says; empty with a failure."""
    failure: str | None = None
    """Why there is no answer, as a sentence; None if there is one."""

    def to_wire(self) -> tuple[Header, dict[str, Array]]:
        """Return header and arrays."""
        answer = self.answer
        failure = self.failure
        header: Header = {
            "t": self.TYPE,
            "number": self.number,
            "failure": None if failure is None else clean_text(failure, _LIMITS.max_text_length),
            "states": [clean_text(state, MAX_STATE_LENGTH) for state in answer.states],
            "columns": [clean_text(name, _LIMITS.max_name_length) for name in answer.columns],
        }
        arrays: dict[str, Array] = {}
        for name, rows, dtype in (
            ("masks", answer.masks, _BOOL),
            ("verdicts", answer.verdicts, _BOOL),
            ("layout", answer.layout, _I8),
        ):
            if rows is not None:
                arrays[name] = np.ascontiguousarray(rows, dtype=dtype)
        return header, arrays

    @classmethod
    def from_wire(cls, header: Header, arrays: Mapping[str, Array]) -> Probed:
        """Read a probed; `Probes.check` says whether it fits what was asked.

        Raises:
            MessageDecodeError: A header field is missing or of another kind.
            ContractError: An array is of another type, or should not be there.
        """
        where = cls.TYPE
        _refuse_strangers(arrays, ("masks", "verdicts", "layout"), where)
        return cls(
            number=integer(header, "number", where),
            failure=optional_free_text(header, "failure", where, _LIMITS.max_text_length),
            answer=ProbeAnswer(
                states=free_texts(header, "states", where, MAX_STATES, MAX_STATE_LENGTH),
                masks=_rows(arrays, "masks", where, _BOOL),
                verdicts=_rows(arrays, "verdicts", where, _BOOL),
                columns=free_texts(header, "columns", where, MAX_COLUMNS, _LIMITS.max_name_length),
                layout=_rows(arrays, "layout", where, _I8),
            ),
        )


class Probes:
    """The probes of one session: one at a time, before the welcome.

    Args:
        hello: What the client declared.
    """

    def __init__(self, hello: Hello) -> None:
        self._has_feature = PROBE in hello.features
        self._features = hello.features
        self._num_actions = (mask_size(hello.action_space) or 0) if hello.masks else 0
        self._asked: Probe | None = None

    @property
    def outstanding(self) -> Probe | None:
        """The probe that has no answer, or None."""
        return self._asked

    def ask(self, probe: Probe) -> None:
        """Record that the server asks.

        Raises:
            UnexpectedMessageError: The client answers no probes, or one is outstanding.
        """
        if not self._has_feature:
            raise UnexpectedMessageError(
                "the client answers no probes",
                where=Probe.TYPE,
                got=f"features {brief(self._features)}",
                expected=f"the feature {PROBE!r}",
            )
        if self._asked is not None:
            raise UnexpectedMessageError(
                "a probe before the answer to the last",
                where=Probe.TYPE,
                got=f"probe {probe.number}",
                expected=f"none, until {self._asked.number} is answered",
            )
        self._asked = probe

    def check(self, probed: Probed) -> None:
        """Refuse an answer that does not fit what was asked.

        Raises:
            UnexpectedMessageError: That probe was not asked.
            ContractError: The arrays are not those of the question, or not of the action space.
        """
        asked = self._asked
        if asked is None or probed.number != asked.number:
            raise UnexpectedMessageError(
                "an answer to a probe that was not sent",
                where=Probed.TYPE,
                got=f"probe {probed.number}",
                expected="none" if asked is None else f"probe {asked.number}",
            )
        answer, n = probed.answer, self._num_actions
        rows = (len(answer.states), n)
        wanted: dict[str, tuple[int, int] | None] = dict.fromkeys(("masks", "verdicts", "layout"))
        if probed.failure is None and asked.question == LAYOUT:
            wanted["layout"] = (n, len(answer.columns))
        elif probed.failure is None:
            wanted["masks"] = rows
            wanted["verdicts"] = rows if asked.question == LEGALITY else None
        given = {"masks": answer.masks, "verdicts": answer.verdicts, "layout": answer.layout}
        for name, shape in wanted.items():
            array_ = given[name]
            if (None if array_ is None else array_.shape) != shape:
                raise ContractError(
                    "an array does not fit the probe",
                    where=f"{Probed.TYPE}.{name}",
                    got="none" if array_ is None else f"shape {array_.shape}",
                    expected="none" if shape is None else f"shape {shape}",
                )

    def answered(self) -> None:
        """Record that the answer was sent or received; the next probe may be sent."""
        self._asked = None


def _rows(
    arrays: Mapping[str, Array], name: str, where: str, dtype: np.dtype[Any]
) -> np.ndarray[Any, np.dtype[Any]] | None:
    return array(arrays, name, where, dtype, 2) if name in arrays else None


def _refuse_strangers(arrays: Mapping[str, Array], known: tuple[str, ...], where: str) -> None:
    strangers = sorted(set(arrays) - set(known))
    if strangers:
        raise ContractError(
            "the message holds arrays it should not",
            where=where,
            got=brief(strangers),
            expected="names as in the protocol document",
        )
