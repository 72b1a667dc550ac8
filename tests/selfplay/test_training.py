"""Self-play with PPO, from the trainer down: rows, checkpoints, and runs that are resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import checkpoints
from royale_client.wire.seating import Player
from royale_server.exit_codes import ExitCode
from royale_server.monitoring.declarations import SERVER_METRICS
from royale_server.selfplay.config import SelfPlayConfig
from tests.selfplay.duel import Duel, play
from tests.server.trainer_world import Attempt

CONFIG = SelfPlayConfig(
    mix="mirror=0.2,pool=0.5,scripted=0.3", snapshot_every=2, max_resident=2, pool_size=3
)
ROWS = 9


class SelfPlayAttempt(Attempt):
    """An attempt whose clients are loops with drivers."""

    def __init__(self, directory: Path, **settings: object) -> None:
        super().__init__(directory, selfplay=CONFIG, save_every=1000, heatmap_every=3, **settings)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.hub.tick()
        self.trainer.tick()
        self.run()

    def play_until(self, until: Callable[[], bool]) -> tuple[Duel, Duel]:
        duels = Duel(3), Duel(4)
        play(self, duels, until)
        return duels

    @property
    def pool(self) -> tuple[int, ...]:
        built = self.trainer._built
        assert built is not None
        return built.engine.snapshots


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[SelfPlayAttempt, tuple[Duel, Duel]]:
    """The run without a stop, and its two groups of battles."""
    attempt = SelfPlayAttempt(tmp_path_factory.mktemp("whole"))
    return attempt, attempt.play_until(lambda: len(attempt.writer.rows) >= ROWS)


def test_rows_tell_of_the_learners_episodes_and_of_others_frames_apart(whole) -> None:
    attempt, duels = whole
    rows = attempt.writer.rows
    assert all(row["server/conservation_error"] == 0 for row in rows)
    counted = [row["server/opponent_frames"] for row in rows]
    assert counted == sorted(counted)
    assert counted[1] == 0  # the first snapshot is taken after the second learn step
    answered = sum(seat.player is Player.SNAPSHOT for duel in duels for seat, _ in duel.answers)
    assert 0 < counted[-1] <= answered
    learner = sum(seat.player is Player.LEARNER for duel in duels for seat, _ in duel.answers)
    assert rows[-1]["run/env_steps"] <= learner
    episodes = [seat for duel in duels for pair in duel.played for seat in pair]
    of_learner = sum(seat.player is Player.LEARNER for seat in episodes)
    total = rows[-1]["env/episodes_total"]
    # All but those that had begun and not ended, of at most 14 rows, and of those in flight.
    for row in rows[2:]:
        kinds = [row.get(f"selfplay/episodes_{player.value}", 0) for player in Player]
        assert sum(kinds) == row["env/episodes"]
    emitted = {key for row in rows for key in row if key.startswith("selfplay/")}
    assert emitted == {s.key for s in SERVER_METRICS if s.key.startswith("selfplay/")}
    assert of_learner - 28 <= total <= of_learner < len(episodes)


def test_heat_maps_count_every_episode_of_the_learner_and_no_other(whole) -> None:
    attempt, _ = whole
    maps, rows = attempt.writer.maps, attempt.writer.rows
    assert [(m["first_iteration"], m["iteration"]) for m in maps[:3]] == [(1, 3), (4, 6), (7, 9)]
    for told in maps[:3]:
        of_window = rows[told["first_iteration"] - 1 : told["iteration"]]
        episodes = sum(row["env/episodes"] for row in of_window)
        # Every episode names one spot; those that ended during a learn step belong to the next.
        assert sum(told["counts"]["spots"].values()) == told["episodes"] == episodes


def test_the_pool_keeps_the_newest_snapshots(whole) -> None:
    attempt, _ = whole
    assert attempt.pool[-1] == 8
    assert len(attempt.pool) in (3, 4)


@pytest.mark.parametrize("stop_at", [1, 3, 4, 6])
def test_a_run_that_is_stopped_and_resumed_learns_what_one_does_that_was_not(
    whole, tmp_path: Path, stop_at: int
) -> None:
    first = SelfPlayAttempt(tmp_path)
    interrupts: list[int] = []

    def stopped() -> bool:
        if len(first.writer.rows) >= stop_at and not interrupts:
            interrupts.append(stop_at)
            first.interrupt()
        return first.exit_code is not None

    first.play_until(stopped)
    assert first.exit_code is ExitCode.FINISHED
    newest, _ = checkpoints.newest(tmp_path)
    assert (newest / "opponents.safetensors").exists() == (stop_at > 1)
    second = SelfPlayAttempt(tmp_path)
    duels = second.play_until(lambda: len(second.writer.rows) >= ROWS - len(first.rows))
    assert [duel.resets for duel in duels] == [0, 0]
    assert first.rows + second.rows == whole[0].rows[:ROWS]
    assert second.model() == whole[0].model()
    assert second.pool == whole[0].pool
