"""Flags that every environment of `royale-env-client` shares. Reads no file but the token's."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from royale_client.grouping import Groups
from royale_client.reconnect import Backoff, Patience
from royale_client.transport import ServerAddress
from royale_client.wire.errors import ConfigError
from royale_client.wire.tokens import TOKEN_VARIABLE, checked_token, token_in

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a client runs its environments and where it finds its server."""

    num_envs: int = 1
    """Environments of each process, stepped together."""
    groups: Groups = 1
    """1, 2 or auto; with 2 the environments are split in two halves, and one half is stepped while
    the other waits for its actions. auto tries the environments out first, which makes slow ones
    twice, and may decide otherwise at the next start: give the number where a run is to be resumed
    exactly."""
    server_url: str | None = None
    """ws://HOST:PORT or wss://HOST:PORT of the server, or unix:///PATH of its socket file on this
    machine; default ws://127.0.0.1:8000."""
    server_host: str | None = None
    """Host of the server, instead of --server-url."""
    server_port: int | None = None
    """Port of the server, instead of --server-url."""
    token_file: Path | None = None
    """File whose first line is the server's token; default is the variable ROYALE_TOKEN."""
    tls_ca: Path | None = None
    """PEM file of the authorities that may vouch for a wss:// server; default are the system's. The
    certificate of a server that has signed it itself is its own authority."""
    proxy: str | None = None
    """Proxy to go through, as http://HOST:PORT; proxy variables of the environment are ignored."""
    client_name: str | None = None
    """Name of this client, the same after every restart; default is made of host and environment.
    Two clients of one server need two names."""
    role: Literal["train", "eval"] = "train"
    """train: the server learns from the frames; eval: they are rounds of evaluation."""
    num_episodes: int | None = None
    """Finished episodes, over all environments of a process, after which it leaves; default: none,
    work until the server stops."""
    seed: int | None = None
    """Environment i is seeded with SEED + i; default is the server's seeds."""
    float16_observations: bool = False
    """Send float32 and float64 observations as float16: half or a quarter of the bytes, three
    digits, no number beyond 65504. It pays where the network is the limit."""
    num_procs: int = 1
    """Processes to start, each with its own connection; process i is called NAME-i and seeded with
    SEED + i * num_envs. They all end when one fails or when this command ends."""
    restarts: int = 3
    """How often each of several processes is started again after it was killed or crashed."""
    reconnect: bool = False
    """Never give up connecting, and wait for the next run when the server stops."""
    connect_timeout: float = 30.0
    """Seconds to wait at the start for a server that is not there yet."""
    reconnect_budget: float = 120.0
    """Seconds to try again after a connection was lost; 0 ends at once."""
    reconnect_base: float = 1.0
    """Longest pause before the first new attempt, in seconds; it doubles with each. Pauses are
    drawn from zero to that, so that a thousand clients do not come back in one instant."""
    reconnect_cap: float = 5.0
    """Longest pause between two attempts, in seconds."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """What to log to standard error."""

    def __post_init__(self) -> None:
        """Check ranges and combinations.

        Raises:
            ConfigError: If a value is out of range or two flags contradict each other.
        """
        at_least_1 = {"num-envs": self.num_envs, "num-procs": self.num_procs}
        if self.num_episodes is not None:
            at_least_1["num-episodes"] = self.num_episodes
        for name, value in at_least_1.items():
            if value < 1:
                raise ConfigError(f"--{name} {value}: expected at least 1")
        if self.restarts < 0:
            raise ConfigError(f"--restarts {self.restarts}: expected 0 or more")
        if self.groups not in (1, 2, "auto"):
            raise ConfigError(f"--groups {self.groups}: expected 1, 2 or auto")
        if self.groups == 2 and self.num_envs == 1:
            raise ConfigError(
                f"--groups {self.groups} --num-envs {self.num_envs}: each group needs an "
                "environment; raise --num-envs"
            )
        if self.seed is not None and self.seed < 0:
            raise ConfigError(f"--seed {self.seed}: expected 0 or more")
        for name, seconds in (
            ("connect-timeout", self.connect_timeout),
            ("reconnect-budget", self.reconnect_budget),
            ("reconnect-base", self.reconnect_base),
            ("reconnect-cap", self.reconnect_cap),
        ):
            if not 0 <= seconds < float("inf"):
                raise ConfigError(f"--{name} {seconds}: expected 0 or more seconds")
        self._check_address()

    def _check_address(self) -> None:
        by_parts = self.server_host is not None or self.server_port is not None
        if self.server_url is not None and by_parts:
            raise ConfigError("give either --server-url or --server-host/--server-port, not both")
        if self.server_port is not None and not 1 <= self.server_port <= 65535:
            raise ConfigError(f"--server-port {self.server_port}: expected 1 to 65535")
        ServerAddress(url=self.url, tls_ca=self._authorities)

    @property
    def url(self) -> str:
        """The server's URL, from whichever flags name it."""
        if self.server_url is not None:
            return self.server_url
        host = self.server_host or DEFAULT_HOST
        bare = host.removeprefix("[").removesuffix("]")
        return f"ws://{f'[{bare}]' if ':' in bare else bare}:{self.server_port or DEFAULT_PORT}"

    @property
    def patience(self) -> Patience:
        """How long to go on trying."""
        return Patience(
            connect_timeout_s=self.connect_timeout,
            budget_s=self.reconnect_budget,
            for_ever=self.reconnect,
            backoff=Backoff(base_s=self.reconnect_base, cap_s=self.reconnect_cap),
        )

    def address(self) -> ServerAddress:
        """Return where to connect, with the token.

        Raises:
            ConfigError: If the token file cannot be read, or the token cannot travel.
        """
        return ServerAddress(
            url=self.url,
            token=read_token(self.token_file),
            proxy=self.proxy,
            tls_ca=self._authorities,
        )

    @property
    def _authorities(self) -> str | None:
        return None if self.tls_ca is None else str(self.tls_ca)


def read_token(file: Path | None) -> str | None:
    """Return the token to present, or None for a server that wants none.

    Args:
        file: Its file; None takes the variable of the environment.

    Raises:
        ConfigError: If the file cannot be read, or the token cannot travel in an HTTP header.
    """
    if file is None:
        token = os.environ.get(TOKEN_VARIABLE)
        return checked_token(token, TOKEN_VARIABLE) if token else None
    where = f"--token-file {file}"
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read: {error.strerror}") from error
    return token_in(content, where)
