"""A bundle: what was known when something went wrong, in one folder that can be passed on.

Written when an alarm halts the run or asks for it, and when a batch breaks an invariant.

::

    bundles/<iteration>/
        halt.json         the alarms, what each read in the last rows, or the invariant that a
                          batch broke; checkpoint, resume command
        rows.jsonl        the last metrics rows
        alarms.jsonl      the last records of alarms
        episodes.jsonl    the last episodes
        episode.json      one episode to look at, every action of it
        ratios.json       frames whose probability ratio was furthest from 1, if there are any
        config.json, identity.json, run.json    as in the run
        summary.json      what is in it, and what could not be written

Runs on the writer's thread. Writing one never raises: a part that fails is named in the summary,
and the others are written.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from royale_server.alarms.engine import NONFINITE_KEY, Change
from royale_server.alarms.words import rule_text
from royale_server.run.layout import RunLayout
from royale_server.run.records import last_records, plain_record, to_line

if TYPE_CHECKING:
    from royale_server.model.invariants import BrokenBatchError
    from royale_server.recorder import Ended, Recording

logger = logging.getLogger(__name__)

ROWS = 50
RECORDS = 200
EPISODES = 20
LAST_VALUES = 5
BESIDE = 8
"""Episodes that ended in the same request and are kept beside the one to look at."""

HALT, ROWS_FILE, ALARMS_FILE = "halt.json", "rows.jsonl", "alarms.jsonl"
EPISODES_FILE, EPISODE, RATIOS = "episodes.jsonl", "episode.json", "ratios.json"
SUMMARY = "summary.json"
COPIED = ("config.json", "identity.json", "run.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """What a bundle is made of, besides the files of the run."""

    layout: RunLayout
    seed: int
    resume_command: str | None
    """None if there is no checkpoint to resume from."""
    iteration: int
    changes: tuple[Change, ...]
    """The alarms that it is about."""
    refusal: BrokenBatchError | None
    """Why a batch was not learnt from, if it is about that."""
    checkpoint: Path | None
    recording: Recording
    worst_ratios: tuple[Mapping[str, Any], ...]


def write_bundle(incident: Incident) -> Path | None:
    """Write a bundle, or as much of it as the disk takes.

    Returns:
        Its folder; None if not even that could be made, which is logged.
    """
    try:
        directory = _fresh_folder(incident.layout, incident.iteration)
    except OSError as error:
        logger.error("no bundle: %s: %s", incident.layout.bundles, error.strerror or error)
        return None
    layout = incident.layout
    rows = last_records(layout.metrics, ROWS)
    parts: dict[str, Callable[[Path], object]] = {
        HALT: lambda path: _write_json(path, _halt(incident, rows)),
        ROWS_FILE: lambda path: _write_lines(path, rows),
        ALARMS_FILE: lambda path: _write_lines(path, last_records(layout.alarms, RECORDS)),
        EPISODES_FILE: lambda path: _write_lines(path, last_records(layout.episodes, EPISODES)),
        EPISODE: lambda path: _write_json(path, _episode(incident)),
        RATIOS: lambda path: _write_json(path, list(incident.worst_ratios)),
        **{name: partial(shutil.copyfile, layout.directory / name) for name in COPIED},
    }
    notes = [note for name, write in parts.items() if (note := _noted(directory / name, write))]
    summary = {
        "iteration": incident.iteration,
        "alarms": [change.alarm.name for change in incident.changes],
        "checkpoint": None if incident.checkpoint is None else str(incident.checkpoint),
        "rows": len(rows),
        "notes": notes,
    }
    failed = _noted(directory / SUMMARY, lambda path: _write_json(path, summary))
    for note in (*notes, failed):
        if note:
            logger.warning("bundle %s: %s", directory, note)
    return directory


def _fresh_folder(layout: RunLayout, iteration: int) -> Path:
    """Make a folder for this iteration; one there was before is left alone."""
    name = f"{iteration:06d}"
    number = 1
    while True:
        directory = layout.bundles / (name if number == 1 else f"{name}-{number}")
        try:
            directory.mkdir(parents=True)
        except FileExistsError:
            number += 1
        else:
            return directory


def _noted(path: Path, write: Callable[[Path], object]) -> str | None:
    """Write one part; return why it could not be."""
    try:
        write(path)
    except Exception as error:  # a bundle is written when something is wrong already
        logger.debug("no %s", path, exc_info=True)
        return f"{path.name}: {type(error).__name__}: {error}"
    return None


def _halt(incident: Incident, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "iteration": incident.iteration,
        "alarms": [
            {
                **change.record(),
                "rule": rule_text(change.alarm, change.limits, names=False),
                "remedy": change.alarm.remedy,
                "last_values": {key: last_values(rows, key) for key in change.alarm.keys},
            }
            for change in incident.changes
        ],
        "refused_batch": _refused(incident.refusal),
        "checkpoint": None if incident.checkpoint is None else str(incident.checkpoint),
        "resume": incident.resume_command,
    }


def _refused(refusal: BrokenBatchError | None) -> dict[str, Any] | None:
    return None if refusal is None else {"invariant": refusal.invariant, "message": str(refusal)}


def last_values(rows: Sequence[Mapping[str, Any]], key: str) -> list[Any]:
    """Return the last values of a key, oldest first; those that are not finite by their names."""
    found = [row.get(NONFINITE_KEY, {}).get(key, row[key]) for row in rows if key in row]
    return found[-LAST_VALUES:]


def _episode(incident: Incident) -> dict[str, Any]:
    recording = incident.recording
    ended = offending(recording, incident.changes)
    if ended is None:
        raise LookupError("no episode has ended in this start of the server")
    client = ended.row["client"]
    beside = [
        other
        for other in recording.ended
        if other.at == ended.at and other.row["client"] == client and other is not ended
    ]
    beside.sort(key=lambda other: abs(other.slot - ended.slot))
    return {
        "seed": incident.seed,
        "client": client,
        **_recorded(recording, ended),
        "beside": [_recorded(recording, other) for other in beside[:BESIDE]],
    }


def _recorded(recording: Recording, ended: Ended) -> dict[str, Any]:
    """Return an episode with its actions; without where its client played it, or they are gone."""
    episode = recording.episode(ended)
    facts = {"slot": ended.row["slot"], "record": dict(ended.row)}
    if episode is None:
        return facts
    return {**facts, "ordinal": episode.ordinal, "actions": list(episode.actions)}


def offending(recording: Recording, changes: Iterable[Change]) -> Ended | None:
    """Return the episode to look at: the worst by what the alarms read, else the last whole one.

    Args:
        recording: Episodes, and actions.
        changes: The alarms.
    """
    names = [key.partition("/")[2] for change in changes for key in change.alarm.keys]
    keys = [f"metrics/{name}" for name in names]
    scored = [(_score(ended.row, keys), ended) for ended in recording.ended]
    worst = max((score for score, _ in scored), default=0.0)
    if worst > 0:
        return next(ended for score, ended in reversed(scored) if score == worst)
    whole = (ended for ended in reversed(recording.ended) if recording.episode(ended) is not None)
    return next(whole, recording.ended[-1] if recording.ended else None)


def _score(record: Mapping[str, Any], keys: Iterable[str]) -> float:
    return max((_number(record[key]) for key in keys if key in record), default=0.0)


def _number(value: object) -> float:
    """Turn a metric of an episode into one number: a ratio, a mean, or the largest count."""
    match value:
        case int() | float():
            return float(value)
        case [int() | float() as over, int() | float() as under] if under:
            return over / under
    return 0.0


def _write_json(path: Path, document: object) -> None:
    plain = plain_record({"": document})
    indent = None if path.name == EPISODE else 1  # actions are many small lists
    path.write_text(json.dumps(plain[""], indent=indent) + "\n", "utf-8")


def _write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    path.write_bytes(b"".join(to_line(record) for record in records))
