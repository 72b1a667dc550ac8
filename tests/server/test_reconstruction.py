"""A battle from its recorded actions: found among the deals of the run, played again, verified."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba")

from royale_client.envs.arena.batch import ArenaBatch
from royale_client.envs.arena.bots import bot_keys, make_bot
from royale_client.envs.arena.records import episode_metrics
from royale_client.envs.arena.replay import ReplayError
from royale_client.envs.arena.reward_config import RewardConfig
from royale_client.envs.arena.rules import SEATS
from royale_server.endpoint.admission import reset_seeds
from royale_server.evaluation.reconstruction import reconstructed

SEED, CLIENT, FIRST_EPISODE, BATTLE = 5, "client-1", 2, 3
BOT = "push"


def recorded(bots: dict[int, str], num_battles: int = 2) -> dict[str, Any]:
    """Play the fourth of four battles as a client does; return what a bundle says of the last."""
    batch = ArenaBatch(BATTLE + 1, RewardConfig())
    batch.reset(reset_seeds(SEED, CLIENT, FIRST_EPISODE, SEATS * (BATTLE + 1))[::SEATS].copy())
    random = np.random.default_rng(0)
    for ordinal in range(num_battles):
        if ordinal:
            batch.begin_next(np.array([BATTLE]))
        actions = _played(batch, bots, random)
    metrics = episode_metrics(batch.battles, batch.tallies, BATTLE)
    sides = [
        {
            "slot": SEATS * BATTLE + seat,
            "record": {
                "player": f"scripted {bots[seat]}" if seat in bots else "learner",
                **{f"metrics/{name}": value for name, value in metrics[seat].items()},
            },
            **(
                {}
                if seat in bots
                else {"ordinal": FIRST_EPISODE + num_battles - 1, "actions": actions[seat]}
            ),
        }
        for seat in range(SEATS)
    ]
    return {"seed": SEED, "client": CLIENT, **sides[0], "beside": [sides[1]]}


def _played(
    batch: ArenaBatch, bots: dict[int, str], random: np.random.Generator
) -> list[list[list[int]]]:
    taken: list[list[list[int]]] = [[], []]
    is_over = False
    while not is_over:
        pairs = np.zeros((BATTLE + 1, SEATS), np.int32)
        for seat in range(SEATS):
            if seat in bots:
                seats = np.zeros((BATTLE + 1, SEATS), np.bool_)
                seats[BATTLE, seat] = True
                acts = make_bot(bots[seat]).act(batch.battles, seats, bot_keys(batch.battles))
                pairs[BATTLE, seat] = acts[BATTLE, seat]
            else:
                pairs[BATTLE, seat] = random.choice(batch.mask[BATTLE, seat].nonzero()[0])
            taken[seat].append([int(pairs[BATTLE, seat])])
        is_over = BATTLE in batch.step(pairs)
    return taken


@pytest.mark.parametrize("bots", [{}, {1: BOT}], ids=["both seats", "against a bot"])
def test_a_battle_comes_to_what_was_recorded(bots: dict[int, str]):
    episode = recorded(bots)
    replay = reconstructed(episode)
    assert [[pair[0]] for pair in replay.actions] == episode["actions"]
    assert replay.result.crowns[0] == episode["record"]["metrics/crowns_for"]
    assert replay.players[1] == (f"scripted {BOT}" if bots else "learner")


def test_one_changed_action_is_found_out():
    episode = recorded({}, num_battles=1)
    del episode["actions"][-1]
    del episode["beside"][0]["actions"][-1]
    with pytest.raises(ReplayError, match="no deal of this run"):
        reconstructed(episode)


def test_a_battle_without_any_action_is_refused():
    episode = recorded({}, num_battles=1)
    for side in (episode, *episode["beside"]):
        del side["ordinal"]
        del side["actions"]
    with pytest.raises(ReplayError, match="began too long before its end"):
        reconstructed(episode)
