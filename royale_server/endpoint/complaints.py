"""How often what strangers do is worth a line: a few times each, and rarely from then on.

Whoever can connect could otherwise fill the log. Pure counting: time is an argument.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

MOST_PLACES = 1024
"""Places that are told apart; the one that was silent for longest makes room for the next."""


@dataclass(slots=True)
class _Account:
    lines: float
    """Lines that may still be written."""
    at: float
    """When that was so."""
    swallowed: int = 0
    """Lines that were not written since the last one that was."""


class Complaints:
    """Rations lines by the place they are about.

    Args:
        burst: Lines about one place in a row.
        every_s: Seconds after which it may have one more.
        all_burst: Lines about all places in a row.
        all_every_s: Seconds after which they may have one more.
    """

    def __init__(
        self,
        *,
        burst: int = 20,
        every_s: float = 10.0,
        all_burst: int = 200,
        all_every_s: float = 1.0,
    ) -> None:
        self._burst, self._every_s = burst, every_s
        self._all_burst, self._all_every_s = all_burst, all_every_s
        self._all = _Account(float(all_burst), 0.0)
        self._places: OrderedDict[str, _Account] = OrderedDict()

    def may_say(self, place: str, now: float) -> int | None:
        """Ask for a line about a place.

        Args:
            place: Where the stranger is.
            now: Monotonic seconds.

        Returns:
            How many lines about that place were not written before this one; None if this one is
            not to be written either.
        """
        account = self._places.get(place)
        if account is None:
            account = self._places[place] = _Account(float(self._burst), now)
            if len(self._places) > MOST_PLACES:
                self._places.popitem(last=False)
        self._places.move_to_end(place)
        _refill(account, self._burst, self._every_s, now)
        _refill(self._all, self._all_burst, self._all_every_s, now)
        if account.lines < 1 or self._all.lines < 1:
            account.swallowed += 1
            return None
        account.lines -= 1
        self._all.lines -= 1
        swallowed, account.swallowed = account.swallowed, 0
        return swallowed


def _refill(account: _Account, burst: int, every_s: float, now: float) -> None:
    account.lines = min(burst, account.lines + max(0.0, now - account.at) / every_s)
    account.at = now


def host_of(address: str) -> str:
    """The machine in an address as connections tell it; all of this machine's processes are one."""
    host, colon, _ = address.rpartition(":")
    return host if colon else "this machine"
