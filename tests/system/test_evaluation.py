"""A policy that plays alone is evaluated while it learns, and by a server that only evaluates."""

from __future__ import annotations

from tests.system import records
from tests.system.processes import CARTPOLE, Processes

PAIR = ("mlp-policy", "default", "eval", "default")
SHORT = (
    *("--algo.frames-per-iteration", 512, "--algo.num-epochs", 1, "--algo.minibatch-size", 128),
    *("--algo.total-timesteps", 8 * 512, "--exp-name", "judged", "--evaluate.episodes", 4),
)
ENVS = (*CARTPOLE, "--num-envs", 4)


def test_rounds_are_told_beside_the_training_and_by_a_server_of_their_own(
    processes: Processes, tmp_path
):
    server = processes.server(*SHORT)
    judge = processes.client(server, *ENVS, "--role", "eval", name="judge")
    server.wait_for("client judge joined")
    trainer = processes.client(server, *ENVS, name="trainer")
    assert [server.wait(), judge.wait(), trainer.wait()] == [0, 0, 0]
    told = [e for e in records.lines(server.run / "events.jsonl") if e["kind"] == "evaluated"]
    assert told
    versions = [event["env/eval_policy_version"] for event in told]
    # Of two rounds the later one is complete first where its episodes are shorter; none is twice.
    assert sorted(versions) == sorted(set(versions))
    assert {event["env_id"] for event in told} == {"CartPole-v1"}
    for event in told:
        # CartPole pays 1 for each step, and of an episode's steps there are at most 500.
        assert event["env/eval_return_mean"] == event["env/eval_length_mean"]
        assert 1 <= event["env/eval_return_min"] <= event["env/eval_return_max"] <= 500
    rows = [row for row in records.metrics(server.run) if "env/eval_round" in row]
    assert rows
    assert all(row["env/eval_episodes"] == 4 for row in rows)

    step = (server.run / "latest").resolve()
    flags = ("--algo.policy-checkpoint-path", step, "--evaluate.episodes", 6, "--exp-name", "alone")
    alone = processes.server(*flags, pair=PAIR, runs=tmp_path / "alone")
    refused = processes.client(alone, *ENVS, name="trainer")
    assert refused.wait() == 2
    judge = processes.client(alone, *ENVS, "--role", "eval", name="judge")
    assert (alone.wait(), judge.wait()) == (0, 0)
    (row,) = records.metrics(alone.run)
    assert (row["env/eval_episodes"], row["env/eval_policy_version"]) == (6, 8)
    episodes = records.lines(alone.run / "episodes.jsonl")
    assert {episode["player"] for episode in episodes} == {"version 8"}
