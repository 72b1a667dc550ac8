"""Starts the client under test anew for each conversation, by the command that was given for it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence

from royale_client.conformance.scenario import SetupError

URL_PLACE = "{url}"
"""Stands for the address to dial in the words of a command."""
ENDS_BY_ITSELF_S = 3.0
"""A client whose conversation is over may take so long to end."""
_TERMINATES_S = 3.0


class CommandStart:
    """Starts a process that dials; see `listener.Start`.

    Args:
        words: The command; `URL_PLACE` in a word stands for the address.
        is_loud: Whether its output is shown.
    """

    def __init__(self, words: Sequence[str], *, is_loud: bool = False) -> None:
        self._words = tuple(words)
        self._output = None if is_loud else subprocess.DEVNULL

    def __call__(self, url: str) -> Callable[[], None]:
        """Start one; the result ends it.

        Raises:
            SetupError: The command cannot be started.
        """
        words = [word.replace(URL_PLACE, url) for word in self._words]
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output
            )
        except OSError as error:
            raise SetupError(f"cannot start {words[0]}: {error}") from error
        return lambda: _end(process)


def by_hand(_url: str) -> Callable[[], None]:
    """Leave it to a person to start clients; see `listener.Start`."""
    return _nothing


def _nothing() -> None:
    """End nothing: the client belongs to somebody else."""


def _end(process: subprocess.Popen[bytes]) -> None:
    for ask, patience_s in ((None, ENDS_BY_ITSELF_S), (process.terminate, _TERMINATES_S)):
        if ask is not None:
            ask()
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            continue
        return
    process.kill()
    process.wait()
