"""Mirrors metrics rows to SwanLab; by default into files, without a login and without the network.

Imported when chosen, imports swanlab when started. Never lets swanlab ask a question, wrap the
console, watch the machine, or decide how the process ends.
"""

from __future__ import annotations

import atexit
import importlib.util
import sys
from collections.abc import Mapping
from typing import Any

from royale_client.wire.errors import ConfigError
from royale_server.monitoring.trackers import TrackedRun, TrackerMode

_MODES: dict[TrackerMode, str] = {
    "offline": "offline",
    "local": "local",
    "cloud": "online",
    "disabled": "disabled",
}
_NO_PROBES = dict.fromkeys(
    ("hardware", "runtime", "requirements", "conda", "git", "swanlab", "monitor"), False
)


class SwanlabTracker:
    """One SwanLab experiment.

    Args:
        project: SwanLab project.
        mode: ``offline`` writes files for ``swanlab sync``, ``local`` for ``swanlab watch``,
            ``cloud`` uploads and needs a login made before.

    Raises:
        ConfigError: If swanlab, or its viewer for ``local``, is not installed.
    """

    name = "swanlab"

    def __init__(self, *, project: str, mode: TrackerMode) -> None:
        if importlib.util.find_spec("swanlab") is None:
            raise ConfigError(
                "--track.tracker swanlab: it is not installed; pip install 'royale-rl[server]'"
            )
        if mode == "local" and importlib.util.find_spec("swanboard") is None:
            raise ConfigError(
                "--track.mode local: SwanLab's viewer is not installed; pip install "
                "'swanlab[dashboard]', or use --track.mode offline"
            )
        self._project = project
        self._mode = mode
        self._run: Any = None

    def start(self, run: TrackedRun) -> None:
        """See ``Tracker``. The same run id in every attempt makes it one experiment."""
        import swanlab

        settings = swanlab.Settings(
            interactive=False, terminal={"proxy_type": "none"}, probe=_NO_PROBES
        )
        hook = sys.excepthook
        self._run = swanlab.init(
            project=self._project,
            name=run.name,
            id=run.run_id,
            resume="allow",
            mode=_MODES[self._mode],
            log_dir=str(run.directory / self.name),
            config=dict(run.config),
            settings=settings,
        )
        # At exit and on a crash it would finish on another thread and wait for whatever hangs here.
        sys.excepthook = hook
        at_exit = getattr(self._run, "_handle_atexit", None)
        if at_exit is not None:
            atexit.unregister(at_exit)

    def log(self, row: Mapping[str, float], step: int) -> None:
        """See ``Tracker``."""
        self._run.log(dict(row), step=step)

    def finish(self) -> None:
        """See ``Tracker``."""
        self._run.finish()
