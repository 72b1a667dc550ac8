"""One gradient step that does not count: what it takes, and whether acting and judging agree.

Made-up frames go through the policy as it acts, then forward and backward through the learner as it
trains. Changes neither weights nor optimizer, and draws no random number of the run. Runs on the
model thread; judges nothing: that is the preflight's.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from algorithms.base import Learner, Policy
from algorithms.noise import Noise
from algorithms.spaces import Spaces
from algorithms.storage import RolloutStorage
from royale_client.wire.spaces import BoxSpec, Leaf, leaves, mask_size
from royale_server.model.device_memory import DeviceMemory
from royale_server.preflight import machine
from royale_server.preflight.facts import RehearsalFacts

_SPAN = 1.0
"""Real numbers are drawn from [-1, 1] within their bounds."""
_MOST = 3
"""And whole ones from 0 to this: as small as amounts, indices and pixels of an empty scene."""


def rehearse(
    learner: Learner, spaces: Spaces, memory: DeviceMemory | None
) -> RehearsalFacts | None:
    """Measure one forward and backward pass at the real size.

    Args:
        learner: Of the run.
        spaces: Of its environments.
        memory: Of the policy's device; None where nobody can be asked.

    Returns:
        What was measured; None for a learner that takes no gradient steps.
    """
    frames = learner.frames_at_once()
    if frames is None:
        return None
    began_s, rss = time.perf_counter(), machine.peak_bytes()
    free = None
    if memory is not None:
        memory.start_measuring()
        free = memory.free_bytes()
    try:
        storage = _made_up(learner.policy, spaces, frames)
        measured = learner.rehearse(storage, np.arange(frames))
    # Whatever the policy, the learner or the device raises is the answer that was looked for.
    except Exception as error:
        return RehearsalFacts(frames=frames, failure=f"{type(error).__name__}: {error}")
    return RehearsalFacts(
        frames=frames,
        ratio_deviation=measured.ratio_deviation,
        held_bytes=measured.optimizer_bytes + measured.frame_bytes * _frames_held(learner),
        device_free_bytes=free,
        device_peak_bytes=None if memory is None else memory.peak_bytes(),
        host_bytes=(machine.peak_bytes() or 0) - (rss or 0),
        duration_s=time.perf_counter() - began_s,
    )


def _frames_held(learner: Learner) -> int:
    """All frames of an iteration lie on the device while it is learnt from."""
    return learner.frames_wanted() or 0


def _made_up(policy: Policy, spaces: Spaces, frames: int) -> RolloutStorage:
    """Return storage full of frames of one step each, with every action legal."""
    masked = mask_size(spaces.action) if spaces.masks else None
    layouts = leaves(spaces.observation)
    storage = RolloutStorage(frames, layouts, policy.step_state, masked)
    cells = np.arange(frames)
    storage.assign(cells, cells, np.zeros(frames, np.int64))
    for place, layout in zip(storage.observations, layouts, strict=True):
        place[...] = _numbers(layout, frames)
    masks = None
    if masked is not None:
        masks = np.ones((frames, masked), np.bool_)
        storage.write_masks(cells, masks)
    zeros = np.zeros(frames, np.uint64)
    noise = Noise(cells.astype(np.uint64), zeros, zeros)
    acted = policy.act(storage.observations, masks, noise).complete()
    for name, rows in acted.items():
        storage.step_state[name][cells] = rows
    storage.terminated[...] = True
    return storage


def _numbers(leaf: Leaf, frames: int) -> npt.NDArray[Any]:
    """Draw plain observations of one leaf, within its bounds. Shape ``(frames, …)``."""
    random = np.random.default_rng(0)
    shape, spec = (frames, *leaf.shape), leaf.spec
    if not isinstance(spec, BoxSpec):
        return np.full(shape, getattr(spec, "start", 0), leaf.dtype)
    low, high = np.asarray(spec.low, np.float64), np.asarray(spec.high, np.float64)
    if leaf.dtype.kind == "f":
        drawn = random.uniform(-_SPAN, _SPAN, shape)
    else:
        drawn = random.integers(0, _MOST + 1, shape).astype(np.float64)
    numbers: npt.NDArray[Any] = np.clip(drawn, low, high).astype(leaf.dtype)
    return numbers
