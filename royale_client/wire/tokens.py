"""The token that a server may ask for: what it may be, and where it stands in a file.

Both sides read it by these rules, so that one file serves both. No error holds a token.
"""

from __future__ import annotations

import re

from royale_client.wire.errors import ConfigError

TOKEN_VARIABLE = "ROYALE_TOKEN"
"""Variable of the environment that holds it where no file is named."""
MAX_TOKEN_LENGTH = 4096
"""Characters. A whole opening request has 16 KiB, and a line of it half of that."""

_TOKEN = re.compile(r"[!-~]+")  # what an HTTP header can carry: visible ASCII, no spaces


def token_in(content: bytes, where: str) -> str:
    """Read the token out of a file: its first line, whatever ends it.

    Args:
        content: Of the file, in UTF-8, with or without a mark in front that says so.
        where: Names the file in errors.

    Raises:
        ConfigError: There is none, or it cannot travel in an HTTP header.
    """
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where}: cannot be read: it is not text in UTF-8") from error
    return checked_token(lines[0].strip() if lines else "", where)


def checked_token(token: str, where: str) -> str:
    """Return a token that can travel in an HTTP header.

    Args:
        token: The token.
        where: Says in errors where it comes from.

    Raises:
        ConfigError: It cannot.
    """
    if not token:
        raise ConfigError(f"{where}: holds no token; put one in, or remove it to run without")
    if not _TOKEN.fullmatch(token):
        raise ConfigError(
            f"{where}: the token has spaces or characters outside ASCII, "
            "expected visible ASCII only"
        )
    if len(token) > MAX_TOKEN_LENGTH:
        raise ConfigError(
            f"{where}: the token has {len(token)} characters, expected {MAX_TOKEN_LENGTH} at most"
        )
    return token
