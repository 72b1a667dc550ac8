"""Every path of a run. The one place that joins them; reads and creates nothing.

::

    <base>/<algorithm>/<policy>/<name>/
        run.json                  what the run is; its presence makes the directory a run
        identity.json             what must not change: settings, versions, code, environments
        source.diff               uncommitted changes of the code, if there were any
        config.json               resolved settings of the newest attempt
        config.attempt_N.json     the same, of each attempt
        lock                      kernel lock and record of the process at work
        control                   a letter written by a person: c, q or p; taken away when read
        metrics.jsonl             one row an iteration
        episodes.jsonl            one line a finished episode
        heatmaps.jsonl            where things happened, one line every few iterations
        events.jsonl              what happened, and when
        alarms.jsonl              alarms raised and cleared; only once there was one
        bundles/<iteration>/      what was known when an alarm stopped the run
        requests/                 what ``royale`` asks of the running server; taken away when read
        <step>/                   checkpoints (their content is the business of ``checkpoints``)
        logs/attempt_N/           text logs; logs/latest links to the newest
        trackers/                 what trackers keep on disk
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from royale_client.wire.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # devices of Windows
_ATTEMPT = re.compile(r"attempt_([1-9]\d{0,8})(?!\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLayout:
    """Where the files of one run lie.

    Raises:
        ConfigError: If one of the three names cannot be the name of a folder on every system.
    """

    base: Path
    """Folder of all runs (``--checkpoint-base-dir``)."""
    algorithm: str
    """Uid of the algorithm."""
    policy: str
    """Uid of the policy."""
    name: str
    """Name of the run (``--exp-name``)."""

    def __post_init__(self) -> None:
        for part, word in (("algorithm", self.algorithm), ("policy", self.policy)):
            check_name(word, part)
        check_name(self.name, "--exp-name")

    @property
    def siblings(self) -> Path:
        """Folder of all runs of this algorithm and policy."""
        return self.base / self.algorithm / self.policy

    @property
    def directory(self) -> Path:
        """The run itself; checkpoints lie in ``<step>/`` below it."""
        return self.siblings / self.name

    @property
    def run_json(self) -> Path:
        """What the run is: written once, by its first attempt."""
        return self.directory / "run.json"

    @property
    def identity(self) -> Path:
        """What must not change from one attempt to the next."""
        return self.directory / "identity.json"

    @property
    def config(self) -> Path:
        """Resolved settings of the newest attempt."""
        return self.directory / "config.json"

    @property
    def lock(self) -> Path:
        """The file whose kernel lock means that a process works on the run."""
        return self.directory / "lock"

    @property
    def control(self) -> Path:
        """Where a person leaves a letter for the run."""
        return self.directory / "control"

    @property
    def metrics(self) -> Path:
        """One row an iteration."""
        return self.directory / "metrics.jsonl"

    @property
    def episodes(self) -> Path:
        """One line a finished episode."""
        return self.directory / "episodes.jsonl"

    @property
    def heat_maps(self) -> Path:
        """Where things happened; one line every few iterations."""
        return self.directory / "heatmaps.jsonl"

    @property
    def events(self) -> Path:
        """One line for each thing that happened."""
        return self.directory / "events.jsonl"

    @property
    def alarms(self) -> Path:
        """One line for each alarm that was raised, and for each that was over."""
        return self.directory / "alarms.jsonl"

    @property
    def bundles(self) -> Path:
        """What was known when an alarm stopped the run, one folder an iteration."""
        return self.directory / "bundles"

    @property
    def requests(self) -> Path:
        """What other programs ask of the running server, one file a request."""
        return self.directory / "requests"

    @property
    def logs(self) -> Path:
        """Text logs, one folder an attempt."""
        return self.directory / "logs"

    @property
    def latest_logs(self) -> Path:
        """Link to the log folder of the newest attempt."""
        return self.logs / "latest"

    @property
    def trackers(self) -> Path:
        """What trackers keep on disk."""
        return self.directory / "trackers"

    def checkpoint(self, step: int) -> Path:
        """The checkpoint of one step."""
        return self.directory / str(step)

    def attempt_config(self, attempt: int) -> Path:
        """Resolved settings of one attempt."""
        return self.directory / f"config.attempt_{attempt}.json"

    def source_diff(self, attempt: int) -> Path:
        """Uncommitted changes of the code that an attempt ran."""
        number = "" if attempt == 1 else f".attempt_{attempt}"
        return self.directory / f"source{number}.diff"

    def attempt_logs(self, attempt: int) -> Path:
        """Text logs of one attempt."""
        return self.logs / f"attempt_{attempt}"

    def server_log(self, attempt: int) -> Path:
        """What the server said in one attempt."""
        return self.attempt_logs(attempt) / "server.log"

    def fresh_set_aside(self) -> Path:
        """A free name beside the run, for a run that is being overwritten."""
        return self.siblings / f".overwritten-{secrets.token_hex(4)}-{self.name}"

    def is_set_aside(self, path: Path) -> bool:
        """Whether ``path`` is an earlier run of this name that was moved aside."""
        pattern = rf"\.overwritten-[0-9a-f]{{8}}-{re.escape(self.name)}"
        return path.parent == self.siblings and re.fullmatch(pattern, path.name) is not None


def check_name(name: str, what: str) -> None:
    """Refuse what cannot be the name of a folder on every system.

    Args:
        name: The name.
        what: Which one it is; starts the message.

    Raises:
        ConfigError: If it cannot.
    """
    if not _NAME.fullmatch(name) or _RESERVED.fullmatch(name) or name.endswith("."):
        raise ConfigError(
            f"{what}: {name[:140]!r} cannot name a folder; expected 1 to 128 letters, digits, '.', "
            "'_' or '-', with a letter or digit first and no '.' last"
        )


def timestamp_name(now: datetime, seed: int, taken: Iterable[str] = ()) -> str:
    """Name a run after the time of its start: sortable, and unlike those that are taken.

    Args:
        now: The time, in whatever zone the names shall be.
        seed: Seed of the run.
        taken: Names in use.

    Returns:
        A name like ``20261130-070312-seed3``.
    """
    name = f"{now:%Y%m%d-%H%M%S}-seed{seed}"
    used, candidate, number = set(taken), name, 1
    while candidate in used:
        number += 1
        candidate = f"{name}-{number}"
    return candidate


def next_attempt(names: Iterable[str]) -> int:
    """Number the next attempt, given names that hold earlier ones (``attempt_3``)."""
    numbers = [int(match[1]) for match in map(_ATTEMPT.search, names) if match]
    return max(numbers, default=0) + 1
