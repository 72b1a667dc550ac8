"""A hello that contradicts itself, or asks for too much, is refused with the field named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from royale_client.wire.errors import ContractError, LimitError, ProtocolError
from royale_client.wire.limits import Limits
from royale_client.wire.messages import EpisodeMetric, check_hello
from royale_client.wire.spaces import BoxSpec, DiscreteSpec, MultiDiscreteSpec
from tests.wire.builders import make_hello

LIMITS = Limits()
METRIC = EpisodeMetric("won", "1", "battles", "mean")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"groups": (1,)},
        {"groups": (8, 8)},
        {"groups": (8192,)},
        {"role": "eval"},
        {"env_id": "ALE/Pong-v5", "client_name": "caméra nº 3"},
        {"groups": (4,), "environments": np.array([0, 0, 1, 1]), "seats": np.array([0, 1, 0, 1])},
        {"groups": (2, 2), "environments": np.array([3, 3, 0, 0]), "seats": np.array([1, 0, 0, 1])},
        {"masks": True},
        {"masks": True, "action_space": MultiDiscreteSpec((2, 3))},
    ],
)
def test_a_sound_hello_is_taken(changes: dict[str, Any]) -> None:
    check_hello(make_hello(**changes), LIMITS)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"client_name": ""}, "client_name"),
        ({"client_name": "a\nb"}, "client_name"),
        ({"client_name": "x" * 129}, "client_name"),
        ({"env_id": "\x1b[31m"}, "env_id"),
        ({"process_id": ""}, "process_id"),
        ({"host": "a\0"}, "host"),
        ({"features": ("ok", "\t")}, "features"),
        ({"versions": {"numpy": "\n"}}, "versions"),
        ({"role": "boss"}, "role"),
        ({"groups": ()}, "groups"),
        ({"groups": (0,)}, "groups"),
        ({"groups": (4, 0)}, "groups"),
        ({"groups": (-4,)}, "groups"),
        ({"groups": (1, 1, 1)}, "groups"),
        ({"environments": np.array([0, 1])}, "environments"),
        ({"environments": np.array([0, 1, 3])}, "environments"),
        ({"environments": np.array([0, 1, -1])}, "environments"),
        ({"seats": np.array([0, 0, 9])}, "seats"),
        ({"environments": np.array([0, 0, 1])}, "seats"),
        (
            {
                "groups": (2, 2),
                "environments": np.array([0, 1, 1, 2]),
                "seats": np.array([0, 0, 1, 0]),
            },
            "both groups",
        ),
        ({"masks": True, "action_space": BoxSpec(-1, 1, (2,), "float32")}, "masks"),
        ({"episode_metrics": (METRIC, METRIC)}, "episode_metrics"),
    ],
)
def test_a_hello_that_contradicts_itself_is_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ContractError) as caught:
        check_hello(make_hello(**changes), LIMITS)
    assert named in caught.value.sentence


def test_too_many_slots_are_refused_with_the_remedy() -> None:
    with pytest.raises(LimitError, match=r"8193 slots.*several clients"):
        check_hello(make_hello(groups=(8193,)), LIMITS)


def test_requests_that_would_not_fit_a_message_are_refused_with_the_needed_size() -> None:
    # Case H20. A frame of 84 x 84 x 4 bytes is 28,224 bytes; a request may hold it twice per slot
    # (asking and ended), 16 bytes of reward and endings and 1 of mask, and a header of 262,144.
    frame = BoxSpec(0, 255, (84, 84, 4), "uint8")
    needed = 38 * (2 * 28_224 + 16) + 262_144
    hello = make_hello(observation_space=frame, groups=(38,))
    check_hello(hello, Limits(max_message_bytes=needed))
    with pytest.raises(LimitError, match=str(needed)):
        check_hello(hello, Limits(max_message_bytes=needed - 1))


def test_a_mask_counts_into_the_size_of_a_request() -> None:
    # 2**31 choices are a mask of 268 MB a row.
    with pytest.raises(LimitError, match="would not fit"):
        check_hello(make_hello(masks=True, action_space=DiscreteSpec(2**31)), LIMITS)


def test_every_refusal_says_what_to_do() -> None:
    with pytest.raises(ProtocolError) as caught:
        check_hello(make_hello(role="boss"), LIMITS)
    error = caught.value
    assert error.where == "hello.role"
    assert error.got == "'boss'"
    assert error.expected == "train or eval"
    assert error.remedy
    assert str(error) == error.sentence
