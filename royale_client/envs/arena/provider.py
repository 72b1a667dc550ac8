"""The environment family `arena`: its flags, and how to build it. Imports no numba."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from royale_client.driver import EnvDriver
from royale_client.envs.arena.reward_config import RewardConfig
from royale_client.envs.provider import EnvProvider
from royale_client.wire.errors import ConfigError

logger = logging.getLogger(__name__)

ENV_ID = "royale/arena"
_INSTALL = "the arena needs numba: pip install 'royale-rl[arena]'"
_SHAPING = ("crowns", "tower_hp", "elixir")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaConfig:
    """Flags of `royale-env-client arena`."""

    gamma: float = 0.997
    """Discount of a decision of half a second that shaping assumes where the learner names none;
    ppo names its own."""
    shaping_crowns: float = 0.0
    """Weight of the difference of crowns in the potential that shapes the reward; 0 for none. What
    a crown is worth is mostly in the tower's hit points already."""
    shaping_tower_hp: float = 3.0
    """Weight of the difference of the towers' hit points."""
    shaping_elixir: float = 0.4
    """Weight of the difference of elixir, on the bar and on the field."""
    bots: tuple[str, ...] = ("noop", "random", "random_wait", "defend", "push", "heuristic")
    """Scripted bots that the server may seat here; search is one, too, and hundreds of times slower
    than the others."""
    watch: bool = False
    """Tell the first battle on standard output while it is played: every play and every tower that
    falls."""
    watch_port: int | None = None
    """Show the first battle while it is played as a page, http://127.0.0.1:PORT/, to browsers on
    this machine; 0 takes a free port and says which. Of several processes the first has it."""

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ConfigError: If a number is out of range.
        """
        self.rewards()
        if self.watch_port is not None and not 0 <= self.watch_port <= 65535:
            raise ConfigError(f"--watch-port {self.watch_port}: expected 0 to 65535")

    def rewards(self) -> RewardConfig:
        """Return the weights of the reward.

        Raises:
            ConfigError: If a number is out of range.
        """
        shaping = {name: getattr(self, f"shaping_{name}") for name in _SHAPING}
        try:
            return RewardConfig(gamma=self.gamma, **shaping)
        except ValueError as error:
            raise ConfigError(f"arena: {error}") from error


def make_driver(config: ArenaConfig, num_battles: int) -> EnvDriver:
    """Build one group of ``num_battles`` battles.

    Raises:
        ConfigError: If numba is missing.
    """
    try:
        from royale_client.envs.arena.compiled import is_compiled, tend_caches
        from royale_client.envs.arena.driver import ArenaDriver
        from royale_client.envs.arena.warm_up import warm_up
        from royale_client.envs.arena.watching import watched
    except ImportError as error:
        raise ConfigError(f"{_INSTALL} ({error})") from error
    if not is_compiled():
        logger.info("compiling the arena for this machine: half a minute or more, once")
        warm_up(logger.info)  # now, and not while a server waits for the first step
    tend_caches(time.time())
    identity = {"environment": ENV_ID, **facts(config)}
    try:
        driver = ArenaDriver(config.rewards(), num_battles, bots=config.bots, identity=identity)
    except ValueError as error:
        raise ConfigError(f"--bots: {error}") from error
    driver.watching = watched(text=config.watch, port=config.watch_port)
    return driver


def facts(config: ArenaConfig) -> Mapping[str, Any]:
    """Return what tells two arenas apart: the rules as they are written, and the reward."""
    from royale_client.envs.arena.snapshots import rules_digest

    rewards = config.rewards()
    weights = rewards.weights.tolist()
    return {"rules": rules_digest().hex(), "gamma": rewards.gamma, "rewards": weights}


PROVIDER = EnvProvider(
    name="arena",
    summary="battles of two seats with cards; --battles is --num-envs",
    config_type=ArenaConfig,
    env_id=lambda _: ENV_ID,
    make=make_driver,
    facts=facts,
    synonyms={"--battles": "--num-envs"},
)
