"""A run is saved at rest, another process reads the checkpoint, and its clients come back."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithms.errors import RestoreError
from royale_client.wire.snapshots import RESTART
from royale_client.wire.spaces import (
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    TextSpec,
)
from royale_server.endpoint import gathering
from royale_server.saved_run import SavedRun
from tests.server.loop_world import LoopWorld
from tests.server.resume_world import ResumableWorld

MIXED = DictSpec(
    items=(
        ("box", BoxSpec(-1e6, 1e6, (2,), "float32")),
        ("bytes", BoxSpec(0, 255, (3,), "uint8")),
        ("choice", DiscreteSpec(100)),
        ("lamps", MultiBinarySpec((4,))),
        ("switches", MultiDiscreteSpec((100, 100))),
        ("word", TextSpec(max_length=5)),
    )
)

Plan = dict[str, tuple[int, ...]]
"""Group sizes by client name."""


def whole_run(clients: Plan, lessons: int, **settings: Any) -> ResumableWorld:
    """A run that is never interrupted."""
    world = ResumableWorld(**settings)
    for name, groups in clients.items():
        world.join(name, groups, **hello_changes(settings))
    world.play_lessons(lessons)
    return world


def hello_changes(settings: dict[str, Any]) -> dict[str, Any]:
    return {"masks": settings.get("masks", False)}


def facts(world: LoopWorld) -> list[dict[str, Any]]:
    """All that the learner was given, comparable though it may hold NaN."""
    return [
        {name: repr(values) for name, values in asdict(lesson).items()} for lesson in world.lessons
    ]


def answers(world: ResumableWorld, name: str) -> dict[tuple[int, int], bytes]:
    """Of all processes of that client."""
    return {
        key: data
        for client in world.clients
        if client.hello.client_name == name
        for key, data in client.answers.items()
    }


def saved_after(
    frames: int, directory: Path, clients: Plan, **settings: Any
) -> tuple[ResumableWorld, SavedRun]:
    world = ResumableWorld(**settings)
    for name, groups in clients.items():
        world.join(name, groups, **hello_changes(settings))
    world.play_frames(frames)
    return world, world.save(directory)


ONE = {"a": (2,)}
TWO_GROUPS = {"a": (2, 3)}
TWO_CLIENTS = {"a": (2,), "b": (1, 2)}


@pytest.mark.parametrize("frames", [1, 7, 20, 26, 40])
@pytest.mark.parametrize(
    ("clients", "settings"),
    [
        (ONE, {}),
        (ONE, {"masks": True}),
        (TWO_GROUPS, {}),
        (TWO_CLIENTS, {"deterministic": True, "min_clients": 2}),
    ],
    ids=["one", "masks", "two groups", "two clients"],
)
def test_a_resumed_run_learns_from_the_same_frames_and_gives_the_same_actions(
    clients: Plan, settings: dict[str, Any], frames: int, tmp_path: Path
) -> None:
    """Saved right after a learn step (20, 40) and in the middle of collecting."""
    whole = whole_run(clients, 4, target=20, **settings)
    first, saved = saved_after(frames, tmp_path, clients, target=20, **settings)
    second = ResumableWorld(20, resumed=saved, **settings)
    for name, groups in clients.items():
        second.join(name, groups, **hello_changes(settings))
    second.play_lessons(4 - len(first.lessons))
    assert facts(first) + facts(second) == facts(whole)[: 4 + 0]
    for name in clients:
        ours = answers(first, name) | answers(second, name)
        shared = ours.keys() & answers(whole, name).keys()
        assert len(shared) > 10
        assert {k: ours[k] for k in shared} == {k: answers(whole, name)[k] for k in shared}
        # Nothing was asked again: the two processes of a client share no answer.
        assert not answers(first, name).keys() & answers(second, name).keys()
    assert len(second.events("restored")) == len(clients)
    assert second.hub.scheduler.ledger.conservation_error == 0


def test_episodes_that_went_on_across_the_resume_are_recorded_as_ever(tmp_path: Path) -> None:
    """Their returns, lengths, policy versions and the number of their trained frames."""
    whole = whole_run(ONE, 4, target=20)
    first, saved = saved_after(27, tmp_path, ONE, target=20)
    second = ResumableWorld(20, resumed=saved)
    second.join("a", (2,))
    second.play_lessons(4 - len(first.lessons))
    rows = first.listener.episodes + second.listener.episodes
    assert len(rows) > 10
    shared = min(len(rows), len(whole.listener.episodes))
    assert rows[:shared] == whole.listener.episodes[:shared]
    assert any(row["first_policy_version"] != row["last_policy_version"] for row in rows)


@pytest.mark.parametrize("masks", [False, True])
def test_parked_observations_of_every_type_survive(masks: bool, tmp_path: Path) -> None:
    """Bounded arrays, choices, lamps, switches and words: the learner sees the same."""

    def world(resumed: SavedRun | None = None) -> ResumableWorld:
        world = ResumableWorld(20, resumed=resumed, masks=masks)
        world.join("a", (2, 1), observation_space=MIXED)
        return world

    whole, first = world(), world()
    whole.play_lessons(3)
    first.play_frames(13)
    saved = first.save(tmp_path)
    sessions = saved.sessions
    assert sessions is not None
    (member,) = sessions.scheduler.members
    expected = [waiting.waiting.payload for waiting in first.hub.scheduler.members[0].groups]
    for group, step in zip(member.groups, expected, strict=True):
        for ours, theirs in zip(group.payload.observations, step.observations, strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)
    dtypes = {leaf.dtype.name for leaf in member.groups[0].payload.observations}
    assert {"float32", "uint8", "int64", "int8", "uint32"} <= dtypes
    second = world(saved)
    second.play_lessons(3)
    assert facts(second) == facts(whole)
    for ours, theirs in zip(
        second.engine.storage.observations, whole.engine.storage.observations, strict=True
    ):
        np.testing.assert_array_equal(ours[:20], theirs[:20])


def test_final_observations_that_wait_to_be_valued_survive(tmp_path: Path) -> None:
    """An episode was cut off before the checkpoint; its final observation is valued after it."""
    _, saved = saved_after(19, tmp_path, ONE, target=30)
    truncated = np.flatnonzero(saved.frames["truncated"])
    assert len(truncated) > 0
    assert set(truncated) <= set(saved.frames["unvalued.cells"])
    assert np.isnan(saved.frames["bootstrap"][truncated]).all()
    second = ResumableWorld(30, resumed=saved)
    second.join("a", (2,))
    second.play_lessons(1)
    whole = whole_run(ONE, 1, target=30)
    assert second.lessons[0].advantages == whole.lessons[0].advantages
    assert all(second.lessons[0].usable)


def test_frames_that_have_no_room_any_more_are_refused_with_the_remedy(tmp_path: Path) -> None:
    saved = one_saved(tmp_path)
    many = {name: np.repeat(rows, 100, axis=0) for name, rows in saved.frames.items()}
    with pytest.raises(RestoreError, match="--max-slots"):
        ResumableWorld(20, resumed=replace(saved, frames=many))


# --- what a client is told -------------------------------------------------------------------


def one_saved(directory: Path, groups: tuple[int, ...] = (2,), **settings: Any) -> SavedRun:
    _, saved = saved_after(7, directory, {"a": groups}, target=20, **settings)
    return saved


def test_a_client_that_is_back_is_told_its_request_numbers_and_gets_its_states(
    tmp_path: Path,
) -> None:
    first, saved = saved_after(7, tmp_path, ONE, target=20)
    (client,) = first.clients
    (states,) = client.snapshots
    second = ResumableWorld(20, resumed=saved)
    again = second.join("a", (2,))
    number = first.clients[0].session.outstanding(0)
    assert again.last_requests == (number,)
    assert again.welcome().restores
    assert again.welcome().policy_version == 0
    assert again.heard == ["restore"]
    assert again.brought_back == states
    assert second.hub.scheduler.ledger.loaded_total == len(saved.frames["slots"])


def test_a_client_without_the_feature_begins_fresh_episodes_without_a_restore(
    tmp_path: Path,
) -> None:
    second = ResumableWorld(20, resumed=one_saved(tmp_path))
    client = second.join("a", (2,), features=())
    assert not client.welcome().restores
    second.play_lessons(2)
    assert client.heard == []
    assert client.first_requests == [client.last_requests[0] + 1]
    (text,) = second.events("restarted")
    assert "2 episodes begin anew" in text
    assert_fresh(second)


def test_a_client_that_cannot_restore_is_told_to_begin_fresh_episodes(tmp_path: Path) -> None:
    second = ResumableWorld(20, resumed=one_saved(tmp_path))
    client = second.join("a", (2,), features=(RESTART,))
    assert client.welcome().restores
    second.play_lessons(2)
    assert client.heard == ["restore"]
    assert second.events("restarted")
    assert_fresh(second)


def test_a_failure_to_restore_gives_the_parked_request_up_and_says_why(tmp_path: Path) -> None:
    second = ResumableWorld(20, resumed=one_saved(tmp_path))
    client = second.join("a", (2,), behaviour={"refuses": "the state is of another robot"})
    second.play_lessons(2)
    assert client.first_requests == [client.last_requests[0] + 1]
    (text,) = second.events("restarted")
    assert "the state is of another robot" in text
    assert_fresh(second)


def test_another_environment_of_that_name_begins_fresh_episodes(tmp_path: Path) -> None:
    second = ResumableWorld(20, resumed=one_saved(tmp_path))
    client = second.join("a", (2,), env_digest="f" * 16)
    second.play_lessons(2)
    assert client.heard == ["restore"]
    assert client.first_requests
    (text,) = second.events("restarted")
    assert "other environments" in text
    assert_fresh(second)


def test_a_client_whose_snapshot_failed_begins_fresh_episodes(tmp_path: Path) -> None:
    first = ResumableWorld(20)
    first.join("a", (2,), behaviour={"cannot_save": "the arm is moving"})
    first.play_frames(7)
    saved = first.save(tmp_path)
    (text,) = first.events("no_snapshot")
    assert "the arm is moving" in text
    second = ResumableWorld(20, resumed=saved)
    second.join("a", (2,))
    second.play_lessons(2)
    assert_fresh(second)


def assert_fresh(world: ResumableWorld) -> None:
    """The loaded frames are learnt from with a successor, and fresh noise follows a gap."""
    lesson = world.lessons[0]
    frames = list(zip(lesson.slots, lesson.ordinals, lesson.usable, strict=True))
    loaded = [(s, o) for s, o, _ in frames if o < 4]
    assert loaded
    assert all(usable for _, _, usable in frames)
    for slot in (0, 1):
        ordinals = [o for s, o, _ in frames if s == slot]
        steps = np.diff(ordinals)
        assert sorted(set(steps)) == [1, 2], "one gap, where the fresh episodes begin"
    assert world.hub.scheduler.ledger.conservation_error == 0
    assert world.hub.scheduler.ledger.discarded_total == 0


def test_the_seeds_of_fresh_episodes_are_those_of_an_episode_that_never_was(
    tmp_path: Path,
) -> None:
    first, saved = saved_after(7, tmp_path, ONE, target=20)
    second = ResumableWorld(20, resumed=saved)
    again = second.join("a", (2,), features=())
    seeds = again.welcome().seeds.tolist()
    assert seeds != first.clients[0].welcome().seeds.tolist()
    second.play_lessons(1)
    again.vanish()
    third = second.join("a", (2,))
    assert third.welcome().seeds.tolist() != seeds


# --- who takes whose place -------------------------------------------------------------------


def test_a_client_with_other_groups_is_a_new_one_and_the_old_place_is_given_up(
    tmp_path: Path,
) -> None:
    second = ResumableWorld(20, resumed=one_saved(tmp_path))
    client = second.join("a", (1, 1))
    assert client.last_requests == (0, 0)
    (text,) = second.events("changed")
    assert "brings groups of 1 and 1 environments, and had 2" in text
    assert second.hub.scheduler.slots_in_use == 2
    second.play_lessons(1)
    assert set(second.lessons[0].slots) == {0, 1, 2, 3}
    assert all(second.lessons[0].usable)


def test_a_client_that_comes_back_too_large_is_refused_and_nobody_else_notices(
    tmp_path: Path,
) -> None:
    second = ResumableWorld(20, resumed=one_saved(tmp_path))
    big = second.join("a", (513,))
    (fault,) = big.faults()
    assert fault.startswith("capacity:")
    other = second.join("c", (2,))
    second.play_lessons(1)
    assert other.answers


def test_in_a_deterministic_run_a_client_with_other_groups_is_refused_and_the_run_waits(
    tmp_path: Path,
) -> None:
    settings = {"deterministic": True, "min_clients": 1}
    second = ResumableWorld(20, resumed=one_saved(tmp_path, **settings), **settings)
    wrong = second.join("a", (1, 1))
    (fault,) = wrong.faults()
    assert fault.startswith("refused:")
    assert "and had 2" in fault
    assert second.listener.stopped == []
    second.join("a", (2,))
    second.play_lessons(1)
    assert second.events("restored")


def test_an_evaluation_client_does_not_take_the_place_of_a_training_client(
    tmp_path: Path,
) -> None:
    second = ResumableWorld(20, resumed=one_saved(tmp_path))
    second.join("a", (2,), role="eval")
    trainer = second.join("a", (2,))
    second.play_lessons(1)
    assert len(second.events("restored")) == 1
    assert trainer.heard == ["restore"]


def test_a_name_that_is_not_in_the_checkpoint_is_refused_with_the_names_that_are(
    tmp_path: Path,
) -> None:
    settings = {"deterministic": True, "min_clients": 2}
    _, saved = saved_after(7, tmp_path, TWO_CLIENTS, target=20, **settings)
    second = ResumableWorld(20, resumed=saved, **settings)
    second.join("b", (1, 2))
    stranger = second.join("c", (2,))
    (fault,) = stranger.faults()
    assert fault.startswith("refused:")
    assert "one named a" in fault
    second.join("a", (2,))
    second.play_lessons(1)


def test_a_stranger_that_came_before_the_engine_was_built_is_refused_all_the_same(
    tmp_path: Path,
) -> None:
    settings = {"deterministic": True, "min_clients": 1}
    saved = one_saved(tmp_path, **settings)
    second = ResumableWorld(20, **settings)
    second.resumed = saved
    second.admission.spaces = saved.spaces
    stranger, owner = second.join("c", (2,)), second.join("a", (2,))
    second._build(saved.spaces)
    second.run()
    assert stranger.faults()
    assert owner.welcome().restores


def test_places_of_clients_that_are_not_back_count_against_the_room(tmp_path: Path) -> None:
    second = ResumableWorld(20, resumed=one_saved(tmp_path, (2, 1)))  # 3 of 512 slots
    (fault,) = second.join("c", (510,)).faults()
    assert "3 of 512 slots in use" in fault
    assert second.join("d", (509,)).faults() == []
    assert second.join("a", (2, 1)).faults() == []


def test_two_clients_may_come_back_in_any_order_and_any_time_apart(tmp_path: Path) -> None:
    settings = {"deterministic": True, "min_clients": 2}
    whole = whole_run(TWO_CLIENTS, 3, target=20, **settings)
    _, saved = saved_after(13, tmp_path, TWO_CLIENTS, target=20, **settings)
    second = ResumableWorld(20, resumed=saved, **settings)
    second.join("b", (1, 2))
    second.settle()
    second.wait(1000.0)
    assert second.lessons == []
    assert answers(second, "b") == {}
    second.join("a", (2,))
    second.play_lessons(3)
    assert facts(second) == facts(whole)


def test_without_fixed_rounds_the_others_go_on_and_the_late_one_goes_on_where_it_was(
    tmp_path: Path,
) -> None:
    first, saved = saved_after(13, tmp_path, TWO_CLIENTS, target=40)
    (a, _) = first.clients
    second = ResumableWorld(40, resumed=saved)
    second.join("b", (1, 2))
    second.play_lessons(2)
    late = second.join("a", (2,))
    second.play_lessons(4)
    assert late.heard == ["restore"]
    assert late.answers
    assert min(late.answers)[1] == a.session.outstanding(0)
    lessons = second.lessons
    assert {0, 1} <= set(lessons[0].slots), "the frames of the checkpoint"
    assert set(lessons[1].slots) == {2, 3, 4}
    assert {0, 1} <= set(lessons[3].slots)
    assert all(all(lesson.usable) for lesson in lessons)


def test_a_client_that_does_not_come_back_is_given_up_and_may_come_later_as_a_new_one(
    tmp_path: Path,
) -> None:
    _, saved = saved_after(13, tmp_path, TWO_CLIENTS, target=40)
    second = ResumableWorld(40, resumed=saved, first_step_timeout=60.0)
    second.join("b", (1, 2))
    second.play_lessons(1)
    for _ in range(7):
        second.wait(10.0)
        second.play_lessons(len(second.lessons) + 1)
    (text,) = second.events("absent")
    assert "client a" in text
    again = second.join("a", (2,))
    assert again.last_requests == (0,)
    second.play_lessons(len(second.lessons) + 1)
    assert again.answers


def test_a_connection_lost_between_welcome_and_restored_is_no_end(tmp_path: Path) -> None:
    whole = whole_run(ONE, 3, target=20)
    _, saved = saved_after(7, tmp_path, ONE, target=20)
    second = ResumableWorld(20, resumed=saved)
    for _ in range(2):
        hangs = second.join("a", (2,), behaviour={"answers_restores": False})
        second.settle()
        assert hangs.heard == ["restore"]
        hangs.vanish()
        second.clients.remove(hangs)
    assert second.events("restored") == []
    second.join("a", (2,))
    second.play_lessons(3)
    assert facts(second) == facts(whole)


def test_a_client_that_never_finishes_restoring_is_given_up_and_may_come_again(
    tmp_path: Path,
) -> None:
    _, saved = saved_after(13, tmp_path, TWO_CLIENTS, target=40)
    second = ResumableWorld(40, resumed=saved, first_step_timeout=60.0)
    second.join("b", (1, 2))
    hangs = second.join("a", (2,), behaviour={"answers_restores": False})
    for _ in range(7):
        second.wait(10.0)
        second.play_lessons(len(second.lessons) + 1)
    assert hangs.closed == "fault"
    again = second.join("a", (2,))
    assert again.last_requests == (0,)
    second.play_lessons(len(second.lessons) + 1)
    assert again.answers
    assert second.listener.stopped == []


def test_a_deterministic_run_does_not_wait_for_ever_for_environments_to_be_restored(
    tmp_path: Path,
) -> None:
    settings = {"deterministic": True, "min_clients": 2}
    whole = whole_run(TWO_CLIENTS, 3, target=20, **settings)
    _, saved = saved_after(13, tmp_path, TWO_CLIENTS, target=20, **settings)
    second = ResumableWorld(20, resumed=saved, feedback_wait_timeout=30.0, **settings)
    second.join("b", (1, 2))
    hangs = second.join("a", (2,), behaviour={"answers_restores": False})
    second.settle()
    second.wait(31.0)
    assert hangs.closed == "fault"
    assert second.listener.stopped == []
    second.clients.remove(hangs)
    second.join("a", (2,))
    second.play_lessons(3)
    assert facts(second) == facts(whole)


def test_who_waits_is_told_of_clients_that_are_not_back(tmp_path: Path) -> None:
    settings = {"deterministic": True, "min_clients": 2}
    _, saved = saved_after(13, tmp_path, TWO_CLIENTS, target=20, **settings)
    second = ResumableWorld(20, resumed=saved, **settings)
    back = second.join("b", (1, 2))
    second.settle()
    second.wait(6.0)
    assert back.busies()[-1].waiting_for == "1 more clients"


def test_who_waits_is_told_whose_environments_are_still_restored(tmp_path: Path) -> None:
    settings = {"deterministic": True, "min_clients": 2}
    _, saved = saved_after(13, tmp_path, TWO_CLIENTS, target=20, **settings)
    second = ResumableWorld(20, resumed=saved, **settings)
    back = second.join("b", (1, 2))
    second.join("a", (2,), behaviour={"answers_restores": False})
    second.settle()
    second.wait(6.0)
    assert back.busies()[-1].waiting_for == "the environments of a to be restored"


# --- rest points -----------------------------------------------------------------------------


def test_a_checkpoint_while_somebody_is_absent_keeps_what_it_left(tmp_path: Path) -> None:
    _, saved = saved_after(13, tmp_path / "1", TWO_CLIENTS, target=40)
    second = ResumableWorld(40, resumed=saved)
    second.join("b", (1, 2))
    second.play_frames(50)
    again = second.save(tmp_path / "2")
    assert saved.sessions is not None
    assert again.sessions is not None
    (old,), (new,) = (run.sessions.clients["a"].states for run in (saved, again) if run.sessions)
    assert old.tobytes() == new.tobytes()
    third = ResumableWorld(40, resumed=again)
    late = third.join("a", (2,))
    third.join("b", (1, 2))
    third.play_lessons(1)
    assert len(third.events("restored")) == 2
    assert late.envs[0].t.any()


def test_a_checkpoint_while_somebody_restores_keeps_what_it_left(tmp_path: Path) -> None:
    _, saved = saved_after(13, tmp_path / "1", TWO_CLIENTS, target=40)
    second = ResumableWorld(40, resumed=saved)
    hangs = second.join("a", (2,), behaviour={"answers_restores": False})
    second.join("b", (1, 2))
    second.play_frames(50)
    again = second.save(tmp_path / "2")
    assert hangs.heard == ["restore"]
    assert saved.sessions is not None
    assert again.sessions is not None
    assert (
        again.sessions.clients["a"].states[0].tobytes()
        == saved.sessions.clients["a"].states[0].tobytes()
    )


def test_a_rest_that_ends_goes_on_as_if_nothing_had_been() -> None:
    whole = whole_run(ONE, 3, target=20)
    world = ResumableWorld(20)
    client = world.join("a", (2,))
    for frames in (7, 20, 33):
        world.play_frames(frames)
        world.rest()
        world.engine.snapshot(world.hub.scheduler.ledger.complete_cells(), world.listener.rests[-1])
        world.hub.resume()
        world.run()
    world.play_lessons(3)
    assert client.heard == ["snapshot"] * 3
    assert facts(world) == facts(whole)


def test_a_snapshot_that_does_not_come_in_time_is_done_without() -> None:
    world = ResumableWorld(20)
    world.join("a", (2,), behaviour={"answers_snapshots": False})
    world.play_frames(7)
    world.hub.rest()
    world.settle()
    assert world.listener.sessions == []
    world.wait(5.1)
    (sessions,) = world.listener.sessions
    assert sessions.clients["a"].states == ()
    (text,) = world.events("no_snapshot")
    assert "did not answer in time" in text


def test_a_client_that_still_owes_a_snapshot_is_not_asked_for_another() -> None:
    world = ResumableWorld(20)
    client = world.join("a", (2,), behaviour={"answers_snapshots": False})
    for frames in (7, 15):
        world.play_frames(frames)
        world.hub.rest()
        world.settle()
        world.wait(5.1)
        world.hub.resume()
        world.run()
    assert client.heard == ["snapshot"]
    assert len(world.listener.sessions) == 2
    assert len(world.events("no_snapshot")) == 2
    world.play_lessons(1)
    client.send_raw(client.session.snapshotted(1, (b"late",)))
    assert client.closed is None
    world.play_frames(30)
    world.rest()
    assert client.heard == ["snapshot", "snapshot"]


def test_a_client_that_is_always_late_with_its_snapshots_holds_up_no_third_checkpoint() -> None:
    world = ResumableWorld(20)
    client = world.join("a", (2,), behaviour={"answers_snapshots": False})
    for number, frames in enumerate((7, 15, 25, 35), start=1):
        world.play_frames(frames)
        world.hub.rest()
        world.settle()
        if number <= 2:
            assert len(world.listener.sessions) == number - 1, "it is waited for"
            world.wait(5.1)
            client.send_raw(client.session.snapshotted(number, (b"late",)))
        assert len(world.listener.sessions) == number
        world.hub.resume()
        world.run()
    assert client.heard == ["snapshot", "snapshot"]
    assert len(world.events("too_slow")) == 1


def test_snapshots_beyond_the_bound_of_all_together_are_done_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ResumableWorld(40)
    world.join("a", (2,))
    world.join("b", (2,))
    world.play_frames(15)
    world.rest()
    sizes = {
        name: sum(state.nbytes for state in client.states)
        for name, client in world.listener.sessions[-1].clients.items()
    }
    monkeypatch.setattr(gathering, "MAX_BYTES", sizes["a"] + sizes["b"] // 2)
    world.hub.resume()
    world.play_frames(30)
    world.rest()
    kept = [bool(client.states) for client in world.listener.sessions[-1].clients.values()]
    assert sorted(kept) == [False, True]
    (text,) = world.events("no_snapshot")
    assert "of all snapshots together" in text


def test_a_client_without_snapshots_is_named_once() -> None:
    world = ResumableWorld(20)
    world.join("a", (2,), features=(RESTART,))
    for frames in (7, 15):
        world.play_frames(frames)
        world.rest()
        world.hub.resume()
    (text,) = world.events("no_snapshot")
    assert "client a has no snapshots" in text


def test_a_snapshot_of_a_rest_that_is_over_is_not_taken_for_one_of_the_next() -> None:
    world = ResumableWorld(20)
    client = world.join("a", (2,), behaviour={"answers_snapshots": False})
    other = world.join("b", (2,), behaviour={"answers_snapshots": False})
    world.play_frames(7)
    world.hub.rest()
    world.settle()
    world.wait(5.1)
    world.hub.resume()
    world.play_frames(15)
    other.send_raw(other.session.snapshotted(1, (b"old",)))
    world.hub.rest()
    world.settle()
    client.send_raw(client.session.snapshotted(1, (b"old",)))
    world.wait(5.1)
    states = {name: c.states for name, c in world.listener.sessions[-1].clients.items()}
    assert states == {"a": (), "b": ()}


def test_a_rest_asked_for_again_waits_for_the_snapshot_that_is_under_way() -> None:
    """Paused, then stopped: environments at rest are the same, whichever rest they are asked in."""
    world = ResumableWorld(20)
    client = world.join("a", (2,), behaviour={"answers_snapshots": False})
    world.play_frames(7)
    world.hub.pause()
    world.settle()
    world.hub.rest()
    world.settle()
    assert client.heard == ["snapshot"]
    assert len(world.listener.rests) == 2
    client.send_raw(client.session.snapshotted(1, (b"state",)))
    (sessions,) = world.listener.sessions
    assert sessions.clients["a"].states[0].tobytes() == b"state"
    assert world.events("no_snapshot") == []


def test_a_checkpoint_does_not_end_a_pause() -> None:
    world = ResumableWorld(20)
    client = world.join("a", (2,))
    world.play_frames(7)
    world.hub.pause()
    world.settle()
    world.hub.saved()
    stored = world.hub.scheduler.ledger.stored_total
    world.settle()
    assert world.hub.scheduler.ledger.stored_total == stored
    world.wait(6.0)
    assert client.busies()[-1].phase == "pause"
    world.hub.resume()
    world.play_frames(stored + 5)


def test_a_client_that_leaves_while_snapshots_are_gathered_holds_nothing_up() -> None:
    world = ResumableWorld(20)
    leaver = world.join("a", (2,), behaviour={"answers_snapshots": False})
    world.join("b", (1,))
    world.play_frames(7)
    world.hub.rest()
    world.settle()
    assert world.listener.sessions == []
    leaver.vanish()
    (sessions,) = world.listener.sessions
    assert sessions.clients["a"].states == ()
    assert sessions.clients["b"].states != ()
    (text,) = world.events("no_snapshot")
    assert "left before it answered" in text


def test_a_client_that_joins_while_snapshots_are_gathered_is_not_part_of_the_checkpoint(
    tmp_path: Path,
) -> None:
    world = ResumableWorld(20)
    slow = world.join("a", (2,), behaviour={"answers_snapshots": False})
    world.play_frames(7)
    world.hub.rest()
    world.settle()
    world.join("b", (3,))
    world.settle()
    slow.send_raw(slow.session.snapshotted(1, tuple(e.snapshot() for e in slow.envs)))
    (sessions,) = world.listener.sessions
    assert list(sessions.clients) == ["a"]
    num_slots = len(sessions.scheduler.steps)
    assert {len(array) for array in sessions.versions.values()} == {num_slots} == {2}
    second = ResumableWorld(20, resumed=world.write(tmp_path, sessions))
    second.join("a", (2,))
    second.join("b", (3,))
    second.play_lessons(2)


def test_evaluation_clients_are_not_asked_for_snapshots() -> None:
    """One whose request came during a learn step is parked at the rest after it."""
    world = ResumableWorld(20)
    world.join("a", (2,))
    viewer = world.join("e", (1,), role="eval")
    world.listener.hold_learning = True
    world.play(lambda: bool(world.listener.due))
    world.settle()
    world.hub.rest()
    world.learn()
    world.run()
    assert viewer.session.outstanding(0) is not None
    world.settle()
    assert viewer.heard == []
    assert list(world.listener.sessions[-1].clients) == ["a"]
    world.hub.resume()
    world.play(lambda: bool(world.listener.due))
    assert world.listener.due


def test_a_client_without_the_feature_is_not_asked_for_a_snapshot() -> None:
    world = ResumableWorld(20)
    client = world.join("a", (2,), features=(RESTART,))
    world.play_frames(7)
    world.rest()
    assert client.heard == []
    assert world.listener.sessions[-1].clients["a"].states == ()


def test_gathering_can_be_given_up_at_once() -> None:
    world = ResumableWorld(20)
    world.join("a", (2,), behaviour={"answers_snapshots": False})
    world.play_frames(7)
    world.hub.rest()
    world.settle()
    world.hub.give_up_gathering()
    assert len(world.listener.sessions) == 1


def test_a_deterministic_run_waits_for_snapshots_as_long_as_for_a_request() -> None:
    world = ResumableWorld(20, deterministic=True, min_clients=1)
    world.join("a", (2,), behaviour={"answers_snapshots": False})
    world.play_frames(7)
    world.hub.rest()
    world.settle()
    world.wait(59.0)
    assert world.listener.sessions == []
    world.wait(2.0)
    assert len(world.listener.sessions) == 1


def test_the_run_can_be_saved_and_resumed_many_times(tmp_path: Path) -> None:
    whole = whole_run(TWO_GROUPS, 8, target=20)
    world = ResumableWorld(20)
    lessons = []
    for attempt in range(9):
        world.join("a", (2, 3))
        world.play_frames(world.hub.scheduler.ledger.stored_total + 8)
        saved = world.save(tmp_path / str(attempt))
        lessons += facts(world)
        world = ResumableWorld(20, resumed=saved)
    assert len(lessons) >= 3
    assert lessons == facts(whole)[: len(lessons)]


def test_the_checkpoint_names_no_client_twice(tmp_path: Path) -> None:
    first = ResumableWorld(20)
    first.join("a", (2,))
    first.join("a", (2,))
    first.play_frames(7)
    saved = first.save(tmp_path)
    assert saved.sessions is not None
    assert [m.name for m in saved.sessions.scheduler.members] == ["a", "a~2"]
    second = ResumableWorld(20, resumed=saved)
    one, other = second.join("a", (2,)), second.join("a", (2,))
    assert one.welcome().restores
    assert other.welcome().restores
    second.play_lessons(1)
