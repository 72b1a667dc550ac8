"""How this package compiles its kernels: two decorators, and a cache that notices changed sources.

Numba's own cache looks at the file of the compiled function only. A kernel also holds the tables
and the helpers of other modules, frozen in, so its cache lies in a folder named by the sources of
the whole package.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])

KEPT_CACHES = 3
"""Folders of machine code that are kept beside that of these sources."""
UNUSED_S = 24 * 3600.0
"""Seconds for which nobody may have used a folder that is removed: who compiles writes into it."""
_PREFIX = "arena-"

_CONFIG: Any = numba.config


@cache
def source_digest() -> str:
    """Return 16 hexadecimal characters that change with any module of this package."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def compiled(function: F) -> F:
    """Compile a function at its first call, without the GIL, and keep the machine code on disk.

    Divisions follow numpy (no check for zero): kernels divide by constants and by distances > 0.
    """
    return _decorated(function, forceinline=False)


def inlined(function: F) -> F:
    """Compile a part of a kernel into its callers: it is called at few places and very often."""
    return _decorated(function, forceinline=True)


def is_compiled() -> bool:
    """Tell whether machine code of these sources is on disk, as far as it was needed before."""
    return any(_cache_folder(_CONFIG.CACHE_DIR).rglob("*.nbi"))


def tend_caches(now_s: float) -> None:
    """Mark the machine code of these sources as used, and remove what nobody has used for long.

    Every change of a module makes a further folder. The newest few stay however old they are, so
    that going back and forth between two versions compiles nothing anew.

    Args:
        now_s: Seconds since the epoch, as files are dated.
    """
    own = _cache_folder(_CONFIG.CACHE_DIR)
    with contextlib.suppress(OSError):  # read-only, or not there yet
        os.utime(own, (now_s, now_s))
    dated = []
    for folder in own.parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another process was quicker
            dated.append((folder.stat().st_mtime, folder))
    others = sorted((entry for entry in dated if entry[1] != own), reverse=True)
    for used_s, folder in others[KEPT_CACHES:]:
        if now_s - used_s > UNUSED_S:
            shutil.rmtree(folder, ignore_errors=True)


def _cache_folder(asked_for: str) -> Path:
    """Return where machine code of these very sources lies."""
    return _cache_root(asked_for) / f"{_PREFIX}{source_digest()}"


def _cache_root(asked_for: str) -> Path:
    """Return the folder of NUMBA_CACHE_DIR, else one beside this module, else one of the user's."""
    if asked_for:
        return Path(asked_for)
    package = Path(__file__).parent
    if os.access(package, os.W_OK):
        return package / "__pycache__"
    return Path.home() / ".cache" / "royale"


def _decorated(function: F, *, forceinline: bool) -> F:
    folder = _CONFIG.CACHE_DIR
    # Numba asks for the folder once, while it decorates.
    _CONFIG.CACHE_DIR = str(_cache_folder(folder))
    try:
        decorate: Any = numba.njit(
            cache=True, nogil=True, error_model="numpy", forceinline=forceinline
        )
        dispatcher: F = decorate(function)
    finally:
        _CONFIG.CACHE_DIR = folder
    return dispatcher
