"""A battle of a run, played again from the actions that its clients were told, and verified.

What a bundle holds is enough: the deal follows from the seed of the run, the name of the client and
the slot; a bot does again what it did. Reads no file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from royale_client.envs.arena import kernels
from royale_client.envs.arena.bots import Bot, bot_keys, make_bot
from royale_client.envs.arena.deals import start
from royale_client.envs.arena.replay import Replay, ReplayError, record
from royale_client.envs.arena.rules import NO_OP, RUNNING, SEATS
from royale_client.envs.arena.state import Battles, empty
from royale_server.endpoint.admission import reset_seeds

SCRIPTED = "scripted "
"""How a bot's place is called in an episode's record, before its name."""


def reconstructed(episode: Mapping[str, Any]) -> Replay:
    """Play a recorded battle again.

    Args:
        episode: ``episode.json`` of a bundle.

    Raises:
        ReplayError: Its actions are not all there, or no deal of the run leads with them to what
            was recorded.
    """
    sides = _sides(episode)
    ordinals = {side["ordinal"] for side in sides if "ordinal" in side}
    if not ordinals:
        raise ReplayError("no action of the battle is recorded: it began too long before its end")
    own = episode["slot"]
    seed, client, ordinal = episode["seed"], episode["client"], max(ordinals)
    for first in range(ordinal + 1):
        key = int(reset_seeds(seed, client, first, own + 1)[own - own % SEATS].view(np.int64))
        replay = _played(key, ordinal - first, sides, _length(sides))
        if replay is not None and _comes_to(replay, sides):
            return replay
    raise ReplayError(
        "no deal of this run leads with the recorded actions to what was recorded: the client had "
        "a seed of its own, or plays by other rules than these"
    )


def _sides(episode: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return what is recorded of both seats, seat 0 first."""
    partner = episode["slot"] ^ 1
    others = [other for other in episode["beside"] if other["slot"] == partner]
    if not others:
        raise ReplayError("nothing is recorded of the other seat")
    return sorted([episode, others[0]], key=lambda side: int(side["slot"]))


def _length(sides: Sequence[Mapping[str, Any]]) -> int:
    return max(len(side["actions"]) for side in sides if "actions" in side)


def _played(
    key: int, ordinal: int, sides: Sequence[Mapping[str, Any]], length: int
) -> Replay | None:
    """Play one deal with the recorded actions; None if it ends elsewhere than recorded."""
    battles = empty(1)
    start(battles, 0, seed=0, battle_ids=key, ordinals=ordinal)
    bots = [_bot(side) for side in sides]
    taken: list[list[int]] = []
    for step in range(length):
        if battles.outcome[0] != RUNNING:
            return None
        pair = [_action(battles, seat, bots[seat], sides[seat], step) for seat in range(SEATS)]
        kernels.step(battles, [pair])
        taken.append(pair)
    if battles.outcome[0] == RUNNING:
        return None
    return record(battles, 0, [_player(side) for side in sides], taken)


def _action(
    battles: Battles, seat: int, bot: Bot | None, side: Mapping[str, Any], step: int
) -> int:
    if bot is None:
        actions = side.get("actions", ())
        return int(actions[step][0]) if step < len(actions) else NO_OP
    seats: npt.NDArray[np.bool_] = np.zeros((1, SEATS), np.bool_)
    seats[0, seat] = True
    return int(bot.act(battles, seats, bot_keys(battles))[0, seat])


def _bot(side: Mapping[str, Any]) -> Bot | None:
    player = _player(side)
    return make_bot(player.removeprefix(SCRIPTED)) if player.startswith(SCRIPTED) else None


def _player(side: Mapping[str, Any]) -> str:
    return str(side["record"].get("player", "learner"))


def _comes_to(replay: Replay, sides: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a battle came to what its client reported of both seats."""
    result = replay.result
    for seat, side in enumerate(sides):
        reported = side["record"]
        expected = {
            "metrics/ticks": result.tick,
            "metrics/crowns_for": result.crowns[seat],
            "metrics/crowns_against": result.crowns[1 - seat],
            "metrics/cards_per_match": result.plays[seat],
        }
        if any(reported.get(key, value) != value for key, value in expected.items()):
            return False
    return True
