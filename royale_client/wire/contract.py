"""What a session's hello demands of every step and every action, checked row by row without rows.

Both sessions use it: the client before it sends, so that a wrong environment is named where it
runs; the server before it believes. A check is a fixed number of array operations per leaf,
whatever the number of rows. That numbers are finite is not asked here. Whether any entry of a few
booleans is set is asked of their bytes, which costs a third of what ``any`` does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from royale_client.wire.array_table import Layout
from royale_client.wire.dtypes import DTYPES, Array
from royale_client.wire.episodes import check_records
from royale_client.wire.errors import ContractError, brief
from royale_client.wire.handshake import Hello, IntArray, Welcome
from royale_client.wire.limits import Limits
from royale_client.wire.narrowing import FLOAT16, leaves_as_sent
from royale_client.wire.snapshots import RESTART
from royale_client.wire.space_specs import (
    Leaf,
    MultiDiscreteSpec,
    SpaceSpec,
    leaves,
    mask_size,
)
from royale_client.wire.space_values import Bound, value_ranges
from royale_client.wire.turns import BoolArray, Step

_BOOL = DTYPES["?"]
_FLOAT64 = DTYPES["f8"]


class StepContract:
    """Checks the steps of one session.

    Args:
        hello: What the client declared.
        limits: Sizes of episode records.
        float16: Wider floats of observations travel as float16, as both sides agreed.
    """

    def __init__(self, hello: Hello, limits: Limits, *, float16: bool = False) -> None:
        self._groups = hello.groups
        sent = leaves_as_sent(hello.observation_space, float16=float16)
        self._leaves = tuple((leaf, _legal(leaf)) for leaf in sent)
        self._ranged = tuple(
            (place, legal) for place, (_, legal) in enumerate(self._leaves) if legal is not None
        )
        self._mask_size = mask_size(hello.action_space) if hello.masks else None
        self._mask_starts = _choice_starts(hello.action_space)
        rows = max(hello.groups)
        mask_bytes = ((self._mask_size or 0) + 7) // 8
        self._most_packed = {"asks": (rows + 7) // 8, "masks": rows * max(1, mask_bytes)}
        self._metrics = {metric.name: metric for metric in hello.episode_metrics}
        self._limits = limits

    def check_packed(self, layout: Layout) -> None:
        """Refuse bits that are more than any step has, before they are eight times as many bytes.

        Args:
            layout: Of the arrays of a message; their values are not looked at.

        Raises:
            ContractError: Names the array.
        """
        for name, (shape, _, _) in zip(layout.names, layout.spans, strict=True):
            most = self._most_packed.get(name)
            if most is not None and math.prod(shape) > most:
                raise ContractError(
                    "a packed array is larger than that of any step",
                    where=f"step.{name}",
                    got=f"{math.prod(shape)} elements",
                    expected=f"at most {most} bytes",
                    remedy="pack eight entries a byte, of the rows that the hello declared",
                )

    def check(self, step: Step, *, first: bool) -> int:
        """Refuse a step that does not fit the hello.

        Args:
            step: A step whose group exists.
            first: It is the group's first of the session, so it may come without rewards.

        Returns:
            Number of asking rows.

        Raises:
            ContractError: Says which array of which rows is wrong.
        """
        rows = self._groups[step.group]
        if step.num_rows != rows:
            raise _wrong(step, "rows", f"{step.num_rows}", f"{rows}, the slots of the group")
        asking = rows
        if step.asks is not None:
            self._check_row_array(step, "asks", step.asks, rows, _BOOL)
            asking = int(np.count_nonzero(step.asks))
        self._check_values(step, "observations", step.observations, asking)
        self._check_masks(step, asking)
        self._check_outcome(step, rows, first=first)
        return asking

    def holds_again(self, step: Step, asking: int, num_ended: int) -> bool:
        """Check the values of a step that is, but for them, like one that passed ``check``.

        It is of the same group and has the same arrays, rewards among them, of the same types and
        shapes; its values may be any.

        Args:
            step: The step.
            asking: Rows that asked in the one like it.
            num_ended: Rows that ended in the one like it.

        Returns:
            False if ``check`` has more to say.

        Raises:
            ContractError: An episode record does not fit.
        """
        asks, masks = step.asks, step.masks
        if asks is not None and np.count_nonzero(asks) != asking:
            return False
        if masks is not None and b"\0" in self._has_choices(masks).tobytes():
            return False
        assert step.terminated is not None
        assert step.truncated is not None
        if not (num_ended or step.episodes):
            if b"\1" in step.terminated.tobytes() or b"\1" in step.truncated.tobytes():
                return False
        else:
            ended = step.terminated | step.truncated
            if np.count_nonzero(ended) != num_ended:
                return False
            if step.episodes:
                check_records(step.episodes, ended, self._metrics, self._limits)
        for arrays in (step.observations, step.final_observations):
            if arrays is not None:
                for place, legal in self._ranged:
                    if not legal.holds(arrays[place]):
                        return False
        return True

    def _has_choices(self, masks: BoolArray) -> BoolArray:
        """Tell for each row and choice whether it has a legal entry. Shape ``(m, choices)``."""
        found: BoolArray = np.logical_or.reduceat(masks, self._mask_starts, axis=1)
        return found

    def _check_outcome(self, step: Step, rows: int, *, first: bool) -> None:
        """Check rewards, endings, final observations and episode records."""
        rewards, terminated, truncated = step.rewards, step.terminated, step.truncated
        if rewards is None or terminated is None or truncated is None:
            if not (rewards is None and terminated is None and truncated is None):
                raise _wrong(
                    step, "rewards, terminated, truncated", "some of them", "all three or none"
                )
            if not first:
                raise _wrong(step, "rewards", "none", "one per row after the first request")
            if step.final_observations is not None or step.episodes:
                raise _wrong(step, "final observations, episodes", "some", "none without rewards")
            return
        self._check_row_array(step, "rewards", rewards, rows, _FLOAT64)
        self._check_row_array(step, "terminated", terminated, rows, _BOOL)
        self._check_row_array(step, "truncated", truncated, rows, _BOOL)
        ended = terminated | truncated
        count = int(np.count_nonzero(ended))
        if count or step.final_observations is not None:
            self._check_values(step, "final_observations", step.final_observations or (), count)
        if step.episodes:
            check_records(step.episodes, ended, self._metrics, self._limits)

    def _check_values(self, step: Step, name: str, arrays: Sequence[Array], count: int) -> None:
        if len(arrays) != len(self._leaves):
            raise _wrong(step, name, f"{len(arrays)} leaves", f"{len(self._leaves)} leaves")
        for array, (leaf, legal) in zip(arrays, self._leaves, strict=True):
            if array.dtype != leaf.dtype or array.shape != (count, *leaf.shape):
                raise _misfit(array, leaf, count, f"{_place(step)}, {name}")
            if legal is not None and not legal.holds(array):
                raise _out_of_range(step, name, leaf, array, legal)

    def _check_masks(self, step: Step, asking: int) -> None:
        masks = step.masks
        if self._mask_size is None:
            if masks is not None:
                raise _wrong(step, "masks", "some", "none, since the hello declared none")
            return
        if masks is None or masks.shape != (asking, self._mask_size) or masks.dtype != np.bool_:
            got = "none" if masks is None else f"{masks.dtype.name} of shape {masks.shape}"
            raise _wrong(step, "masks", got, f"bool of shape {(asking, self._mask_size)}")
        found = self._has_choices(masks)
        if b"\0" in found.tobytes():
            row = _row_of(step, int(np.argmin(found.all(axis=1))))
            raise _wrong(step, f"masks of row {row}", "no legal action", "at least one per choice")

    @staticmethod
    def _check_row_array(
        step: Step, name: str, array: Array, rows: int, dtype: np.dtype[Any]
    ) -> None:
        if array.shape != (rows,) or array.dtype != dtype:
            raise _wrong(
                step, name, f"{array.dtype.name} of shape {array.shape}", f"{dtype.name} ({rows},)"
            )


class ActionContract:
    """Checks the actions of one session.

    Args:
        hello: What the client declared.
    """

    def __init__(self, hello: Hello) -> None:
        self._leaves = leaves(hello.action_space)

    def check(self, group: int, request: int, actions: Sequence[Array], count: int) -> None:
        """Refuse actions that are not one per asking row in the exact types of the space.

        Raises:
            ContractError: Says which leaf is wrong.
        """
        where = f"action to request {request} of group {group}"
        if len(actions) != len(self._leaves):
            raise ContractError(
                "the answer has another number of leaves",
                where=where,
                got=str(len(actions)),
                expected=str(len(self._leaves)),
            )
        for array, leaf in zip(actions, self._leaves, strict=True):
            if array.dtype != leaf.dtype or array.shape != (count, *leaf.shape):
                raise _misfit(array, leaf, count, where)


def check_welcome(welcome: Welcome, hello: Hello) -> None:
    """Refuse a welcome that does not answer this hello.

    Raises:
        ContractError: Protocol, seeds, groups or horizon do not fit, or the client cannot restore
            or send float16 observations.
    """
    facts = (
        (
            "protocol",
            str(welcome.protocol),
            f"{hello.protocol_min} to {hello.protocol_max}",
            hello.protocol_min <= welcome.protocol <= hello.protocol_max,
        ),
        (
            "seeds",
            f"shape {welcome.seeds.shape}",
            f"{hello.num_slots}, one per slot",
            welcome.seeds.shape == (hello.num_slots,),
        ),
        (
            "last_requests",
            f"{len(welcome.last_requests)} numbers",
            f"{len(hello.groups)}, one per group",
            len(welcome.last_requests) == len(hello.groups),
        ),
        (
            "horizon",
            str(welcome.horizon),
            "1, since a step carries one reward per row",
            welcome.horizon == 1,
        ),
        (
            "run_name",
            brief((welcome.run_id, welcome.run_name)),
            "printable characters, as in run_id",
            (welcome.run_id + welcome.run_name).isprintable(),
        ),
        (
            "session_token",
            "another character",  # not shown: it is a secret
            "printable characters",
            welcome.session_token.isprintable(),
        ),
        (
            "restores",
            "true",
            f"false, since the client has not the feature {RESTART!r}",
            not welcome.restores or RESTART in hello.features,
        ),
        (
            "continues",
            "true",
            "false, since the hello named no session",
            not welcome.continues or hello.resume_token is not None,
        ),
        (
            "features",
            f"{FLOAT16!r} among them",
            "features of the client only",
            FLOAT16 not in welcome.features or FLOAT16 in hello.features,
        ),
    )
    for key, got, expected, holds in facts:
        if not holds:
            raise ContractError(
                "the welcome does not answer the hello",
                where=f"welcome.{key}",
                got=got,
                expected=expected,
            )


def _misfit(array: Array, leaf: Leaf, count: int, where: str) -> ContractError:
    return ContractError(
        "an array does not fit its space",
        where=f"{where}, leaf {leaf.path or '(root)'}",
        got=f"{array.dtype.name} of shape {array.shape}",
        expected=f"{leaf.dtype.name} of shape {(count, *leaf.shape)}",
        remedy="send what the hello declared, one row per slot it concerns",
    )


def _choice_starts(action_space: SpaceSpec) -> IntArray:
    """Return where each choice begins within a mask row; only a vector has more than one."""
    sizes = action_space.nvec[:-1] if isinstance(action_space, MultiDiscreteSpec) else ()
    return np.cumsum((0, *sizes), dtype=np.int64)


def _row_of(step: Step, position: int) -> int:
    """Return the row of the group that is the ``position``-th to ask."""
    return position if step.asks is None else int(np.flatnonzero(step.asks)[position])


def _ended(step: Step) -> BoolArray:
    if step.terminated is None or step.truncated is None:
        return np.zeros(0, dtype=np.bool_)
    return step.terminated | step.truncated


@dataclass(frozen=True, slots=True, kw_only=True)
class _Legal:
    """The legal values of a leaf that counts or chooses."""

    low: Bound
    high: Bound
    unsigned: np.dtype[Any] | None
    """If ``low`` is 0: read as this type, a value below it is above ``top``."""
    top: Bound

    def holds(self, array: Array) -> bool:
        """Tell whether all values are legal."""
        if self.unsigned is not None:
            wrong = array.view(self.unsigned) > self.top
        else:
            wrong = (array < self.low) | (array > self.high)
        return b"\1" not in wrong.tobytes()


def _legal(leaf: Leaf) -> _Legal | None:
    legal = value_ranges(leaf)
    if legal is None:
        return None
    low, high = legal
    unsigned = DTYPES[f"u{leaf.dtype.itemsize}"] if isinstance(low, int) and low == 0 else None
    top = high if unsigned is None or isinstance(high, int) else high.astype(unsigned)
    return _Legal(low=low, high=high, unsigned=unsigned, top=top)


def _out_of_range(step: Step, name: str, leaf: Leaf, array: Array, legal: _Legal) -> ContractError:
    low, high = legal.low, legal.high
    wrong = ((array < low) | (array > high)).reshape(len(array), -1)
    position = int(np.argmax(wrong.any(axis=1)))
    row = (
        _row_of(step, position)
        if name == "observations"
        else int(np.flatnonzero(_ended(step))[position])
    )
    value = array[position].reshape(-1)[int(np.argmax(wrong[position]))]
    return _wrong(
        step,
        f"{name}, leaf {leaf.path or '(root)'}, row {row}",
        str(value),
        f"values from {np.min(low)} to {np.max(high)}",
    )


def _place(step: Step) -> str:
    return f"step {step.request} of group {step.group}"


def _wrong(step: Step, what: str, got: str, expected: str) -> ContractError:
    return ContractError(
        "the step does not fit the hello",
        where=f"{_place(step)}, {what}",
        got=got,
        expected=expected,
        remedy="correct the environment or the client; the session ends here, the run goes on",
    )
