"""Clients with two seats that vanish in the middle of battles, come back, or are replaced."""

from __future__ import annotations

import random

import pytest

from royale_client.hello import make_hello
from royale_client.loop import EnvLoop
from royale_client.wire.seating import Player
from royale_server.evaluation.config import EvaluateConfig
from royale_server.selfplay.config import SelfPlayConfig
from tests.selfplay.duel import SelfPlayWorld, play
from tests.selfplay.test_evaluation import Judged
from tests.server.test_evaluation_alone import Walk

MIXED = SelfPlayConfig(
    mix="mirror=0.2,pool=0.5,scripted=0.3", snapshot_every=1, max_resident=2, pool_size=3
)


class Visitor:
    """A client that plays some turns at a time and vanishes between them."""

    def __init__(self, world: SelfPlayWorld, name: str, role: str, chance: random.Random) -> None:
        alone = role == "alone"
        sizes = [2 * chance.randint(1, 2) for _ in range(chance.randint(1, 2))]
        self.drivers = [(Walk if alone else Judged)(size) for size in sizes]
        self.name, self.role = name, "eval" if alone else role
        hello = make_hello(self.drivers, client_name=name, env_id="Duel-v0", role=self.role)
        self.loop = EnvLoop(self.drivers, hello, clock=lambda: world.now)

    def play(self, world: SelfPlayWorld, turns: int) -> None:
        left = turns

        def enough() -> bool:
            nonlocal left
            left -= 1
            return left < 0

        play(world, self.drivers, enough, loop=self.loop)


@pytest.mark.parametrize("seed", range(25))
def test_whoever_vanishes_mid_battle_nothing_is_lost_count_of_and_nobody_plays_for_another(
    seed: int,
) -> None:
    chance = random.Random(seed)
    world = SelfPlayWorld(
        target=20,
        selfplay=MIXED,
        evaluate=EvaluateConfig(against=("left",), battles=4, episodes=3),
        close_wait=0.2,
    )
    visitors = [Visitor(world, "first", "train", chance)]
    for turn in range(30):
        if chance.random() < 0.3 or not visitors:
            role = chance.choice(("train", "train", "eval", "alone"))
            visitors.append(Visitor(world, f"visitor {turn}", role, chance))
        visitor = chance.choice(visitors)
        visitor.play(world, chance.randint(1, 25))
        match chance.randrange(4):
            case 0:  # comes back when its session is long gone
                world.wait(world.config.reconnect_grace + 1)
            case 1:  # never comes back
                visitors.remove(visitor)
            case _:  # comes back within its session
                world.wait(chance.choice([0.0, 0.5, 3.0]))
        ledger = world.hub.scheduler.ledger
        assert world.listener.errors == []
        assert ledger.conservation_error == 0
    for visitor in visitors:
        visitor.play(world, 40)
    assert not [text for kind, text in world.listener.events if kind == "fault"]
    assert max((obs for lesson in world.lessons for obs in lesson.observations), default=0) < 1000
    duels = [d for v in visitors for d in v.drivers if isinstance(d, Judged)]
    for duel in duels:
        assert not duel.ran_dry
        for seat, action in duel.answers:
            if seat.player is Player.SNAPSHOT:
                assert action // 4 == int(seat.name)
    for round_, _ in world.listener.rounds:
        verdict = round_.verdict()
        assert (getattr(verdict, "battles", 4), getattr(verdict, "episodes", 3)) == (4, 3)
    evaluated = world.engine.evaluated.versions
    assert len(evaluated) <= 8
