"""How often each card of the arena wins; ``python -m tests.benchmarks.arena_balance``.

A bot plays itself with random decks. Of the seats that have a card in their deck, counts how many
won, and how much of all that was played was this card. Drawn battles are left out.
"""

from __future__ import annotations

import argparse

import numpy as np

from royale_client.envs.arena.batch import ArenaBatch
from royale_client.envs.arena.bots import bot_keys, make_bot
from royale_client.envs.arena.cards import CARDS
from royale_client.envs.arena.reward_config import RewardConfig
from royale_client.envs.arena.rules import DRAWN, RUNNING, SEAT_0_WON, SEAT_1_WON


def main() -> None:
    """Print a row for each card, as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--battles", type=int, default=4000)
    parser.add_argument("--bot", default="heuristic")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    batch, bot = ArenaBatch(arguments.battles, RewardConfig()), make_bot(arguments.bot)
    batch.reset(np.arange(arguments.battles, dtype=np.uint64) + np.uint64(arguments.seed << 32))
    battles, everybody = batch.battles, np.ones((arguments.battles, 2), np.bool_)
    while (battles.outcome == RUNNING).any():
        batch.step(bot.act(battles, everybody, bot_keys(battles)))
    won = np.stack([battles.outcome == SEAT_0_WON, battles.outcome == SEAT_1_WON], axis=1)
    was_decided = (battles.outcome != DRAWN)[:, None]
    played = batch.tallies.part("played").sum((0, 1))
    print("| card | cost | wins | of all plays |\n| --- | --- | --- | --- |")
    for number, card in enumerate(CARDS):
        has = (battles.deck == number).any(-1) & was_decided
        share = played[number] / played.sum()
        print(f"| {card.name} | {card.cost} | {won[has].mean():.0%} | {share:.1%} |")


if __name__ == "__main__":
    main()
