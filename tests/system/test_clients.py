"""Clients that finish, die, stall, multiply and come back."""

from __future__ import annotations

import itertools
import signal
import time

from tests.system import records
from tests.system.processes import CARTPOLE, Processes

# The debug level shows every iteration; by default at most one a second.
SMALL = (
    *("--algo.frames-per-iteration", 64, "--algo.num-epochs", 1),
    *("--log-level", "debug"),
)
ENVS = ("--num-envs", 4)
FREED_LIMIT_S = 1.0


def test_server_that_lost_all_clients_waits_and_serves_the_next(processes: Processes):
    server = processes.server(*SMALL, "--algo.total-timesteps", 2000)
    first = processes.client(server, *CARTPOLE, *ENVS, "--num-episodes", 4, name="first")
    assert first.wait() == 0
    server.wait_for("client first left: goodbye: all episodes are complete")
    server.wait_for("all clients are gone; waiting for new ones")
    second = processes.client(server, *CARTPOLE, *ENVS, name="second")
    assert (server.wait(), second.wait()) == (0, 0)
    assert records.metrics(server.run)[-1]["run/step"] >= 2000


def test_server_that_is_to_exit_when_idle_does_so_with_a_checkpoint(processes: Processes):
    server = processes.server(*SMALL, "--exit-when-idle", 1)
    client = processes.client(server, *CARTPOLE, *ENVS, "--num-episodes", 20)
    assert client.wait() == 0
    server.wait_for("all clients are gone; ending in 1 s unless one comes")
    assert server.wait() == 0
    server.wait_for("no clients for 1 s")
    assert records.steps(server.run)[-1] >= records.metrics(server.run)[-1]["run/step"]


def test_episodes_asked_for_are_all_recorded_when_a_client_leaves(processes: Processes):
    server = processes.server(*SMALL, "--exit-when-idle", 0.1)
    client = processes.client(server, *CARTPOLE, *ENVS, "--groups", 2, "--num-episodes", 10)
    assert (client.wait(), server.wait()) == (0, 0)
    episodes = records.lines(server.run / "episodes.jsonl")
    # Several rows may end in the step that brings the tenth.
    assert 10 <= sum(e["terminated"] for e in episodes) <= 13
    total = int(client.wait_for(r"; (\d+) episodes, mean return").group(1))
    assert sum(e["terminated"] for e in episodes) == total


def test_slots_of_a_killed_client_are_freed_at_once_without_a_grace(processes: Processes):
    # Room for exactly two clients of four slots: the third is let in only by the death of one.
    server = processes.server(*SMALL, "--max-slots", 8, "--reconnect-grace", 0)
    stays = processes.client(server, *CARTPOLE, *ENVS, name="stays")
    freed_s = []
    for life in (1, 2, 3):
        dies = processes.client(server, *CARTPOLE, *ENVS, name="dies")
        server.wait_for("client dies joined", times=life)
        dies.signal(signal.SIGKILL)
        killed_at = time.monotonic()
        server.wait_for("client dies left: connection lost", times=life)
        freed_s.append(time.monotonic() - killed_at)
    # The best of three: the machine may be busy, the server never waits.
    assert min(freed_s) < FREED_LIMIT_S
    server.wait_for("iteration ", times=server.program.count("iteration ") + 3)
    server.interrupt()
    assert [server.wait(), stays.wait()] == [0, 0]
    left = [event["client"] for event in records.events(server.run, "left")]
    assert left[:3] == ["dies"] * 3
    assert records.metrics(server.run)[-1]["server/conservation_error"] == 0


def test_client_that_is_frozen_is_dropped_in_time_and_comes_back_when_it_thaws(
    processes: Processes,
):
    # Two clients for the first round: before it ends, both have stepped.
    server = processes.server(*SMALL, "--feedback-wait-timeout", 2, "--min-clients", 2)
    lively = processes.client(server, *CARTPOLE, *ENVS, name="lively")
    frozen = processes.client(server, *CARTPOLE, *ENVS, name="frozen")
    server.wait_for("iteration 1:")
    frozen.signal(signal.SIGSTOP)
    stopped_at = time.monotonic()
    rounds = server.program.count("iteration ")
    server.wait_for("client frozen left: .*--feedback-wait-timeout")
    # The clock of the time-out stands still during learn steps; these are short.
    assert 1.5 < time.monotonic() - stopped_at < 15
    assert server.program.count("iteration ") > rounds
    frozen.signal(signal.SIGCONT)
    server.wait_for("client frozen joined", times=2)
    server.interrupt()
    assert [server.wait(), lively.wait(), frozen.wait()] == [0, 0, 0]
    (left,) = [e for e in records.events(server.run, "left") if "timeout" in e["message"]]
    assert left["client"] == "frozen"


def test_two_processes_of_one_command_are_two_clients_that_end_together(processes: Processes):
    server = processes.server(*SMALL, "--algo.total-timesteps", 1000, "--min-clients", 2)
    client = processes.client(server, *CARTPOLE, *ENVS, "--num-procs", 2, name="twin")
    assert (server.wait(), client.wait()) == (0, 0)
    joined = {e["client"] for e in records.events(server.run, "joined")}
    assert joined == {"twin-0", "twin-1"}


def test_environment_that_fails_ends_its_client_alone_and_the_server_says_why(
    processes: Processes,
):
    server = processes.server(*SMALL, "--algo.total-timesteps", 600, "--mixed-environments")
    slow = ("gym", "--env-id", "tests.system.envs:Slow-v0")
    good = processes.client(server, *slow, *ENVS, name="good")
    kwargs = ("--env-kwargs", '{"step_s": "soon", "slow_from": 9}')
    bad = processes.client(server, *slow, *kwargs, *ENVS, name="bad")
    assert bad.wait() == 1
    server.wait_for("client bad left: .*TypeError")
    assert (server.wait(), good.wait()) == (0, 0)
    processes.may_crash.append(bad)


def test_client_that_is_to_reconnect_joins_the_next_server(processes: Processes):
    server = processes.server(*SMALL, "--exp-name", "run", "--save-every", 1)
    client = processes.client(server, *CARTPOLE, *ENVS, "--reconnect")
    server.wait_for("saved the checkpoint", times=2)
    server.program.signal(signal.SIGKILL)
    assert server.wait() == -9
    newest = records.steps(server.run)[-1]
    limit = ("--until-timesteps", newest + 200)
    again = processes.server(*SMALL, "--exp-name", "run", "--resume", *limit, port=server.port)
    again.wait_for("took the run over from process")
    assert again.wait() == 0
    assert records.events(server.run, "resumed")[0]["step"] == newest
    # Told «finished», a client that is to reconnect waits for the next run; Ctrl-C ends it.
    client.wait_for("waiting for the next run")
    client.interrupt()
    assert client.wait() == 130


def test_client_that_is_not_to_reconnect_still_outlives_a_short_absence(processes: Processes):
    server = processes.server(*SMALL, "--exp-name", "a")
    client = processes.client(server, *CARTPOLE, *ENVS)
    server.wait_for("iteration 1:")
    server.program.signal(signal.SIGKILL)
    client.wait_for("Trying again")
    limit = ("--algo.total-timesteps", 200)
    again = processes.server(*SMALL, "--exp-name", "b", *limit, port=server.port)
    assert (again.wait(), client.wait()) == (0, 0)


def test_evaluation_client_is_served_and_never_trained_on(processes: Processes):
    server = processes.server(*SMALL, "--algo.total-timesteps", 1000)
    judge = processes.client(server, *CARTPOLE, *ENVS, "--role", "eval", name="judge")
    server.wait_for("client judge joined")
    trainer = processes.client(server, *CARTPOLE, *ENVS, name="trainer")
    assert [server.wait(), judge.wait(), trainer.wait()] == [0, 0, 0]
    episodes = records.lines(server.run / "episodes.jsonl")
    judged = [e for e in episodes if e["kind"] == "eval"]
    assert judged
    assert {e["client"] for e in judged} == {"judge"}
    assert {e["trained_frames"] for e in judged} == {0}
    steps = [row["run/step"] for row in records.metrics(server.run)]
    # An iteration is 64 frames and fewer than the trainer's 4 rows more: none is the judge's.
    assert all(after - before < 64 + 4 for before, after in itertools.pairwise([0, *steps]))
