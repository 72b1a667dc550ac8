"""What makes a run this run: everything that decides what is learned, and how two of those differ.

A plain mapping of fields, compared field by field. Which settings belong to it stands in the
metadata beside each setting. Compares only; ``source``, ``versions`` and the caller collect.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from algorithms.config import (
    MAY_CHANGE,
    OF_THE_START,
    ON_RESUME,
    SAME,
    SAME_IF_DETERMINISTIC,
)
from royale_client.wire.errors import ConfigError
from royale_server.cli_flags import Settings, is_settings
from royale_server.config import ServerConfig
from royale_server.config_document import to_document
from royale_server.run.source import UNKNOWN, Source

Fields: TypeAlias = Mapping[str, Any]
"""Name -> plain JSON value."""

DRIFT_MARK, DIRTY_MARK = "run/identity_drift", "run/dirty"
"""Metric keys of rows that a run wrote after it had changed."""

_ABSENT = object()
_HEX = re.compile(r"[0-9a-f]{16,}")
_SHOWN_DIGITS = 12
_SHOWN_ENVIRONMENTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One field in which two descriptions of a run differ."""

    field: str
    old: str
    """As shown to a person."""
    new: str

    def __str__(self) -> str:
        return f"{self.field}: {self.old} in the run, {self.new} now"

    @property
    def is_uncommitted_code(self) -> bool:
        """Whether it is about uncommitted changes, which ``--allow-dirty`` allows."""
        return self.field.startswith("source.") and self.field.endswith(".changes")

    def to_data(self) -> dict[str, str]:
        """Plain data for events and files."""
        return {"field": self.field, "old": self.old, "new": self.new}


class IdentityDriftError(ConfigError):
    """A run cannot be resumed, since it would no longer be the same.

    Args:
        run_name: Name of the run.
        differences: All of them.
    """

    def __init__(self, run_name: str, differences: Sequence[Difference]) -> None:
        self.differences = tuple(differences)
        are = "thing is" if len(differences) == 1 else "things are"
        lines = [
            f"--resume: {len(differences)} {are} not as in the run {run_name}, nothing was changed",
            *(f"  {difference}" for difference in differences),
            _remedy(differences),
        ]
        super().__init__("\n".join(lines))


def build(
    config: ServerConfig,
    *,
    device_kind: str,
    versions: Mapping[str, str],
    sources: Iterable[Source],
    files: Mapping[str, str | None] | None = None,
) -> dict[str, Any]:
    """Describe what decides what a run learns.

    Args:
        config: Settings of the server.
        device_kind: Where the policy lives: ``cpu`` or ``cuda``.
        versions: By distribution.
        sources: State of the code, as far as it is not installed.
        files: SHA-256 of the files that the settings name, by flag.

    Returns:
        Plain data, in a fixed order.
    """
    rules = resume_rules(config)
    kept = {SAME[ON_RESUME]}
    if config.deterministic:
        kept.add(SAME_IF_DETERMINISTIC[ON_RESUME])
    settings = _flat(to_document(config))
    fields = {name: value for name, value in settings.items() if rules[name] in kept}
    fields |= {f"versions.{name}": version for name, version in versions.items()}
    fields["device_kind"] = device_kind
    fields |= {f"files.{name}": digest for name, digest in (files or {}).items()}
    for source in sources:
        fields[f"source.{source.name}.commit"] = source.commit
        fields[f"source.{source.name}.changes"] = source.changes
    return fields


def resume_rules(
    config: Settings, prefix: str = "", inherited: str = MAY_CHANGE[ON_RESUME]
) -> dict[str, str]:
    """Say of every setting what a resumed run may do with it.

    Args:
        config: A settings object.
        prefix: Path of it, with a dot at its end.
        inherited: What holds for settings that say nothing.

    Returns:
        Dotted path -> one of the words that ``algorithms.config`` declares.
    """
    rules: dict[str, str] = {}
    for field in dataclasses.fields(config):
        path, value = prefix + field.name, getattr(config, field.name)
        rule = field.metadata.get(ON_RESUME, inherited)
        if is_settings(value):
            rules |= resume_rules(value, f"{path}.", rule)
        else:
            rules[path] = rule
    return rules


def differences(saved: Fields, current: Fields) -> list[Difference]:
    """Compare two descriptions. What one of them does not know is no difference."""
    found = []
    for name in dict.fromkeys([*saved, *current]):
        old, new = saved.get(name, _ABSENT), current.get(name, _ABSENT)
        if old != new and UNKNOWN not in (old, new):
            found.append(Difference(field=name, old=_shown(old), new=_shown(new)))
    return found


def changed_settings(saved: Fields, config: ServerConfig) -> list[Difference]:
    """List the settings outside the identity that differ from a recorded configuration.

    Args:
        saved: What ``to_document`` made of the earlier one.
        config: The present one.
    """
    rules = resume_rules(config)
    ignored = {OF_THE_START[ON_RESUME], SAME[ON_RESUME]}
    if config.deterministic:
        ignored.add(SAME_IF_DETERMINISTIC[ON_RESUME])
    free = {name for name, rule in rules.items() if rule not in ignored}
    old, new = (
        {name: value for name, value in _flat(document).items() if name in free}
        for document in (saved, to_document(config))
    )
    return differences(old, new)


def environment_difference(
    saved: Collection[tuple[str, str]], env_id: str, digest: str
) -> Difference | None:
    """Compare an environment with those that have taken part; ``None`` if it is one of them.

    Args:
        saved: Their ids and digests; where there is none, nothing can be compared.
        env_id: Id of the environment.
        digest: Digest of its version and settings.
    """
    if not saved or (env_id, digest) in saved:
        return None
    old = [digest for name, digest in saved if name == env_id]
    if old:
        known = _first_few(list(map(_shown, old)), " or ")
        return Difference(field=f"environment {env_id}", old=known, new=_shown(digest))
    ids = _first_few(list(dict.fromkeys(name for name, _ in saved)), ", ")
    return Difference(field="environment", old=ids, new=env_id)


def _first_few(names: Sequence[str], separator: str) -> str:
    """Join names; this goes to clients and into files, so it must stay short."""
    shown = separator.join(names[:_SHOWN_ENVIRONMENTS])
    more = len(names) - _SHOWN_ENVIRONMENTS
    return f"{shown}{separator}{more} more" if more > 0 else shown


def accepted_marks(
    run_name: str,
    found: Sequence[Difference],
    *,
    allow_drift: bool,
    allow_dirty: bool,
) -> dict[str, list[Difference]]:
    """Decide whether a run may go on although it has changed.

    Args:
        run_name: Name of the run, for the refusal.
        found: How it has changed.
        allow_drift: Whether ``--allow-identity-drift`` was given.
        allow_dirty: Whether ``--allow-dirty`` was given.

    Returns:
        Mark of later rows -> what it stands for; empty if nothing has changed.

    Raises:
        IdentityDriftError: If it may not, naming every difference that is not allowed.
    """
    dirty = [d for d in found if d.is_uncommitted_code and allow_dirty]
    drifted = [d for d in found if d not in dirty]
    if drifted and not allow_drift:
        raise IdentityDriftError(run_name, drifted)
    return {mark: some for mark, some in ((DRIFT_MARK, drifted), (DIRTY_MARK, dirty)) if some}


def _remedy(found: Sequence[Difference]) -> str:
    if all(difference.is_uncommitted_code for difference in found):
        return (
            "restore that code (source.diff in the run directory has it), or go on with "
            f"--allow-dirty: every later row is then marked {DIRTY_MARK}"
        )
    return (
        "start it as it was, or go on with --allow-identity-drift: every later row is then marked "
        f"{DRIFT_MARK}"
    )


def _flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _shown(value: object) -> str:
    if value is _ABSENT:
        return "absent"
    if isinstance(value, str):
        return (value[:_SHOWN_DIGITS] if _HEX.fullmatch(value) else value) or "empty"
    if value is None:
        return "none"
    return json.dumps(value)
