"""Return, length and duration of every running episode, for all slots at once.

Rewards are summed in float64. This module never looks at observations and never decides when an
episode ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from royale_client.driver import BoolArray, FloatArray


class EpisodeTracker:
    """Sums what happens between the start and the end of each slot's episode.

    Args:
        rows: Number of slots.
        clock: Monotonic time in seconds.
    """

    def __init__(self, rows: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.returns: FloatArray = np.zeros(rows)
        # Counting all rows at once is one number; a row's length is what came since it began.
        self._num_steps = 0
        self._begun_at: npt.NDArray[np.int64] = np.zeros(rows, np.int64)
        self._started_s: FloatArray = np.full(rows, clock())

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Steps since the episode of each row began, a new array of shape ``[n]``."""
        return self._num_steps - self._begun_at

    def begin_all(self) -> None:
        """Start an episode in every slot."""
        self.returns[:] = 0.0
        self._begun_at[:] = self._num_steps
        self._started_s[:] = self._clock()

    def add(self, rewards: FloatArray, acted: BoolArray | None) -> None:
        """Count one step of the rows that acted (None: all); the rewards of the others are 0."""
        self.returns += rewards
        self._num_steps += 1
        if acted is not None:
            self._begun_at += ~acted

    def snapshot(self) -> dict[str, Any]:
        """Return the sums, and how long each episode has been running in place of its start."""
        return {
            "returns": self.returns,
            "lengths": self.lengths,
            "elapsed_s": self._clock() - self._started_s,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `snapshot` returned; time that passed in between does not count.

        Raises:
            ValueError: If the state is of another number of slots; nothing has changed then.
        """
        elapsed_s = np.asarray(state["elapsed_s"], np.float64)
        returns = np.asarray(state["returns"], np.float64)
        lengths = np.asarray(state["lengths"], np.int64)
        if any(sums.shape != self.returns.shape for sums in (elapsed_s, returns, lengths)):
            raise ValueError(f"sums of {returns.shape} episodes, expected {self.returns.shape}")
        self._started_s[:] = self._clock() - elapsed_s
        self.returns[:] = returns
        self._begun_at[:] = self._num_steps - lengths

    def finish(
        self, rows: npt.NDArray[np.int64], metrics: Sequence[Mapping[Any, Any]]
    ) -> tuple[dict[str, Any], ...]:
        """Return a record per ended episode and start the next one in those slots.

        Args:
            rows: Indices of the ended rows, shape ``[e]``.
            metrics: Where each row's declared metrics are looked up, in the order of ``rows``; the
                session takes what is declared and can travel.
        """
        now_s, records = self._clock(), []
        for row, found in zip(rows.tolist(), metrics, strict=True):
            records.append(
                {
                    "row": row,
                    "return": self.returns.item(row),
                    "length": self._num_steps - self._begun_at.item(row),
                    "time_s": now_s - self._started_s.item(row),
                    "metrics": found,
                }
            )
            self.returns[row] = 0.0
            self._begun_at[row] = self._num_steps
            self._started_s[row] = now_s
        return tuple(records)
