"""A plug-in that counts what a server holds when it is sent SIGUSR1; ``--plugin`` this file.

The counts go, as one line of JSON, to the file that INSPECTOR_FILE names.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import threading
from collections import Counter
from pathlib import Path
from types import FrameType

from royale_server.registry import Registry

COUNTED = ("Peer", "ServerSession", "SocketConnection", "Member", "ObservedConnection")


def register(_registry: Registry) -> None:
    """Offer nothing, and listen."""
    signal.signal(signal.SIGUSR1, write_counts)


def write_counts(_number: int, _frame: FrameType | None) -> None:
    """Count; runs on the thread of the event loop, between two callbacks."""
    gc.collect()
    kinds = Counter(type(thing).__name__ for thing in gc.get_objects())
    counts = {
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "resident_kb": int(Path("/proc/self/statm").read_text().split()[1]) * 4,
        **{name: kinds[name] for name in COUNTED},
    }
    file = Path(os.environ["INSPECTOR_FILE"])
    fresh = file.with_suffix(".tmp")
    fresh.write_text(json.dumps(counts), encoding="utf-8")
    fresh.replace(file)
