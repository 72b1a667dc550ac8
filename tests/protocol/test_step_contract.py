"""Every array of a step is held against the hello; what does not fit is named by row and leaf."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from royale_client.wire.contract import StepContract
from royale_client.wire.errors import ContractError
from royale_client.wire.limits import Limits
from royale_client.wire.messages import Hello
from royale_client.wire.spaces import (
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    TextSpec,
)
from tests.wire.builders import VECTOR, make_hello, make_step, rows_of

PLAIN = make_hello()
MASKED = make_hello(masks=True, action_space=MultiDiscreteSpec((2, 3)))
CHOICES = DictSpec(
    (
        ("bits", MultiBinarySpec((2,))),
        ("card", DiscreteSpec(3, start=1)),
        ("plan", MultiDiscreteSpec((2, 4))),
        ("word", TextSpec(2)),
    )
)
FALSE = np.zeros(3, dtype=bool)
TRUE = np.ones(3, dtype=bool)
LAST_ENDED = np.array([False, False, True])


def check(hello: Hello, *, first: bool = False, number: int = 2, **changes: Any) -> int:
    step = make_step(hello, request=number, **changes)
    return StepContract(hello, Limits()).check(step, first=first)


def refusal(hello: Hello, **changes: Any) -> str:
    with pytest.raises(ContractError) as caught:
        check(hello, **changes)
    assert "step 2 of group 0" in caught.value.sentence or "rows" in caught.value.sentence
    assert caught.value.remedy or caught.value.where
    return caught.value.sentence


def test_a_step_that_fits_is_taken() -> None:
    assert check(PLAIN) == 3
    assert check(PLAIN, first=True, number=1) == 3
    assert check(MASKED) == 3
    finals = rows_of(VECTOR, 1)
    assert check(PLAIN, terminated=LAST_ENDED, final_observations=finals) == 3
    assert check(PLAIN, asks=~LAST_ENDED, observations=rows_of(VECTOR, 2)) == 2


def test_a_row_may_be_terminated_and_truncated_at_once() -> None:
    both = {"terminated": LAST_ENDED, "truncated": LAST_ENDED}
    assert check(PLAIN, **both, final_observations=rows_of(VECTOR, 1)) == 3


def test_a_row_that_ended_may_be_silent_or_ask_for_its_new_episode() -> None:
    ended = {"terminated": LAST_ENDED, "final_observations": rows_of(VECTOR, 1)}
    assert check(PLAIN, **ended) == 3
    assert check(PLAIN, **ended, asks=~LAST_ENDED, observations=rows_of(VECTOR, 2)) == 2


@pytest.mark.parametrize(
    "observations",
    [
        (),
        rows_of(VECTOR, 2),
        rows_of(VECTOR, 4),
        (np.zeros((3, 4)),),
        (np.zeros((3, 5), dtype=np.float32),),
        (np.zeros((3, 4, 1), dtype=np.float32),),
        (np.zeros(3, dtype=np.float32),),
        (np.zeros((), dtype=np.float32),),
        rows_of(VECTOR, 3) * 2,
    ],
    ids=["none", "too few", "too many", "f8", "shape", "rank", "flat", "0-d", "two leaves"],
)
def test_observations_have_exactly_the_declared_rows_and_type(
    observations: tuple[np.ndarray, ...],
) -> None:
    assert "observations" in refusal(PLAIN, observations=observations)


def test_the_leaf_that_does_not_fit_is_named() -> None:
    hello = make_hello(observation_space=CHOICES)
    wrong = list(rows_of(CHOICES, 3))
    wrong[1] = np.ones(3, dtype=np.int64)
    wrong[2] = np.zeros((3, 3), dtype=np.int64)
    assert "leaf plan" in refusal(hello, observations=tuple(wrong))


@pytest.mark.parametrize(
    ("leaf", "value", "named"),
    [
        (0, [[0, 1], [0, 2], [0, 0]], "leaf bits, row 1"),
        (0, [[0, 1], [0, -1], [0, 0]], "leaf bits, row 1"),
        (1, [1, 3, 4], "leaf card, row 2"),
        (1, [0, 1, 1], "leaf card, row 0"),
        (2, [[0, 0], [1, 3], [0, 4]], "leaf plan, row 2"),
        (3, [[0, 0], [0x110000, 0], [0, 0]], "leaf word, row 1"),
    ],
)
def test_a_choice_outside_its_space_is_refused_with_leaf_and_row(
    leaf: int, value: Any, named: str
) -> None:
    hello = make_hello(observation_space=CHOICES)
    rows = list(rows_of(CHOICES, 3))
    rows[1] = np.ones(3, dtype=np.int64)
    check(hello, observations=tuple(rows))
    rows[leaf] = np.array(value, dtype=rows[leaf].dtype)
    assert named in refusal(hello, observations=tuple(rows))


def test_a_choice_outside_its_space_names_the_row_of_the_group() -> None:
    hello = make_hello(observation_space=DiscreteSpec(2))
    sentence = refusal(hello, asks=np.array([False, True, True]), observations=(np.array([0, 7]),))
    assert "row 2" in sentence
    assert "got 7" in sentence
    finals = (np.array([9]),)
    sentence = refusal(
        hello, terminated=LAST_ENDED, final_observations=finals, observations=(np.zeros(3, int),)
    )
    assert "final_observations, leaf (root), row 2" in sentence


def test_box_observations_outside_their_bounds_and_not_finite_are_the_policys_business() -> None:
    wild = np.array([[9.0, np.nan, np.inf, 0.0]] * 3, dtype=np.float32)
    assert check(PLAIN, observations=(wild,), rewards=np.array([np.nan, np.inf, 0.0])) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"asks": np.ones(2, dtype=bool)},
        {"asks": np.ones(3, dtype=np.uint8)},
        {"rewards": np.ones(2)},
        {"rewards": np.ones((3, 1))},
        {"rewards": np.ones(())},
        {"rewards": np.ones(3, dtype=np.float32)},
        {"terminated": np.zeros(2, dtype=bool)},
        {"terminated": np.zeros(3, dtype=np.int64)},
        {"truncated": np.zeros((3, 1), dtype=bool)},
    ],
)
def test_columns_have_one_entry_per_row_in_their_type(changes: dict[str, Any]) -> None:
    assert refusal(PLAIN, **changes)


@pytest.mark.parametrize("missing", ["rewards", "terminated", "truncated"])
def test_rewards_and_endings_come_together_or_not_at_all(missing: str) -> None:
    assert "all three or none" in refusal(PLAIN, **{missing: None})


def test_rewards_may_be_left_out_only_in_the_first_request() -> None:
    nothing = {"rewards": None, "terminated": None, "truncated": None}
    assert check(PLAIN, first=True, **nothing) == 3
    assert "after the first request" in refusal(PLAIN, **nothing)


def test_without_rewards_there_are_no_final_observations_and_no_episodes() -> None:
    step = make_step(PLAIN, final_observations=rows_of(VECTOR, 1))
    with pytest.raises(ContractError, match="none without rewards"):
        StepContract(PLAIN, Limits()).check(step, first=True)


@pytest.mark.parametrize("count", [0, 2, 3])
def test_every_ended_row_has_its_final_observation_and_no_other(count: int) -> None:
    finals = rows_of(VECTOR, count)
    assert "final_observations" in refusal(PLAIN, truncated=LAST_ENDED, final_observations=finals)


def test_final_observations_left_out_or_too_many_are_refused() -> None:
    assert "final_observations" in refusal(PLAIN, terminated=LAST_ENDED)
    assert "final_observations" in refusal(PLAIN, final_observations=rows_of(VECTOR, 1))


def test_masks_are_there_exactly_if_declared() -> None:
    assert "none, since the hello declared none" in refusal(PLAIN, masks=np.ones((3, 2), bool))
    assert "got none" in refusal(MASKED, masks=None)
    assert "(3, 5)" in refusal(MASKED, masks=np.ones((3, 4), dtype=bool))
    assert "(3, 5)" in refusal(MASKED, masks=np.ones((2, 5), dtype=bool))
    assert "bool" in refusal(MASKED, masks=np.ones((3, 5), dtype=np.uint8))


def test_a_row_with_no_legal_action_is_refused_with_its_number() -> None:
    masks = np.ones((2, 5), dtype=bool)
    masks[1, 2:] = False  # the second choice of the second asking row
    changes = {"asks": np.array([True, False, True]), "observations": rows_of(VECTOR, 2)}
    assert "masks of row 2" in refusal(MASKED, masks=masks, **changes)
    masks[1, 4] = True
    assert check(MASKED, masks=masks, **changes) == 2


def test_a_discrete_mask_needs_one_legal_action_per_row() -> None:
    hello = make_hello(masks=True)
    assert check(hello, masks=np.array([[True, False]] * 3)) == 3
    masks = np.array([[True, False], [False, False], [False, True]])
    assert "masks of row 1" in refusal(hello, masks=masks)


def test_masks_of_no_rows_are_legal_when_nobody_asks() -> None:
    nobody = {"asks": FALSE, "observations": rows_of(VECTOR, 0)}
    assert check(MASKED, masks=np.zeros((0, 5), dtype=bool), **nobody) == 0


def test_episode_records_belong_to_rows_that_ended() -> None:
    record = {"row": 2, "return": 1.0, "length": 4, "time_s": 0.0, "metrics": {}}
    ended = {"terminated": LAST_ENDED, "final_observations": rows_of(VECTOR, 1)}
    assert check(PLAIN, **ended, episodes=(record,)) == 3
    with pytest.raises(ContractError, match="ended in this step"):
        check(PLAIN, **ended, episodes=({**record, "row": 1},))


def test_images_are_checked_without_being_looked_at() -> None:
    camera = BoxSpec(0, 255, (84, 84, 4), "uint8")
    hello = make_hello(observation_space=camera)
    assert check(hello, observations=(np.full((3, 84, 84, 4), 7, dtype=np.uint8),)) == 3
