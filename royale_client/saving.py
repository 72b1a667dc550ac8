"""Save the environments of a client and bring them back, all drivers or none.

Whatever a driver raises becomes a sentence for the server: a checkpoint without states, or episodes
that begin afresh, are better than a client that dies of being asked. Sends nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from royale_client.driver import EnvDriver, Turn
from royale_client.wire.errors import RoyaleError


class SavingFailedError(RoyaleError):
    """A driver could not be saved or restored; the text is a sentence for the server."""


def save(drivers: Sequence[EnvDriver]) -> list[bytes]:
    """Return the state of every driver.

    Raises:
        SavingFailedError: If one of them has none; names the group.
    """
    states = []
    for group, driver in enumerate(drivers):
        try:
            states.append(driver.snapshot())
        # The code is the environment's own and may raise anything.
        except Exception as error:
            raise _failed(group, error) from error
    return states


def bring_back(drivers: Sequence[EnvDriver], states: Sequence[npt.NDArray[Any]]) -> list[Turn]:
    """Restore every driver and return the last turn of each.

    Args:
        drivers: One per group.
        states: As many, as `save` returned them, shape ``[k]``, uint8.

    Raises:
        SavingFailedError: If one of them refused its state; names the group. Every driver has to be
            reset then.
    """
    turns = []
    for group, (driver, state) in enumerate(zip(drivers, states, strict=True)):
        try:
            turns.append(driver.restore(state.tobytes()))
        # As above; and the state may come from anywhere.
        except Exception as error:
            raise _failed(group, error) from error
    return turns


def num_asking(turn: Turn, num_slots: int) -> int:
    """Return how many rows of a group with ``num_slots`` slots ask in a turn."""
    return num_slots if turn.asks is None else int(np.count_nonzero(turn.asks))


def _failed(group: int, error: Exception) -> SavingFailedError:
    text = str(error) if isinstance(error, RoyaleError) else f"{type(error).__name__}: {error}"
    return SavingFailedError(f"group {group}: {text}")
