"""Files whose content the settings name by their path: what a run reads and did not write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from royale_server.config import ServerConfig
from royale_server.preconditions import MANIFEST
from royale_server.preflight.facts import NamedFile
from royale_server.preflight.machine import file_digest


def named_files(config: ServerConfig) -> tuple[NamedFile, ...]:
    """Return them with their digests; that of a checkpoint is its manifest's, which has all others.

    Args:
        config: Settings of the server.
    """
    return tuple(
        NamedFile(flag=flag, path=path, digest=file_digest(path)) for flag, path in _paths(config)
    )


def file_fields(config: ServerConfig) -> dict[str, str | None]:
    """Return the digests of plug-in files for the identity of the run, by name.

    The checkpoint of a warm start is no part of it: a resumed run has its own weights.
    """
    return {
        f"plugin.{file.path.name}": file.digest
        for file in named_files(config)
        if file.flag == "--plugin"
    }


def _paths(config: ServerConfig) -> Iterator[tuple[str, Path]]:
    for module in config.plugin:
        if module.endswith(".py"):
            yield "--plugin", Path(module)
    checkpoint: Path | None = getattr(config.algo, "policy_checkpoint_path", None)
    if checkpoint is not None:
        yield "--algo.policy-checkpoint-path", checkpoint / MANIFEST
