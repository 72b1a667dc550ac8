"""A recorded battle comes to what was recorded, or is refused; and people can look at it."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from royale_client.envs.arena import kernels
from royale_client.envs.arena.bots import bot_keys, make_bot
from royale_client.envs.arena.deals import start
from royale_client.envs.arena.replay import Replay, ReplayError, read, record, replayed
from royale_client.envs.arena.replay_views import as_page, as_text
from royale_client.envs.arena.rules import RUNNING
from royale_client.envs.arena.state import empty


@pytest.fixture(scope="module")
def replay() -> Replay:
    """A battle of the heuristic against the push bot."""
    battles = empty(2)
    start(battles, [0, 1], seed=9, battle_ids=[4, 5], ordinals=0)
    bots = make_bot("heuristic"), make_bot("push")
    played: list[list[int]] = []
    while battles.outcome[1] == RUNNING:
        actions = np.zeros((2, 2), np.int32)
        for seat, bot in enumerate(bots):
            seats = np.zeros((2, 2), np.bool_)
            seats[:, seat] = True
            actions[:, seat] = bot.act(battles, seats, bot_keys(battles))[:, seat]
        played.append(actions[1].tolist())
        kernels.step(battles, actions)
    return record(battles, 1, ("heuristic", "<push>"), played)


def test_a_replay_is_read_back_as_it_was_written_and_plays_to_the_same_end(replay, tmp_path):
    replay.write(tmp_path / "battle.json")
    again = read(tmp_path / "battle.json")
    assert again == replay
    assert sum(1 for _ in replayed(again)) == len(replay.actions) + 1


def test_another_action_or_result_is_found_out(replay, tmp_path) -> None:
    plays = [n for n, pair in enumerate(replay.actions) if pair[0]]
    changed = [list(pair) for pair in replay.actions]
    changed[plays[0]][0] = 0
    file = tmp_path / "battle.json"
    replay.write(file)
    document = json.loads(file.read_text())
    for damaged in (
        {**document, "actions": changed},
        {**document, "actions": document["actions"][:-1]},
        {**document, "result": {**document["result"], "crowns": [3, 3]}},
    ):
        file.write_text(json.dumps(damaged))
        with pytest.raises(ReplayError, match="recorded was"):
            list(replayed(read(file)))


@pytest.mark.parametrize(
    "change",
    [
        {"format": "other"},
        {"actions": [[0, 961]]},
        {"actions": [[0]]},
        {"players": ["one"]},
        {"result": None},
        {"result": {}},
        {"surplus": 1},
        # Numbers that are none, too large, or would be cut to something else.
        {"actions": [[0, 2**70]]},
        {"actions": [[0, 1.5]]},
        {"actions": [[0, "1"]]},
        {"actions": "0"},
        {"actions": {}},
        {"seed": float("inf")},
        {"seed": float("nan")},
        {"seed": 2**64},
        {"seed": -1},
        {"seed": 1.5},
        {"seed": "1"},
        {"seed": True},
        {"battle": 2**63},
        {"ordinal": -(2**63) - 1},
        {"ordinal": None},
        # Names go to a terminal as they are.
        {"players": ["one", "\x1b[2J"]},
        {"players": [1, 2]},
    ],
)
def test_files_that_are_no_replays_are_refused_by_name(replay, tmp_path, change) -> None:
    file = tmp_path / "battle.json"
    replay.write(file)
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(ReplayError, match=r"battle\.json"):
        read(file)


@pytest.mark.parametrize(
    "data",
    [b"", b"nothing", b"[]", b"null", b"7", b'"text"', b"{}", b"\xff\xfe", b"[" * 100_000],
)
def test_whatever_else_a_file_holds_is_refused_by_name(tmp_path, data) -> None:
    file = tmp_path / "battle.json"
    file.write_bytes(data)
    with pytest.raises(ReplayError, match=r"battle\.json"):
        read(file)


def test_a_file_cut_off_anywhere_is_refused(replay, tmp_path) -> None:
    file = tmp_path / "battle.json"
    replay.write(file)
    data = file.read_bytes().rstrip()
    for length in range(0, len(data), len(data) // 97):
        file.write_bytes(data[:length])
        with pytest.raises(ReplayError, match=r"battle\.json"):
            read(file)


def test_decisions_after_the_end_of_a_battle_are_no_part_of_it(replay, tmp_path) -> None:
    longer = replace(replay, actions=(*replay.actions, (0, 0)))
    longer.write(tmp_path / "battle.json")
    with pytest.raises(ReplayError, match=f"{len(replay.actions)} of {len(longer.actions)}"):
        list(replayed(read(tmp_path / "battle.json")))


@pytest.mark.parametrize("result", ["outcome", "tick", "crowns", "tower_hp", "plays"])
def test_whatever_of_a_result_was_changed_is_found_out(replay, tmp_path, result) -> None:
    file = tmp_path / "battle.json"
    replay.write(file)
    document = json.loads(file.read_text())
    document["result"][result] = {
        "outcome": 3 if replay.result.outcome != 3 else 1,
        "tick": replay.result.tick - 1,
        "crowns": [0, 3] if replay.result.crowns != (0, 3) else [3, 0],
        "tower_hp": [[1, 2, 3], [4, 5, 6]],
        "plays": "many",
    }[result]
    file.write_text(json.dumps(document))
    with pytest.raises(ReplayError):
        list(replayed(read(file)))


def test_a_replay_of_other_rules_is_refused_with_both_digests(replay, tmp_path) -> None:
    file = tmp_path / "battle.json"
    replay.write(file)
    file.write_text(file.read_text().replace(replay.rules, "0" * 16))
    with pytest.raises(ReplayError, match=f"0{{16}}.*{replay.rules}"):
        read(file)


def test_the_text_names_every_play_every_fallen_tower_and_the_end(replay) -> None:
    lines = list(as_text(replay))
    result = replay.result
    for seat in range(2):
        assert sum(f"seat {seat} plays" in line for line in lines) == result.plays[seat]
        fallen = sum(hp == 0 for hp in result.tower_hp[seat])
        assert sum(f"seat {seat} loses its" in line for line in lines) == fallen
    assert re.search(r"wins|a draw", lines[-1])
    assert not any("refused" in line for line in lines), "bots play legal cards only"


def test_the_page_holds_the_whole_battle_and_fetches_nothing(replay) -> None:
    page = as_page(replay)
    assert "@DATA@" not in page
    assert "@TITLE@" not in page
    assert not re.search(r"https?://|src=|@import|fetch\(", page)
    data = json.loads(re.search(r"const D = (.*);\n", page).group(1).replace("<\\/", "</"))
    assert len(data["frames"]) == len(replay.actions) + 1
    assert data["frames"][-1]["h"] == [list(row) for row in replay.result.tower_hp]
    # Names of players come from people: none may end the script or the title.
    assert "<title>heuristic against &lt;push&gt;</title>" in page
    towers = data["towers"]
    # The keep of seat 1 stands where that of seat 0 is turned by half a circle: 12000 - 6000, …
    assert towers[0][0] == [6000, 1500, 4000]
    assert towers[1][0] == [6000, 18500, 4000]


def test_a_replay_that_is_not_there_is_said_to_be_missing_not_to_be_none(tmp_path) -> None:
    with pytest.raises(ReplayError, match=r"b\.json cannot be read: No such file or directory"):
        read(tmp_path / "b.json")


@pytest.mark.parametrize("content", [b"# Notes", b"\xff\xfe\x00", b"[]"])
def test_a_file_of_something_else_is_no_replay(tmp_path, content: bytes) -> None:
    path = tmp_path / "b.json"
    path.write_bytes(content)
    with pytest.raises(ReplayError, match="is no replay"):
        read(path)
