"""Heat-maps: what the server counts of categories, and how `royale heatmap` shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from royale_client.envs.arena.rules import TILES
from royale_client.wire.episodes import AGGREGATIONS, EpisodeMetric
from royale_server.monitoring.heat_maps import HeatMaps
from royale_server.run.records import to_line
from royale_server.tools.main import main

PLAYS = EpisodeMetric("policy/card_tile", "1", "plays", "categories")
METRICS = (PLAYS, EpisodeMetric("tiles", "play", "plays", "count"))


def heat_maps(every: int = 2) -> HeatMaps:
    maps = HeatMaps(every)
    maps.declare("a", METRICS)
    return maps


def episode(*tiles: int) -> dict[str, Any]:
    numbers = {"metrics/policy/card_tile": list(tiles), "metrics/tiles": [1.0, 2.0]}
    return {"client": "a", "return": 1.0, **numbers}


def test_categories_are_counted_over_the_iterations_of_a_window() -> None:
    maps = heat_maps()
    maps.add([episode(5, 7, 5), {"client": "a", "return": 0.0}])
    assert maps.take(1, 100) is None
    maps.add([episode(7)])
    row = maps.take(2, 200)
    assert row == {
        "first_iteration": 1,
        "iteration": 2,
        "step": 200,
        "episodes": 3,
        "counts": {"policy/card_tile": {5: 2, 7: 2}},
    }


def test_the_next_window_begins_empty() -> None:
    maps = heat_maps()
    maps.add([episode(5)])
    assert maps.take(2, 200) is not None
    assert maps.take(4, 400) is None
    maps.add([episode(6)])
    row = maps.take(6, 600)
    assert row is not None
    assert (row["first_iteration"], row["counts"]) == (3, {"policy/card_tile": {6: 1}})


def test_a_resumed_run_counts_from_the_iteration_after_its_checkpoint() -> None:
    maps = heat_maps(every=10)
    maps.resumed(17)
    maps.add([episode(5)])
    row = maps.take(20, 900)
    assert row is not None
    assert row["first_iteration"] == 18


def test_nothing_is_counted_without_such_a_metric_or_when_switched_off() -> None:
    undeclared, off = HeatMaps(1), heat_maps(every=0)
    for maps in (undeclared, off):
        maps.add([episode(5)])
        assert maps.take(1, 100) is None


@pytest.mark.parametrize("aggregation", [a for a in AGGREGATIONS if a != "categories"])
def test_a_name_that_another_client_means_otherwise_is_counted_of_those_alone_that_count(
    aggregation: str,
) -> None:
    maps = heat_maps(every=1)
    maps.declare("b", [EpisodeMetric(PLAYS.name, "1", "plays", aggregation)])
    value = 2.5 if aggregation == "mean" else [1.0, 2.0]
    maps.add([episode(5), {"client": "b", "return": 1.0, f"metrics/{PLAYS.name}": value}])
    maps.left("a")
    maps.declare("a", [EpisodeMetric(PLAYS.name, "1", "plays", aggregation)])
    maps.add([{"client": "a", "return": 1.0, f"metrics/{PLAYS.name}": value}])
    row = maps.take(1, 100)
    assert row is not None
    assert (row["episodes"], row["counts"]) == (3, {PLAYS.name: {5: 1}})


# --- royale heatmap ---------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with two windows, the second one written again after a resume."""
    (tmp_path / "run.json").write_text("{}")
    rows = [
        window(1, 10, {0: 4, 13: 1}),
        window(11, 20, {5: 9}),
        window(11, 20, {239: 9, 3: 1, 240: 1}),  # card 0, Guard, and card 1, Cleaver
    ]
    (tmp_path / "heatmaps.jsonl").write_bytes(b"".join(map(to_line, rows)))
    return tmp_path


def window(first: int, last: int, counts: dict[int, int]) -> dict[str, Any]:
    return {
        "first_iteration": first,
        "iteration": last,
        "step": last * 100,
        "episodes": 8,
        "counts": {"policy/card_tile": counts, "other": {7: 1}},
    }


def shown(run: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> list[str]:
    assert main(["heatmap", str(run), *flags]) == 0
    return capsys.readouterr().out.splitlines()


def test_the_text_shows_the_own_side_at_the_bottom_and_shades_by_plays(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(run, capsys, "--iteration", "7")
    assert lines[0].startswith("iterations 1 to 10, 8 episodes")
    # Tile 0 is column 0 of row 0; tile 13 column 1 of row 1. The highest of 9 shades is that of
    # 4 plays; 1 of 4 is shade ceil(9 / 4) = 3.
    assert lines[2:4] == [" Guard", " 5"]
    assert lines[-2:] == ["| -          |", "|@           |"]
    assert lines[4:-2] == ["|            |"] * 18


def test_the_newest_window_is_shown_as_the_newest_attempt_wrote_it(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(run, capsys)
    assert lines[0].startswith("iterations 11 to 20")
    # In the order of their names: Cleaver, Guard.
    assert lines[4] == "|            |   |           @|"
    assert lines[-1] == "|@           |   |   .        |"  # 1 of 9 is the first of nine shades


def test_a_page_holds_every_window_and_fetches_nothing(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown(run, capsys, "--page", str(tmp_path / "heat.html"))
    page = (tmp_path / "heat.html").read_text("utf-8")
    assert "@DATA@" not in page
    assert "@TITLE@" not in page
    data = json.loads(page.split("const D = ")[1].split(";\n")[0])
    assert data["cards"] == ["Cleaver", "Guard"]
    assert [w["first"] for w in data["windows"]] == [1, 11]
    assert data["windows"][0]["tiles"] == [[], [[0, 4], [13, 1]]]
    assert data["size"][0] * data["size"][1] == TILES
    assert "://" not in page
    assert "src=" not in page


@pytest.mark.parametrize(
    ("flags", "named"), [(["--iteration", "21"], "1 to 20"), ([], "--heatmap-every")]
)
def test_what_there_is_not_is_refused_with_what_there_is(
    run: Path, capsys: pytest.CaptureFixture[str], flags: list[str], named: str
) -> None:
    if not flags:
        (run / "heatmaps.jsonl").unlink()
    assert main(["heatmap", str(run), *flags]) == 1
    assert named in capsys.readouterr().err


def refusal(run: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    assert main(["heatmap", str(run), *flags]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


@pytest.mark.parametrize("flags", [[], ["--page", "heat.html"], ["--iteration", "1"]])
@pytest.mark.parametrize("data", [b"", b"\n", b'{"first_iter', b'{"kind": "other"}\n'])
def test_a_run_that_has_counted_nothing_yet_is_refused_and_writes_no_page(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    data: bytes,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "heatmaps.jsonl").write_bytes(data)
    assert "heatmaps.jsonl" in refusal(tmp_path, capsys, *flags)
    assert not (tmp_path / "heat.html").exists()


def test_iterations_in_which_nothing_was_played_are_shown_as_that(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [window(1, 10, {0: 4}), window(11, 20, {})]
    (run / "heatmaps.jsonl").write_bytes(b"".join(map(to_line, rows)))
    lines = shown(run, capsys)
    assert lines[0].startswith("iterations 11 to 20")
    assert "no card was played" in lines[-1]


@pytest.mark.parametrize(
    "change",
    [
        {"counts": {"policy/card_tile": {16 * TILES: 1}}},  # there are sixteen cards
        {"counts": {"policy/card_tile": {-1: 1}}},
        {"counts": {"policy/card_tile": {"Guard": 1}}},
        {"counts": {"policy/card_tile": {0: "many"}}},
        {"counts": {"policy/card_tile": {0: 0.5}}},
        {"counts": {"policy/card_tile": {0: 0}}},
        {"counts": {"policy/card_tile": {0: -3}}},
        {"counts": {"policy/card_tile": [1, 2]}},
        {"counts": None},
        {"iteration": "last"},
        {"step": None},
    ],
)
def test_lines_that_are_no_heat_maps_of_the_arena_are_refused_with_their_file(
    run: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any]
) -> None:
    rows = [window(1, 10, {0: 4}), {**window(11, 20, {0: 4}), **change}]
    (run / "heatmaps.jsonl").write_bytes(b"".join(map(to_line, rows)))
    assert "heatmaps.jsonl" in refusal(run, capsys)
    assert "heatmaps.jsonl" in refusal(run, capsys, "--page", str(run / "heat.html"))
    assert not (run / "heat.html").exists()
