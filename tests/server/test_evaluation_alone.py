"""Evaluation of a policy that plays alone, over the wire: pinned weights and whole episodes."""

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
from royale_client.driver import Leaves, Turn, farewell
from royale_client.hello import make_hello
from royale_client.loop import EnvLoop
from royale_client.wire.episodes import EpisodeMetric
from royale_server.evaluation.config import EvaluateConfig
from royale_server.exit_codes import ExitCode
from royale_server.monitoring.declarations import EVALUATION, EVALUATION_EPISODES
from royale_server.selfplay.config import SelfPlayConfig
from tests.selfplay.duel import ACTION, OBSERVATION, MarkedPolicy, SelfPlayWorld, play
from tests.server.trainer_world import Attempt


class Walk:
    """Environments of one seat whose episodes have 2 to 4 steps; each pays 1, and slot / 8 more."""

    num_seats = 1
    has_masks = False
    observation_space = OBSERVATION
    action_space = ACTION
    episode_metrics: tuple[EpisodeMetric, ...] = ()
    snapshot_obstacle: str | None = "there is none"
    bots = ()

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self.t = np.zeros(num_slots, np.int64)
        self.ordinal = np.zeros(num_slots, np.int64)
        self.actions: list[list[int]] = [[] for _ in range(num_slots)]
        self.episodes: list[tuple[float, list[int]]] = []
        """Return and actions of each that ended."""
        self._turn: Turn | None = None

    def reset(self, seeds: np.ndarray) -> Turn:
        del seeds
        self._turn = Turn.first(self._shown(), None)
        return self._turn

    def step(self, actions: Leaves) -> Turn:
        for slot, action in enumerate(actions[0].tolist()):
            self.actions[slot].append(action)
        self.t += 1
        over = self.t >= 2 + (self.ordinal + np.arange(self.num_slots)) % 3
        finals = tuple(leaf[over] for leaf in self._shown()) if over.any() else None
        records = []
        for slot in np.flatnonzero(over).tolist():
            length = int(self.t[slot])
            returned = length * (1.0 + slot / 8)
            records.append({"row": slot, "return": returned, "length": length, "time_s": 0.0})
            self.episodes.append((returned, self.actions[slot]))
            self.actions[slot] = []
        self.ordinal += over
        self.t[over] = 0
        self._turn = Turn(
            asks=None,
            observations=self._shown(),
            masks=None,
            rewards=1.0 + np.arange(self.num_slots) / 8,
            terminated=over,
            truncated=np.zeros(self.num_slots, np.bool_),
            final_observations=finals,
            episodes=tuple(records),
            frames=self.num_slots,
        )
        return self._turn

    def last_turn(self) -> Turn | None:
        if self._turn is None or self._turn.terminated is None:
            return None
        return farewell(self._turn, ~self._turn.terminated, self._shown())

    def close(self) -> None:
        pass

    def _shown(self) -> Leaves:
        return ((10 * self.ordinal + self.t).astype(np.float32).reshape(-1, 1),)


class ChoosyPolicy(MarkedPolicy):
    """Says in its actions whether it was to take its likeliest one."""

    def act(self, observations, masks, noise, deterministic=False):
        inference = super().act(observations, masks, noise, deterministic)
        if deterministic:
            inference.actions[0][:] = 4 * int(self.mark) + 3
        else:
            inference.actions[0][:] = 4 * int(self.mark) + inference.actions[0] % 3
        return inference


class World(SelfPlayWorld):
    policy_class = ChoosyPolicy


def world_of(episodes: int = 6, **settings: str) -> World:
    evaluate = EvaluateConfig(episodes=episodes, **settings)
    return World(selfplay=SelfPlayConfig(), evaluate=evaluate)


def learn(world: World) -> None:
    """The policy learns, somewhere else."""
    world.learner.policy_version += 1
    world.learner._mark()
    world.hub.snapshot_if_due(world.learner.policy_version)


def judged(world: World, *walks: Walk, rounds: int = 3, learns_every: int = 3) -> EnvLoop:
    calls = 0

    def until() -> bool:
        nonlocal calls
        calls += 1
        if calls % learns_every == 0:
            learn(world)
        return len(world.listener.rounds) >= rounds

    return play(world, walks, until, name="judge", role="eval")


@pytest.fixture(scope="module")
def played() -> tuple[World, Walk]:
    world, walk = world_of(), Walk(4)
    judged(world, walk, rounds=4)
    return world, walk


def test_every_episode_is_played_by_one_version_while_the_policy_learns_on(played) -> None:
    world, walk = played
    versions = [{action // 4 for action in actions} for _, actions in walk.episodes]
    assert all(len(each) == 1 for each in versions)
    rounds = [round_ for round_, _ in world.listener.rounds]
    assert [r.number for r in rounds] == [1, 2, 3, 4]
    assert len({r.version for r in rounds}) == 4
    assert {v for (v,) in versions} >= {r.version for r in rounds}


def test_what_a_round_comes_to_is_what_its_episodes_returned(played) -> None:
    world, walk = played
    for round_, _ in world.listener.rounds:
        own = sorted(r for r, actions in walk.episodes if actions[0] // 4 == round_.version)
        # Episodes beyond the six may have been played by that version, and count for nothing.
        assert len(round_.returns) == 6
        assert all(own.count(r) >= round_.returns.count(r) for r in round_.returns)
        assert round_.env_id == "Duel-v0"


def test_the_likeliest_actions_are_taken_where_the_policy_plays_alone(played) -> None:
    _, walk = played
    assert {action % 4 for _, actions in walk.episodes for action in actions} == {3}


def test_actions_are_drawn_where_that_is_asked_for() -> None:
    world, walk = world_of(actions="drawn"), Walk(4)
    judged(world, walk, rounds=2)
    assert {action % 4 for _, actions in walk.episodes for action in actions} == {0, 1, 2}


def test_nothing_of_it_is_stored_counted_or_learnt_from(played) -> None:
    world, _ = played
    ledger = world.hub.scheduler.ledger
    assert world.learner.global_step == ledger.env_steps_total == 0
    assert ledger.discarded_total == ledger.conservation_error == 0
    assert world.lessons == []
    assert all(episode["evaluation"] for episode in world.listener.episodes)


def test_records_name_the_version_that_played(played) -> None:
    world, walk = played
    for record, (_, actions) in zip(world.listener.episodes, walk.episodes, strict=False):
        version = actions[0] // 4
        assert record["player"] == f"version {version}"
        assert record["first_policy_version"] == record["last_policy_version"] == version


def test_weights_that_nobody_plays_are_let_go(played) -> None:
    world, _ = played
    assert len(world.engine.evaluated.versions) <= 3
    assert world.engine.snapshots == ()


def test_no_version_is_evaluated_twice() -> None:
    world, walk = world_of(), Walk(4)
    play(world, [walk], lambda: len(walk.episodes) >= 40, name="judge", role="eval")
    assert [round_.number for round_, _ in world.listener.rounds] == [1]


def test_two_clients_of_two_groups_share_a_round() -> None:
    world, walks = world_of(episodes=12), (Walk(2), Walk(3))
    judged(world, *walks, rounds=2)
    assert [len(round_.returns) for round_, _ in world.listener.rounds] == [12, 12]


def test_a_round_goes_on_with_another_client_when_one_is_gone() -> None:
    world, gone = world_of(episodes=16), Walk(4)
    play(world, [gone], lambda: len(gone.episodes) >= 6, name="gone", role="eval")
    assert world.listener.rounds == []
    judged(world, Walk(2), rounds=1, learns_every=10**6)
    (round_,) = [round_ for round_, _ in world.listener.rounds]
    assert len(round_.returns) == 16
    assert round_.number == 1


def test_an_episode_that_began_in_a_lost_session_counts_for_nothing() -> None:
    world, walk = world_of(episodes=2), Walk(1)
    hello = make_hello([walk], client_name="judge", env_id="Walk-v0", role="eval")
    loop = EnvLoop([walk], hello, clock=lambda: world.now)
    # The first episode has two steps: one is played in a session that is lost for good.
    play(world, [walk], lambda: bool(walk.actions[0]), loop=loop)
    world.wait(world.config.reconnect_grace + 1)
    play(world, [walk], lambda: bool(world.listener.rounds), loop=loop)
    (round_,) = [round_ for round_, _ in world.listener.rounds]
    # Episodes have 2, 3, 4, 2, … steps: the first of them is not among the two.
    assert round_.lengths == [3, 4]


# --- from the trainer down --------------------------------------------------------------------


class EvaluationAttempt(Attempt):
    """A server that only evaluates."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            directory,
            learner=EvalLearner,
            algo=EvalConfig(policy_checkpoint_path=directory),
            evaluate=EvaluateConfig(episodes=6),
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


def test_a_server_that_only_evaluates_ends_after_a_round_of_episodes(tmp_path) -> None:
    attempt, walk = EvaluationAttempt(tmp_path), Walk(4)
    play(attempt, [walk], lambda: False, role="eval")
    assert attempt.exit_code is ExitCode.FINISHED
    (row,) = attempt.writer.rows
    declared = {spec.key for spec in (*EVALUATION, *EVALUATION_EPISODES)}
    assert set(row) == declared | {"run/iteration", "run/attempt"}
    # The six episodes that begin first: of 2, 3, 4 and 2 steps in slots 0 to 3, then the second
    # ones of slots 0 and 3, which are over first, of 3 steps each. A step pays 1 + slot / 8.
    returns = [2 * 1.0, 3 * 1.125, 4 * 1.25, 2 * 1.375, 3 * 1.0, 3 * 1.375]
    assert row["env/eval_return_mean"] == pytest.approx(sum(returns) / 6)
    assert (row["env/eval_return_min"], row["env/eval_return_max"]) == (2.0, 5.0)
    assert row["env/eval_length_mean"] == pytest.approx(17 / 6)
    assert (row["env/eval_episodes"], row["env/eval_policy_version"]) == (6, 12)
    (told,) = [event for event in attempt.writer.events if event["kind"] == "evaluated"]
    assert told["env_id"] == "Duel-v0"
    assert "policy version 12 in Duel-v0: mean return" in told["message"]
    assert attempt.writer.steps == []
