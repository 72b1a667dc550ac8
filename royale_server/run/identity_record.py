"""``identity.json``: what a run is, which environments it has seen, and how it has changed since.

Replaced as a whole and durably, by the process that holds the run's lock. What it says about the
past is never removed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from checkpoints import sync_directory
from royale_client.wire.errors import ConfigError
from royale_server.run.identity import Difference, Fields

SCHEMA = 1

MAX_ENVIRONMENTS = 256
"""Environments that a run remembers. Clients bring them, so that there must be an end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change that somebody allowed."""

    attempt: int
    mark: str
    """Metric key of every row since."""
    differences: tuple[Mapping[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityRecord:
    """What the file holds."""

    fields: Fields
    """See ``identity.build``; those of the newest attempt that had begun."""
    environments: tuple[tuple[str, str], ...] = ()
    """Id and digest of the environments that took part, in the order of their coming; at most
    ``MAX_ENVIRONMENTS``."""
    changes: tuple[Change, ...] = field(default=())
    """Oldest first."""

    @property
    def marks(self) -> dict[str, float]:
        """What every row must carry from now on."""
        return {change.mark: 1.0 for change in self.changes}

    @property
    def is_full(self) -> bool:
        """Whether no further environment is remembered."""
        return len(self.environments) >= MAX_ENVIRONMENTS

    def with_change(
        self, attempt: int, mark: str, differences: Sequence[Difference]
    ) -> IdentityRecord:
        """The same with one more change."""
        told = tuple(difference.to_data() for difference in differences)
        change = Change(attempt=attempt, mark=mark, differences=told)
        return replace(self, changes=(*self.changes, change))

    def with_environment(self, env_id: str, digest: str) -> IdentityRecord:
        """The same with one more environment, if it is a new one and there is room."""
        if (env_id, digest) in self.environments or self.is_full:
            return self
        return replace(self, environments=(*self.environments, (env_id, digest)))

    def to_document(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "schema": SCHEMA,
            "fields": dict(self.fields),
            "environments": [
                {"id": env_id, "digest": digest} for env_id, digest in self.environments
            ],
            "changes": [
                {
                    "attempt": change.attempt,
                    "mark": change.mark,
                    "differences": [dict(difference) for difference in change.differences],
                }
                for change in self.changes
            ],
        }


def read_identity(path: Path) -> IdentityRecord | None:
    """Read the file; ``None`` if there is none, as in a run of an earlier version.

    Raises:
        ConfigError: If it cannot be understood.
    """
    try:
        document = json.loads(path.read_bytes())
        if document["schema"] != SCHEMA:
            raise ConfigError(
                f"{path}: has schema {document['schema']!r}, this program reads {SCHEMA}; use the "
                "version of Royale that wrote it"
            )
        return IdentityRecord(
            fields=dict(document["fields"]),
            environments=tuple((env["id"], env["digest"]) for env in document["environments"]),
            changes=tuple(
                Change(
                    attempt=change["attempt"],
                    mark=change["mark"],
                    differences=tuple(change["differences"]),
                )
                for change in document["changes"]
            ),
        )
    except FileNotFoundError:
        return None
    except ConfigError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path}: cannot be understood ({type(error).__name__}: {error}); without it nobody "
            "can tell whether this is still the same run. Restore it, or remove it to go on "
            "without that check"
        ) from error


def write_identity(path: Path, record: IdentityRecord) -> None:
    """Replace the file, durably.

    Raises:
        OSError: If the disk refuses; the old file is untouched.
    """
    fresh = path.with_name(f".{path.name}.tmp")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(json.dumps(record.to_document(), indent=2, allow_nan=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_directory(path.parent)
