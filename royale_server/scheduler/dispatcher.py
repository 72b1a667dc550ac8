"""Which of the queued requests form the next batch. Chooses; changes nothing but its round.

Every way of choosing returns groups, or nothing and (in `wake_at`) when to ask again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from royale_server.scheduler.config import Dispatch, SchedulerConfig
from royale_server.scheduler.quorum import Quorum
from royale_server.scheduler.roster import Group, Member

MINI_BATCH_RECHECK_S = 0.02
"""How often the slots of clients on time are counted again while a mini-batch is short of them."""


class Dispatcher:
    """Gathers queued groups into batches by the configured dispatch."""

    def __init__(self, config: SchedulerConfig, quorum: Quorum[Group]) -> None:
        self._config = config
        self._quorum = quorum
        self._awaited: dict[Member, float] = {}  # with the time of the last answer
        self._round = 0
        self._started = False
        self._members_ever = 0
        self._mini_wanted = 1
        self._mini_recheck_at = -math.inf
        self._clamp_said: int | None = None
        self.notice: str | None = None
        """Something worth an event, taken (and cleared) by the scheduler."""
        self.wake_at: float | None = None

    @property
    def started(self) -> bool:
        """Whether the first round of this attempt was allowed."""
        return self._started

    @property
    def is_deterministic(self) -> bool:
        """Whether every client is waited for, however long it takes."""
        return self._config.deterministic

    @property
    def is_ordered(self) -> bool:
        """Whether rounds follow a fixed order that no timing may change.

        So it is in deterministic mode, and while there has only ever been one train session.
        """
        return self._config.deterministic or self._members_ever == 1

    @property
    def awaited(self) -> Iterable[Member]:
        """Quorum sessions of which the next round still wants a request."""
        return self._awaited

    @property
    def order(self) -> tuple[int, int]:
        """Number of the next round of a fixed order, and how many train sessions ever joined."""
        return self._round, self._members_ever

    @order.setter
    def order(self, order: tuple[int, int]) -> None:
        self._round, self._members_ever = order

    def member_joined(self) -> None:
        """Count a train session in: the order of rounds depends on how many there ever were."""
        self._members_ever += 1

    def refresh(self, member: Member) -> None:
        """Re-read whether a round waits for this session; call it after any change."""
        since = self._awaited_since(member)
        if since is None:
            self._awaited.pop(member, None)
        else:
            self._awaited[member] = since

    def _awaited_since(self, member: Member) -> float | None:
        """Since when at the latest a group on time owes a request while none has one waiting."""
        if not member.is_connected:
            return None
        latest: float | None = None
        for group in member.groups:
            if group.waiting is not None:
                return None
            since = group.owes_since
            if since is not None and group in self._quorum.on_time:
                latest = since if latest is None else max(latest, since)
        return None if member.ended else latest

    def asked(self, group: Group) -> None:
        """A group's request is here: no round waits for its session. Cheaper than `refresh`."""
        self._awaited.pop(group.member, None)

    def dispatched(self, groups: Sequence[Group]) -> None:
        """Requests of these groups are being inferred. Cheaper than `refresh`."""
        for group in groups:
            if len(group.member.groups) > 1:  # the other one may be owed
                self.refresh(group.member)

    def answered(self, groups: Sequence[Group], now: float) -> None:
        """These groups owe a request, unless they are gone. Cheaper than `refresh`."""
        on_time = self._quorum.on_time
        for group in groups:
            if len(group.member.groups) > 1:
                self.refresh(group.member)
            elif group in on_time and group.member.is_connected:
                self._awaited[group.member] = now

    def waits_for(self, group: Group) -> bool:
        """Whether the group is in the quorum."""
        return group in self._quorum.on_time

    def is_late(self, group: Group, now: float) -> bool:
        """Whether the group's running turn is longer than its patience."""
        return group.owes_since is not None and now > self.late_at(group)

    def late_at(self, group: Group) -> float:
        """When the group's running turn becomes late; one that is cut off is late at once."""
        assert group.owes_since is not None
        if not group.member.is_connected:
            return -math.inf
        return group.owes_since + self._quorum.patience_s(group)

    def choose(
        self, members: Sequence[Member], queued: Collection[Group], num_queued: int, now: float
    ) -> list[Group] | None:
        """Choose the next batch.

        Args:
            members: Train sessions taking part, in order of joining.
            queued: Groups with an asking request, oldest first; not empty.
            num_queued: Their slots, asking or not.
            now: Seconds, any monotonic clock.

        Returns:
            Groups in batch order, or None: wait for a further request or `wake_at`.
        """
        self.wake_at = None
        if not (self._started or self._may_start(members)):
            return None
        if self.is_ordered:
            return self._alternate(members)
        if self._config.mini_infer_batch_size is not None:
            return self._mini_batch(members, queued, num_queued, now)
        if self._config.dispatch is Dispatch.DYNAMIC:
            return self._dynamic(queued, num_queued, now)
        return self._barrier(queued, now)

    def _may_start(self, members: Sequence[Member]) -> bool:
        ready = sum(member.entered and member.is_present for member in members)
        self._started = ready >= self._config.min_clients
        return self._started

    def _alternate(self, members: Sequence[Member]) -> list[Group] | None:
        """Exactly one group of each session, in turn: the order never depends on timing."""
        if self._config.deterministic and len(members) < self._config.min_clients:
            return None
        batch = []
        for member in members:
            group = member.groups[self._round % len(member.groups)]
            if group.waiting is None or not member.is_present:
                return None
            batch.append(group)
        self._round += 1
        return batch

    def _mini_batch(
        self, members: Sequence[Member], queued: Collection[Group], num_queued: int, now: float
    ) -> list[Group] | None:
        wanted = self._config.mini_infer_batch_size
        assert wanted is not None
        if num_queued >= wanted:
            return list(queued)
        if num_queued < self._mini_wanted and now < self._mini_recheck_at:
            self.wake_at = self._mini_recheck_at
            return None
        self._mini_wanted = self._clamped(wanted, members, now)
        self._mini_recheck_at = now + MINI_BATCH_RECHECK_S
        if num_queued >= self._mini_wanted:
            return list(queued)
        self.wake_at = self._mini_recheck_at
        return None

    def _clamped(self, wanted: int, members: Sequence[Member], now: float) -> int:
        """Slots that can be queued without waiting for anybody late, at most ``wanted``."""
        reachable = sum(
            group.size
            for member in members
            for group in member.groups
            if member.is_present
            and group in self._quorum.on_time
            and (group.waiting is not None or not self.is_late(group, now))
        )
        clamped = max(1, min(wanted, reachable))
        self._say_clamp(wanted, clamped)
        return clamped

    def _say_clamp(self, wanted: int, clamped: int) -> None:
        if clamped != self._clamp_said and clamped < wanted:
            self.notice = (
                f"mini-infer-batch-size {wanted} is more than the {clamped} slots of clients on "
                f"time: using {clamped} (connect more environments or lower it)"
            )
        self._clamp_said = clamped

    def _dynamic(
        self, queued: Collection[Group], num_queued: int, now: float
    ) -> list[Group] | None:
        limit = self._config.max_infer_batch_size
        oldest = next(iter(queued)).waiting
        assert oldest is not None
        due = oldest.received_at + self._config.max_infer_wait_s
        if now < due and (limit is None or num_queued < limit):
            self.wake_at = due
            return None
        batch: list[Group] = []
        size = 0
        for group in queued:
            if limit is not None and batch and size + group.size > limit:
                break
            batch.append(group)
            size += group.size
        return batch

    def _barrier(self, queued: Collection[Group], now: float) -> list[Group] | None:
        for member, since in self._awaited.items():
            deadline = since + self._quorum.floor_s  # nobody's patience ends before
            if now > deadline:
                deadline = self._deadline(member)
            if now <= deadline:
                self.wake_at = deadline
                return None
        batch: dict[Member, Group] = {}
        for group in queued:
            batch.setdefault(group.member, group)
        return list(batch.values())

    def _deadline(self, member: Member) -> float:
        """When the last of the session's turns becomes late."""
        on_time = self._quorum.on_time
        owing = [g for g in member.groups if g.owes_since is not None and g in on_time]
        return max(self.late_at(group) for group in owing)
