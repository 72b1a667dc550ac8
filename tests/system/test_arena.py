"""The arena over the network: the policy plays itself, its past and bots, and is then evaluated."""

from __future__ import annotations

import json

import pytest

from algorithms.ppo.metrics import METRICS
from royale_server.monitoring.declarations import declared
from royale_server.tools.main import main
from tests.system import records
from tests.system.processes import Processes

PAIR = ("arena-policy", "default", "ppo", "arena")
FRAMES = 400
TOTAL = 8 * FRAMES
"""Three battles of each kind: the third is the first for which a snapshot is there."""
FLAGS = (
    *("--algo.total-timesteps", TOTAL, "--algo.frames-per-iteration", FRAMES),
    *("--algo.num-epochs", 1, "--algo.batch-size", 512, "--patience", 10_000, "--close-wait", 60),
    *("--selfplay.mix", "mirror=0.5,pool=0.5", "--selfplay.snapshot-every", 1),
    *("--selfplay.scripted", "push", "--exp-name", "battles"),
)


READ_BY_ALARMS = {
    *("env/illegal_action_rate", "env/elixir_count_exact_frac", "env/draw_rate"),
    *("env/win_rate_by_seat_ci95_lo", "env/win_rate_by_seat_ci95_hi"),
    *("env/episode_steps_at_cap_frac", "env/reward_shaping_abs", "env/reward_terminal_abs"),
    *("policy/cards_per_match", "policy/tile_top1_share", "policy/card_tile_top10_share"),
    *("ppo/noop_entropy", "ppo/ratio_max_abs_dev", "health/nan_guard_trips"),
    *("env/seat/0/return_mean", "env/seat/1/return_p10", "selfplay/episodes_snapshot"),
}
"""Keys that alarms of the arena read, and some of every scope."""


@pytest.mark.chaos  # half a minute
def test_a_run_in_the_arena_plays_all_kinds_of_opponents_and_can_be_evaluated(
    processes: Processes, capsys, tmp_path
):
    server = processes.server(*FLAGS, pair=PAIR)
    client = processes.client(server, "arena", "--battles", 2)
    assert (server.wait(), client.wait()) == (0, 0)
    rows = records.metrics(server.run)
    assert rows[-1]["run/step"] >= TOTAL
    for row in rows:
        assert set(records.discards(row).values()) == {0}, row
        assert row["server/conservation_error"] == 0
        # What was stored is what is evaluated anew before the first step: same weights, same masks.
        assert row["ppo/ratio_max_abs_dev"] <= 1e-4
    assert sum(row["server/opponent_frames"] for row in rows) > 0
    specs = declared(METRICS)
    met = records.declarations_met(rows, specs)
    assert {key for key, spec in specs.items() if not spec.absent_when} <= met
    assert records.constant_keys(rows, specs) == set()
    assert set().union(*rows) >= READ_BY_ALARMS
    assert max(row.get("policy/cards_per_match", 0) for row in rows) > 0

    replays = tmp_path / "replays"
    words = ["eval", str(server.run), "--against", "noop", "--battles", "4", "--json"]
    assert main([*words, "--replays", str(replays)]) == 0
    (verdict,) = json.loads(capsys.readouterr().out)
    assert (verdict["against"], verdict["battles"]) == ("noop", 4)
    (replay,) = replays.iterdir()
    assert main(["replay", str(replay)]) == 0
    assert "crowns" in capsys.readouterr().out.splitlines()[-1]
    page = tmp_path / "battle.html"
    assert main(["replay", str(replay), "--page", str(page)]) == 0
    assert page.read_text("utf-8").startswith("<!doctype html>")


@pytest.mark.chaos  # half a minute
def test_a_server_that_only_evaluates_plays_its_rounds_with_clients_and_ends(
    processes: Processes, tmp_path
):
    trained = processes.server(*FLAGS, "--until-timesteps", FRAMES, pair=PAIR)
    client = processes.client(trained, "arena", "--battles", 2)
    assert (trained.wait(), client.wait()) == (0, 0)
    step = (trained.run / "latest").resolve()
    flags = ("--algo.policy-checkpoint-path", step, "--evaluate.battles", 8)
    against = ("--evaluate.against", "noop", step, "--exp-name", "judged")
    pair = ("arena-policy", "default", "eval", "default")
    server = processes.server(*flags, *against, pair=pair, runs=tmp_path / "judged")
    refused = processes.client(server, "arena", "--battles", 2, name="trainer")
    assert refused.wait() == 2
    judge = processes.client(server, "arena", "--battles", 4, "--role", "eval", name="judge")
    assert (server.wait(), judge.wait()) == (0, 0)
    first, second = records.metrics(server.run)
    assert (first["env/eval_battles"], second["env/eval_round"]) == (8, 2)
    # Against itself, every deal from both sides: neither side can have won more than all.
    assert 0 <= second["env/eval_win_rate_low"] <= second["env/eval_win_rate"] <= 1
    episodes = records.lines(server.run / "episodes.jsonl")
    assert {episode["kind"] for episode in episodes} == {"eval"}
    assert "noop" in {episode["opponent"] for episode in episodes}


def test_eval_names_bots_and_runs_where_a_player_is_neither(capsys, tmp_path):
    assert main(["eval", "nobody", "--runs", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "heuristic" in said
    assert "nobody" in said
    assert main(["eval", "noop", "--battles", "3"]) == 2
    assert main(["eval", "noop", "--against", "noop", "--battles", "2"]) == 0
    # Nobody plays: the potential and the towers stay equal, and time decides nothing.
    assert "drawn 100.0%" in capsys.readouterr().out
