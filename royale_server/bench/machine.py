"""Facts about the machine and the libraries that every number needs beside it."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

LIBRARIES = ("torch", "numpy", "gymnasium", "websockets", "picows", "uvloop", "msgpack")


def facts() -> dict[str, object]:
    """Return cores, processor, system, versions, and the load before anything was started."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "cores_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "load_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in LIBRARIES},
    }


def as_text(known: dict[str, object]) -> str:
    """Write the facts in two lines."""
    versions = known["versions"]
    assert isinstance(versions, dict)
    peers = known.get("peers", {})
    assert isinstance(peers, dict)
    everything = {**versions, **peers}
    libraries = ", ".join(f"{name} {version or 'absent'}" for name, version in everything.items())
    load = known["load_before"]
    load_text = "unknown" if load is None else f"{load:.2f}"
    return (
        f"{known['cores']} cores, {known['processor']}, load before {load_text}, "
        f"{known['system']}\nPython {known['python']}, {libraries}\n"
    )


def _processor() -> str:
    file = Path("/proc/cpuinfo")
    if file.exists():
        for line in file.read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
