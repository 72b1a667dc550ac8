"""The arena as a client's driver: both seats are slots, and a snapshot continues exactly."""

import numpy as np
import pytest

from royale_client.cli import parse_flags
from royale_client.driver import SnapshotError, Turn
from royale_client.envs.arena.provider import PROVIDER, ArenaConfig
from royale_client.envs.arena.rules import ACTIONS
from royale_client.hello import make_hello
from royale_client.snapshots.encoding import pack, unpack
from royale_client.wire.episodes import check_records, clean_record
from royale_client.wire.errors import ConfigError
from royale_client.wire.limits import Limits
from royale_client.wire.seating import Player, SeatAssignment

BATTLES = 3
SLOTS = 2 * BATTLES
SEEDS = np.arange(SLOTS, dtype=np.uint64) + np.uint64(11)
LONGEST = 360
"""Decisions after which every battle is over: 1,800 ticks of five a decision."""


def make(**config: float):
    return PROVIDER.make(ArenaConfig(**config), BATTLES)


def legal_actions(turn: Turn, generator: np.random.Generator) -> np.ndarray:
    """One legal action a slot; the no-op in four of five."""
    assert turn.masks is not None
    drawn = (turn.masks * generator.random(turn.masks.shape)).argmax(axis=1)
    return np.where(generator.random(SLOTS) < 0.8, 0, drawn)


def play(driver, turn: Turn, steps: int, seed: int = 0):
    generator = np.random.default_rng(seed)
    for _ in range(steps):
        actions = legal_actions(turn, generator)
        turn = driver.step((actions,))
        yield turn


def copied(turn: Turn) -> Turn:
    """A turn in memory of its own: the driver writes into what it handed out."""
    assert turn.masks is not None
    return turn._replace(
        observations=tuple(leaf.copy() for leaf in turn.observations), masks=turn.masks.copy()
    )


def assert_equal(one: Turn, other: Turn) -> None:
    for name in ("rewards", "terminated", "truncated", "masks"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for mine, theirs in zip(one.observations, other.observations, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert (one.final_observations is None) == (other.final_observations is None)
    for mine, theirs in zip(
        one.final_observations or (), other.final_observations or (), strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)


def test_hello_names_battle_and_seat_of_every_slot() -> None:
    hello = make_hello([make()], env_id="royale/arena")
    assert hello.groups == (SLOTS,)
    assert hello.environments.tolist() == [0, 0, 1, 1, 2, 2]
    assert hello.seats.tolist() == [0, 1, 0, 1, 0, 1]
    assert hello.masks


def test_every_turn_has_the_declared_shapes_and_only_legal_rows_of_the_mask() -> None:
    driver = make()
    first = driver.reset(SEEDS)
    for turn in play(driver, first, 30):
        planes, vector = turn.observations
        assert planes.shape[0] == vector.shape[0] == SLOTS
        assert (planes.dtype, vector.dtype) == (np.uint8, np.float32)
        assert turn.masks.shape == (SLOTS, ACTIONS)
        assert turn.masks[:, 0].all(), "the no-op is always legal"
        assert turn.asks is None


def test_both_seats_end_together_with_opposite_rewards_and_a_record_each() -> None:
    driver = make()
    first = driver.reset(SEEDS)
    metrics = {metric.name: metric for metric in driver.episode_metrics}
    ended = 0
    for turn in play(driver, first, LONGEST):
        rewards = turn.rewards.reshape(BATTLES, 2)
        np.testing.assert_array_equal(rewards[:, 0], -rewards[:, 1])
        over = turn.terminated.reshape(BATTLES, 2)
        np.testing.assert_array_equal(over[:, 0], over[:, 1])
        assert not turn.truncated.any()
        rows = [record["row"] for record in turn.episodes]
        assert rows == turn.terminated.nonzero()[0].tolist()
        records = tuple(clean_record(r, driver.episode_metrics)[0] for r in turn.episodes)
        check_records(records, turn.terminated, metrics, Limits())
        ended += len(rows)
    assert ended >= SLOTS, "no battle is longer than the cap"


def test_the_final_observation_is_the_finished_battle_and_the_next_one_begins_at_once() -> None:
    driver = make()
    turn = first = driver.reset(SEEDS)
    first_planes = turn.observations[0].copy()
    for turn in play(driver, first, LONGEST):
        if turn.episodes:
            break
    row = turn.episodes[0]["row"]
    finals = turn.final_observations
    assert finals is not None
    # Towers stand at full health when a battle begins, and somebody lost some in this one.
    assert not np.array_equal(finals[0][0], first_planes[row])
    hp_planes = slice(8, 10)
    np.testing.assert_array_equal(
        turn.observations[0][row][hp_planes], first_planes[row][hp_planes]
    )


def test_the_same_seeds_and_actions_give_the_same_battles_and_others_do_not() -> None:
    one, other = make(), make()
    for mine, theirs in zip(
        play(one, one.reset(SEEDS), 40), play(other, other.reset(SEEDS), 40), strict=True
    ):
        assert_equal(mine, theirs)
    different = make().reset(SEEDS + np.uint64(100))
    assert not np.array_equal(different.observations[1], make().reset(SEEDS).observations[1])


def test_a_snapshot_goes_on_in_another_driver_byte_for_byte() -> None:
    driver = make()
    first = driver.reset(SEEDS)
    (*_, turn) = play(driver, first, 60)
    state, newest = driver.snapshot(), copied(turn)
    expected = [copied(t) for t in play(driver, newest, 300, seed=5)]

    fresh = make()
    restored = fresh.restore(state)
    assert_equal(restored, newest)
    records = []
    for mine, theirs in zip(play(fresh, restored, 300, seed=5), expected, strict=True):
        assert_equal(mine, theirs)
        records.append(([dict(e, time_s=0) for e in mine.episodes], theirs))
    assert any(mine for mine, _ in records)
    for mine, theirs in records:
        assert mine == [dict(e, time_s=0) for e in theirs.episodes]


def test_snapshots_that_are_damaged_or_of_other_rewards_are_refused_and_a_reset_heals() -> None:
    driver = make()
    with pytest.raises(SnapshotError, match="before its first reset"):
        driver.snapshot()
    driver.reset(SEEDS)
    state = driver.snapshot()
    with pytest.raises(SnapshotError):
        driver.restore(state[:-1])
    with pytest.raises(SnapshotError, match="gamma"):
        make(gamma=0.99).restore(state)
    with pytest.raises(SnapshotError):
        PROVIDER.make(ArenaConfig(), BATTLES + 1).restore(state)
    assert driver.reset(SEEDS).asks is None


def test_a_farewell_truncates_what_is_still_open() -> None:
    driver = make()
    assert driver.last_turn() is None
    first = driver.reset(SEEDS)
    assert driver.last_turn() is None
    list(play(driver, first, 3))
    last = driver.last_turn()
    assert last.truncated.all()
    assert len(last.final_observations[0]) == SLOTS
    assert last.asks is not None
    assert not last.asks.any()


@pytest.mark.parametrize("wrong", [{"gamma": 1.5}, {"shaping_crowns": -0.1}])
def test_settings_out_of_range_are_refused_by_name(wrong: dict[str, float]) -> None:
    (name,) = wrong
    with pytest.raises(ConfigError, match=name.removeprefix("shaping_")):
        ArenaConfig(**wrong)


def test_battles_is_what_this_family_calls_num_envs() -> None:
    for words in (["--battles", "64"], ["--battles=64"], ["--num-envs", "64"]):
        _, client = parse_flags(PROVIDER, words)
        assert client.num_envs == 64


def test_a_bot_that_there_is_not_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"--bots.*nobody"):
        PROVIDER.make(ArenaConfig(bots=("noop", "nobody")), BATTLES)


def seat(slot: int, episode: int, bot: str = "") -> SeatAssignment:
    player = Player.SCRIPTED if bot else Player.LEARNER
    return SeatAssignment(slot=slot, episode=episode, player=player, name=bot)


def test_a_bots_rows_do_not_ask_and_it_plays_its_seat_until_the_battle_ends() -> None:
    driver = make()
    rows = [seat(s, 0, "push" if s == 1 else "") for s in range(SLOTS)]
    driver.assign([*rows, *(seat(s, 1) for s in range(SLOTS))], afresh=True)
    turn = driver.reset(SEEDS)
    asking = [0, 2, 3, 4, 5]
    assert turn.asks.nonzero()[0].tolist() == asking
    assert len(turn.observations[0]) == len(turn.masks) == len(asking)
    for _ in range(LONGEST):
        turn = driver.step((np.zeros(len(turn.observations[0]), np.int64),))
        if turn.terminated[1]:
            break
        assert turn.asks.nonzero()[0].tolist() == asking
    assert turn.terminated[:2].all()
    (won,) = (r["metrics"]["win_rate"][0] for r in turn.episodes if r["row"] == 1)
    assert won, "nobody answers, so the bot wins"
    plays = {
        r["row"]: r["metrics"]["policy/cards_per_match"] for r in turn.episodes if r["row"] < 2
    }
    assert plays[1] > 0
    assert plays[0] == 0
    assert turn.asks is None, "the next episode is the learner's in every seat"


def test_a_farewell_ends_the_seats_of_bots_too() -> None:
    driver = make()
    driver.assign([seat(s, 0, "push" if s == 1 else "") for s in range(SLOTS)], afresh=True)
    turn = driver.reset(SEEDS)
    driver.step((np.zeros(len(turn.observations[0]), np.int64),))
    assert driver.last_turn().truncated.all()


def test_a_snapshot_holds_who_plays_and_who_will() -> None:
    driver = make()
    rows = [seat(s, e, "random" if (s + e) % 2 else "") for e in range(2) for s in range(SLOTS)]
    driver.assign(rows, afresh=True)
    first = driver.reset(SEEDS)
    zeros = np.zeros(len(first.observations[0]), np.int64)
    for _ in range(5):
        driver.step((zeros,))
    state = driver.snapshot()
    fresh = make()
    fresh.restore(state)
    for _ in range(LONGEST):
        mine, theirs = driver.step((zeros,)), fresh.step((zeros,))
        np.testing.assert_array_equal(mine.rewards, theirs.rewards)
        assert (mine.asks is None) == (theirs.asks is None)
        if mine.episodes:
            break
    np.testing.assert_array_equal(mine.asks, theirs.asks)


def test_a_snapshot_with_impossible_seats_is_refused_like_any_other_damage() -> None:
    driver = make()
    driver.assign([seat(s, 0) for s in range(SLOTS)] * 2, afresh=True)
    driver.reset(SEEDS)
    document = unpack(driver.snapshot())
    impossible = {"slots": [SLOTS], "episode": 0, "player": "learner"}
    for seats in ({"names": [""] * SLOTS, "queued": [impossible]}, {"names": ["nobody"] * SLOTS}):
        changed = {**document["body"]["seats"], **seats}
        damaged = {**document, "body": {**document["body"], "seats": changed}}
        with pytest.raises(SnapshotError, match="no state of the arena"):
            driver.restore(pack(damaged))
    assert driver.reset(SEEDS).masks is not None
