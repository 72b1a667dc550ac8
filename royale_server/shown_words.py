"""Which words of a command line may be written down and shown: all but what looks like a secret.

Text in, text out. The token of the server is never on a command line; flags of plug-ins may be.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_SECRET_NAME = r"(api|auth|access|private)?(token|key|secret|password|credentials?)"
_SECRET_FLAG = re.compile(rf"--(.*[._-])?{_SECRET_NAME}", re.IGNORECASE)
_SECRET_IN_URL = re.compile(
    rf"(?P<before>//)[^/@\s]+(?=@)|(?P<name>[?&]([^&=\s]*[._-])?{_SECRET_NAME}=)[^&\s]+",
    re.IGNORECASE,
)
_HIDDEN = "…"


def without_secrets(argv: Sequence[str]) -> list[str]:
    """Copy a command line, leaving out what looks like a token, key or password."""
    shown: list[str] = []
    hide_next = False
    for word in argv:
        flag, equals, _ = word.partition("=")
        is_secret = _SECRET_FLAG.fullmatch(flag) is not None
        if hide_next:
            shown.append(_HIDDEN)
        elif is_secret and equals:
            shown.append(f"{flag}={_HIDDEN}")
        else:
            shown.append(_SECRET_IN_URL.sub(_without_value, word))
        hide_next = is_secret and not equals
    return shown


def _without_value(found: re.Match[str]) -> str:
    return (found["before"] or found["name"]) + _HIDDEN
