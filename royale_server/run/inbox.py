"""Where a person's wishes for a run come in: the control file and the folder of requests."""

from __future__ import annotations

from collections.abc import Callable

from royale_server.run.control import ControlFile, Letter
from royale_server.run.layout import RunLayout
from royale_server.run.requests import Request, RequestFolder


class Inbox:
    """Both ways in.

    Args:
        layout: Of the run.
    """

    def __init__(self, layout: RunLayout) -> None:
        self._control = ControlFile(layout.control)
        self._requests = RequestFolder(layout.requests)

    def clear(self) -> None:
        """Forget what was meant for an earlier start."""
        self._control.clear()
        self._requests.clear()

    def look(
        self, on_letter: Callable[[Letter], None], on_request: Callable[[Request], None]
    ) -> None:
        """Take what has come in and hand it on. Blocks for as long as the disk does."""
        letter = self._control.take()
        if letter is not None:
            on_letter(letter)
        for request in self._requests.take():
            on_request(request)
