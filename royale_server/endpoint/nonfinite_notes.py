"""What is said about numbers that are not finite: which key, slot and step, and what follows."""

from __future__ import annotations

from collections.abc import Mapping

from royale_client.wire.messages import Hello
from royale_client.wire.spaces import leaves
from royale_server.endpoint.finiteness import culprits
from royale_server.scheduler import Group, Request

MOST_NAMED = 4
"""Numbers that are named in one complaint."""

FATES: Mapping[str, str] = {
    "reject": "its frame is discarded and the rest of its episode is not trained on",
    "halt": "the run stops",
    "pass": "it is passed on to the policy and the learner as it is (--on-nonfinite pass)",
}
"""What ``--on-nonfinite`` does with them."""


def complaint(hello: Hello, group: Group, request: Request, on_nonfinite: str) -> str:
    """Say which numbers of a request are not finite: key, slot, and step of its episode.

    Args:
        hello: Of the client.
        group: The group that sent them, before the request is entered in its books.
        request: The request; its payload is the step.
        on_nonfinite: What the server does with them.
    """
    paths = [leaf.path for leaf in leaves(hello.observation_space)]
    found = culprits(request.payload, request.asks, request.ended, paths, MOST_NAMED)
    first = group.start - group.member.groups[0].start
    named = ", ".join(
        f"{key} of slot {first + row} is {value:g} at step {group.steps.item(row)} of its episode"
        for row, key, value in found
    )
    return (
        f"{named} (request {request.number} of group {group.index}); that is a NaN, an infinity or "
        f"a number beyond 1e15; {FATES[on_nonfinite]}; check the environment's observations and "
        "rewards"
    )
