"""A run from its first client to its end: what is trained on, what is written."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from algorithms.ppo.metrics import METRICS
from royale_server.iteration_clock import PARTS
from royale_server.monitoring.declarations import declared
from royale_server.run.writer import ENVELOPE_KEYS
from tests.system import records
from tests.system.processes import CARTPOLE, DUMMY, PATIENCE_S, ROOT, Processes

SHORT = (
    *("--algo.total-timesteps", 1536, "--algo.frames-per-iteration", 256),
    *("--algo.num-epochs", 2, "--save-every", 2),
)
PATIENT = ("--patience", 10_000, "--close-wait", 60)
"""Nobody is late here, however busy the machine is."""

NEEDS_MASKS = {
    "ppo/noop_entropy",
    "ppo/noop_ent_coef",
    "ppo/choice_frac",
    "ppo/entropy_gate",
    "ppo/entropy_slot",
    "ppo/entropy_tile",
}
"""Declared as absent without masks of legal actions, which CartPole has none of."""

OF_OPTIONS = {
    "ppo/dual_clip_fraction",
    "ppo/reward_clip_frac",
    "ppo/lr_backoff_events",
    "ppo/gamma",
    "ppo/critic_learning_rate",
    "ppo/grad_norm_actor",
    "ppo/grad_norm_critic",
}
NEVER_WITH_DEFAULTS = OF_OPTIONS | NEEDS_MASKS
"""Declared as absent without the option that they measure."""


def by_luck(specs):
    """Keys that a short run has or not: ten looks a second, learn steps of a second or more."""
    looks = {key for key in specs if key.startswith("server/loop_lag_")}
    return looks | {"throughput/rollout_capacity_ratio"}


def assert_nothing_lost(rows):
    for row in rows:
        assert set(records.discards(row).values()) == {0}, row
        assert row["server/discarded_frames"] == 0
        assert row["server/conservation_error"] == 0


def test_commands_of_the_first_example_both_end_with_exit_code_0(tmp_path, unused_port):
    # As typed by a person: no fork, no helper, the modules' own entry points.
    python = (sys.executable, "-m")
    server_words = ("royale_server", *DUMMY, "--port", unused_port)
    client_words = ("royale_client", "dummy-v1", "--server-host", "127.0.0.1", "--server-port")
    server = subprocess.Popen(
        [*python, *map(str, server_words), "--checkpoint-base-dir", tmp_path / "runs"], cwd=ROOT
    )
    client = subprocess.Popen(
        [*python, *client_words, str(unused_port), "--num-episodes", "1"], cwd=ROOT
    )
    with server, client:
        try:
            assert client.wait(PATIENCE_S) == 0
            assert server.wait(PATIENCE_S) == 0
        finally:
            server.kill()
            client.kill()


def test_dummy_run_stops_at_300_frames_and_says_so_to_its_client(processes: Processes):
    server = processes.server(pair=DUMMY)
    client = processes.client(server, "dummy-v1", "--num-episodes", 1)
    assert (client.wait(), server.wait()) == (0, 0)
    rows = records.metrics(server.run)
    assert rows[-1]["run/step"] == 300
    specs = declared(())  # the algorithm declares nothing and learns nothing
    met = records.declarations_met(rows, specs)
    assert {key for key, spec in specs.items() if not spec.absent_when} <= met
    assert records.constant_keys(rows, specs) - by_luck(specs) == set()
    client.wait_for(r"the server stopped \(finished\): 300 of 300 frames collected")


def test_cartpole_run_with_two_clients_writes_every_file_and_loses_no_frame(processes: Processes):
    server = processes.server(*SHORT, *PATIENT, "--min-clients", 2)
    names = ("left", "right")
    clients = [
        processes.client(server, *CARTPOLE, "--num-envs", 4, "--groups", 2, name=name)
        for name in names
    ]
    assert server.wait() == 0
    assert [client.wait() for client in clients] == [0, 0]

    rows = records.metrics(server.run)
    assert_nothing_lost(rows)
    # 1,536 frames in iterations of at least 256; a batch of 4 rows may overshoot by fewer than 4.
    assert [row["run/iteration"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert all(256 <= row["run/frames"] < 260 for row in rows)
    assert rows[-1]["run/step"] == sum(row["run/frames"] for row in rows)
    assert [row["seq"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert all(row["step"] == row["run/step"] for row in rows)
    assert all(row["run/env_steps"] >= row["run/step"] for row in rows)

    assert records.steps(server.run) == [rows[i]["run/step"] for i in (1, 3, 5)]
    config = json.loads((server.run / "config.json").read_text(encoding="utf-8"))
    assert config["algo"]["frames_per_iteration"] == 256
    joined = records.events(server.run, "joined")
    assert {event["client"] for event in joined} == set(names)
    assert records.events(server.run)[-1]["kind"] in ("ended", "left")
    assert records.events(server.run, "ended")[0]["exit_code"] == 0

    episodes = records.lines(server.run / "episodes.jsonl")
    assert {episode["client"] for episode in episodes} == set(names)
    # CartPole pays 1 a step: return and length are one number.
    assert all(episode["return"] == episode["length"] for episode in episodes)
    by_iteration = [sum(e["iteration"] == row["run/iteration"] for e in episodes) for row in rows]
    assert by_iteration == [row.get("env/episodes", 0) for row in rows]
    assert all(0 < e["trained_frames"] <= e["length"] for e in episodes if e["iteration"] <= 6)


MARKS_OF_DRIFT = {"run/identity_drift", "run/dirty"}
"""Only in runs that were resumed as something else."""
OF_SELF_PLAY = {key for key in declared(METRICS) if key.startswith(("selfplay/", "env/seat/"))}
"""Only with environments of several seats."""
OF_SEVERAL = {key for key in declared(METRICS) if key.startswith("env/id/")}
"""Only with several environment ids."""
OF_HELLO = {"env/<name>", "policy/<name>"}
"""Only where an environment declares numbers of its own."""
OF_DEVICE = {key for key in declared(METRICS) if key.startswith("health/vram_")}
"""Only on a GPU."""
OF_FREEZE = {"ppo/iterations_since_unfreeze", "ppo/ev_at_unfreeze"}
OF_EVALUATION = {key for key in declared(METRICS) if key.startswith("env/eval_")}
"""Only while clients of the role eval play rounds."""
ELSEWHERE = MARKS_OF_DRIFT | OF_SELF_PLAY | OF_SEVERAL | OF_HELLO | OF_DEVICE | OF_EVALUATION


def test_metric_keys_of_a_run_are_those_that_are_declared(processes: Processes):
    server = processes.server(*SHORT)
    client = processes.client(server, *CARTPOLE, "--num-envs", 8)
    assert (server.wait(), client.wait()) == (0, 0)

    rows = records.metrics(server.run)
    specs = declared(METRICS)
    met = records.declarations_met(rows, specs)
    assert set(ENVELOPE_KEYS) - {"nonfinite"} <= set().union(*rows)
    always = {key for key, spec in specs.items() if not spec.absent_when}
    for row in rows:
        assert always <= set(row)
    assert set(specs) - met - by_luck(specs) == NEVER_WITH_DEFAULTS | OF_FREEZE | ELSEWHERE
    assert records.constant_keys(rows, specs) == set()
    for row in rows:
        parts = [row[f"time/{part}"] for part in PARTS]
        assert sum(parts) == pytest.approx(row["time/iteration"])


def test_keys_of_an_option_appear_with_it(processes: Processes):
    options = (
        *("--algo.scale-rewards", "--algo.dual-clip", 3, "--algo.lr-backoff-kl", 0.1),
        *("--algo.separate-optimizers", "--algo.gamma-end", 0.995),
        *("--algo.freeze-actor-iterations", 1),
    )
    server = processes.server(*SHORT, *options)
    client = processes.client(server, *CARTPOLE, "--num-envs", 8)
    assert (server.wait(), client.wait()) == (0, 0)
    rows, specs = records.metrics(server.run), declared(METRICS)
    left_out = NEEDS_MASKS | ELSEWHERE | by_luck(specs)
    assert set(specs) - left_out <= records.declarations_met(rows, specs)
    assert records.constant_keys(rows, specs) == set()
    # Frozen in the first learn step, so the second is the first after it.
    assert [row.get("ppo/iterations_since_unfreeze") for row in rows] == [None, 1, 2, 3, 4, 5]
    assert ["ppo/ev_at_unfreeze" in row for row in rows] == [False, True, *[False] * 4]
    assert not {key for key in rows[0] if key.startswith(("ppo/kl", "ppo/clip", "ppo/entropy"))}


def test_target_that_no_round_divides_is_met_by_three_clients_without_loss(processes: Processes):
    frames = ("--algo.frames-per-iteration", 2048, "--algo.total-timesteps", 6000)
    server = processes.server(*frames, *PATIENT, "--algo.num-epochs", 1, "--min-clients", 3)
    clients = [
        processes.client(server, *CARTPOLE, "--num-envs", 10, "--groups", 2, name=f"c{i}")
        for i in range(3)
    ]
    assert server.wait() == 0
    assert [client.wait() for client in clients] == [0, 0, 0]
    rows = records.metrics(server.run)
    assert_nothing_lost(rows)
    # Handing work between threads is all that is not measured.
    shares = [abs(row["time/residual"]) / row["time/iteration"] for row in rows]
    assert min(shares) < 0.02
    assert all(0 <= row["client/wait_frac"] <= 1 for row in rows)
    # A batch holds at most one group of 5 rows of each client: it overshoots by fewer than 15. The
    # last iteration wants what is left of the 6,000 frames.
    wanted = [2048, 2048, 6000 - rows[1]["run/step"]]
    assert [0 <= row["run/frames"] - n < 15 for row, n in zip(rows, wanted, strict=True)] == [
        True
    ] * 3


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "dummy-v1"])
def test_inline_run_learns_without_a_socket(processes: Processes, env_id):
    server = processes.try_server(*SHORT, "--inline", env_id, "--inline-num-envs", 4)
    assert server.wait() == 0
    rows = records.metrics(processes.run)
    assert [row["run/frames"] for row in rows] == [256] * 6
    assert_nothing_lost(rows)
    # A disk that is busy with one checkpoint is spared the next if there is a newer one by then.
    spared = [
        s for s in (512, 1024) if f"{s}: not written, since the disk is slow" in server.output
    ]
    assert sorted([*records.steps(processes.run), *spared]) == [512, 1024, 1536]


def test_an_inline_family_without_such_a_setting_is_refused_and_nothing_is_left(
    processes: Processes,
):
    options = ("--inline", "dummy-v1", "--inline-env-kwargs", '{"obs_dimm": 3}')
    server = processes.try_server(*SHORT, *options)
    assert server.wait() == 2
    server.wait_for("dummy-v1 has no setting 'obs_dimm': did you mean obs_dim?")
    assert not list((processes.directory / "runs").glob("*/*/*"))


def test_run_in_which_no_episode_ended_has_no_return(processes: Processes):
    # Episodes have 50 steps; 2 iterations of 32 frames are 16 steps of 4 environments.
    sizes = ("--algo.total-timesteps", 64, "--algo.frames-per-iteration", 32)
    env = ("--inline", "tests.system.envs:Slow-v0", "--inline-num-envs", 4)
    server = processes.try_server(*sizes, *env, "--algo.num-epochs", 1)
    assert server.wait() == 0
    rows = records.metrics(processes.run)
    assert [row["run/frames"] for row in rows] == [32, 32]
    # The environment declares nothing either, so neither group has a key.
    assert not [key for row in rows for key in row if key.startswith(("env/", "policy/"))]
