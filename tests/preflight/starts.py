"""Commands of the server and of ``royale doctor`` in this process, and what they leave behind."""

from __future__ import annotations

import hashlib
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from royale_client.driver import EnvDriver
from royale_client.hello import make_hello
from royale_server import cli, inline
from royale_server.tools.main import main as royale

SMALL = ("--algo.frames-per-iteration", "64", "--algo.num-epochs", "1", "--algo.minibatch-size",
         "32", "--algo.total-timesteps", "64")  # fmt: skip
PPO = ("mlp-policy", "default", "ppo", "default", *SMALL)
ARENA = ("arena-policy", "default", "ppo", "arena", "--policy.channels", "4", "--policy.blocks",
         "1", "--algo.minibatch-size", "32", "--algo.batch-size", "64",
         "--algo.frames-per-iteration", "64", "--algo.total-timesteps", "64")  # fmt: skip


@contextmanager
def logging_put_back() -> Iterator[None]:
    """Undo what a command does to logging and to signals."""
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(False)
        for package in ("royale_server", "royale_client", "algorithms", "checkpoints"):
            logging.getLogger(package).setLevel(logging.NOTSET)
        for number, handler in signals.items():
            signal.signal(number, handler)


class Starts:
    """Starts servers and doctors over one folder of runs.

    Args:
        base: The folder.
        capsys: Takes what they print.
    """

    def __init__(self, base: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.base = base
        self._capsys = capsys

    def server(self, *words: str) -> tuple[int, str]:
        """Run ``royale-server`` to its end; its exit code, and all that it says."""
        with logging_put_back():
            code = cli.main([*words, "--checkpoint-base-dir", str(self.base)])
        told = self._capsys.readouterr()
        return int(code), told.out + told.err

    def doctor(self, *words: str) -> tuple[int, str]:
        """Run ``royale doctor``."""
        with logging_put_back():
            code = royale(["doctor", *words, "--checkpoint-base-dir", str(self.base)])
        return int(code), self._capsys.readouterr().out

    def digest(self) -> dict[str, str]:
        """Digest of every file below the base, by its name."""
        return {
            str(path.relative_to(self.base)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.base.rglob("*"))
            if path.is_file()
        }


def play_inline(monkeypatch: pytest.MonkeyPatch, driver: EnvDriver, env_id: str) -> None:
    """Let ``--inline`` run these environments, whatever it names."""
    hello = make_hello([driver], client_name="inline", env_id=env_id, facts={})
    monkeypatch.setattr(inline, "_client_of", lambda _config: (driver, hello))
