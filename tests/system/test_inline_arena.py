"""The arena inside the server and over the network: one run, to the last byte of its buffers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from algorithms.ppo.metrics import METRICS
from royale_client.wire.seating import Player
from royale_server.monitoring.declarations import declared, deterministic_keys
from royale_server.tools.comparing import differences
from tests.system import records
from tests.system.noted_ppo import UID, VARIABLE, assert_same_notes
from tests.system.processes import Processes

PAIR = ("arena-policy", "default", UID, "arena")
FRAMES, ITERATIONS = 600, 6
BOTS = ("push", "noop")
KEYS = deterministic_keys(declared(METRICS))
FLAGS = (
    *("--plugin", "tests.system.noted_ppo", "--deterministic", "--seed", 7, "--exp-name", "run"),
    *("--algo.frames-per-iteration", FRAMES, "--algo.total-timesteps", ITERATIONS * FRAMES),
    *("--algo.num-epochs", 1, "--algo.batch-size", 512, "--algo.gamma-end", 0.999),
    *("--selfplay.mix", "mirror=0.2,pool=0.6,scripted=0.2", "--selfplay.snapshot-every", 1),
)


class Noted:
    """A run and the notes of its buffers."""

    def __init__(self, processes: Processes, name: str) -> None:
        self._processes = processes
        self.runs = processes.directory / name
        self.notes = processes.directory / f"{name}-notes"
        self.notes.mkdir()
        self._environment = {VARIABLE: str(self.notes)}

    def play_inline(self, battles: int) -> None:
        options = json.dumps({"bots": BOTS})
        inline = ("--inline", "arena", "--inline-num-envs", battles, "--inline-env-kwargs", options)
        server = self._processes.try_server(
            *FLAGS, *inline, pair=PAIR, runs=self.runs, environment=self._environment
        )
        assert server.wait() == 0

    def play_over_network(self, clients: dict[str, int]) -> None:
        server = self._processes.server(
            *FLAGS,
            *("--min-clients", len(clients)),
            pair=PAIR,
            runs=self.runs,
            environment=self._environment,
        )
        programs = [
            self._processes.client(server, "arena", "--battles", n, "--bots", *BOTS, name=name)
            for name, n in clients.items()
        ]
        assert server.wait() == 0
        assert [program.wait() for program in programs] == [0] * len(programs)

    @property
    def run(self):
        (found,) = self.runs.glob("*/*/*/run.json")
        return found.parent

    def rows(self):
        return {row["run/iteration"]: row for row in records.metrics(self.run)}


def assert_same_runs(one: Noted, other: Noted) -> None:
    buffers = assert_same_notes(one.notes, other.notes)
    assert len(buffers) == ITERATIONS
    assert sum(len(buffer["cells"]) for buffer in buffers) >= ITERATIONS * FRAMES
    # Several battles came to their end within them.
    assert sum(np.count_nonzero(buffer["terminated"]) for buffer in buffers) >= 4
    assert differences(one.rows(), other.rows(), KEYS, last_iteration=ITERATIONS) == []
    assert len(one.rows()) == ITERATIONS
    # Every kind of battle was among them.
    played = {e["player"].split()[0] for e in records.lines(one.run / "episodes.jsonl")}
    assert played == {player.value for player in Player}


@pytest.mark.chaos  # a minute
def test_a_run_inline_and_one_over_the_network_learn_from_the_same_bytes(processes: Processes):
    inline, networked = Noted(processes, "inline"), Noted(processes, "networked")
    inline.play_inline(3)
    networked.play_over_network({"inline": 3})
    assert_same_runs(inline, networked)


@pytest.mark.chaos  # a minute
def test_two_clients_learn_from_the_same_bytes_in_every_run(processes: Processes):
    one, other = Noted(processes, "one"), Noted(processes, "other")
    one.play_over_network({"a": 2, "b": 2})
    other.play_over_network({"b": 2, "a": 2})
    assert_same_runs(one, other)
