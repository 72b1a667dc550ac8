"""Short batches are inferred on the I/O thread, and nothing but the time it takes is different."""

from __future__ import annotations

import threading

import pytest

from royale_server.model.worker import InlineWorker, ModelThread
from tests.server.loop_world import LoopWorld


class IdleWorker(InlineWorker):
    """Has nothing to do unless jobs wait, as a thread of its own would say."""

    @property
    def is_idle(self) -> bool:
        return not self._jobs


def quick_world(**settings) -> LoopWorld:
    """A world in which every batch counts as short."""
    return LoopWorld(**{"worker": IdleWorker(), "short_inference": 1.0, **settings})


def play(world: LoopWorld, rounds: int = 9):
    client = world.client(groups=(2, 1))
    client.step(0, obs=[0, 1])
    client.step(1, obs=[2])
    for number in range(rounds):
        ends = number % 4 == 3
        final = [7] if ends else None
        client.step(0, obs=[number, 1], rewards=[1, 2], truncated=[ends, False], final=final)
        client.step(1, obs=[3 * number], rewards=[number])
    return client


def test_actions_and_lessons_are_those_of_a_model_thread():
    elsewhere, here = LoopWorld(target=6), quick_world(target=6)
    assert play(elsewhere).all_actions() == play(here).all_actions()
    assert repr(elsewhere.lessons) == repr(here.lessons)  # their NaN are not equal, but alike
    assert len(here.lessons) > 1


def test_after_the_first_batch_the_worker_gets_no_inference():
    worker = IdleWorker()
    world = quick_world(target=1000, worker=worker)
    client = world.client()
    client.step(obs=[0])
    jobs = []
    submit = worker.submit
    worker.submit = lambda job, done, failed: jobs.append(job) or submit(job, done, failed)
    for _ in range(3):
        client.step(obs=[0], rewards=[1])
    assert len(client.all_actions()) == 4
    assert jobs == []


def test_four_hundred_batches_due_at_once_are_answered_one_after_the_other():
    world = quick_world(target=400, dispatch="dynamic", max_infer_batch_size=1)
    clients = [world.client(name=str(number)) for number in range(400)]
    for client in clients:
        client.step(obs=[0])
    world.listener.hold_learning = True
    for client in clients:  # the last of them completes the iteration: it and others must wait
        client.step(obs=[0], rewards=[1])
    for client in clients:
        if client.may_step():
            client.step(obs=[0], rewards=[1])
    waiting = [client for client in clients if not client.may_step()]
    assert len(waiting) == 400
    world.learn()
    world.now += 1.0  # past the time that a batch may wait to grow
    world.hub.tick()
    world.run()  # the worker is not idle at first: it has the first batch
    assert all(client.may_step() for client in clients)


@pytest.mark.parametrize("name", ["infer", "settle"])
def test_a_failure_is_told_like_one_of_the_model_thread(name):
    world = quick_world(target=1000)
    client = world.client()
    client.step(obs=[0])

    def fail(*_arguments):
        raise MemoryError("no room")

    setattr(world.hub._core.engine_or_none, name, fail)
    with pytest.raises(MemoryError, match="no room"):  # the world's, once the run was told
        client.step(obs=[0], rewards=[1])
    assert [str(error) for error in world.listener.errors] == ["no room"]


def test_a_model_thread_is_idle_once_all_its_jobs_have_ended():
    told, may_end, has_begun = threading.Event(), threading.Event(), threading.Event()
    thread = ModelThread(lambda callback: callback())

    def job():
        has_begun.set()
        may_end.wait()

    assert thread.is_idle
    thread.submit(job, lambda _result: told.set(), lambda error: pytest.fail(str(error)))
    has_begun.wait()
    assert not thread.is_idle
    may_end.set()
    told.wait()
    assert thread.is_idle
    thread.close(5.0)
