"""Finds pickles in files: whole ones, in archives, and in the midst of other bytes."""

from __future__ import annotations

import io
import itertools
import pickletools
import re
import zipfile
from pathlib import Path

START = re.compile(rb"\x80[\x02-\x05]")
"""What a pickle of protocol 2 or later begins with; the older ones have no such sign."""

MAKES_THINGS = frozenset(
    ("GLOBAL", "STACK_GLOBAL", "REDUCE", "INST", "OBJ", "NEWOBJ", "BUILD", "FRAME", "PUT")
)
"""At least one of these is in every pickle of anything but a bare number or text."""

LONGEST_OPCODES = 100_000
ZIP_MAGIC = b"PK\x03\x04"


def pickles_below(folder: Path) -> list[str]:
    """Names of all files below a folder that are or hold pickles, with what was found."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    found = ((path, pickle_in(path.read_bytes())) for path in files)
    return [f"{path.relative_to(folder)}: {what}" for path, what in found if what]


def pickle_in(data: bytes) -> str | None:
    """Say what of a pickle is in these bytes, or None."""
    if data.startswith(ZIP_MAGIC):
        return _pickle_in_archive(data)
    if _is_pickle(data, 0):
        return "a pickle"
    for match in START.finditer(data):
        if _is_pickle(data, match.start()):
            return f"a pickle at byte {match.start()}"
    return None


def _pickle_in_archive(data: bytes) -> str | None:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for name in archive.namelist():
                inside = pickle_in(archive.read(name))
                if inside:
                    return f"an archive whose {name} holds {inside}"
    except zipfile.BadZipFile:
        return None
    return None


def _is_pickle(data: bytes, start: int) -> bool:
    """Whether a well-formed pickle that makes something begins here."""
    stream = io.BytesIO(data)
    stream.seek(start)
    opcodes = set()
    try:
        for opcode, _, _ in itertools.islice(pickletools.genops(stream), LONGEST_OPCODES):
            opcodes.add(opcode.name)
    except Exception:  # whatever it is, it is no pickle
        return False
    return "STOP" in opcodes and bool(opcodes & MAKES_THINGS)
