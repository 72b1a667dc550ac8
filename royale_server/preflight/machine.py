"""Asks this machine: memory, disk, ports, limits, who uses a GPU. Reads only, changes nothing.

What a system does not tell is None, never a guess.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import socket
import subprocess
from pathlib import Path

from royale_server.preflight.facts import DeviceProcess

_ASK_DRIVER = ("nvidia-smi", "--query-compute-apps=gpu_uuid,pid,process_name,used_memory")
_ASK_INDEX = ("nvidia-smi", "--query-gpu=index,uuid")
_CSV = "--format=csv,noheader,nounits"
_DRIVER_TIMEOUT_S = 5.0


def process_bytes() -> int | None:
    """Resident memory of this process."""
    return _kib("/proc/self/status", "VmRSS:")


def peak_bytes() -> int | None:
    """Most resident memory of this process so far."""
    return _kib("/proc/self/status", "VmHWM:")


def available_bytes() -> int | None:
    """Memory that is free on this machine now."""
    return _kib("/proc/meminfo", "MemAvailable:")


def free_disk_bytes(folder: Path) -> int | None:
    """Free space where a folder is or would be."""
    there = next((path for path in (folder, *folder.absolute().parents) if path.is_dir()), None)
    if there is None:
        return None
    try:
        return shutil.disk_usage(there).free
    except OSError:
        return None


def address_error(host: str, port: int) -> str | None:
    """Say why nobody could listen at an address now; None if somebody could."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        return error.strerror or str(error)
    for family, kind, protocol, _, address in dict.fromkeys(found):
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as trial:
            if os.name == "posix":
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                trial.bind(address)
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL and len(found) > 1:
                    continue  # a name with several addresses: one that is here is enough
                return error.strerror or str(error)
    return None


def open_files_limit() -> int | None:
    """How many files this process may have open."""
    try:
        import resource
    except ImportError:  # Windows has none
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if limit == resource.RLIM_INFINITY else limit


def file_digest(path: Path) -> str | None:
    """SHA-256 of a file; None if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def device_processes(index: int) -> tuple[DeviceProcess, ...] | None:
    """Who else uses a GPU by its index; None if the driver's tool cannot tell."""
    uuids = dict(_table(_ask(*_ASK_INDEX)))
    rows = _ask(*_ASK_DRIVER)
    if rows is None or str(index) not in uuids:
        return None
    found = []
    for row in rows:
        uuid, pid, *name, used = (cell.strip() for cell in row.split(","))
        if uuid == uuids[str(index)] and pid.isdecimal() and int(pid) != os.getpid():
            mib = int(used) if used.isdecimal() else 0
            found.append(DeviceProcess(pid=int(pid), name=",".join(name), used_mib=mib))
    return tuple(found)


def dashboards() -> list[tuple[int, str]] | None:
    """Processes of this machine that serve a dashboard of Royale; None if nobody can tell.

    Returns:
        Process number and command line of each.
    """
    processes = Path("/proc")
    if not processes.is_dir():
        return None
    found = []
    for folder in processes.iterdir():
        if folder.name.isdecimal():
            try:
                words = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            except OSError:
                continue  # it has ended, or is none of ours to look at
            if "dashboard" in words and any("royale" in Path(word).name for word in words):
                found.append((int(folder.name), " ".join(words).strip()))
    return found


def _table(rows: list[str] | None) -> list[tuple[str, str]]:
    pairs = [row.partition(",") for row in rows or ()]
    return [(key.strip(), value.strip()) for key, _, value in pairs]


def _ask(*command: str) -> list[str] | None:
    try:
        done = subprocess.run(
            [*command, _CSV],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_DRIVER_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return [line for line in done.stdout.splitlines() if line.strip()]


def _kib(file: str, key: str) -> int | None:
    try:
        lines = Path(file).read_text("utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key)), None)
