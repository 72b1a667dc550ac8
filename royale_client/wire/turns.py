"""The two messages of every turn, ``step`` and ``action``: the hot path of the protocol.

Reading and writing them takes a fixed number of operations per array, whatever the number of rows.
They know no space: that shapes, types and values fit the hello is checked in ``contract``.
The two classes are not frozen because that makes an object of many fields several times as costly;
nobody changes one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from royale_client.wire.dtypes import DTYPES, Array
from royale_client.wire.errors import ContractError, brief
from royale_client.wire.fields import Header, array, integer, number, optional_maps
from royale_client.wire.limits import Limits
from royale_client.wire.space_specs import MAX_LEAVES

BoolArray: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
FloatArray: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Arrays: TypeAlias = Mapping[str, Array]

OBSERVATIONS = tuple(f"o{index}" for index in range(MAX_LEAVES))
"""Array names of the observation leaves."""
FINALS = tuple(f"f{index}" for index in range(MAX_LEAVES))
"""Array names of the final observation leaves."""
ACTIONS = tuple(f"x{index}" for index in range(MAX_LEAVES))
"""Array names of the action leaves."""

DISCOUNT = "discount"
"""The feature of clients whose rewards depend on the learner's discount."""

MAX_ASSIGNMENTS = 2 * Limits().max_slots_per_session
"""Assignments in one message: two per slot."""

_U1 = DTYPES["u1"]
_F8 = DTYPES["f8"]


@dataclass(slots=True, kw_only=True, eq=False)
class Step:
    """What a group's last actions led to, and what it observes now.

    ``n`` rows are the slots of the group, ``m`` of them ask for an action, ``e`` of them ended an
    episode with their last action. Arrays of a received step are read-only views of the message.
    """

    TYPE: ClassVar[str] = "step"

    group: int
    """Index of the group, from 0."""
    request: int
    """Number of this request within its group, from 1."""
    asks: BoolArray | None = None
    """Which rows ask for an action. Shape ``(n,)``; None if all do."""
    observations: tuple[Array, ...]
    """Observations of the asking rows, in row order, per leaf. Shape ``(m, *leaf)``."""
    masks: BoolArray | None = None
    """Legal actions of the asking rows. Shape ``(m, mask_size)``; None if none were declared."""
    rewards: FloatArray | None = None
    """Reward of each row's last action. Shape ``(n,)``; None before the first action."""
    terminated: BoolArray | None = None
    """The episode reached an end of its own. Shape ``(n,)``; None together with ``rewards``."""
    truncated: BoolArray | None = None
    """The episode was cut, as by a time limit. Shape ``(n,)``; None together with ``rewards``."""
    final_observations: tuple[Array, ...] | None = None
    """Last observations of the ended rows, before a reset. Shape ``(e, *leaf)``; None if none."""
    episodes: tuple[dict[str, Any], ...] = ()
    """Records of the episodes that ended: row, return, length, time_s, metrics."""
    env_time_s: float = 0.0
    """Seconds the environments took for this step."""

    @property
    def num_rows(self) -> int:
        """Number of rows n of the group."""
        for column in (self.rewards, self.asks, *self.observations[:1]):
            if column is not None and column.ndim:
                return len(column)
        return 0

    def to_wire(self) -> tuple[Header, dict[str, Array]]:
        """Return header and arrays."""
        header: Header = {
            "t": self.TYPE,
            "group": self.group,
            "request": self.request,
            "rows": self.num_rows,
            "env_time_s": self.env_time_s,
        }
        if self.masks is not None:
            header["mask_size"] = self.masks.shape[1]
        if self.episodes:
            header["episodes"] = self.episodes
        return header, packed(self.columns())

    def columns(self) -> dict[str, Array]:
        """Return the arrays by the names and in the order in which they travel."""
        columns: dict[str, Array] = {}
        if self.asks is not None:
            columns["asks"] = self.asks
        columns.update(zip(OBSERVATIONS, self.observations, strict=False))
        if self.masks is not None:
            columns["masks"] = self.masks
        if self.rewards is not None:
            columns["rewards"] = np.asarray(self.rewards, dtype=_F8)
        if self.terminated is not None:
            columns["terminated"] = self.terminated
        if self.truncated is not None:
            columns["truncated"] = self.truncated
        if self.final_observations is not None:
            columns.update(zip(FINALS, self.final_observations, strict=False))
        return columns

    @classmethod
    def from_wire(cls, header: Header, arrays: Arrays) -> Step:
        """Read a step.

        Raises:
            MessageDecodeError: A header field is missing or of another kind.
            ContractError: An array has another type or shape than its name demands.
        """
        rows = integer(header, "rows", "step", low=1)
        observations = _numbered(arrays, OBSERVATIONS)
        finals = _numbered(arrays, FINALS)
        named = len(arrays) - len(observations) - len(finals)
        if named and sum(map(arrays.__contains__, _STEP_ARRAYS)) != named:
            raise _strangers(arrays, "step")
        step = cls(
            group=integer(header, "group", "step"),
            request=integer(header, "request", "step", low=1),
            asks=_bits(arrays, "asks", rows),
            observations=observations,
            masks=_mask_rows(header, arrays),
            rewards=arrays.get("rewards"),
            terminated=arrays.get("terminated"),
            truncated=arrays.get("truncated"),
            final_observations=finals or None,
            episodes=optional_maps(header, "episodes", "step", rows),
            env_time_s=number(header, "env_time_s", "step", low=0.0),
        )
        if step.num_rows != rows:
            raise ContractError(
                "the arrays have another number of rows than the header says",
                where="step.rows",
                got=f"{step.num_rows} rows",
                expected=f"{rows}",
            )
        return step


_STEP_ARRAYS = ("asks", "masks", "rewards", "terminated", "truncated")


@dataclass(slots=True, kw_only=True, eq=False)
class Action:
    """The answer to one request."""

    TYPE: ClassVar[str] = "action"

    group: int
    """Index of the group, from 0."""
    request: int
    """Number of the request it answers."""
    policy_version: int
    """Number of completed learn steps of the policy that chose the actions."""
    actions: tuple[Array, ...]
    """Actions of the rows that asked, in row order, per leaf. Shape ``(m, *leaf)``, exact dtype."""
    assignments: tuple[dict[str, Any], ...] = ()
    """For each episode that ended, who plays the episode after the next."""
    discount: float | None = None
    """Discount that rewards are shaped by, from what these actions lead to on; None: as before."""

    def to_wire(self) -> tuple[Header, dict[str, Array]]:
        """Return header and arrays."""
        header: Header = {
            "t": self.TYPE,
            "group": self.group,
            "request": self.request,
            "policy_version": self.policy_version,
        }
        if self.assignments:
            header["assignments"] = self.assignments
        if self.discount is not None:
            header[DISCOUNT] = self.discount
        return header, dict(zip(ACTIONS, self.actions, strict=False))

    @classmethod
    def from_wire(cls, header: Header, arrays: Arrays) -> Action:
        """Read an action.

        Raises:
            MessageDecodeError: A header field is missing or of another kind.
            ContractError: An array that no action has.
        """
        actions = _numbered(arrays, ACTIONS)
        if len(actions) != len(arrays):
            raise _strangers(arrays, "action")
        return cls(
            group=integer(header, "group", "action"),
            request=integer(header, "request", "action", low=1),
            policy_version=integer(header, "policy_version", "action"),
            actions=actions,
            assignments=optional_maps(header, "assignments", "action", MAX_ASSIGNMENTS),
            discount=_share(header, DISCOUNT, "action") if DISCOUNT in header else None,
        )


def _share(header: Header, key: str, where: str) -> float:
    """Read a number from 0 to 1."""
    value = number(header, key, where, low=0.0)
    if value > 1.0:
        raise ContractError(
            "a number is too large", where=f"{where}.{key}", got=f"{value}", expected="0 to 1"
        )
    return value


def _numbered(arrays: Arrays, names: tuple[str, ...]) -> tuple[Array, ...]:
    """Collect the arrays of a run of names, up to the first that is missing."""
    count = 0
    while count < len(names) and names[count] in arrays:
        count += 1
    return tuple([arrays[name] for name in names[:count]])


def _bits(arrays: Arrays, name: str, count: int) -> BoolArray | None:
    if name not in arrays:
        return None
    packed = array(arrays, name, "step", _U1, 1)
    if len(packed) != (count + 7) // 8:
        raise _wrong_bytes(name, len(packed), f"{(count + 7) // 8} for {count} rows")
    return unpacked(packed, count)


def packed(columns: dict[str, Array]) -> dict[str, Array]:
    """Pack ``asks`` and the rows of ``masks``, the first entry in the highest bit of a byte."""
    for name in ("asks", "masks"):
        if name in columns:
            columns[name] = np.packbits(columns[name], axis=-1)
    return columns


def unpacked(bits: Array, count: int) -> BoolArray:
    """Undo ``packed`` for one array, whose rows have ``count`` entries."""
    return np.unpackbits(bits, axis=-1, count=count).view(np.bool_)


def _mask_rows(header: Header, arrays: Arrays) -> BoolArray | None:
    if "masks" not in arrays:
        return None
    packed = array(arrays, "masks", "step", _U1, 2)
    size = integer(header, "mask_size", "step", low=1)
    if packed.shape[1] != (size + 7) // 8:
        raise _wrong_bytes("masks", packed.shape[1], f"{(size + 7) // 8} a row for {size} entries")
    return unpacked(packed, size)


def _wrong_bytes(name: str, got: int, expected: str) -> ContractError:
    return ContractError(
        "a packed array has another length",
        where=f"step.{name}",
        got=f"{got} bytes",
        expected=expected,
        remedy="pack eight rows a byte, the first in the highest bit",
    )


def _strangers(arrays: Arrays, where: str) -> ContractError:
    return ContractError(
        "the message holds arrays it should not",
        where=where,
        got=brief(sorted(arrays)),
        expected="names and numbering as in the protocol document",
    )
