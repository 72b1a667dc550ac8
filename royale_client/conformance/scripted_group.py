"""What the suite, as a client, says about the slots of one group: made up, but all of it legal.

Each asking row has exactly one legal action, another one in every row and request. Whatever policy
answers, its actions are therefore known beforehand, and one that was meant for another row, request
or group shows. Sends nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from royale_client.wire.dtypes import Array
from royale_client.wire.messages import Step
from royale_client.wire.probes import ProbeAnswer
from royale_client.wire.spaces import BoxSpec, DiscreteSpec
from royale_client.wire.turns import BoolArray

OBSERVATION_SPACE = BoxSpec([-1.0, -2.0, -3.0, -4.0], [1.0, 2.0, 3.0, 4.0], (4,), "float32")
ACTION_SPACE = DiscreteSpec(11, start=5)


class ScriptedGroup:
    """The slots of one group.

    Args:
        index: Number of the group.
        rows: Its slots.
        last_request: Number of its last request.
    """

    def __init__(self, index: int, rows: int, last_request: int = 0) -> None:
        self.index = index
        self.rows = rows
        self.request = last_request
        self.dtype = "float32"
        """Type in which observations travel."""
        self.is_fresh = True
        """No request was made yet."""

    def legal_actions(self, request: int, asks: BoolArray) -> Array:
        """Return the one legal action of each asking row, shape ``(m,)``, ``start`` included."""
        rows = np.flatnonzero(asks)
        return (3 * rows + 5 * request + 7 * self.index) % ACTION_SPACE.n + ACTION_SPACE.start

    def next_step(
        self,
        *,
        silent: Sequence[int] = (),
        terminated: Sequence[int] = (),
        truncated: Sequence[int] = (),
        records: bool = False,
    ) -> Step:
        """Describe one more request.

        Args:
            silent: Rows that do not ask.
            terminated: Rows whose episode came to an end of its own.
            truncated: Rows whose episode was cut off.
            records: Whether episode records tell of those that ended.
        """
        self.request += 1
        asks = ~_flags(self.rows, silent)
        ended = sorted({*terminated, *truncated})
        masks = np.zeros((int(asks.sum()), ACTION_SPACE.n), np.bool_)
        legal = self.legal_actions(self.request, asks) - ACTION_SPACE.start
        masks[np.arange(len(legal)), legal] = True
        is_first, self.is_fresh = self.is_fresh, False
        return Step(
            group=self.index,
            request=self.request,
            asks=asks if silent else None,
            observations=(self._observations(np.flatnonzero(asks)),),
            masks=masks,
            rewards=None if is_first else np.arange(self.rows, dtype=np.float64),
            terminated=None if is_first else _flags(self.rows, terminated),
            truncated=None if is_first else _flags(self.rows, truncated),
            final_observations=(self._observations(np.array(ended)),) if ended else None,
            episodes=tuple(map(_record, ended)) if records else (),
            env_time_s=0.001,
        )

    def last_step(self) -> Step:
        """Describe the farewell: every row truncated, none asks."""
        everyone = range(self.rows)
        return self.next_step(silent=everyone, truncated=everyone)

    def _observations(self, rows: Array) -> Array:
        shares = (rows + self.request) % 10 / 10
        return (shares[:, None] * OBSERVATION_SPACE.high).astype(self.dtype)


def probed(question: str) -> ProbeAnswer | None:
    """Answer a probe about these environments, which carry every action out; None if unknown."""
    everything = np.ones((1, ACTION_SPACE.n), np.bool_)
    match question:
        case "layout":
            return ProbeAnswer(columns=("choice",), layout=np.arange(ACTION_SPACE.n)[:, None])
        case "waiting":
            return ProbeAnswer(states=("at rest",), masks=everything)
        case "legality":
            return ProbeAnswer(states=("at rest",), masks=everything, verdicts=everything)
    return None


def _record(row: int) -> dict[str, object]:
    return {"row": row, "return": 1.5, "length": 3, "time_s": 0.25, "metrics": {}}


def _flags(rows: int, which: Sequence[int]) -> BoolArray:
    flags = np.zeros(rows, np.bool_)
    flags[list(which)] = True
    return flags
