"""The Python cost of a turn does not depend on the number of rows."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from royale_client.wire.messages import Hello
from royale_client.wire.spaces import BoxSpec, DictSpec, DiscreteSpec, MultiDiscreteSpec
from tests.protocol.joined import Joined, ready
from tests.wire.builders import VECTOR, make_hello, rows_of

SPACE = DictSpec((("pose", VECTOR), ("card", DiscreteSpec(3)), ("plan", MultiDiscreteSpec((2, 2)))))


def calls_of(action: Callable[[], Any]) -> Counter[str]:
    """Run something and count the Python and C functions it called, by kind."""
    counts: Counter[str] = Counter()

    def count(_frame: Any, event: str, _arg: Any) -> None:
        if event in ("call", "c_call"):
            counts[event] += 1

    gc.disable()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
        gc.enable()
    return counts


def rich_content(joined: Joined, n: int) -> dict[str, Any]:
    """Half of the rows ask and a quarter of them ended."""
    asks = np.arange(n) % 2 == 0
    ended = np.arange(n) % 4 == 0
    return joined.content(
        asks=asks,
        observations=rows_of(SPACE, n // 2),
        masks=np.ones((n // 2, 7), dtype=bool),
        terminated=ended,
        final_observations=rows_of(SPACE, n // 4),
    )


def turn_costs(n: int) -> dict[str, Counter[str]]:
    """Count the calls of every part of a turn like no other, of a group of ``n`` rows."""
    hello: Hello = make_hello(
        groups=(n,), observation_space=SPACE, action_space=DiscreteSpec(7), masks=True
    )
    joined = ready(hello)
    joined.turn()
    return costs_of(joined, rich_content(joined, n), n // 2)


def familiar_turn_costs(n: int) -> dict[str, Counter[str]]:
    """Count the calls of every part of a turn that is like the ones before."""
    joined = ready(make_hello(groups=(n,)))
    for _ in range(4):
        joined.turn()
    return costs_of(joined, joined.content(), n)


def costs_of(joined: Joined, content: dict[str, Any], asking: int) -> dict[str, Counter[str]]:
    """Carry out a turn and count the calls of its parts."""
    messages: dict[str, bytes] = {}
    actions = (np.zeros(asking, dtype=np.int64),)

    def client_step() -> None:
        messages["step"] = joined.client.step(0, **content)

    def server_action() -> None:
        request = joined.server.outstanding(0)
        assert request is not None
        messages["action"] = joined.server.action(0, request, 0, actions)

    return {
        "client sends a step": calls_of(client_step),
        "server takes the step": calls_of(lambda: joined.server.receive(messages["step"])),
        "server answers": calls_of(server_action),
        "client takes the answer": calls_of(lambda: joined.client.receive(messages["action"])),
    }


@pytest.mark.parametrize("rows", [64, 256, 4096])
def test_a_familiar_turn_costs_the_same_few_calls_at_eight_rows_and_at_many(rows: int) -> None:
    familiar_turn_costs(8)
    costs = familiar_turn_costs(rows)
    assert costs == familiar_turn_costs(8)
    for part, counts in costs.items():
        assert counts["call"] < 24, (part, counts)


@pytest.mark.parametrize("turns", [1, 4])
def test_images_are_copied_once_by_the_sender_and_never_by_the_receiver(turns: int) -> None:
    camera = BoxSpec(0, 255, (84, 84, 4), "uint8")
    joined = ready(make_hello(groups=(16,), observation_space=camera))
    for _ in range(turns):
        joined.turn()
    content = joined.content()
    tracemalloc.start()
    data = joined.client.step(0, **content)
    sent = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    joined.server.receive(data)
    received = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert len(data) > 16 * 84 * 84 * 4
    assert sent < len(data) + 65_536
    assert received < 65_536


@pytest.mark.parametrize("rows", [64, 256])
def test_a_turn_costs_the_same_calls_at_eight_rows_and_at_many(rows: int) -> None:
    turn_costs(8)  # caches and lazy imports of the first use
    assert turn_costs(rows) == turn_costs(8)


def test_a_turn_of_eight_rows_costs_a_bounded_number_of_python_calls() -> None:
    # Three leaves, masks, endings and final observations: some dozens, not hundreds.
    turn_costs(8)
    for part, counts in turn_costs(8).items():
        assert counts["call"] < 100, (part, counts)
