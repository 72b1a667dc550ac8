"""What is worth saying about an attempt's start and identity: sentences, and events for the file.

Puts into words what ``identity_check``, the lock and the attempt have found; finds out nothing
itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from royale_server.run.directory import RunDirectory
from royale_server.run.identity import DIRTY_MARK, DRIFT_MARK, Difference
from royale_server.run.identity_check import CheckedIdentity
from royale_server.run.output import Row

_KINDS = {DRIFT_MARK: "identity_drift", DIRTY_MARK: "dirty"}
"""Mark of rows -> kind of the event."""


def warnings_of_opening(directory: RunDirectory, identity: CheckedIdentity) -> Iterator[str]:
    """Sentences that a person should see."""
    if directory.taken_over is not None:
        yield f"took the run over from {directory.taken_over}: {directory.takeover_evidence}"
    if not identity.has_predecessor:
        yield "the run has no identity.json: whether anything has changed since cannot be told"
    for found in identity.accepted.values():
        yield from (f"allowed: {difference}" for difference in found)
    for mark in identity.record.marks:
        yield f"the run is no longer what it began as: every row is marked {mark}"


def events_of_opening(directory: RunDirectory, identity: CheckedIdentity) -> Iterator[Row]:
    """How the attempt came about, for ``events.jsonl``."""
    if directory.taken_over is not None:
        yield _taken_over(directory)
    for mark, found in identity.accepted.items():
        yield drift_event(mark, found)
    if identity.changed:
        told = (f"{change.field}: {change.old} -> {change.new}" for change in identity.changed)
        yield {
            "kind": "config_changed",
            "message": "; ".join(told),
            "changes": [change.to_data() for change in identity.changed],
        }


def drift_event(mark: str, found: Sequence[Difference]) -> Row:
    """That the run goes on although it has changed."""
    return {
        "kind": _KINDS[mark],
        "message": f"went on although it was not the same run: {'; '.join(map(str, found))}",
        "differences": [difference.to_data() for difference in found],
    }


def full_event(count: int, env_id: str) -> Row:
    """That the environments of the run are no longer remembered.

    Args:
        count: How many are.
        env_id: Id of the first that is not.
    """
    return {
        "kind": "environments_full",
        "message": f"the run remembers {count} environments and no more: {env_id} and later new "
        "ones take part, and after a resume they need --allow-identity-drift",
    }


def _taken_over(directory: RunDirectory) -> Row:
    owner, evidence = directory.taken_over, directory.takeover_evidence
    assert owner is not None
    return {
        "kind": "taken_over",
        "message": f"took the run over from {owner}: {evidence}",
        "owner": {
            "pid": owner.pid,
            "host": owner.host,
            "since": owner.since,
            "boot_id": owner.boot_id,
        },
        "evidence": evidence,
    }
