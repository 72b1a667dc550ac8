"""Joins the alarms to the writer: judges rows on disk, adds where alarms stand to checkpoints.

Used on the writer's thread. Reads how much room the disk has; writes nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from checkpoints import CheckpointContents
from royale_server.alarms.conditions import Numbers
from royale_server.alarms.keeper import AlarmKeeper
from royale_server.run.output import Row
from royale_server.saved_run import ALARMS, STATE

CHECKPOINTS_SPARED = 2
"""Checkpoints that there should be room for beside the limit."""
_MB = 1e6


class DiskGauge:
    """Room where a run is written.

    Args:
        directory: Of the run.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.checkpoint_bytes = 0
        """Size of the newest checkpoint's arrays."""

    def numbers(self) -> Numbers:
        """Return what alarms read; nothing where the system does not tell."""
        try:
            free = shutil.disk_usage(self._directory).free
        except OSError:
            return {}
        return {"disk/spare_mb": (free - CHECKPOINTS_SPARED * self.checkpoint_bytes) / _MB}


class AlarmJudge:
    """What the writer asks.

    Args:
        keeper: The alarms.
        gauge: Told how large checkpoints are.
    """

    def __init__(self, keeper: AlarmKeeper, gauge: DiskGauge) -> None:
        self._keeper = keeper
        self._gauge = gauge

    def written(self, row: Mapping[str, Any]) -> Sequence[Row]:
        """See `Judge`."""
        return self._keeper.written(row)

    def completed(self, contents: CheckpointContents) -> CheckpointContents:
        """See `Judge`."""
        arrays = (array for named in contents.tensors.values() for array in named.values())
        self._gauge.checkpoint_bytes = sum(array.nbytes for array in arrays)
        state = {**contents.documents.get(STATE, {}), ALARMS: self._keeper.state()}
        return replace(contents, documents={**contents.documents, STATE: state})
