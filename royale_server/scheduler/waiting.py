"""The requests at the server: queued, parked, or held at a rest point.

Knows which groups wait for what, oldest first, and how many slots that is. Never decides who is
served.
"""

from __future__ import annotations

from collections.abc import Sequence

from royale_server.scheduler.roster import Group, Request


class Waiting:
    """Groups whose request is not answered yet, in order of arrival."""

    def __init__(self) -> None:
        self.queued: dict[Group, None] = {}
        """Train groups with an asking request: for the next batch, or parked while closed."""
        self.num_slots = 0
        """Their slots, asking or not."""
        self.without_learner_rows: dict[Group, None] = {}
        """Those of them that are not to be trained on, and so are served while closed too."""
        self.evaluating: dict[Group, None] = {}
        """Groups of evaluation sessions."""
        self.silent: dict[Group, None] = {}
        """Groups of which no row asks, held until a rest is over."""

    @property
    def parked(self) -> list[Group]:
        """The groups that wait for collection to open."""
        return [group for group in self.queued if group not in self.without_learner_rows]

    def add(self, group: Group, request: Request) -> None:
        """A request with an asking row has come."""
        if group.trains:
            self.queued[group] = None
            self.num_slots += group.size
            if request.num_learner == 0:
                self.without_learner_rows[group] = None
        else:
            self.evaluating[group] = None

    def remove(self, group: Group) -> None:
        """A group's asking request is being inferred, or gone."""
        if group in self.queued:
            del self.queued[group]
            self.num_slots -= group.size
            if self.without_learner_rows:
                self.without_learner_rows.pop(group, None)
        else:
            self.evaluating.pop(group, None)

    def forget(self, group: Group) -> None:
        """A group is gone, with whatever it waited for."""
        self.remove(group)
        self.silent.pop(group, None)

    def remove_all(self, groups: Sequence[Group]) -> None:
        """The same of a batch, which is most often all there is."""
        if len(groups) == len(self.queued) and groups[0].trains:
            self.queued.clear()
            self.num_slots = 0
            self.without_learner_rows.clear()
        else:
            for group in groups:
                self.remove(group)

    def take_silent(self) -> list[Group]:
        """Take the groups that were held."""
        held = list(self.silent)
        self.silent.clear()
        return held
