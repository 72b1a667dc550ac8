"""Battles over the wire: the server deals, the client's loop hands over, the driver follows."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from royale_client.hello import make_hello
from royale_client.loop import Ending, EnvLoop, ServerFaultError
from royale_client.wire.seating import Player, SeatAssignment
from royale_server.scheduler import Discard
from royale_server.selfplay.assignment import AssignmentSource, Table
from royale_server.selfplay.config import SelfPlayConfig
from tests.selfplay.duel import ACTION, Duel, SelfPlayWorld, Wire, play
from tests.server.resume_world import ResumableWorld

MIXED = SelfPlayConfig(mix="mirror=0.25,pool=0.5,scripted=0.25", snapshot_every=2, pool_size=3)


def lessons_of(world: SelfPlayWorld) -> list[dict[str, str]]:
    """All that the learner was given, comparable though it may hold NaN."""
    return [{k: repr(v) for k, v in asdict(lesson).items()} for lesson in world.lessons]


def world_after(num_lessons: int, *drivers: Duel, config: SelfPlayConfig = MIXED) -> SelfPlayWorld:
    world = SelfPlayWorld(selfplay=config)
    play(world, drivers, lambda: len(world.lessons) >= num_lessons)
    return world


def test_every_row_is_played_by_whom_it_was_assigned_to() -> None:
    duel = Duel(8)
    world = world_after(12, duel)
    versions = {seat: set() for seat in Player}
    for seat, action in duel.answers:
        versions[seat.player].add(action // 4)
        if seat.player is Player.SNAPSHOT:
            assert action // 4 == int(seat.name)  # answered by the policy of that very version
    assert versions[Player.LEARNER] >= set(range(12))
    assert len(versions[Player.SNAPSHOT]) > 2
    assert versions[Player.SCRIPTED] == set()  # those rows never asked
    assert {seat.name for pair in duel.played for seat in pair} >= {"left", "right", "2", "4"}
    assert world.hub.scheduler.ledger.conservation_error == 0


def test_only_frames_of_the_learners_seats_are_learnt_from_and_all_of_them_are() -> None:
    duel = Duel(8)
    world = world_after(10, duel)
    learnt = [obs for lesson in world.lessons for obs in lesson.observations]
    assert max(learnt) < 1000
    assert world.learner.global_step == len(learnt) >= 10 * 40
    ledger = world.hub.scheduler.ledger
    by_player = Counter(seat.player for seat, _ in duel.answers)
    assert ledger.env_steps_total == by_player[Player.LEARNER]
    assert ledger.others_total == by_player[Player.SNAPSHOT] > 0
    # Nothing is given up but what was under way when the client vanished.
    assert ledger.discarded_total == ledger.given_up[Discard.LOST] <= duel.num_slots
    assert ledger.conservation_error == 0


def test_battles_are_those_that_the_source_deals_episode_by_episode() -> None:
    config = SelfPlayConfig(mix="mirror=0.25,scripted=0.75")
    duel = Duel(8)
    world_after(10, duel, config=config)
    source = AssignmentSource(config, seed=0)
    table = Table("a", (2,) * 8, ("left", "right"))
    begun = [0] * 8
    assert len(duel.played) > 60
    for first, second in duel.played:
        battle = first.slot // 2
        dealt = source.assign(table, battle, begun[battle], ())
        begun[battle] += 1
        assert first.episode == second.episode == begun[battle] - 1
        assert second.slot == first.slot + 1
        expected = [(Player.SCRIPTED, dealt.bot)] * 2
        if dealt.learner_seat is None:
            expected = [(Player.LEARNER, "")] * 2
        else:
            expected[dealt.learner_seat] = (Player.LEARNER, "")
        assert [(first.player, first.name), (second.player, second.name)] == expected


def test_two_groups_get_their_own_assignments_and_no_queue_ever_runs_dry() -> None:
    duels = Duel(4), Duel(4)
    world_after(8, *duels)
    for duel in duels:
        assert not duel.ran_dry
        assert all(len(queue) <= 2 for queue in duel.queues)
        kinds = {seat.player for pair in duel.played for seat in pair}
        assert kinds == set(Player)


def test_who_played_stands_in_the_record_of_each_episode() -> None:
    duel = Duel(8)
    world = world_after(8, duel)
    records = world.listener.episodes
    assert {record["player"].split()[0] for record in records} == {p.value for p in Player}
    for first, second in zip(records[::2], records[1::2], strict=True):
        assert first["opponent"] == second["player"]
        assert second["opponent"] == first["player"]
        assert "learner" in (first["player"], second["player"])
        if first["player"] != "learner":
            assert first["trained_frames"] == 0


def test_environments_with_one_seat_are_told_nothing() -> None:
    world = ResumableWorld(target=12, selfplay=MIXED)
    client = world.join("b", (2,))
    world.play_lessons(2)
    assert client.welcome().assignments == ()
    assert client.welcome().features == ("snapshot", "restart")
    assert not any(event.assignments for event in client.events if hasattr(event, "assignments"))
    assert world.engine.snapshots == ()


def test_a_driver_that_follows_no_assignments_plays_the_learner_in_every_seat() -> None:
    class Deaf(Duel):
        assign = None

        def __init__(self, num_battles: int) -> None:
            super().__init__(num_battles)
            del self.bots

    duel = Deaf(4)
    world = world_after(3, duel)
    assert {seat.player for pair in duel.played for seat in pair} == {Player.LEARNER}
    assert world.hub.scheduler.ledger.others_answered_total == 0
    assert "player" not in world.listener.episodes[0]


def test_a_client_without_bots_never_gets_one() -> None:
    duel = Duel(8, bots=())
    world_after(6, duel)
    kinds = {seat.player for pair in duel.played for seat in pair}
    assert kinds == {Player.LEARNER, Player.SNAPSHOT}


def test_a_client_that_lacks_a_bot_of_the_run_is_refused() -> None:
    world = SelfPlayWorld(selfplay=SelfPlayConfig(scripted=("left", "search")))
    duel = Duel(2)
    hello = make_hello([duel], client_name="a", env_id="Duel-v0")
    with pytest.raises(ServerFaultError, match=r"no scripted bot named search.*left, right"):
        EnvLoop([duel], hello, clock=lambda: world.now).converse(Wire(world, lambda: None))


def test_only_the_bots_of_the_run_are_played() -> None:
    duel = Duel(8)
    world_after(4, duel, config=SelfPlayConfig(scripted=("right",)))
    names = {seat.name for pair in duel.played for seat in pair}
    assert "right" in names
    assert "left" not in names


def test_a_client_whose_bots_ask_is_ended_with_a_sentence() -> None:
    class Cheating(Duel):
        def _asks(self) -> np.ndarray:
            return np.ones(self.num_slots, np.bool_)

    world = SelfPlayWorld(selfplay=SelfPlayConfig(mix="scripted=1"))
    duel = Cheating(2)
    hello = make_hello([duel], client_name="a", env_id="Duel-v0")
    with pytest.raises(ServerFaultError, match="although a scripted bot plays its seat"):
        EnvLoop([duel], hello, clock=lambda: world.now).converse(Wire(world, lambda: None))
    assert world.hub.scheduler.ledger.conservation_error == 0


def test_seats_that_do_not_end_together_are_refused() -> None:
    class Torn(Duel):
        def step(self, actions):
            turn = super().step(actions)
            if turn.terminated.any():
                terminated = turn.terminated.copy()
                row = int(terminated.argmax())
                terminated[row] = False
                finals = (turn.final_observations[0][1:],)
                records = tuple(r for r in turn.episodes if r["row"] != row)
                turn = turn._replace(
                    terminated=terminated, final_observations=finals, episodes=records
                )
            return turn

    world = SelfPlayWorld(selfplay=MIXED)
    duel = Torn(3)
    hello = make_hello([duel], client_name="a", env_id="Duel-v0")
    with pytest.raises(ServerFaultError, match="ended for some seats of an environment"):
        EnvLoop([duel], hello, clock=lambda: world.now).converse(Wire(world, lambda: None))


def test_a_client_that_leaves_in_order_truncates_every_seat() -> None:
    world = SelfPlayWorld(selfplay=MIXED)
    duel = Duel(4)
    hello = make_hello([duel], client_name="a", env_id="Duel-v0")
    loop = EnvLoop([duel], hello, num_episodes=30, clock=lambda: world.now)
    assert loop.converse(Wire(world, lambda: None)).ending is Ending.FINISHED
    ledger = world.hub.scheduler.ledger
    assert ledger.discarded_total == ledger.num_reserved == 0
    assert ledger.others_lost_total == 0
    assert ledger.conservation_error == 0


def test_a_client_that_lost_its_connection_begins_fresh_battles_of_later_episodes() -> None:
    world = SelfPlayWorld(selfplay=MIXED)
    duel = Duel(4)
    loop = play(world, [duel], lambda: len(world.lessons) >= 2)
    before = len(duel.played)
    reached = max(seat.episode for pair in duel.played for seat in pair)
    assert duel.resets == 1
    play(world, [duel], lambda: len(world.lessons) >= 4, loop=loop)
    assert duel.resets == 2
    again = [seat.episode for pair in duel.played[before:] for seat in pair]
    assert min(again) == reached + 1
    assert world.hub.scheduler.ledger.conservation_error == 0


def test_adding_a_client_leaves_the_battles_of_the_others_as_they_were() -> None:
    config = SelfPlayConfig(mix="mirror=0.5,scripted=0.5")
    alone, together = Duel(4), Duel(4)
    world_after(4, alone, config=config)
    world = SelfPlayWorld(selfplay=config, dispatch="dynamic", mixed_environments=True)
    world.join("z", (3,), action_space=ACTION)
    play(world, [together], lambda: len(world.lessons) >= 6)

    def dealt(duel: Duel) -> dict[tuple[int, int], tuple[SeatAssignment, SeatAssignment]]:
        return {(first.slot, first.episode): (first, second) for first, second in duel.played}

    shared = dealt(alone).keys() & dealt(together).keys()
    assert len(shared) > 10
    assert all(dealt(alone)[key] == dealt(together)[key] for key in shared)


def test_snapshots_take_turns_and_never_more_play_than_may() -> None:
    config = SelfPlayConfig(mix="pool=1", snapshot_every=1, max_resident=2, pool_size=3)
    duel = Duel(6)
    world = world_after(40, duel, config=config)
    opponents = world.engine.opponents
    assert len(opponents._seated) <= 2
    assert len(opponents.versions) <= 4
    battles = [{seat.player for seat in pair} for pair in duel.played]
    # From the first snapshot on, which the episode after the next is played with, no battle is
    # without one, though they change all the time.
    assert battles[30:].count({Player.LEARNER, Player.SNAPSHOT}) == len(battles[30:])
    assert len({seat.name for pair in duel.played for seat in pair if seat.name.isdigit()}) > 6


@pytest.mark.parametrize("groups", [(6,), (3, 4)])
@pytest.mark.parametrize("lessons", [1, 5])
def test_a_run_resumed_from_a_checkpoint_goes_on_as_one_that_was_never_interrupted(
    tmp_path: Path, groups: tuple[int, ...], lessons: int
) -> None:
    config = SelfPlayConfig(
        mix="mirror=0.2,pool=0.5,scripted=0.3", snapshot_every=1, max_resident=2, pool_size=4
    )
    whole = world_after(lessons + 6, *(Duel(n) for n in groups), config=config)

    first = SelfPlayWorld(selfplay=config)
    saved = []

    def saved_by_now() -> bool:
        if len(first.lessons) >= lessons and not first.listener.rests:
            first.hub.rest()
            first.run()
        if first.listener.sessions and not saved:
            saved.append(first.write(tmp_path, first.listener.sessions[-1]))
        return bool(saved)

    play(first, [Duel(n) for n in groups], saved_by_now)
    second = SelfPlayWorld(selfplay=config, resumed=saved[0])
    duels = [Duel(n) for n in groups]
    play(second, duels, lambda: len(second.lessons) >= lessons + 6 - len(first.lessons))
    assert all(duel.resets == 0 for duel in duels)
    assert lessons_of(first) + lessons_of(second) == lessons_of(whole)
    assert second.engine.snapshots == whole.engine.snapshots
    assert {seat.player for duel in duels for pair in duel.played for seat in pair} == set(Player)


def test_environments_that_cannot_be_brought_back_begin_the_battles_of_their_welcome(
    tmp_path: Path,
) -> None:
    class Forgetful(Duel):
        def restore(self, state: bytes):
            raise ValueError("it has forgotten")

    first = SelfPlayWorld(selfplay=MIXED)
    saved = []

    def saved_by_now() -> bool:
        if len(first.lessons) >= 5 and not first.listener.rests:
            first.hub.rest()
            first.run()
        if first.listener.sessions and not saved:
            saved.append(first.write(tmp_path, first.listener.sessions[-1]))
        return bool(saved)

    old = Duel(6)
    play(first, [old], saved_by_now)
    second = SelfPlayWorld(selfplay=MIXED, resumed=saved[0])
    duel = Forgetful(6)
    play(second, [duel], lambda: len(second.lessons) >= 4)
    assert duel.resets == 1
    reached = max(seat.episode for pair in old.played for seat in pair)
    assert min(seat.episode for pair in duel.played for seat in pair) == reached + 1
    assert second.hub.scheduler.ledger.conservation_error == 0
    assert max(obs for lesson in second.lessons for obs in lesson.observations) < 1000


@pytest.mark.parametrize(
    "now",
    [
        SelfPlayConfig(mix="mirror=1"),
        SelfPlayConfig(mix="mirror=0.5,scripted=0.5"),
        SelfPlayConfig(mix="pool=1", snapshot_every=1, max_resident=2, pool_size=3),
        SelfPlayConfig(mix="pool=1", snapshot_every=1, max_resident=5, pool_size=9),
    ],
    ids=["mirror", "scripted", "smaller", "larger"],
)
def test_a_run_resumed_with_other_settings_plays_the_battles_under_way_to_their_end(
    tmp_path: Path, now: SelfPlayConfig
) -> None:
    then = SelfPlayConfig(
        mix="pool=0.8,scripted=0.2", snapshot_every=1, max_resident=3, pool_size=5
    )
    first = SelfPlayWorld(selfplay=then)
    saved = []

    def saved_by_now() -> bool:
        if len(first.lessons) >= 6 and not first.listener.rests:
            first.hub.rest()
            first.run()
        if first.listener.sessions and not saved:
            saved.append(first.write(tmp_path, first.listener.sessions[-1]))
        return bool(saved)

    old = Duel(6)
    play(first, [old], saved_by_now)
    assert len(first.engine.opponents._seated) == 3
    second = SelfPlayWorld(selfplay=now, resumed=saved[0])
    duel = Duel(6)
    play(second, [duel], lambda: len(second.lessons) >= 8)
    assert len(second.lessons) >= 8
    assert second.listener.errors == []
    assert second.hub.scheduler.ledger.conservation_error == 0
    by_snapshot = [seat for seat, _ in duel.answers if seat.player is Player.SNAPSHOT]
    assert by_snapshot  # the battles that were under way
    for seat, action in duel.answers:
        if seat.player is Player.SNAPSHOT:
            assert action // 4 == int(seat.name)
    expected = {kind for kind, share in now.shares.items() if share}
    later = [{seat.player for seat in pair} for pair in duel.played[30:]]
    kinds = {
        frozenset({Player.LEARNER}): "mirror",
        frozenset({Player.LEARNER, Player.SNAPSHOT}): "pool",
        frozenset({Player.LEARNER, Player.SCRIPTED}): "scripted",
    }
    assert {kinds[frozenset(pair)] for pair in later} == expected
    assert len(second.engine.opponents._seated) <= max(now.max_resident, 0)
    if not now.shares["pool"]:
        assert second.engine.snapshots == ()  # nobody will play them again
