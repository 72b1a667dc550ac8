"""What writing and reading one message costs, against the least: joining and viewing bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from royale_client.wire.limits import Limits
from royale_client.wire.messages import decode_message, encode_message
from royale_server.bench.work.sizes import LeafData, make_step
from royale_server.bench.work.timing import microseconds_a_call


def measure(*, rows: int, leaves: Sequence[LeafData], seconds: float) -> dict[str, float]:
    """Return microseconds per step message.

    Args:
        rows: Rows of the message.
        leaves: Leaves of an observation.
        seconds: Length of the measurement.
    """
    step, limits = make_step(rows, leaves), Limits()
    assert step.rewards is not None
    assert step.terminated is not None
    assert step.truncated is not None
    arrays = [*step.observations, step.rewards, step.terminated, step.truncated]
    encoded = encode_message(step)
    targets = [np.empty_like(array) for array in arrays]

    def copy() -> None:
        for target, array in zip(targets, arrays, strict=True):
            np.copyto(target, array)

    def join_and_view() -> None:
        data = b"".join([array.data for array in arrays])
        offset = 0
        for array in arrays:
            np.frombuffer(data, array.dtype, array.size, offset).reshape(array.shape)
            offset += array.nbytes

    part = seconds / 4
    return {
        "encode_us": microseconds_a_call(lambda: encode_message(step), part),
        "decode_us": microseconds_a_call(lambda: decode_message(encoded, limits), part),
        "join_and_view_us": microseconds_a_call(join_and_view, part),
        "memory_copy_us": microseconds_a_call(copy, part),
        "message_bytes": len(encoded),
    }
