"""The settings of the frame rules. Holds numbers, decides nothing."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from royale_client.wire.errors import ConfigError


class Dispatch(enum.Enum):
    """How requests are gathered into an inference batch."""

    BARRIER = "barrier"
    DYNAMIC = "dynamic"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """What the scheduler is allowed to do. Times are in seconds."""

    dispatch: Dispatch = Dispatch.BARRIER
    mini_infer_batch_size: int | None = None
    """Run a batch as soon as this many slots are queued; None waits for the quorum."""
    max_infer_batch_size: int | None = None
    """Most slots in one ``dynamic`` batch; a larger request is inferred alone."""
    max_infer_wait_s: float = 0.0
    """How long a ``dynamic`` batch may wait to grow."""
    min_clients: int = 1
    """Train sessions, every group's first step received, before the first round."""
    max_slots: int = 8192
    """Slots all sessions may hold at once; storage is sized by it."""
    patience: float = 3.0
    """A turn is late beyond this multiple of the other groups' median turn."""
    patience_floor_s: float = 0.02
    """No turn shorter than this is late."""
    close_wait_s: float = 1.0
    """How long a closed collection waits for late groups of the quorum."""
    first_step_timeout_s: float = 300.0
    feedback_wait_timeout_s: float = 60.0
    deterministic: bool = False

    def __post_init__(self) -> None:
        positive = {
            "mini_infer_batch_size": self.mini_infer_batch_size,
            "max_infer_batch_size": self.max_infer_batch_size,
            "min_clients": self.min_clients,
            "max_slots": self.max_slots,
            "first_step_timeout_s": self.first_step_timeout_s,
            "feedback_wait_timeout_s": self.feedback_wait_timeout_s,
        }
        for name, value in positive.items():
            if value is not None and value <= 0:
                raise ConfigError(f"{name}: got {value}, expected a number above 0")
        if self.patience < 1:
            raise ConfigError(f"patience: got {self.patience}, expected at least 1 median turn")
        if self.close_wait_s < 0 or self.max_infer_wait_s < 0:
            raise ConfigError("close_wait_s and max_infer_wait_s: expected 0 or more seconds")
