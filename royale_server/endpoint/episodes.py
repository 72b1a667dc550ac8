"""Which policy versions played an episode, and how many of its frames were stored.

Arrays over slots, a fixed number of operations per request; only an episode's end costs a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from royale_client.wire.messages import Step
from royale_server.scheduler import FrameLedger, Group, Infer

IntArray = npt.NDArray[np.int64]


class EpisodeBook:
    """Follows the running episode of every slot."""

    def __init__(self) -> None:
        self._first_version = np.zeros(0, np.int64)
        self._last_version = np.zeros(0, np.int64)

    def add_slots(self, count: int) -> None:
        """Follow further slots, in the order the ledger numbered them."""
        more = np.zeros(count, np.int64)
        self._first_version = np.concatenate([self._first_version, more])
        self._last_version = np.concatenate([self._last_version, more])

    def versions(self) -> dict[str, IntArray]:
        """Copy what is known of the running episodes. Each ``(S,)`` over slots."""
        return {
            "first_version": self._first_version.copy(),
            "last_version": self._last_version.copy(),
        }

    def load_versions(self, versions: Mapping[str, IntArray]) -> None:
        """Take over what `versions` returned."""
        self._first_version = versions["first_version"].copy()
        self._last_version = versions["last_version"].copy()

    def acted(self, batch: Infer, version: int) -> None:
        """Note the version that answers these rows."""
        self._last_version[batch.slots] = version
        if np.count_nonzero(batch.steps) < len(batch.steps):
            self._first_version[batch.slots[batch.steps == 0]] = version

    def ended(self, group: Group, step: Step, ledger: FrameLedger) -> list[dict[str, Any]]:
        """Rows for ``episodes.jsonl`` of the episodes that a step reports as ended.

        Call it after the scheduler took the step, so that the last frames are counted.
        """
        assert step.terminated is not None
        assert step.truncated is not None
        rows: IntArray = (step.terminated | step.truncated).nonzero()[0]
        slots = rows + group.start
        columns: dict[str, npt.NDArray[Any]] = {
            "slot": slots - group.member.groups[0].start,
            "terminated": step.terminated[rows],
            "first_policy_version": self._first_version[slots],
            "last_policy_version": self._last_version[slots],
            "trained_frames": ledger.take_episode_frames(group.span, rows),
        }
        place = {row: place for place, row in enumerate(rows.tolist())}
        known = list(zip(*(column.tolist() for column in columns.values()), strict=True))
        return [
            {
                "client": group.member.name,
                "return": record["return"],
                "length": record["length"],
                "time_s": record["time_s"],
                **dict(zip(columns, known[place[record["row"]]], strict=True)),
                **{f"metrics/{name}": value for name, value in record.get("metrics", {}).items()},
            }
            for record in step.episodes
        ]
