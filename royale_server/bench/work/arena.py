"""Requests as large as those of a battle for two seats: what a decision costs on the wire."""

from __future__ import annotations

from collections.abc import Sequence

from royale_client.wire.messages import encode_message
from royale_server.bench.work.sizes import LeafData, make_answer, make_step, tensor_bytes


def measure(
    *, rows: int, leaves: Sequence[LeafData], mask_size: int, seconds: float
) -> dict[str, float]:
    """Return bytes per decision of a real message, its answer included; nothing is timed.

    Args:
        rows: Seats of all battles of a client.
        leaves: Leaves of an observation.
        mask_size: Entries of a mask of legal actions.
        seconds: Not needed: the sizes are the same every time.
    """
    del seconds
    step = make_step(rows, leaves, mask_size)
    request, answer = len(encode_message(step)), len(make_answer(rows))
    return {
        "wire_bytes": request / rows,
        "tensor_bytes": tensor_bytes(step) / rows,
        "wire_and_answer_bytes": (request + answer) / rows,
    }
