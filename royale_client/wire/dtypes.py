"""The array types that may travel, and their codes. Object, text and structured types have none."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
"""An array of any type and shape."""

DTYPES: dict[str, np.dtype[Any]] = {
    code: np.dtype("<" + code if code != "?" else "?")
    for code in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
}
"""Wire code -> little-endian dtype."""

CODES: dict[np.dtype[Any], str] = {dtype: code for code, dtype in DTYPES.items()}
"""Little-endian dtype -> wire code."""
