"""A running battle can be looked at: as lines, and as a page on this machine and nowhere else."""

import http.client
import io
import json
import socket
import threading

import numpy as np
import pytest

from royale_client.envs.arena.provider import PROVIDER, ArenaConfig
from royale_client.envs.arena.replay import Replay, record
from royale_client.envs.arena.replay_views import as_page, as_text, live_page
from royale_client.envs.arena.rules import RUNNING
from royale_client.envs.arena.spectators import LivePage, Teller
from royale_client.envs.arena.stage import Stage
from royale_client.envs.arena.state import views_of
from royale_client.envs.arena.watching import Watching, watched
from royale_client.wire.errors import ConfigError
from royale_client.wire.seating import Player, SeatAssignment

BATTLES = 2
SEEDS = np.arange(2 * BATTLES, dtype=np.uint64) + np.uint64(5)


class Played:
    """Battles of bots whose first one is shown, and a record of that one."""

    def __init__(self) -> None:
        self.driver = PROVIDER.make(ArenaConfig(), BATTLES)
        self.stage = Stage()
        self.driver.watching = Watching(self.stage, (), lambda: None)
        bots = [
            SeatAssignment(slot=slot, episode=k, player=Player.SCRIPTED, name=name)
            for k in range(3)
            for slot, name in enumerate(("heuristic", "push", "noop", "noop"))
        ]
        self.driver.assign(bots, afresh=True)
        self.driver.reset(SEEDS)
        self.out = io.StringIO()
        self.teller = Teller(self.stage, self.out)
        self.teller.tell_news()
        self.actions: list[list[int]] = []

    def step(self) -> bool:
        """Play a decision; say whether the first battle ended in it."""
        batch, seats = self.driver.batch, self.driver._seats
        chosen = seats.actions(batch.battles, np.zeros(4, np.bool_), np.zeros(0, np.int64))
        self.actions.append(chosen[0].tolist())
        turn = self.driver.step((np.zeros(0, np.int64),))
        return bool(turn.terminated[0])

    def until_end(self) -> Replay:
        """Play the first battle to its end, and return its record."""
        while not self.step():
            pass
        last = self.stage.since(0, 1)
        assert last is not None
        return record(views_of(last.states[-1]), 0, ("heuristic", "push"), self.actions)


@pytest.fixture(scope="module")
def played() -> tuple[Played, Replay]:
    played = Played()
    return played, played.until_end()


@pytest.fixture(scope="module")
def page(played):
    live = LivePage(played[0].stage, 0)
    live.start()
    yield live
    live.close()


def get(page: LivePage, path: str, **headers: str) -> http.client.HTTPResponse:
    host, port = page.url.removeprefix("http://").rstrip("/").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    connection.request(headers.pop("method", "GET"), path, headers=headers)
    response = connection.getresponse()
    response.body = response.read()
    connection.close()
    return response


def test_the_lines_of_a_battle_that_was_watched_are_those_of_its_replay(played) -> None:
    shown, replay = played
    assert shown.teller.tell_news()
    assert shown.out.getvalue().splitlines() == ["", *as_text(replay)]


def test_lines_come_while_the_battle_is_played_and_none_twice() -> None:
    played = Played()
    out, teller = played.out, played.teller
    while not played.step():
        assert not teller.tell_news()
    while not teller.tell_news():
        pass
    # The next battle begins at once, and its lines follow those of the first.
    actions, said = list(played.actions), out.getvalue().splitlines()
    first = played.stage.since(0, 1)
    assert first is not None
    assert len(first.states) == len(actions)
    assert said[1] == "seat 0: heuristic; seat 1: push"
    assert sum("plays" in line for line in said) == sum(a > 0 for pair in actions for a in pair)
    assert not teller.tell_news()
    assert out.getvalue().splitlines()[len(said) : len(said) + 2] == ["", said[1]]


def test_the_page_gets_the_frames_that_the_replay_of_the_battle_has(played, page) -> None:
    replay = played[1]
    news = json.loads(get(page, "/frames?battle=0&from=0").body)
    data = json.loads(as_page(replay).split("const D = ")[1].split(";\n")[0].replace("<\\/", "</"))
    assert news["frames"] == data["frames"]
    assert news["end"] == data["end"]
    assert news["players"] == ["heuristic", "push"]


def test_the_page_asks_for_what_is_new_and_gets_the_next_battle_after_the_end(played, page) -> None:
    length = len(played[1].actions) + 1
    rest = json.loads(get(page, f"/frames?battle=0&from={length - 3}").body)
    assert (rest["battle"], len(rest["frames"])) == (0, 3)
    after = json.loads(get(page, f"/frames?battle=0&from={length}").body)
    assert (after["battle"], len(after["frames"]), after["end"]) == (1, 1, "")
    assert json.loads(get(page, "/frames?battle=1&from=1").body)["frames"] == []
    assert json.loads(get(page, "/frames?battle=-1&from=0").body)["battle"] == 1


def test_the_page_is_whole_and_asks_nobody_but_the_client(page) -> None:
    response = get(page, "/")
    text = response.body.decode()
    assert response.status == 200
    assert text == live_page()
    assert text.count("fetch(") == 1
    assert "://" not in text
    assert "src=" not in text
    assert "connect-src 'self'" in response.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", {"Host": "evil.example:80"}, 403),
        ("/frames?battle=0&from=0", {"Host": "evil.example:80"}, 403),
        ("/other", {}, 404),
        ("/../etc/passwd", {}, 404),
        ("/frames", {}, 400),
        ("/frames?battle=x&from=0", {}, 400),
        ("/", {"method": "POST"}, 501),
    ],
)
def test_other_requests_are_refused(page, path, headers, status) -> None:
    assert get(page, path, **headers).status == status


def test_before_the_first_battle_there_are_no_frames() -> None:
    live = LivePage(Stage(), 0)
    live.start()
    assert json.loads(get(live, "/frames?battle=-1&from=0").body)["frames"] == []
    live.close()


def test_one_group_of_a_process_has_spectators_until_it_closes() -> None:
    config = ArenaConfig(watch_port=0)
    first, second = PROVIDER.make(config, 1), PROVIDER.make(config, 1)
    assert first.watching is not None
    assert second.watching is None
    first.close()
    third = PROVIDER.make(config, 1)
    assert third.watching is not None
    third.close()
    second.close()


def test_a_port_in_use_is_told_and_ends_nothing(caplog) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        watching = watched(text=False, port=port)
    assert watching is not None
    watching.close()
    assert f"--watch-port {port}" in caplog.text


def test_nobody_watches_unless_asked_and_the_stage_costs_nothing_then() -> None:
    driver = PROVIDER.make(ArenaConfig(), 1)
    assert driver.watching is None
    assert watched(text=False, port=None) is None


class Heard(io.StringIO):
    """Says when something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.flushed = threading.Event()

    def flush(self) -> None:
        super().flush()
        self.flushed.set()


def test_lines_go_out_from_a_thread_that_ends_with_the_client() -> None:
    driver, out = PROVIDER.make(ArenaConfig(), 1), Heard()
    driver.watching = watched(text=True, port=None, out=out)
    assert driver.watching is not None
    driver.reset(SEEDS[:2])
    (teller,) = driver.watching.parts
    assert out.flushed.wait(30)
    driver.close()
    assert "seat 0: policy; seat 1: policy" in out.getvalue()
    assert not teller._thread.is_alive()


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_there_is_not_is_refused(port) -> None:
    with pytest.raises(ConfigError, match="--watch-port"):
        ArenaConfig(watch_port=port)


def test_the_stage_keeps_the_battle_before_and_no_more(played) -> None:
    battles, stage = played[0].driver.batch.battles, Stage()
    assert stage.since(-1, 0) is None
    for name in ("one", "two", "three"):
        stage.begin(battles, 0, (name, name))
        stage.add(battles, 0, np.zeros(2, np.int32))
    second = stage.since(1, 1)
    assert second is not None
    assert (second.players[0], len(second.states), len(second.actions)) == ("two", 1, 1)
    newest = stage.since(0, 1)
    assert newest is not None
    assert (newest.number, len(newest.states)) == (2, 2)
    assert (battles.outcome[0] == RUNNING) != newest.is_over
