"""How much memory a process holds."""

from __future__ import annotations

from pathlib import Path

PAGE_BYTES = 4096


def resident_bytes(pid: int | str = "self") -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
