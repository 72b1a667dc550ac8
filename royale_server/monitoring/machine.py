"""What the operating system says of this process. Reads no file and asks no other process."""

from __future__ import annotations

import sys

try:
    import resource
except ImportError:  # Windows has no such module
    resource = None  # type: ignore[assignment]

_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024


def rss_peak_mb() -> float | None:
    """Return the most memory that this process has held so far, in MB; None if nobody knows."""
    if resource is None:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT_BYTES / 1e6
