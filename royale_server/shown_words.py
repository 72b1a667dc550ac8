"""Which words of a command line may be written down and shown: all but what looks like a secret.

Text in, text out. The token of the server is never on a command line; flags of plug-ins may be.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_SECRET_FLAG = re.compile(r"--(.*[._-])?(token|key|secret|password|credentials?)", re.IGNORECASE)
_SECRET_IN_URL = re.compile(r"(?<=//)[^/@\s]+(?=@)|(?<=[?&]token=)[^&\s]+")
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
            shown.append(_SECRET_IN_URL.sub(_HIDDEN, word))
        hide_next = is_secret and not equals
    return shown
