"""Running statistics and the normalisers of observations and rewards that stand on them.

Statistics move only when ``update`` is called: they are part of the policy version, frozen while
frames are collected and updated as the last act of a learn step. Numbers that are not finite
never enter. Float64 NumPy throughout, no torch; states are dictionaries of arrays.
Letters: M frames in sequence order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from algorithms.sequences import discounted_sums
from algorithms.spaces import ArrayLayout
from algorithms.storage import Array, BoolArray, FloatArray, IntArray

State: TypeAlias = dict[str, Array]

_BLOCK_ROWS = 4096  # rows taken at once, which bounds the float64 copies that statistics need
_LARGEST = 1e15  # larger numbers count as not finite: one would drown all others for good
_MAX_ABSENCE = 64  # updates after which the running return of a silent slot is forgotten


class RunningStatistics:
    """Mean, population variance and count of everything seen so far, for each element.

    Counts are per element, since a single number that is not finite is left out alone. Nothing
    decays: the count makes a resumed run weigh old and new frames as an uninterrupted one does.

    Args:
        shape: Shape of one sample.

    Source:
        Chan, Golub and LeVeque 1983, doi:10.1080/00031305.1983.10483115, for the merging.
    """

    mean: FloatArray
    """Mean of each element, 0 where nothing was seen."""

    var: FloatArray
    """Population variance of each element, 1 where nothing was seen."""

    count: IntArray
    """Number of samples of each element."""

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.shape = shape
        self.mean = np.zeros(shape, np.float64)
        self.var = np.ones(shape, np.float64)
        self.count = np.zeros(shape, np.int64)

    def update(self, batch: npt.NDArray[np.floating[Any]]) -> None:
        """Take in samples; elements that are not finite (or beyond 1e15) are left out.

        Args:
            batch: Shape ``(m, *shape)``.

        Raises:
            ValueError: If the samples have another shape.
        """
        if batch.shape[1:] != self.shape:
            got = batch.shape[1:]
            raise ValueError(f"RunningStatistics: samples must be {self.shape}, got {got}")
        for start in range(0, len(batch), _BLOCK_ROWS):
            block = batch[start : start + _BLOCK_ROWS].astype(np.float64)
            sane = np.abs(block) < _LARGEST  # false for NaN as well
            block[~sane] = 0.0
            count = sane.sum(axis=0)
            mean = block.sum(axis=0) / np.maximum(count, 1)
            deviations = (block - mean) * sane
            var = np.square(deviations).sum(axis=0) / np.maximum(count, 1)
            self.merge(mean, var, count)

    def merge(self, mean: FloatArray, var: FloatArray, count: IntArray) -> None:
        """Take in the statistics of other samples.

        Args:
            mean: Their mean. Shape ``shape``.
            var: Their population variance. Shape ``shape``.
            count: How many they are. Shape ``shape``.
        """
        total = self.count + count
        share = count / np.maximum(total, 1)  # of the new samples among all
        shift = mean - self.mean
        spread = self.var * (1.0 - share) + var * share + shift**2 * share * (1.0 - share)
        self.mean = np.asarray(self.mean + shift * share)
        self.var = np.where(total > 0, spread, 1.0)
        self.count = np.asarray(total)

    def normalize(
        self, x: npt.NDArray[np.floating[Any]], clip: float, epsilon: float = 1e-8
    ) -> FloatArray:
        """Return ``(x - mean) / sqrt(var + epsilon)``, or ``x`` before anything was seen.

        Args:
            x: Shape ``(n, *shape)``.
            clip: The result is limited to ``[-clip, clip]``.
            epsilon: Keeps constant elements finite.

        Returns:
            Float64. Shape ``(n, *shape)``.
        """
        result: FloatArray = x.astype(np.float64)
        if not self.count.any():
            return result
        result -= self.mean
        result /= np.sqrt(self.var + epsilon)
        return result.clip(-clip, clip, out=result)

    def state(self) -> State:
        """Return mean, variance and count, as copies."""
        return {"mean": self.mean.copy(), "var": self.var.copy(), "count": self.count.copy()}

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Replace everything seen so far by a saved state.

        Args:
            state: What ``state`` returned.

        Raises:
            ValueError: If an array is missing or of another shape, or holds impossible numbers.
        """
        _require(state, ("mean", "var", "count"))
        shapes = {name: state[name].shape for name in ("mean", "var", "count")}
        if set(shapes.values()) != {self.shape}:
            raise ValueError(f"saved statistics must have shape {self.shape}, got {shapes}")
        mean, var = state["mean"].astype(np.float64), state["var"].astype(np.float64)
        count = state["count"].astype(np.int64)
        if not (np.isfinite(mean).all() and np.isfinite(var).all()) or (var < 0).any():
            raise ValueError("saved statistics hold a mean or variance that cannot be")
        if (count < 0).any():
            raise ValueError("saved statistics hold a negative count")
        self.mean, self.var, self.count = mean, var, count


class ObservationNormalizer:
    """Brings the float leaves of observations to mean 0 and deviation 1; leaves others alone.

    Args:
        leaves: Layout of each observation leaf.
        clip: Limit of normalised numbers.

    Raises:
        ValueError: If ``clip`` is not positive.
    """

    def __init__(self, leaves: Sequence[ArrayLayout], clip: float = 10.0) -> None:
        if not clip > 0:
            raise ValueError(f"ObservationNormalizer: clip must be positive, got {clip}")
        self.clip = clip
        self._statistics = tuple(
            RunningStatistics(leaf.shape) if leaf.dtype.kind == "f" else None for leaf in leaves
        )

    def normalize(self, observations: tuple[Array, ...]) -> tuple[Array, ...]:
        """Return what the network should see; before the first update, the same numbers.

        Args:
            observations: One array ``(n, …)`` per leaf.

        Returns:
            Float leaves as new float32 arrays, the others as they are.
        """
        return tuple(
            leaf if known is None else known.normalize(leaf, self.clip).astype(np.float32)
            for leaf, known in zip(observations, self._statistics, strict=True)
        )

    def update(self, observations: tuple[Array, ...]) -> None:
        """Take in the frames of the iteration: the last act of a learn step.

        Args:
            observations: One array ``(M, …)`` per leaf, in an order that two equal runs share.
        """
        for leaf, known in zip(observations, self._statistics, strict=True):
            if known is not None:
                known.update(leaf)

    def state(self) -> State:
        """Return the statistics of all float leaves, keyed ``<leaf number>/<name>``."""
        return {
            f"{number}/{name}": array
            for number, known in enumerate(self._statistics)
            if known is not None
            for name, array in known.state().items()
        }

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Replace the statistics by saved ones.

        Args:
            state: What ``state`` returned.

        Raises:
            ValueError: If the arrays are not those of this observation space.
        """
        _require(state, self.state())
        for number, known in enumerate(self._statistics):
            if known is not None:
                prefix = f"{number}/"
                known.load_state({name: state[prefix + name] for name in known.state()})


class ReturnNormalizer:
    """Scales rewards so that the discounted return of a slot has a standard deviation near 1.

    Rewards are divided, never shifted: their sign keeps its meaning. The running return of each
    slot goes on from one iteration to the next; it starts anew at an episode's first frame and
    behind a hole.

    Args:
        gamma: Discount per frame, in ``[0, 1]``.
        clip: Limit of scaled rewards, ``None`` for no limit.

    Raises:
        ValueError: If ``gamma`` is outside ``[0, 1]`` or ``clip`` not positive.
    """

    def __init__(self, gamma: float, clip: float | None = 10.0) -> None:
        if not 0.0 <= gamma <= 1.0:
            raise ValueError(f"ReturnNormalizer: gamma must be in [0, 1], got {gamma}")
        if clip is not None and not clip > 0:
            raise ValueError(f"ReturnNormalizer: clip must be positive or None, got {clip}")
        self.gamma = gamma
        self.clip = clip
        self._statistics = RunningStatistics()
        self._slots = np.zeros(0, np.int64)  # slots with a running return, ascending
        self._next_ordinals = np.zeros(0, np.int64)  # the frame that would continue it
        self._returns = np.zeros(0, np.float64)
        self._absences = np.zeros(0, np.int64)  # updates since the slot was last seen

    def scale(self, rewards: FloatArray) -> FloatArray:
        """Return rewards in units of the return's deviation, or unscaled before one is known.

        Args:
            rewards: Environment units. Shape ``(M,)``.

        Returns:
            Float64. Shape ``(M,)``.
        """
        if not self._knows_deviation:
            return rewards.astype(np.float64)
        scaled: FloatArray = rewards / np.sqrt(float(self._statistics.var) + 1e-8)
        return scaled if self.clip is None else np.clip(scaled, -self.clip, self.clip)

    def is_cut(self, scaled: FloatArray) -> BoolArray:
        """Say which rewards ``scale`` has cut at the limit; none before a deviation is known.

        Args:
            scaled: What ``scale`` returned, before the next update. Shape ``(M,)``.

        Returns:
            Shape ``(M,)``.
        """
        if self.clip is None or not self._knows_deviation:
            return np.zeros(len(scaled), np.bool_)
        cut: BoolArray = np.abs(scaled) >= self.clip
        return cut

    @property
    def _knows_deviation(self) -> bool:
        return bool(self._statistics.count.any()) and float(self._statistics.var) != 0.0

    def update(
        self, slots: IntArray, ordinals: IntArray, rewards: FloatArray, ended: BoolArray
    ) -> None:
        """Take in the frames of the iteration: the last act of a learn step.

        A reward that is not finite is left out and cuts the running return.

        Args:
            slots: Slot of each frame, ascending. Shape ``(M,)``.
            ordinals: Number within the slot, ascending within a slot. Shape ``(M,)``.
            rewards: Unscaled, environment units. Shape ``(M,)``.
            ended: The episode ended at this frame, terminated or truncated. Shape ``(M,)``.
        """
        finite = np.isfinite(rewards)
        slots, ordinals, ended = slots[finite], ordinals[finite], ended[finite]
        new_slot = np.ones(len(slots), np.bool_)
        new_slot[1:] = slots[1:] != slots[:-1]
        terms = rewards[finite]
        terms[new_slot] += self.gamma * self._carried(slots[new_slot], ordinals[new_slot])

        follows = ~new_slot
        follows[1:] &= (ordinals[1:] == ordinals[:-1] + 1) & ~ended[:-1]
        carry = np.where(follows, self.gamma, 0.0)
        returns = discounted_sums(terms[::-1], carry[::-1])[::-1]
        self._statistics.update(returns)

        last = np.append(new_slot[1:], True) if len(slots) else new_slot
        self._remember(slots[last], ordinals[last] + 1, np.where(ended, 0.0, returns)[last])

    def _carried(self, slots: IntArray, ordinals: IntArray) -> FloatArray:
        """Return the running return that each slot's first frame continues, else 0."""
        if not len(self._slots):
            return np.zeros(len(slots))
        place = np.minimum(np.searchsorted(self._slots, slots), len(self._slots) - 1)
        known = (self._slots[place] == slots) & (self._next_ordinals[place] == ordinals)
        return np.where(known, self._returns[place], 0.0)

    def _remember(self, slots: IntArray, next_ordinals: IntArray, returns: FloatArray) -> None:
        old = ~np.isin(self._slots, slots) & (self._absences < _MAX_ABSENCE)
        merged = np.concatenate((self._slots[old], slots))
        order = np.argsort(merged)
        self._slots = merged[order]
        self._next_ordinals = np.concatenate((self._next_ordinals[old], next_ordinals))[order]
        self._returns = np.concatenate((self._returns[old], returns))[order]
        seen_now = np.zeros(len(slots), np.int64)
        self._absences = np.concatenate((self._absences[old] + 1, seen_now))[order]

    def state(self) -> State:
        """Return the statistics and the running return of each slot, as copies."""
        return self._statistics.state() | {
            "slots": self._slots.copy(),
            "next_ordinals": self._next_ordinals.copy(),
            "returns": self._returns.copy(),
            "absences": self._absences.copy(),
        }

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Replace everything by a saved state.

        Args:
            state: What ``state`` returned.

        Raises:
            ValueError: If an array is missing, of another shape, or holds impossible numbers.
        """
        _require(state, self.state())
        names = ("slots", "next_ordinals", "returns", "absences")
        lengths = {name: state[name].shape for name in names}
        if len(set(lengths.values())) != 1 or state["slots"].ndim != 1:
            raise ValueError(f"saved running returns must be of one length, got {lengths}")
        if not np.isfinite(state["returns"]).all():
            raise ValueError("saved running returns hold a number that is not finite")
        self._statistics.load_state({name: state[name] for name in ("mean", "var", "count")})
        self._slots = state["slots"].astype(np.int64)
        self._next_ordinals = state["next_ordinals"].astype(np.int64)
        self._returns = state["returns"].astype(np.float64)
        self._absences = state["absences"].astype(np.int64)


def _require(state: Mapping[str, Array], names: Sequence[str] | Mapping[str, Array]) -> None:
    """Refuse a state that does not hold exactly these arrays."""
    missing, surplus = sorted(set(names) - set(state)), sorted(set(state) - set(names))
    if missing or surplus:
        raise ValueError(
            f"saved normaliser state does not fit: missing {missing}, unexpected {surplus}; "
            "was it saved for another observation space?"
        )
