"""Proof that a clause of the frame rules is needed: what holds with it breaks without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.scheduler.plans import Plan
from tests.scheduler.world import World

Mutation = tuple[Any, str, Any]
"""Owner, attribute, and what stands there when the clause is taken out."""


def assert_needed(
    check: Callable[[], None], monkeypatch: pytest.MonkeyPatch, *mutations: Mutation
) -> None:
    """The check passes on the real core and fails on one without the clause."""
    check()
    for owner, name, replacement in mutations:
        monkeypatch.setattr(owner, name, replacement)
    with pytest.raises(AssertionError):
        check()


def assert_no_fault(plan: Plan, *, seed: int = 0) -> World:
    world = World(plan, seed=seed).run()
    assert not world.faults
    return world


def nothing(*_args: Any, **_kwargs: Any) -> None:
    """A clause taken out."""
