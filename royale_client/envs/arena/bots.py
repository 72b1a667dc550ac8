"""Every scripted player by name, for opponents, evaluation and rollouts; one interface for all.

The players themselves are in `scripted` and `search`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from royale_client.envs.arena.scripted import (
    DEFEND,
    HEURISTIC,
    PUSH,
    Actions,
    Bot,
    Keys,
    NoOpBot,
    RandomBot,
    RuleBot,
    Seats,
    bot_keys,
)
from royale_client.envs.arena.search import SearchBot

__all__ = [
    "BOTS",
    "Actions",
    "Bot",
    "BotEntry",
    "Keys",
    "NoOpBot",
    "RandomBot",
    "RuleBot",
    "SearchBot",
    "Seats",
    "bot_keys",
    "make_bot",
]


@dataclass(frozen=True, slots=True)
class BotEntry:
    """A bot that can be asked for by name."""

    make: Callable[[], Bot]
    """Returns a new one."""
    meaning: str
    """What it does, in a line."""


BOTS: Mapping[str, BotEntry] = MappingProxyType(
    {
        "noop": BotEntry(NoOpBot, "never plays a card"),
        "random": BotEntry(RandomBot, "draws evenly from the legal plays as soon as there is one"),
        "random_wait": BotEntry(
            lambda: RandomBot(wait_percent=90), "as random, but waits in nine of ten decisions"
        ),
        "defend": BotEntry(lambda: RuleBot(DEFEND), "only answers what comes to its own half"),
        "push": BotEntry(lambda: RuleBot(PUSH), "only attacks, in the weaker lane"),
        "heuristic": BotEntry(
            lambda: RuleBot(HEURISTIC), "answers what comes; attacks when it has 8 elixir"
        ),
        "search": BotEntry(
            SearchBot, "tries plays by rolling the battle on with the heuristic in both seats; slow"
        ),
    }
)
"""Every scripted bot by name."""


def make_bot(name: str) -> Bot:
    """Return a new bot.

    Raises:
        ValueError: No bot has that name.
    """
    if name not in BOTS:
        raise ValueError(f"bot {name!r}: expected one of {', '.join(BOTS)}")
    return BOTS[name].make()
