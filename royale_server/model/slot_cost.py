"""What one more slot costs the server in memory, measured on books that serve nobody."""

from __future__ import annotations

import tracemalloc

from algorithms.spaces import Spaces
from royale_client.wire.spaces import leaves, mask_size
from royale_server.scheduler import Role, Scheduler
from royale_server.scheduler.config import SchedulerConfig

_SLOTS = 256
_MESSAGES = 2
"""A request that waits, and the next one of another group on its way."""


def slot_bytes(spaces: Spaces) -> int:
    """Return the bytes of one slot: what the scheduler writes down of it, and its observations.

    Args:
        spaces: Of the environments.
    """
    observation = sum(leaf.row_bytes for leaf in leaves(spaces.observation))
    mask = -(-(mask_size(spaces.action) or 0) // 8) if spaces.masks else 0
    return _books() + _MESSAGES * (observation + mask)


def _books() -> int:
    scheduler = Scheduler(SchedulerConfig(max_slots=2 * _SLOTS), target=_SLOTS, capacity=2 * _SLOTS)
    scheduler.join("warm", Role.TRAIN, (_SLOTS,), 0.0)
    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    scheduler.join("measured", Role.TRAIN, (_SLOTS,), 0.0)
    after, _ = tracemalloc.get_traced_memory()
    if not was_tracing:
        tracemalloc.stop()
    return max(0, after - before) // _SLOTS
