"""Follows the probe of the client under test, slot by slot, and says which clause a row breaks.

The suite knows every action that it gave, so it knows every observation, reward and ending that
must come back. Knows no connection.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from royale_client.conformance.probe import (
    ACTION_SPACE,
    OBSERVATION_SPACE,
    PROBE_ENV_ID,
    Observation,
    ProbeState,
)
from royale_client.conformance.scenario import ViolationError
from royale_client.wire.dtypes import Array
from royale_client.wire.messages import Hello, Step
from royale_client.wire.spaces import BoxSpec


def is_probe(hello: Hello) -> bool:
    """Tell whether a client says that it runs the probe, and see that its spaces are the probe's.

    Raises:
        ViolationError: They are not.
    """
    if hello.env_id.rpartition(":")[2] != PROBE_ENV_ID:
        return False
    space = hello.observation_space
    is_like = isinstance(space, BoxSpec) and (space.shape, space.dtype) == ((4,), "float32")
    if not is_like or hello.action_space != ACTION_SPACE or hello.masks:
        text = f"a probe whose spaces are not {OBSERVATION_SPACE} and {ACTION_SPACE}, no masks"
        raise ViolationError(("P13",), text)
    return True


class ProbeWatch:
    """The slots of one group.

    Args:
        group: Number of the group.
        seeds: What the welcome said, one per slot of the group.
    """

    def __init__(self, group: int, seeds: Sequence[int]) -> None:
        self._group = group
        self._slots = [ProbeState.seeded(seed) for seed in seeds]
        self._given: list[int | None] = [None] * len(seeds)
        self._awaits_reset = [False] * len(seeds)
        self._unknown: set[int] = set()
        """Rows that stand where another session left them, until they show it."""
        self._is_new = True

    def copy(self) -> ProbeWatch:
        """Remember where everything stands."""
        return copy.deepcopy(self)

    def gave(self, asks: Array, actions: Array) -> None:
        """Note the actions of the rows that asked."""
        self._given = [None] * len(self._slots)
        for row, action in zip(np.flatnonzero(asks).tolist(), actions.tolist(), strict=True):
            self._given[row] = action

    def check(self, step: Step) -> None:
        """Hold a step that fits its hello against what must have come of the actions.

        Raises:
            ViolationError: A row tells something else.
        """
        rows = len(self._slots)
        asks = np.ones(rows, np.bool_) if step.asks is None else step.asks
        observed = _by_row(np.flatnonzero(asks), step.observations[0])
        is_new, self._is_new = self._is_new, False
        if step.rewards is None:
            self._check_fresh(observed)
            return
        if is_new:
            self._unknown = set(range(rows))
        assert step.terminated is not None
        assert step.truncated is not None
        ends = np.flatnonzero(step.terminated | step.truncated)
        finals = step.final_observations
        final = _by_row(ends, finals[0]) if finals else {}
        for row in range(rows):
            where = f"request {step.request} of group {self._group}, row {row}"
            action = self._given[row]
            if action is not None:
                state = self._slots[row] = self._slots[row].after(action)
                self._check_reward(where, state, float(step.rewards[row]), row)
                endings = bool(step.terminated[row]), bool(step.truncated[row])
                is_farewell = not asks.any()
                self._check_ending(where, state, endings, final.get(row), is_farewell)
                self._awaits_reset[row] = any(endings)
            self._check_observation(where, row, observed.get(row))

    def _check_fresh(self, observed: dict[int, Observation]) -> None:
        for row, state in enumerate(self._slots):
            where = f"first request of group {self._group}, row {row}"
            if row not in observed:
                raise ViolationError(("P28",), f"{where} does not ask")
            if observed[row][1:] != state.observation[1:]:
                text = f"{where} shows {observed[row]}, which is no fresh episode"
                raise ViolationError(("P27",), text)
            if observed[row] != state.observation:
                text = f"{where} shows the seed {observed[row][0]:g}, welcomed with {state.seed}"
                raise ViolationError(("P24",), text)

    def _check_reward(self, where: str, state: ProbeState, reward: float, row: int) -> None:
        if reward == state.reward:
            return
        episode, rest = divmod(reward, 1000)
        count, action = divmod(rest, 10)
        told = f"{where}: reward {reward:g} tells of action {action:g}"
        told += f" in step {count:g} of episode {episode:g}"
        given = f"given was action {state.action} in step {state.step} of episode {state.episode}"
        if (episode, count) != (state.episode, state.step):
            raise ViolationError(("P25", "P33"), f"{told}; {given}: a step was lost or doubled")
        others = [r for r, other in enumerate(self._given) if other == action and r != row]
        hint = f", that of row {others[0]}" if others else ""
        raise ViolationError(("P34",), f"{told}{hint}; {given}")

    @staticmethod
    def _check_ending(
        where: str,
        state: ProbeState,
        endings: tuple[bool, bool],
        final: Observation | None,
        is_farewell: bool,
    ) -> None:
        expected = state.terminated, state.truncated
        if endings != expected and not (is_farewell and endings == (False, True)):
            words = "terminated {}, truncated {}"
            text = f"{where}: {words.format(*endings)}; expected {words.format(*expected)}"
            raise ViolationError(("P30",), text)
        if final is not None and final != state.observation:
            text = f"{where}: final observation {final}, expected {state.observation}"
            raise ViolationError(("P30",), text)

    def _check_observation(self, where: str, row: int, observed: Observation | None) -> None:
        if row in self._unknown:
            if observed is not None:
                seed, episode, count, action = map(int, observed)
                state = ProbeState(seed=seed, episode=episode, step=count, action=action)
                self._slots[row] = state
                self._unknown.remove(row)
            return
        if observed is None:
            if not self._awaits_reset[row]:
                raise ViolationError(("P28",), f"{where} does not ask in the middle of its episode")
            return
        clauses: tuple[str, ...] = ("P25", "P32")
        if self._awaits_reset[row]:
            self._slots[row] = self._slots[row].next_episode()
            self._awaits_reset[row] = False
            clauses = ("P31",)
        wanted = self._slots[row].observation
        if observed != wanted:
            raise ViolationError(clauses, f"{where}: observation {observed}, expected {wanted}")


def _by_row(rows: Array, values: Array) -> dict[int, Observation]:
    return {
        row: (float(a), float(b), float(c), float(d))
        for row, (a, b, c, d) in zip(rows.tolist(), values.tolist(), strict=True)
    }
