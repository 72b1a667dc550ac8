"""What the kernel says of a process: its memory and the processor time it used. Linux only."""

from __future__ import annotations

import os
from pathlib import Path

MIB = 2**20


def is_known() -> bool:
    """Whether this system tells."""
    return Path("/proc/self/smaps_rollup").exists()


def pss_mib(pid: int) -> float:
    """Memory of a process in MiB, shared pages divided among those that share them."""
    return _kib(pid, "smaps_rollup", "Pss:") / 1024


def rss_mib(pid: int) -> float:
    """Resident memory of a process in MiB."""
    return _kib(pid, "status", "VmRSS:") / 1024


def cpu_s(pid: int) -> float:
    """Processor time of a process, its threads included, in seconds."""
    text = Path(f"/proc/{pid}/stat").read_text("utf-8")
    fields = text[text.rindex(")") + 2 :].split()  # the name before may hold blanks
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _kib(pid: int, file: str, key: str) -> float:
    for line in Path(f"/proc/{pid}/{file}").read_text("utf-8").splitlines():
        if line.startswith(key):
            return float(line.split()[1])
    raise KeyError(f"/proc/{pid}/{file} has no {key}")
