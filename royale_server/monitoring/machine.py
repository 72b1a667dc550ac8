"""What the operating system says of this process. Reads no file and asks no other process."""

from __future__ import annotations

import sys


def rss_peak_mb() -> float | None:
    """Return the most memory that this process has held so far, in MB; None if nobody knows."""
    if sys.platform == "win32":
        return None
    import resource

    unit_bytes = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit_bytes / 1e6
