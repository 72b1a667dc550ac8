"""Steps and actions that are like an earlier one in all but their values, read and written at once.

Most turns of a session have the header of the one before but for its numbers, and arrays of the
same shapes. What was checked then about names, types and shapes needs no second check; the values
are checked as they always are. Where a method returns None or raises, the message is to be read or
written in full, which words every error.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from royale_client.wire.codec import Parsed, parse
from royale_client.wire.contract import StepContract
from royale_client.wire.dtypes import Array
from royale_client.wire.fields import maps
from royale_client.wire.forms import Forms, Hole, read_key
from royale_client.wire.limits import Limits
from royale_client.wire.turns import ACTIONS, FINALS, OBSERVATIONS, Action, Step, packed, unpacked

STEP_HOLES: dict[str, Hole] = {
    "request": "unsigned",
    "env_time_s": "double",
    "episodes": "list",
}
ACTION_HOLES: dict[str, Hole] = {"request": "unsigned", "policy_version": "unsigned"}

_OWN = Limits(max_message_bytes=2**62, max_header_bytes=2**62)
"""For what this side wrote: its size is the peer's business."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """What the steps of one form have in common."""

    group: int
    """Index of the group."""
    rows: int
    """Rows of the group."""
    asking: int
    """Rows that ask."""
    num_ended: int
    """Rows that ended."""
    mask_size: int
    """Entries of one mask; 0 without masks."""
    observations: slice
    """Where the leaves of the observations stand among the arrays."""
    finals: slice
    """Where the leaves of the final observations stand among the arrays."""
    columns: tuple[int, ...]
    """Where rewards, terminated and truncated stand among the arrays."""
    packed: tuple[int | None, int | None]
    """Where asks and masks stand, if they are there."""
    dtypes: tuple[np.dtype[Any], ...]
    """Types of the columns, in the order in which a step writes them."""


class StepForms:
    """Forms of the steps of one session, for whoever sends or receives them.

    Args:
        contract: What the hello demands.
        limits: What to refuse for its size.
    """

    def __init__(self, contract: StepContract, limits: Limits) -> None:
        self._contract = contract
        self._forms: Forms[StepFacts] = Forms(STEP_HOLES, limits)

    def __len__(self) -> int:
        """Return the number of forms that are kept."""
        return len(self._forms)

    def read(self, data: bytes | bytearray | memoryview) -> tuple[Step, int] | None:
        """Read a step of a known form that fits the hello; if its number may come is not asked.

        Returns:
            The step and the number of its asking rows.

        Raises:
            ProtocolError: It is none that fits.
        """
        found = self._forms.read(data)
        if found is None:
            return None
        facts, values, arrays = found
        request, env_time_s = values["request"], values["env_time_s"]
        if request == 0 or not 0.0 <= env_time_s < math.inf:
            return None
        asks, masks = facts.packed
        rewards, terminated, truncated = facts.columns
        step = Step(
            group=facts.group,
            request=request,
            asks=None if asks is None else unpacked(arrays[asks], facts.rows),
            observations=tuple(arrays[facts.observations]),
            masks=None if masks is None else unpacked(arrays[masks], facts.mask_size),
            rewards=arrays[rewards],
            terminated=arrays[terminated],
            truncated=arrays[truncated],
            final_observations=tuple(arrays[facts.finals]) or None,
            episodes=maps(values, "episodes", "step", facts.rows) if "episodes" in values else (),
            env_time_s=env_time_s,
        )
        holds = self._contract.holds_again(step, facts.asking, facts.num_ended)
        return (step, facts.asking) if holds else None

    def learn(self, message: Parsed, step: Step, asking: int) -> None:
        """Keep the form of a step that was read and fits the hello, if it comes again."""
        key, _ = read_key(message.buffer)
        if self._forms.is_wanted(key):
            self._forms.learn(key, message, _step_facts(message, step, asking))

    def write(self, step: Step) -> tuple[bytes, int] | None:
        """Write a step of a known form that fits the hello; return it and its asking rows.

        Raises:
            ProtocolError: It does not fit.
        """
        columns = step.columns()
        form = self._forms.find(_step_key(step, columns))
        if form is None:
            return None
        facts = form.facts
        if not _are_plain(columns.values(), facts.dtypes):
            return None
        if not self._contract.holds_again(step, facts.asking, facts.num_ended):
            return None
        values = {
            "request": step.request,
            "env_time_s": step.env_time_s,
            "episodes": step.episodes,
        }
        data = form.write(values, packed(columns).values())
        return None if data is None else (data, facts.asking)

    def learn_written(self, data: bytes, step: Step, asking: int) -> None:
        """Keep the form of a step that fits the hello and was written, if it comes again."""
        key = _step_key(step, step.columns())
        if self._forms.is_wanted(key):
            message = parse(data, _OWN)
            self._forms.learn(key, message, _step_facts(message, step, asking))


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFacts:
    """What the actions of one form have in common."""

    group: int
    """Index of the group."""
    count: int
    """Rows that asked."""
    actions: slice
    """Where the leaves of the actions stand among the arrays."""
    dtypes: tuple[np.dtype[Any], ...]
    """Type of each leaf of the actions."""


class ActionForms:
    """Forms of the actions of one session, for whoever sends or receives them.

    Args:
        limits: What to refuse for its size.
    """

    def __init__(self, limits: Limits) -> None:
        self._forms: Forms[ActionFacts] = Forms(ACTION_HOLES, limits)

    def read(self, data: bytes | bytearray | memoryview) -> tuple[Action, int] | None:
        """Read an action of a known form that fits the hello.

        Returns:
            The action and its number of rows; request and number are not held against anything.

        Raises:
            ProtocolError: It is none that fits.
        """
        found = self._forms.read(data)
        if found is None:
            return None
        facts, values, arrays = found
        if values["request"] == 0:
            return None
        action = Action(
            group=facts.group,
            request=values["request"],
            policy_version=values["policy_version"],
            actions=tuple(arrays[facts.actions]),
        )
        return action, facts.count

    def learn(self, message: Parsed, action: Action, count: int) -> None:
        """Keep the form of an action that was read and fits the hello, if it comes again."""
        key, _ = read_key(message.buffer)
        if self._forms.is_wanted(key):
            self._forms.learn(key, message, _action_facts(message, action, count))

    def write(
        self, group: int, request: int, policy_version: int, actions: Sequence[Array], count: int
    ) -> bytes | None:
        """Write an action of a known form for ``count`` rows; it fits the hello."""
        form = self._forms.find(_action_key(group, actions, count))
        if form is None or not _are_plain(actions, form.facts.dtypes):
            return None
        return form.write({"request": request, "policy_version": policy_version}, actions)

    def learn_written(self, data: bytes, action: Action, count: int) -> None:
        """Keep the form of an action that fits the hello and was written, if it comes again."""
        key = _action_key(action.group, action.actions, count)
        if self._forms.is_wanted(key):
            message = parse(data, _OWN)
            self._forms.learn(key, message, _action_facts(message, action, count))


def _step_facts(message: Parsed, step: Step, asking: int) -> StepFacts | None:
    names = message.layout.names
    finals = step.final_observations or ()
    observed = _run(names, OBSERVATIONS[: len(step.observations)])
    ended = _run(names, FINALS[: len(finals)])
    if step.rewards is None or observed is None or ended is None:
        return None
    return StepFacts(
        group=step.group,
        rows=step.num_rows,
        asking=asking,
        num_ended=len(finals[0]) if finals else 0,
        mask_size=0 if step.masks is None else step.masks.shape[1],
        observations=observed,
        finals=ended,
        columns=(names.index("rewards"), names.index("terminated"), names.index("truncated")),
        packed=(
            None if step.asks is None else names.index("asks"),
            None if step.masks is None else names.index("masks"),
        ),
        dtypes=tuple(column.dtype for column in step.columns().values()),
    )


def _action_facts(message: Parsed, action: Action, count: int) -> ActionFacts | None:
    actions = _run(message.layout.names, ACTIONS[: len(action.actions)])
    if action.assignments or action.discount is not None or actions is None:
        return None
    dtypes = tuple(leaf.dtype for leaf in action.actions)
    return ActionFacts(group=action.group, count=count, actions=actions, dtypes=dtypes)


def _run(names: tuple[str, ...], wanted: tuple[str, ...]) -> slice | None:
    """Return where ``wanted`` stands in ``names`` in one piece; None if it does not."""
    begin = names.index(wanted[0]) if wanted else 0
    run = slice(begin, begin + len(wanted))
    return run if names[run] == wanted else None


def _step_key(step: Step, columns: dict[str, Array]) -> Hashable:
    shapes = [column.shape for column in columns.values()]
    return (step.group, bool(step.episodes), *columns, *shapes)


def _action_key(group: int, actions: Sequence[Array], count: int) -> Hashable:
    return (group, count, *[array.shape for array in actions])


def _are_plain(arrays: Iterable[Array], dtypes: Iterable[np.dtype[Any]]) -> bool:
    """Tell whether arrays are of these types and travel as they lie in memory."""
    for array, dtype in zip(arrays, dtypes, strict=True):
        if array.dtype != dtype or not array.flags.c_contiguous:
            return False
    return True
