"""``x.py``: installs once, passes exit codes and signals on, and leaves no process behind.

The script is copied, with a shorter patience, into an empty folder where small programs stand in
for what pip installs, so that nothing is downloaded and nothing is trained.
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the stand-ins are POSIX scripts")

LISTENING_SERVER = """
import pathlib, signal, sys, time
def save_and_stop(signum, frame):
    print("saved after signal", signum)
    sys.exit({signum_exits}.get(signum, 1))
for signum in (signal.SIGINT, signal.SIGTERM):
    signal.signal(signum, save_and_stop)
address_file = pathlib.Path(sys.argv[sys.argv.index("--address-file") + 1])
print("arguments", *sys.argv[1:])
address_file.write_text("127.0.0.1:4321")
{then}
"""
SIGNUM_EXITS = {int(signal.SIGINT): 0, int(signal.SIGTERM): 3}
NOTE_PROCESS_ID = "import os, sys; open(f'{sys.argv[0]}.{os.getpid()}.started', 'x').close()"
WAIT = "time.sleep(60)"
CARTPOLE = ("--env", "cartpole")
ENDLESS_CLIENT = "import sys, time\nprint('playing', *sys.argv[1:])\ntime.sleep(60)"


def listening_server(then: str) -> str:
    return LISTENING_SERVER.format(then=then, signum_exits=SIGNUM_EXITS)


class Checkout:
    """A copy of x.py with an environment that looks installed."""

    def __init__(self, folder: Path):
        self.folder = folder
        script = (ROOT / "x.py").read_text("utf-8")
        assert "CLIENT_GRACE_S = 10" in script
        (folder / "x.py").write_text(script.replace("CLIENT_GRACE_S = 10", "CLIENT_GRACE_S = 0.1"))
        (folder / "pyproject.toml").write_text("")
        (folder / "constraints.txt").write_text("")
        (folder / ".venv/bin").mkdir(parents=True)
        (folder / ".venv/bin/python").symlink_to(sys.executable)
        spec = importlib.util.spec_from_file_location("x_under_test", folder / "x.py")
        self.script = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.script)
        self.mark_installed(["arena", "dev", "gym", "server"])

    def mark_installed(self, extras: list[str]) -> None:
        stamp = {"fingerprint": self.script.setup_fingerprint(), "extras": extras}
        (self.folder / ".venv/royale-setup.json").write_text(json.dumps(stamp))

    def program(self, name: str, text: str) -> None:
        path = self.folder / ".venv/bin" / name
        path.write_text(f"#!{sys.executable}\n{NOTE_PROCESS_ID}\n{text}\n")
        path.chmod(0o755)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, self.folder / "x.py", *arguments]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(command, **streams, stdin=subprocess.DEVNULL, text=True)

    def call(self, *arguments: str) -> tuple[int, str]:
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=60)
        return process.returncode, output


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


def left_running(folder: Path) -> list[int]:
    """Return the process ids of the stand-ins that still run."""
    noted = [int(path.name.split(".")[1]) for path in folder.glob(".venv/bin/*.started")]
    assert noted
    return [process_id for process_id in noted if is_running(process_id)]


def is_running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def read_until(process: subprocess.Popen[str], *texts: str) -> str:
    """Read lines until each of the texts was seen."""
    seen = ""
    for line in process.stdout:
        seen += line
        if all(text in seen for text in texts):
            return seen
    raise AssertionError(f"ended without {texts}:\n{seen}")


def test_old_python_gets_a_sentence_and_no_traceback():
    program = (
        "import runpy, sys; sys.version_info = (3, 9, 2, 'final', 0);"
        f"runpy.run_path({str(ROOT / 'x.py')!r}, run_name='__main__')"
    )
    command = [sys.executable, "-c", program]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert "needs Python 3.11 or newer, this is 3.9" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_unknown_command_is_refused_with_those_that_exist(checkout):
    code, output = checkout.call("tset")
    assert code == 2
    assert "no command 'tset'; there are train, test, check" in output


@pytest.fixture
def installed(checkout, monkeypatch):
    """What the script wants pip to install, call by call."""
    calls = []
    monkeypatch.setattr(checkout.script, "venv_is_usable", lambda: True)
    monkeypatch.setattr(checkout.script, "install", calls.append)
    monkeypatch.setattr(checkout.script, "compile_arena", lambda: None)
    return calls


def test_nothing_is_installed_while_the_stamp_fits(checkout, installed):
    checkout.script.ensure_installed(frozenset({"server", "gym"}))
    assert installed == []


@pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt"])
def test_a_changed_file_installs_what_is_asked_again(checkout, installed, changed):
    (checkout.folder / changed).write_text("# changed")
    checkout.script.ensure_installed(frozenset({"server"}))
    assert installed == [frozenset({"server"})]


def test_a_further_extra_is_added_to_those_installed(checkout, installed):
    checkout.script.ensure_installed(frozenset({"mujoco"}))
    checkout.script.ensure_installed(frozenset({"dev"}))  # still there: nothing to do
    assert installed == [frozenset({"arena", "dev", "gym", "mujoco", "server"})]


def test_an_interrupted_installation_is_not_taken_for_a_finished_one(
    checkout, installed, monkeypatch
):
    def interrupted(extras):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkout.script, "install", interrupted)
        with pytest.raises(KeyboardInterrupt):
            checkout.script.ensure_installed(frozenset({"mujoco"}))
    checkout.script.ensure_installed(frozenset({"gym"}))
    assert installed == [frozenset({"gym"})]


def test_missing_venv_module_names_the_package_to_install(checkout, monkeypatch):
    monkeypatch.setattr(checkout.script.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(checkout.script.SetupError, match="apt-get install python3-venv"):
        checkout.script.make_venv()


def test_slow_suites_are_chosen_by_marker_and_other_arguments_reach_pytest(checkout, monkeypatch):
    commands = []
    monkeypatch.setattr(checkout.script, "ensure_installed", lambda extras: None)
    monkeypatch.setattr(checkout.script, "run", lambda *command: commands.append(command) or 0)
    checkout.script.test(["--chaos", "-x", "--learning", "tests/system"])
    # pytest's own words: everything after "python -m pytest"
    assert commands[0][3:] == ("-m", "chaos or learning", "-n", "0", "-x", "tests/system")


def test_the_fast_tests_use_every_core(checkout, monkeypatch):
    commands = []
    monkeypatch.setattr(checkout.script, "ensure_installed", lambda extras: None)
    monkeypatch.setattr(checkout.script, "run", lambda *command: commands.append(command) or 0)
    checkout.script.test(["tests/wire"])
    assert commands[0][3:] == ("-n", "auto", "--dist", "worksteal", "tests/wire")


def test_train_shows_prefixed_lines_and_the_run_directory_and_passes_the_exit_code(checkout):
    folder = checkout.folder / "runs/ppo/mlp-policy/first"
    end = f"time.sleep(0.5); pathlib.Path({str(folder)!r}).mkdir(parents=True); sys.exit(2)"
    checkout.program("royale-server", listening_server(end))
    checkout.program("royale-env-client", "import sys; print('playing', *sys.argv[1:])")
    code, output = checkout.call("train", *CARTPOLE, "--", "--seed", "3", "--exp-name", "first")
    assert code == 2
    assert "  server | arguments mlp-policy default ppo classic --port 0" in output
    assert "--exp-name first" in output
    assert "--seed 3" in output
    for name in ("client-1", "client-2"):
        assert f"{name} | playing gym --env-id CartPole-v1 --num-envs 8" in output
    assert "--server-url ws://127.0.0.1:4321" in output
    assert f"run directory: {folder}" in output


def test_train_ends_when_the_server_fails_before_it_listens(checkout):
    checkout.program("royale-server", "print('no such flag'); raise SystemExit(2)")
    checkout.program("royale-env-client", ENDLESS_CLIENT)
    code, output = checkout.call("train", *CARTPOLE)
    assert code == 2
    assert "server | no such flag" in output
    assert "playing" not in output


def test_clients_are_ended_when_the_server_crashes(checkout):
    checkout.program("royale-server", listening_server("time.sleep(0.5); sys.exit(1)"))
    checkout.program("royale-env-client", ENDLESS_CLIENT)
    code, _ = checkout.call("train", *CARTPOLE)
    assert code == 1
    assert left_running(checkout.folder) == []


def test_server_is_asked_to_save_when_a_client_fails(checkout):
    checkout.program("royale-server", listening_server(WAIT))
    checkout.program(
        "royale-env-client",
        "import sys\nif 'client-2' in sys.argv: sys.exit('env exploded')\n" + ENDLESS_CLIENT,
    )
    code, output = checkout.call("train", *CARTPOLE)
    assert code == 1
    assert "client-2 | env exploded" in output
    assert "client-2 failed with exit code 1: ending the server" in output
    assert f"saved after signal {int(signal.SIGTERM)}" in output
    assert left_running(checkout.folder) == []


@pytest.mark.parametrize(
    ("sent", "received", "code"),
    [("SIGINT", "SIGINT", 0), ("SIGTERM", "SIGTERM", 3), ("SIGHUP", "SIGTERM", 3)],
)
def test_signal_reaches_the_server_once_and_nobody_is_left(checkout, sent, received, code):
    checkout.program("royale-server", listening_server(WAIT))
    checkout.program("royale-env-client", ENDLESS_CLIENT)
    process = checkout.start("train", *CARTPOLE)
    read_until(process, "client-1 | playing", "client-2 | playing")
    process.send_signal(getattr(signal, sent))
    output, _ = process.communicate(timeout=60)
    assert process.returncode == code
    assert output.count(f"saved after signal {int(getattr(signal, received))}") == 1
    assert left_running(checkout.folder) == []


ARENA_SERVER = """
run = pathlib.Path(sys.argv[0]).parents[2] / "runs/ppo/arena-policy/battles"
run.mkdir(parents=True)
won, lost = [1, 1], [0, 1]
battles = [("scripted random", won), ("scripted random", lost), ("scripted push", won)]
lines = [json.dumps({"opponent": name, "metrics/win_rate": rate}) for name, rate in battles]
(run / "episodes.jsonl").write_text("\\n".join(lines) + "\\n" + '{"torn')
(run / "metrics.jsonl").write_text('{"run/step": 9}\\n{"run/step": 4096}\\n{"run')
while not (run / "control").exists():
    time.sleep(0.05)
print("told", (run / "control").read_text())
"""
ROYALE = """
import pathlib, sys
print("royale", *sys.argv[1:])
if sys.argv[1] == "eval":
    replays = pathlib.Path(sys.argv[sys.argv.index("--replays") + 1])
    replays.mkdir()
    (replays / "battles-heuristic.json").touch()
"""


@pytest.fixture
def arena(checkout):
    """A checkout whose server plays battles until it is told to stop."""
    script = (checkout.folder / "x.py").read_text()
    assert "SAY_EVERY_S = 20" in script
    (checkout.folder / "x.py").write_text(script.replace("SAY_EVERY_S = 20", "SAY_EVERY_S = 0.3"))
    checkout.program("royale-server", "import json\n" + listening_server(ARENA_SERVER))
    checkout.program("royale-env-client", "import sys; print('playing', *sys.argv[1:])")
    checkout.program("royale", ROYALE)
    package = checkout.folder / "royale_client/envs/arena"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    (package / "warm_up.py").write_text("print('compiled', flush=True)")
    return checkout


def test_battles_are_trained_for_some_minutes_measured_and_written_as_a_page(arena):
    code, output = arena.call("train", "--minutes", "0.01", "--", "--exp-name", "battles")
    assert code == 0
    assert output.index("compiled") < output.index("server |")
    assert "server | arguments arena-policy default ppo arena --port 0 --exp-name battles" in output
    assert "battles-1 | playing arena --battles" in output
    # One of two decided battles; the torn last line waits until it is whole.
    assert "0:00: 4,096 frames, " in output
    assert "; won 50% against random in training" in output
    assert "server | told q" in output
    run = arena.folder / "runs/ppo/arena-policy/battles"
    assert f"royale eval {run} --against random --against heuristic --replays {run}/rep" in output
    page = run / "replays/battles-heuristic.html"
    assert f"royale replay {run}/replays/battles-heuristic.json --page {page}" in output
    assert f"a battle to watch, in a browser: {page}" in output
    assert left_running(arena.folder) == []


def test_a_measurement_that_fails_gives_its_exit_code(arena):
    arena.program("royale", "raise SystemExit(7)")
    code, output = arena.call("train", "--minutes", "0.01", "--", "--exp-name", "battles")
    assert code == 7
    assert "to watch" not in output


def test_interrupted_training_is_not_measured(arena):
    process = arena.start("train", "--", "--exp-name", "battles")
    read_until(process, "battles-1 | playing")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "saved after signal" in output
    assert "royale eval" not in output
    assert left_running(arena.folder) == []


def test_interrupted_measurement_ends_with_its_exit_code(arena):
    arena.program("royale", "import time\nprint('measured', flush=True)\ntime.sleep(60)")
    process = arena.start("train", "--minutes", "0.01", "--", "--exp-name", "battles")
    read_until(process, "measured")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    assert left_running(arena.folder) == []


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "inf"])
def test_senseless_minutes_are_refused(checkout, minutes):
    code, output = checkout.call("train", "--minutes", minutes)
    assert code == 2
    assert "--minutes" in output
    assert "expected a number above 0" in output


def test_flags_of_the_recipe_can_be_replaced(checkout):
    script = checkout.script
    arguments = ["--selfplay.mix", "mirror=1", "--seed", "3"]
    command, _ = script.server_command(script.COURSES["arena"], arguments, Path("address"))
    words = [str(word) for word in command]
    assert words.count("--selfplay.mix") == 1
    assert words[words.index("--selfplay.mix") + 1] == "mirror=1"
    assert words[-2:] == ["--seed", "3"]


def test_interrupted_test_run_passes_the_signal_on_and_its_exit_code(checkout):
    # The stand-in for "python -m pytest": prints, waits, and ends its own way on Ctrl-C.
    (checkout.folder / "pytest.py").write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda *_: sys.exit(77))\n"
        "print('testing', flush=True)\ntime.sleep(60)\n"
    )
    checkout.mark_installed(["dev", "fast", "gym", "mujoco", "server"])
    process = checkout.start("test")
    read_until(process, "testing")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 77
