"""What is read from the infos of an environment: masks, declared metrics, final observations.

Nothing else in an info is touched, so nothing else can stop a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from royale_client.driver import BoolArray, EnvContractError, EnvValue, Leaves, take_rows
from royale_client.driver_leaves import BatchReader
from royale_client.wire.episodes import EpisodeMetric

MASK_KEY = "action_mask"
MASK_METHOD = "action_masks"
FINAL_OBSERVATION_KEY = "final_obs"
FINAL_INFO_KEY = "final_info"
SEALED_KEY = "royale_sealed_metrics"


class SealedMetrics:
    """Metrics of one ended episode on their way through a vector environment, untouched by it.

    Vector environments merge the infos of their parts into typed arrays and fail on what does not
    fit; they pass an object they do not know as it is.
    """

    __slots__ = ("values",)

    def __init__(self, values: Mapping[Any, Any]) -> None:
        self.values = values


def mask_row(mask: EnvValue, size: int) -> BoolArray:
    """Return one row's mask of legal actions as a flat bool array of ``size`` entries.

    Args:
        mask: Numbers or bools; for a multi-discrete action also a tuple of such arrays.
        size: Number of actions, summed over the parts of a multi-discrete action.

    Raises:
        EnvContractError: If the number of entries differs, or an entry is no number.
    """
    parts = mask if isinstance(mask, tuple | list) else (mask,)
    flat = np.concatenate([np.asarray(part).reshape(-1) for part in parts] or [np.zeros(0)])
    if flat.dtype.kind not in "biuf" or len(flat) != size:
        raise EnvContractError(
            f"action mask has {len(flat)} entries of dtype {flat.dtype}, expected {size} numbers, "
            "one per action"
        )
    return np.asarray(flat != 0)


class MaskReader:
    """Keeps the newest mask of every slot from ``info["action_mask"]``.

    Args:
        rows: Number of slots.
        size: Entries of one mask.
    """

    def __init__(self, rows: int, size: int) -> None:
        self.masks: BoolArray = np.ones((rows, size), np.bool_)
        self._size = size

    def update(self, infos: Mapping[Any, Any], asking: BoolArray | None = None) -> None:
        """Take the masks that came with the newest observations.

        Args:
            infos: Infos of a vector environment: a batch per key, and under «_key» the rows that
                have it.
            asking: Rows that must have one; None for all.

        Raises:
            EnvContractError: If a row that will ask has no mask, or one of another size.
        """
        value = infos.get(MASK_KEY)
        present = self._present(infos, value is not None)
        missing = ~present if asking is None else asking & ~present
        if missing.any():
            raise EnvContractError(
                f"info[{MASK_KEY!r}] is missing for slot {int(np.flatnonzero(missing)[0])}: an "
                "environment that gives masks must give one with every observation, also on reset"
            )
        self._store(value, present)

    def _present(self, infos: Mapping[Any, Any], is_given: bool) -> BoolArray:
        flags = infos.get(f"_{MASK_KEY}")
        if flags is None:
            return np.full(len(self.masks), is_given)
        return np.asarray(flags, np.bool_)

    def _store(self, value: EnvValue, present: BoolArray) -> None:
        self.masks = self.masks.copy()  # the ones before belong to a turn
        if (
            isinstance(value, np.ndarray)
            and value.dtype != object
            and value.shape == self.masks.shape
        ):
            self.masks[present] = value[present] != 0
            return
        for row in np.flatnonzero(present).tolist():
            self.masks[row] = mask_row(value[row], self._size)


class MetricReader:
    """Finds the declared metrics of ended episodes in the infos of a vector environment.

    Args:
        metrics: What the client declared in its hello.
    """

    def __init__(self, metrics: Sequence[EpisodeMetric]) -> None:
        self._names = tuple(metric.name for metric in metrics)

    def read(
        self, infos: Mapping[Any, Any], rows: npt.NDArray[np.int64]
    ) -> list[Mapping[Any, Any]]:
        """Return the raw values of the given rows, in their order; what a row lacks is left out."""
        if not self._names:
            return [{}] * len(rows)
        sealed = infos.get(SEALED_KEY)
        if sealed is not None:
            return [sealed[row].values if sealed[row] is not None else {} for row in rows.tolist()]
        present = [
            (name, infos[name], infos.get(f"_{name}")) for name in self._names if name in infos
        ]
        return [
            {name: values[row] for name, values, flags in present if flags is None or flags[row]}
            for row in rows.tolist()
        ]


def final_rows(
    infos: Mapping[Any, Any], reader: BatchReader, rows: npt.NDArray[np.int64]
) -> Leaves:
    """Return the final observations that a vector environment put into its infos (SAME_STEP).

    Args:
        infos: Infos of the step in which the rows ended and were reset.
        reader: Reader of the environment's observations.
        rows: Indices of the ended rows, shape ``[e]``.

    Raises:
        EnvContractError: If the final observation of an ended row is missing.
    """
    value = infos.get(FINAL_OBSERVATION_KEY)
    if isinstance(value, np.ndarray) and value.dtype == object:
        per_row = [value[row] for row in rows.tolist()]
        if not any(final is None for final in per_row):
            return reader.read_rows(per_row)
    elif value is not None:
        return take_rows(reader.read(value), rows)
    raise EnvContractError(
        f"slots {rows.tolist()} ended, but infos[{FINAL_OBSERVATION_KEY!r}] has no final "
        "observation for them; a vector environment with autoreset SAME_STEP must give it, because "
        "a truncated episode is worth the value of that observation"
    )
