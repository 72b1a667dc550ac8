"""Clients that send half precision beside others: the run sees the types of its space."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from royale_client.wire.messages import Step, encode_message
from royale_client.wire.narrowing import FLOAT16
from royale_client.wire.snapshots import RESTART, SNAPSHOT
from royale_client.wire.spaces import BoxSpec, DictSpec, DiscreteSpec
from royale_server.saved_run import SavedRun
from tests.server.loop_world import LoopWorld, ScriptedClient, step_arrays
from tests.server.resume_world import FirstNumberPolicy, ResumableWorld
from tests.server.test_loop_resume import facts
from tests.server.trainer_world import Attempt

HALF, FULL = (SNAPSHOT, RESTART, FLOAT16), (SNAPSHOT, RESTART)
# What these environments show is below 2048 and whole, so that float16 holds it exactly.
SINGLE = BoxSpec(-1e6, 1e6, (2, 3), "float32")
DOUBLE = BoxSpec(-1e6, 1e6, (2,), "float64")
NESTED = DictSpec((("pose", SINGLE), ("speed", DOUBLE), ("stance", DiscreteSpec(100))))
SPACES = {"single": SINGLE, "double": DOUBLE, "nested": NESTED}


def strict(policy: FirstNumberPolicy) -> None:
    """Let the policy insist on the types of the storage, whoever asks it for what."""
    original = policy.values

    def values(observations: tuple[np.ndarray, ...]) -> np.ndarray:
        assert np.dtype(np.float16) not in [leaf.dtype for leaf in observations]
        return original(observations)

    policy.values = values


def world_of(
    space: Any,
    features: tuple[tuple[str, ...], ...],
    *,
    lessons: int = 0,
    resumed: SavedRun | None = None,
    **settings: Any,
) -> ResumableWorld:
    """A run whose clients have these features."""
    world = ResumableWorld(20, resumed=resumed, **settings)
    for index, names in enumerate(features):
        world.join(f"c{index}", (2, 1), features=names, observation_space=space)
        if index == 0:
            world.run()
            strict(world.engine.policy)
    if lessons:
        world.play_lessons(lessons)
    assert world.listener.errors == []
    return world


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("features", [(HALF,), (HALF, HALF), (HALF, FULL), (FULL, HALF)], ids=len)
def test_numbers_that_float16_holds_are_learnt_from_as_if_sent_in_full(space, features):
    """Frames, values of parked and of final observations, advantages and actions."""
    settings = {"deterministic": True, "min_clients": len(features)}
    full = world_of(SPACES[space], (FULL,) * len(features), lessons=4, **settings)
    half = world_of(SPACES[space], features, lessons=4, **settings)
    assert facts(half)[:4] == facts(full)[:4]
    assert any(any(lesson.truncated) for lesson in half.lessons)
    for one, other in zip(half.clients, full.clients, strict=True):
        shared = one.answers.keys() & other.answers.keys()
        assert len(shared) > 10
        assert all(one.answers[key] == other.answers[key] for key in shared)


def test_storage_holds_the_space_s_type_and_what_was_rounded():
    world = LoopWorld(target=6)
    half = world.client("half", groups=(2,), features=(FLOAT16,))
    full = world.client("full", groups=(2,))
    while not world.lessons:
        for client in (half, full):
            client.step(obs=[0.1, 0.7], rewards=[0.0, 0.0])
    (held,) = world.engine.storage.observations
    assert held.dtype == np.float32
    (lesson,) = world.lessons
    # 0.1 and 0.7 as float16: 1638 / 2**14 and 1434 / 2**11.
    expected = {0: 0.0999755859375, 1: 0.7001953125, 2: float(np.float32(0.1))}
    for slot, seen in zip(lesson.slots, lesson.observations, strict=True):
        assert seen == expected.get(slot, float(np.float32(0.7)))


def test_a_batch_of_rows_without_cells_reaches_the_policy_in_the_space_s_type():
    """Evaluation alone, in half precision: nothing of full precision widens it."""
    world = LoopWorld(target=100)
    client = world.client("e", groups=(3,), role="eval", features=(FLOAT16,))
    for _ in range(3):
        client.step(obs=[0.5, np.nan, 2.0], rewards=[0.0] * 3)
    evaluated = world.engine.evaluated
    policy = evaluated.policy(evaluated.versions[0])  # pinned for the round
    assert {seen.dtype.name for seen in policy.seen} == {"float32"}
    assert [seen[:, 0].tolist() for seen in policy.seen] == [[0.5, 0.0, 2.0]] * 3


def nonfinite(world: LoopWorld, client: ScriptedClient) -> int:
    return world.hub.nonfinite_frames[client.peer.name]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_found_in_half_precision(value):
    world = LoopWorld(target=100)
    client = world.client("c", groups=(2,), features=(FLOAT16,))
    for _ in range(3):
        client.step(obs=[65504.0, -65504.0], rewards=[0.0, 0.0])
    assert nonfinite(world, client) == 0
    client.step(obs=[0.0, value], rewards=[0.0, 0.0])
    assert nonfinite(world, client) == 1
    client.step(obs=[0.0, 0.0], rewards=[0.0, 0.0], truncated=[True, False], final=[value])
    assert nonfinite(world, client) == 2
    assert world.listener.errors == []
    assert not client.faults()


@pytest.mark.parametrize("wanted", [True, False])
def test_a_client_that_sends_what_it_did_not_agree_on_is_ended_and_nobody_else(wanted):
    """The type it sends is the one that the other client of the run must send."""
    world = LoopWorld(target=100)
    wrong = world.client("wrong", groups=(2,), features=(FLOAT16,) if wanted else ())
    for _ in range(3):
        wrong.step(obs=[0.0, 0.0], rewards=[0.0, 0.0])
    other = world.client("other", groups=(2,), features=() if wanted else (FLOAT16,))
    dtype, agreed = ("float32", "float16") if wanted else ("float16", "float32")
    fields = step_arrays(obs=[0.0, 0.0], rewards=[0.0, 0.0])
    fields["observations"] = (np.zeros((2, 1), dtype),)
    wrong.send_raw(encode_message(Step(group=0, request=4, **fields)))
    (fault,) = wrong.faults()
    assert fault.startswith("contract: step 4 of group 0, observations")
    assert f"got {dtype} of shape (2, 1), expected {agreed} of shape (2, 1)" in fault
    other.step(obs=[0.0, 0.0], rewards=[0.0, 0.0])
    assert not other.faults()


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize(("before", "after"), [(HALF, FULL), (FULL, HALF), (HALF, HALF)])
@pytest.mark.parametrize("frames", [7, 20, 26])
def test_a_client_comes_back_with_either_choice(space, before, after, frames, tmp_path: Path):
    """Its parked requests, and what is to be valued, came in the types of the time before."""
    whole = world_of(SPACES[space], (FULL,), lessons=4)
    first = world_of(SPACES[space], (before,))
    first.play_frames(frames)
    saved = first.save(tmp_path)
    second = ResumableWorld(20, resumed=saved)
    strict(second.engine.policy)
    client = second.join("c0", (2, 1), features=after, observation_space=SPACES[space])
    second.play_lessons(4 - len(first.lessons))
    assert second.listener.errors == []
    assert len(second.events("restored")) == 1
    assert (facts(first) + facts(second))[:4] == facts(whole)[:4]
    agreed = client.welcome().features
    assert (FLOAT16 in agreed) == (FLOAT16 in after)


@pytest.mark.parametrize(("before", "after"), [(HALF, FULL), (FULL, HALF)])
def test_a_place_whose_client_never_comes_back_is_given_up_with_what_it_sent(
    before, after, tmp_path: Path
):
    """Its last frames are valued by its parked observations, whatever they came as."""
    first = world_of(DOUBLE, (before, after))
    first.play_frames(26)
    saved = first.save(tmp_path)
    second = ResumableWorld(20, resumed=saved)
    strict(second.engine.policy)
    second.join("c1", (2, 1), features=before, observation_space=DOUBLE)
    second.play_lessons(2)
    assert second.listener.errors == []
    assert second.hub.scheduler.ledger.conservation_error == 0


def test_every_row_says_how_many_bytes_a_frame_cost(tmp_path: Path):
    attempt = Attempt(tmp_path)
    sizes: list[int] = []
    received = attempt.hub.received

    def counting(peer: Any, data: bytes) -> None:
        if b"\xa1t\xa4step" in data[:16]:
            sizes.append(len(data))
        received(peer, data)

    attempt.hub.received = counting
    attempt.join()
    attempt.play_rows(3)
    rows = attempt.writer.rows[:3]
    told = [row["throughput/bytes_per_frame"] * row["run/frames"] for row in rows]
    counted = np.cumsum(sizes)
    # Each row tells of the requests since the one before; together of the first so many.
    assert all(np.isclose(counted, total).any() for total in np.cumsum(told))
    assert all(size > 0 for size in told)
