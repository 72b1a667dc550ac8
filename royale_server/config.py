"""The settings of one server: every flag of ``royale-server``, its meaning, and what excludes what.

Frozen values only. This module reads no file, no environment variable and no clock, and never
imports torch: it is what ``--help`` prints.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from algorithms.config import OF_THE_START, SAME, SAME_IF_DETERMINISTIC, LearnerConfig
from royale_client.wire.errors import ConfigError
from royale_client.wire.limits import MIB, Limits
from royale_server.alarms.config import AlarmConfig
from royale_server.evaluation.config import EvaluateConfig
from royale_server.preflight.config import DoctorConfig
from royale_server.selfplay.config import SelfPlayConfig

if TYPE_CHECKING:
    from royale_server.scheduler.config import SchedulerConfig

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
NO_FLAG: Mapping[str, Any] = {"flag": False}
"""Metadata of a field that is no command-line flag."""
REPEATABLE: Mapping[str, Any] = {"repeatable": True}
"""Metadata of a tuple field whose flag is given once for each item."""
DEVICE_PATTERN = re.compile(r"auto|cpu|cuda(:\d+)?")
TORCH_THREADS = (1, 1024)
"""Fewest and most threads that one torch operation may use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The four words of the command: which policy is trained by which algorithm."""

    policy: str
    policy_variant: str
    algo: str
    algo_variant: str

    def __str__(self) -> str:
        return f"{self.policy} {self.policy_variant} {self.algo} {self.algo_variant}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackConfig:
    """Where curves are mirrored to. ``metrics.jsonl`` in the run directory is always written."""

    enabled: bool = False
    """Mirror every metrics row to a tracker. A tracker that fails never stops the run."""
    tracker: str = "swanlab"
    """Which tracker: ``swanlab``, or the name of an installed plug-in."""
    project: str = "royale"
    """Project name that the tracker files the run under."""
    mode: Literal["offline", "local", "cloud"] = "offline"
    """``offline`` writes files for a later upload and needs no login and no network; ``local``
    writes files for the tracker's own viewer on this machine; ``cloud`` uploads and needs a login
    made before the start."""

    def __post_init__(self) -> None:
        if not self.project.strip():
            raise ConfigError("project: is empty, expected a name")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """All settings of one server start. Times are in seconds unless the name says otherwise."""

    pair: Pair = field(metadata=NO_FLAG)
    """The four words, kept so that the recorded configuration is complete."""
    policy: Any = field(metadata=SAME)
    """Settings of the policy; the variant word chooses where they start."""
    algo: Any = field(metadata=SAME)
    """Settings of the algorithm; the variant word chooses where they start."""

    seed: int = field(default=0, metadata=SAME)
    """Seeds Python, NumPy, torch (before the policy is built) and the noise of every slot. With one
    client the same seed gives the same run; with several, add ``--deterministic``. 0 to 2**32 - 1,
    which is what NumPy takes."""
    device: str = "auto"
    """Where the policy lives: ``cpu``, ``cuda``, ``cuda:1``, or ``auto`` = a GPU if torch sees one.
    For small networks the CPU is often the faster."""
    torch_threads: int = field(default=1, metadata=SAME)
    """CPU threads within one torch operation. One is fastest for small networks on a machine shared
    with clients; raise it for large networks on a machine of their own."""
    deterministic: bool = field(default=False, metadata=SAME)
    """Make a run with several clients repeatable bit by bit: fixed rounds, no patience, torch's
    deterministic algorithms. Needs ``--min-clients`` and a ``--client-name`` for each client. The
    slowest client then sets the pace."""

    exp_name: str | None = field(default=None, metadata=OF_THE_START)
    """Name of the run, and of its directory
    ``<checkpoint-base-dir>/<algo>/<policy>/<exp-name>``. Letters, digits, ``.``, ``_`` and
    ``-``. When absent, a name is made from the time of the start."""
    checkpoint_base_dir: Path = field(default=Path("runs"), metadata=OF_THE_START)
    """Folder that holds all runs. Each checkpoint is the folder ``<step>/`` of its run."""
    resume: bool = field(default=False, metadata=OF_THE_START)
    """Continue the run of that name from its newest whole checkpoint."""
    overwrite: bool = field(default=False, metadata=OF_THE_START)
    """Start the run of that name anew; the old one is moved aside until the first checkpoint."""
    allow_identity_drift: bool = field(default=False, metadata=OF_THE_START)
    """With ``--resume``: go on although something that decides what is learned is no longer what
    the run was started with. It is a different experiment from there on, so every later row is
    marked ``run/identity_drift``, and the run remembers it."""
    allow_dirty: bool = field(default=False, metadata=OF_THE_START)
    """With ``--resume``: go on although the uncommitted changes of the code are no longer those
    the run was started with. Every later row is marked ``run/dirty``. Another commit is not
    allowed by this; that takes ``--allow-identity-drift``."""
    save_every: int = 10
    """Iterations between checkpoints. One is also written at the end, on stop and on Ctrl-C."""
    keep_last: int = 3
    """Checkpoints kept; older ones are deleted after a newer one is whole. The best one and those
    that are pinned stay as well."""
    keep_every: int | None = None
    """Frames between older checkpoints that are kept besides: of each such stretch the first one
    stays. When absent, none does."""
    heatmap_every: int = 10
    """Iterations that one line of ``heatmaps.jsonl`` is about: where in its environment the learner
    did what, as in the arena on which tile it played each card. 0 writes none."""
    until_timesteps: int | None = None
    """Frames to stop at, in place of the algorithm's own limit. With ``--resume``, runs a finished
    run further."""
    exit_when_idle: float | None = None
    """Seconds after which a server that has lost all its clients ends, with a checkpoint. When
    absent it waits for new ones. The time before the first client does not count."""

    host: str = "127.0.0.1"
    """Address to listen on. Anything beyond this machine needs a token, since who can connect can
    feed the training: set ``ROYALE_TOKEN`` or ``--token-file``."""
    port: int = 8000
    """TCP port to listen on; 0 takes a free one and says which."""
    unix_socket: Path | None = None
    """Socket file to listen on as well, for clients of the same user on this machine, which connect
    with ``--server-url unix:///PATH``. It is made for its owner alone (mode 0600) and removed at
    the end; what a killed server has left is replaced."""
    tcp: bool = True
    """Listen on ``--host`` and ``--port``. With ``--no-tcp`` and ``--unix-socket`` nobody but this
    user can connect."""
    address_file: Path | None = field(default=None, metadata=OF_THE_START)
    """File that receives ``host:port`` in one line once the server listens, or the URL of the
    socket file with ``--no-tcp``. For scripts, with ``--port 0``."""
    token_file: Path | None = None
    """File whose first line is the token that clients must present. ``ROYALE_TOKEN`` does the same.
    There is no flag for the token itself: other users can read a command line."""
    tls_cert: Path | None = None
    """PEM file with the server's certificate and those that sign it: clients connect over TLS, with
    ``wss://``. Does not concern ``--unix-socket``."""
    tls_key: Path | None = None
    """PEM file with the private key of ``--tls-cert``, not encrypted. When absent, the key is in
    that file as well."""
    allow_host: tuple[str, ...] = field(default=(), metadata=REPEATABLE)
    """Name by which clients may call a server that listens on this machine only, besides
    ``localhost``, loopback addresses and ``--host``: that of a proxy in front of it. Other names
    are refused, since a web page could have made them up. May be repeated."""
    allow_origin: tuple[str, ...] = field(default=(), metadata=REPEATABLE)
    """Web page, as ``https://example.org``, whose scripts may connect. Browsers name the page that
    connects; others than those named here are refused. May be repeated."""
    max_sessions: int = 1024
    """Clients connected at once; further ones are told to come back."""
    max_slots: int = 8192
    """Agent seats of all clients together. Rollout storage is sized by it."""
    max_message_mib: int = 64
    """Largest message of a client, in MiB. A client whose requests would not fit is told so when
    it says hello."""
    max_unread_mib: int = 64
    """Answers that a client may leave unread, in MiB, before it is cut off."""
    max_log_rate: int = 100
    """Log records a client may send per second; further ones are dropped and counted, and a client
    that sends ten times as many messages is ended."""

    dispatch: Literal["barrier", "dynamic"] = "barrier"
    """When a batch is inferred. ``barrier``: one request of every client that is on time; the right
    choice for equally fast clients. ``dynamic``: whatever is queued whenever the model is free; for
    mixed speeds."""
    mini_infer_batch_size: int | None = None
    """Infer as soon as this many environments are queued, in place of waiting for every client.
    Clamped to what the clients on time can bring."""
    max_infer_batch_size: int | None = None
    """Most slots in one ``dynamic`` batch; a larger single request is inferred alone. When absent,
    no bound."""
    max_infer_wait_ms: float = 0.0
    """Milliseconds a ``dynamic`` batch may wait to grow. 0 favours latency, a few favour
    throughput."""
    min_clients: int = field(default=1, metadata=SAME_IF_DETERMINISTIC)
    """Training clients to wait for before the first round. Later ones may join at any time."""
    patience: float = 3.0
    """A client is late after this many median turns of the others, at least 20 ms; a round then
    goes on without it. Up to that factor slower clients are waited for."""
    close_wait: float = 1.0
    """Seconds that a full buffer waits for late actions before it learns without them."""
    first_step_timeout: float = 300.0
    """Seconds a client may take from its welcome to its first observations. Covers building the
    environments."""
    feedback_wait_timeout: float = 60.0
    """Seconds a client may take to answer an action; then it is disconnected and may come back.
    Learn steps do not count. Must exceed the slowest environment step."""
    ping_timeout: float = 20.0
    """Seconds a client may give no sign of life after a ping, one of which it gets every 20 s; then
    it counts as cut off. Clients answer while an environment steps, but not while one keeps Python
    to itself: raise it above such a step."""
    short_inference: float = 0.001
    """Seconds: on a CPU, batches that take less are inferred without a change of threads; 0 keeps
    all to the model thread, so that a policy that hangs can still be stopped in order."""
    reconnect_grace: float = 30.0
    """Seconds for which a client whose connection is lost keeps its session: its episodes, and the
    frames under way. Nobody waits for it meanwhile, unless ``--deterministic``. 0: it begins a new
    session."""
    mixed_environments: bool = False
    """Clients may bring environments of other versions or settings than the first one's, with equal
    spaces: one policy then learns all of them. Without it such a client is refused."""
    on_nonfinite: Literal["reject", "halt", "pass"] = "reject"
    """What a NaN or infinity in an observation or a reward does: ``reject`` discards that frame as
    invalid, plays the rest of its episode without training on it, and tells the client where it
    was; ``halt`` stops the run with a checkpoint; ``pass`` hands it to the policy and the learner
    as it came, and only counts it."""

    inline: str | None = None
    """Environment to run inside this process, without sockets: for debugging, and to measure what
    the network costs. A Gymnasium id, or the name of a family such as arena. The run ends as it
    would with clients."""
    inline_num_envs: int = 8
    """Environments of ``--inline``, stepped together; battles in the arena."""
    inline_env_kwargs: str | None = None
    """A JSON object for ``--inline``: keyword arguments of a Gymnasium environment,
    '{"gravity": 5.0}', or flags of a family, '{"bots": ["push"], "shaping_crowns": 0}'."""

    selfplay: SelfPlayConfig = field(default_factory=SelfPlayConfig, metadata=SAME)
    """Opponents in environments with several seats. Others are not touched by it."""
    alarms: AlarmConfig = field(default_factory=AlarmConfig)
    """Questions asked of every metrics row."""
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    """Rounds that clients with ``--role eval`` play."""
    doctor: DoctorConfig = field(default_factory=DoctorConfig)
    """What the preflight judges by."""
    track: TrackConfig = field(default_factory=TrackConfig)
    """Mirror the curves to a tracker."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe lines shown on the console."""
    plugin: tuple[str, ...] = field(default=(), metadata=REPEATABLE)
    """Module (``my_policy``) or file (``plugins/my_policy.py``) that registers policies or
    algorithms and is not installed. May be repeated."""
    dry_run: bool = field(default=False, metadata=OF_THE_START)
    """Check the command and its configuration, print the configuration as JSON, and end."""

    def __post_init__(self) -> None:
        problems = [*_range_problems(self), *_run_problems(self), *_exclusion_problems(self)]
        if problems:
            raise ConfigError("\n".join(problems))

    def reached_limit(self, global_step: int, recent_returns: Sequence[float]) -> str | None:
        """Return which limit a run has reached, as a sentence; ``None`` if none.

        Args:
            global_step: Stored frames since the run began.
            recent_returns: Returns of its last training episodes, oldest first.
        """
        until = self.until_timesteps
        if until is not None:
            return f"{global_step} of {until} frames collected" if global_step >= until else None
        is_limited = isinstance(self.algo, LearnerConfig)
        return self.algo.reached(global_step, recent_returns) if is_limited else None

    def limits(self) -> Limits:
        """The part of the settings that bounds messages."""
        return Limits(max_message_bytes=self.max_message_mib * MIB)

    def scheduler(self) -> SchedulerConfig:
        """The part of the settings that the frame rules need."""
        from royale_server.scheduler.config import Dispatch, SchedulerConfig  # NumPy: not for help

        return SchedulerConfig(
            dispatch=Dispatch(self.dispatch),
            mini_infer_batch_size=self.mini_infer_batch_size,
            max_infer_batch_size=self.max_infer_batch_size,
            max_infer_wait_s=self.max_infer_wait_ms / 1000.0,
            min_clients=self.min_clients,
            max_slots=self.max_slots,
            patience=self.patience,
            close_wait_s=self.close_wait,
            first_step_timeout_s=self.first_step_timeout,
            feedback_wait_timeout_s=self.feedback_wait_timeout,
            deterministic=self.deterministic,
        )


def is_loopback(host: str) -> bool:
    """Whether ``host`` can only be reached from this machine. Unknown names count as reachable."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _range_problems(config: ServerConfig) -> list[str]:
    """Numbers outside the range in which they mean something."""
    ranges: dict[str, tuple[float, float]] = {
        "seed": (0, 2**32 - 1),
        "torch_threads": TORCH_THREADS,
        "save_every": (1, float("inf")),
        "keep_last": (1, float("inf")),
        "keep_every": (1, float("inf")),
        "heatmap_every": (0, float("inf")),
        "until_timesteps": (1, float("inf")),
        "exit_when_idle": (0, float("inf")),
        "port": (0, 65535),
        "max_sessions": (1, 1_000_000),
        "max_slots": (1, 2**24),
        "max_message_mib": (1, 1024),
        "max_unread_mib": (1, 1024),
        "max_log_rate": (1, 100_000),
        "mini_infer_batch_size": (1, float("inf")),
        "max_infer_batch_size": (1, float("inf")),
        "max_infer_wait_ms": (0, 60_000),
        "min_clients": (1, config.max_sessions),
        "patience": (1, float("inf")),
        "close_wait": (0, float("inf")),
        "first_step_timeout": (0.001, float("inf")),
        "feedback_wait_timeout": (0.001, float("inf")),
        "ping_timeout": (0.001, float("inf")),
        "short_inference": (0, 1.0),
        "reconnect_grace": (0, float("inf")),
        "inline_num_envs": (1, float("inf") if config.inline is None else config.max_slots),
    }
    problems = []
    for name, (low, high) in ranges.items():
        value = getattr(config, name)
        if value is not None and not low <= value <= high:
            bound = f"at least {low:,}" if high == float("inf") else f"{low:,} to {high:,}"
            problems.append(f"{name}: got {value}, expected {bound}")
    return problems


def _run_problems(config: ServerConfig) -> list[str]:
    """What is wrong with the run's name, its device or the way it starts."""
    problems = []
    if config.exp_name is not None and not NAME_PATTERN.fullmatch(config.exp_name):
        problems.append(
            f"exp_name: got {config.exp_name!r}, expected up to 128 letters, digits, '.', '_' or "
            "'-', the first a letter or digit: it becomes a folder name"
        )
    if not DEVICE_PATTERN.fullmatch(config.device):
        problems.append(f"device: got {config.device!r}, expected auto, cpu, cuda or cuda:N")
    if config.resume and config.overwrite:
        problems.append(
            "resume: excludes --overwrite; one continues the run, the other replaces it"
        )
    problems.extend(
        f"{name}: only counts with --resume; a run that begins has nothing to differ from"
        for name in ("allow_identity_drift", "allow_dirty")
        if getattr(config, name) and not config.resume
    )
    if config.overwrite and config.exp_name is None:
        problems.append("overwrite: needs --exp-name NAME; without it every start makes a new name")
    if config.resume and getattr(config.algo, "policy_checkpoint_path", None) is not None:
        problems.append(
            "resume: excludes --algo.policy-checkpoint-path; a resumed run already has its weights"
        )
    return problems


def _exclusion_problems(config: ServerConfig) -> list[str]:
    """Settings that would be ignored, or contradict each other."""
    problems = []
    if config.dispatch != "dynamic":
        if config.max_infer_batch_size is not None:
            problems.append("max_infer_batch_size: only bounds batches of --dispatch dynamic")
        if config.max_infer_wait_ms != 0:
            problems.append("max_infer_wait_ms: only delays batches of --dispatch dynamic")
    elif config.mini_infer_batch_size is not None:
        problems.append("mini_infer_batch_size: excludes --dispatch dynamic; choose one of the two")
    if config.deterministic and (config.dispatch != "barrier" or config.mini_infer_batch_size):
        problems.append(
            "deterministic: excludes --dispatch dynamic and --mini-infer-batch-size; "
            "its rounds are fixed"
        )
    if config.tls_key is not None and config.tls_cert is None:
        problems.append("tls_key: only counts with --tls-cert FILE")
    if not config.tcp:
        problems.extend(_no_tcp_problems(config))
    if config.inline is None:
        problems.extend(
            f"{name}: only counts with --inline ENV"
            for name, default in (("inline_num_envs", 8), ("inline_env_kwargs", None))
            if getattr(config, name) != default
        )
    else:
        problems.extend(_inline_problems(config))
    return problems


def _no_tcp_problems(config: ServerConfig) -> list[str]:
    """What makes no sense without a TCP port."""
    problems = [
        f"{name}: excludes --no-tcp, which opens no port"
        for name, default in (
            ("host", "127.0.0.1"),
            ("port", 8000),
            ("tls_cert", None),
            ("tls_key", None),
            ("allow_host", ()),
        )
        if getattr(config, name) != default
    ]
    if config.unix_socket is None and config.inline is None:
        problems.append("tcp: --no-tcp needs --unix-socket PATH; nobody could connect")
    return problems


def _inline_problems(config: ServerConfig) -> list[str]:
    """What makes no sense with an environment in this process."""
    socket_defaults: dict[str, object] = {
        "host": "127.0.0.1",
        "port": 8000,
        "unix_socket": None,
        "tcp": True,
        "address_file": None,
        "token_file": None,
        "tls_cert": None,
        "tls_key": None,
        "allow_host": (),
        "allow_origin": (),
        "max_sessions": 1024,
        "max_unread_mib": 64,
        "max_log_rate": 100,
        "exit_when_idle": None,
        "min_clients": 1,
    }
    problems = [
        f"{name}: excludes --inline, which opens no socket and has exactly one client"
        for name, default in socket_defaults.items()
        if getattr(config, name) != default
    ]
    if config.inline_env_kwargs is not None:
        try:
            _check_json_object(config.inline_env_kwargs)
        except ValueError as error:
            problems.append(
                f"inline_env_kwargs: got {config.inline_env_kwargs!r}, expected a JSON object "
                f"such as '{{\"gravity\": 5.0}}' ({error})"
            )
    return problems


def _check_json_object(text: str) -> None:
    """Raise ValueError for anything but a JSON object."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"this is a {type(value).__name__}")
