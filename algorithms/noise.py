"""Counter-based noise: every random number of a policy, addressed instead of drawn.

A number is a pure function of (slot key, episode, step in the episode, purpose, lane). There is
no state, so a row gets the same noise whichever batch it is inferred in, and adding a client
leaves the noise of the others unchanged. Whole batches are computed by a fixed number of array
operations. Knows numpy only and never touches a global generator. Not for cryptography.

Source: the finaliser and the idea of adding multiples of an odd constant to a mixed key are
those of SplitMix64 (Steele, Lea and Flood 2014, doi:10.1145/2660193.2660195).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

UIntArray: TypeAlias = npt.NDArray[np.uint64]
FloatArray: TypeAlias = npt.NDArray[np.float64]

FIRST_FREE_PURPOSE = 64
"""Plug-ins number their own purposes from here on; smaller ones are ours."""

_MAX_PURPOSE = 1 << 16
_MAX_LANES = 1 << 32

# Odd constants without a simple relation between them. The first three step through episodes,
# steps and lanes; the others multiply between shifts, where the bits above reach the bits below.
_EPISODE = np.uint64(0xD1342543DE82EF95)
_STEP = np.uint64(0xAEF17502108EF2D9)
_LANE = 0x9E3779B97F4A7C15
_MIX_ROW = np.uint64(0xF1357AEA2E62A9C5)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_27, _30, _31, _32, _12 = (np.uint64(bits) for bits in (27, 30, 31, 32, 12))

_ONE = np.uint64(0x3FF0000000000000)  # bit pattern of 1.0
_BELOW_ONE = 1.0 - 2.0**-53


class Purpose(IntEnum):
    """What a number is used for. Different purposes give independent numbers."""

    ACTION = 1
    """Sampling the action from the policy's distribution."""

    EXPLORE = 2
    """Exploration on top of the sampled action."""

    RESET = 3
    """Seeds of environment resets."""

    WARMUP = 4
    """Uniformly random actions before training starts."""

    SEATING = 5
    """Who sits in the seats of a battle."""


def slot_key(seed: int, client_name: str, slot: int) -> np.uint64:
    """Derive the key of a slot's noise from names that do not depend on who connected first.

    Args:
        seed: Seed of the run.
        client_name: Stable name of the client that owns the slot.
        slot: Number of the slot within its client, from 0.

    Returns:
        64 bits; two slots of a run share them with a chance of about 2**-64.
    """
    address = f"{seed}\0{slot}\0{client_name}".encode()
    digest = hashlib.blake2b(address, digest_size=8, person=b"royale-noise").digest()
    return np.uint64(int.from_bytes(digest, "little"))


@dataclass(slots=True)  # one a batch: freezing costs more than filling it
class Noise:
    """The random numbers of one batch of n rows.

    Row i of everything below depends on nothing but ``keys[i]``, ``episodes[i]``, ``steps[i]``,
    the purpose and the lane. All methods read the same underlying bits: within one action, draw a
    purpose by one method only.

    Raises:
        ValueError: If the three arrays are not uint64 vectors of one length.
    """

    keys: UIntArray
    """Key of each row's slot, from ``slot_key``. Shape ``(n,)``."""

    episodes: UIntArray
    """Ordinal of the episode within its slot. Shape ``(n,)``."""

    steps: UIntArray
    """Step within the episode. Shape ``(n,)``."""

    def __post_init__(self) -> None:
        columns = (self.keys, self.episodes, self.steps)
        shape = (len(self.keys),)
        if any([c.dtype != np.uint64 or c.shape != shape for c in columns]):
            got = [(c.dtype.name, c.shape) for c in columns]
            raise ValueError(f"Noise: keys, episodes and steps must be uint64 (n,), got {got}")

    def __len__(self) -> int:
        return len(self.keys)

    def rows(self, chosen: npt.NDArray[np.bool_]) -> Noise:
        """Return the noise of some of the rows, which is the same as among all of them.

        Args:
            chosen: Shape ``(n,)``.
        """
        return Noise(self.keys[chosen], self.episodes[chosen], self.steps[chosen])

    def bits(self, purpose: int, lanes: int) -> UIntArray:
        """Return 64 independent random bits for each row and lane.

        Args:
            purpose: A ``Purpose``, or a plug-in's own number from ``FIRST_FREE_PURPOSE`` on.
            lanes: How many numbers each row needs. Lane j is the same number for every ``lanes``.

        Returns:
            Shape ``(n, lanes)``, a new array.

        Raises:
            ValueError: If the purpose is outside ``[0, 65536)`` or ``lanes`` is negative.
        """
        rows = self.episodes * _EPISODE
        rows += self.keys
        rows ^= rows >> _32
        rows *= _MIX_ROW
        rows += self.steps * _STEP
        x: UIntArray = rows[:, None] + _lane_offsets(int(purpose), lanes)
        x ^= x >> _30
        x *= _MIX_1
        x ^= x >> _27
        x *= _MIX_2
        x ^= x >> _31
        return x

    def uniform(self, purpose: int, lanes: int) -> FloatArray:
        """Return numbers uniform on the open interval (0, 1), symmetric about one half.

        Args:
            purpose: See ``bits``.
            lanes: See ``bits``.

        Returns:
            Odd multiples of 2**-53. Shape ``(n, lanes)``.
        """
        # 52 random bits become the fraction of a number in [1, 2): exact, and no conversion.
        x = self.bits(purpose, lanes)
        x >>= _12
        x |= _ONE
        u = x.view(np.float64)
        u -= _BELOW_ONE
        return u

    def gumbel(self, purpose: int, lanes: int) -> FloatArray:
        """Return standard Gumbel numbers: adding them to logits and taking the biggest samples.

        Args:
            purpose: See ``bits``.
            lanes: Number of categories.

        Returns:
            Finite numbers in [-3.7, 36.8]. Shape ``(n, lanes)``.
        """
        u = self.uniform(purpose, lanes)
        np.log(u, out=u)
        np.negative(u, out=u)
        np.log(u, out=u)
        return np.negative(u, out=u)

    def normal(self, purpose: int, lanes: int) -> FloatArray:
        """Return standard normal numbers, by the Box-Muller transform of pairs of lanes.

        Args:
            purpose: See ``bits``.
            lanes: Number of dimensions.

        Returns:
            Numbers below 8.6 in size. Shape ``(n, lanes)``.
        """
        pairs = self.uniform(purpose, lanes + lanes % 2)
        radius = np.sqrt(-2.0 * np.log(pairs[:, 0::2]))
        points = radius * np.exp(2j * np.pi * pairs[:, 1::2])  # in the plane, one for each pair
        normals: FloatArray = points.view(np.float64)
        return normals[:, :lanes]


@lru_cache(maxsize=256)
def _lane_offsets(purpose: int, lanes: int) -> UIntArray:
    """Return what each lane adds to its row before the final mixing. Shape ``(lanes,)``."""
    if not 0 <= purpose < _MAX_PURPOSE:
        raise ValueError(f"Noise: purpose must be in [0, {_MAX_PURPOSE}), got {purpose}")
    if not 0 <= lanes < _MAX_LANES:
        raise ValueError(f"Noise: lanes must be in [0, {_MAX_LANES}), got {lanes}")
    counters = np.arange(lanes, dtype=np.uint64) + np.uint64((purpose << 32) + 1)
    offsets = counters * np.uint64(_LANE)
    offsets.flags.writeable = False
    return offsets
