"""Clients that broke the protocol again and again wait before they may try once more.

Counted by place and client name, so that clients behind one address do not suffer from each other;
a session that works is never looked at. Pure counting: time is an argument.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from royale_client.wire.errors import ProtocolError

COUNTED = frozenset({"malformed", "unexpected", "contract", "limit", "version", "spaces"})
"""Faults that the client is to blame for; being late, or too many, is no offence."""
FAULTS = 5
"""So many within `WINDOW_S` begin a quarantine."""
WINDOW_S = 60.0
FIRST_S = 10.0
"""Length of the first quarantine; each further one is twice as long."""
LONGEST_S = 320.0
FORGOTTEN_S = 3600.0
"""After so long without a fault, the next quarantine is a first one again."""
MOST_CLIENTS = 4096
"""Clients that are told apart; the one that was silent for longest makes room for the next."""


class QuarantinedError(ProtocolError):
    """The client broke the protocol too often, and has to wait."""

    code = "quarantine"


@dataclass(slots=True)
class _Account:
    faults: deque[float] = field(default_factory=lambda: deque(maxlen=FAULTS))
    """When the last ones were."""
    ends_at: float = float("-inf")
    """When the last quarantine ends."""
    length_s: float = 0.0
    """Length of the last quarantine."""


class Quarantine:
    """Remembers who broke the protocol, by place and client name."""

    def __init__(self) -> None:
        self._accounts: OrderedDict[tuple[str, str], _Account] = OrderedDict()

    def fault(self, place: str, name: str, code: str, now: float) -> None:
        """Count a fault.

        Args:
            place: Where the client is, without its port.
            name: What it calls itself; empty if it never said.
            code: Code of the fault.
            now: Monotonic seconds.
        """
        if code not in COUNTED:
            return
        account = self._accounts.setdefault((place, name), _Account())
        self._accounts.move_to_end((place, name))
        if len(self._accounts) > MOST_CLIENTS:
            self._accounts.popitem(last=False)
        last = account.faults[-1] if account.faults else now
        if now - last > FORGOTTEN_S:
            account.length_s = 0.0
        account.faults.append(now)
        if len(account.faults) == FAULTS and now - account.faults[0] <= WINDOW_S:
            account.length_s = min(LONGEST_S, 2 * account.length_s or FIRST_S)
            account.ends_at = now + account.length_s
            account.faults.clear()
            account.faults.append(now)

    def check(self, place: str, name: str, now: float) -> None:
        """Refuse a client that is in quarantine.

        Raises:
            QuarantinedError: It is; says for how long.
        """
        account = self._accounts.get((place, name))
        if account is None or now >= account.ends_at:
            return
        raise QuarantinedError(
            f"client {name!r} at {place} has broken the protocol {FAULTS} times within "
            f"{WINDOW_S:g} s",
            where="hello",
            expected=f"{account.ends_at - now:.0f} s of silence from it",
            remedy="see the faults before this one; clients of other names are served meanwhile",
        )
