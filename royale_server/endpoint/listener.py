"""What the run hears from its clients: the calls the hub and its parts make to it."""

from __future__ import annotations

from typing import Any, Protocol

from royale_client.wire.messages import Hello
from royale_server.endpoint.connection import Peer
from royale_server.endpoint.continuity import RestListener
from royale_server.endpoint.probing import ProbeReport
from royale_server.evaluation.desk import Round
from royale_server.evaluation.episodes import EpisodeRound
from royale_server.model.engine import Inferred
from royale_server.scheduler import Group, Learn


class Listener(RestListener, Protocol):
    """What the run does when the hub has something for it."""

    def client_joined(self, peer: Peer, hello: Hello) -> None:
        """A session was welcomed."""

    def client_left(self, peer: Peer, why: str) -> None:
        """A welcomed session is gone."""

    def probed(self, report: ProbeReport) -> None:
        """An environment has answered; answer with `Hub.passed` or `Hub.refuse_environment`."""

    def episodes_ended(
        self, rows: list[dict[str, Any]], *, request: int, first_slot: int, evaluation: bool
    ) -> None:
        """Episodes ended; rows for the record.

        Args:
            rows: One an episode; its ``slot`` counts from the client's first.
            request: Number of the request that told of it.
            first_slot: The client's first slot within the run.
            evaluation: Whether they are not for training.
        """

    def evaluated(self, round_: Round | EpisodeRound, *, is_last: bool) -> None:
        """A round of evaluation is complete, and whether no other follows."""

    def inferred(self, result: Inferred) -> None:
        """A batch was answered."""

    def learn_due(self, command: Learn) -> None:
        """The scheduler wants a learn step; answer with `Hub.learned`."""

    def queue_waiting(self, groups: list[Group], since: float) -> None:
        """Nothing could be inferred for a while: these groups owe a request."""

    def must_stop(self, message: str) -> None:
        """The run cannot go on by its own rules."""

    def failed(self, error: BaseException) -> None:
        """The model thread raised: fatal."""
