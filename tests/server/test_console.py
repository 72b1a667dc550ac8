"""The console: what it says for what happens, when it is quiet, and where it draws."""

import io
import logging
from pathlib import Path

import pytest
from rich.console import Console as RichConsole

from royale_server.config import Pair, ServerConfig
from royale_server.monitoring import console_text
from royale_server.monitoring.console import Console
from royale_server.monitoring.console_text import Owed
from royale_server.monitoring.logging_setup import TerminalHandler
from royale_server.monitoring.terminal import Terminal
from royale_server.scheduler import Group
from royale_server.scheduler.roster import Member, Role

ROW = {
    "run/iteration": 12,
    "run/step": 24_576,
    "run/env_steps": 24_580,
    "run/attempt": 1,
    "run/policy_version": 12,
    "run/frames": 2048,
    "throughput/collect_frames_per_s": 6606.4,
    "throughput/frames_per_s": 5120.0,
    "throughput/rows_per_batch": 16.0,
    "time/iteration": 0.4,
    "time/collection": 0.31,
    "time/inference": 0.1,
    "time/update": 0.09,
    "time/residual": 0.001,
    "throughput/learner_wait_frac": 0.52,
    "client/wait_frac": 0.3,
    "server/clients": 2,
    "server/discarded_frames": 12,
    "server/discarded_late": 8,
    "server/discarded_lost": 4,
    "server/discarded_cut": 0,
    "server/no_state_frames": 0,
    "server/conservation_error": 0,
    "ppo/policy_loss": -0.01234,
    "ppo/value_loss": 31.25,
    "ppo/kl": 0.0041,
    "ppo/clip_fraction": 0.1,
    "env/return_mean": 180.0,
    "env/return_min": 150.0,
    "env/return_max": 200.0,
    "env/return_mean_100": 187.4,
    "env/length_mean": 187.0,
    "env/episodes": 23,
}


class FakeClock:
    """Monotonic seconds that move when they are told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def console(clock, caplog):
    caplog.set_level(logging.DEBUG, logger="royale_server")
    return Console(Terminal(io.StringIO()), clock=clock)


@pytest.fixture
def shown(caplog):
    """A function that returns the lines shown at INFO or above since the last call."""

    def take():
        lines = [r.getMessage() for r in caplog.records if r.levelno >= logging.INFO]
        caplog.clear()
        return lines

    return take


# --- texts -----------------------------------------------------------------------------------


def test_a_collection_that_ends_says_its_rate_and_that_updating_begins():
    # 2,048 / 0.31 = 6,606.5
    assert console_text.collected_line(2048, 0.31) == (
        "collected 2,048 frames in 0.31 s (6,606 env steps/s); updating"
    )
    assert console_text.collected_line(1, 0.0) == "collected 1 frames in 0.00 s; updating"


def test_an_epoch_is_one_compact_line():
    metrics = {"ppo/policy_loss": -0.01234, "ppo/kl": 0.0041, "ppo/clip_fraction": 0.1}
    assert console_text.epoch_line(2, 10, 0.083, metrics) == (
        "  epoch 2/10, 0.08 s in: policy_loss -0.01234, kl 0.0041"
    )
    assert console_text.epoch_line(1, 1, 61.0, {}) == "  epoch 1/1, 61.0 s in"


def test_an_iteration_is_a_short_block():
    assert console_text.iteration_lines(ROW) == [
        "iteration 12: step 24,576, env steps 24,580, policy version 12",
        "  mean return of the last 100 episodes 187.4; 23 episodes ended, return 150.0 to 200.0, "
        "mean length 187.0",
        "  5,120 frames/s; collect 0.31 s, update 0.09 s, residual 0.00 s",
        "  the learner waited 52% for frames, clients 30% for actions",
        "  policy_loss -0.01234, value_loss 31.25, kl 0.0041",
        "  discarded 12 frames so far (late 8, lost 4); 2 clients",
    ]


def test_an_iteration_without_an_ended_episode_says_so():
    row = {key: value for key, value in ROW.items() if not key.startswith("env/")}
    assert console_text.iteration_lines(row)[1] == "  no episode has ended yet; none ended now"
    later = row | {"env/return_mean_100": 12.5}
    assert console_text.iteration_lines(later)[1] == (
        "  mean return of the last 100 episodes 12.5; none ended now"
    )


def test_an_algorithm_without_losses_has_no_empty_line():
    row = {key: value for key, value in ROW.items() if not key.startswith("ppo/")}
    assert len(console_text.iteration_lines(row)) == 5


def test_frames_that_the_books_miss_are_named():
    lines = console_text.iteration_lines(ROW | {"server/conservation_error": 3})
    assert lines[-1] == "  frames are not conserved: 3 unaccounted for"


def test_a_waiting_queue_names_client_group_debt_and_time():
    owed = [
        Owed(client="left-arm", group=0, is_first=False, for_s=5.2),
        Owed(client="right-arm", group=1, is_first=True, for_s=31.04),
    ]
    assert console_text.queue_waiting_line(5.04, owed, 0) == (
        "Infer queue has been waiting for 5.04 s: "
        "client left-arm group 0 owes the outcome of its last actions since 5.20 s; "
        "client right-arm group 1 owes its first observations since 31.0 s"
    )


def test_a_waiting_queue_counts_what_it_does_not_name():
    owed = [Owed(client=f"c{i}", group=0, is_first=False, for_s=1.0) for i in range(8)]
    line = console_text.queue_waiting_line(5.0, owed, 2)
    assert "client c5 group 0" in line
    assert "client c6" not in line
    assert line.endswith("; and 2 more groups; 2 more clients must join (--min-clients)")


def test_missing_clients_are_counted():
    assert console_text.waiting_line(2) == "waiting for 2 more clients"
    assert console_text.waiting_line(1) == "waiting for 1 more client"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "ws://127.0.0.1:8000"),
        ("::1", "ws://[::1]:8000"),
        ("0.0.0.0", "ws://THIS-MACHINE:8000"),
    ],
)
def test_listening_says_how_to_connect(host, url):
    assert console_text.listening_lines([console_text.server_url(host, 8000)], 2) == [
        f"listening on {url}; waiting for 2 clients",
        f"  connect with: royale-env-client ENV --server-url {url}",
    ]


def test_listening_names_every_way_in_and_recommends_the_first():
    urls = ["ws://127.0.0.1:8000", "unix:///run/royale"]
    assert console_text.listening_lines(urls, 1) == [
        "listening on ws://127.0.0.1:8000, unix:///run/royale; waiting for 1 client",
        "  connect with: royale-env-client ENV --server-url ws://127.0.0.1:8000",
    ]


def test_the_end_says_how_where_and_how_to_go_on():
    lines = console_text.ended_lines(
        "200,704 of 200,000 frames collected",
        code=0,
        step=200_704,
        saved_step=200_704,
        run_directory=Path("runs/ppo/mlp-policy/first"),
        last_return="mean return of the last 100 episodes 487.2",
        is_finished=True,
        arguments=["mlp-policy", "default", "ppo", "classic"],
    )
    assert lines == [
        "ended: 200,704 of 200,000 frames collected (exit code 0)",
        "  mean return of the last 100 episodes 487.2",
        "  checkpoint: step 200,704",
        "  run directory: runs/ppo/mlp-policy/first",
        "  train on with: royale-server mlp-policy default ppo classic --exp-name first --resume "
        "--until-timesteps 401408",
    ]


@pytest.mark.parametrize(
    ("saved", "line"),
    [
        (None, "  nothing was saved: there is no checkpoint to continue from"),
        (5, "  checkpoint: step 5; what came after it is lost"),
    ],
)
def test_the_end_names_the_checkpoint_to_continue_from(saved, line):
    lines = console_text.ended_lines(
        "crashed",
        code=1,
        step=9,
        saved_step=saved,
        run_directory=None,
        last_return=None,
        is_finished=False,
        arguments=[],
    )
    assert lines == ["ended: crashed (exit code 1)", line]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.004, "0.00 s"), (9.99, "9.99 s"), (10.04, "10.0 s"), (99.9, "99.9 s"), (1234.5, "1,234 s")],
)
def test_durations_have_about_three_digits(value, text):
    assert console_text.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.00123456, "0.001235"), (-3.14159, "-3.142"), (187.4, "187.4"), (12345.6, "12,345.6")],
)
def test_numbers_have_about_four_digits(value, text):
    assert console_text.number(value) == text


# --- what is said when -------------------------------------------------------------------------


def test_a_start_says_what_where_and_with_which_seed(console, shown):
    pair = Pair(policy="mlp-policy", policy_variant="default", algo="ppo", algo_variant="classic")
    config = ServerConfig(pair=pair, policy=None, algo=None, seed=7)
    console.starting(config, run_directory=Path("runs/x"), attempt=2)
    console.built(device="cpu", frames_wanted=2048)
    first, *rest = shown()
    assert first.endswith(": mlp-policy default ppo classic")
    assert rest == [
        "  run directory: runs/x (attempt 2)",
        "  seed 7, device auto, dispatch barrier",
        "model ready on cpu; 2,048 frames per iteration",
    ]


def test_clients_come_and_go(console, shown):
    console.client_joined("arm", "CartPole-v1", 8, "127.0.0.1:5000")
    console.client_left("arm", "goodbye")
    console.all_clients_gone(None)
    console.all_clients_gone(30.0)
    assert shown() == [
        "client arm joined from 127.0.0.1:5000: 8 slots of CartPole-v1",
        "client arm left: goodbye",
        "all clients are gone; waiting for new ones (Ctrl-C ends with a checkpoint)",
        "all clients are gone; ending in 30 s unless one comes",
    ]


def test_a_waiting_queue_reads_debts_from_the_groups(console, shown):
    member = Member(number=1, name="arm", role=Role.TRAIN, joined_at=60.0)
    new = Group(member=member, index=0, start=0, stop=4)
    owing = Group(member=member, index=1, start=4, stop=8, entered=True, owes_since=97.5)
    console.queue_waiting([new, owing], waited_s=5.0, now=100.0, missing_clients=0)
    assert shown() == [
        "Infer queue has been waiting for 5.00 s: "
        "client arm group 0 owes its first observations since 40.0 s; "
        "client arm group 1 owes the outcome of its last actions since 2.50 s"
    ]


def iterate(console, clock, *, collect_s=0.0, epoch_s=0.0, number=1):
    clock.now += collect_s
    console.collected(2048, collect_s)
    for epoch in (1, 2):
        clock.now += epoch_s
        console.epoch(epoch, 2, {})
    console.iteration(ROW | {"run/iteration": number})


def test_every_collection_epoch_and_iteration_has_its_line(console, clock, shown):
    for number in (1, 2):
        iterate(console, clock, collect_s=1.0, epoch_s=0.25, number=number)
        lines = shown()
        assert lines[0].startswith("collected 2,048 frames in 1.00 s")
        assert lines[1:3] == ["  epoch 1/2, 0.25 s in", "  epoch 2/2, 0.50 s in"]
        assert lines[3].startswith(f"iteration {number}:")


def test_of_fast_iterations_the_first_ten_and_then_one_a_second_are_shown(
    console, clock, shown, caplog
):
    for number in range(1, 20):
        iterate(console, clock, collect_s=0.125, number=number)
    debug = [r for r in caplog.records if r.levelno == logging.DEBUG]
    lines = shown()
    numbers = [line.split(":")[0] for line in lines if line.startswith("iteration")]
    # Eighths of a second: 8 after the tenth, one second has passed.
    assert numbers == [f"iteration {number}" for number in (*range(1, 11), 18)]
    assert "  7 iterations before it only in metrics.jsonl" in lines
    assert any(record.getMessage().startswith("iteration 15:") for record in debug)


def test_a_fast_collection_with_a_slow_learn_step_is_not_silent(console, clock, shown):
    for number in range(1, 11):
        iterate(console, clock, number=number)
    shown()
    iterate(console, clock, epoch_s=0.75, number=11)
    lines = shown()
    assert lines[0] == "  epoch 2/2, 1.50 s in"
    assert lines[1].startswith("iteration 11:")


def test_the_last_iteration_is_shown_at_the_end(console, clock, shown):
    for number in range(1, 13):  # 11 and 12 are quiet
        iterate(console, clock, number=number)
    shown()
    console.ended("finished", code=0, saved_step=24_576, step=24_576, is_finished=True)
    lines = shown()
    assert lines[0].startswith("iteration 12:")
    assert "  1 iteration before it only in metrics.jsonl" in lines
    assert "ended: finished (exit code 0)" in lines
    assert "  mean return of the last 100 episodes 187.4" in lines


def test_stopping_says_what_is_waited_for(console, shown):
    console.stopping("SIGINT received", learning=False)
    console.stopping("SIGINT received", learning=True)
    console.checkpoint_saved(24_576, Path("runs/x/24576"))
    assert shown() == [
        "stopping: SIGINT received",
        "stopping: SIGINT received; waiting up to 30 s for the learn step "
        "(ask again to give it up, a third time to leave at once)",
        "saved the checkpoint of step 24,576: runs/x/24576",
    ]


# --- the terminal ------------------------------------------------------------------------------


def drawn(clock, monkeypatch, no_color=False):
    """A console on a pretended terminal, and what is written to it."""
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    else:
        monkeypatch.delenv("NO_COLOR", raising=False)
    stream = io.StringIO()
    rich = RichConsole(
        file=stream, force_terminal=True, width=80, color_system="standard", no_color=no_color
    )
    terminal = Terminal(stream, rich)
    return Console(terminal, clock=clock), terminal, stream


def test_without_a_terminal_there_are_lines_and_no_bar():
    stream = io.StringIO()
    terminal = Terminal(stream)
    terminal.write_line("[bold]as it is[/bold]", logging.ERROR)
    assert terminal.new_bar() is None
    assert stream.getvalue() == "[bold]as it is[/bold]\n"


def test_on_a_terminal_a_bar_shows_the_collection_and_goes_away(clock, monkeypatch):
    console, _, stream = drawn(clock, monkeypatch)
    console.collecting(512, 2048)
    assert "collecting" in stream.getvalue()
    assert "512/2048" in stream.getvalue()
    clock.now += 1.0
    console.epoch(3, 10, {})
    assert "updating" in stream.getvalue()
    console.close()
    assert stream.getvalue().endswith(("\x1b[2K", "\x1b[?25h"))


def test_the_bar_is_redrawn_at_most_ten_times_a_second(clock, monkeypatch):
    console, _, stream = drawn(clock, monkeypatch)
    console.collecting(1, 10)
    before = stream.getvalue()
    clock.now += 0.05
    console.collecting(2, 10)
    assert stream.getvalue() == before
    clock.now += 0.06
    console.collecting(3, 10)
    assert "3/10" in stream.getvalue()
    console.close()


def test_lines_go_above_the_bar_whole_and_unmarked(clock, monkeypatch):
    console, terminal, stream = drawn(clock, monkeypatch)
    console.collecting(1, 10)
    handler = TerminalHandler(terminal)
    record = logging.LogRecord("x", logging.INFO, "", 0, "[red] %s", ("x" * 100,), None)
    handler.emit(record)
    console.close()
    assert "[red] " + "x" * 100 + "\n" in stream.getvalue()


def test_warnings_are_coloured_unless_colours_are_unwanted(clock, monkeypatch):
    _, terminal, stream = drawn(clock, monkeypatch)
    terminal.write_line("look", logging.WARNING)
    assert stream.getvalue() == "\x1b[33mlook\x1b[0m\n"
    _, terminal, stream = drawn(clock, monkeypatch, no_color=True)
    terminal.write_line("look", logging.WARNING)
    assert stream.getvalue() == "look\n"


def test_a_stream_that_is_no_terminal_gets_no_drawing(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    terminal = Terminal.of_stderr()
    assert terminal.new_bar() is None


def test_a_terminal_that_fails_does_not_end_the_run(monkeypatch, capsys):
    class Broken(io.StringIO):
        def write(self, text):
            raise OSError("gone")

    monkeypatch.setattr(logging, "raiseExceptions", False)
    handler = TerminalHandler(Terminal(Broken()))
    handler.emit(logging.LogRecord("x", logging.INFO, "", 0, "line", (), None))
