"""Evaluation over the wire: paired deals, pinned weights, and nothing of it is learnt from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from algorithms.evaluation.config import EvalConfig
from algorithms.evaluation.learner import EvalLearner
from algorithms.policies.config import MLPPolicyConfig
from algorithms.policies.mlp import MLPPolicy
from algorithms.ppo.config import PPOConfig
from algorithms.ppo.learner import PPO
from algorithms.spaces import Spaces
from royale_client.driver import Leaves, Turn
from royale_client.hello import make_hello
from royale_client.loop import EnvLoop, ServerFaultError
from royale_client.wire.episodes import EpisodeMetric
from royale_client.wire.errors import ConfigError
from royale_client.wire.seating import Player
from royale_server.evaluation.config import EvaluateConfig
from royale_server.exit_codes import ExitCode
from royale_server.monitoring.declarations import EVALUATION, EVALUATION_BATTLES
from royale_server.selfplay.config import SelfPlayConfig
from tests.selfplay.duel import ACTION, OBSERVATION, Duel, SelfPlayWorld, Wire, play
from tests.server.trainer_world import Attempt

SELFPLAY = SelfPlayConfig(mix="pool=1", snapshot_every=2, pool_size=3)


class Judged(Duel):
    """Battles that say who won, by the number they end with: 0 a draw, 1 seat 0, 2 seat 1."""

    episode_metrics = (
        *Duel.episode_metrics,
        EpisodeMetric("win_rate", "1", "decided", "ratio"),
        EpisodeMetric("draw_rate", "1", "finished", "ratio"),
    )

    def __init__(self, num_battles: int) -> None:
        super().__init__(num_battles)
        self.seeds: list[int] = []
        self.versions: list[set[int]] = [set() for _ in range(num_battles)]
        self.battles: list[tuple[int, int, set[int]]] = []
        """Of each that ended: the policy's seat, who won, and the versions that acted for it."""

    def reset(self, seeds: np.ndarray) -> Turn:
        self.seeds = seeds.tolist()
        return super().reset(seeds)

    def step(self, actions: Leaves) -> Turn:
        seats, before = list(self.seats), len(self.answers)
        turn = super().step(actions)
        asked = [s for s, seat in enumerate(seats) if seat.player is not Player.SCRIPTED]
        for slot, (seat, action) in zip(asked, self.answers[before:], strict=True):
            if seat.player is Player.LEARNER:
                self.versions[slot // 2].add(action // 4)
        return turn._replace(episodes=tuple(self._judged(seats, e) for e in turn.episodes))

    def _judged(self, seats, episode):
        battle, seat = divmod(episode["row"], 2)
        winner = episode["metrics"]["spots"][0] % 3
        if seats[episode["row"]].player is Player.LEARNER:
            self.battles.append((seat, winner, self.versions[battle]))
            self.versions[battle] = set()
        metrics = {**episode["metrics"], "draw_rate": [winner == 0, 1]}
        if winner:
            metrics["win_rate"] = [winner == 1 + seat, 1]
        return {**episode, "metrics": metrics}


def world_of(*against: str, battles: int = 8) -> SelfPlayWorld:
    evaluate = EvaluateConfig(against=against or ("left",), battles=battles)
    return SelfPlayWorld(selfplay=SELFPLAY, evaluate=evaluate)


def judged(world: SelfPlayWorld, *drivers: Judged, rounds: int = 3) -> None:
    """Play rounds while the policy learns, somewhere else, all the time."""
    calls = 0

    def until() -> bool:
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            world.learner.policy_version += 1
            world.learner._mark()
        return len(world.listener.rounds) >= rounds

    play(world, drivers, until, name="judge", role="eval")


@pytest.fixture(scope="module")
def played() -> tuple[SelfPlayWorld, Judged]:
    world, judge = world_of("left", "right"), Judged(4)
    judged(world, judge, rounds=4)
    return world, judge


def test_a_round_is_played_by_one_version_while_the_policy_learns_on(played) -> None:
    world, judge = played
    assert all(len(versions) == 1 for _, _, versions in judge.battles)
    rounds = [round_ for round_, _ in world.listener.rounds]
    assert [r.number for r in rounds] == [1, 2, 3, 4]
    versions = [r.version for r in rounds]
    assert len(set(versions)) >= 3  # two rounds may begin between two learn steps
    assert versions == sorted(versions)
    assert {v for _, _, (v,) in ((s, w, tuple(vs)) for s, w, vs in judge.battles)} >= set(versions)


def test_what_a_round_comes_to_is_what_was_played_under_its_version(played) -> None:
    world, judge = played
    rounds = [round_ for round_, _ in world.listener.rounds]
    for round_ in rounds[:2]:
        results = [
            0 if winner == 0 else 1 if winner == 1 + seat else -1
            for seat, winner, versions in judge.battles
            if versions == {round_.version}
        ]
        verdict = round_.verdict()
        assert verdict.battles == 8
        # Battles beyond the eight may have been played by that version, and count for nothing.
        assert verdict.wins <= results.count(1)
        assert verdict.losses <= results.count(-1)
        assert verdict.draws <= results.count(0)
    assert [r.opponent for r in rounds] == ["left", "right", "left", "right"]


def test_two_battles_each_begin_with_one_seed_and_the_policy_has_either_seat(played) -> None:
    _, judge = played
    keys = judge.seeds[::2]  # a battle has the seed of its first seat
    assert keys[0] == keys[1] != keys[2] == keys[3]
    first = judge.played[:4]
    assert [pair[0].player is Player.LEARNER for pair in first] == [True, False, True, False]
    assert [pair[1].player is Player.LEARNER for pair in first] == [False, True, False, True]
    assert not judge.ran_dry


def test_nothing_of_it_is_stored_counted_or_learnt_from(played) -> None:
    world, _ = played
    ledger = world.hub.scheduler.ledger
    assert world.learner.global_step == ledger.env_steps_total == ledger.others_total == 0
    assert ledger.discarded_total == ledger.conservation_error == 0
    assert world.lessons == []
    assert all(episode["evaluation"] for episode in world.listener.episodes)


def test_records_name_the_version_and_its_opponent(played) -> None:
    world, _ = played
    pairs = {(e["player"].split()[0], e["opponent"].split()[0]) for e in world.listener.episodes}
    assert pairs == {
        ("version", "left"),
        ("left", "version"),
        ("version", "right"),
        ("right", "version"),
    }


def test_weights_that_nobody_plays_are_let_go(played) -> None:
    world, _ = played
    assert len(world.engine.evaluated.versions) <= 3
    assert world.engine.snapshots == ()  # the pool of self-play, which is saved, has none of them


def test_two_groups_share_the_rounds() -> None:
    world, judges = world_of(battles=12), (Judged(3), Judged(3))
    judged(world, *judges, rounds=2)
    assert [round_.verdict().battles for round_, _ in world.listener.rounds] == [12, 12]
    keys = [key for judge in judges for key in judge.seeds[::2]]
    assert keys[::2] == keys[1::2]


def test_a_round_goes_on_with_another_client_when_one_is_gone() -> None:
    world = world_of(battles=16)
    gone = Judged(4)
    play(world, [gone], lambda: len(gone.battles) >= 6, name="gone", role="eval")
    assert world.listener.rounds == []
    judged(world, Judged(2), rounds=1)
    assert world.listener.rounds[0][0].verdict().battles == 16


def test_snapshots_of_the_policy_may_be_opponents_by_their_weights() -> None:
    world = world_of("runs/ppo/table/first/64")
    hello = make_hello([Judged(2)], client_name="judge", env_id="Duel-v0", role="eval")
    world.admission.first_spaces(hello)
    world.run()
    strong = {name: t.clone() for name, t in world.learner.policy.tensors().items()}
    strong["mark"].fill_(77)
    world.engine.evaluate_with([strong], greedy=False)
    judge = Judged(2)
    judged(world, judge, rounds=1)
    by_snapshot = {action // 4 for seat, action in judge.answers if seat.name == "1"}
    assert by_snapshot == {77}
    assert world.listener.rounds[0][0].opponent == "runs/ppo/table/first/64"


@pytest.mark.parametrize(
    ("driver", "said"),
    [
        (Judged(3), "an even --num-envs"),
        (Duel(2), "win_rate and draw_rate"),
    ],
)
def test_clients_that_cannot_play_rounds_are_refused_with_the_reason(driver, said) -> None:
    with pytest.raises(ServerFaultError, match=said):
        judged(world_of(), driver)


def test_a_bot_that_the_client_lacks_is_named() -> None:
    with pytest.raises(ServerFaultError, match="no scripted bot named heuristic"):
        judged(world_of("heuristic"), Judged(2))


def test_seeds_of_the_clients_own_are_refused_since_no_deal_would_be_played_twice() -> None:
    world, judge = world_of(), Judged(2)
    hello = make_hello([judge], client_name="judge", env_id="Duel-v0", role="eval")
    loop = EnvLoop([judge], hello, seed=5, clock=lambda: world.now)
    with pytest.raises(ConfigError, match="--seed 5"):
        loop.converse(Wire(world, lambda: None))


# --- from the trainer down --------------------------------------------------------------------


class EvaluationAttempt(Attempt):
    """A server that only evaluates."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            directory,
            learner=EvalLearner,
            algo=EvalConfig(policy_checkpoint_path=directory),
            evaluate=EvaluateConfig(against=("left", "right"), battles=8),
        )
        spaces = Spaces(observation=OBSERVATION, action=ACTION, masks=False)
        policy = MLPPolicy(MLPPolicyConfig(hidden_sizes=(8,), normalize_observations=True), spaces)
        trained = PPO(PPOConfig(), policy, seed=0)
        trained.policy_version = 12
        self.trainer._start.warm_start = trained.state()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.hub.tick()
        self.trainer.tick()
        self.run()


def test_a_server_that_only_evaluates_has_a_row_a_round_and_ends_with_the_last(tmp_path) -> None:
    attempt, judge = EvaluationAttempt(tmp_path), Judged(4)
    loop = play(attempt, [judge], lambda: False, role="eval")
    assert attempt.exit_code is ExitCode.FINISHED
    assert loop is not None
    first, second = attempt.writer.rows
    declared = {spec.key for spec in (*EVALUATION, *EVALUATION_BATTLES)}
    assert set(first) == declared | {"run/iteration", "run/attempt"}
    assert (first["run/iteration"], second["run/iteration"]) == (1, 2)
    assert first["env/eval_policy_version"] == 12
    assert first["env/eval_battles"] == 8
    told = [event for event in attempt.writer.events if event["kind"] == "evaluated"]
    assert [event["opponent"] for event in told] == ["left", "right"]
    assert "policy version 12 against left" in told[0]["message"]
    assert attempt.writer.steps == []  # there is nothing to save


def test_a_server_that_only_evaluates_takes_no_clients_that_train(tmp_path) -> None:
    attempt = EvaluationAttempt(tmp_path)
    with pytest.raises(ServerFaultError, match="--role eval"):
        play(attempt, [Judged(2)], lambda: False)


def test_settings_of_collecting_mean_nothing_to_eval() -> None:
    with pytest.raises(ConfigError, match="frames-per-iteration"):
        EvalConfig(frames_per_iteration=5)
