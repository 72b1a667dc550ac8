"""What a configuration needs from the machine: token, certificate, folders, a checkpoint to go on.

Reads files and the environment, writes nothing, and never shows a token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from algorithms.config import RESTORE_ALL
from royale_client.wire.errors import ConfigError
from royale_client.wire.tokens import TOKEN_VARIABLE, checked_token, token_in
from royale_server.cli_flags import Settings
from royale_server.config import is_loopback
from royale_server.evaluation.config import is_checkpoint
from royale_server.monitoring.trackers import tracker_names
from royale_server.registry import close_match_hint

if TYPE_CHECKING:
    import ssl

MANIFEST = "manifest.json"


def precondition_problems(
    config: Settings, given: Iterable[tuple[str, ...]], environ: Mapping[str, str]
) -> list[str]:
    """List what the machine or the command line lacks for this configuration.

    Args:
        config: Settings of the server; need not have passed its own checks.
        given: Field paths that the user set on the command line.
        environ: Environment variables.

    Returns:
        One sentence each, starting with the flag.
    """
    return [
        *_token_problems(config, environ),
        *_tls_problems(config),
        *_deterministic_problems(config, set(given)),
        *_warm_start_problems(config),
        *_opponent_problems(config),
        *_address_file_problems(config),
        *_tracker_problems(config),
    ]


def read_token(config: Settings, environ: Mapping[str, str]) -> str | None:
    """Return the token clients must present, or None for an open server.

    ``--token-file`` wins over ``ROYALE_TOKEN``.

    Raises:
        ConfigError: If the file cannot be read or the token cannot travel in an HTTP header. The
            message never holds the token.
    """
    if config.token_file is not None:
        where = f"--token-file {config.token_file}"
        try:
            content = config.token_file.read_bytes()
        except OSError as error:
            raise ConfigError(f"{where}: cannot be read: {error.strerror}") from error
        return token_in(content, where)
    token = environ.get(TOKEN_VARIABLE)
    return None if token is None else checked_token(token, TOKEN_VARIABLE)


def read_tls(config: Settings) -> ssl.SSLContext | None:
    """Return what the server proves itself with, or None if it speaks in the clear.

    Raises:
        ConfigError: If certificate or key cannot be read, do not fit each other, or are encrypted.
    """
    if config.tls_cert is None:
        return None
    import ssl  # not for help

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    files = f"--tls-cert {config.tls_cert}"
    files += "" if config.tls_key is None else f" --tls-key {config.tls_key}"
    try:
        # Without a function OpenSSL would ask for the password at the terminal.
        context.load_cert_chain(config.tls_cert, config.tls_key, password=lambda: "")
    except ssl.SSLError as error:
        raise ConfigError(
            f"{files}: {error.reason or error}; expected PEM files with a certificate and its own "
            "private key, not encrypted"
        ) from error
    except OSError as error:
        raise ConfigError(f"{files}: cannot be read: {error.strerror}") from error
    return context


def _token_problems(config: Settings, environ: Mapping[str, str]) -> list[str]:
    if config.inline is not None:
        return []
    try:
        token = read_token(config, environ)
    except ConfigError as error:
        return [str(error)]
    if token is None and config.tcp and not is_loopback(config.host):
        return [
            f"--host: {config.host} can be reached from other machines, which needs a token; set "
            f"{TOKEN_VARIABLE} or write --token-file FILE, here and at the clients"
        ]
    return []


def _tls_problems(config: Settings) -> list[str]:
    try:
        read_tls(config)
    except ConfigError as error:
        return [str(error)]
    return []


def _deterministic_problems(config: Settings, given: set[tuple[str, ...]]) -> list[str]:
    if config.deterministic and config.inline is None and ("min_clients",) not in given:
        return [
            "--deterministic: needs --min-clients N, the number of clients that take part; "
            "its rounds take one group of each"
        ]
    return []


def _warm_start_problems(config: Settings) -> list[str]:
    """Problems of the flags that start from another run's weights, where the algorithm has them."""
    path: Path | None = getattr(config.algo, "policy_checkpoint_path", None)
    restore: str = getattr(config.algo, "restore", RESTORE_ALL)
    if path is None:
        if restore == RESTORE_ALL:
            return []
        return [f"--algo.restore: {restore} needs --algo.policy-checkpoint-path STEP_DIRECTORY"]
    problem = _step_directory_problem(path)
    return [f"--algo.policy-checkpoint-path: {problem}"] if problem else []


def _opponent_problems(config: Settings) -> list[str]:
    """Problems of the checkpoints that rounds of evaluation are played against."""
    named = [Path(name) for name in config.evaluate.against if is_checkpoint(name)]
    problems = map(_step_directory_problem, named)
    return [f"--evaluate.against: {problem}" for problem in problems if problem]


def _step_directory_problem(path: Path) -> str | None:
    if not path.exists():
        return f"{path} does not exist; expected the directory of one step, such as runs/…/983040"
    if path.is_file():
        return f"{path} is a file, expected the directory it lies in"
    if (path / MANIFEST).is_file():
        return None
    steps = sorted(
        (int(child.name) for child in path.iterdir() if _is_whole_step(child)), reverse=True
    )
    if steps:
        return f"{path} is a run, expected one step of it; its newest is {path / str(steps[0])}"
    return (
        f"{path} has no {MANIFEST}, so it is no whole checkpoint; "
        "expected the directory of one step, which holds model.safetensors"
    )


def _is_whole_step(folder: Path) -> bool:
    return folder.name.isdecimal() and (folder / MANIFEST).is_file()


def _address_file_problems(config: Settings) -> list[str]:
    file = config.address_file
    if file is not None and not file.parent.is_dir():
        return [f"--address-file: the folder {file.parent} does not exist; create it first"]
    return []


def _tracker_problems(config: Settings) -> list[str]:
    name, known = config.track.tracker, tracker_names()
    if name in known:
        return []
    hint = close_match_hint(name, known)
    return [f"--track.tracker: {name!r} is unknown{hint}; known: {', '.join(known)}"]
