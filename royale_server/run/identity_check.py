"""Collects what this start of the server is, and compares it with what the run was.

Reads the run's directory, git and the installed versions; writes nothing. Whatever is refused here
leaves the disk as it was.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from royale_server.config import ServerConfig
from royale_server.preflight.named_files import file_fields
from royale_server.run.identity import (
    Difference,
    accepted_marks,
    build,
    changed_settings,
    differences,
)
from royale_server.run.identity_record import IdentityRecord, read_identity
from royale_server.run.layout import RunLayout
from royale_server.run.source import Source, code_roots, read_sources
from royale_server.run.versions import decisive_versions

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedIdentity:
    """The identity of an attempt that may begin."""

    record: IdentityRecord
    """What ``identity.json`` says once the attempt has begun."""
    is_new: bool
    """Whether that differs from what it says now."""
    accepted: Mapping[str, Sequence[Difference]]
    """Mark of later rows -> the differences that were allowed at this start."""
    changed: Sequence[Difference] = ()
    """Settings outside the identity that are no longer those of the attempt before."""
    sources: Sequence[Source] = ()
    has_predecessor: bool = True
    """False for a resumed run that has no identity on disk: nothing could be compared."""

    @property
    def source_diff(self) -> bytes:
        """Uncommitted changes of the code, for people."""
        return b"".join(source.diff for source in self.sources)


def fresh_identity(config: ServerConfig, device_kind: str) -> CheckedIdentity:
    """Describe a run that begins."""
    sources = _sources(config)
    record = IdentityRecord(fields=_fields(config, device_kind, sources))
    return CheckedIdentity(record=record, is_new=True, accepted={}, sources=sources)


def resumed_identity(
    config: ServerConfig, device_kind: str, layout: RunLayout, attempt: int
) -> CheckedIdentity:
    """Compare this start with the run that it resumes.

    Args:
        config: Settings of the server.
        device_kind: Where the policy lives: ``cpu`` or ``cuda``.
        layout: The run.
        attempt: Number of this attempt.

    Raises:
        IdentityDriftError: If the run has changed and nothing allows it; names every difference.
        ConfigError: If the run's identity cannot be read.
    """
    saved, sources = read_identity(layout.identity), _sources(config)
    fields = _fields(config, device_kind, sources)
    found = [] if saved is None else differences(saved.fields, fields)
    accepted = accepted_marks(
        layout.name,
        found,
        allow_drift=config.allow_identity_drift,
        allow_dirty=config.allow_dirty,
    )
    record = IdentityRecord(fields=fields) if saved is None else saved
    for mark, some in accepted.items():
        record = record.with_change(attempt, mark, some)
    if accepted:
        record = replace(record, fields=fields)
    return CheckedIdentity(
        record=record,
        is_new=record != saved,
        accepted=accepted,
        changed=_changed(layout.config, config),
        sources=sources,
        has_predecessor=saved is not None,
    )


def _fields(config: ServerConfig, device_kind: str, sources: Sequence[Source]) -> dict[str, Any]:
    versions = decisive_versions()
    fields = build(
        config,
        device_kind=device_kind,
        versions=versions,
        sources=sources,
        files=file_fields(config),
    )
    plain: dict[str, Any] = json.loads(json.dumps(fields))  # as it will be read back
    return plain


def _sources(config: ServerConfig) -> list[Source]:
    providers = [type(settings).__module__ for settings in (config.policy, config.algo)]
    return read_sources(code_roots(config.plugin, providers))


def _changed(path: Path, config: ServerConfig) -> list[Difference]:
    try:
        saved = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        logger.debug("settings cannot be compared: %s: %s", path, error)
        return []
    return changed_settings(saved, config) if isinstance(saved, dict) else []
