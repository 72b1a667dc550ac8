"""Players of battles: scripted bots, and policies from checkpoints; torch only for the latter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from royale_client.envs.arena.bots import BOTS, Bot, bot_keys, make_bot
from royale_client.envs.arena.driver import ACTION_SPACE, OBSERVATION_SPACE
from royale_client.envs.arena.rules import SEATS
from royale_client.envs.arena.state import Battles
from royale_client.wire.errors import ConfigError
from royale_client.wire.space_differences import differences

if TYPE_CHECKING:
    from algorithms.base import Policy
    from algorithms.spaces import Spaces

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class View:
    """What the seats of some battles see; k rows."""

    battles: Battles
    """All battles."""
    rows: npt.NDArray[np.int64]
    """Which battles these are, ``(k,)``."""
    seat: int
    """Which seat is asked."""
    planes: Array
    vector: Array
    masks: npt.NDArray[np.bool_]
    """``(k, …)``; see `royale_client.envs.arena.tensors`."""


class Player(ABC):
    """Chooses actions for one seat of many battles.

    Args:
        name: What a person calls it.
    """

    needs_view = True
    """Whether the tensors of a view are looked at."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def act(self, view: View) -> npt.NDArray[np.int64]:
        """Return the action of each row, ``(k,)``."""


class BotPlayer(Player):
    """A scripted player."""

    needs_view = False

    def __init__(self, name: str, bot: Bot) -> None:
        super().__init__(name)
        self._bot = bot

    def act(self, view: View) -> npt.NDArray[np.int64]:
        """See `Player.act`."""
        seats = np.zeros((len(view.battles.tick), SEATS), np.bool_)
        seats[view.rows, view.seat] = True
        actions = self._bot.act(view.battles, seats, bot_keys(view.battles))
        chosen: npt.NDArray[np.int64] = actions[view.rows, view.seat].astype(np.int64)
        return chosen


class PolicyPlayer(Player):
    """A policy.

    Args:
        name: What a person calls it.
        policy: Acts.
        greedy: Take the most likely action in place of a drawn one.
    """

    def __init__(self, name: str, policy: Policy, *, greedy: bool) -> None:
        super().__init__(name)
        self._policy = policy
        self._greedy = greedy

    def act(self, view: View) -> npt.NDArray[np.int64]:
        """See `Player.act`."""
        from algorithms.noise import Noise

        battles, rows = view.battles, view.rows
        noise = Noise(
            bot_keys(battles)[rows, view.seat],
            battles.ordinal[rows].astype(np.uint64),
            battles.tick[rows].astype(np.uint64),
        )
        inference = self._policy.act(
            (view.planes, view.vector), view.masks, noise, deterministic=self._greedy
        )
        actions: npt.NDArray[np.int64] = inference.actions[0]
        return actions


def bot_player(name: str) -> Player | None:
    """Return a new player of one of the scripted bots; None if no bot has that name."""
    return BotPlayer(name, make_bot(name)) if name in BOTS else None


def bot_names() -> list[str]:
    """Return the names of all scripted bots."""
    return list(BOTS)


def load_policy(run: Path, checkpoint: Path, torch_threads: int) -> Policy:
    """Build the policy of a run with the weights of one of its checkpoints, on the processor.

    Args:
        run: Its directory; its settings say which policy it is.
        checkpoint: Directory of the checkpoint.
        torch_threads: How many threads one operation of this process may use from now on.

    Raises:
        RoyaleError: If the settings cannot be read, the checkpoint is damaged, does not fit, or is
            of a policy that plays something else than the arena.
    """
    from algorithms.config import RESTORE_MODEL
    from checkpoints import load
    from royale_server.evaluation.saved_settings import read_settings
    from royale_server.model.threads import limit_threads
    from royale_server.saved_run import learner_state, spaces_of

    limit_threads(torch_threads)
    settings = read_settings(run)
    contents = load(checkpoint)
    spaces = spaces_of(contents)
    _check_game(checkpoint, spaces)
    policy = settings.policy_class(settings.policy, spaces, device="cpu")
    learner = settings.algo_class(settings.algo, policy, seed=0)
    learner.load_state(learner_state(contents), RESTORE_MODEL)
    loaded: Policy = learner.policy
    return loaded


def _check_game(checkpoint: Path, spaces: Spaces) -> None:
    found = [
        *(f"observations: {line}" for line in differences(OBSERVATION_SPACE, spaces.observation)),
        *(f"actions: {line}" for line in differences(ACTION_SPACE, spaces.action)),
    ]
    if not spaces.masks:
        found.append("action masks: expected, got none")
    if found:
        raise ConfigError(
            f"{checkpoint}: its policy does not play the arena, as `royale eval` does\n"
            + "\n".join(f"  {line}" for line in found)
        )
